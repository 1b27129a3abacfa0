//! The properties of a topic as flags, under their names in the description.

use clap::{ArgAction, Args};
use peeklock::description::{EntityStatus, TopicUpdate};
use peeklock::time::TimeSpan;

use super::super::arguments::{span_of, status_of};

/// Durations are `30s`, `1h 30m`, `PT30S`, `P1D` or `unlimited`.
#[derive(Args)]
#[command(next_help_heading = "Properties")]
pub struct Properties {
    /// Time to live of messages without their own, and maximum for the others, such as 14d
    #[arg(long, value_name = "DURATION", value_parser = span_of, visible_alias = "ttl")]
    default_message_time_to_live: Option<TimeSpan>,
    /// Maximum total size of messages, over all subscriptions
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
    /// Delete the topic after it and its subscriptions were unused for this long, such as 7d
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    auto_delete_on_idle: Option<TimeSpan>,
    /// Active, Disabled or SendDisabled
    #[arg(long, value_name = "STATUS", value_parser = status_of)]
    status: Option<EntityStatus>,
    /// Text for your own use
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
    /// Stored without effect: order is always kept
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    support_ordering: Option<bool>,
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
}

impl Properties {
    /// What is given.
    pub fn update(&self) -> TopicUpdate {
        TopicUpdate {
            max_size_in_megabytes: self.max_size_in_megabytes,
            requires_duplicate_detection: self.requires_duplicate_detection,
            duplicate_detection_history_time_window: self.duplicate_detection_history_time_window,
            default_message_time_to_live: self.default_message_time_to_live,
            enable_batched_operations: self.enable_batched_operations,
            status: self.status,
            auto_delete_on_idle: self.auto_delete_on_idle,
            enable_partitioning: self.enable_partitioning,
            enable_express: self.enable_express,
            support_ordering: self.support_ordering,
            max_message_size_in_kilobytes: self.max_message_size_in_kilobytes,
            user_metadata: self.user_metadata.as_deref().map(Box::from),
            extensions: None,
        }
    }
}
