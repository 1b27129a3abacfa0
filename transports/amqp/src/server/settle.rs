//! Settling (AMQP-60 to AMQP-69).

use peeklock_core::command::{Command, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::{Overlay, Value};
use peeklock_link::pending::correlation;
use peeklock_words::amqp::Scalar;

use super::conversation::{Conversation, Expect, Sent};
use crate::codec::value::Map;
use crate::connection::SentId;
use crate::error::{AmqpError, condition};
use crate::state::{DeliveryState, Modified, Outcome, Rejected};

/// Entries of a dead-letter's `info` that are no properties to change.
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

impl Conversation {
    /// A client says what is to become of a delivery.
    pub(super) fn settle(&mut self, id: SentId, state: Option<DeliveryState>, settled: bool) {
        let Some(sent) = self.sent.get(&id) else {
            // It was received for good.
            return self.amqp.answer(id, state.unwrap_or_else(DeliveryState::accepted));
        };
        let outcome = match state {
            Some(DeliveryState::Outcome(outcome)) => outcome,
            Some(DeliveryState::Transactional(_)) => {
                let text =
                    "there is no such transaction: transactions are not offered over AMQP yet";
                let error = AmqpError::new("amqp:transaction:unknown-id", text);
                return self.amqp.answer(id, DeliveryState::rejected(error));
            }
            Some(DeliveryState::Received(_)) | None => {
                // The client has forgotten it; its lock runs on (AMQP-65).
                if settled {
                    self.sent.remove(&id);
                }
                return;
            }
        };
        let limits = &self.broker.settings().limits;
        let settlement = match settlement(&outcome, limits) {
            Ok(settlement) => settlement,
            Err(rejection) => {
                let error = self.refuse(rejection, sent.entity.path());
                return self.amqp.answer(id, DeliveryState::rejected(error));
            }
        };
        let Some(Sent { token, number, entity, .. }) = self.sent.remove(&id) else { return };
        let answer = (!settled).then(|| (id, same_kind(outcome)));
        let command = Command::Settle { token, settlement };
        let is_open = self.links.get(number).is_some_and(|link| link.is_open());
        if is_open {
            let slot = self.links.ask(number, 0, None, Expect::Settled { token, answer });
            self.links.submit(number, command, correlation(slot, 0));
        } else {
            let path = entity.path().into();
            let slot = self.links.ask_of(path, 0, None, Expect::Settled { token, answer });
            self.links.submit_to(&entity, command, correlation(slot, 0));
        }
    }

    /// What became of it is durable, or it was refused.
    pub(super) fn settled(
        &mut self,
        token: LockToken,
        answer: Option<(SentId, DeliveryState)>,
        path: &str,
        result: Result<(), Rejection>,
    ) {
        if let Some(held) = self.links.settled(token) {
            // There may be room for more.
            self.links.limit(held.link);
        }
        let Some((id, state)) = answer else { return };
        let state = match result {
            Ok(()) => state,
            Err(rejection) => DeliveryState::rejected(self.refuse(rejection, path)),
        };
        self.amqp.answer(id, state);
    }

    /// Forgets deliveries whose locks have ended, so that there is room for others.
    pub(super) fn forget_ended(&mut self) {
        let now = self.broker.now();
        self.links.limit_full(now);
        let ended: Vec<SentId> = self
            .sent
            .iter()
            .filter(|(_, sent)| {
                sent.until <= now && self.links.unsettled.of_lock(sent.token).is_none()
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            self.sent.remove(&id);
            self.amqp.forget_delivery(id);
        }
    }
}

/// The answer to a success: of the kind that the client has said (AMQP-60), and without error (AMQP-61).
fn same_kind(outcome: Outcome) -> DeliveryState {
    DeliveryState::Outcome(match outcome {
        Outcome::Rejected(_) => Outcome::Rejected(Rejected { error: None }),
        Outcome::Modified(modified) => {
            Outcome::Modified(Modified { message_annotations: None, ..modified })
        }
        other => other,
    })
}

/// An outcome in the broker's words.
fn settlement(
    outcome: &Outcome,
    limits: &peeklock_core::limits::Limits,
) -> Result<Settlement, Rejection> {
    Ok(match outcome {
        Outcome::Accepted => Settlement::Complete,
        Outcome::Released => Settlement::Release,
        Outcome::Modified(modified) => {
            let changes = properties(modified.message_annotations.as_ref())?;
            let properties =
                if changes.is_empty() { None } else { Some(Overlay::encode(&changes)?) };
            if modified.undeliverable_here == Some(true) {
                Settlement::Defer { properties }
            } else {
                Settlement::Abandon { properties }
            }
        }
        Outcome::Rejected(Rejected { error }) => {
            let info = error.as_ref().and_then(AmqpError::info);
            let mut changes = properties(info)?;
            let reason = text(info, REASON);
            let description = text(info, DESCRIPTION);
            changes.retain(|(name, _)| name != REASON && name != DESCRIPTION);
            let [reason, description] = [&reason, &description].map(Option::as_deref);
            Settlement::dead_letter(reason, description, &changes, limits)?
        }
        Outcome::Declared(_) => {
            let detail =
                format!("declared is no outcome of a message ({})", condition::NOT_ALLOWED);
            return Err(Rejection::new(Condition::InvalidOperation, detail));
        }
    })
}

fn text(info: Option<&Map>, name: &str) -> Option<String> {
    match info?.get(name)?.scalar() {
        Ok(Scalar::Text(text) | Scalar::Symbol(text)) if !text.is_empty() => Some(text.to_owned()),
        _ => None,
    }
}

/// Properties to change (AMQP-63).
fn properties(map: Option<&Map>) -> Result<Vec<(String, Value)>, Rejection> {
    let mut changes = Vec::new();
    for (key, value) in map.into_iter().flat_map(Map::entries) {
        let Ok(Scalar::Text(key) | Scalar::Symbol(key)) = key.scalar() else {
            return Err(Rejection::argument("name of a property to change is no text"));
        };
        let value = Value::decode(value.as_bytes()).map_err(|error| {
            Rejection::argument(format!("value of the property to change `{key:.64}`: {error}"))
        })?;
        changes.push((key.to_owned(), value));
    }
    Ok(changes)
}
