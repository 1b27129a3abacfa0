//! A broker with jobs whose time the test moves.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::{ActResult, Command, Deed, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::JobRunner;
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    Found, Head, HeadQuery, HeadState, HeadStates, JOB_RATE_DEFAULT, JobControl, JobDraft,
    JobFacts, JobQuery, JobSelection, JobState, Question, Where,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::store::{MemoryStore, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker, BrokerBuilder};

pub struct World {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    pub access: Access,
    pub began: Timestamp,
}

fn begin() -> Timestamp {
    Timestamp::parse("2026-05-01T12:00:00Z").unwrap()
}

pub fn matching(line: &str) -> JobSelection {
    let conditions = Where::parse(line, begin()).unwrap();
    JobSelection::Matching { states: HeadStates::ALL, conditions, count_max: None }
}

pub fn listed(numbers: impl IntoIterator<Item = u64>) -> JobSelection {
    JobSelection::Numbers(numbers.into_iter().map(SequenceNumber).collect())
}

pub fn draft(selection: JobSelection, deed: Deed) -> JobDraft {
    JobDraft { selection, deed, breaks_locks: false, rate: JOB_RATE_DEFAULT, trial: None }
}

impl World {
    pub async fn start(jobs: Arc<dyn JobRunner>) -> Self {
        Self::start_with(jobs, |builder| builder).await
    }

    /// Starts a broker in memory with the queue `q`.
    pub async fn start_with(
        jobs: Arc<dyn JobRunner>,
        set: impl FnOnce(BrokerBuilder) -> BrokerBuilder,
    ) -> Self {
        let store = Arc::new(MemoryStore::new(1, u64::MAX));
        let world = Self::start_on(store, begin(), |builder| set(builder).jobs(jobs)).await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        world
    }

    pub async fn start_on(
        store: Arc<dyn Store>,
        now: Timestamp,
        set: impl FnOnce(BrokerBuilder) -> BrokerBuilder,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(now));
        let builder = Broker::builder().store(store).clock(clock.clone()).arbiters(1);
        let broker = set(builder).start().await.unwrap();
        let access = broker.full_access();
        Self { broker, clock, access, began: begin() }
    }

    pub async fn stop(self) {
        let stop = self.broker.stop(Duration::ZERO);
        self.clock.while_short_waits_pass(stop).await.unwrap();
    }

    pub async fn call(&self, path: &str, command: Command) -> Outcome {
        self.broker.entity(path).unwrap().call(command).await.unwrap()
    }

    /// Sends messages; the subject of every second one is `odd`, of the others `even`.
    pub async fn send(&self, path: &str, count: usize) {
        for number in 0..count {
            let subject = if number % 2 == 0 { "odd" } else { "even" };
            let message = self.broker.inbound(Message::new("body").with_subject(subject));
            self.call(path, Command::Send { message }).await;
        }
    }

    /// Schedules messages for an hour after the begin.
    pub async fn schedule(&self, path: &str, count: usize) {
        let at = begin().plus(TimeSpan::from_minutes(60));
        for _ in 0..count {
            let message = Message::new("late").with_scheduled_enqueue_time(at);
            let message = self.broker.inbound(message);
            self.call(path, Command::Send { message }).await;
        }
    }

    /// Receives messages under lock.
    pub async fn lock(&self, path: &str, count_max: u32) -> Vec<peeklock_core::ids::LockToken> {
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let Outcome::Received(messages) = self.call(path, receive).await else { panic!() };
        let token = |message: &peeklock_core::command::ReceivedMessage| message.facts.lock.unwrap();
        messages.iter().map(|message| token(message).token).collect()
    }

    pub async fn defer(&self, path: &str, count: u32) {
        for token in self.lock(path, count).await {
            let settlement = Settlement::Defer { properties: None };
            self.call(path, Command::Settle { token, settlement }).await;
        }
    }

    pub async fn heads(&self, path: &str) -> Vec<Head> {
        let query = HeadQuery { count_max: 500, ..HeadQuery::default() };
        let question = Management::Inspect(Box::new(Question::Heads(query)));
        match self.access.manage(path, question).await.unwrap() {
            Managed::Findings(findings) => match findings.found {
                Found::Heads(page) => page.heads,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    pub async fn numbers(&self, path: &str) -> Vec<u64> {
        let heads = self.heads(path).await;
        heads.iter().map(|head| head.facts.message.sequence.0).collect()
    }

    /// States of messages, with their instants of enqueueing.
    pub async fn states(&self, path: &str) -> Vec<(HeadState, Timestamp)> {
        let heads = self.heads(path).await;
        heads.iter().map(|head| (head.facts.state, head.facts.message.enqueued_at)).collect()
    }

    async fn job_of(&self, path: &str, request: Management) -> JobFacts {
        let asked = self.access.manage(path, request);
        match self.clock.while_short_waits_pass(asked).await.unwrap() {
            Managed::Findings(findings) => match findings.found {
                Found::Job(job) => *job,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    pub async fn create(&self, path: &str, draft: JobDraft) -> JobFacts {
        self.job_of(path, Management::CreateJob(Box::new(draft))).await
    }

    pub async fn control(&self, job: JobId, control: JobControl) -> JobFacts {
        self.job_of("", Management::ControlJob(job, control)).await
    }

    /// Starts a job whose preview is ready.
    pub async fn run(&self, job: &JobFacts) -> JobFacts {
        let digest = job.preview.as_ref().unwrap().digest;
        self.control(job.id, JobControl::Start(digest)).await
    }

    pub async fn refused(&self, job: JobId, control: JobControl) -> Condition {
        let request = Management::ControlJob(job, control);
        self.access.manage("", request).await.unwrap_err().condition()
    }

    pub async fn job(&self, job: JobId) -> JobFacts {
        let question = Question::Jobs(JobQuery::One(job));
        self.job_of("", Management::Inspect(Box::new(question))).await
    }

    /// Waits until a job is in a state.
    pub async fn reaches(&self, job: JobId, state: JobState) -> JobFacts {
        self.until(job, |facts| facts.state == state).await
    }

    /// Waits until a job has tried some messages.
    pub async fn tries(&self, job: JobId, count: u64) -> JobFacts {
        self.until(job, |facts| facts.progress.tried >= count).await
    }

    pub async fn until(&self, job: JobId, holds: impl Fn(&JobFacts) -> bool) -> JobFacts {
        loop {
            let facts = self.job(job).await;
            if holds(&facts) {
                return facts;
            }
            self.pass().await;
        }
    }

    /// Lets a short time pass, if a task waits for it.
    pub async fn pass(&self) {
        self.clock.while_short_waits_pass(tokio::task::yield_now()).await;
    }

    pub async fn failures(
        &self,
        job: JobId,
        skip: u32,
        count_max: u32,
    ) -> (Vec<(u64, ActResult)>, u64, Option<u32>) {
        let query = JobQuery::Failures { job, skip, count_max };
        let question = Management::Inspect(Box::new(Question::Jobs(query)));
        match self.access.manage("", question).await.unwrap() {
            Managed::Findings(findings) => match findings.found {
                Found::JobFailures(page) => {
                    let acted = page.failures.iter();
                    let acted = acted.map(|acted| (acted.sequence.0, acted.result));
                    (acted.collect(), page.total, page.next)
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}
