//! XML within bounds: documents of clients as small trees, and documents for them.
//!
//! This module also defines valid names and characters. The XML library accepts any text as a name,
//! and any character. Stored elements are written again, and invalid ones would break the document
//! that contains them.

mod read;
mod write;

pub(super) use read::{BYTES_MAX, read, read_stored, room_bytes};
pub(crate) use write::refusal_in_xml;
pub(super) use write::{Xml, fragment};

/// Namespace of entries and feeds (RFC 4287).
pub(super) const ATOM: &str = "http://www.w3.org/2005/Atom";
/// Namespace of descriptions.
pub(super) const SB: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
/// Namespace of the parts of message counts.
pub(super) const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";
/// Namespace of `type` and `nil`.
pub(super) const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// Namespace of the types of values.
pub(super) const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
/// Namespace of value types that XML Schema does not have.
pub(super) const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";
/// Namespace of `xml:lang` and `xml:space`; its prefix is predefined, and no other is allowed.
const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// Namespace of namespace declarations; nothing else may use it.
const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// An element with its content.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Element {
    /// Empty for none.
    pub(super) namespace: Box<str>,
    /// Its name without a prefix.
    pub(super) name: Box<str>,
    /// Excludes namespace declarations.
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Self>,
    /// All text directly in the element.
    pub(super) text: String,
    /// Number of bytes of the parent's text before this element.
    pub(super) text_before: usize,
    /// Name in its attribute `type`, without the prefix.
    pub(super) kind: Option<Box<str>>,
}

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attribute {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) value: String,
}

impl Element {
    /// Returns the first child with this name.
    pub(super) fn child(&self, namespace: &str, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.is(namespace, name))
    }

    /// Whether it has this name.
    pub(super) fn is(&self, namespace: &str, name: &str) -> bool {
        &*self.namespace == namespace && &*self.name == name
    }

    /// Whether its attribute `nil` is true.
    pub(super) fn is_nil(&self) -> bool {
        let nil = |it: &&Attribute| &*it.namespace == INSTANCE && &*it.name == "nil";
        self.attributes.iter().find(nil).is_some_and(|it| matches!(it.value.trim(), "true" | "1"))
    }
}

/// Whether a text is a name with at most one prefix (`QName` of Namespaces in XML 1.0, 4).
fn is_qualified(text: &str) -> bool {
    match text.split_once(':') {
        Some((prefix, local)) => is_name(prefix) && is_name(local),
        None => is_name(text),
    }
}

/// Whether a text is a name without a colon (`NCName`; XML 1.0, 2.3).
fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(is_first) && characters.all(is_further)
}

/// Whether XML 1.0 allows the character (2.2, `Char`).
const fn is_character(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

const fn is_first(character: char) -> bool {
    matches!(character,
        'A'..='Z' | '_' | 'a'..='z'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
        | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

const fn is_further(character: char) -> bool {
    is_first(character)
        || matches!(character,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}
