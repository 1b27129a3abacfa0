//! Samples of the preview of a job: its first messages as the deed would store them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_core::command::{ActResult, BodyEdit, Command, Deed, Edit, MessageFacts, NewInstant};
use peeklock_core::description::{EntityKind, QueueProperties};
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{
    Found, HeadFacts, HeadState, Holder, JobQuery, JobSample, JobState, Question,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Message, Overlay, PropertyChange, SettableProperty, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_operations::Operations;
use world::{World, draft, listed, matching};

async fn start() -> World {
    World::start(Arc::new(Operations::in_memory())).await
}

fn dead_letter() -> Deed {
    Deed::DeadLetter { reason: Some("Test".into()), description: Some("by hand".into()) }
}

impl World {
    async fn samples(&self, job: JobId) -> Vec<JobSample> {
        let question = Question::Jobs(JobQuery::Samples(job));
        let asked = Management::Inspect(Box::new(question));
        let Managed::Findings(findings) = self.access.manage("", asked).await.unwrap() else {
            panic!()
        };
        let Found::JobSamples(samples) = findings.found else { panic!() };
        samples
    }

    /// Samples of a job on all messages of a path.
    async fn samples_of(&self, path: &str, deed: Deed) -> Vec<JobSample> {
        let job = self.create(path, draft(matching(""), deed)).await;
        self.reaches(job.id, JobState::Ready).await;
        self.samples(job.id).await
    }

    async fn send_one(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.call(path, Command::Send { message }).await;
    }

    async fn run_all(&self, path: &str, deed: Deed) {
        let job = self.create(path, draft(matching(""), deed)).await;
        let job = self.reaches(job.id, JobState::Ready).await;
        self.run(&job).await;
        self.reaches(job.id, JobState::Done).await;
    }
}

fn message_of(sample: &JobSample) -> &Message {
    &sample.head.content.as_ref().unwrap().message
}

/// CON-14: a preview has at most 20 samples, and a message that is gone has none. Nothing changes.
#[tokio::test]
async fn job_has_twenty_samples_of_messages_that_are_there() {
    let world = start().await;
    world.send("q", 23).await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    world.reaches(job.id, JobState::Ready).await;
    let numbers = |samples: &[JobSample]| -> Vec<u64> {
        samples.iter().map(|sample| sample.head.facts.message.sequence.0).collect()
    };
    assert_eq!(numbers(&world.samples(job.id).await), (1..=20).collect::<Vec<_>>());
    let first = world.create("q", draft(listed([1, 2]), Deed::Delete)).await;
    let first = world.reaches(first.id, JobState::Ready).await;
    world.run(&first).await;
    world.reaches(first.id, JobState::Done).await;
    let samples = world.samples(job.id).await;
    assert_eq!(numbers(&samples), (3..=20).collect::<Vec<_>>());
    assert_eq!(message_of(&samples[0]).body.as_bytes(), "body");
    assert_eq!(world.numbers("q").await.len(), 21);
    world.stop().await;
}

/// CON-14, CON-16: samples show a deed as it is stored afterwards: an edited resubmit without the
/// facts of the dead-lettering, and a move with them. A long body has its first 256 bytes.
#[tokio::test]
async fn samples_are_as_the_messages_that_the_job_stores() {
    let world = start().await;
    let long = "x".repeat(300);
    let message = Message::new(long.clone()).with_message_id("a").with_subject("old");
    let message = message.with_application_property("gone", 1);
    world.send_one("q", Message { time_to_live: Some(TimeSpan::from_minutes(9)), ..message }).await;
    world.run_all("q", dead_letter()).await;
    let (subject, seven) = (Value::from("new"), Value::I32(7));
    let changes = Overlay::of_changes([
        PropertyChange::Set("set", seven.borrow()),
        PropertyChange::Remove("gone"),
        PropertyChange::SetBroker(SettableProperty::Subject, subject.borrow()),
    ]);
    let edit = Some(Arc::new(Edit { changes, new_id: false, body: None }));
    let dead = "q/$deadletterqueue";
    for deed in [
        Deed::Resubmit { to: None, edit: edit.clone() },
        Deed::Move { to: "q".into(), edit: edit.clone() },
    ] {
        let is_move = matches!(deed, Deed::Move { .. });
        let sample = world.samples_of(dead, deed.clone()).await.remove(0);
        assert_eq!(sample.refused, None);
        world.run_all(dead, deed).await;
        let stored = world.heads("q").await.remove(0);
        let (expected, facts) = (stored.content.as_ref().unwrap(), &stored.facts);
        let content = sample.head.content.as_ref().unwrap();
        assert_eq!(content, expected);
        assert_eq!((content.body_bytes, content.message.body.as_bytes().len()), (300, 256));
        assert_eq!(content.dead_letter_source.as_deref(), is_move.then_some("q"));
        let reason = content
            .message
            .application_properties
            .iter()
            .any(|(name, _)| name == "DeadLetterReason");
        assert_eq!(reason, is_move);
        let rest = |facts: &HeadFacts<MessageFacts, Holder>| {
            facts.expires_at.since(facts.message.enqueued_at)
        };
        assert_eq!(rest(&sample.head.facts), rest(facts));
        assert_eq!((sample.head.facts.state, facts.state), (HeadState::Active, HeadState::Active));
        world.run_all("q", dead_letter()).await;
    }
    // A new id is chosen when the message is sent.
    let edit = Some(Arc::new(Edit { changes: Overlay::of_changes([]), new_id: true, body: None }));
    let sample = world.samples_of(dead, Deed::Resubmit { to: None, edit }).await.remove(0);
    assert_eq!(message_of(&sample).message_id, None);
    world.stop().await;
}

/// CON-13, CON-14: another entity that got the path has no samples of the job.
#[tokio::test]
async fn samples_are_of_the_entity_of_the_job_only() {
    let world = start().await;
    world.send("q", 2).await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    world.reaches(job.id, JobState::Ready).await;
    assert_eq!(world.samples(job.id).await.len(), 2);
    let delete = Management::Delete(EntityKind::Queue);
    world.access.manage("q", delete).await.unwrap();
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    world.send("q", 2).await;
    assert_eq!(world.samples(job.id).await, []);
    world.stop().await;
}

/// CON-14: the size of a sample counts its new body.
#[tokio::test]
async fn sample_has_the_size_of_its_new_body() {
    let world = start().await;
    world.broker.create_queue("to", QueueProperties::new()).await.unwrap();
    for (old, new) in [(10, 300), (300, 10), (0, 0)] {
        world.send_one("q", Message::new("o".repeat(old)).with_message_id("m")).await;
        let body = Some(BodyEdit::Whole("n".repeat(new).into()));
        let edit = Edit { changes: Overlay::of_changes([]), new_id: false, body };
        let deed = Deed::Move { to: "to".into(), edit: Some(Arc::new(edit)) };
        let sample = world.samples_of("q", deed.clone()).await.remove(0);
        world.run_all("q", deed).await;
        let stored = world.heads("to").await.pop().unwrap();
        assert_eq!(sample.head.facts.message.size, stored.facts.message.size, "{old} to {new}");
        assert_eq!(sample.head.content, stored.content);
    }
    world.stop().await;
}

/// CON-14: samples of deeds that leave a message in its entity, and the reason for one that stays.
#[tokio::test]
async fn samples_show_the_state_after_the_deed() {
    let world = start().await;
    world.send("q", 2).await;
    world.defer("q", 1).await;
    let samples = world.samples_of("q", Deed::Undefer).await;
    assert_eq!(samples[0].head.facts.state, HeadState::Active);
    assert_eq!((samples[0].refused, samples[1].refused), (None, Some(ActResult::WrongState)));
    let samples = world.samples_of("q", dead_letter()).await;
    let properties = &message_of(&samples[0]).application_properties;
    assert_eq!(properties[0], ("DeadLetterReason".to_owned(), Value::from("Test")));
    assert_eq!(samples[0].head.facts.expires_at, Timestamp::NEVER);

    world.run_all("q", Deed::Delete).await;
    world.schedule("q", 1).await;
    let later = Deed::Reschedule(NewInstant::Later(TimeSpan::from_minutes(5)));
    let sample = world.samples_of("q", later).await.remove(0);
    assert_eq!(sample.head.facts.state, HeadState::Scheduled);
    assert_eq!(sample.head.facts.message.enqueued_at, world.began.plus(TimeSpan::from_minutes(65)));
    let sample = world.samples_of("q", Deed::Reschedule(NewInstant::Now)).await.remove(0);
    assert_eq!(sample.head.facts.state, HeadState::Active);
    world.stop().await;
}
