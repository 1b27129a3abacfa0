//! Undo of jobs: messages are put back as they were.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_core::command::{
    Act, ActResult, Command, Deed, JobStep, OperatorCommand, PutBack, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{Head, JobControl, JobDraft, JobFacts, JobState};
use peeklock_core::management::Management;
use peeklock_core::message::{Message, Value};
use peeklock_core::time::TimeSpan;
use peeklock_operations::Operations;
use world::{World, draft, listed, matching};

async fn start() -> World {
    World::start(Arc::new(Operations::in_memory())).await
}

fn dead_letter() -> Deed {
    Deed::DeadLetter { reason: Some("Test".into()), description: Some("by hand".into()) }
}

const DEAD: &str = "q/$deadletterqueue";

impl World {
    async fn run_all(&self, path: &str, deed: Deed) -> JobFacts {
        let job = self.create(path, draft(matching(""), deed)).await;
        self.end(job).await
    }

    async fn end(&self, job: JobFacts) -> JobFacts {
        let job = self.reaches(job.id, JobState::Ready).await;
        assert!(job.preview.as_ref().unwrap().can_be_undone);
        self.run(&job).await;
        self.ended(job.id).await
    }

    /// Waits until an ended job can be undone.
    async fn ended(&self, job: JobId) -> JobFacts {
        self.until(job, |facts| facts.state.is_end() && facts.undo_until.is_some()).await
    }

    async fn undo(&self, job: JobId) -> JobFacts {
        let undo = self.control(job, JobControl::Undo).await;
        let undo = self.reaches(undo.id, JobState::Done).await;
        // Messages that are back are no longer kept.
        if undo.progress.failed == 0 {
            self.until(job, |facts| facts.undo_until.is_none()).await;
        }
        undo
    }

    /// Sends messages of each kind: active, delivered once, deferred with a property, scheduled,
    /// and one with a time to live.
    async fn send_each(&self, path: &str) {
        self.send(path, 3).await;
        let tokens = self.lock(path, 3).await;
        let properties = vec![("seen".to_owned(), Value::I32(1))];
        let abandon = Settlement::abandon(&properties, None).unwrap();
        let defer = Settlement::defer(&properties).unwrap();
        for (token, settlement) in tokens.into_iter().zip([abandon.clone(), defer, abandon]) {
            self.call(path, Command::Settle { token, settlement }).await;
        }
        self.schedule(path, 1).await;
        let lasting = Message { time_to_live: Some(TimeSpan::from_days(1)), ..Message::new("t") };
        let message = self.broker.inbound(lasting.with_message_id("own"));
        self.call(path, Command::Send { message }).await;
    }
}

/// The facts of messages that an undo restores.
fn facts(heads: &[Head]) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let facts = heads.iter().map(|head| {
        let message = &head.facts.message;
        let content = head.content.clone();
        (head.facts.state, head.facts.expires_at, head.facts.header_size, *message, content)
    });
    facts.collect()
}

/// CON-20: deleted messages are put back with body, properties, number, instant and delivery count;
/// an undo happens once.
#[tokio::test]
async fn deleted_messages_are_put_back_as_they_were() {
    let world = start().await;
    world.send_each("q").await;
    let before = world.heads("q").await;
    assert_eq!(before.len(), 5);
    let done = world.run_all("q", Deed::Delete).await;
    assert_eq!((done.progress.done, done.progress.failed), (5, 0));
    assert!(world.numbers("q").await.is_empty());
    // Messages that come later get later numbers.
    world.send("q", 1).await;
    let undo = world.undo(done.id).await;
    assert_eq!((undo.progress.done, undo.progress.failed), (5, 0));
    let after = world.heads("q").await;
    assert_eq!(facts(&after[..5]), facts(&before));
    assert_eq!(after[5].facts.message.sequence, SequenceNumber(6));
    // A repetition returns the same job.
    assert_eq!(world.control(done.id, JobControl::Undo).await.id, undo.id);
    assert_eq!(world.refused(undo.id, JobControl::Undo).await, Condition::InvalidOperation);
    // They are delivered in the order of their numbers.
    assert_eq!(world.lock("q", 9).await.len(), 4);
    world.stop().await;
}

/// CON-20: dead letters return to their queue, and undeferred messages are deferred again. One that
/// a receiver got meanwhile stays.
#[tokio::test]
async fn moved_messages_return_unless_they_were_delivered() {
    let world = start().await;
    world.send_each("q").await;
    world.run_all("q", Deed::Delete).await;
    world.send_each("q").await;
    let before = world.heads("q").await;
    let dead = world.create("q", draft(listed([6, 7, 8, 10]), dead_letter())).await;
    let dead = world.end(dead).await;
    assert_eq!(world.numbers(DEAD).await, [6, 7, 8, 10]);
    // One is completed, one is held.
    let token = world.lock(DEAD, 2).await[0];
    world.call(DEAD, Command::Settle { token, settlement: Settlement::Complete }).await;
    let undo = world.undo(dead.id).await;
    assert_eq!((undo.progress.done, undo.progress.failed), (2, 2));
    let left = [(6, ActResult::NotFound), (7, ActResult::Locked)];
    assert_eq!(world.failures(undo.id, 0, 9).await.0, left);
    assert_eq!(world.numbers(DEAD).await, [7]);
    let after = world.heads("q").await;
    assert_eq!(facts(&after), facts(&before[2..]));

    world.defer("q", 2).await;
    let before = world.heads("q").await;
    let undeferred = world.run_all("q", Deed::Undefer).await;
    assert_eq!((undeferred.progress.done, undeferred.progress.failed), (2, 1));
    // A delivery counts for the first.
    let token = world.lock("q", 1).await[0];
    let settlement = Settlement::abandon(&[], None).unwrap();
    world.call("q", Command::Settle { token, settlement }).await;
    let undo = world.undo(undeferred.id).await;
    assert_eq!((undo.progress.done, undo.progress.failed), (1, 1));
    assert_eq!(world.failures(undo.id, 0, 9).await.0, [(8, ActResult::WrongState)]);
    assert_eq!(facts(&world.heads("q").await[1..]), facts(&before[1..]));
    world.stop().await;
}

/// CON-20: messages that could not return are kept, and another undo returns them when they can.
#[tokio::test]
async fn messages_that_could_not_return_are_kept() {
    let world = start().await;
    world.send("q", 3).await;
    let before = world.heads("q").await;
    let dead = world.run_all("q", dead_letter()).await;
    let token = world.lock(DEAD, 1).await[0];
    let undo = world.undo(dead.id).await;
    assert_eq!(world.failures(undo.id, 0, 9).await.0, [(1, ActResult::Locked)]);
    assert!(world.job(dead.id).await.undo_until.is_some());
    // One that is back is completed, and does not return again.
    let back = world.lock("q", 1).await[0];
    world.call("q", Command::Settle { token: back, settlement: Settlement::Complete }).await;
    let settlement = Settlement::abandon(&[], None).unwrap();
    world.call(DEAD, Command::Settle { token, settlement }).await;
    let again = world.undo(dead.id).await;
    assert_ne!(again.id, undo.id);
    assert_eq!((again.progress.done, again.progress.failed), (1, 0));
    let after = world.heads("q").await;
    assert_eq!(facts(&after[..1]), facts(&before[..1]));
    assert_eq!((after.len(), after[1].facts.message.sequence), (2, SequenceNumber(3)));
    world.stop().await;
}

/// CON-20: messages that the job has left alone are not put back, also if they are gone since.
#[tokio::test]
async fn messages_that_stayed_are_not_put_back() {
    let world = start().await;
    world.send("q", 4).await;
    let tokens = world.lock("q", 2).await;
    let done = world.run_all("q", Deed::Delete).await;
    assert_eq!((done.progress.done, done.progress.failed), (2, 2));
    for token in tokens {
        world.call("q", Command::Settle { token, settlement: Settlement::Complete }).await;
    }
    let undo = world.undo(done.id).await;
    assert_eq!((undo.progress.done, undo.progress.failed), (2, 0));
    assert_eq!(world.numbers("q").await, [3, 4]);
    world.stop().await;
}

/// CON-20: a job that is cancelled is undone up to its last step; messages of sessions return to
/// theirs.
#[tokio::test]
async fn cancelled_job_is_undone_up_to_its_last_step() {
    let world = start().await;
    world.broker.create_queue("s", QueueProperties::new().with_sessions()).await.unwrap();
    for place in 0..8 {
        let message = Message::new(format!("{place}")).with_session_id(format!("s{}", place % 2));
        let message = world.broker.inbound(message);
        world.call("s", Command::Send { message }).await;
    }
    let before = world.heads("s").await;
    let trial = JobDraft { trial: Some(5), ..draft(matching(""), Deed::Delete) };
    let job = world.create("s", trial).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Paused).await;
    assert_eq!(world.refused(job.id, JobControl::Undo).await, Condition::InvalidOperation);
    world.control(job.id, JobControl::Cancel).await;
    world.ended(job.id).await;
    assert_eq!(world.numbers("s").await, [6, 7, 8]);
    let undo = world.undo(job.id).await;
    assert_eq!((undo.progress.done, undo.progress.failed), (5, 0));
    assert_eq!(facts(&world.heads("s").await), facts(&before));
    world.stop().await;
}

/// CON-20: a job with a message over 1 MiB, on a topic, or of another kind cannot be undone, and
/// the preview shows that. The messages are kept for a day.
#[tokio::test]
async fn preview_shows_whether_a_job_can_be_undone() {
    let world = start().await;
    let large = QueueProperties::new().with_max_message_size_in_kilobytes(2_048);
    world.broker.create_queue("large", large).await.unwrap();
    world
        .broker
        .create_topic("t", peeklock_core::description::TopicProperties::default())
        .await
        .unwrap();
    let message = world.broker.inbound(Message::new("x".repeat(1_100_000)));
    world.call("large", Command::Send { message }).await;
    world.schedule("t", 1).await;
    // Its dead letters leave.
    let leaves = QueueProperties::new().with_forward_dead_letters_to("large");
    world.broker.create_queue("gone", leaves).await.unwrap();
    world.send("gone", 1).await;
    world.send("q", 1).await;
    for (path, deed, can_be) in [
        ("large", dead_letter(), true),
        ("large", Deed::Delete, false),
        ("t", Deed::Delete, false),
        ("q", Deed::Delete, true),
        ("gone", Deed::Delete, true),
        ("gone", dead_letter(), false),
        ("q", Deed::Move { to: "large".into(), edit: None }, false),
    ] {
        let job = world.create(path, draft(matching(""), deed)).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        assert_eq!(job.preview.as_ref().unwrap().can_be_undone, can_be, "{path}");
        if !can_be {
            world.run(&job).await;
            let done = world.reaches(job.id, JobState::Done).await;
            assert_eq!(done.undo_until, None);
            let refused = world.refused(job.id, JobControl::Undo).await;
            assert_eq!(refused, Condition::InvalidOperation, "{path}");
        }
    }
    world.send("q", 1).await;
    let done = world.run_all("q", Deed::Delete).await;
    let until = done.undo_until.unwrap();
    assert_eq!(until, done.ended_at.unwrap().plus(TimeSpan::from_days(1)));
    world.clock.advance(TimeSpan::from_days(1));
    world.until(done.id, |facts| facts.undo_until.is_none()).await;
    assert_eq!(world.refused(done.id, JobControl::Undo).await, Condition::InvalidOperation);
    world.stop().await;
}

/// CON-20: all jobs together keep at most 64 MiB in memory. A job that ends without a change gives
/// its room back.
#[tokio::test]
async fn kept_messages_are_bounded() {
    let world = start().await;
    for _ in 0..70 {
        let message = world.broker.inbound(Message::new("x".repeat(250_000)));
        world.call("q", Command::Send { message }).await;
    }
    // 17.5 MB each.
    let mut ready = Vec::new();
    for can_be in [true, true, true, false] {
        let job = world.create("q", draft(matching(""), Deed::Delete)).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        assert_eq!(job.preview.unwrap().can_be_undone, can_be);
        ready.push(job.id);
    }
    world.control(ready[0], JobControl::Cancel).await;
    world.pass().await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    assert!(job.preview.unwrap().can_be_undone);
    world.stop().await;
}

/// CON-20: at most 256 jobs keep messages.
#[tokio::test]
async fn jobs_that_keep_messages_are_bounded() {
    let world = start().await;
    for _ in 0..256 {
        world.send("q", 1).await;
        world.run_all("q", Deed::Delete).await;
    }
    world.send("q", 1).await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    assert!(!job.preview.unwrap().can_be_undone);
    world.stop().await;
}

/// CON-20, CON-72: only a job puts messages back; no request names them.
#[tokio::test]
async fn only_a_job_puts_messages_back() {
    let world = start().await;
    let deed =
        || Deed::PutBack(Box::new(PutBack { undone: JobId(1), deed: None, originals: Vec::new() }));
    let made = Management::CreateJob(Box::new(draft(listed([1]), deed())));
    let refused = world.access.manage("q", made).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidOperation);
    let step = Some(JobStep { job: JobId(1), number: 1 });
    let sequences = vec![SequenceNumber(1)];
    let act = Act { step, sequences, deed: deed(), breaks_locks: false, kept: None };
    let operate = Management::Operate(OperatorCommand::Act(Box::new(act)));
    let refused = world.access.manage("q", operate).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidOperation);
    world.stop().await;
}
