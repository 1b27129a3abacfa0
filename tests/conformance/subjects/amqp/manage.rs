//! Requests to management nodes (AMQP-80 to AMQP-93).

use std::rc::Rc;

use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_amqp_testing::client::request::{request, value};
use peeklock_amqp_testing::client::{Reply, link};
use peeklock_core::message::Value;
use peeklock_core::time::Timestamp;

use super::connection::{Connection, SHARED};
use super::link::Link;
use super::message::{refusal, unexpected};
use super::transaction::within;
use crate::subject::{Answer, Decision};

/// Entries of the body of a request.
pub type Entries<'a> = Vec<(&'a str, Vec<u8>)>;

/// Address of replies.
const OWN_END: &str = "conformance";

impl Connection {
    /// Sends a request to an entity over two links of its own. Returns `None` if the entity has no
    /// result.
    pub async fn ask(
        self: &Rc<Self>,
        path: &str,
        operation: &str,
        entries: &[(&str, Vec<u8>)],
    ) -> Answer<Option<Reply>> {
        self.ask_within(path, None, operation, entries).await
    }

    /// Sends a request in a transaction.
    pub async fn ask_within(
        self: &Rc<Self>,
        path: &str,
        state: Option<&DeliveryState>,
        operation: &str,
        entries: &[(&str, Vec<u8>)],
    ) -> Answer<Option<Reply>> {
        let node = format!("{path}/$management");
        let attach = |name: &str, handle| {
            let mut attach = link::receiver(name, handle, &node);
            // Replies are sent only to this link (AMQP-22).
            attach.target =
                Some(peeklock_amqp::terminus::Target::at(&format!("{OWN_END} {handle}")));
            attach
        };
        let mut replies = Link::attach(self, SHARED, attach).await?;
        let reply_to = replies.answer.target.as_ref().and_then(|target| target.address());
        let reply_to = reply_to.unwrap().to_owned();
        let asking = Link::attach(self, SHARED, |name, handle| link::sender(name, handle, &node));
        let asking = asking.await?;
        replies.ask_for_one();
        let operation = format!("com.microsoft:{operation}");
        let body = peeklock_amqp_testing::client::request::map(entries);
        let content = request(7, &reply_to, (&operation, &[]), &body);
        match asking.send(0, state, content.as_bytes()).await? {
            Outcome::Accepted => {}
            other => return Err(unexpected(&format!("request: {other:?}"))),
        }
        let (transfer, message) = replies.delivered().await?;
        assert_eq!(transfer.settled, Some(true), "nobody settles replies");
        let reply = Reply::read(message).unwrap();
        assert_eq!(reply.number(), Some(7), "the type of an id is kept");
        asking.detach().await?;
        replies.detach().await?;
        match (reply.error(), reply.status()) {
            (Some(error), Some(status)) if status >= 400 => Err(refusal(&error)),
            (None, Some(200)) => Ok(Some(reply)),
            (None, Some(204)) => Ok(None),
            other => Err(unexpected(&format!("reply: {other:?}"))),
        }
    }

    /// Settles with a lock token.
    pub async fn settle_by_token(
        self: &Rc<Self>,
        path: &str,
        token: u128,
        decision: &Decision,
        session: Option<&str>,
        transaction: Option<&bytes::Bytes>,
    ) -> Answer<()> {
        let mut entries = disposition(decision);
        entries.push(("lock-tokens", peeklock_amqp_testing::client::request::uuids(&[token])));
        entries.extend(session.map(|session| ("session-id", value(session))));
        let state = transaction.map(within);
        self.ask_within(path, state.as_ref(), "update-disposition", &entries).await.map(drop)
    }
}

/// The body of a settlement without its lock tokens.
fn disposition(decision: &Decision) -> Entries<'static> {
    let text = |text: &Option<String>| match text {
        Some(text) => value(text.as_str()),
        None => value(Value::Null),
    };
    let (status, properties, mut entries) = match decision {
        Decision::Complete => ("completed", None, vec![]),
        Decision::Abandon(properties) => ("abandoned", Some(properties), vec![]),
        Decision::Defer(properties) => ("defered", Some(properties), vec![]),
        Decision::DeadLetter { reason, description, properties } => {
            let entries = vec![
                ("deadletter-reason", text(reason)),
                ("deadletter-description", text(description)),
            ];
            ("suspended", Some(properties), entries)
        }
    };
    entries.push(("disposition-status", value(status)));
    if let Some(properties) = properties {
        let properties: Vec<(&str, Vec<u8>)> =
            properties.iter().map(|(key, one)| (&**key, value(one.clone()))).collect();
        let map = peeklock_amqp_testing::client::request::map(&properties);
        entries.push(("properties-to-modify", map));
    }
    entries
}

/// Bytes, encoded.
pub fn binary(bytes: &[u8]) -> Vec<u8> {
    value(Value::Binary(bytes::Bytes::copy_from_slice(bytes)))
}

/// A count as an AMQP int.
pub fn int(count: u32) -> Vec<u8> {
    value(Value::I32(i32::try_from(count).unwrap_or(i32::MAX)))
}

pub fn timestamp(at: Timestamp) -> Vec<u8> {
    value(Value::Timestamp(at.unix_ms()))
}

/// The bytes under a key of a map.
pub fn bytes_of(map: &peeklock_amqp::codec::value::Map, key: &str) -> Option<bytes::Bytes> {
    match Value::decode(map.get(key)?.as_bytes()).unwrap() {
        Value::Binary(bytes) => Some(bytes),
        Value::Null => None,
        other => panic!("{key} is {other:?}"),
    }
}
