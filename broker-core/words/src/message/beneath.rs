//! An overlay that many others are put on top of, each separately. The rules of a topic use it:
//! each applies its changes to a message that has an overlay already.

use super::Overlay;
use super::codec;

/// An overlay whose properties are indexed once. Combining it with another one takes time in
/// proportion to the other one, and a copy of the bytes.
#[derive(Debug)]
pub struct IndexedOverlay<'a> {
    entries: Vec<Place<'a>>,
    /// The encoded entries, one after the other.
    items: Vec<u8>,
}

/// Range of an entry in `items`.
#[derive(Debug)]
struct Place<'a> {
    identity: Identity<'a>,
    from: usize,
    to: usize,
}

/// Whether the property is a broker property, and its name.
type Identity<'a> = (bool, &'a str);

fn identity<'a>(entry: &codec::PropertyEntry<'a>) -> Option<Identity<'a>> {
    Some((entry.has_symbol_key(), entry.key()?))
}

impl Overlay {
    /// Indexes this overlay, for overlays on top.
    #[must_use]
    pub fn indexed(&self) -> IndexedOverlay<'_> {
        let mut entries = Vec::new();
        let mut items = Vec::with_capacity(self.as_bytes().len());
        for entry in codec::entries(self.as_bytes()) {
            let Some(identity) = identity(&entry) else { continue };
            let from = items.len();
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
            entries.push(Place { identity, from, to: items.len() });
        }
        entries.sort_by_key(|place| place.identity);
        IndexedOverlay { entries, items }
    }
}

impl IndexedOverlay<'_> {
    /// One overlay that has the effect of this one followed by `later`. Equals
    /// [`Overlay::on_top_of`].
    #[must_use]
    pub fn combined_with(&self, later: &Overlay) -> Overlay {
        let mut replaced = Vec::new();
        let mut count = self.entries.len();
        for entry in codec::entries(later.as_bytes()) {
            count += 1;
            let Some(identity) = identity(&entry) else { continue };
            let first = self.entries.partition_point(|place| place.identity < identity);
            let same = self.entries.iter().skip(first);
            let same = same.take_while(|place| place.identity == identity);
            replaced.extend(same.map(|place| (place.from, place.to)));
        }
        replaced.sort_unstable();
        replaced.dedup();
        let mut items = Vec::with_capacity(self.items.len() + later.as_bytes().len());
        let mut copied_to = 0;
        for (from, to) in &replaced {
            items.extend_from_slice(self.items.get(copied_to..*from).unwrap_or_default());
            copied_to = *to;
        }
        items.extend_from_slice(self.items.get(copied_to..).unwrap_or_default());
        for entry in codec::entries(later.as_bytes()) {
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
        }
        Overlay::from_items(&items, 2 * (count - replaced.len()))
    }
}
