//! Elements of a description that are not properties of the broker: stored as sent, and returned
//! unchanged (HTP-17).

use super::super::entry::Addresses;
use super::super::xml::{Element, SB, Xml, fragment, read_stored};
use super::{Fields, entity_of, policies};

/// XML namespace of elements that this module stores for itself.
pub(super) const INTERNAL_NAMESPACE: &str = "urn:peeklock:kept";

/// Properties with a destination, and the names under which their spelling is kept.
const DESTINATIONS: [(&str, &str); 2] = [
    ("ForwardTo", "GivenForwardTo"),
    ("ForwardDeadLetteredMessagesTo", "GivenForwardDeadLetteredMessagesTo"),
];

/// Stored elements of an entity or a rule.
#[derive(Default)]
pub(super) struct StoredElements(Vec<Element>);

impl StoredElements {
    /// Reads the stored elements.
    pub(super) fn stored(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::default() };
        // This module has written the text, so the reader applies no bounds. Unreadable text was
        // set by a host and is not returned.
        let root = read_stored(&format!("<kept>{text}</kept>")).unwrap_or_default();
        Self(root.children)
    }

    /// Returns the text to store after a description was read; none to keep the stored text. New
    /// elements replace stored ones with the same name; `own` replaces everything that this module
    /// has stored for itself.
    pub(super) fn with(
        self,
        description: &Element,
        known: &[&str],
        own: &[Element],
    ) -> Option<Box<str>> {
        let is_own = |it: &Element| &*it.namespace == INTERNAL_NAMESPACE;
        let is_known =
            |it: &&Element| is_own(it) || &*it.namespace == SB && known.contains(&&*it.name);
        let newer = description.children.iter().filter(|it| !is_known(it));
        let newer: Vec<&Element> = newer.chain(own).collect();
        if newer.is_empty() && !self.0.iter().any(is_own) {
            return None;
        }
        let is_replaced = |it: &&Element| {
            is_own(it) || newer.iter().any(|newer| newer.is(&it.namespace, &it.name))
        };
        let older = self.0.iter().filter(|it| !is_replaced(it));
        Some(fragment(older.chain(newer.iter().copied())).into())
    }

    /// Writes a flag that the broker does not use: the stored value, or `default`.
    pub(super) fn write_flag(&self, xml: &mut Xml, name: &str, default: &str) {
        let said = self.0.iter().find(|it| it.is(SB, name)).map(|it| it.text.trim());
        xml.leaf(name, said.unwrap_or(default));
    }

    /// Writes the stored elements that have no fixed position.
    pub(super) fn write_rest(&self, xml: &mut Xml, placed: &[&str]) {
        for element in &self.0 {
            let is_placed = &*element.namespace == SB && placed.contains(&&*element.name);
            if &*element.namespace != INTERNAL_NAMESPACE && !is_placed {
                xml.copy(element);
            }
        }
    }

    /// Returns the parts of a description that its properties do not contain, to store them:
    /// destinations as written, and the order of rights.
    pub(super) fn own_of_entity(&self, description: &Element) -> Vec<Element> {
        let fields = Fields(description);
        let given = DESTINATIONS.iter().filter_map(|(property, name)| {
            let text = fields.destination_text(property)?;
            (text.contains("://") && entity_of(text).is_some()).then(|| own(name, text.to_owned()))
        });
        let orders = policies::orders(description).unwrap_or_else(|| {
            // The policies stay unchanged, and so does the order of their rights.
            self.own(policies::ORDER).map(|text| own(policies::ORDER, text.to_owned())).collect()
        });
        given.chain(orders).collect()
    }

    /// Returns a destination as written, or in the form that clients send (ADM-36).
    pub(super) fn destination(&self, property: &str, path: &str, addresses: &Addresses) -> String {
        let name = DESTINATIONS.iter().find(|(known, _)| *known == property);
        let given = name.and_then(|(_, name)| {
            let leads_there = |text: &&str| {
                entity_of(text).is_some_and(|entity| entity.eq_ignore_ascii_case(path))
            };
            self.own(name).find(leads_there)
        });
        given.map_or_else(|| addresses.destination(path), str::to_owned)
    }

    /// Returns the texts that this module has stored under a name.
    pub(super) fn own(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |it| it.is(INTERNAL_NAMESPACE, name)).map(|it| it.text.as_str())
    }
}

/// Makes an element that this module stores for itself.
pub(super) fn own(name: &str, text: String) -> Element {
    Element { namespace: INTERNAL_NAMESPACE.into(), name: name.into(), text, ..Element::default() }
}
