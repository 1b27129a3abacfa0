//! Jobs that change the bodies of the messages that they send.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_core::command::{
    ActResult, BODY_EDIT_BYTES_MAX, BodyEdit, Command, Deed, Edit, PATCHED_BODY_BYTES_MAX,
    Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueProperties, SubscriptionProperties, TopicProperties};
use peeklock_core::inspect::{Found, JobFacts, JobQuery, JobState, Question};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Body, Message, Overlay};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_operations::Operations;
use world::{World, draft, listed, matching};

async fn start() -> World {
    let world = World::start(Arc::new(Operations::in_memory())).await;
    world.broker.create_queue("to", QueueProperties::new()).await.unwrap();
    world
}

fn whole(text: &str) -> BodyEdit {
    BodyEdit::Whole(text.to_owned().into())
}

fn patch(text: &str) -> BodyEdit {
    BodyEdit::MergePatch(text.into())
}

fn moved(to: &str, body: BodyEdit) -> Deed {
    let changes = Overlay::of_changes([]);
    let edit = Arc::new(Edit { changes, new_id: false, body: Some(body) });
    Deed::Move { to: to.into(), edit: Some(edit) }
}

impl World {
    async fn send_one(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.call(path, Command::Send { message }).await;
    }

    /// Runs a job on all messages of a path until it has ended.
    async fn run_all(&self, path: &str, deed: Deed) -> JobFacts {
        let job = self.create(path, draft(matching(""), deed)).await;
        let job = self.reaches(job.id, JobState::Ready).await;
        self.run(&job).await;
        self.reaches(job.id, JobState::Done).await
    }

    async fn messages(&self, path: &str) -> Vec<Message> {
        let heads = self.heads(path).await.into_iter();
        heads.map(|head| head.content.unwrap().message).collect()
    }

    async fn bodies(&self, path: &str) -> Vec<String> {
        let bodies = self.messages(path).await.into_iter().map(|message| message.body);
        bodies.map(|body| String::from_utf8(body.as_bytes().to_vec()).unwrap()).collect()
    }

    /// Bodies of the samples of a job, with the results to expect.
    async fn samples(&self, path: &str, deed: Deed) -> Vec<(String, Option<ActResult>)> {
        let job = self.create(path, draft(matching(""), deed)).await;
        self.reaches(job.id, JobState::Ready).await;
        let asked = Management::Inspect(Box::new(Question::Jobs(JobQuery::Samples(job.id))));
        let Managed::Findings(findings) = self.access.manage("", asked).await.unwrap() else {
            panic!()
        };
        let Found::JobSamples(samples) = findings.found else { panic!() };
        let text = |body: &Body| String::from_utf8_lossy(body.as_bytes()).into_owned();
        let body =
            samples.iter().map(|sample| text(&sample.head.content.as_ref().unwrap().message.body));
        body.zip(samples.iter().map(|sample| sample.refused)).collect()
    }
}

/// CON-16: a new body replaces a body of any kind; the content type and all properties stay.
#[tokio::test]
async fn whole_body_is_replaced_and_properties_stay() {
    let world = start().await;
    let message = Message::new("old").with_message_id("a").with_application_property("p", 7);
    let message = Message { content_type: Some("text/plain".to_owned()), ..message };
    // An AMQP value section with a string.
    let value = Body::Value(b"\x00\x53\x77\xa1\x03old".to_vec().into());
    for body in [message.body.clone(), value, Body::default()] {
        world.send_one("q", Message { body, ..message.clone() }).await;
    }
    assert_eq!(world.samples("q", moved("to", whole("new"))).await[1], ("new".to_owned(), None));
    let done = world.run_all("q", moved("to", whole("new"))).await;
    assert_eq!((done.progress.done, done.progress.failed), (3, 0));
    let expected = Message { body: Body::Data("new".into()), ..message };
    assert_eq!(world.messages("to").await, vec![expected; 3]);
    world.stop().await;
}

/// CON-14, CON-16, CON-17: a merge patch changes JSON; a body that is not JSON stays where it is
/// and is listed, also as a sample. Other numbers keep their digits.
#[tokio::test]
async fn merge_patch_changes_json_and_leaves_other_bodies() {
    let world = start().await;
    let number = "12345678901234567890.5";
    let value = Body::Value(b"\x00\x53\x77\xa1\x02{}".to_vec().into());
    let large = format!("[{}1]", "1,".repeat(PATCHED_BODY_BYTES_MAX as usize / 2));
    for body in
        [format!(r#"{{"n":{number},"old":1}}"#), "not JSON".to_owned(), large, "[]".to_owned()]
    {
        world.send_one("q", Message::new(body)).await;
    }
    world.send_one("q", Message { body: value, ..Message::default() }).await;
    let deed = || moved("to", patch(r#"{"old":null,"new":{"a":2}}"#));
    let changed = [format!(r#"{{"n":{number},"new":{{"a":2}}}}"#), r#"{"new":{"a":2}}"#.to_owned()];
    let samples = world.samples("q", deed()).await;
    let refused: Vec<_> = samples.iter().map(|(_, refused)| *refused).collect();
    let not_json = Some(ActResult::NotJson);
    assert_eq!(refused, [None, not_json, not_json, None, not_json]);
    assert_eq!([&samples[0].0, &samples[3].0], [&changed[0], &changed[1]]);
    let done = world.run_all("q", deed()).await;
    assert_eq!((done.progress.done, done.progress.failed), (2, 3));
    let left = [2, 3, 5].map(|number| (number, ActResult::NotJson));
    assert_eq!(world.failures(done.id, 0, 9).await.0, left);
    assert_eq!(world.bodies("to").await, changed);
    assert_eq!(world.numbers("q").await, [2, 3, 5]);
    assert_eq!(world.lock("q", 9).await.len(), 3, "receivers get them again");
    world.stop().await;
}

/// CON-16: a new body counts for the size of its message, and each subscription of a topic gets it.
#[tokio::test]
async fn new_body_is_counted_and_published() {
    let world = start().await;
    world.broker.create_topic("t", TopicProperties::default()).await.unwrap();
    for name in ["a", "b"] {
        let properties = SubscriptionProperties::default();
        world.broker.create_subscription("t", name, properties, Vec::new()).await.unwrap();
    }
    world.send("q", 1).await;
    world.run_all("q", moved("t", whole("new"))).await;
    for subscription in ["t/subscriptions/a", "t/subscriptions/b"] {
        assert_eq!(world.bodies(subscription).await, ["new"]);
    }
    let dead_letter = Deed::DeadLetter { reason: None, description: None };
    world.run_all("t/subscriptions/a", dead_letter).await;
    let edit = Arc::new(Edit {
        changes: Overlay::of_changes([]),
        new_id: true,
        body: Some(whole(&"x".repeat(BODY_EDIT_BYTES_MAX as usize))),
    });
    let deed = Deed::Resubmit { to: None, edit: Some(edit) };
    let done = world.run_all("t/subscriptions/a/$deadletterqueue", deed).await;
    assert_eq!((done.progress.done, done.progress.failed), (1, 0));
    let heads = world.heads("t/subscriptions/a").await;
    let content = heads[0].content.as_ref().unwrap();
    assert_eq!(content.body_bytes, u64::from(BODY_EDIT_BYTES_MAX));
    assert!(heads[0].facts.message.size > BODY_EDIT_BYTES_MAX);
    world.stop().await;
}

/// CON-16, CON-17: a body that grows needs room, also in its own queue.
#[tokio::test]
async fn new_bodies_wait_for_room_in_their_own_queue() {
    let world = start().await;
    let size = QueueProperties::new().with_max_size_in_megabytes(1);
    world.broker.create_queue("small", size).await.unwrap();
    world.send("small", 5).await;
    let dead_letter = Deed::DeadLetter { reason: None, description: None };
    world.run_all("small", dead_letter).await;
    for _ in 0..4 {
        world.send_one("small", Message::new("x".repeat(250_000))).await;
    }
    let body = Some(whole(&"x".repeat(BODY_EDIT_BYTES_MAX as usize)));
    let edit = Edit { changes: Overlay::of_changes([]), new_id: false, body };
    let deed = Deed::Resubmit { to: None, edit: Some(Arc::new(edit)) };
    let job = world.create("small/$deadletterqueue", draft(matching(""), deed)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    let waits = world.until(job.id, |facts| facts.problem.is_some()).await;
    assert_eq!((waits.state, waits.progress.failed), (JobState::Waiting, 0));
    assert_eq!(world.numbers("small/$deadletterqueue").await.len(), 3, "two have room");
    world.run_all("small", Deed::Delete).await;
    world.clock.advance(TimeSpan::from_seconds(30));
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (5, 0));
    world.stop().await;
}

/// CON-16, CON-17, QUO-05: a full store takes messages that only move. New bodies wait for room.
#[tokio::test]
async fn new_bodies_wait_while_the_store_is_full() {
    let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let jobs = Arc::new(Operations::in_memory());
    let store = Arc::new(MemoryStore::new(1, 1 << 20));
    let world = World::start_on(store, now, |builder| builder.jobs(jobs)).await;
    for queue in ["q", "to", "fill"] {
        world.broker.create_queue(queue, QueueProperties::new()).await.unwrap();
    }
    world.send("q", 3).await;
    let fill = world.broker.entity("fill").unwrap();
    let message = || world.broker.inbound(Message::new("x".repeat(10_000)));
    while fill.call(Command::Send { message: message() }).await.is_ok() {}
    let moves = Deed::Move { to: "to".into(), edit: None };
    let job = world.create("q", draft(listed([1]), moves)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    assert_eq!(world.reaches(job.id, JobState::Done).await.progress.done, 1);

    let long = "x".repeat(BODY_EDIT_BYTES_MAX as usize);
    let job = world.create("q", draft(matching(""), moved("to", whole(&long)))).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    let waits = world.until(job.id, |facts| facts.problem.is_some()).await;
    assert_eq!((waits.state, waits.progress.tried), (JobState::Waiting, 0));
    assert_eq!(world.numbers("to").await.len(), 1);
    let locks = world.lock("q", 9).await;
    assert_eq!(locks.len(), 2, "they are available meanwhile");
    for token in locks {
        world.call("q", Command::Settle { token, settlement: Settlement::Release }).await;
    }
    world.run_all("fill", Deed::Delete).await;
    world.clock.advance(TimeSpan::from_seconds(30));
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (2, 0));
    world.stop().await;
}

/// CON-16: bodies in several sections, with a footer, compressed, large, empty or with a member
/// twice: each is as a patch leaves it.
#[tokio::test]
async fn merge_patch_meets_bodies_of_every_form() {
    let world = start().await;
    let section = |data: &str| {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [b"\x00\x53\x75\xb0", &length[..], data.as_bytes()].concat()
    };
    let footer = b"\x00\x53\x78\xc1\x01\x00".to_vec();
    let half = "1".repeat(PATCHED_BODY_BYTES_MAX as usize / 2);
    let large = format!(r#"{{"a":1,"t":"{}"}}"#, "\\n".repeat(60_000));
    let bodies = [
        Body::Value([section(r#"{"a":1,"#), section(r#""b":2}"#), footer.clone()].concat().into()),
        Body::Value([section(&half), section(&half), section("1"), footer].concat().into()),
        Body::Sequence(b"\x00\x53\x76\xc0\x04\x02\x54\x01\x41".to_vec().into()),
        Body::Data("{ \r\n\"a\":1,\r\n\"b\":\"x\" }\r\n".into()),
        Body::Data(r#"{"a":1,"o":{"a":1,"a":2}}"#.into()),
        Body::Data(r#"{"b":0,"a":1,"a":2}"#.into()),
        Body::Data(large.clone().into()),
        Body::Data("".into()),
        Body::Data(b"\x1f\x8b\x08".to_vec().into()),
    ];
    for body in bodies {
        world.send_one("q", Message { body, ..Message::default() }).await;
    }
    let deed = || moved("to", patch(r#"{"a":null}"#));
    let changed =
        [r#"{"b":2}"#, r#"{"b":"x"}"#, r#"{"o":{"a":1,"a":2}}"#, &large.replace(r#""a":1,"#, "")];
    let samples = world.samples("q", deed()).await;
    let refused = [false, true, true, false, false, true, false, true, true];
    for ((_, result), refused) in samples.iter().zip(refused) {
        assert_eq!(*result, refused.then_some(ActResult::NotJson));
    }
    assert_eq!(samples[0].0, changed[0]);
    let done = world.run_all("q", deed()).await;
    assert_eq!((done.progress.done, done.progress.failed), (4, 5));
    let heads = world.heads("to").await;
    for (head, changed) in heads.iter().zip(changed) {
        let content = head.content.as_ref().unwrap();
        assert!(changed.as_bytes().starts_with(content.message.body.as_bytes()));
        assert!(content.body_bytes >= changed.len() as u64);
    }
    assert_eq!(world.numbers("q").await, [2, 3, 6, 8, 9]);
    // The result of removing all members is still an object.
    world.send_one("q", Message::new(r#"{"a":1}"#)).await;
    let job = world.create("q", draft(listed([10]), deed())).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Done).await;
    assert_eq!(world.bodies("to").await[4], "{}");
    world.stop().await;
}

/// CON-16: a new body or patch over its limit, and a patch that is not JSON, are refused before a
/// message is selected.
#[tokio::test]
async fn impossible_new_bodies_are_refused() {
    let world = start().await;
    let long = "x".repeat(BODY_EDIT_BYTES_MAX as usize + 1);
    for (body, condition) in [
        (whole(&long), Condition::MessageSizeExceeded),
        (patch(&format!("\"{long}\"")), Condition::MessageSizeExceeded),
        (patch("{"), Condition::ArgumentError),
    ] {
        let made = Management::CreateJob(Box::new(draft(matching(""), moved("to", body))));
        assert_eq!(world.access.manage("q", made).await.unwrap_err().condition(), condition);
    }
    world.stop().await;
}
