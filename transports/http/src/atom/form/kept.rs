//! What stands in a description without being a property of the broker's: kept as it was said, and told again (HTP-17).

use super::super::xml::{Element, SB, Xml, fragment, read_kept};

/// What is kept of an entity or a rule.
#[derive(Default)]
pub(super) struct Kept(Vec<Element>);

impl Kept {
    /// As it was stored.
    pub(super) fn stored(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::default() };
        // Written by this module, which its reader bounds in nothing. What cannot be read a host has put there: it is not told.
        let root = read_kept(&format!("<kept>{text}</kept>")).unwrap_or_default();
        Self(root.children)
    }

    /// What is to be stored after a description was read; none to leave it as it is. What has a name of its own takes the
    /// place of what had it.
    pub(super) fn with(self, description: &Element, known: &[&str]) -> Option<Box<str>> {
        let is_known = |it: &&Element| &*it.namespace == SB && known.contains(&&*it.name);
        let newer: Vec<&Element> = description.children.iter().filter(|it| !is_known(it)).collect();
        if newer.is_empty() {
            return None;
        }
        let is_replaced =
            |it: &&Element| newer.iter().any(|newer| newer.is(&it.namespace, &it.name));
        let older = self.0.iter().filter(|it| !is_replaced(it));
        Some(fragment(older.chain(newer.iter().copied())).into())
    }

    /// A switch that is told in its place and means nothing here, and its value if nobody has said one.
    pub(super) fn write_flag(&self, xml: &mut Xml, name: &str, default: &str) {
        let said = self.0.iter().find(|it| it.is(SB, name)).map(|it| it.text.trim());
        xml.leaf(name, said.unwrap_or(default));
    }

    /// All that has no place of its own.
    pub(super) fn write_rest(&self, xml: &mut Xml, placed: &[&str]) {
        for element in &self.0 {
            if &*element.namespace != SB || !placed.contains(&&*element.name) {
                xml.copy(element);
            }
        }
    }

    /// What is kept, one after the other.
    pub(super) fn elements(&self) -> &[Element] {
        &self.0
    }
}
