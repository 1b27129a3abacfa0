//! What entities are like, as the seed wants it.

use peeklock_core::command::{Command, TopicCommand};
use peeklock_core::description::{
    EntityStatus, Jitter, QueueDescription, RetryKind, RetryPolicy, TopicDescription,
};
use peeklock_core::entity::any::AnyMachine;
use peeklock_core::entity::queue::{Queue, QueueConfig};
use peeklock_core::entity::topic::Topic;
use peeklock_core::ids::EntityId;
use peeklock_core::testing::Random;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{QUEUES, TOPIC, World, path};

#[derive(Clone, Debug)]
pub(super) enum Description {
    Queue(QueueDescription),
    Topic(TopicDescription),
}

impl Description {
    /// A machine of that kind without messages.
    pub(super) fn machine(&self, id: EntityId, config: QueueConfig, now: Timestamp) -> AnyMachine {
        match self.clone() {
            Self::Queue(queue) => AnyMachine::Queue(Box::new(Queue::new(id, queue, config, now))),
            Self::Topic(topic) => AnyMachine::Topic(Box::new(Topic::new(id, topic, config, now))),
        }
    }

    pub(super) fn of(machine: &AnyMachine) -> Self {
        match machine {
            AnyMachine::Queue(queue) => Self::Queue(queue.description().clone()),
            AnyMachine::Topic(topic) => Self::Topic((**topic.description()).clone()),
        }
    }

    /// The command that replaces the description of what `before` describes by this one.
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
            (queue, Self::Topic(_)) => panic!("{queue:?} for a topic"),
        }
    }
}

impl World {
    pub(super) fn draw(&mut self, place: usize) -> Description {
        if place == TOPIC {
            return Description::Topic(self.draw_topic());
        }
        let mut description = QueueDescription::new(format!("q{place}"), &self.limits);
        let random = &mut self.random;
        let other = |random: &mut Random| {
            let other = (place + 1 + random.index(QUEUES - 1)) % QUEUES;
            Some(format!("q{other}").into_boxed_str())
        };
        if !random.one_in(3) {
            description.forward_to = other(random);
        }
        if random.one_in(3) {
            description.forward_dead_lettered_messages_to = other(random);
        }
        // Of a message that comes back to a queue in a circle, too, the delay of one visit is gone (RTY-14).
        description.retry_policy = random.one_in(3).then(|| RetryPolicy {
            kind: *random.pick(&RetryKind::ALL).unwrap(),
            delay: TimeSpan::from_seconds(i64::try_from(random.between(1, 10)).unwrap()),
            delay_max: Some(TimeSpan::from_seconds(40)),
            jitter: if random.one_in(2) { Jitter::NONE } else { Jitter::of(0.5).unwrap() },
        });
        description.max_size_in_megabytes = 1;
        description.requires_duplicate_detection = self.judge.may_absorb && random.one_in(2);
        description.status = match random.below(12) {
            0 => EntityStatus::Disabled,
            1 => EntityStatus::SendDisabled,
            2 => EntityStatus::ReceiveDisabled,
            _ => EntityStatus::Active,
        };
        Description::Queue(description)
    }

    fn draw_topic(&mut self) -> TopicDescription {
        TopicDescription {
            max_size_in_megabytes: 1,
            status: match self.random.below(10) {
                0 => EntityStatus::Disabled,
                1 => EntityStatus::SendDisabled,
                _ => EntityStatus::Active,
            },
            ..TopicDescription::new(path(TOPIC), &self.limits)
        }
    }

    pub(super) fn draw_update(&mut self, place: usize) -> Command {
        let before = self.entities[place].description.clone();
        let (description, command) = self.draw(place).update(&before);
        self.entities[place].description = description;
        command
    }
}
