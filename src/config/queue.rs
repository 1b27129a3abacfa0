//! A declaration `[[queues]]`: a queue as it shall be.

use peeklock::declaration::DeclaredQueue;
use peeklock::description::{EntityStatus, QueueDescription, QueueUpdate, SessionRetryOrder};
use peeklock::time::TimeSpan;
use serde::{Deserialize, Serialize};

use super::declared::{Usual, bare, cleared, some, some_text, text};
use super::retry::RetryDeclaration;
use super::text::Scalar;

/// A queue and the properties that are named (DEC-02).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with the properties of a queue")]
pub struct QueueDeclaration {
    /// The path of the queue.
    pub name: String,
    lock_duration: Option<Scalar<TimeSpan>>,
    max_size_in_megabytes: Option<Scalar<u64>>,
    requires_duplicate_detection: Option<Scalar<bool>>,
    duplicate_detection_history_time_window: Option<Scalar<TimeSpan>>,
    requires_session: Option<Scalar<bool>>,
    default_message_time_to_live: Option<Scalar<TimeSpan>>,
    // The older name of the property (EXP-24).
    #[serde(
        alias = "enable_dead_lettering_on_message_expiration",
        alias = "EnableDeadLetteringOnMessageExpiration"
    )]
    dead_lettering_on_message_expiration: Option<Scalar<bool>>,
    max_delivery_count: Option<Scalar<u32>>,
    enable_batched_operations: Option<Scalar<bool>>,
    status: Option<Scalar<EntityStatus>>,
    forward_to: Option<Scalar<String>>,
    forward_dead_lettered_messages_to: Option<Scalar<String>>,
    auto_delete_on_idle: Option<Scalar<TimeSpan>>,
    enable_partitioning: Option<Scalar<bool>>,
    enable_express: Option<Scalar<bool>>,
    max_message_size_in_kilobytes: Option<Scalar<u64>>,
    user_metadata: Option<Scalar<String>>,
    session_retry_order: Option<Scalar<SessionRetryOrder>>,
    retry_policy: Option<RetryDeclaration>,
}

impl QueueDeclaration {
    /// What the broker is asked for.
    pub fn declared(&self) -> DeclaredQueue {
        let properties = QueueUpdate {
            lock_duration: bare(self.lock_duration),
            max_size_in_megabytes: bare(self.max_size_in_megabytes),
            requires_duplicate_detection: bare(self.requires_duplicate_detection),
            duplicate_detection_history_time_window: bare(
                self.duplicate_detection_history_time_window,
            ),
            requires_session: bare(self.requires_session),
            default_message_time_to_live: bare(self.default_message_time_to_live),
            dead_lettering_on_message_expiration: bare(self.dead_lettering_on_message_expiration),
            max_delivery_count: bare(self.max_delivery_count),
            enable_batched_operations: bare(self.enable_batched_operations),
            status: bare(self.status),
            forward_to: text(&self.forward_to),
            forward_dead_lettered_messages_to: text(&self.forward_dead_lettered_messages_to),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            enable_partitioning: bare(self.enable_partitioning),
            enable_express: bare(self.enable_express),
            max_message_size_in_kilobytes: bare(self.max_message_size_in_kilobytes),
            user_metadata: text(&self.user_metadata),
            retry_policy: self.retry_policy.map(RetryDeclaration::policy),
            session_retry_order: bare(self.session_retry_order),
            extensions: None,
        };
        let forward_dead_letters_to = &self.forward_dead_lettered_messages_to;
        let cleared = cleared(&self.forward_to, forward_dead_letters_to, &self.user_metadata);
        DeclaredQueue { path: self.name.as_str().into(), properties, cleared }
    }

    /// Leaves out what every new queue has, or names it.
    pub(super) fn with_usual(&mut self, usual: Usual) {
        for flag in [
            &mut self.requires_duplicate_detection,
            &mut self.requires_session,
            &mut self.dead_lettering_on_message_expiration,
            &mut self.enable_partitioning,
            &mut self.enable_express,
        ] {
            usual.of(flag, false);
        }
        usual.of(&mut self.enable_batched_operations, true);
        usual.of(&mut self.status, EntityStatus::Active);
        usual.of(&mut self.session_retry_order, SessionRetryOrder::Hold);
    }
}

impl From<&QueueDescription> for QueueDeclaration {
    fn from(queue: &QueueDescription) -> Self {
        Self {
            name: queue.path.to_string(),
            lock_duration: some(queue.lock_duration),
            max_size_in_megabytes: some(queue.max_size_in_megabytes),
            requires_duplicate_detection: some(queue.requires_duplicate_detection),
            duplicate_detection_history_time_window: some(
                queue.duplicate_detection_history_time_window,
            ),
            requires_session: some(queue.requires_session),
            default_message_time_to_live: some(queue.default_message_time_to_live),
            dead_lettering_on_message_expiration: some(queue.dead_lettering_on_message_expiration),
            max_delivery_count: some(queue.max_delivery_count),
            enable_batched_operations: some(queue.enable_batched_operations),
            status: some(queue.status),
            forward_to: some_text(&queue.forward_to),
            forward_dead_lettered_messages_to: some_text(&queue.forward_dead_lettered_messages_to),
            auto_delete_on_idle: some(queue.auto_delete_on_idle),
            enable_partitioning: some(queue.enable_partitioning),
            enable_express: some(queue.enable_express),
            max_message_size_in_kilobytes: some(queue.max_message_size_in_kilobytes),
            user_metadata: some_text(&queue.user_metadata),
            session_retry_order: some(queue.session_retry_order),
            retry_policy: queue.retry_policy.map(Into::into),
        }
    }
}
