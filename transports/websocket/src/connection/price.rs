//! Price of a frame, paid before any request is carried out: its bytes, the values decoded from
//! them, and large answers.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::admission::Permit;
use peeklock_json::size_in_json;

use super::inbound::Requests;
use super::{Conversation, SocketEnd};
use crate::error::Close;
use crate::frame::json::NoticeBody;
use crate::frame::{ClientFrame, Encoding, Run, WireError, announced};
use crate::operation::{FailedRange, FailedSend, Notice};

/// Cost of a frame in the budget for commands.
#[derive(Clone, Copy)]
pub(crate) struct Price {
    commands: u64,
    /// Computed from the bytes of the frame.
    made_bytes: u64,
    /// Computed from the decoded requests; 0 until the frame is decoded.
    answer_bytes: u64,
}

impl Price {
    const fn bytes(self) -> u64 {
        self.made_bytes.saturating_add(self.answer_bytes)
    }
}

impl Conversation {
    /// Decodes a frame as soon as its price is paid.
    pub(super) async fn pay_frame(&mut self, bytes: Bytes) -> Result<(), SocketEnd> {
        // The price is known and paid before anything is decoded.
        let (commands, made_bytes) = announced(self.encoding, &bytes);
        let price = Price { commands, made_bytes, answer_bytes: 0 };
        let Some(permit) = self.engine.budget.try_take_list(commands, price.bytes()) else {
            self.postpone(bytes, price);
            return Ok(());
        };
        self.decode(bytes, permit, price).await
    }

    /// Decodes a frame that has a permit, and carries it out. If its peeks cost more than the
    /// permit covers, the decoded requests are dropped, and the frame is decoded again under a
    /// larger permit. Most frames have no such peeks.
    pub(super) async fn decode(
        &mut self,
        bytes: Bytes,
        permit: Permit,
        price: Price,
    ) -> Result<(), SocketEnd> {
        let frame = ClientFrame::decode(self.encoding, &bytes)
            .map_err(|error| SocketEnd::Refused(Close::of_frame(&error)))?;
        // Confirmed even if the frame has to wait, since confirmed frames release room.
        self.confirm(frame.seen);
        let whole = Price { answer_bytes: frame.answer_bytes(), ..price };
        let permit = if whole.answer_bytes > price.answer_bytes {
            // A frame that waits for room holds no part.
            drop(permit);
            let Some(permit) = self.engine.budget.try_take_list(whole.commands, whole.bytes())
            else {
                self.postpone(bytes, whole);
                return Ok(());
            };
            permit
        } else {
            permit
        };
        // From here on the frame counts as taken: a client that comes back does not send it again.
        self.seen += 1;
        let (requests, permit) = (frame.requests.into(), Arc::new(permit));
        self.carry_out(Requests { requests, permit }).await;
        Ok(())
    }

    /// Makes a frame wait for its room; nothing is read until it has it.
    fn postpone(&mut self, bytes: Bytes, price: Price) {
        self.engine.wait_for_permit((bytes, price), price.commands, price.bytes());
    }
}

impl Notice {
    /// Approximate memory of a notice in bytes. Contents of messages are excluded: they are counted
    /// where they are fetched.
    pub(crate) fn weight(&self, encoding: Encoding) -> u64 {
        /// Memory of an error in addition to its texts, in bytes.
        const ERROR_BYTES: u64 = 160;

        let error = |WireError { detail, entity, .. }: &WireError| match encoding {
            Encoding::Binary => ERROR_BYTES + (detail.len() + entity.len()) as u64,
            Encoding::Json => ERROR_BYTES + size_in_json(&(detail, entity)) as u64,
        };
        let written = || match encoding {
            Encoding::Binary => {
                let mut written = Vec::new();
                self.write_body(&mut written);
                written.len() as u64
            }
            Encoding::Json => size_in_json(&NoticeBody(self)) as u64,
        };
        let ranges = |failed: &[FailedRange]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        let sends = |failed: &[FailedSend]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        match self {
            Self::Error(it) => error(it),
            Self::Detached(it) => error(&it.error),
            Self::Accepted(it) => {
                sends(&it.failed) + (it.sequence_numbers.len() * size_of::<Run>()) as u64
            }
            Self::Settled(it) => ranges(&it.failed),
            Self::Renewed(it) => ranges(&it.failed),
            Self::Forwarded(it) => sends(&it.failed),
            Self::SessionState(it) => match encoding {
                Encoding::Binary => it.state.as_ref().map_or(0, Bytes::len) as u64,
                Encoding::Json => written(),
            },
            Self::Committed(it) => (it.parts.len() * size_of_val(&it.parts)) as u64,
            Self::Received(_)
            | Self::Deliveries(_)
            | Self::Done(_)
            | Self::Welcome(_)
            | Self::Drained(_)
            | Self::Deleted(_)
            | Self::SessionAccepted(_)
            | Self::Transaction(_)
            | Self::Heartbeat(_)
            | Self::Closing(_) => 0,
            // Descriptions: twice their written size, since they consist of parts.
            Self::Queue(_)
            | Self::Queues(_)
            | Self::Sessions(_)
            | Self::Topic(_)
            | Self::Topics(_)
            | Self::Subscription(_)
            | Self::Subscriptions(_)
            | Self::Rule(_)
            | Self::Rules(_)
            | Self::Policy(_)
            | Self::Policies(_)
            | Self::PolicyKeys(_)
            | Self::Explained(_) => 2 * written(),
            // Also twice their size, but computed without writing them: they may be the largest of
            // all notices.
            Self::Plan(it) => 2 * size_in_json(it) as u64,
            Self::CarriedOut(it) => 2 * size_in_json(it) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use peeklock_core::admission::COMMAND_BYTES;
    use peeklock_core::command::peeked_bytes;

    use super::*;

    /// PEK-08, DESIGN D6: a frame pays for the answers to its peeks, also those of a session,
    /// in addition to its commands. An answer that fits into the price of a command, and any other
    /// operation, costs nothing more.
    #[test]
    fn a_frame_pays_for_its_peeks() {
        let answers = |requests: &[String]| {
            let text = format!(r#"{{"seen":0,"requests":[{}]}}"#, requests.join(","));
            ClientFrame::decode(Encoding::Json, &Bytes::from(text)).unwrap().answer_bytes()
        };
        let peek =
            |count: u32| format!(r#"{{"id":1,"peek":{{"link":1,"from":0,"maxCount":{count}}}}}"#);
        let receive =
            r#"{"id":2,"receive":{"link":1,"maxCount":250,"waitSeconds":0.0}}"#.to_owned();
        let of_session =
            r#"{"id":3,"peekSession":{"link":1,"sessionId":"s","from":0,"maxCount":250}}"#
                .to_owned();
        let most = peeked_bytes(250) - COMMAND_BYTES;
        assert_eq!(answers(&[peek(1), receive.clone()]), 0);
        assert_eq!(answers(&[peek(250)]), most);
        assert_eq!(answers(&[of_session, peek(u32::MAX), receive, peek(250)]), 3 * most);
    }
}
