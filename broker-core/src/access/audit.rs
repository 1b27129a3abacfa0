//! The audit trail (CON-23): which actions it records, and their entries.
//!
//! ```text
//!  manage, search, sign-in, ... ──► begin: entry, durable ──► the action ──► end: entry with result
//! ```
//!
//! [`of_management`], [`of_question`] and [`of_command`] decide about all requests; a request that
//! they do not name has no entry. Commands over handles of entities, such as sends and receives of
//! clients, do not come here.

mod text;

use std::borrow::Cow;
use std::sync::Arc;

pub(crate) use self::text::address_without_keys;
use self::text::{cut, numbers, request_text, search_text, shown, without_keys};
use super::{Access, canonical};
use crate::audited::{Audited, Before, ended, log_failure};
use crate::broker::{Broker, Update};
use crate::checks::report::MuteChange;
use crate::command::{ActResult, Command, OperatorCommand, Outcome, SessionCommand};
use crate::contract::auditor::{
    AUDIT_CHANGES_MAX, AuditEntry, AuditPage, AuditQuery, AuditStage, AuditedAction, AuditedChange,
    AuditedClient,
};
use crate::declaration::{self, Change};
use crate::description::{
    Description, Patch, QueueDescription, QueueUpdate, SubscriptionDescription, SubscriptionUpdate,
    TopicDescription, TopicUpdate,
};
use crate::error::{BrokerError, Rejection};
use crate::findings::Question;
use crate::grant::PresentedToken;
use crate::ids::TrackingId;
use crate::jobs::JobQuery;
use crate::management::{Managed, Management};
use crate::path::subscription_path;
use crate::search::SearchStep;

/// Action of a management request; none if it is not recorded.
pub(super) const fn of_management(request: &Management) -> Option<AuditedAction> {
    Some(match request {
        Management::CreateQueue(_)
        | Management::CreateTopic(_)
        | Management::CreateSubscription { .. } => AuditedAction::CreateEntity,
        Management::UpdateQueue(..)
        | Management::UpdateTopic(..)
        | Management::UpdateSubscription(..) => AuditedAction::UpdateEntity,
        Management::Delete(_) => AuditedAction::DeleteEntity,
        Management::CreateRule(_) | Management::CreateOwnRule(_) => AuditedAction::CreateRule,
        Management::UpdateRule(_) => AuditedAction::UpdateRule,
        Management::DeleteRule(_) | Management::DeleteOwnRule(_) => AuditedAction::DeleteRule,
        Management::DeleteDeferred(_) | Management::DeleteUnlocked { .. } => {
            AuditedAction::DeleteMessages
        }
        Management::CreatePolicy(..) => AuditedAction::CreatePolicy,
        Management::UpdatePolicy(..) => AuditedAction::UpdatePolicy,
        Management::ReplacePolicies(_) => AuditedAction::ReplacePolicies,
        Management::DeletePolicy(_) => AuditedAction::DeletePolicy,
        Management::PolicyKeys(_) => AuditedAction::ReadKeys,
        Management::RegenerateKey(..) => AuditedAction::RegenerateKey,
        Management::CarryOut { .. } => AuditedAction::Apply,
        Management::Operate(OperatorCommand::BreakLocks { .. }) => AuditedAction::BreakLocks,
        Management::Operate(OperatorCommand::BreakSession { .. }) => AuditedAction::BreakSession,
        Management::Operate(OperatorCommand::SetSessionState { .. }) => {
            AuditedAction::SetSessionState
        }
        Management::Operate(OperatorCommand::Act(_)) => AuditedAction::Act,
        Management::CreateJob(_) => AuditedAction::CreateJob,
        Management::ControlJob(..) => AuditedAction::ControlJob,
        Management::CloseClient(_) => AuditedAction::CloseClient,
        Management::Mute(MuteChange::Mute { .. }) => AuditedAction::MuteFinding,
        Management::Mute(MuteChange::Unmute { .. }) => AuditedAction::UnmuteFinding,
        // It changes no message.
        Management::Operate(OperatorCommand::ForgetJob(_)) => return None,
        // Questions begin their entries where they are answered, see `of_question`.
        Management::Inspect(_)
        | Management::Namespace
        | Management::Queue
        | Management::Queues(_)
        | Management::Topic
        | Management::Topics(_)
        | Management::Subscription
        | Management::Subscriptions(_)
        | Management::Paths(..)
        | Management::Rule(_)
        | Management::Rules(_)
        | Management::Explain(_)
        | Management::Sessions(..)
        | Management::Policies
        | Management::Policy(_)
        | Management::Plan(_) => return None,
    })
}

/// Action of a question; none if it is not recorded. `records_reads` is `console.audit_reads`.
const fn of_question(question: &Question, records_reads: bool) -> Option<AuditedAction> {
    match question {
        Question::Search(SearchStep::Begin(_)) => Some(AuditedAction::Search),
        Question::Body { .. } | Question::SessionState { .. } if records_reads => {
            Some(AuditedAction::ReadBody)
        }
        Question::Jobs(JobQuery::Export { .. }) if records_reads => Some(AuditedAction::ReadBody),
        Question::Body { .. }
        | Question::SessionState { .. }
        | Question::Search(SearchStep::Continue(_))
        | Question::Heads(_)
        | Question::Locks(_)
        | Question::Sessions(_)
        | Question::Timeline(_)
        | Question::Entities(_)
        | Question::Clients(_)
        | Question::Tap { .. }
        | Question::Series(_)
        | Question::Jobs(_)
        | Question::Topology(_)
        | Question::Checks(_)
        | Question::Journey(_)
        | Question::Samples(_)
        | Question::Explain(_)
        | Question::WhatIf(_)
        | Question::Audit(_) => None,
    }
}

/// Action of a command over the API of the console, and its request; none if it is not recorded.
/// Sends are recorded only if an operator makes them, not a program.
fn of_command(command: &Command, is_by_operator: bool) -> Option<(AuditedAction, String)> {
    let messages = |count: usize| format!("{count} messages");
    let of_operator = |action, request| is_by_operator.then_some((action, request));
    let deleted = |request| Some((AuditedAction::DeleteMessages, request));
    match command {
        Command::Send { .. } => of_operator(AuditedAction::Send, messages(1)),
        Command::SendBatch { messages: batch } => {
            of_operator(AuditedAction::Send, messages(batch.len()))
        }
        Command::SendVia { messages: batch, .. } => {
            of_operator(AuditedAction::Send, messages(batch.len()))
        }
        Command::CancelScheduled { sequences } => {
            of_operator(AuditedAction::CancelScheduled, numbers(sequences))
        }
        Command::DeleteBatch { enqueued_before, .. }
        | Command::DeleteBatchUnlocked { enqueued_before, .. } => {
            deleted(enqueued_before.map(|at| format!("enqueued before {at}")).unwrap_or_default())
        }
        Command::DeleteDeferred { sequence } => deleted(numbers(&[*sequence])),
        Command::InSession { command, .. } => match command {
            SessionCommand::DeleteBatch { .. } => deleted(String::new()),
            SessionCommand::Attach
            | SessionCommand::Receive { .. }
            | SessionCommand::ReceiveDeferred { .. }
            | SessionCommand::Renew
            | SessionCommand::GetState
            | SessionCommand::SetState { .. } => None,
        },
        // `of_management` decides about the changes of entities and the commands of operators.
        Command::Update { .. }
        | Command::UpdateSubscription { .. }
        | Command::OfTopic(_)
        | Command::OfOperator(_)
        // `of_question` decides.
        | Command::Inspect(_)
        // Programs receive and settle.
        | Command::Receive { .. }
        | Command::CancelReceive { .. }
        | Command::ReceiveDeferred { .. }
        | Command::Attach { .. }
        | Command::SetCredit { .. }
        | Command::Detach { .. }
        | Command::Settle { .. }
        | Command::RenewLock { .. }
        | Command::AcceptSession { .. }
        | Command::Check { .. }
        | Command::Commit { .. }
        // They change nothing.
        | Command::Peek { .. }
        | Command::PeekSession { .. }
        | Command::ListSessions { .. }
        | Command::Describe
        // Only brokers send them.
        | Command::TransferIn { .. }
        | Command::EndTransfer { .. }
        | Command::TransferFromPeer { .. } => None,
    }
}

impl Access {
    /// Begins the entry of a management request, if it is recorded.
    pub(super) async fn audit_management(
        &self,
        path: &str,
        request: &Management,
    ) -> Result<Audited, BrokerError> {
        let (Some(action), Some(_)) = (of_management(request), &self.broker.shared.auditor) else {
            return Ok(Audited::default());
        };
        let resource = match request {
            Management::CreateSubscription { name, .. } => {
                Cow::Owned(subscription_path(path, name))
            }
            _ => Cow::Borrowed(path),
        };
        let mut audited = self.begin_audit(action, &resource, &request_text(request)).await?;
        // Only now, since others may have changed the entity while the entry was written.
        audited.set_before(read_before(&self.broker, path, request).await);
        Ok(audited)
    }

    /// Begins the entry of a question, if it is recorded.
    pub(super) async fn audit_question(
        &self,
        path: &str,
        question: &Question,
    ) -> Result<Audited, BrokerError> {
        let Some(auditor) = &self.broker.shared.auditor else { return Ok(Audited::default()) };
        let Some(action) = of_question(question, auditor.records_reads()) else {
            return Ok(Audited::default());
        };
        let request = match question {
            Question::Search(SearchStep::Begin(query)) => search_text(query),
            Question::Body { sequence, .. } => numbers(&[*sequence]),
            Question::SessionState { session, .. } => format!("session {session:?}"),
            Question::Jobs(JobQuery::Export { job, .. }) => format!("export of job {job}"),
            _ => String::new(),
        };
        // A search of several entities has the policy of the first one.
        let granted = match question {
            Question::Search(SearchStep::Begin(query)) => query.paths.first().map_or(path, |it| it),
            _ => path,
        };
        let client = self.audited_client(granted);
        self.begin_audit_of(client, action, path, &request).await
    }

    /// Begins the entry of a command over the API of the console, if it is recorded. The caller has
    /// checked the right. `is_page` reports whether the request has the mark of the console's page.
    /// Any program can set it, so it counts only for clients without credentials; otherwise an
    /// operator has a console token.
    ///
    /// # Errors
    /// `ServerBusy` if the entry cannot be written.
    pub async fn audit_command(
        &self,
        path: &str,
        command: &Command,
        is_page: bool,
    ) -> Result<Audited, BrokerError> {
        if self.broker.shared.auditor.is_none() {
            return Ok(Audited::default());
        }
        let is_by_operator = self.has_console_token() || (is_page && self.is_anonymous());
        match of_command(command, is_by_operator) {
            Some((action, request)) => self.begin_audit(action, path, &request).await,
            None => Ok(Audited::default()),
        }
    }

    /// Writes the first entry of an action, and waits until it is durable.
    pub(super) async fn begin_audit(
        &self,
        action: AuditedAction,
        resource: &str,
        request: &str,
    ) -> Result<Audited, BrokerError> {
        let client = self.audited_client(resource);
        self.begin_audit_of(client, action, resource, request).await
    }

    pub(super) async fn begin_audit_of(
        &self,
        client: AuditedClient,
        action: AuditedAction,
        resource: &str,
        request: &str,
    ) -> Result<Audited, BrokerError> {
        let shared = &self.broker.shared;
        let Some(auditor) = &shared.auditor else { return Ok(Audited::default()) };
        let stage = AuditStage::Begin { request: cut(&without_keys(request)).into() };
        let entry = self.audit_entry(client, action, resource, stage);
        auditor
            .record(entry.clone())
            .await
            .map_err(|error| self.broker.refuse(error.refusal(), resource))?;
        Ok(Audited::new(auditor, &shared.clock, entry))
    }

    /// Records a sign-in that has failed. The number of such entries is bounded, so that a client
    /// that tries keys cannot push others out of the trail.
    pub(super) async fn audit_failed_sign_in(&self, resource: &str, error: &BrokerError) {
        let shared = &self.broker.shared;
        let Some(auditor) = &shared.auditor else { return };
        let Some(omitted) = shared.failed_sign_ins.admit("sign-in", self.broker.now()) else {
            return;
        };
        if omitted > 0 {
            tracing::warn!(omitted, "failed sign-ins without an entry in the audit trail");
        }
        let denied = error.rejection().denial().and_then(|denial| denial.policy.as_deref());
        let client = self.audited_client(resource);
        let policy = client.policy.clone().or_else(|| denied.map(Arc::from));
        let client = AuditedClient { policy, ..client };
        let stage = ended(Err(error), None, Vec::new());
        let entry = self.audit_entry(client, AuditedAction::SignIn, resource, stage);
        log_failure(auditor.record(entry).await);
    }

    fn audit_entry(
        &self,
        client: AuditedClient,
        action: AuditedAction,
        resource: &str,
        stage: AuditStage,
    ) -> AuditEntry {
        AuditEntry {
            at: self.broker.now(),
            tracking_id: TrackingId(self.broker.shared.edge.entropy().next_u128()),
            action,
            resource: cut(resource).into(),
            client,
            stage,
        }
    }

    /// The client as the trail names it. Its rights were checked before, so its policy is known.
    pub(super) fn audited_client(&self, resource: &str) -> AuditedClient {
        let Some(check) = &self.check else { return AuditedClient::default() };
        let signed_in = match &check.console_token {
            PresentedToken::Known(used) => Some(used),
            PresentedToken::Absent | PresentedToken::Unknown => None,
        };
        let state = check.lock();
        let grant = state.grants.get(&canonical(resource)).or_else(|| state.grants.get(""));
        let policy = grant.and_then(|grant| grant.policy());
        AuditedClient {
            policy: policy.or_else(|| signed_in.and_then(|used| used.policy())),
            address: state.principal.peer,
            is_by_proxy: state.principal.by_proxy,
            role: signed_in.map(|used| used.role()),
        }
    }

    fn has_console_token(&self) -> bool {
        let check = self.check.as_ref();
        check.is_some_and(|check| matches!(check.console_token, PresentedToken::Known(_)))
    }

    fn is_anonymous(&self) -> bool {
        self.principal().is_none_or(|principal| !principal.has_credentials())
    }

    /// Answers [`Question::Audit`].
    pub(super) async fn audit_page(&self, query: AuditQuery) -> Result<AuditPage, BrokerError> {
        let Some(auditor) = &self.broker.shared.auditor else {
            let rejection = Rejection::invalid_operation("this broker has no audit trail");
            return Err(self.broker.refuse(rejection, ""));
        };
        let page = auditor.read(query).await;
        page.map_err(|error| self.broker.refuse(error.unreadable(), ""))
    }
}

/// Last stage of a management request, with changed values.
pub(super) fn end_of_management(
    audited: &mut Audited,
    outcome: &Result<Managed, BrokerError>,
) -> AuditStage {
    let before = audited.take_before();
    let (count, changes) = match outcome {
        Ok(managed) => (count_of(managed), changes(before, managed)),
        Err(_) => (None, Vec::new()),
    };
    ended(outcome.as_ref().map(|_| ()), count, changes)
}

/// Number of messages, locks or steps of an answer.
fn count_of(managed: &Managed) -> Option<u64> {
    match managed {
        Managed::Deleted(count) | Managed::LocksBroken(count) => Some(*count),
        Managed::CarriedOut(done) => Some(done.done as u64),
        Managed::Acted(messages) => {
            let done = messages.iter().filter(|message| message.result == ActResult::Done);
            Some(done.count() as u64)
        }
        _ => None,
    }
}

/// Number of messages that a command has sent or removed.
#[must_use]
pub fn message_count(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Deleted(count) => Some(*count),
        Outcome::Accepted(_) => Some(1),
        Outcome::AcceptedBatch(numbers) => Some(numbers.len() as u64),
        _ => None,
    }
}

/// Reads the values that a request changes. A missing entity, rule or policy has none; then the
/// request fails by itself.
async fn read_before(broker: &Broker, path: &str, request: &Management) -> Before {
    let before = match request {
        Management::UpdateQueue(update, patch) => {
            let names = names::<QueueDescription>(update, *patch);
            let read = broker.describe::<QueueUpdate>(path).await.ok();
            read.map(|read| Before::Queue(QueueUpdate::current(&read).0.clone(), names))
        }
        Management::UpdateTopic(update, patch) => {
            let names = names::<TopicDescription>(update, *patch);
            let read = broker.describe::<TopicUpdate>(path).await.ok();
            read.map(|read| Before::Topic(TopicUpdate::current(&read).0.clone(), names))
        }
        Management::UpdateSubscription(update, patch) => {
            let names = names::<SubscriptionDescription>(update, *patch);
            let read = broker.describe::<SubscriptionUpdate>(path).await.ok();
            read.map(|read| {
                Before::Subscription(SubscriptionUpdate::current(&read).0.clone(), names)
            })
        }
        Management::UpdateRule(rule) => broker.rule(path, &rule.name).await.ok().map(Before::Rule),
        Management::DeleteRule(name) | Management::DeleteOwnRule(name) => {
            broker.rule(path, name).await.ok().map(Before::Rule)
        }
        Management::UpdatePolicy(name, _) | Management::DeletePolicy(name) => {
            let policy = broker.policy(path, name).ok();
            policy.map(|policy| Before::Rights(name.clone(), policy.rights.to_string()))
        }
        _ => None,
    };
    before.unwrap_or_default()
}

/// Properties that an update names or clears.
fn names<D: Description>(update: &D::Update, patch: Patch) -> Vec<&'static str> {
    let named: Vec<_> = declaration::named::<D>(update).map(|(name, _)| name).collect();
    let is_asked = |name: &&'static str| named.contains(name) || patch.cleared.contains(name);
    D::FIELDS.iter().map(|field| field.name).filter(is_asked).collect()
}

/// Changes of the properties that a request names. Another one was changed by another request at
/// the same time.
fn changed<D: Description>(before: &D, after: &D, names: &[&str]) -> Vec<Change> {
    let mut changes = declaration::changes(before, after);
    changes
        .retain(|change| &*change.property == "extensions" || names.contains(&&*change.property));
    changes
}

/// Returns the changed values after the request.
fn changes(before: Before, managed: &Managed) -> Vec<AuditedChange> {
    let changes = match (before, managed) {
        (Before::Queue(before, names), Managed::Queue(after)) => {
            changed(&before, &after.description, &names)
        }
        (Before::Topic(before, names), Managed::Topic(after)) => {
            changed(&before, &after.description, &names)
        }
        (Before::Subscription(before, names), Managed::Subscription(after)) => {
            changed(&before, &after.description, &names)
        }
        (Before::Rule(before), Managed::Rule(after)) => vec![Change {
            property: format!("rule {}", before.name).into(),
            before: Some(declaration::rule_text(&before)),
            after: Some(declaration::rule_text(after)),
        }],
        (Before::Rule(before), Managed::Done) => vec![Change {
            property: format!("rule {}", before.name).into(),
            before: Some(declaration::rule_text(&before)),
            after: None,
        }],
        (Before::Rights(name, before), Managed::Policy(after)) => {
            let after = after.rights.to_string();
            let change = Change {
                property: format!("policy {name}").into(),
                before: Some(before.into()),
                after: Some(after.into()),
            };
            (change.before != change.after).then_some(change).into_iter().collect()
        }
        (Before::Rights(name, before), Managed::Done) => vec![Change {
            property: format!("policy {name}").into(),
            before: Some(before.into()),
            after: None,
        }],
        _ => Vec::new(),
    };
    let changes = changes.into_iter().take(AUDIT_CHANGES_MAX).map(|change| {
        let Change { property, before, after } = change;
        let kept = |text: Box<str>| cut(&shown(&property, &text)).into();
        let (before, after) = (before.map(kept), after.map(kept));
        AuditedChange { property: cut(&property).into(), before, after }
    });
    changes.collect()
}
