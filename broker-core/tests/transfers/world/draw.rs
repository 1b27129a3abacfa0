//! Random descriptions of entities.

use peeklock_core::command::{Command, TopicCommand};
use peeklock_core::description::{
    EntityStatus, Jitter, QueueDescription, RetryKind, RetryPolicy, SubscriptionDescription,
    TopicDescription,
};
use peeklock_core::ids::EntityId;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::topic::Topic;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use super::{FAN, QUEUES, TOPIC, World, path};
use crate::fan::CATCH_ALL;

#[derive(Clone, Debug)]
pub(super) enum Description {
    Queue(QueueDescription),
    Topic(TopicDescription),
    Subscription(SubscriptionDescription),
}

impl Description {
    /// An empty machine of that kind, if it has a tree of its own.
    pub(super) fn machine(&self, id: EntityId, config: QueueConfig, now: Timestamp) -> AnyMachine {
        match self.clone() {
            Self::Queue(queue) => AnyMachine::Queue(Box::new(Queue::new(id, queue, config, now))),
            Self::Topic(topic) => AnyMachine::Topic(Box::new(Topic::new(id, topic, config, now))),
            Self::Subscription(one) => panic!("{one:?} without its topic"),
        }
    }

    pub(super) fn of(machine: &AnyMachine) -> Self {
        match machine {
            AnyMachine::Queue(queue) => match queue.subscription_description() {
                Some(subscription) => Self::Subscription(subscription.clone()),
                None => Self::Queue(queue.description().clone()),
            },
            AnyMachine::Topic(topic) => Self::Topic((**topic.description()).clone()),
        }
    }

    /// The command that replaces the description `before` by this one.
    pub(super) fn update(self, before: &Self) -> (Self, Command) {
        let read_at = None;
        match (self, before) {
            (Self::Queue(mut queue), Self::Queue(before)) => {
                queue.requires_duplicate_detection = before.requires_duplicate_detection;
                let description = Box::new(queue.clone());
                (Self::Queue(queue), Command::Update { description, read_at })
            }
            (Self::Topic(topic), _) => {
                let description = Box::new(topic.clone());
                (
                    Self::Topic(topic),
                    Command::OfTopic(TopicCommand::Update { description, read_at }),
                )
            }
            (Self::Subscription(subscription), Self::Subscription(_)) => {
                let description = Box::new(subscription.clone());
                (
                    Self::Subscription(subscription),
                    Command::UpdateSubscription { description, read_at },
                )
            }
            (new, before) => panic!("{new:?} for {before:?}"),
        }
    }
}

impl World {
    pub(super) fn draw(&mut self, place: usize) -> Description {
        if place == TOPIC || place == FAN {
            return Description::Topic(self.draw_topic(place));
        }
        if place > FAN {
            return Description::Subscription(self.draw_subscription(place - FAN - 1));
        }
        let mut description = QueueDescription::new(format!("q{place}"), &self.limits);
        let random = &mut self.random;
        let other = |random: &mut Random| {
            let other = match random.index(QUEUES) {
                0 => FAN,
                step => (place + step) % QUEUES,
            };
            Some(path(other).into_boxed_str())
        };
        if !random.one_in(3) {
            description.forward_to = other(random);
        }
        if random.one_in(3) {
            description.forward_dead_lettered_messages_to = other(random);
        }
        // For a message that returns to a queue in a circle, too, the delay of one visit ends with
        // it (RTY-14).
        description.retry_policy = draw_policy(random);
        description.max_size_in_megabytes = 1;
        description.requires_duplicate_detection = self.judge.may_absorb && random.one_in(2);
        description.status = draw_status(random);
        Description::Queue(description)
    }

    /// A subscription: it may forward, be disabled, and fill its topic. Which messages it gets does
    /// not change.
    fn draw_subscription(&mut self, number: usize) -> SubscriptionDescription {
        let random = &mut self.random;
        let queue = |random: &mut Random| Some(path(random.index(QUEUES)).into_boxed_str());
        SubscriptionDescription {
            catch_all: number == CATCH_ALL,
            enable_dead_lettering_on_filter_evaluation_exceptions: false,
            forward_to: if random.one_in(3) { None } else { queue(random) },
            forward_dead_lettered_messages_to: if random.one_in(3) { queue(random) } else { None },
            retry_policy: draw_policy(random),
            status: draw_status(random),
            ..SubscriptionDescription::new(path(FAN), format!("s{number}"), &self.limits)
        }
    }

    fn draw_topic(&mut self, place: usize) -> TopicDescription {
        TopicDescription {
            max_size_in_megabytes: 1,
            status: match self.random.below(10) {
                0 => EntityStatus::Disabled,
                1 => EntityStatus::SendDisabled,
                _ => EntityStatus::Active,
            },
            ..TopicDescription::new(path(place), &self.limits)
        }
    }

    pub(super) fn draw_update(&mut self, place: usize) -> Command {
        let before = self.entities[place].description.clone();
        let (description, command) = self.draw(place).update(&before);
        self.entities[place].description = description;
        command
    }
}

fn draw_policy(random: &mut Random) -> Option<RetryPolicy> {
    random.one_in(3).then(|| RetryPolicy {
        kind: *random.pick(&RetryKind::ALL).unwrap(),
        delay: TimeSpan::from_seconds(i64::try_from(random.between(1, 10)).unwrap()),
        delay_max: Some(TimeSpan::from_seconds(40)),
        jitter: if random.one_in(2) { Jitter::NONE } else { Jitter::of(0.5).unwrap() },
    })
}

fn draw_status(random: &mut Random) -> EntityStatus {
    match random.below(12) {
        0 => EntityStatus::Disabled,
        1 => EntityStatus::SendDisabled,
        2 => EntityStatus::ReceiveDisabled,
        _ => EntityStatus::Active,
    }
}
