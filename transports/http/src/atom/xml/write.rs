//! Writes XML. Characters that XML does not allow are replaced, so that no name or metadata makes a
//! list unreadable.

use std::borrow::Cow;
use std::io;

use actix_web::http::StatusCode;
use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::{Element, XML, is_character};

/// Initial capacity in bytes; most entries are smaller.
const BYTES: usize = 4_096;

/// A document that is written, or only measured, so that memory can be reserved before it is
/// written.
pub(crate) struct Xml(Writer<Page>);

/// Destination of the written bytes.
enum Page {
    Kept(Vec<u8>),
    Counted(usize),
}

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kept(page) => page.extend_from_slice(bytes),
            Self::Counted(size) => *size = size.saturating_add(bytes.len()),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Xml {
    /// Starts a document with its declaration.
    pub(crate) fn document() -> Self {
        Self::sized(BYTES)
    }

    /// Starts a document of approximately `bytes`.
    pub(crate) fn sized(bytes: usize) -> Self {
        Self::declared(Page::Kept(Vec::with_capacity(bytes)))
    }

    /// Starts a document that is only measured.
    pub(crate) fn counted() -> Self {
        Self::declared(Page::Counted(0))
    }

    fn declared(page: Page) -> Self {
        let mut xml = Self(Writer::new(page));
        xml.event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        xml
    }

    /// Starts a part of a document, without a declaration.
    pub(crate) fn fragment() -> Self {
        Self(Writer::new(Page::Kept(Vec::with_capacity(BYTES))))
    }

    /// Writes an element with children.
    pub(crate) fn element(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        inside: impl FnOnce(&mut Self),
    ) {
        self.event(Event::Start(start(name, attributes)));
        inside(self);
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element with text.
    pub(crate) fn leaf(&mut self, name: &str, text: &str) {
        self.leaf_with(name, &[], text);
    }

    /// Writes an element with attributes and text.
    pub(crate) fn leaf_with(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        if text.is_empty() {
            self.event(Event::Empty(start(name, attributes)));
            return;
        }
        self.element(name, attributes, |xml| xml.text(text));
    }

    fn text(&mut self, text: &str) {
        let escaped = partial_escape(printable(text)).replace('\r', "&#13;");
        self.event(Event::Text(BytesText::from_escaped(escaped)));
    }

    /// Writes a parsed element with all its content, in order.
    pub(crate) fn copy(&mut self, element: &Element) {
        // Without a prefix, except in the namespace with a predefined prefix.
        let (name, mut attributes) = match &*element.namespace {
            XML => (format!("xml:{}", element.name), Vec::new()),
            namespace => {
                (element.name.to_string(), vec![("xmlns".to_owned(), namespace.to_owned())])
            }
        };
        for (place, attribute) in element.attributes.iter().enumerate() {
            let name = match &*attribute.namespace {
                "" => attribute.name.to_string(),
                XML => format!("xml:{}", attribute.name),
                namespace => {
                    let prefix = format!("a{place}");
                    attributes.push((format!("xmlns:{prefix}"), namespace.to_owned()));
                    format!("{prefix}:{}", attribute.name)
                }
            };
            attributes.push((name, attribute.value.clone()));
        }
        let pairs: Vec<_> =
            attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        if element.children.is_empty() {
            self.leaf_with(&name, &pairs, &element.text);
            return;
        }
        self.element(&name, &pairs, |xml| {
            let mut written = 0;
            for child in &element.children {
                xml.text(element.text.get(written..child.text_before).unwrap_or_default());
                written = child.text_before;
                xml.copy(child);
            }
            xml.text(element.text.get(written..).unwrap_or_default());
        });
    }

    /// Returns the bytes; none if it was only measured.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self.0.into_inner() {
            Page::Kept(page) => page,
            Page::Counted(_) => Vec::new(),
        }
    }

    /// Returns the size in bytes.
    pub(crate) fn size(self) -> usize {
        match self.0.into_inner() {
            Page::Kept(page) => page.len(),
            Page::Counted(size) => size,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        // Writing into memory does not fail.
        self.0.write_event(event).ok();
    }
}

/// Makes the body of a refusal (ADM-50).
pub(crate) fn refusal_in_xml(status: StatusCode, detail: &str) -> Vec<u8> {
    let mut xml = Xml::document();
    xml.element("Error", &[], |xml| {
        xml.leaf("Code", status.as_str());
        xml.leaf("Detail", detail);
    });
    xml.bytes()
}

/// Writes parsed elements as text; each is complete without the others.
pub(crate) fn fragment<'a>(elements: impl IntoIterator<Item = &'a Element>) -> String {
    let mut xml = Xml::fragment();
    for element in elements {
        xml.copy(element);
    }
    String::from_utf8(xml.bytes()).unwrap_or_default()
}

fn start<'a>(name: &'a str, attributes: &[(&str, &str)]) -> BytesStart<'a> {
    let mut start = BytesStart::new(name);
    for (name, value) in attributes {
        let value = printable(value);
        start.push_attribute((*name, &*value));
    }
    start
}

/// Replaces the characters that XML 1.0 does not allow.
fn printable(text: &str) -> Cow<'_, str> {
    let is_none = |character: char| !is_character(character);
    if !text.contains(is_none) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_none, "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DESIGN D6: a document has exactly its measured size, even with escapes, and measuring keeps
    /// no bytes.
    #[test]
    fn a_document_is_as_large_as_it_was_counted() {
        let write = |mut xml: Xml| {
            xml.element("a", &[("b", "\"<\u{1}")], |xml| {
                xml.leaf("c", &"\"'&<>\r\u{1}\u{e9}".repeat(1_000));
                xml.leaf("d", "");
            });
            xml
        };
        let bytes = write(Xml::sized(0)).bytes();
        assert!(bytes.len() > 20_000);
        assert_eq!(write(Xml::counted()).size(), bytes.len());
        assert!(write(Xml::counted()).bytes().is_empty());
    }
}
