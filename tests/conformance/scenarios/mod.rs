//! The scenarios: one file or folder for each topic, one function for each rule or story.
//!
//! The first line of a scenario names the requirements that it proves: it fails if one of these is
//! violated. No scenario knows its transport or sleeps, and time moves only through
//! `Stage::advance`.

pub mod consumers;
pub mod counts;
pub mod dead_letter;
pub mod defer;
pub mod delete;
pub mod delivery_count;
pub mod duplicate;
pub mod entity;
pub mod errors;
pub mod expire;
pub mod forwarding;
pub mod handles;
pub mod idle;
pub mod lock;
pub mod message_properties;
pub mod path;
pub mod peek;
pub mod receive;
pub mod requests;
pub mod restart;
pub mod retry;
pub mod schedule;
pub mod send;
pub mod sessions;
pub mod settle;
pub mod status;
pub mod topics;
pub mod transactions;
pub mod via;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use peeklock_core::command::{MessageState, ReceiveMode};
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::stage::{
    DLQ, ORDERS, Setup, Stage, TDLQ, TICK, identity, message, minutes, ms, refused, seconds,
    sequences, texts,
};
use crate::subject::{Decision, Extra, Seen};

const MIB: u64 = 1 << 20;

const fn days(count: i64) -> TimeSpan {
    TimeSpan::from_days(count)
}

/// A step that ends one `TICK` before this time.
const fn before(span: TimeSpan) -> TimeSpan {
    TimeSpan::from_ticks(span.ticks() - 1)
}

/// A message of exactly this size with this id (MSG-25).
fn sized(bytes: u64, id: &str) -> Message {
    sized_as(bytes, &Message::default().with_message_id(id))
}

/// This message with a body that gives it exactly this size.
fn sized_as(bytes: u64, message: &Message) -> Message {
    let make = |body: usize| Message {
        body: peeklock_core::message::Body::Data(vec![b'x'; body].into()),
        ..message.clone()
    };
    let bytes = usize::try_from(bytes).unwrap();
    // Below 256 bytes the length of the body is encoded in fewer bytes.
    let base = make(300).encode().size() as usize - 300;
    let message = make(bytes - base);
    assert_eq!(message.encode().size() as usize, bytes);
    message
}

/// A queue that dead-letters expired messages.
fn keeps_expired() -> QueueUpdate {
    QueueUpdate { dead_lettering_on_message_expiration: Some(true), ..QueueUpdate::default() }
}

/// A queue with this MaxDeliveryCount.
fn max_delivery_count(count: u32) -> QueueUpdate {
    QueueUpdate { max_delivery_count: Some(count), ..QueueUpdate::default() }
}

/// A queue that remembers message ids.
fn detects_duplicates() -> QueueUpdate {
    QueueUpdate { requires_duplicate_detection: Some(true), ..QueueUpdate::default() }
}

/// The message with its application properties in the order of their keys, as they are shown.
fn in_order(mut message: Message) -> Message {
    message.application_properties.sort_by(|left, right| left.0.cmp(&right.0));
    message
}

fn property(key: &str, value: impl Into<Value>) -> (String, Value) {
    (key.to_owned(), value.into())
}
