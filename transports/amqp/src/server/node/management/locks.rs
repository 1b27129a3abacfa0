//! Requests by lock token: `renew-lock` renews locks (SET-18), `update-disposition` settles
//! deliveries (AMQP-82). `operation.rs` calls the planners. Each token is handled on its own, so
//! one lost lock does not fail the others.

use peeklock_core::command::{Command, Outcome, Settlement, refuse_retry_delay};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_words::amqp::code;

use super::pieces::Pieces;
use super::plan::{ManagementAnswer, OperationPlan, RequestData};
use super::{ManagementRequest, Refusal, key, unexpected};
use crate::server::conversation::Conversation;
use crate::server::outcomes::OutcomeKind;
use crate::server::settlement::properties;
use crate::server::work::ReplyAddress;

impl Conversation {
    pub(super) async fn plan_renew_lock(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let tokens = management.body.tokens()?;
        let entity = self.managed_entity(management, Action::RenewLock).await?;
        let commands = tokens.iter().map(|token| Command::RenewLock { token: *token }).collect();
        let memo =
            RequestData { tokens, link: self.session_link(management)?, ..RequestData::default() };
        Ok(OperationPlan::Commands { entity, commands, read: Self::locks_renewed, memo })
    }

    fn locks_renewed(
        &mut self,
        _: &ReplyAddress,
        memo: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let mut ends = Vec::with_capacity(outcomes.len());
        for (outcome, token) in outcomes.into_iter().zip(&memo.tokens) {
            let until = match outcome {
                Outcome::Renewed(until) => {
                    self.lock_renewed(*token, until);
                    until
                }
                _ => return Err(unexpected()),
            };
            ends.push(until.unix_ms().to_be_bytes());
        }
        let mut items = Pieces::default();
        key(&mut items, "expirations");
        items.array(code::TIMESTAMP, ends.into_iter());
        Ok(ManagementAnswer::Map(items, 2))
    }

    pub(super) async fn plan_settle(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let mut tokens = management.body.tokens()?;
        let settlement = self.settlement_of(management)?;
        let entity = self.managed_entity(management, Action::Settle).await?;
        let kind = OutcomeKind::of(&settlement);
        if management.request.transaction.is_none() {
            // An earlier settlement with the same outcome is not repeated: the client did not see
            // the answer (AMQP-62).
            let outcomes = self.listener.outcomes();
            tokens.retain(|token| !outcomes.has(*token, kind));
            if tokens.is_empty() {
                return Ok(OperationPlan::in_background(async { Ok(ManagementAnswer::Done) }));
            }
        }
        let settle = |token| Command::Settle { token, settlement: settlement.clone() };
        let commands = tokens.iter().copied().map(settle).collect();
        let link = self.session_link(management)?;
        let memo = RequestData { tokens, kind: Some(kind), link, ..RequestData::default() };
        Ok(OperationPlan::Commands { entity, commands, read: Self::settled_by_token, memo })
    }

    fn settlement_of(&self, management: &ManagementRequest<'_>) -> Result<Settlement, Rejection> {
        let body = &management.body;
        let map = body.map("properties-to-modify")?;
        let changes = properties(map.as_ref())?;
        let plain = |what: &str, settlement: Settlement| {
            refuse_retry_delay(what, &changes).map(|()| settlement)
        };
        Ok(match &*body.required_text("disposition-status")? {
            "completed" => plain("complete", Settlement::Complete)?,
            "abandoned" => Settlement::abandon(&changes, None)?,
            "defered" | "deferred" => Settlement::defer(&changes)?,
            "suspended" => {
                let reason = body.text("deadletter-reason")?;
                let description = body.text("deadletter-description")?;
                let [reason, description] = [&reason, &description]
                    .map(|text| text.as_deref().filter(|text| !text.is_empty()));
                let limits = &self.engine.broker.settings().limits;
                Settlement::dead_letter(reason, description, &changes, limits)?
            }
            "unlocked" => plain("release", Settlement::Release)?,
            other => {
                return Err(Rejection::argument(format!(
                    "`disposition-status` is `{other:.32}`; it must be completed, abandoned, \
                     suspended, defered or unlocked"
                )));
            }
        })
    }

    fn settled_by_token(
        &mut self,
        _: &ReplyAddress,
        memo: &RequestData,
        _: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        for token in memo.tokens.iter().filter(|_| !memo.is_joined) {
            self.lock_settled(*token);
        }
        Ok(ManagementAnswer::Done)
    }
}

/// Records the effects of a failed request: some of its locks may be settled or renewed.
pub(super) fn record_partial_effects(
    conversation: &mut Conversation,
    memo: &RequestData,
    outcomes: &[Option<Outcome>],
) {
    for (token, outcome) in memo.tokens.iter().zip(outcomes) {
        match outcome.as_ref().filter(|_| !memo.is_joined) {
            Some(Outcome::Done) => conversation.lock_settled(*token),
            Some(Outcome::Renewed(until)) => conversation.lock_renewed(*token, *until),
            _ => {}
        }
    }
}
