//! The properties of a subscription as flags, under their names in the description.

use clap::{ArgAction, Args};
use peeklock::description::{EntityStatus, SubscriptionUpdate};
use peeklock::time::TimeSpan;

use super::super::arguments::{delivery_count, span_of, status_of};
use super::super::retry::Retries;

/// Durations are `30s`, `1h 30m`, `PT30S`, `P1D` or `unlimited`.
#[derive(Args)]
#[command(next_help_heading = "Properties")]
pub struct Properties {
    /// Lock duration of a received message, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    lock_duration: Option<TimeSpan>,
    /// Number of failed deliveries after which a message is dead-lettered
    #[arg(long, value_name = "N", value_parser = delivery_count())]
    max_delivery_count: Option<u32>,
    /// Time to live of messages without their own, and maximum for the others, such as 14d
    #[arg(long, value_name = "DURATION", value_parser = span_of, visible_alias = "ttl")]
    default_message_time_to_live: Option<TimeSpan>,
    /// Dead-letter expired messages instead of removing them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    dead_lettering_on_message_expiration: Option<bool>,
    /// Dead-letter a message if a filter or an action fails on it; otherwise that rule does not
    /// select it. If some kinds of messages fail regularly, their dead letters pile up
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    enable_dead_lettering_on_filter_evaluation_exceptions: Option<bool>,
    /// Delete the subscription after it was unused for this long, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    auto_delete_on_idle: Option<TimeSpan>,
    /// Active, Disabled or ReceiveDisabled
    #[arg(long, value_name = "STATUS", value_parser = status_of)]
    status: Option<EntityStatus>,
    /// Text for your own use
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
    /// Require a session for each message, and receive by session; fixed at creation
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    requires_session: Option<bool>,
    /// Get only messages that no other subscription of the topic selects
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    catch_all: Option<bool>,
    /// Forward messages to this existing queue or topic
    #[arg(long, value_name = "ENTITY")]
    forward_to: Option<String>,
    /// Forward dead-lettered messages to this existing queue or topic
    #[arg(long, value_name = "ENTITY")]
    forward_dead_lettered_messages_to: Option<String>,
    /// Stored without effect
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    enable_batched_operations: Option<bool>,
    #[command(flatten)]
    retries: Retries,
}

impl Properties {
    /// What is given.
    pub fn update(&self) -> SubscriptionUpdate {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        SubscriptionUpdate {
            lock_duration: self.lock_duration,
            requires_session: self.requires_session,
            default_message_time_to_live: self.default_message_time_to_live,
            dead_lettering_on_message_expiration: self.dead_lettering_on_message_expiration,
            enable_dead_lettering_on_filter_evaluation_exceptions: self
                .enable_dead_lettering_on_filter_evaluation_exceptions,
            max_delivery_count: self.max_delivery_count,
            enable_batched_operations: self.enable_batched_operations,
            status: self.status,
            forward_to: text(&self.forward_to),
            forward_dead_lettered_messages_to: text(&self.forward_dead_lettered_messages_to),
            auto_delete_on_idle: self.auto_delete_on_idle,
            user_metadata: text(&self.user_metadata),
            retry_policy: self.retries.policy(),
            session_retry_order: self.retries.order(),
            catch_all: self.catch_all,
            extensions: None,
        }
    }
}
