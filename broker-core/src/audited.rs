//! Actions in progress whose beginning is in the audit trail (CON-23). `access/audit.rs` begins them.

use std::fmt;
use std::sync::Arc;

use crate::clock::Clock;
use crate::contract::auditor::{
    AuditEntry, AuditError, AuditResult, AuditStage, AuditedChange, Auditor, Recorded,
};
use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::error::BrokerError;
use crate::rule::RuleDescription;

/// An action whose beginning is in the trail. Dropping it records an unknown result.
#[derive(Default)]
pub struct Audited(Option<Box<RunningAction>>);

struct RunningAction {
    auditor: Arc<dyn Auditor>,
    clock: Arc<dyn Clock>,
    entry: AuditEntry,
    before: Before,
}

/// Values before a change; of an entity also the properties that the request names.
#[derive(Default)]
pub(crate) enum Before {
    #[default]
    Nothing,
    Queue(QueueDescription, Vec<&'static str>),
    Topic(TopicDescription, Vec<&'static str>),
    Subscription(SubscriptionDescription, Vec<&'static str>),
    Rule(RuleDescription),
    Rights(Box<str>, String),
}

impl Audited {
    /// Creates the action of an entry that is in the trail.
    pub(crate) fn new(
        auditor: &Arc<dyn Auditor>,
        clock: &Arc<dyn Clock>,
        entry: AuditEntry,
    ) -> Self {
        let (auditor, clock, before) = (Arc::clone(auditor), Arc::clone(clock), Before::Nothing);
        Self(Some(Box::new(RunningAction { auditor, clock, entry, before })))
    }

    /// Keeps the values before the change.
    pub(crate) fn set_before(&mut self, before: Before) {
        if let Some(running) = &mut self.0 {
            running.before = before;
        }
    }

    /// Records the result, and the number of messages of the action if it has one. An entry that
    /// cannot be written is logged: the action is already carried out.
    pub async fn end(self, result: AuditResult, count: Option<u64>) {
        let changes = Vec::new();
        self.end_with(AuditStage::End { result, count, changes, error_tracking_id: None }).await;
    }

    /// Takes the values before the change.
    pub(crate) fn take_before(&mut self) -> Before {
        self.0.as_mut().map(|running| std::mem::take(&mut running.before)).unwrap_or_default()
    }

    /// Records the last stage of the action.
    pub(crate) async fn end_with(mut self, stage: AuditStage) {
        let Some(running) = self.0.take() else { return };
        log_failure(running.end(stage).await);
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        let (result, changes) = (AuditResult::Unknown, Vec::new());
        // Queued; nobody waits for it.
        drop(running.end(AuditStage::End {
            result,
            count: None,
            changes,
            error_tracking_id: None,
        }));
    }
}

impl fmt::Debug for Audited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.0.as_ref().map(|running| running.entry.action);
        f.debug_tuple("Audited").field(&action).finish()
    }
}

impl RunningAction {
    fn end(self, stage: AuditStage) -> Recorded {
        let Self { auditor, clock, entry, .. } = self;
        auditor.record(AuditEntry { at: clock.now(), stage, ..entry })
    }
}

pub(crate) fn log_failure(recorded: Result<(), AuditError>) {
    if let Err(error) = recorded {
        tracing::error!(%error, "the result of an action is not in the audit trail");
    }
}

/// Last stage of an action without a number or changed values.
pub(crate) fn end_of<T>(outcome: &Result<T, BrokerError>) -> AuditStage {
    ended(outcome.as_ref().map(|_| ()), None, Vec::new())
}

pub(crate) fn ended(
    outcome: Result<(), &BrokerError>,
    count: Option<u64>,
    changes: Vec<AuditedChange>,
) -> AuditStage {
    let (result, error_tracking_id) = match outcome {
        Ok(()) => (AuditResult::Done, None),
        Err(error) => (AuditResult::Failed(error.condition()), Some(error.tracking_id())),
    };
    AuditStage::End { result, count, changes, error_tracking_id }
}
