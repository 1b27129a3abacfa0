//! Helpers for tests of rules: messages, topics and copies.

use super::*;
use crate::condition::Condition;
use crate::ids::{EntityId, SequenceNumber};
use crate::limits::Tier;
use crate::message::{Content, Message, MessageId, Value};
use crate::time::{TimeSpan, Timestamp};

mod action;
mod correlation;
mod explain;
mod matcher;
mod predicted;

const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);
const SUBSCRIPTION: EntityId = EntityId(1);

fn limits() -> Limits {
    Limits::of(Tier::Premium)
}

fn message() -> Message {
    Message::new("body").with_message_id("m")
}

fn with(properties: &[(&str, Value)]) -> Message {
    let mut message = message();
    message.application_properties =
        properties.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    message
}

fn facts(content: &Content) -> Facts<'static> {
    Facts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: NOW,
        expires_at: None,
        time_to_live: content.time_to_live(),
        size: u64::from(content.size()),
        dead_letter_source: None,
    }
}

fn sql(name: &str, text: &str) -> RuleDescription {
    RuleDescription::new(name, Filter::sql(text), NOW)
}

fn correlated(name: &str, filter: CorrelationFilter) -> RuleDescription {
    RuleDescription::new(name, Filter::Correlation(filter), NOW)
}

/// A topic with one subscription that has these rules.
fn topic(rules: Vec<RuleDescription>) -> Matcher {
    let mut matcher = Matcher::new();
    create(&mut matcher, SUBSCRIPTION, rules).unwrap();
    matcher
}

fn create(
    matcher: &mut Matcher,
    id: EntityId,
    rules: Vec<RuleDescription>,
) -> Result<(), Rejection> {
    let settings = SubscriptionSettings {
        dead_lettering_on_filter_errors: true,
        requires_session: false,
        catch_all: false,
    };
    let default = RuleDescription::default_rule(NOW);
    matcher.create_subscription(id, settings, rules, default, &limits())
}

fn publish(matcher: &Matcher, message: &Message) -> Selection {
    let content = message.encode();
    let published = PublishedMessage::new(content.property_view(), facts(&content));
    let mut bits = 0;
    let mut random = || {
        bits += 1;
        bits
    };
    matcher.publish(&content, &published, &limits(), &mut random)
}

/// The message after the changes of the copy.
fn copy_of(message: &Message, copy: &Copy) -> Message {
    let mut copied = message.clone();
    if let Some(changed) = &copy.changed {
        copied.apply_overlay(&changed.overlay);
    }
    copied
}
