//! Facts that a message keeps through topics, queues and restarts: its id and the id's origin,
//! properties set by rules, and its dead-letter source.

use std::time::Duration;

use peeklock_core::command::{Command, Counts, Outcome, ReceiveMode};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{Content, Message, Overlay, Value};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{AUDIT, BILLING, World};

impl World {
    /// The next received message with all set properties, and its dead-letter source.
    async fn whole(&self, path: &str, wait: TimeSpan) -> (Message, Option<String>) {
        let mode = ReceiveMode::PeekLock;
        let command =
            Command::Receive { mode, count_max: 1, bytes_max: u64::MAX, wait, holder: None };
        let outcome = self.broker.entity(path).unwrap().call(command).await.unwrap();
        let Outcome::Received(received) = outcome else { panic!("{outcome:?}") };
        let content = Content::parse(received[0].content.loaded().unwrap().clone()).unwrap();
        let mut message = content.decode().unwrap();
        let overlays: Vec<Overlay> = received[0]
            .overlays
            .iter()
            .map(|overlay| Overlay::from_bytes(overlay.loaded().unwrap().clone()))
            .collect();
        for overlay in &overlays {
            overlay.apply_to(&mut message);
        }
        (message, Overlay::dead_letter_source_of(overlays.iter()).map(str::to_owned))
    }

    /// The rule that made the next received message.
    async fn rule_of(&self, path: &str, wait: TimeSpan) -> Option<String> {
        let (message, _) = self.whole(path, wait).await;
        match message.application_property("RuleName") {
            Some(Value::String(name)) => Some(name.clone()),
            _ => None,
        }
    }

    async fn send_on(&self, destination: &str, via: &str, message: Message) {
        let messages = vec![self.broker.inbound(message)];
        let command = Command::SendVia { destination: destination.into(), messages };
        self.broker.entity(via).unwrap().call(command).await.unwrap();
    }

    async fn until_queue(&self, path: &str, is_so: impl Fn(Counts) -> bool) {
        while !is_so(self.broker.describe_queue(path).await.unwrap().counts) {
            tokio::task::yield_now().await;
        }
    }

    async fn until_scheduled(&self, count: u64) {
        while self.broker.describe_topic("events").await.unwrap().scheduled != count {
            tokio::task::yield_now().await;
        }
    }

    async fn until_empty(&self, subscription: &str) {
        let counts = async || {
            let described = self.broker.describe_subscription(subscription).await;
            described.unwrap().counts
        };
        while counts().await.total() > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn forward(&self, subscription: &str, to: &str) {
        let properties =
            SubscriptionUpdate { forward_to: Some(to.into()), ..SubscriptionUpdate::default() };
        self.broker.update_subscription(subscription, properties, None).await.unwrap();
    }
}

/// SCH-12, ACT-08: properties that a rule has set stay with a message that waits for its instant in
/// a queue, also when the instant comes, and after a restart.
#[tokio::test]
async fn a_scheduled_message_keeps_properties_set_by_a_rule() {
    let world = World::new().await;
    world.broker.create_queue("work", QueueUpdate::default()).await.unwrap();
    let rule = RuleDescription::new("later", Filter::True, Timestamp::NONE)
        .with_action("SET sys.ScheduledEnqueueTimeUtc = later");
    let properties =
        SubscriptionUpdate { forward_to: Some("work".into()), ..SubscriptionUpdate::default() };
    world.broker.create_subscription("events", "later", properties, vec![rule]).await.unwrap();
    let later = Value::Timestamp(world.clock_plus(60).unix_ms());
    let message = Message::new("x").with_application_property("later", later);
    let message = world.broker.inbound(message);
    world.broker.entity("events").unwrap().call(Command::Send { message }).await.unwrap();
    while world.broker.describe_queue("work").await.unwrap().counts.scheduled == 0 {
        tokio::task::yield_now().await;
    }
    world.clock.advance(TimeSpan::from_seconds(61));
    let wait = TimeSpan::from_minutes(1);
    assert_eq!(world.rule_of("work", wait).await.as_deref(), Some("later"));
    let world = world.restarted().await;
    assert_eq!(world.rule_of("work", TimeSpan::ZERO).await.as_deref(), Some("later"));
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// DUP-14, DUP-10, MSG-07: all copies of a message remember that the broker assigned its id, also
/// after a restart: none is a duplicate of another. Copies of a message with a sender's id are.
#[tokio::test]
async fn copies_without_an_id_of_their_sender_are_no_duplicates() {
    let world = World::new().await;
    let detects =
        QueueUpdate { requires_duplicate_detection: Some(true), ..QueueUpdate::default() };
    world.broker.create_queue("all", detects).await.unwrap();
    world.broker.create_queue("via", QueueUpdate::default()).await.unwrap();
    let at = world.clock_plus(60);
    for body in ["now", "later"] {
        for id in [None, Some(body)] {
            let mut message = Message::new(body);
            if let Some(id) = id {
                message = message.with_message_id(id);
            }
            if body == "later" {
                message = message.with_scheduled_enqueue_time(at);
            }
            world.send_on("events", "via", message).await;
        }
    }
    world.until_scheduled(2).await;
    world.until_queue("via", |counts| counts.total() == 0).await;
    let world = world.restarted().await;
    world.clock.advance(TimeSpan::from_seconds(61));
    world.until_scheduled(0).await;
    let world = world.restarted().await;
    for subscription in [AUDIT, BILLING] {
        world.forward(subscription, "all").await;
        world.until_empty(subscription).await;
    }
    let described = world.broker.describe_queue("all").await.unwrap();
    assert_eq!(described.counts.active, 4 + 2);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// DUP-14, ACT-08: an id that a rule has set is compared, regardless of the origin of the previous
/// one.
#[tokio::test]
async fn an_id_set_by_a_rule_is_compared() {
    let world = World::new().await;
    let detects =
        QueueUpdate { requires_duplicate_detection: Some(true), ..QueueUpdate::default() };
    world.broker.create_queue("all", detects).await.unwrap();
    let rule = RuleDescription::new("same", Filter::True, Timestamp::NONE)
        .with_action("SET sys.MessageId = 'same'");
    let properties =
        SubscriptionUpdate { forward_to: Some("all".into()), ..SubscriptionUpdate::default() };
    world.broker.create_subscription("events", "same", properties, vec![rule]).await.unwrap();
    world.send("1").await.unwrap();
    world.until_queue("all", |counts| counts.active == 1).await;
    world.send("2").await.unwrap();
    world.until_empty("events/Subscriptions/same").await;
    assert_eq!(world.look("all").await, [(1, "1".to_owned())]);
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// FWD-26, SCH-10: a message that waits at a topic for its instant keeps its dead-letter source and
/// reason, also over a restart.
#[tokio::test]
async fn a_dead_letter_scheduled_at_a_topic_keeps_its_source() {
    let world = World::new().await;
    world.broker.create_topic("intake", TopicUpdate::default()).await.unwrap();
    let sessions = SubscriptionUpdate {
        requires_session: Some(true),
        forward_dead_lettered_messages_to: Some("events".into()),
        ..SubscriptionUpdate::default()
    };
    let rule = RuleDescription::new("later", Filter::True, Timestamp::NONE)
        .with_action("SET sys.ScheduledEnqueueTimeUtc = later");
    world.broker.create_subscription("intake", "Tables", sessions, vec![rule]).await.unwrap();
    // A copy without a session goes to the dead-letter queue of the subscription immediately,
    // before its instant (DLQ-21).
    let later = Value::Timestamp(world.clock_plus(60).unix_ms());
    let message = world.broker.inbound(Message::new("x").with_application_property("later", later));
    world.broker.entity("intake").unwrap().call(Command::Send { message }).await.unwrap();
    world.until_scheduled(1).await;
    let world = world.restarted().await;
    world.clock.advance(TimeSpan::from_seconds(61));
    let wait = TimeSpan::from_minutes(1);
    for path in [AUDIT, BILLING] {
        let (message, source) = world.whole(path, wait).await;
        assert_eq!(source.as_deref(), Some("intake/Subscriptions/Tables"));
        let reason = message.application_property("DeadLetterReason");
        assert_eq!(reason, Some(&"Session ID is null.".into()));
    }
    world.broker.stop(Duration::ZERO).await.unwrap();
}
