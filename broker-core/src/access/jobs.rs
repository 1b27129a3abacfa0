//! Jobs of operators with rights (CON-12, CON-72): each job acts on an entity, and a request about
//! the job needs the right on the entity.

use std::sync::Arc;

use super::Access;
use crate::audited::{end_of, log_failure};
use crate::broker::{Broker, Entity};
use crate::command::{Command, Deed, Outcome};
use crate::contract::JobKeeper;
use crate::contract::action::Action;
use crate::contract::auditor::{AuditEntry, AuditResult, AuditStage, AuditedAction, AuditedClient};
use crate::error::{BrokerError, Quoted, Rejection};
use crate::findings::{Findings, Found, Question};
use crate::ids::{JobId, TrackingId};
use crate::jobs::{
    JOB_EXPORT_PART_BYTES_MAX, JobControl, JobDraft, JobFacts, JobPage, JobQuery, unknown_job,
};
use crate::management::Managed;
use crate::path::{EntityAddress, EntityName, Node, PathKey, SubQueue};
use crate::survey::ReadableKeys;

impl Broker {
    /// Records the end of a job in the audit trail, with the number of messages that were changed.
    /// Its tracking id is the id of the job. For the keeper of jobs.
    pub async fn record_job_end(&self, job: &JobFacts, result: AuditResult) {
        let Some(auditor) = &self.shared.auditor else { return };
        let (count, changes) = (Some(job.progress.done), Vec::new());
        let entry = AuditEntry {
            at: self.now(),
            tracking_id: TrackingId(job.id.0),
            action: AuditedAction::EndJob,
            resource: (*job.path).into(),
            client: AuditedClient::default(),
            stage: AuditStage::End { result, count, changes, error_tracking_id: None },
        };
        log_failure(auditor.record(entry).await);
    }

    fn job_keeper(&self) -> Result<&Arc<dyn JobKeeper>, BrokerError> {
        self.shared.jobs.as_ref().ok_or_else(|| {
            self.refuse(Rejection::invalid_operation("this broker keeps no jobs"), "")
        })
    }
}

impl Access {
    /// Checks the right for a request about a job, and returns the path of its entity. An unknown
    /// job is reported to a principal with this right on the namespace.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` for an unknown job.
    pub async fn allow_job(&self, action: Action, job: JobId) -> Result<String, BrokerError> {
        let keeper = self.broker.shared.jobs.as_ref();
        match keeper.and_then(|keeper| keeper.path(job)) {
            Some(path) => self.allow(action, &path).await,
            None => {
                self.allow(action, "").await?;
                self.broker.job_keeper()?;
                Err(self.broker.refuse(unknown_job(job), ""))
            }
        }
    }

    /// Makes a job. The right was checked before.
    pub(super) async fn create_job(
        &self,
        path: &str,
        mut draft: JobDraft,
    ) -> Result<Managed, BrokerError> {
        let refuse = |rejection| self.broker.refuse(rejection, path);
        let keeper = self.broker.job_keeper()?;
        let entity = self.entity(path, Action::Operate).await?;
        let limits = &self.broker.settings().limits;
        draft.check(entity.kind(), entity.sub_queue(), limits).map_err(refuse)?;
        if has_sessions(&entity).await? {
            refuse_to_send_sessions(&entity, &draft.deed)?;
            // Only the lock of a session can be broken, so each step leaves locked messages alone.
            draft.breaks_locks = false;
        }
        if matches!(draft.deed, Deed::Export(_)) {
            // It reads messages under any lock.
            draft.breaks_locks = false;
        }
        if draft.deed.sends() {
            self.allow_job_destination(&entity, &draft.deed).await?;
        }
        Ok(self.job(keeper.create(entity.path(), draft).await.map_err(refuse)?))
    }

    /// Checks that the destination of a job exists, and the right to send to it. Without a
    /// destination, each message of a main queue may go to any entity of the namespace.
    async fn allow_job_destination(&self, entity: &Entity, deed: &Deed) -> Result<(), BrokerError> {
        let suffix = entity.sub_queue().suffix();
        let to = match deed.destination() {
            Some(to) => to,
            None if entity.sub_queue() == SubQueue::Main => {
                self.allow(Action::Operate, "").await?;
                return Ok(());
            }
            // Each message returns to the entity itself.
            None => entity.path().strip_suffix(suffix).unwrap_or_else(|| entity.path()),
        };
        let refuse = |rejection| self.broker.refuse(rejection, to);
        let address = EntityAddress::parse(to).map_err(refuse)?;
        if address.sub_queue != SubQueue::Main || address.node != Node::Entity {
            let detail = format!(
                "{} is no queue, topic or subscription; a job sends messages only to these",
                Quoted(to)
            );
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        // Clients cannot send to a subscription.
        let purpose = match address.entity {
            EntityName::Subscription { .. } => Action::Operate,
            EntityName::Root(_) => Action::Send,
        };
        let destination = self.entity(to, purpose).await?;
        if entity.sub_queue() == SubQueue::Main && destination.id() == entity.id() {
            let detail = format!("the messages are in {} already", Quoted(to));
            return Err(refuse(Rejection::invalid_operation(detail)));
        }
        Ok(())
    }

    /// Changes the state of a job. The right was checked before.
    pub(super) async fn control_job(
        &self,
        path: &str,
        job: JobId,
        control: JobControl,
    ) -> Result<Managed, BrokerError> {
        let controlled = self.broker.job_keeper()?.control(job, control).await;
        Ok(self.job(controlled.map_err(|rejection| self.broker.refuse(rejection, path))?))
    }

    /// Refuses to forget a job whose next step can be a repetition.
    pub(super) fn refuse_to_forget(&self, path: &str, job: JobId) -> Result<(), BrokerError> {
        let keeper = self.broker.shared.jobs.as_ref();
        match keeper.and_then(|keeper| keeper.describe(job)) {
            Some(facts) if !facts.state.is_end() => {
                let detail = format!("job {job} of this broker has not ended; cancel it first");
                Err(self.broker.refuse(Rejection::invalid_operation(detail), path))
            }
            _ => Ok(()),
        }
    }

    /// Answers a question about jobs. The right was checked before.
    pub(super) async fn find_jobs(
        &self,
        query: JobQuery,
        readable: &ReadableKeys,
    ) -> Result<Found, BrokerError> {
        let keeper = match (&self.broker.shared.jobs, &query) {
            (None, JobQuery::List { .. }) => {
                return Ok(Found::Jobs(JobPage { jobs: Vec::new(), total: 0, next: None }));
            }
            _ => self.broker.job_keeper()?,
        };
        let refuse = |rejection| self.broker.refuse(rejection, "");
        Ok(match query {
            JobQuery::List { after, count_max } => {
                Found::Jobs(page(&**keeper, after, count_max, readable))
            }
            JobQuery::One(job) => {
                let facts = keeper.describe(job).ok_or_else(|| refuse(unknown_job(job)))?;
                Found::Job(Box::new(facts))
            }
            JobQuery::Samples(job) => {
                let facts = keeper.describe(job).ok_or_else(|| refuse(unknown_job(job)))?;
                Found::JobSamples(self.job_samples(&facts, keeper.entity(job)).await?)
            }
            JobQuery::Failures { job, skip, count_max } => {
                let failures = keeper.failures(job, skip, count_max).await;
                Found::JobFailures(failures.map_err(refuse)?)
            }
            JobQuery::Export { job, from, length } => {
                let path = keeper.path(job).ok_or_else(|| refuse(unknown_job(job)))?;
                // Another entity that got the path gives no right to the file (CON-13).
                let is_of = |entity: Entity| Some(entity.id()) == keeper.entity(job);
                if !self.broker.entity(&path).is_ok_and(is_of) {
                    self.allow(Action::Inspect, "").await?;
                }
                let audited = self.audit_question(&path, &Question::Jobs(query)).await?;
                let part = keeper.export(job, from, length.min(JOB_EXPORT_PART_BYTES_MAX)).await;
                let part = part.map_err(refuse);
                audited.end_with(end_of(&part)).await;
                Found::JobExport(part?)
            }
        })
    }

    fn job(&self, facts: JobFacts) -> Managed {
        let found = Found::Job(Box::new(facts));
        Managed::Findings(Box::new(Findings { at: self.broker.now(), found }))
    }
}

/// Whether an entity is a main queue with sessions.
async fn has_sessions(entity: &Entity) -> Result<bool, BrokerError> {
    if entity.sub_queue() != SubQueue::Main {
        return Ok(false);
    }
    Ok(match entity.as_broker().manage(Command::Describe).await? {
        Outcome::Described(queue) => queue.description.requires_session,
        Outcome::SubscriptionDescribed(described) => described.description.requires_session,
        _ => false,
    })
}

/// Refuses to send messages of a main queue with sessions, as each step would (CON-12).
fn refuse_to_send_sessions(entity: &Entity, deed: &Deed) -> Result<(), BrokerError> {
    if !deed.sends() {
        return Ok(());
    }
    let detail = "messages of sessions cannot be moved; receive and send them";
    Err(entity.refuse(Rejection::invalid_operation(detail)))
}

/// A page of the jobs that the reader may read.
fn page(
    keeper: &dyn JobKeeper,
    after: Option<JobId>,
    count_max: u32,
    readable: &ReadableKeys,
) -> JobPage {
    let key = |path: &str| match EntityAddress::parse(path) {
        Ok(address) => address.key(),
        Err(_) => PathKey::fold(path),
    };
    let mut jobs = keeper.list();
    jobs.retain(|(_, path)| readable.is_all() || readable.contains(&key(path)));
    let total = jobs.len() as u64;
    let place = after.and_then(|after| jobs.iter().position(|(id, _)| *id == after));
    let rest = jobs.get(place.map_or(0, |place| place + 1)..).unwrap_or_default();
    let shown = rest.get(..count_max as usize).unwrap_or(rest);
    let next = shown.last().filter(|_| shown.len() < rest.len()).map(|(id, _)| *id);
    let jobs = shown.iter().filter_map(|(id, _)| keeper.describe(*id)).collect();
    JobPage { jobs, total, next }
}
