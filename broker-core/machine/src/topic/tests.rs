//! Commands to the machine of a topic, without a broker.

mod act;
mod ahead;
mod inspect;
mod publish;
mod rules;
mod transfer;
mod update;

use super::*;
use crate::RemainingCapacity;
use crate::change::{SubscriptionCopy, TopicChange};
use crate::command::{InboundMessage, RuleCommand, TopicCommand};
use crate::condition::Condition;
use crate::description::SubscriptionDescription;
use crate::limits::{Limits, Tier};
use crate::message::{Message, PropertyLimits};
use crate::record::Reserved;
use crate::rule::{Filter, RuleDescription, Verdict};

const KEY: [u8; 16] = [7; 16];

struct Stand {
    topic: Topic,
    limits: Limits,
    now: Timestamp,
    stored_bytes: u64,
    left: RemainingCapacity,
}

impl Stand {
    /// Returns a topic with this number of subscriptions, each of which gets all messages.
    fn new(subscriptions: u64) -> Self {
        let limits = Limits::of(Tier::Premium);
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: crate::queue::ForwardingConfig::default(),
        };
        let description = TopicDescription {
            max_size_in_megabytes: 1,
            ..TopicDescription::new("events", &limits)
        };
        let topic = Topic::new(EntityId(1), description, config, now);
        let mut stand = Self { topic, limits, now, stored_bytes: 0, left: RemainingCapacity::ALL };
        for number in 0..subscriptions {
            let id = EntityId(number + 2);
            let name = number.to_string();
            let description = SubscriptionDescription::new("events", name, &stand.limits);
            let description = Box::new(description);
            let command = Command::OfTopic(TopicCommand::CreateSubscription {
                id,
                description,
                rules: vec![],
            });
            stand.apply(command).unwrap();
        }
        stand
    }

    fn apply(&mut self, command: Command) -> Result<(Answer, StepOutput), Rejection> {
        let mut step = StepOutput::default();
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            remaining: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        let result = self.topic.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step);
        self.topic.check_invariants().unwrap();
        assert!(result.is_ok() || step.changes.is_empty(), "a rejection has changed something");
        result.map(|answer| (answer, step))
    }

    /// Runs one slice of judging ahead; returns whether the command can be applied now.
    fn prepare(&mut self, command: &Command) -> bool {
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            remaining: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        self.topic.prepare(Preparation::Command { ticket: Ticket(1), command }, &mut ctx)
    }

    fn send(&mut self, bytes: usize) -> Result<(Answer, StepOutput), Rejection> {
        let content = Message::new(vec![0; bytes]).encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        self.apply(Command::Send { message: InboundMessage { content, envelope } })
    }

    fn ctx_of<T>(&mut self, run: impl FnOnce(&mut Topic, &mut Ctx<'_>) -> T) -> T {
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            remaining: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        run(&mut self.topic, &mut ctx)
    }

    /// Number of slices until a command can be applied.
    fn slices(&mut self, command: &Command) -> usize {
        let ahead = Preparation::Command { ticket: Ticket(1), command };
        (1..100_000)
            .find(|_| self.ctx_of(|topic, ctx| topic.judge_ahead(ahead, ctx)))
            .expect("it comes to an end")
    }

    /// Returns a topic whose first subscription has `count` rules, each of which takes long for
    /// 32,000 characters.
    fn with_heavy_rules(count: usize) -> Self {
        Self::with_heavy_rules_that(count, "SET x = 1")
    }

    /// As [`Self::with_heavy_rules`], with this action in the rules.
    fn with_heavy_rules_that(count: usize, action: &str) -> Self {
        let mut stand = Self::new(1);
        stand.topic.description = Arc::new(TopicDescription {
            max_size_in_megabytes: 1_024,
            ..(*stand.topic.description).clone()
        });
        for number in 0..count {
            // The rules differ: every second rule selects the message.
            let end = if number % 2 == 0 { 'a' } else { 'b' };
            let text = format!("p LIKE '%{}_{end}%'", "a".repeat(950));
            let rule = RuleDescription::new(format!("r{number}"), Filter::sql(&*text), stand.now)
                .with_action(action);
            let command = RuleCommand::Create(Box::new(rule));
            stand
                .apply(Command::OfTopic(TopicCommand::InSubscription {
                    subscription: EntityId(2),
                    command,
                }))
                .unwrap();
        }
        stand
    }

    fn heavy(&self) -> InboundMessage {
        let mut message = Message::new("x");
        message.application_properties = vec![("p".to_owned(), "a".repeat(32_000).into())];
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        InboundMessage { content, envelope }
    }

    /// Adds a catch-all, which gets all messages that no other subscription selects.
    fn add_catch_all(&mut self, id: u64) {
        let description = Box::new(SubscriptionDescription {
            catch_all: true,
            ..SubscriptionDescription::new("events", id.to_string(), &self.limits)
        });
        let command =
            TopicCommand::CreateSubscription { id: EntityId(id), description, rules: vec![] };
        self.apply(Command::OfTopic(command)).unwrap();
    }

    fn explain(id: u64, message: InboundMessage) -> Command {
        let command = RuleCommand::Explain(Box::new(message));
        Command::OfTopic(TopicCommand::InSubscription { subscription: EntityId(id), command })
    }

    fn explained(&mut self, id: u64, message: InboundMessage) -> Vec<Verdict> {
        match self.apply(Self::explain(id, message)).unwrap().0 {
            Answer::Now(Outcome::Explained(explained), _) => {
                explained.into_iter().map(|one| one.verdict).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn copies(step: &StepOutput) -> &[SubscriptionCopy] {
    match step.changes.as_slice() {
        [Change::OfTopic(TopicChange::Published { copies, .. })] => copies,
        other => panic!("a publish is one change, not {other:?} (TOP-07)"),
    }
}
