//! Management of queues (files 03 and 17 of the specification). The modules `topics`, `policies`
//! and `declarations` manage the rest. [`Client::admin`](crate::Client::admin) returns an
//! [`Admin`].

mod declarations;
mod policies;
mod topics;

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::command::{Act, ActedMessage, Described, OperatorCommand};
use peeklock_core::condition::Condition;
use peeklock_core::description::{Cleared, EntityKind, QueueUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    ClientId, Findings, Found, JobControl, JobDraft, JobFacts, JobQuery, MuteChange, Question,
};
use peeklock_core::time::Timestamp;

use crate::port::{Managed, Management, Page, Patch, Port};

/// Creates, reads, changes and deletes queues, topics, subscriptions, rules and policies.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::description::QueueProperties;
/// # use peeklock::testing::TestBroker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = TestBroker::start().await?;
/// # let client = test.client();
/// let admin = client.admin();
/// let five = QueueProperties::new().with_max_delivery_count(5);
/// admin.create_queue_with("orders", five).await?;
/// let orders = admin.queue("orders").await?;
/// assert_eq!(orders.description.max_delivery_count, 5);
/// assert_eq!(orders.counts.active, 0);
/// admin.delete_queue("orders").await?;
/// assert!(!admin.queue_exists("orders").await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    port: Arc<dyn Port>,
}

impl Admin {
    pub(crate) const fn new(port: Arc<dyn Port>) -> Self {
        Self { port }
    }

    /// Creates a queue with all properties at their defaults (ENT-03).
    ///
    /// # Errors
    /// `EntityAlreadyExists`, `ArgumentError`, `ArgumentOutOfRange`, `QuotaExceeded`.
    pub async fn create_queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.create_queue_with(path, QueueUpdate::default()).await
    }

    /// Creates a queue with these properties.
    ///
    /// # Errors
    /// As for [`Admin::create_queue`]; `EntityNotFound` for an absent destination (FWD-02),
    /// `InvalidOperation` for an impossible one (FWD-03, FWD-04).
    pub async fn create_queue_with(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        self.queue_of(path, Management::CreateQueue(Box::new(properties))).await
    }

    /// Reads a queue's description, counts and instants (ENT-31, CNT-01).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue(&self, path: &str) -> Result<Described, BrokerError> {
        self.queue_of(path, Management::Queue).await
    }

    /// Returns whether a queue exists at a path.
    ///
    /// # Errors
    /// `ArgumentError` for an invalid path, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn queue_exists(&self, path: &str) -> Result<bool, BrokerError> {
        exists(self.queue(path).await)
    }

    /// Replaces the properties named in `properties`. An absent ForwardTo,
    /// ForwardDeadLetteredMessagesTo or UserMetadata is cleared, any other absent property keeps
    /// its value (ENT-17).
    ///
    /// # Errors
    /// `EntityNotFound`, `ArgumentError`, `ArgumentOutOfRange`.
    pub async fn update_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
    ) -> Result<Described, BrokerError> {
        self.set_queue(path, properties, REPLACE).await
    }

    /// As [`Admin::update_queue`], but only if the description was last updated at `read_at`.
    ///
    /// # Errors
    /// As for [`Admin::update_queue`], and `UpdateConflict`.
    pub async fn update_queue_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Result<Described, BrokerError> {
        self.set_queue(path, properties, replace_of(read_at)).await
    }

    /// Changes the properties named and keeps all others. `cleared` selects properties that lose
    /// their value.
    ///
    /// # Errors
    /// As for [`Admin::update_queue`].
    pub async fn change_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        cleared: Cleared,
    ) -> Result<Described, BrokerError> {
        self.set_queue(path, properties, Patch { cleared, expected_created_at: None }).await
    }

    /// Deletes a queue with everything in it (ENT-14).
    ///
    /// # Errors
    /// `EntityNotFound`, `InvalidOperation` for a sub-queue (DLQ-02).
    pub async fn delete_queue(&self, path: &str) -> Result<(), BrokerError> {
        self.delete(path, EntityKind::Queue).await
    }

    /// Returns the paths of queues in case-insensitive order, `top` paths after the first `skip`
    /// (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queue_paths(&self, skip: usize, top: usize) -> Result<Vec<Arc<str>>, BrokerError> {
        self.paths("", EntityKind::Queue, skip, top).await
    }

    /// Returns queues in case-insensitive order of their paths, with counts and instants, after the
    /// first `skip`. The broker's limit bounds their number (ENT-30).
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn queues(&self, skip: usize) -> Result<Vec<Described>, BrokerError> {
        match self.ask("", Management::Queues(Page { skip, top: None })).await? {
            Managed::Queues(queues) => Ok(queues),
            other => Err(self.unexpected("", &other)),
        }
    }

    /// Removes one deferred message, expired or not (DEL-09).
    ///
    /// # Errors
    /// `MessageNotFound`, `EntityNotFound`.
    pub async fn delete_deferred(
        &self,
        path: &str,
        sequence: SequenceNumber,
    ) -> Result<(), BrokerError> {
        self.ask(path, Management::DeleteDeferred(sequence)).await.map(drop)
    }

    /// Removes available messages of all unlocked sessions, lowest numbers first, and returns their
    /// number (DEL-07). Without a count, removes as many as the broker allows in one call.
    ///
    /// # Errors
    /// `InvalidOperation` on a queue without sessions; `ArgumentOutOfRange` over the limit of the tier
    /// (DEL-02).
    pub async fn delete_batch_unlocked(
        &self,
        path: &str,
        count_max: Option<u32>,
        enqueued_before: Option<Timestamp>,
    ) -> Result<u64, BrokerError> {
        let delete = Management::DeleteUnlocked { count_max, enqueued_before };
        match self.ask(path, delete).await? {
            Managed::Deleted(count) => Ok(count),
            other => Err(self.unexpected(path, &other)),
        }
    }

    /// Breaks locks of messages, regardless of their holders, and returns their number (CON-26).
    /// Each message is available at once, or deferred again; if `counts` is set, its delivery
    /// counts as failed. Messages without a lock are skipped.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for more than 500 messages; `InvalidOperation` on an entity with
    /// sessions.
    pub async fn break_locks(
        &self,
        path: &str,
        sequences: Vec<SequenceNumber>,
        counts: bool,
    ) -> Result<u64, BrokerError> {
        self.locks_broken(path, OperatorCommand::BreakLocks { sequences, counts }).await
    }

    /// Breaks the lock of a session, and returns whether a receiver held it (CON-26). Its messages
    /// are available at once; if `counts` is set, their deliveries count as failed.
    ///
    /// # Errors
    /// `InvalidOperation` on an entity without sessions.
    pub async fn break_session(
        &self,
        path: &str,
        session: &str,
        counts: bool,
    ) -> Result<bool, BrokerError> {
        let session = session.into();
        let broken = self.locks_broken(path, OperatorCommand::BreakSession { session, counts });
        Ok(broken.await? > 0)
    }

    async fn locks_broken(&self, path: &str, end: OperatorCommand) -> Result<u64, BrokerError> {
        match self.ask(path, Management::Operate(end)).await? {
            Managed::LocksBroken(count) => Ok(count),
            other => Err(self.unexpected(path, &other)),
        }
    }

    /// Acts on messages of an entity or sub-queue that are named by number, and returns the result
    /// for each, in the order of `act` (CON-12). All change together, or none. If `act` has
    /// a step of a job, a repetition changes nothing and has the same result (CON-15).
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
    /// use peeklock::command::{Act, ActResult, Deed};
    /// use peeklock::message::Message;
    /// # use peeklock::testing::TestBroker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let test = TestBroker::start().await?;
    /// # let client = test.client();
    /// # client.admin().create_queue("orders").await?;
    /// let poison = client.sender("orders")?.send(Message::new("not an order")).await?;
    /// let deed = Deed::DeadLetter { reason: Some("NotAnOrder".into()), description: None };
    /// let act = Act { step: None, sequences: vec![poison], deed, breaks_locks: false, kept: None };
    /// let acted = client.admin().act("orders", act).await?;
    /// assert_eq!(acted.first().map(|message| message.result), Some(ActResult::Done));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for no or more than 256 numbers; `ArgumentError` for a number that is
    /// given twice; `InvalidOperation` if the deed is not possible in the sub-queue, and for a step
    /// before the last one of its job; `QuotaExceeded` for too many jobs.
    pub async fn act(&self, path: &str, act: Act) -> Result<Vec<ActedMessage>, BrokerError> {
        let act = Management::Operate(OperatorCommand::Act(Box::new(act)));
        match self.ask(path, act).await? {
            Managed::Acted(messages) => Ok(messages),
            other => Err(self.unexpected(path, &other)),
        }
    }

    /// Forgets the receipt of a job that has ended, if the entity keeps one (CON-15).
    ///
    /// # Errors
    /// `EntityNotFound`.
    pub async fn forget_job(&self, path: &str, job: JobId) -> Result<(), BrokerError> {
        self.ask(path, Management::Operate(OperatorCommand::ForgetJob(job))).await.map(drop)
    }

    /// Sets or clears the state of a session that no receiver holds (CON-27).
    ///
    /// # Errors
    /// `SessionCannotBeLocked` if it is held; `MessageSizeExceeded`, `QuotaExceeded`;
    /// `InvalidOperation` on an entity without sessions.
    pub async fn set_session_state(
        &self,
        path: &str,
        session: &str,
        state: Option<Bytes>,
    ) -> Result<(), BrokerError> {
        let set = OperatorCommand::SetSessionState { session: session.into(), state };
        self.ask(path, Management::Operate(set)).await.map(drop)
    }

    /// Makes a job on messages of an entity or sub-queue (CON-12). It selects the messages first,
    /// and changes them when it is started with the digest of its preview (CON-14).
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; }
    /// use peeklock::command::Deed;
    /// use peeklock::error::BrokerError;
    /// use peeklock::inspect::{
    ///     HeadStates, JOB_RATE_DEFAULT, JobControl, JobDraft, JobFacts, JobSelection, Where,
    /// };
    /// use peeklock::{Admin, time::Timestamp};
    ///
    /// async fn delete_tests(admin: &Admin, now: Timestamp) -> Result<JobFacts, BrokerError> {
    ///     let conditions = Where::parse("subject=test", now).unwrap();
    ///     let states = HeadStates::ALL;
    ///     let draft = JobDraft {
    ///         selection: JobSelection::Matching { states, conditions, count_max: None },
    ///         deed: Deed::Delete,
    ///         breaks_locks: false,
    ///         rate: JOB_RATE_DEFAULT,
    ///         trial: None,
    ///     };
    ///     let job = admin.create_job("orders", draft).await?;
    ///     // Later, when the selection is complete:
    ///     let job = admin.job(job.id).await?;
    ///     let Some(preview) = &job.preview else { return Ok(job) };
    ///     println!("{} messages of {} bytes", preview.count, preview.bytes);
    ///     admin.control_job(job.id, JobControl::Start(preview.digest)).await
    /// }
    /// ```
    ///
    /// # Errors
    /// `EntityNotFound`; `ArgumentOutOfRange` for a number out of its bounds; `InvalidOperation`
    /// for a deed that is not possible in the sub-queue; `QuotaExceeded` for too many jobs.
    pub async fn create_job(&self, path: &str, draft: JobDraft) -> Result<JobFacts, BrokerError> {
        self.job_of(path, Management::CreateJob(Box::new(draft))).await
    }

    /// Starts, pauses, resumes, cancels or undoes a job (CON-19). The change is durable.
    ///
    /// # Errors
    /// `EntityNotFound` for an unknown job; `InvalidOperation` in another state; `UpdateConflict`
    /// for another digest, and for a start too late.
    pub async fn control_job(
        &self,
        job: JobId,
        control: JobControl,
    ) -> Result<JobFacts, BrokerError> {
        self.job_of("", Management::ControlJob(job, control)).await
    }

    /// Returns a job with its progress. [`Question::Jobs`] also lists jobs, and their failures.
    ///
    /// # Errors
    /// `EntityNotFound` for an unknown job.
    pub async fn job(&self, job: JobId) -> Result<JobFacts, BrokerError> {
        let question = Question::Jobs(JobQuery::One(job));
        self.job_of("", Management::Inspect(Box::new(question))).await
    }

    async fn job_of(&self, path: &str, request: Management) -> Result<JobFacts, BrokerError> {
        let managed = self.ask(path, request).await?;
        match &managed {
            Managed::Findings(findings) if let Found::Job(job) = &findings.found => {
                Ok((**job).clone())
            }
            other => Err(self.unexpected(path, other)),
        }
    }

    /// Closes the connection of a client. The messages in its hands are available at once, and
    /// their deliveries do not count (CON-24).
    ///
    /// # Errors
    /// `EntityNotFound` if it is not connected; `InvalidOperation` if it has no connection.
    pub async fn close_client(&self, client: ClientId) -> Result<(), BrokerError> {
        self.ask("", Management::CloseClient(client)).await.map(drop)
    }

    /// Mutes a finding of the checks about an entity, or without a path about the broker, or ends
    /// this (CON-39). The change is durable. [`Question::Checks`] lists findings.
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; }
    /// use peeklock::Admin;
    /// use peeklock::error::BrokerError;
    /// use peeklock::inspect::{CheckKind, MuteChange};
    ///
    /// async fn mute_known(admin: &Admin) -> Result<(), BrokerError> {
    ///     let (kind, reason) = (CheckKind::DeadLettersUnread, "known until Friday".into());
    ///     admin.mute_finding("orders", MuteChange::Mute { kind, reason }).await
    /// }
    /// ```
    ///
    /// # Errors
    /// `EntityNotFound`; `ArgumentOutOfRange` or `ArgumentError` for a reason that is not one line
    /// of 1 to 256 characters; `QuotaExceeded` for too many muted findings; `InvalidOperation` if
    /// the broker makes no checks.
    pub async fn mute_finding(&self, path: &str, change: MuteChange) -> Result<(), BrokerError> {
        self.ask(path, Management::Mute(change)).await.map(drop)
    }

    /// Answers a question about an entity or sub-queue, or without a path about the namespace.
    /// Nothing changes: no lock, count or order, and not the time of the last access (CON-01).
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
    /// use peeklock::inspect::{Found, HeadQuery, Question};
    /// use peeklock::message::Message;
    /// # use peeklock::testing::TestBroker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let test = TestBroker::start().await?;
    /// # let client = test.client();
    /// let admin = client.admin();
    /// admin.create_queue("orders").await?;
    /// client.sender("orders")?.send(Message::new("two coffees")).await?;
    /// let findings = admin.inspect("orders", Question::Heads(HeadQuery::default())).await?;
    /// let Found::Heads(page) = findings.found else { panic!("heads were asked for") };
    /// assert_eq!(page.heads[0].content.as_ref().map(|it| it.body_bytes), Some(11));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unauthorized`, `EntityNotFound`; `MessageNotFound` for a body; `InvalidOperation` for
    /// something that the kind of entity does not have; `ServerBusy` if many lists are made at
    /// once, or too many taps are open.
    pub async fn inspect(&self, path: &str, question: Question) -> Result<Findings, BrokerError> {
        match self.ask(path, Management::Inspect(Box::new(question))).await? {
            Managed::Findings(findings) => Ok(*findings),
            other => Err(self.unexpected(path, &other)),
        }
    }

    async fn set_queue(
        &self,
        path: &str,
        properties: QueueUpdate,
        patch: Patch,
    ) -> Result<Described, BrokerError> {
        self.queue_of(path, Management::UpdateQueue(Box::new(properties), patch)).await
    }

    async fn queue_of(&self, path: &str, request: Management) -> Result<Described, BrokerError> {
        match self.ask(path, request).await? {
            Managed::Queue(queue) => Ok(*queue),
            other => Err(self.unexpected(path, &other)),
        }
    }

    async fn delete(&self, path: &str, kind: EntityKind) -> Result<(), BrokerError> {
        self.ask(path, Management::Delete(kind)).await.map(drop)
    }

    async fn paths(
        &self,
        topic: &str,
        kind: EntityKind,
        skip: usize,
        top: usize,
    ) -> Result<Vec<Arc<str>>, BrokerError> {
        let page = Page { skip, top: Some(top) };
        match self.ask(topic, Management::Paths(kind, page)).await? {
            Managed::Paths(paths) => Ok(paths),
            other => Err(self.unexpected(topic, &other)),
        }
    }

    async fn ask(&self, path: &str, request: Management) -> Result<Managed, BrokerError> {
        self.port.manage(path, request).await
    }

    fn unexpected(&self, path: &str, answer: &Managed) -> BrokerError {
        self.port.unexpected(path, answer)
    }
}

/// Patch of an update that clears absent properties.
const REPLACE: Patch = Patch { cleared: Cleared::ALL, expected_created_at: None };

/// Patch of an update that clears absent properties, if the description was last updated at
/// `read_at`.
const fn replace_of(read_at: Timestamp) -> Patch {
    Patch { cleared: Cleared::ALL, expected_created_at: Some(read_at) }
}

/// Converts the result of a read to a statement about existence.
fn exists<T>(described: Result<T, BrokerError>) -> Result<bool, BrokerError> {
    match described {
        Ok(_) => Ok(true),
        Err(error) if error.condition() == Condition::EntityNotFound => Ok(false),
        Err(error) => Err(error),
    }
}
