//! What is asked by a message and answered by another (AMQP-22, AMQP-80).

use bytes::Bytes;
use peeklock_core::message::{Content, Value};
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use super::Node;
use crate::codec::value::Raw;
use crate::connection::LinkId;
use crate::error::AmqpError;
use crate::message::{Assembly, fields_of};
use crate::server::conversation::Conversation;

/// A link on which a client asks.
#[derive(Default)]
pub(in crate::server) struct Requests {
    pub(in crate::server) assembly: Assembly,
}

/// A request.
pub(in crate::server) struct Request {
    content: Content,
    /// What it is answered by, with its type (AMQP-21).
    pub(in crate::server) message_id: Option<Raw>,
    pub(in crate::server) reply_to: Option<String>,
}

impl Request {
    fn read(whole: Bytes) -> Result<Self, AmqpError> {
        let content = Content::parse(whole)?;
        let fields = fields_of(content.sections().properties);
        let raw = |at: usize| {
            let field = fields.get(at).copied()?;
            let raw = Raw::encoded(|bytes| bytes.extend_from_slice(field));
            (raw.scalar() != Ok(Scalar::Null)).then_some(raw)
        };
        let reply_to = raw(4).and_then(|raw| match raw.scalar() {
            Ok(Scalar::Text(text) | Scalar::Symbol(text)) => Some(text.to_owned()),
            _ => None,
        });
        Ok(Self { message_id: raw(0), reply_to, content })
    }

    /// An application property that is text.
    pub(in crate::server) fn text(&self, name: &str) -> Option<String> {
        self.content.application_properties().find(|(key, _)| *key == name).and_then(
            |(_, value)| match value {
                Value::String(text) => Some(text),
                _ => None,
            },
        )
    }

    /// The body, if it is one value.
    pub(in crate::server) fn body(&self) -> Option<Raw> {
        let body = self.content.as_bytes().slice_ref(self.content.sections().body);
        let mut reader = Reader::new(&body);
        if reader.section().ok()? != descriptor::VALUE {
            return None;
        }
        Raw::read(&body, &mut reader).ok()
    }
}

impl Conversation {
    /// A request came whole.
    pub(in crate::server) async fn requested(&mut self, link: LinkId, whole: Bytes) {
        let request = match Request::read(whole) {
            Ok(request) => request,
            Err(error) => {
                self.amqp.detach(link, Some(error));
                return self.detach(link);
            }
        };
        let reply = self.tokens_asked(&request).await;
        if let Some(to) = self.answers_of(link, &request)
            && let Some(Node::Replies(replies)) = self.nodes.get_mut(&to)
        {
            replies.push(reply);
        }
    }

    /// Where a request is answered (AMQP-22).
    fn answers_of(&self, link: LinkId, request: &Request) -> Option<LinkId> {
        let replies = || {
            self.nodes.iter().rev().filter_map(|(id, node)| match node {
                Node::Replies(replies) => Some((*id, replies)),
                _ => None,
            })
        };
        let here = |id: &LinkId| id.session() == link.session();
        let newest = |matches: &dyn Fn(&super::Replies) -> bool| {
            let all = || replies().filter(|(_, replies)| matches(replies)).map(|(id, _)| id);
            all().find(here).or_else(|| all().next())
        };
        if let Some(to) = &request.reply_to {
            let by_address = newest(&|replies| replies.target.as_deref() == Some(to));
            if let Some(id) = by_address.or_else(|| newest(&|replies| &*replies.name == to)) {
                return Some(id);
            }
        }
        replies().map(|(id, _)| id).find(here)
    }
}
