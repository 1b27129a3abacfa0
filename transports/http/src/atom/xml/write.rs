//! XML as it is told. Text that XML cannot hold is shown as such, so that no name or metadata breaks a list for whoever reads
//! it.

use std::borrow::Cow;
use std::io;

use actix_web::http::StatusCode;
use quick_xml::Writer;
use quick_xml::escape::partial_escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::{Element, XML, is_character};

/// Most entries have no more.
const BYTES: usize = 4_096;

/// A document that is being written, or counted, so that there is room for it before there is any of it.
pub(crate) struct Xml(Writer<Page>);

/// What becomes of what is written.
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
    /// A document that begins with its declaration.
    pub(crate) fn document() -> Self {
        Self::sized(BYTES)
    }

    /// One that has about so many bytes.
    pub(crate) fn sized(bytes: usize) -> Self {
        Self::declared(Page::Kept(Vec::with_capacity(bytes)))
    }

    /// One of which nothing is kept but its size.
    pub(crate) fn counted() -> Self {
        Self::declared(Page::Counted(0))
    }

    fn declared(page: Page) -> Self {
        let mut xml = Self(Writer::new(page));
        xml.event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        xml
    }

    /// A part of one.
    pub(crate) fn fragment() -> Self {
        Self(Writer::new(Page::Kept(Vec::with_capacity(BYTES))))
    }

    /// An element with others in it.
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

    /// An element with text in it.
    pub(crate) fn leaf(&mut self, name: &str, text: &str) {
        self.leaf_with(name, &[], text);
    }

    /// An element with attributes and text.
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

    /// An element that was read, with all that is in it, in its order.
    pub(crate) fn copy(&mut self, element: &Element) {
        // Without a prefix, but for the one namespace that has its own everywhere, undeclared.
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

    /// Its bytes; none, if it was counted.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self.0.into_inner() {
            Page::Kept(page) => page,
            Page::Counted(_) => Vec::new(),
        }
    }

    /// How many it has.
    pub(crate) fn size(self) -> usize {
        match self.0.into_inner() {
            Page::Kept(page) => page.len(),
            Page::Counted(size) => size,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        // Memory does not refuse to be written.
        self.0.write_event(event).ok();
    }
}

/// The body of a refusal (ADM-50).
pub(crate) fn refusal_in_xml(status: StatusCode, detail: &str) -> Vec<u8> {
    let mut xml = Xml::document();
    xml.element("Error", &[], |xml| {
        xml.leaf("Code", status.as_str());
        xml.leaf("Detail", detail);
    });
    xml.bytes()
}

/// Elements that were read, as text, each whole by itself.
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

/// A text without the characters that XML 1.0 does not have.
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

    /// DESIGN D6: a document is as large as it was counted, whatever is escaped in it, and counting it keeps nothing.
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
