//! An overlay that others are put on top of, one after another and each by itself: what the rules of a topic set
//! on top of what was set on a message before.

use super::Overlay;
use super::codec;

/// An overlay whose properties were looked up once. Another on top of it takes time in proportion to the other, and
/// a copy of the bytes.
#[derive(Debug)]
pub struct Beneath<'a> {
    entries: Vec<Place<'a>>,
    /// The entries one behind the other.
    items: Vec<u8>,
}

/// Where an entry is.
#[derive(Debug)]
struct Place<'a> {
    identity: Identity<'a>,
    from: usize,
    to: usize,
}

/// Whether a property is one of the broker's, and its name.
type Identity<'a> = (bool, &'a str);

fn identity<'a>(entry: &codec::PropertyEntry<'a>) -> Option<Identity<'a>> {
    Some((entry.has_symbol_key(), entry.key()?))
}

impl Overlay {
    /// This overlay, to put others on top of it.
    #[must_use]
    pub fn beneath(&self) -> Beneath<'_> {
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
        Beneath { entries, items }
    }
}

impl Beneath<'_> {
    /// One overlay that does what this one and then `later` do: the same as [`Overlay::on_top_of`].
    #[must_use]
    pub fn with(&self, later: &Overlay) -> Overlay {
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
        let mut behind = 0;
        for (from, to) in &replaced {
            items.extend_from_slice(self.items.get(behind..*from).unwrap_or_default());
            behind = *to;
        }
        items.extend_from_slice(self.items.get(behind..).unwrap_or_default());
        for entry in codec::entries(later.as_bytes()) {
            items.extend_from_slice(entry.key_bytes());
            items.extend_from_slice(entry.value);
        }
        Overlay::from_items(&items, 2 * (count - replaced.len()))
    }
}
