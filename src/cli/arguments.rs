//! Arguments that several commands share. Each names the unit or form that it expects in its error.

use clap::Args;
use peeklock::command::NewInstant;
use peeklock::description::EntityStatus;
use peeklock::path::{EntityAddress, EntityName, SubQueue, dead_letter_path, subscription_path};
use peeklock::time::{TimeSpan, Timestamp};

use crate::config::FromText;

/// A queue or its dead-letter queue.
#[derive(Args)]
pub struct Source {
    /// Queue, such as `orders`, or subscription, such as `orders/subscriptions/eu`
    queue: String,
    /// Use its dead-letter queue instead
    #[arg(short, long)]
    dead_letter: bool,
}

impl Source {
    /// Path of the queue or its dead-letter queue.
    pub fn path(&self) -> String {
        if self.dead_letter { dead_letter_path(&self.queue) } else { self.queue.clone() }
    }

    pub const fn is_dead_letter(&self) -> bool {
        self.dead_letter
    }
}

/// New time of a scheduled message: an instant, a shift, or `now` without any.
pub fn new_instant(
    at: Option<When>,
    later: Option<TimeSpan>,
    earlier: Option<TimeSpan>,
    now: Timestamp,
) -> NewInstant {
    match (at, later, earlier) {
        (Some(at), ..) => NewInstant::At(at.from(now)),
        (_, Some(shift), _) => NewInstant::Later(shift),
        (.., Some(shift)) => NewInstant::Earlier(shift),
        _ => NewInstant::Now,
    }
}

/// Time at which a message becomes available: an instant, or a delay from now.
#[derive(Clone, Copy)]
pub enum When {
    At(Timestamp),
    In(TimeSpan),
}

impl When {
    pub const fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(span) => now.plus(span),
        }
    }
}

pub fn when(text: &str) -> Result<When, String> {
    if let Some(span) = text.strip_prefix('+') {
        return span_of(span).map(When::In);
    }
    Timestamp::parse(text).map(When::At).ok_or_else(|| {
        "expected an instant such as 2026-05-01T12:00:00Z, or +10m for 10 minutes from now"
            .to_owned()
    })
}

pub fn span_of(text: &str) -> Result<TimeSpan, String> {
    TimeSpan::from_text(text).ok_or_else(|| format!("expected {}", TimeSpan::EXPECTED))
}

pub fn status_of(text: &str) -> Result<EntityStatus, String> {
    const NAMES: [&str; 4] = ["Active", "Disabled", "SendDisabled", "ReceiveDisabled"];
    let name = NAMES.iter().find(|name| name.eq_ignore_ascii_case(text)).unwrap_or(&text);
    EntityStatus::from_text(name).ok_or_else(|| format!("expected {}", EntityStatus::EXPECTED))
}

/// Parses the sequence number of a message.
pub fn sequence_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a sequence number, such as 1001".to_owned())
}

/// Parses a topic path; refuses subscriptions and sub-queues.
pub fn topic_of(text: &str) -> Result<String, String> {
    match EntityAddress::parse(text) {
        Ok(address) if matches!(address.entity, EntityName::Subscription { .. }) => {
            Err("this is the path of a subscription; give only the topic".into())
        }
        Ok(address) if address.sub_queue != SubQueue::Main => {
            Err("this is a sub-queue; give only the topic".into())
        }
        _ => Ok(text.to_owned()),
    }
}

/// A subscription of a topic.
#[derive(Args)]
pub struct SubscriptionName {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of)]
    pub topic: String,
    /// Subscription of the topic, such as `eu`
    pub subscription: String,
}

impl SubscriptionName {
    pub fn path(&self) -> String {
        subscription_path(&self.topic, &self.subscription)
    }
}

/// Parses a queue path; refuses sub-queues.
pub fn queue_of(text: &str) -> Result<String, String> {
    match EntityAddress::parse(text) {
        Ok(address) if address.sub_queue != SubQueue::Main => {
            Err("this is a sub-queue; give the queue, and --dead-letter if the command has that \
                flag"
                .into())
        }
        _ => Ok(text.to_owned()),
    }
}
