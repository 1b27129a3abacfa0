//! Credit of a receiver, its return, and deliveries. `operation.rs` calls it for requests, and
//! `outbound.rs` for deliveries. A delivery is pushed only within granted credit.

use bytes::Bytes;
use peeklock_core::command::ReceivedMessage;
use peeklock_core::telemetry::count_undelivered;

use super::{LinkOnly, Notice};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::message::{DeliveredContent, DeliveredMessage};
use crate::frame::{Encoding, Item, LIST_COUNT_MAX, WireError, bodies};

bodies! {
    struct Credit {
        link: u32,
        /// Highest delivery number that may be sent.
        up_to: u32,
    }
}

/// Returns the number of a delivery on the wire. Credit never exceeds the largest number.
pub(super) fn wire_number(delivery: u64) -> u32 {
    u32::try_from(delivery).unwrap_or(u32::MAX)
}

impl Conversation {
    pub(super) fn credit(&mut self, admitted: &AdmittedRequest, credit: &Credit) -> Done {
        let Credit { link: number, up_to } = *credit;
        self.receiver(number)?;
        self.engine.links.credit(number, up_to.into());
        self.done(admitted)
    }
}

bodies! {
    struct Drained {
        unused: u32,
    }
}

impl Conversation {
    pub(super) fn drain(&mut self, admitted: AdmittedRequest, only: &LinkOnly) -> Done {
        self.receiver(only.link)?;
        if self.engine.links.drain(only.link, admitted.id, Some(admitted.permit))?.is_some() {
            self.push_item(admitted.id, Notice::Drained(Drained { unused: 0 }));
        }
        Ok(())
    }
}

bodies! {
    struct Deliveries {
        link: u32,
        /// Number of the first message; the others follow.
        first: u32,
        messages: Vec<DeliveredMessage>,
    }

    struct Detached {
        link: u32,
        error: WireError,
    }
}

impl Conversation {
    /// Adds a delivery under its number to the next frame; returns the bytes of its JSON text.
    /// Returns none if the message cannot be read.
    pub(crate) fn deliver(
        &mut self,
        number: u32,
        delivery: u64,
        message: ReceivedMessage,
    ) -> Option<u64> {
        let delivery = wire_number(delivery);
        let facts = message.facts;
        let lock = facts.lock;
        let bytes = u64::from(message.facts.size);
        let Some(delivered) = as_delivered(self.encoding, &message) else {
            let path = self.engine.links.get(number).map(|link| std::sync::Arc::clone(&link.path));
            let token = lock.map(|lock| lock.token);
            token.and_then(|token| self.engine.links.remove_settled(token));
            self.engine.links.abandon_lost(number, &facts);
            count_undelivered(u64::from(lock.is_none()));
            self.engine.links.break_flow(number);
            let reason = message.undeliverable();
            let error = self.wire_error(reason, path.as_deref().unwrap_or_default());
            self.push_item(0, Notice::Detached(Detached { link: number, error }));
            return None;
        };
        let text_bytes = delivered.text_bytes();
        self.unwritten_count += u64::from(lock.is_none());
        self.delivered.push((number, bytes));
        if let Some(Item { notice: Notice::Deliveries(group), .. }) = self.ready.last_mut()
            && group.link == number
            && group.messages.len() < LIST_COUNT_MAX
            && u32::try_from(group.messages.len()).ok() == delivery.checked_sub(group.first)
        {
            group.messages.push(delivered);
        } else {
            let messages = vec![delivered];
            let group = Deliveries { link: number, first: delivery, messages };
            self.ready.push(Item::push(Notice::Deliveries(group)));
        }
        Some(text_bytes)
    }
}

/// Returns the message as it is sent, in JSON with its text; none if it cannot be read.
pub(super) fn as_delivered(
    encoding: Encoding,
    message: &ReceivedMessage,
) -> Option<DeliveredMessage> {
    let content = message.content.loaded()?.clone();
    let overlays = message
        .overlays
        .iter()
        .map(|overlay| overlay.loaded().cloned())
        .collect::<Option<Vec<Bytes>>>()?;
    let carried = DeliveredContent::Stored { content, overlays };
    let delivered = DeliveredMessage { facts: message.facts, carried, text: None };
    if encoding == Encoding::Binary {
        return Some(delivered);
    }
    let written = delivered.into_text();
    written
        .inspect_err(|error| {
            let sequence_number = message.facts.sequence.0;
            tracing::error!(sequence_number, %error, "message cannot be read");
        })
        .ok()
}
