//! Reads a document of a client as a tree, with bounds for bytes, depth, elements and attributes. A
//! document type, and thus each entity that a client could declare, is refused before it is
//! processed. Every tree can be written: names are valid, and attributes of an element are
//! distinct. A written tree can be read again, even if it has become larger.

use peeklock_core::error::Quoted;
use quick_xml::escape::{resolve_predefined_entity, unescape};
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::{DEFAULT_MAX_NAMESPACE_BINDINGS, Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use super::{Attribute, Element, INSTANCE, XMLNS, is_character, is_qualified};
use crate::error::Refusal;

/// Maximum size of a document in bytes. The largest meaningful one is a rule with all its
/// parameters.
pub(crate) const BYTES_MAX: u64 = 256 << 10;
/// Maximum nesting depth of elements.
const DEPTH_MAX: usize = 32;
/// Maximum number of elements in one document.
const ELEMENTS_MAX: usize = 16_384;
/// Maximum length of a namespace name in bytes; each element stores it. The longest meaningful one
/// has 74.
const NAMESPACE_BYTES_MAX: usize = 256;
/// Maximum length of an invalid name that a refusal quotes, in characters.
const NAME_CHARS_SHOWN_MAX: usize = 64;
/// Memory of an element without its text, in bytes.
const ELEMENT_BYTES: u64 = 256 + NAMESPACE_BYTES_MAX as u64;

/// Bounds for the parts that the writer makes larger: it declares namespaces at each use and
/// escapes their names.
struct Bounds {
    /// Maximum number of attributes of one element, including namespace declarations.
    attributes_max: usize,
    /// Maximum length of a namespace name as written, in bytes.
    namespace_bytes_max: usize,
    /// Maximum number of namespace declarations in scope.
    declarations_max: usize,
}

/// Bounds of requests.
const OF_CLIENTS: Bounds = Bounds {
    attributes_max: 32,
    namespace_bytes_max: NAMESPACE_BYTES_MAX,
    declarations_max: DEFAULT_MAX_NAMESPACE_BINDINGS,
};

/// Bounds of stored text, which is limited in bytes where it is stored.
const OF_KEPT: Bounds = Bounds {
    attributes_max: usize::MAX,
    namespace_bytes_max: usize::MAX,
    declarations_max: usize::MAX,
};

/// Returns the memory of a parsed document in bytes, estimated from its text.
pub(crate) fn room_bytes(text: &[u8]) -> u64 {
    let elements = text.iter().filter(|byte| **byte == b'<').count() as u64;
    let attributes = text.iter().filter(|byte| **byte == b'=').count() as u64;
    (elements + attributes) * ELEMENT_BYTES
}

/// Reads a document of a client.
///
/// # Errors
/// `ArgumentError` if it is malformed, has a document type, or exceeds a bound.
pub(crate) fn read(text: &[u8]) -> Result<Element, Refusal> {
    read_within(&OF_CLIENTS, text)
}

/// Reads text that was parsed from a request and then written, however large that has become.
///
/// # Errors
/// Same as [`read`].
pub(crate) fn read_stored(text: &str) -> Result<Element, Refusal> {
    read_within(&OF_KEPT, text.as_bytes())
}

fn read_within(bounds: &Bounds, text: &[u8]) -> Result<Element, Refusal> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = std::str::from_utf8(text).map_err(|_| malformed(&"it must be UTF-8"))?;
    let mut reader = NsReader::from_str(text);
    reader.resolver_mut().set_max_namespace_bindings(bounds.declarations_max);
    let mut tree = Tree::default();
    loop {
        match reader.read_event().map_err(|error| malformed(&error))? {
            Event::Start(start) => {
                let element = element(bounds, &reader, &start)?;
                tree.open(element)?;
            }
            Event::Empty(start) => {
                let element = element(bounds, &reader, &start)?;
                tree.open(element)?;
                tree.close()?;
            }
            Event::End(_) => tree.close()?,
            Event::Text(text) => {
                tree.text(&text.xml10_content())?;
            }
            Event::CData(text) => {
                tree.text(&text.xml10_content())?;
            }
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|error| malformed(&error))?;
                if let Some(character) = character {
                    tree.text(character.encode_utf8(&mut [0; 4]))?;
                    continue;
                }
                let Some(known) = resolve_predefined_entity(&reference) else {
                    return Err(malformed(&"it refers to an entity that XML does not define"));
                };
                tree.text(known)?;
            }
            Event::DocType(_) => {
                return Err(malformed(&"it must not have a document type"));
            }
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
            Event::Eof => return tree.root(),
        }
    }
}

fn element(
    bounds: &Bounds,
    reader: &NsReader<&[u8]>,
    start: &BytesStart<'_>,
) -> Result<Element, Refusal> {
    judge_name(start.name().as_ref())?;
    let (namespace, name) = reader.resolver().resolve_element(start.name());
    let mut element = Element {
        namespace: namespace_of(bounds, &namespace)?,
        name: name.as_ref().into(),
        ..Element::default()
    };
    for (count, attribute) in start.attributes().enumerate() {
        if count == bounds.attributes_max {
            return Err(over_limit(&format!("{count} attributes per element")));
        }
        let attribute = attribute.map_err(|error| malformed(&error))?;
        judge_name(attribute.key.as_ref())?;
        if attribute.key.as_namespace_binding().is_some() {
            continue;
        }
        let (namespace, name) = reader.resolver().resolve_attribute(attribute.key);
        let namespace = namespace_of(bounds, &namespace)?;
        // The same name with two prefixes.
        if element
            .attributes
            .iter()
            .any(|it| it.namespace == namespace && *it.name == *name.as_ref())
        {
            return Err(malformed(&"an element has the same attribute twice"));
        }
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        let value = value.map_err(|error| malformed(&error))?.into_owned();
        if &*namespace == INSTANCE && name.as_ref() == "type" {
            element.kind =
                Some(value.split_once(':').map_or(&*value, |(_, local)| local).trim().into());
        }
        element.attributes.push(Attribute { namespace, name: name.as_ref().into(), value });
    }
    Ok(element)
}

/// Refuses an invalid name.
fn judge_name(text: &str) -> Result<(), Refusal> {
    if is_qualified(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(NAME_CHARS_SHOWN_MAX).collect();
    Err(malformed(&format!("{} is not a name of an element or attribute", Quoted(&shown))))
}

fn namespace_of(bounds: &Bounds, resolved: &ResolveResult<'_>) -> Result<Box<str>, Refusal> {
    let bytes_max = bounds.namespace_bytes_max;
    match resolved {
        ResolveResult::Bound(Namespace(name)) if name.len() > bytes_max => {
            Err(over_limit(&format!("{bytes_max} bytes in the name of a namespace")))
        }
        // The name is given as written in the attribute, so it is unescaped here. Characters that
        // XML does not allow are refused, since two names that differ only in these would become
        // equal when written.
        ResolveResult::Bound(Namespace(name)) => {
            match unescape(name).map_err(|error| malformed(&error))? {
                name if name == XMLNS || !name.chars().all(is_character) => {
                    Err(malformed(&"it declares an invalid namespace"))
                }
                name => Ok(name.into()),
            }
        }
        ResolveResult::Unbound => Ok("".into()),
        ResolveResult::Unknown(_) => Err(malformed(&"it has a prefix that is not declared")),
    }
}

/// The open elements, and the root after it is closed.
#[derive(Default)]
struct Tree {
    open: Vec<Element>,
    root: Option<Element>,
    count: usize,
}

impl Tree {
    fn open(&mut self, element: Element) -> Result<(), Refusal> {
        if self.root.is_some() {
            return Err(malformed(&"it has a second root"));
        }
        self.count += 1;
        if self.count > ELEMENTS_MAX {
            return Err(over_limit(&format!("{ELEMENTS_MAX} elements")));
        }
        if self.open.len() == DEPTH_MAX {
            return Err(over_limit(&format!("{DEPTH_MAX} elements inside each other")));
        }
        self.open.push(element);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        let Some(mut element) = self.open.pop() else {
            return Err(malformed(&"an element ends that did not begin"));
        };
        match self.open.last_mut() {
            Some(parent) => {
                element.text_before = parent.text.len();
                parent.children.push(element);
            }
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Refusal> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(malformed(&"there is text outside the root")),
        }
        Ok(())
    }

    fn root(self) -> Result<Element, Refusal> {
        if !self.open.is_empty() {
            return Err(malformed(&"it ends inside an element"));
        }
        self.root.ok_or_else(|| malformed(&"it is empty"))
    }
}

fn malformed(error: &impl std::fmt::Display) -> Refusal {
    Refusal::parser("the body is not the expected XML", error)
}

fn over_limit(bound: &str) -> Refusal {
    Refusal::argument(format!("the body is refused: it has more than {bound}"))
}
