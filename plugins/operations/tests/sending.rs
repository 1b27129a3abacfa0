//! Jobs that send messages to another place: resubmit and move.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_core::command::{Act, ActResult, Command, Deed, Edit, JobStep, OperatorCommand};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::{
    EntityKind, EntityStatus, QueueProperties, SubscriptionProperties, TopicProperties,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{JobControl, JobDraft, JobFacts, JobState};
use peeklock_core::management::Management;
use peeklock_core::message::{Message, Overlay, PropertyChange, SettableProperty, Value};
use peeklock_core::time::TimeSpan;
use peeklock_operations::Operations;
use world::{World, draft, listed, matching};

async fn start() -> World {
    World::start(Arc::new(Operations::in_memory())).await
}

fn resubmit() -> Deed {
    Deed::Resubmit { to: None, edit: None }
}

fn move_to(path: &str) -> Deed {
    Deed::Move { to: path.into(), edit: None }
}

fn dead_letter() -> Deed {
    Deed::DeadLetter { reason: Some("Test".into()), description: Some("by hand".into()) }
}

/// Queue with the dead letters of a path.
fn dead(path: &str) -> String {
    format!("{path}/$deadletterqueue")
}

impl World {
    /// Runs a job on all messages of a path until it has ended.
    async fn run_all(&self, path: &str, deed: Deed) -> JobFacts {
        let job = self.create(path, draft(matching(""), deed)).await;
        let job = self.reaches(job.id, JobState::Ready).await;
        self.run(&job).await;
        self.reaches(job.id, JobState::Done).await
    }

    async fn send_one(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.call(path, Command::Send { message }).await;
    }

    /// Properties of the messages of a path: sequence number, delivery count, message.
    async fn messages(&self, path: &str) -> Vec<(u64, u32, Message)> {
        let heads = self.heads(path).await.into_iter();
        let parts = heads.map(|head| {
            let facts = &head.facts.message;
            (facts.sequence.0, facts.delivery_count, head.content.unwrap().message)
        });
        parts.collect()
    }

    async fn refused_to_create(&self, path: &str, deed: Deed) -> Condition {
        let made = Management::CreateJob(Box::new(draft(matching(""), deed)));
        self.access.manage(path, made).await.unwrap_err().condition()
    }
}

/// CON-15, CON-16: a resubmitted dead letter is a new message of its queue: it has a new number, no
/// failed delivery, and its own properties, but none from its dead-lettering.
#[tokio::test]
async fn resubmitted_dead_letter_is_a_new_message_of_its_queue() {
    let world = start().await;
    let message = Message::new("body").with_message_id("a").with_application_property("kept", 7);
    world.send_one("q", message.clone()).await;
    world.lock("q", 1).await;
    let broken = JobDraft { breaks_locks: true, ..draft(matching(""), dead_letter()) };
    let job = world.create("q", broken).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Done).await;
    let (number, _, letter) = world.messages(&dead("q")).await.remove(0);
    assert_eq!((number, letter.application_properties.len()), (1, 3));

    let done = world.run_all(&dead("q"), resubmit()).await;
    assert_eq!((done.progress.done, done.progress.failed), (1, 0));
    assert!(world.numbers(&dead("q")).await.is_empty());
    let (number, delivery_count, again) = world.messages("q").await.remove(0);
    assert_eq!((number, delivery_count), (2, 0));
    assert_eq!(again, message);
    // The receiver can lock it.
    assert_eq!(world.lock("q", 9).await.len(), 1);
    world.stop().await;
}

/// CON-16: the dead letters of a subscription return to it only, past its rules.
#[tokio::test]
async fn dead_letters_of_a_subscription_return_to_it_only() {
    let world = start().await;
    world.broker.create_topic("t", TopicProperties::default()).await.unwrap();
    for name in ["a", "b"] {
        let properties = SubscriptionProperties::default();
        world.broker.create_subscription("t", name, properties, Vec::new()).await.unwrap();
    }
    let (a, b) = ("t/subscriptions/a", "t/subscriptions/b");
    world.send("t", 3).await;
    world.run_all(a, dead_letter()).await;
    let done = world.run_all(&dead(a), resubmit()).await;
    assert_eq!((done.progress.done, done.progress.failed), (3, 0));
    assert_eq!(world.numbers(a).await, [4, 5, 6]);
    assert_eq!(world.numbers(b).await, [1, 2, 3]);
    // Numbers continue: the topic gives them.
    world.send("t", 1).await;
    assert_eq!(world.numbers(a).await, [4, 5, 6, 7]);
    let messages = world.messages(a).await;
    assert!(messages.iter().all(|(.., message)| message.application_properties.is_empty()));
    // Messages move from one to the other, and to a queue.
    world.run_all(b, move_to(a)).await;
    assert_eq!(world.numbers(a).await.len(), 8);
    let done = world.run_all(a, move_to("q")).await;
    assert_eq!((done.progress.done, world.numbers("q").await.len()), (8, 8));
    // A topic publishes by its rules.
    world.run_all("q", move_to("t")).await;
    assert_eq!((world.numbers(a).await.len(), world.numbers(b).await.len()), (8, 8));
    world.stop().await;
}

/// CON-16, FWD-26: a moved dead letter keeps its facts and the name of its entity, to which a
/// resubmit from its new queue returns it.
#[tokio::test]
async fn moved_dead_letters_return_to_their_queues() {
    let world = start().await;
    for queue in ["p", "central"] {
        world.broker.create_queue(queue, QueueProperties::new()).await.unwrap();
    }
    for queue in ["p", "q"] {
        world.send(queue, 2).await;
        world.run_all(queue, dead_letter()).await;
        world.run_all(&dead(queue), move_to("central")).await;
    }
    world.send("central", 1).await;
    let heads = world.heads("central").await;
    let source = |at: usize| heads[at].content.as_ref().unwrap().dead_letter_source.clone();
    assert_eq!([source(0), source(2), source(4)], [Some("p".into()), Some("q".into()), None]);
    let (.., letter) = &world.messages("central").await[0];
    assert_eq!(letter.application_properties.len(), 2);

    let done = world.run_all("central", resubmit()).await;
    assert_eq!((done.progress.done, done.progress.failed), (4, 1));
    assert_eq!(world.failures(done.id, 0, 9).await.0, [(5, ActResult::NoDestination)]);
    for queue in ["p", "q"] {
        let messages = world.messages(queue).await;
        assert_eq!(messages.len(), 2);
        assert!(messages.iter().all(|(.., message)| message.application_properties.is_empty()));
        assert!(
            world
                .heads(queue)
                .await
                .iter()
                .all(|head| { head.content.as_ref().unwrap().dead_letter_source.is_none() })
        );
    }
    world.stop().await;
}

/// CON-17: a message that the destination refuses stays where it was, and is listed with the reason.
/// Messages after it arrive.
#[tokio::test]
async fn refused_messages_stay_and_are_listed() {
    let world = start().await;
    let sessions = QueueProperties::new().with_sessions();
    let ids = QueueProperties::new().with_duplicate_detection(TimeSpan::from_minutes(5));
    let disabled = QueueProperties::new().with_status(EntityStatus::SendDisabled);
    let small = QueueProperties::new().with_max_message_size_in_kilobytes(1_024);
    let from = QueueProperties::new().with_max_message_size_in_kilobytes(2_048);
    for (path, properties) in [
        ("from", from),
        ("sessions", sessions),
        ("ids", ids),
        ("disabled", disabled),
        ("small", small),
    ] {
        world.broker.create_queue(path, properties).await.unwrap();
    }
    world.send_one("ids", Message::new("").with_message_id("a")).await;
    let large = "x".repeat(1_200_000);
    for (id, body, session) in [("a", "", None), ("b", &*large, None), ("c", "", Some("s"))] {
        let mut message = Message::new(body.to_owned()).with_message_id(id);
        message.session_id = session.map(str::to_owned);
        world.send_one("from", message).await;
    }
    for (path, refused, result) in [
        ("disabled", &[1, 2, 3][..], ActResult::DestinationDisabled),
        ("small", &[2], ActResult::DestinationTooSmall),
        ("ids", &[4], ActResult::Duplicate),
        ("sessions", &[4], ActResult::NoSession),
    ] {
        let done = world.run_all("from", move_to(path)).await;
        let expected: Vec<_> = refused.iter().map(|number| (*number, result)).collect();
        assert_eq!(world.failures(done.id, 0, 9).await.0, expected, "{path}");
        assert_eq!(world.numbers("from").await, refused, "{path}");
        if path == "small" {
            // 1 and 3 come back as 4 and 5; the large one goes.
            world.run_all("from", Deed::Delete).await;
            world.run_all(path, move_to("from")).await;
            assert_eq!(world.numbers("from").await, [4, 5]);
        }
    }
    assert_eq!(world.messages("from").await[0].2.message_id, Some("a".into()));
    world.stop().await;
}

/// CON-17: a full destination pauses the job until there is room; no message is lost or listed.
#[tokio::test]
async fn full_destination_delays_a_job() {
    let world = start().await;
    let size = QueueProperties::new().with_max_size_in_megabytes(1);
    world.broker.create_queue("full", size).await.unwrap();
    for _ in 0..6 {
        world.send_one("q", Message::new("x".repeat(250_000))).await;
    }
    let job = world.create("q", draft(matching(""), move_to("full"))).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    let waits = world.tries(job.id, 4).await;
    assert_eq!((waits.progress.done, waits.progress.failed), (4, 0));
    let waits = loop {
        let facts = world.job(job.id).await;
        if facts.state == JobState::Waiting && facts.problem.is_some() {
            break facts;
        }
        world.pass().await;
    };
    assert!(waits.problem.unwrap().contains("no room"));
    assert_eq!(world.numbers("q").await, [5, 6]);
    assert_eq!(world.lock("q", 9).await.len(), 2, "they are available meanwhile");
    world.run_all("full", Deed::Delete).await;
    let done = world.reaches(job.id, JobState::Done).await;
    // A receiver holds the rest now.
    assert_eq!((done.progress.done, done.progress.failed), (4, 2));
    world.stop().await;
}

/// CON-17, CON-19: a full destination holds up only its own messages. Messages for others leave, and
/// count as done at the end of the job.
#[tokio::test]
async fn full_destination_holds_up_only_its_own_messages() {
    for is_cancelled in [true, false] {
        let world = start().await;
        let size = QueueProperties::new().with_max_size_in_megabytes(1);
        world.broker.create_queue("full", size).await.unwrap();
        for queue in ["other", "central"] {
            world.broker.create_queue(queue, QueueProperties::new()).await.unwrap();
        }
        for queue in ["full", "other", "full", "other"] {
            world.send_one(queue, Message::new("x".repeat(250_000))).await;
            world.run_all(queue, dead_letter()).await;
            world.run_all(&dead(queue), move_to("central")).await;
        }
        for _ in 0..4 {
            world.send_one("full", Message::new("x".repeat(250_000))).await;
        }
        let job = world.create("central", draft(matching(""), resubmit())).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        world.run(&job).await;
        let waits = world.until(job.id, |facts| facts.problem.is_some()).await;
        assert_eq!((waits.state, waits.progress.tried), (JobState::Waiting, 0));
        assert_eq!(world.numbers("central").await, [1, 3]);
        assert_eq!(world.numbers("other").await.len(), 2);
        let done = if is_cancelled {
            world.control(job.id, JobControl::Cancel).await
        } else {
            world.run_all("full", Deed::Delete).await;
            world.clock.advance(TimeSpan::from_seconds(30));
            world.reaches(job.id, JobState::Done).await
        };
        let returned = if is_cancelled { 0 } else { 2 };
        assert_eq!((done.progress.done, done.progress.failed), (2 + returned, 0));
        assert_eq!(world.numbers("central").await.len() as u64, 2 - returned);
        world.stop().await;
    }
}

/// CON-19: a job that is cancelled while messages are leaving counts them.
#[tokio::test]
async fn cancelled_job_counts_messages_that_are_leaving() {
    let world = start().await;
    world.broker.create_queue("to", QueueProperties::new()).await.unwrap();
    world.send("q", 40).await;
    let slow = JobDraft { rate: 4, ..draft(matching(""), move_to("to")) };
    let job = world.create("q", slow).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    // No time passes, so the job does not look at the message that arrives.
    while world.numbers("to").await.is_empty() {
        tokio::task::yield_now().await;
    }
    let ended = world.control(job.id, JobControl::Cancel).await;
    assert_eq!((ended.state, ended.problem), (JobState::Cancelled, None));
    let left = world.numbers("to").await.len();
    assert_eq!((ended.progress.done, ended.progress.failed), (left as u64, 0));
    assert_eq!(world.numbers("q").await.len(), 40 - left);
    world.stop().await;
}

/// CON-17: a message for one subscription is not published, so ids that the topic remembers do not
/// concern it, and the topic does not remember its id.
#[tokio::test]
async fn subscription_gets_messages_whose_ids_its_topic_remembers() {
    let world = start().await;
    let ids = TopicProperties::default().with_duplicate_detection(TimeSpan::from_minutes(5));
    world.broker.create_topic("t", ids).await.unwrap();
    let (a, b) = ("t/subscriptions/a", "t/subscriptions/b");
    for name in ["a", "b"] {
        let properties = SubscriptionProperties::default();
        world.broker.create_subscription("t", name, properties, Vec::new()).await.unwrap();
    }
    world.send_one("t", Message::new("").with_message_id("old")).await;
    for path in [a, b] {
        world.run_all(path, dead_letter()).await;
        let done = world.run_all(&dead(path), resubmit()).await;
        assert_eq!((done.progress.done, done.progress.failed), (1, 0), "{path}");
    }
    world.send_one("q", Message::new("").with_message_id("new")).await;
    world.run_all("q", move_to(a)).await;
    world.send_one("t", Message::new("").with_message_id("new")).await;
    assert_eq!((world.numbers(a).await.len(), world.numbers(b).await.len()), (3, 2));
    world.stop().await;
}

/// CON-17: the dead letters of a full queue can be resubmitted: they need no additional room.
#[tokio::test]
async fn dead_letters_of_a_full_queue_return() {
    let world = start().await;
    let size = QueueProperties::new().with_max_size_in_megabytes(1);
    world.broker.create_queue("full", size).await.unwrap();
    for _ in 0..4 {
        world.send_one("full", Message::new("x".repeat(250_000))).await;
    }
    world.run_all("full", dead_letter()).await;
    let done = world.run_all(&dead("full"), resubmit()).await;
    assert_eq!((done.progress.done, done.progress.failed), (4, 0));
    assert_eq!(world.numbers("full").await, [5, 6, 7, 8]);
    world.stop().await;
}

/// CON-16: an edit sets and removes properties with their types, and gives new ids; the body and
/// other properties stay.
#[tokio::test]
async fn edit_changes_every_message_on_its_way() {
    let world = start().await;
    let ids = QueueProperties::new().with_duplicate_detection(TimeSpan::from_minutes(5));
    world.broker.create_queue("ids", ids).await.unwrap();
    for _ in 0..2 {
        let message = Message::new("body").with_message_id("same").with_subject("old");
        let message = message.with_application_property("kept", 1.5);
        let message = message.with_application_property("gone", "x");
        world.send_one("q", message).await;
    }
    let (seven, subject) = (Value::I32(7), Value::from("new"));
    let changes = Overlay::of_changes([
        PropertyChange::Set("retried", seven.borrow()),
        PropertyChange::Remove("gone"),
        PropertyChange::SetBroker(SettableProperty::Subject, subject.borrow()),
    ]);
    let edit = Some(Arc::new(Edit { changes, new_id: true, body: None }));
    let done = world.run_all("q", Deed::Move { to: "ids".into(), edit }).await;
    assert_eq!((done.progress.done, done.progress.failed), (2, 0), "the ids differ");
    for (.., message) in world.messages("ids").await {
        assert_eq!(message.body.as_bytes(), "body");
        assert_eq!(message.subject.as_deref(), Some("new"));
        let expected =
            [("kept".to_owned(), Value::F64(1.5)), ("retried".to_owned(), seven.clone())];
        assert_eq!(message.application_properties, expected);
    }
    world.stop().await;
}

/// CON-12, CON-14: a destination that cannot get messages is refused before a message is selected.
#[tokio::test]
async fn job_without_a_possible_destination_is_refused() {
    let world = start().await;
    world.broker.create_topic("t", TopicProperties::default()).await.unwrap();
    world.broker.create_queue("s", QueueProperties::new().with_sessions()).await.unwrap();
    for (path, deed, condition) in [
        ("q", move_to("absent"), Condition::EntityNotFound),
        ("q", move_to("t/subscriptions/absent"), Condition::EntityNotFound),
        ("q", move_to("q"), Condition::InvalidOperation),
        ("q", move_to("s/$deadletterqueue"), Condition::InvalidOperation),
        ("s", move_to("q"), Condition::InvalidOperation),
        ("t", move_to("q"), Condition::InvalidOperation),
    ] {
        assert_eq!(world.refused_to_create(path, deed).await, condition, "{path}");
    }
    // The lock of a message in a session is not broken, so the preview must not promise it.
    let broken = JobDraft { breaks_locks: true, ..draft(matching(""), Deed::Delete) };
    assert!(!world.create("s", broken.clone()).await.breaks_locks);
    assert!(world.create("q", broken).await.breaks_locks);
    // A queue whose destination is deleted before the start keeps its messages.
    world.broker.create_queue("d", QueueProperties::new()).await.unwrap();
    world.send("q", 1).await;
    let job = world.create("q", draft(listed([1]), move_to("d"))).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    let delete = Management::Delete(EntityKind::Queue);
    world.access.manage("d", delete).await.unwrap();
    world.run(&job).await;
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!(world.failures(done.id, 0, 9).await.0, [(1, ActResult::NoDestination)]);
    assert_eq!(world.lock("q", 9).await.len(), 1);
    world.stop().await;
}

/// Lets everybody receive from the queue `q` and send to it, send to `open`, and receive dead letters
/// of `closed`.
struct Authorities;

#[async_trait::async_trait]
impl Authorizer for Authorities {
    async fn authorize(&self, _: &Principal, resource: &str) -> Result<Grant, Rejection> {
        let send = Rights::of(Right::Send);
        Ok(match resource {
            "q" | "q/$deadletterqueue" | "closed/$deadletterqueue" => {
                Grant::of(send.and(Right::Listen))
            }
            "open" => Grant::of(send),
            _ => Grant::nothing(),
        })
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// CON-17, CON-72: a job needs the right to send to its destination; without a destination, messages
/// of a main queue may go anywhere, which needs the rights on the namespace.
#[tokio::test]
async fn job_needs_the_right_on_its_destination() {
    let jobs = Arc::new(Operations::in_memory());
    let set = |builder: peeklock_core::BrokerBuilder| builder.authorizer(Arc::new(Authorities));
    let mut world = World::start_with(jobs, set).await;
    for queue in ["open", "closed"] {
        world.broker.create_queue(queue, QueueProperties::new()).await.unwrap();
    }
    world.access = world.broker.access(Principal::anonymous());
    let dead_of_closed = dead("closed");
    for (path, deed) in
        [("q", move_to("closed")), ("q", resubmit()), (&*dead_of_closed, resubmit())]
    {
        let refused = world.refused_to_create(path, deed).await;
        assert_eq!(refused, Condition::Unauthorized, "{path}");
    }
    // CON-15: a client without a job has no such check, so it cannot send messages.
    let step = Some(JobStep { job: JobId(1), number: 1 });
    let sequences = vec![SequenceNumber(1)];
    let act = Act { step, sequences, deed: move_to("closed"), breaks_locks: false, kept: None };
    let act = OperatorCommand::Act(Box::new(act));
    let managed = world.access.manage("q", Management::Operate(act.clone())).await;
    assert_eq!(managed.unwrap_err().condition(), Condition::InvalidOperation);
    let entity = world.access.entity("q", Action::Operate).await.unwrap();
    let called = entity.call(Command::OfOperator(act)).await;
    assert_eq!(called.unwrap_err().condition(), Condition::InvalidOperation);
    world.create("q", draft(matching(""), move_to("open"))).await;
    world.create(&dead("q"), draft(matching(""), resubmit())).await;
    world.stop().await;
}
