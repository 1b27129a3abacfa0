//! Reservation for a publish, with all properties that rules set on its copies.

use std::fmt::Write as _;

use peeklock_machine::Preparation;
use peeklock_model::command::RuleCommand;
use peeklock_words::rule::{CorrelationFilter, Filter, RuleDescription};

use super::*;

impl Random {
    /// Returns a rule whose action sets nothing, a little, or the maximum of a header.
    fn rule(&mut self, number: u64) -> RuleDescription {
        let filter = match self.below(4) {
            0 => Filter::sql("p LIKE '%a_b%' OR 1 = 1"),
            1 => Filter::Correlation(CorrelationFilter::property("kind", "k")),
            2 => Filter::sql("p > 1"),
            _ => Filter::True,
        };
        let rule = RuleDescription::new(format!("r{number}"), filter, now());
        let mut action = String::new();
        match self.below(4) {
            0 => {
                for copy in 0..1 + self.below(3) {
                    write!(action, "SET q{copy} = p;").unwrap();
                }
            }
            1 => action.push_str("SET sys.Label = 'changed'; REMOVE p"),
            2 => action.push_str("SET x = 1 / 0"),
            _ => return rule,
        }
        rule.with_action(&*action)
    }

    fn large(&mut self) -> InboundMessage {
        let bytes = if self.one_in(2) { 20_000 } else { self.below(20_000) };
        let text = "a".repeat(usize::try_from(bytes).unwrap());
        let mut message = Message::new("x")
            .with_application_property("p", text)
            .with_application_property("kind", "k");
        if self.one_in(2) {
            message = message.with_session_id(self.text(128));
        }
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        InboundMessage { content, envelope }
    }
}

/// Judges a command ahead as a shell does; returns the number of slices.
fn judged(machine: &mut impl Machine, command: &Command, limits: &Limits) -> usize {
    let mut slices = 1;
    loop {
        let mut ctx = Ctx {
            now: now(),
            stage: StageNumber(1),
            stored_bytes: 0,
            room: Reserved::Granted,
            remaining: RemainingCapacity::ALL,
            limits,
            tokens: &mut || 7,
        };
        if machine.prepare(Preparation::Command { ticket: Ticket(1), command }, &mut ctx) {
            return slices;
        }
        slices += 1;
    }
}

/// DESIGN D11, QUO-07: properties that rules set on copies are reserved before they are stored,
/// with any number of subscriptions, and the reservation is not much larger.
#[test]
fn properties_set_by_rules_are_reserved() {
    let limits = Limits::default();
    let mut random = Random(0x1234_5678_9abc_def1);
    let (mut carried_out, mut beyond, mut nearest) = (0, 0, 0.0_f64);
    for subscriptions in [1, 5, 40, 300] {
        let description = TopicDescription {
            max_size_in_megabytes: 80 << 10,
            ..TopicDescription::new("events", &limits)
        };
        let mut topic = Topic::new(EntityId(1), description, config(), now());
        for number in 0..subscriptions {
            let description = SubscriptionDescription {
                requires_session: random.one_in(4),
                ..SubscriptionDescription::new("events", number.to_string(), &limits)
            };
            let rules = (0..1 + random.below(3)).map(|at| random.rule(at)).collect();
            let command = Command::OfTopic(TopicCommand::CreateSubscription {
                id: EntityId(number + 2),
                description: Box::new(description),
                rules,
            });
            written(&mut topic, command, &limits).unwrap();
        }
        for _ in 0..40 {
            let command = match random.below(3) {
                0 => Command::SendBatch { messages: vec![random.large(), random.message()] },
                1 => Command::Send { message: random.message() },
                _ => Command::Send { message: random.large() },
            };
            let (stored, told) = (command.cost().stored.unwrap(), format!("{command:?}"));
            judged(&mut topic, &command, &limits);
            let reserved = topic.room_of(stored);
            let Some(batch) = written(&mut topic, command, &limits) else { continue };
            assert!(batch.bytes() <= reserved, "{} of {reserved}: {told:.200}", batch.bytes());
            carried_out += 1;
            beyond += usize::from(batch.bytes() > stored.bytes + (4 << 20));
            nearest = nearest.max(batch.bytes() as f64 / reserved as f64);
        }
    }
    assert!(
        carried_out > 100 && beyond > 5,
        "{carried_out} carried out, {beyond} of more than 4 MiB"
    );
    assert!(nearest > 0.8, "{nearest}: too much is reserved");
}

/// QUO-08, QUO-09: the memory of a rule is bounded by its text, for any text: the census counts at
/// most a fixed multiple.
#[test]
fn memory_of_a_rule_is_bounded_by_its_text() {
    let limits = Limits::default();
    let mut random = Random(0xfeed_beef_dead_cafe);
    let description = TopicDescription::new("events", &limits);
    let mut topic = Topic::new(EntityId(1), description, config(), now());
    let id = EntityId(2);
    let description = SubscriptionDescription::new("events", "s", &limits);
    let create =
        TopicCommand::CreateSubscription { id, description: Box::new(description), rules: vec![] };
    written(&mut topic, Command::OfTopic(create), &limits).unwrap();
    let mut most = 0.0_f64;
    for number in 0..300 {
        let rule = match random.below(3) {
            0 => random.rule(number),
            1 => {
                let text = "a_".repeat(usize::try_from(1 + random.below(500)).unwrap());
                let filter = Filter::sql(format!("p LIKE '%{text}'"));
                RuleDescription::new(format!("r{number}"), filter, now())
            }
            _ => {
                let count = 1 + random.below(256);
                let each = |filter: CorrelationFilter, at| {
                    filter.and_property(format!("p{at}"), i64::try_from(at).unwrap())
                };
                let filter = (0..count).fold(CorrelationFilter::default(), each);
                RuleDescription::new(format!("r{number}"), Filter::Correlation(filter), now())
            }
        };
        let (bytes, before) = (rule.bytes(), topic.memory_use().described_bytes);
        let command = RuleCommand::Create(Box::new(rule));
        let command = TopicCommand::InSubscription { subscription: id, command };
        written(&mut topic, Command::OfTopic(command), &limits).unwrap();
        let taken = topic.memory_use().described_bytes - before;
        most = most.max(taken as f64 / (bytes + 256) as f64);
    }
    // A character of a pattern with `_` is stored with its positions.
    assert!(most < 20.0, "a rule takes {most} times what it says");
}
