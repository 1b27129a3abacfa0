//! Settlement by delivery number or by lock token, and renewal of locks. `operation.rs` calls it.
//! Each delivery has its own result.

use peeklock_core::command::{Outcome, Settlement, retry_delay_of};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Value;
use peeklock_link::PendingRequest;
use serde::{Deserialize, Serialize};

use super::settle_ranges::{LockOperation, NamedDeliveries};
use super::{Notice, PendingAnswer};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::error::FrameError;
use crate::frame::message::Properties;
use crate::frame::text::{Instant, Token};
use crate::frame::wire::{Reader, Wire};
use crate::frame::{WireError, bodies, json, wire_choice};

/// Kind of settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Decision {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
}

wire_choice!(Decision, "decision", [Complete, Abandon, Defer, DeadLetter, Release]);

bodies! {
    struct Settle {
        link: u32,
        decision: Decision,
        /// Delivery numbers, from and to, both included.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        ranges: Vec<Range>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        lock_tokens: Vec<Token>,
        #[serde(skip_serializing_if = "Option::is_none")]
        properties: Option<Properties>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Delay in milliseconds before an abandoned message is delivered again.
        #[serde(default, skip_serializing_if = "Delay::is_none")]
        delay_milliseconds: Delay,
    }

    struct Settled {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedRange>,
    }

    struct FailedRange {
        /// Delivery numbers, or indexes in `lockTokens` from 0; both included.
        from: u32,
        to: u32,
        error: WireError,
    }
}

/// Delay of an abandon in JSON; in the binary form, an abandon with a delay is another operation
/// (RTY-26).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Delay(pub(crate) Option<i64>);

impl Delay {
    /// No delay.
    pub(crate) const NONE: Self = Self(None);

    const fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Wire for Delay {
    const BYTES_MIN: usize = 0;

    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self::NONE)
    }
}

/// From and to, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Range(pub(crate) u32, pub(crate) u32);

impl Wire for Range {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(u32::read(reader)?, u32::read(reader)?))
    }
}

impl Conversation {
    pub(super) fn settle(&mut self, admitted: AdmittedRequest, settle: &Settle) -> Done {
        self.receiver(settle.link)?;
        let settlement = self.settlement(settle)?;
        let named = self.named_deliveries(settle.link, &settle.ranges, &settle.lock_tokens)?;
        self.issue_each(admitted, named, LockOperation::Settle(settlement), PendingAnswer::Settled)
    }

    /// Takes the result for one lock; answers after the last one.
    pub(super) fn settled(
        &mut self,
        slot: usize,
        index: usize,
        result: &Result<Outcome, Rejection>,
    ) {
        let pending = self.engine.links.request_mut(slot);
        let Some((_, path, PendingAnswer::Settled(named) | PendingAnswer::Renewed(named))) =
            pending
        else {
            return;
        };
        named.left = named.left.saturating_sub(1);
        match result {
            Ok(Outcome::Renewed(at)) => {
                named.until = Some(named.until.map_or(*at, |until| until.min(*at)));
            }
            Ok(_) => {}
            Err(rejection) => named.fail(index, rejection, |rejection| {
                (&self.engine.broker.refuse(rejection.clone(), &path)).into()
            }),
        }
        let (is_done, link) = (named.left == 0, named.link);
        let wants_next = named.wants_next();
        let token = named.tokens.get(index).copied();
        let settled = token.and_then(|token| self.remove_if_over(result, token)).unwrap_or(link);
        if is_done {
            self.answer_named(slot);
            // The receiver may now have more unsettled deliveries.
            self.engine.links.update_limits(settled);
        } else if wants_next {
            self.hand_over_part(slot);
        }
    }

    pub(super) fn answer_named(&mut self, slot: usize) {
        match self.engine.links.remove_request(slot) {
            Some(PendingRequest {
                id,
                expect: PendingAnswer::Settled(NamedDeliveries { failed, .. }),
                ..
            }) if id != 0 || !failed.is_empty() => {
                self.push_item(id, Notice::Settled(Settled { failed }));
            }
            Some(PendingRequest {
                id,
                expect: PendingAnswer::Renewed(NamedDeliveries { failed, until, .. }),
                ..
            }) => {
                let locked_until_utc = until.map(Instant);
                self.push_item(id, Notice::Renewed(Renewed { locked_until_utc, failed }));
            }
            Some(_) | None => {}
        }
    }

    /// Applies the result of a settlement or renewal to its delivery; returns the link of the
    /// delivery if it is no longer unsettled.
    fn remove_if_over(
        &mut self,
        result: &Result<Outcome, Rejection>,
        token: LockToken,
    ) -> Option<u32> {
        let is_over = match result {
            Ok(Outcome::Renewed(until)) => {
                self.engine.links.unsettled.record_renewal(token, *until);
                false
            }
            Ok(_) => true,
            Err(rejection) => matches!(
                rejection.condition(),
                Condition::MessageLockLost | Condition::SessionLockLost
            ),
        };
        if is_over { self.engine.links.remove_settled(token).map(|held| held.link) } else { None }
    }

    /// Converts the decision to a settlement of the broker.
    pub(super) fn settlement(&self, settle: &Settle) -> Result<Settlement, Rejection> {
        let properties = settle.properties.as_ref();
        let has_reason = settle.reason.is_some() || settle.description.is_some();
        if has_reason && settle.decision != Decision::DeadLetter {
            let detail = "only the decision deadLetter has reason and description";
            return Err(Rejection::argument(detail));
        }
        if settle.delay_milliseconds != Delay::NONE && settle.decision != Decision::Abandon {
            return Err(Rejection::argument("only the decision abandon has a delay"));
        }
        let changes: &[(String, Value)] = properties.map_or(&[], |properties| &properties.0);
        match settle.decision {
            Decision::Complete | Decision::Release => {
                if !changes.is_empty() {
                    let detail = "complete and release cannot set properties";
                    return Err(Rejection::argument(detail));
                }
                Ok(if settle.decision == Decision::Complete {
                    Settlement::Complete
                } else {
                    Settlement::Release
                })
            }
            Decision::Abandon => {
                let said =
                    settle.delay_milliseconds.0.map(|said| retry_delay_of(&Value::I64(said)));
                Settlement::abandon(changes, said.transpose()?)
            }
            Decision::Defer => Settlement::defer(changes),
            Decision::DeadLetter => Settlement::dead_letter(
                settle.reason.as_deref(),
                settle.description.as_deref(),
                changes,
                &self.engine.broker.settings().limits,
            ),
        }
    }
}

bodies! {
    /// An abandon with a delay, for which the binary form of a settlement has no field.
    struct SettleDelayed {
        delay_milliseconds: u64,
        settle: Settle,
    }
}

impl Conversation {
    pub(super) fn settle_delayed(
        &mut self,
        admitted: AdmittedRequest,
        delayed: SettleDelayed,
    ) -> Done {
        let SettleDelayed { delay_milliseconds, mut settle } = delayed;
        settle.delay_milliseconds =
            Delay(Some(i64::try_from(delay_milliseconds).unwrap_or(i64::MAX)));
        self.settle(admitted, &settle)
    }
}

bodies! {
    struct Renew {
        link: u32,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        ranges: Vec<Range>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        lock_tokens: Vec<Token>,
    }

    struct Renewed {
        /// Earliest end of the locks; absent if all failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        locked_until_utc: Option<Instant>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedRange>,
    }
}

impl Conversation {
    pub(super) fn renew(&mut self, admitted: AdmittedRequest, renew: &Renew) -> Done {
        self.receiver(renew.link)?;
        let named = self.named_deliveries(renew.link, &renew.ranges, &renew.lock_tokens)?;
        self.issue_each(admitted, named, LockOperation::Renew, PendingAnswer::Renewed)
    }
}
