//! Entries and feeds around descriptions (ADM-23, ADM-32, ADM-33), and the requested page of a
//! list. All answers of the Atom API are written with it.

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use peeklock_core::time::Timestamp;

use super::path::AtomRoute;
use super::xml::{ATOM, INSTANCE, SB, Xml};
use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;
use crate::room::AnswerRoom;
use crate::route::{encode_path, parameter};

const ENTRY: &str = "application/atom+xml;type=entry;charset=utf-8";
const FEED: &str = "application/atom+xml;type=feed;charset=utf-8";
/// Author of all entries, which must have one (RFC 4287, 4.1.2).
const AUTHOR: &str = "peeklock";

/// The first version of the API with MaxMessageSizeInKilobytes.
const MESSAGE_SIZE_FROM: &str = "2021-05";

/// Upper bound of the additional bytes of an entry with instants, compared with a new one without
/// them.
pub(super) const INSTANTS_BYTES: usize = 256;

/// Base URL and version for the addresses in answers.
pub(super) struct Addresses {
    base: String,
    version: String,
}

/// A description with its entry.
pub(super) struct Entry<W> {
    pub(super) route: AtomRoute,
    /// Name by which clients know it (ADM-32).
    pub(super) title: String,
    pub(super) published: Timestamp,
    pub(super) updated: Timestamp,
    /// Name of its element, such as `QueueDescription`.
    pub(super) element: &'static str,
    /// Writes the content of the element.
    pub(super) write: W,
}

impl Addresses {
    /// Returns the addresses that this client uses.
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self { base: exchange.base_url(), version: version(exchange) }
    }

    /// Returns the URL of a resource.
    fn url(&self, route: &AtomRoute) -> String {
        format!("{}/{}?api-version={}", self.base, encode_path(&route.address()), self.version)
    }

    /// Whether the client's version has MaxMessageSizeInKilobytes. Versions are dates.
    pub(super) fn has_message_size(&self) -> bool {
        self.version.as_str() >= MESSAGE_SIZE_FROM
    }

    fn page_url(&self, route: &AtomRoute, page: Page) -> String {
        format!("{}&%24skip={}&%24top={}", self.url(route), page.skip, page.top)
    }

    /// Returns a destination in the form that clients send (ADM-36).
    pub(super) fn destination(&self, text: &str) -> String {
        if text.contains("://") {
            return text.to_owned();
        }
        let host = self.base.split_once("://").map_or(&*self.base, |(_, host)| host);
        format!("sb://{host}/{text}")
    }
}

impl<W: Fn(&mut Xml)> Entry<W> {
    fn write(&self, xml: &mut Xml, addresses: &Addresses, attributes: &[(&str, &str)]) {
        let url = addresses.url(&self.route);
        xml.element("entry", attributes, |xml| {
            xml.leaf("id", &url);
            xml.leaf_with("title", &[("type", "text")], &self.title);
            xml.leaf("published", &self.published.to_string());
            xml.leaf("updated", &self.updated.to_string());
            xml.element("author", &[], |xml| xml.leaf("name", AUTHOR));
            xml.leaf_with("link", &[("rel", "self"), ("href", &url)], "");
            xml.element("content", &[("type", "application/xml")], |xml| {
                xml.element(self.element, &[("xmlns", SB), ("xmlns:i", INSTANCE)], &self.write);
            });
        });
    }

    /// Returns the size of an answer with this entry, in bytes.
    pub(super) fn size(&self, addresses: &Addresses) -> usize {
        let mut xml = Xml::counted();
        self.write(&mut xml, addresses, &[("xmlns", ATOM)]);
        xml.size()
    }

    /// Makes an answer with this entry, after reserving memory for it.
    pub(super) async fn answer_in_room(self, exchange: &Exchange, addresses: &Addresses) -> Answer {
        let size = self.size(addresses);
        let room = exchange.room_of(size).await?;
        Ok(self.answer_in(exchange, room, StatusCode::OK, addresses))
    }

    /// Makes an answer with this entry, whose memory, if it needs any, was reserved before the
    /// operation.
    pub(super) fn answer_in(
        self,
        exchange: &Exchange,
        room: Option<AnswerRoom>,
        status: StatusCode,
        addresses: &Addresses,
    ) -> HttpResponse {
        if let Some(room) = room {
            exchange.hand_over(room, self.size(addresses), None);
        }
        self.answer(status, addresses)
    }

    /// Makes an answer with this entry.
    pub(super) fn answer(self, status: StatusCode, addresses: &Addresses) -> HttpResponse {
        let mut xml = Xml::document();
        self.write(&mut xml, addresses, &[("xmlns", ATOM)]);
        of_xml(status, ENTRY, xml.bytes())
    }
}

/// Makes an answer with a page of a list. `has_more` states whether further entries follow. Its
/// size with all escapes is measured first, in order to reserve memory. Measuring and writing are
/// separate turns of the thread.
pub(super) async fn feed<W: Fn(&mut Xml)>(
    exchange: &Exchange,
    mut room: AnswerRoom,
    addresses: &Addresses,
    (route, title): (&AtomRoute, &str),
    (page, has_more): (Page, bool),
    entries: Vec<Entry<W>>,
) -> Answer {
    let own = addresses.page_url(route, page);
    let updated = exchange.site.broker.now().to_string();
    let write = |mut xml: Xml| {
        xml.element("feed", &[("xmlns", ATOM)], |xml| {
            xml.leaf_with("title", &[("type", "text")], title);
            xml.leaf("id", &own);
            xml.leaf("updated", &updated);
            xml.leaf_with("link", &[("rel", "self"), ("href", &own)], "");
            if has_more {
                let next = Page { skip: page.skip.saturating_add(page.top), ..page };
                let next = addresses.page_url(route, next);
                xml.leaf_with("link", &[("rel", "next"), ("href", &next)], "");
            }
            for entry in &entries {
                entry.write(xml, addresses, &[]);
            }
        });
        xml
    };
    let size = write(Xml::counted()).size();
    room.fit_messages(size as u64).await?;
    tokio::task::yield_now().await;
    let bytes = write(Xml::sized(size)).bytes();
    exchange.hand_over(room, bytes.len(), None);
    Ok(of_xml(StatusCode::OK, FEED, bytes))
}

fn of_xml(status: StatusCode, content_type: &'static str, bytes: Vec<u8>) -> HttpResponse {
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, content_type))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(bytes)
}

/// Returns the description in the entry of a request.
pub(super) fn content(entry: super::xml::Element) -> Result<super::xml::Element, Refusal> {
    if !entry.is(ATOM, "entry") {
        let detail = format!("the body must be an entry of `{ATOM}`");
        return Err(Refusal::argument(detail));
    }
    let content = entry.children.into_iter().find(|child| child.is(ATOM, "content"));
    let Some(content) = content else {
        return Err(Refusal::argument("the entry has no content"));
    };
    let description = content.children.into_iter().next();
    description.ok_or_else(|| Refusal::argument("the content of the entry has no description"))
}

/// Maximum and default number of entries in a page.
pub(super) const TOP_MAX: usize = 100;
/// Version for clients that do not send theirs.
const VERSION_DEFAULT: &str = "2021-05";
/// Maximum length of a version in characters: a date and a suffix.
const VERSION_CHARS_MAX: usize = 32;

/// The requested part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page {
    pub(super) skip: usize,
    pub(super) top: usize,
}

/// Reads `$skip` and `$top`.
///
/// # Errors
/// `ArgumentError` if a value is not a number.
pub(super) fn page(exchange: &Exchange) -> Result<Page, Refusal> {
    let skip = number(exchange, "$skip")?.unwrap_or(0);
    let top = number(exchange, "$top")?.unwrap_or(TOP_MAX).min(TOP_MAX);
    Ok(Page { skip, top })
}

/// Returns the version of the client, which is repeated in the addresses of the answer.
pub(super) fn version(exchange: &Exchange) -> String {
    let is_plain = |text: &String| {
        text.len() <= VERSION_CHARS_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    parameter(exchange.query(), "api-version")
        .filter(is_plain)
        .unwrap_or_else(|| VERSION_DEFAULT.to_owned())
}

fn number(exchange: &Exchange, name: &str) -> Result<Option<usize>, Refusal> {
    let Some(text) = parameter(exchange.query(), name) else { return Ok(None) };
    match text.trim().parse::<u64>() {
        // A number beyond the range means everything.
        Ok(number) => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
        Err(_) => Err(Refusal::argument(format!("{name} must be a number of entries"))),
    }
}
