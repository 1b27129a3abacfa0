//! A declaration `[[queues]]`: a queue that is created at start where it is absent.

use peeklock::description::{EntityStatus, QueueDescription, QueueUpdate};
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::Scalar;

/// A queue and the properties that shall differ from the defaults (ENT-03).
#[derive(Clone, Debug, Deserialize)]
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
}

impl QueueDeclaration {
    /// The properties as a request to create the queue names them.
    pub fn properties(&self) -> QueueUpdate {
        fn bare<T: Copy>(property: Option<Scalar<T>>) -> Option<T> {
            property.map(|Scalar(value)| value)
        }
        fn text(property: Option<&Scalar<String>>) -> Option<Box<str>> {
            property.map(|Scalar(value)| value.as_str().into())
        }
        QueueUpdate {
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
            forward_to: text(self.forward_to.as_ref()),
            forward_dead_lettered_messages_to: text(
                self.forward_dead_lettered_messages_to.as_ref(),
            ),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            enable_partitioning: bare(self.enable_partitioning),
            enable_express: bare(self.enable_express),
            max_message_size_in_kilobytes: bare(self.max_message_size_in_kilobytes),
            user_metadata: text(self.user_metadata.as_ref()),
            retry_policy: None,
            session_retry_order: None,
            extensions: None,
        }
    }
}

/// The properties in which an existing queue differs from its declaration, by the names of the
/// configuration file. Properties that the declaration leaves out do not count.
pub fn differences(declared: &QueueUpdate, existing: &QueueDescription) -> Vec<&'static str> {
    fn differs<T: PartialEq>(declared: Option<T>, existing: T) -> bool {
        declared.is_some_and(|declared| declared != existing)
    }
    fn differs_text(declared: Option<&str>, existing: Option<&str>) -> bool {
        declared.is_some() && declared != existing
    }
    let properties = [
        (differs(declared.lock_duration, existing.lock_duration), "lock_duration"),
        (
            differs(declared.max_size_in_megabytes, existing.max_size_in_megabytes),
            "max_size_in_megabytes",
        ),
        (
            differs(declared.requires_duplicate_detection, existing.requires_duplicate_detection),
            "requires_duplicate_detection",
        ),
        (
            differs(
                declared.duplicate_detection_history_time_window,
                existing.duplicate_detection_history_time_window,
            ),
            "duplicate_detection_history_time_window",
        ),
        (differs(declared.requires_session, existing.requires_session), "requires_session"),
        (
            differs(declared.default_message_time_to_live, existing.default_message_time_to_live),
            "default_message_time_to_live",
        ),
        (
            differs(
                declared.dead_lettering_on_message_expiration,
                existing.dead_lettering_on_message_expiration,
            ),
            "dead_lettering_on_message_expiration",
        ),
        (differs(declared.max_delivery_count, existing.max_delivery_count), "max_delivery_count"),
        (
            differs(declared.enable_batched_operations, existing.enable_batched_operations),
            "enable_batched_operations",
        ),
        (differs(declared.status, existing.status), "status"),
        (
            differs_text(declared.forward_to.as_deref(), existing.forward_to.as_deref()),
            "forward_to",
        ),
        (
            differs_text(
                declared.forward_dead_lettered_messages_to.as_deref(),
                existing.forward_dead_lettered_messages_to.as_deref(),
            ),
            "forward_dead_lettered_messages_to",
        ),
        (
            differs(declared.auto_delete_on_idle, existing.auto_delete_on_idle),
            "auto_delete_on_idle",
        ),
        (
            differs(declared.enable_partitioning, existing.enable_partitioning),
            "enable_partitioning",
        ),
        (differs(declared.enable_express, existing.enable_express), "enable_express"),
        (
            differs(declared.max_message_size_in_kilobytes, existing.max_message_size_in_kilobytes),
            "max_message_size_in_kilobytes",
        ),
        (
            differs_text(declared.user_metadata.as_deref(), existing.user_metadata.as_deref()),
            "user_metadata",
        ),
    ];
    properties.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock::description::Settings;

    #[test]
    fn only_declared_properties_can_differ() {
        let existing = Settings::default().new_queue("orders");
        assert!(differences(&QueueUpdate::default(), &existing).is_empty());
        let declared = QueueUpdate {
            lock_duration: Some(existing.lock_duration),
            max_delivery_count: Some(3),
            user_metadata: Some("billing".into()),
            ..QueueUpdate::default()
        };
        assert_eq!(differences(&declared, &existing), ["max_delivery_count", "user_metadata"]);
    }
}
