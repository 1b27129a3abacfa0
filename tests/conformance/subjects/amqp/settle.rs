//! Settlements: a disposition for a delivery of this connection, otherwise a request with the lock
//! token.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use peeklock_amqp::codec::list::list_bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::Disposition;
use peeklock_amqp::state::{DeliveryState, Modified, Outcome, Rejected, Transactional};
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;

use super::connection::{Connection, Place};
use super::link::{Delivery, taken};
use super::message::{seen, token_of};
use crate::subject::{Answer, Decision, Seen};

/// Most of the 64 KiB that a frame may have.
const DISPOSITION_BYTES_MAX: usize = 60_000;

/// Unsettled deliveries of a connection under lock.
#[derive(Default)]
pub struct Unsettled(RefCell<HashMap<String, (Place, String)>>);

impl Unsettled {
    /// Records deliveries of a channel, and returns them as messages.
    pub fn see(&self, channel: u16, path: &str, deliveries: Vec<Delivery>) -> Vec<Seen> {
        let see = |(transfer, message): Delivery| {
            if transfer.settled == Some(true) {
                return seen(message, None);
            }
            let token = token_of(&transfer);
            let place = (channel, transfer.delivery_id.unwrap());
            self.0.borrow_mut().insert(token.to_string(), (place, path.to_lowercase()));
            seen(message, Some(token))
        };
        deliveries.into_iter().map(see).collect()
    }

    /// Removes and returns the delivery of a lock of this entity. It can be settled once over its
    /// link.
    fn take(&self, path: &str, token: &str) -> Option<Place> {
        let mut unsettled = self.0.borrow_mut();
        let (_, of) = unsettled.get(token)?;
        if *of != path.to_lowercase() {
            return None;
        }
        unsettled.remove(token).map(|(place, _)| place)
    }

    /// Settles a message, in a transaction if one is given; with its token if it is no delivery of
    /// this connection.
    pub async fn settle(
        &self,
        connection: &Rc<Connection>,
        (path, session): (&str, Option<&str>),
        token: &str,
        decision: &Decision,
        transaction: Option<&bytes::Bytes>,
    ) -> Answer<()> {
        let within = |outcome| match transaction {
            Some(txn_id) => {
                let (txn_id, outcome) = (txn_id.clone(), Some(outcome));
                DeliveryState::Transactional(Box::new(Transactional { txn_id, outcome }))
            }
            None => DeliveryState::Outcome(outcome),
        };
        // A disposition is one frame, which must not exceed the maximum frame size.
        let outcome = outcome(decision);
        let is_large = list_bytes(&Disposition {
            state: Some(DeliveryState::Outcome(outcome.clone())),
            ..Disposition::default()
        }) > DISPOSITION_BYTES_MAX;
        let place = if is_large { None } else { self.take(path, token) };
        let Some(place) = place else {
            let token = LockToken::parse(token).unwrap().0;
            return connection.settle_by_token(path, token, decision, session, transaction).await;
        };
        let answer = connection.settle(place, within(outcome.clone())).await?;
        let told = taken(answer)?;
        // The answer has the same kind and no details (AMQP-60, AMQP-61).
        let same = std::mem::discriminant(&told) == std::mem::discriminant(&outcome);
        assert!(same, "{outcome:?} is answered by {told:?}");
        Ok(())
    }
}

/// The delivery outcome of a decision.
fn outcome(decision: &Decision) -> Outcome {
    match decision {
        Decision::Complete => Outcome::Accepted,
        Decision::Abandon(properties) => Outcome::Modified(Modified {
            delivery_failed: Some(true),
            undeliverable_here: Some(false),
            message_annotations: changes(properties, []),
        }),
        Decision::Defer(properties) => Outcome::Modified(Modified {
            delivery_failed: Some(true),
            undeliverable_here: Some(true),
            message_annotations: changes(properties, []),
        }),
        Decision::DeadLetter { reason, description, properties } => {
            let texts = [("DeadLetterReason", reason), ("DeadLetterErrorDescription", description)];
            let error = AmqpError::new("com.microsoft:dead-letter", "");
            let error = match changes(properties, texts) {
                Some(info) => error.with_info(info),
                None => error,
            };
            Outcome::Rejected(Rejected { error: Some(error) })
        }
    }
}

/// Properties to set, with additional texts; `None` if there are none.
fn changes<const N: usize>(
    properties: &[(String, Value)],
    texts: [(&str, &Option<String>); N],
) -> Option<Map> {
    let raw = |value: &Value| Raw::encoded(|bytes| value.encode_to(bytes));
    let texts = texts.into_iter().filter_map(|(key, text)| {
        let text = Value::String(text.clone()?);
        Some((key, raw(&text)))
    });
    let entries: Vec<(&str, Raw)> =
        properties.iter().map(|(key, value)| (&**key, raw(value))).chain(texts).collect();
    (!entries.is_empty()).then(|| Map::of_symbols(entries))
}
