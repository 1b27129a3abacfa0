//! XML as it is told. Text that XML cannot hold is shown as such, so that no name or metadata breaks a list for whoever reads
//! it.

use std::borrow::Cow;

use quick_xml::Writer;
use quick_xml::escape::escape;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use super::name::{XML, is_character};
use super::read::Element;

/// A document that is being written.
pub(in crate::atom) struct Xml(Writer<Vec<u8>>);

impl Xml {
    /// A document that begins with its declaration.
    pub(in crate::atom) fn document() -> Self {
        let mut xml = Self::fragment();
        xml.event(Event::Decl(BytesDecl::new("1.0", Some("utf-8"), None)));
        xml
    }

    /// A part of one.
    pub(in crate::atom) fn fragment() -> Self {
        Self(Writer::new(Vec::with_capacity(4_096)))
    }

    /// An element with others in it.
    pub(in crate::atom) fn element(
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
    pub(in crate::atom) fn leaf(&mut self, name: &str, text: &str) {
        self.leaf_with(name, &[], text);
    }

    /// An element with attributes and text.
    pub(in crate::atom) fn leaf_with(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        text: &str,
    ) {
        if text.is_empty() {
            self.event(Event::Empty(start(name, attributes)));
            return;
        }
        self.element(name, attributes, |xml| xml.text(text));
    }

    fn text(&mut self, text: &str) {
        let escaped = escape(printable(text)).replace('\r', "&#13;");
        self.event(Event::Text(BytesText::from_escaped(escaped)));
    }

    /// An element that was read, with all that is in it, in its order.
    pub(in crate::atom) fn copy(&mut self, element: &Element) {
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

    /// Its bytes.
    pub(in crate::atom) fn bytes(self) -> Vec<u8> {
        self.0.into_inner()
    }

    fn event(&mut self, event: Event<'_>) {
        // Memory does not refuse to be written.
        self.0.write_event(event).ok();
    }
}

/// Elements that were read, as text, each whole by itself.
pub(in crate::atom) fn fragment<'a>(elements: impl IntoIterator<Item = &'a Element>) -> String {
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
