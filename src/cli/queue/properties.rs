//! The properties of a queue as flags, under their names in the description.

use clap::{ArgAction, Args};
use peeklock::description::{EntityStatus, QueueUpdate};
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
    /// Maximum total size of messages
    #[arg(long, value_name = "MIB")]
    max_size_in_megabytes: Option<u64>,
    /// Maximum size of one message
    #[arg(long, value_name = "KIB")]
    max_message_size_in_kilobytes: Option<u64>,
    /// Drop messages with a message id that was seen before; fixed at creation
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    requires_duplicate_detection: Option<bool>,
    /// Time during which message ids are remembered, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    duplicate_detection_history_time_window: Option<TimeSpan>,
    /// Delete the queue after it was unused for this long, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    auto_delete_on_idle: Option<TimeSpan>,
    /// Active, Disabled, SendDisabled or ReceiveDisabled
    #[arg(long, value_name = "STATUS", value_parser = status_of)]
    status: Option<EntityStatus>,
    /// Text for your own use
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
    /// Require a session for each message, and receive by session; fixed at creation
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    requires_session: Option<bool>,
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
    /// Stored without effect; fixed at creation
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    enable_partitioning: Option<bool>,
    /// Stored without effect
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    enable_express: Option<bool>,
    #[command(flatten)]
    retries: Retries,
}

impl Properties {
    /// What is given.
    pub fn update(&self) -> QueueUpdate {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        QueueUpdate {
            lock_duration: self.lock_duration,
            max_size_in_megabytes: self.max_size_in_megabytes,
            requires_duplicate_detection: self.requires_duplicate_detection,
            duplicate_detection_history_time_window: self.duplicate_detection_history_time_window,
            requires_session: self.requires_session,
            default_message_time_to_live: self.default_message_time_to_live,
            dead_lettering_on_message_expiration: self.dead_lettering_on_message_expiration,
            max_delivery_count: self.max_delivery_count,
            enable_batched_operations: self.enable_batched_operations,
            status: self.status,
            forward_to: text(&self.forward_to),
            forward_dead_lettered_messages_to: text(&self.forward_dead_lettered_messages_to),
            auto_delete_on_idle: self.auto_delete_on_idle,
            enable_partitioning: self.enable_partitioning,
            enable_express: self.enable_express,
            max_message_size_in_kilobytes: self.max_message_size_in_kilobytes,
            user_metadata: text(&self.user_metadata),
            retry_policy: self.retries.policy(),
            session_retry_order: self.retries.order(),
            extensions: None,
        }
    }
}
