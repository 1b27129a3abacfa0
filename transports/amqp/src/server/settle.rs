//! Settling (AMQP-60 to AMQP-69).

use std::sync::Arc;

use peeklock_core::command::{Command, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::limits::Limits;
use peeklock_core::message::Value;
use peeklock_core::permits::Permit;
use peeklock_core::time::Timestamp;
use peeklock_core::transaction::TransactionId;
use peeklock_link::pending::correlation;
use peeklock_words::amqp::Scalar;

use super::conversation::{Conversation, Ended, Expect, Sent};
use super::deliver::token_of;
use super::outcomes::OutcomeKind;
use super::requests::Each;
use super::requests::Work;
use super::transaction::{Book, PartKind};
use crate::codec::value::Map;
use crate::connection::{SentId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::DeliveryTag;
use crate::state::{DeliveryState, Modified, Outcome, Rejected};

/// Entries of a dead-letter's `info` that are no properties to change.
const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// What is to become of a delivery.
pub(super) struct Settling {
    token: LockToken,
    sent: Sent,
    /// In which it was sent.
    session: SessionId,
    settlement: Settlement,
    /// Of which it is to be a part.
    transaction: Option<TransactionId>,
    /// What the client is answered, if it has not forgotten the delivery.
    answer: Option<(SentId, Outcome)>,
}

impl Settling {
    /// Whether its delivery was sent on the link of this number.
    pub(super) const fn is_of(&self, number: u32) -> bool {
        self.sent.number == number
    }

    /// The bytes of the properties that it sets.
    pub(super) fn bytes(&self) -> u64 {
        self.settlement.bytes()
    }
}

/// What an outcome is in the broker's words, as long as the same is said: a disposition says it of every delivery of
/// its range, and sets as many properties as a frame has room for.
#[derive(Default)]
pub(super) struct Understood(Option<(Outcome, Result<Settlement, Rejection>)>);

impl Understood {
    /// The settlement that an outcome is, made once and shared.
    fn settlement(&mut self, outcome: &Outcome, limits: &Limits) -> Result<Settlement, Rejection> {
        match &self.0 {
            Some((last, understood)) if last == outcome => understood.clone(),
            _ => {
                let understood = settlement(outcome, limits);
                self.0 = Some((outcome.clone(), understood.clone()));
                understood
            }
        }
    }
}

impl Conversation {
    /// A client says what is to become of a delivery.
    pub(super) async fn settle(
        &mut self,
        id: SentId,
        tag: &DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        let is_known = |token: &LockToken| self.sent.get(token).is_some_and(|sent| sent.id == id);
        let Some(token) = token_of(tag).filter(is_known) else {
            // It is being settled already, and the answer to that answers this (AMQP-68).
            return;
        };
        let (transaction, outcome) = match state {
            Some(DeliveryState::Outcome(outcome)) => (None, Some(outcome)),
            Some(DeliveryState::Transactional(state)) => {
                (Some(Book::id(&state.txn_id)), state.outcome)
            }
            Some(DeliveryState::Received(_)) | None => (None, None),
        };
        let Some(outcome) = outcome else {
            // The client has forgotten it; its lock runs on (AMQP-65).
            if settled {
                self.sent.remove(&token);
            }
            return;
        };
        let limits = &self.engine.broker.settings().limits;
        let settlement = match self.understood.settlement(&outcome, limits) {
            Ok(settlement) => settlement,
            Err(rejection) if settled => {
                // The client has forgotten it (AMQP-65).
                let Some(sent) = self.sent.remove(&token) else { return };
                if let Some(transaction) = transaction {
                    // Nobody hears of it: the transaction does nothing.
                    let path = sent.entity.path().to_owned();
                    let of = PartKind::Settled { token, sent, answer: None };
                    self.not_joined(transaction, of, rejection, &path);
                }
                return;
            }
            Err(rejection) => {
                let Some(sent) = self.sent.get(&token) else { return };
                let error = self.refuse(rejection, sent.entity.path());
                // Its lock stays, and with it the delivery, which may be settled otherwise (AMQP-62).
                self.amqp.answer_kept(id, DeliveryState::rejected(error));
                return;
            }
        };
        let Some(sent) = self.sent.remove(&token) else { return };
        let is_dropped = settled
            && matches!(settlement, Settlement::Defer { .. })
            && sent.expires_at.is_some_and(|at| at <= self.engine.broker.now());
        // Some clients drop so what has expired in their hands: it ends as what expires does (AMQP-60).
        let settlement = if is_dropped { Settlement::Release } else { settlement };
        let answer = (!settled).then(|| (id, same_kind(outcome)));
        let session = id.session();
        let settling = Settling { token, sent, session, settlement, transaction, answer };
        match &mut self.gathered {
            Some(Work::Settle(list)) => list.push(settling),
            _ if transaction.is_some() => self.when_room(Work::Settle(vec![settling])).await,
            _ => self.gathered = Some(Work::Settle(vec![settling])),
        }
    }

    /// Tells the entity of deliveries of one link what is to become of them.
    pub(super) async fn settle_now(&mut self, mut list: Vec<Settling>, permit: Permit) {
        let Some(first) = list.first() else { return };
        if let Some(transaction) = first.transaction {
            // It goes alone.
            let Some(Settling { token, sent, session, settlement, answer, .. }) = list.pop() else {
                return;
            };
            let command = Command::Settle { token, settlement };
            let entity = sent.entity.clone();
            let of = PartKind::Settled { token, sent, answer };
            return self.join(transaction, session, &entity, command, of, permit).await;
        }
        let number = first.sent.number;
        let entity = first.sent.entity.clone();
        let permit = Some(Arc::new(permit));
        let mut commands = Vec::with_capacity(list.len());
        let each = Each::new(list.into_iter().map(|settling| {
            let Settling { token, sent, settlement, answer, .. } = settling;
            let kind = OutcomeKind::of(&settlement);
            commands.push(Command::Settle { token, settlement });
            let answer = answer.map(|(id, outcome)| (id, DeliveryState::Outcome(outcome)));
            Ended { token, kind, answer, sent: Some(sent) }
        }));
        let is_open = self.engine.links.get(number).is_some_and(|link| link.is_open());
        let slot = match is_open {
            true => self.engine.links.ask(number, 0, permit, Expect::Settled(each)),
            false => {
                self.engine.links.ask_of(entity.path().into(), 0, permit, Expect::Settled(each))
            }
        };
        for (index, command) in commands.into_iter().enumerate() {
            match is_open {
                true => drop(self.engine.links.submit(number, command, correlation(slot, index))),
                false => self.engine.links.submit_to(&entity, command, correlation(slot, index)),
            }
        }
    }

    /// What became of it is durable, or it was refused.
    pub(super) fn settled(&mut self, ended: Ended, path: &str, result: Result<(), Rejection>) {
        let Ended { token, kind, answer, sent } = ended;
        let refused = match result {
            Ok(()) => {
                let is_gone = |sent: &Sent| !self.numbering.numbers.contains_key(&sent.number);
                if sent.as_ref().is_some_and(is_gone) {
                    self.site.outcomes().remember(token, kind);
                }
                None
            }
            Err(rejection) => Some(rejection),
        };
        let keeps_lock = refused.as_ref().is_some_and(keeps_lock);
        let (id, state) = match (answer, refused) {
            (None, _) => return self.lock_over(token),
            (Some((id, state)), None) => (id, state),
            (Some((id, _)), Some(rejection)) => {
                (id, DeliveryState::rejected(self.refuse(rejection, path)))
            }
        };
        if keeps_lock
            && let Some(sent) = sent
            && self.amqp.answer_kept(id, state.clone())
        {
            self.sent.insert(token, sent);
            return;
        }
        self.lock_over(token);
        self.amqp.answer(id, state);
    }

    /// A lock is over: there may be room for more deliveries.
    fn lock_over(&mut self, token: LockToken) {
        if let Some(held) = self.engine.links.settled(token) {
            self.engine.links.limit(held.link);
        }
    }

    /// A delivery was settled by the token of its lock; its client may forget it.
    pub(super) fn lock_settled(&mut self, token: LockToken) {
        self.lock_over(token);
        if let Some(sent) = self.sent.remove(&token) {
            self.amqp.forget_delivery(sent.id);
        }
    }

    /// A lock was prolonged.
    pub(super) fn lock_renewed(&mut self, token: LockToken, until: Timestamp) {
        self.engine.links.unsettled.renewed(token, until);
        if let Some(sent) = self.sent.get_mut(&token) {
            sent.until = until;
        }
    }

    /// Forgets deliveries whose locks have ended, of which there may be any number else, and makes room for others.
    pub(super) fn forget_ended(&mut self) {
        let now = self.engine.broker.now();
        self.engine.links.forget_ended(now);
        let unsettled = &self.engine.links.unsettled;
        let ended = |token: &LockToken, sent: &mut Sent| {
            sent.until <= now && unsettled.of_lock(*token).is_none()
        };
        let mut ended: Vec<Sent> = self.sent.extract_if(ended).map(|(_, sent)| sent).collect();
        // In their order, in which they are few ranges (see `Lapsed`).
        ended.sort_unstable_by_key(|sent| sent.id);
        for sent in ended {
            match sent.of_session {
                true => self.amqp.lapse_delivery(sent.id),
                false => self.amqp.forget_delivery(sent.id),
            }
        }
        peeklock_link::shrink(&mut self.sent);
    }
}

/// Whether what was refused so left the lock as it was.
const fn keeps_lock(rejection: &Rejection) -> bool {
    matches!(
        rejection.condition(),
        Condition::ArgumentError
            | Condition::ArgumentOutOfRange
            | Condition::InvalidOperation
            | Condition::NotImplemented
            | Condition::MessageSizeExceeded
            | Condition::QuotaExceeded
            | Condition::ServerBusy
    )
}

/// The answer to a success: of the kind that the client has said (AMQP-60), and without error (AMQP-61).
fn same_kind(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Rejected(_) => Outcome::Rejected(Rejected { error: None }),
        Outcome::Modified(modified) => {
            Outcome::Modified(Modified { message_annotations: None, ..modified })
        }
        other => other,
    }
}

/// An outcome in the broker's words.
fn settlement(outcome: &Outcome, limits: &Limits) -> Result<Settlement, Rejection> {
    Ok(match outcome {
        Outcome::Accepted => Settlement::Complete,
        Outcome::Released => Settlement::Release,
        Outcome::Modified(modified) => {
            let changes = properties(modified.message_annotations.as_ref())?;
            if modified.undeliverable_here != Some(true) {
                return Settlement::abandon(&changes, None);
            }
            Settlement::defer(&changes)?
        }
        Outcome::Rejected(Rejected { error }) => {
            let info = error.as_ref().and_then(AmqpError::info);
            let mut changes = properties(info)?;
            let reason = text(info, REASON);
            let description = text(info, DESCRIPTION);
            // Of another type they are properties like others (AMQP-63).
            changes.retain(|(name, value)| {
                let is_text = matches!(value, Value::String(_) | Value::Null);
                !is_text || (name != REASON && name != DESCRIPTION)
            });
            let [reason, description] = [&reason, &description].map(Option::as_deref);
            Settlement::dead_letter(reason, description, &changes, limits)?
        }
        Outcome::Declared(_) => {
            let detail =
                format!("declared is not an outcome of a message ({})", condition::NOT_ALLOWED);
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
pub(super) fn properties(map: Option<&Map>) -> Result<Vec<(String, Value)>, Rejection> {
    let mut changes = Vec::new();
    for (key, value) in map.into_iter().flat_map(Map::entries) {
        let Ok(Scalar::Text(key) | Scalar::Symbol(key)) = key.scalar() else {
            return Err(Rejection::argument("name of a property to change must be text"));
        };
        let value = Value::decode(value.as_bytes()).map_err(|error| {
            Rejection::argument(format!("value of the property to change `{key:.64}`: {error}"))
        })?;
        changes.push((key.to_owned(), value));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use peeklock_words::amqp::write;

    use super::*;
    use crate::codec::value::Raw;

    /// A delivery goes back with a property of this name; none can have one that is no text.
    fn changed(name: Option<&str>) -> Outcome {
        let value = Raw::encoded(|bytes| write::text(bytes, "v"));
        let map = match name {
            Some(name) => Map::of_symbols([(name, value)]),
            None => Map::from_raw(Raw::encoded(|bytes| {
                bytes.extend_from_slice(&[0xc1, 0x03, 0x02, 0x40, 0x40]);
            }))
            .unwrap(),
        };
        Outcome::Modified(Modified { message_annotations: Some(map), ..Modified::default() })
    }

    /// Where the properties are that a settlement sets.
    fn set(settlement: &Settlement) -> *const u8 {
        match settlement {
            Settlement::Abandon { properties: Some(overlay), .. } => overlay.as_bytes().as_ptr(),
            other => panic!("{other:?}"),
        }
    }

    /// AMQP-63, DESIGN D6: what a disposition sets is read once, however many deliveries it is for, and all of them
    /// share it; another one sets its own.
    #[test]
    fn what_is_said_of_many_deliveries_is_understood_once() {
        let (mut understood, limits) = (Understood::default(), Limits::default());
        let mut of = |name| understood.settlement(&changed(name), &limits);
        let first = of(Some("a")).unwrap();
        let (again, other) = (of(Some("a")).unwrap(), of(Some("b")).unwrap());
        assert_eq!(set(&first), set(&again));
        assert_ne!(set(&first), set(&other));
        // What cannot be understood cannot be the second time either, and is in the way of nothing.
        for _ in 0..2 {
            assert_eq!(of(None).unwrap_err().condition(), Condition::ArgumentError);
        }
        assert!(of(Some("b")).is_ok());
    }
}
