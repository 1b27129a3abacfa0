//! Conditions on messages in the SQL of rules, such as `--where "price > 5 AND sys.DeliveryCount >
//! 1"`. `peek`, `receive` and the `dlq` commands share them. They are evaluated in this process.

use peeklock::command::MessageState;
use peeklock::limits::{Limits, Tier};
use peeklock::rule::sql::{Fault, Operand, Unobserved};
use peeklock::rule::{
    Facts, Filter, Properties, PublishedMessage, Rule, RuleDescription, SystemProperty,
};
use peeklock::time::Timestamp;
use peeklock::websocket::client::Received;

use super::Failure;

/// Text of a valid condition.
#[derive(Clone)]
pub struct SqlCondition {
    text: String,
}

/// Condition that can be evaluated.
pub struct Compiled(Rule);

/// Parses a condition; the error describes the mistake and its place.
pub fn sql_condition(text: &str) -> Result<SqlCondition, String> {
    let condition = SqlCondition { text: text.to_owned() };
    condition.compile().map(|_| condition)
}

impl SqlCondition {
    fn compile(&self) -> Result<Compiled, String> {
        let rule = RuleDescription::new("where", Filter::sql(self.text.as_str()), Timestamp::NONE);
        Rule::create(rule, &Limits::of(Tier::default()))
            .map(Compiled)
            .map_err(|rejection| rejection.detail().to_owned())
    }

    /// Compiles the condition.
    pub fn ready(&self) -> Result<Compiled, Failure> {
        self.compile().map_err(Failure::usage)
    }
}

impl Compiled {
    /// Whether the condition is true for a message.
    ///
    /// # Errors
    /// If the condition cannot be evaluated, for example because it compares a number with a text.
    pub fn holds(&self, message: &Received) -> Result<bool, Fault> {
        let content = message.message().encode();
        let facts = Facts {
            sequence: message.sequence_number(),
            enqueued_sequence: message.facts().enqueued_sequence,
            enqueued_at: message.enqueued_at(),
            expires_at: message.expires_at().filter(|at| !at.is_never()),
            time_to_live: message.time_to_live().filter(|span| !span.is_unlimited()),
            size: u64::from(content.size()),
            dead_letter_source: message.dead_letter_source(),
        };
        let stored =
            Stored { published: PublishedMessage::new(content.property_view(), facts), message };
        let mut random = || getrandom::u64().unwrap_or_default();
        let tested = self.0.test(&stored, &mut random, &mut Unobserved);
        tested.map(|result| result == Some(true)).map_err(|error| error.fault)
    }
}

/// A message, as a condition sees it.
struct Stored<'a> {
    published: PublishedMessage<'a>,
    message: &'a Received,
}

impl Properties for Stored<'_> {
    fn system(&self, property: SystemProperty) -> Operand<'_> {
        match property {
            SystemProperty::DeliveryCount => Operand::U32(self.message.delivery_count()),
            SystemProperty::State => Operand::text(match self.message.state() {
                MessageState::Active | MessageState::Delayed => "Active",
                MessageState::Deferred => "Deferred",
                MessageState::Scheduled => "Scheduled",
            }),
            property => self.published.system(property),
        }
    }

    fn user(&self, name: &str) -> Option<Operand<'_>> {
        self.published.user(name)
    }

    fn lookup_steps(&self) -> u64 {
        self.published.lookup_steps()
    }
}
