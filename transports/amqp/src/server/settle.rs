//! Settlements by clients (AMQP-60 to AMQP-69): from a disposition to the entity, and back to the
//! answer. Outside transactions, the client gets its answer after the settlement is durable or
//! refused.

use std::sync::Arc;

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::time::Timestamp;
use peeklock_link::pending::correlation;

use super::book::TransactionBook;
use super::conversation::Conversation;
use super::deliver::token_of;
use super::outcomes::OutcomeKind;
use super::settlement::same_kind;
use super::work::{
    AwaitedAnswers, LockedDelivery, PartKind, PendingAnswer, PendingSettlement, SettlementRequest,
    UnpaidWork,
};
use crate::connection::SentId;
use crate::performative::DeliveryTag;
use crate::state::DeliveryState;

impl Conversation {
    /// Handles a client's disposition of a delivery.
    pub(super) async fn settle(
        &mut self,
        id: SentId,
        tag: &DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        let is_known =
            |token: &LockToken| self.locked_deliveries.get(token).is_some_and(|sent| sent.id == id);
        let Some(token) = token_of(tag).filter(is_known) else {
            // It is being settled already, and that answer also answers this disposition (AMQP-68).
            return;
        };
        let (transaction, outcome) = match state {
            Some(DeliveryState::Outcome(outcome)) => (None, Some(outcome)),
            Some(DeliveryState::Transactional(state)) => {
                (Some(TransactionBook::id(&state.txn_id)), state.outcome)
            }
            Some(DeliveryState::Received(_)) | None => (None, None),
        };
        let Some(outcome) = outcome else {
            // The client has settled it without an outcome; its lock continues (AMQP-65).
            if settled {
                self.locked_deliveries.remove(&token);
            }
            return;
        };
        let limits = &self.engine.broker.settings().limits;
        let settlement = match self.settlement_cache.settlement(&outcome, limits) {
            Ok(settlement) => settlement,
            Err(rejection) if settled => {
                // The client has settled the delivery (AMQP-65).
                let Some(sent) = self.locked_deliveries.remove(&token) else { return };
                if let Some(transaction) = transaction {
                    // The client gets no answer, so the transaction must be rolled back.
                    let path = sent.entity.path().to_owned();
                    let of = PartKind::Settled { token, sent, answer: None };
                    self.not_joined(transaction, of, rejection, &path);
                }
                return;
            }
            Err(rejection) => {
                let Some(sent) = self.locked_deliveries.get(&token) else { return };
                let error = self.refuse(rejection, sent.entity.path());
                // Its lock and the delivery remain, so the client may settle it with another
                // outcome (AMQP-62).
                self.amqp.dispose_sent_and_keep(id, DeliveryState::rejected(error));
                return;
            }
        };
        let Some(sent) = self.locked_deliveries.remove(&token) else { return };
        let is_dropped = settled
            && matches!(settlement, Settlement::Defer { .. })
            && sent.expires_at.is_some_and(|at| at <= self.engine.broker.now());
        // Some clients drop an expired message this way: it then ends like any expired message
        // (AMQP-60).
        let settlement = if is_dropped { Settlement::Release } else { settlement };
        let answer = (!settled).then(|| (id, same_kind(outcome)));
        let session = id.session();
        let settling = SettlementRequest { token, sent, session, settlement, transaction, answer };
        match &mut self.grouped_work {
            Some(UnpaidWork::Settle(list)) => list.push(settling),
            _ if transaction.is_some() => {
                self.when_permitted(UnpaidWork::Settle(vec![settling])).await
            }
            _ => self.grouped_work = Some(UnpaidWork::Settle(vec![settling])),
        }
    }

    /// Sends the settlements of deliveries of a link to their entity.
    pub(super) async fn settle_now(&mut self, mut list: Vec<SettlementRequest>, permit: Permit) {
        let Some(first) = list.first() else { return };
        if let Some(transaction) = first.transaction {
            // A settlement in a transaction is never grouped.
            let Some(SettlementRequest { token, sent, session, settlement, answer, .. }) =
                list.pop()
            else {
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
        let each = AwaitedAnswers::new(list.into_iter().map(|settling| {
            let SettlementRequest { token, sent, settlement, answer, .. } = settling;
            let kind = OutcomeKind::of(&settlement);
            commands.push(Command::Settle { token, settlement });
            let answer = answer.map(|(id, outcome)| (id, DeliveryState::Outcome(outcome)));
            PendingSettlement { token, kind, answer, sent: Some(sent) }
        }));
        let is_open = self.engine.links.get(number).is_some_and(|link| link.is_open());
        let slot = match is_open {
            true => self.engine.links.add_request(number, 0, permit, PendingAnswer::Settled(each)),
            false => self.engine.links.add_unlinked_request(
                entity.path().into(),
                0,
                permit,
                PendingAnswer::Settled(each),
            ),
        };
        for (index, command) in commands.into_iter().enumerate() {
            match is_open {
                true => drop(self.engine.links.submit(number, command, correlation(slot, index))),
                false => self.engine.links.submit_to(&entity, command, correlation(slot, index)),
            }
        }
    }

    /// Answers a settlement that is durable or was refused.
    pub(super) fn settled(
        &mut self,
        ended: PendingSettlement,
        path: &str,
        result: Result<(), Rejection>,
    ) {
        let PendingSettlement { token, kind, answer, sent } = ended;
        let refused = match result {
            Ok(()) => {
                let is_gone =
                    |sent: &LockedDelivery| !self.numbering.numbers.contains_key(&sent.number);
                if sent.as_ref().is_some_and(is_gone) {
                    self.listener.outcomes().remember(token, kind);
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
            && self.amqp.dispose_sent_and_keep(id, state.clone())
        {
            self.locked_deliveries.insert(token, sent);
            return;
        }
        self.lock_over(token);
        self.amqp.dispose_sent(id, state);
    }

    /// Removes a lock that is over, which may make room for more deliveries.
    fn lock_over(&mut self, token: LockToken) {
        if let Some(held) = self.engine.links.remove_settled(token) {
            self.engine.links.update_limits(held.link);
        }
    }

    /// Forgets a delivery that was settled by its lock token.
    pub(super) fn lock_settled(&mut self, token: LockToken) {
        self.lock_over(token);
        if let Some(sent) = self.locked_deliveries.remove(&token) {
            self.amqp.forget_delivery(sent.id);
        }
    }

    /// Records the new end of a renewed lock.
    pub(super) fn lock_renewed(&mut self, token: LockToken, until: Timestamp) {
        self.engine.links.unsettled.record_renewal(token, until);
        if let Some(sent) = self.locked_deliveries.get_mut(&token) {
            sent.until = until;
        }
    }

    /// Forgets deliveries whose locks have ended, which would otherwise accumulate, and makes room
    /// for others.
    pub(super) fn forget_ended(&mut self) {
        let now = self.engine.broker.now();
        self.engine.links.remove_ended(now);
        let unsettled = &self.engine.links.unsettled;
        let ended = |token: &LockToken, sent: &mut LockedDelivery| {
            sent.until <= now && unsettled.find_by_lock(*token).is_none()
        };
        let mut ended: Vec<LockedDelivery> =
            self.locked_deliveries.extract_if(ended).map(|(_, sent)| sent).collect();
        // In this order they form few ranges (see `LostSessionDeliveries`).
        ended.sort_unstable_by_key(|sent| sent.id);
        for sent in ended {
            match sent.of_session {
                true => self.amqp.lapse_delivery(sent.id),
                false => self.amqp.forget_delivery(sent.id),
            }
        }
        peeklock_link::shrink(&mut self.locked_deliveries);
    }
}

/// Returns whether a refusal left the lock unchanged.
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
