//! The table of all properties of queues, topics and subscriptions. A property is one constant with
//! its facts, and one line in the list of each entity that has it. All interfaces read this table
//! (CONTRIBUTING.md, "Add a property").

use std::borrow::Cow;

use super::field::{
    Description, Facts, Field, FieldKind, FieldType, FieldValue, by_kind, entity, name_of,
    named_of, value_of,
};
use super::{EntityKind, EntityStatus, RetryPolicy, SessionRetryOrder, Settings};
use crate::error::Rejection;
use crate::limits::Limits;
use crate::time::TimeSpan;

const LOCK_DURATION: Facts = Facts {
    range: Some(|limits| {
        [limits.lock_duration_min, limits.lock_duration_max].map(FieldValue::Span)
    }),
    example: "30s",
    ..Facts::with_default(1, 10, "lock duration", "Lock duration of a received message", |limits| {
        FieldValue::Span(limits.lock_duration_default)
    })
};
const MAX_SIZE: Facts = Facts {
    range: Some(|limits| {
        [limits.entity_megabytes_min, limits.entity_megabytes_max].map(FieldValue::Size)
    }),
    ..Facts::with_default(2, 80, "max size", "Maximum total size of messages", |limits| {
        FieldValue::Size(limits.entity_megabytes_default)
    })
};
const DUPLICATE_DETECTION: Facts = Facts {
    is_fixed: true,
    needs_standard: true,
    ..Facts::flag(
        3,
        100,
        "duplicate detection",
        "Drop messages with a message id that was seen before",
    )
};
const DUPLICATE_WINDOW: Facts = Facts {
    range: Some(|limits| {
        [limits.duplicate_window_min, limits.duplicate_window_max].map(FieldValue::Span)
    }),
    example: "10m",
    ..Facts::with_default(
        4,
        110,
        "duplicate window",
        "Time during which message ids are remembered",
        |limits| FieldValue::Span(limits.duplicate_window_default),
    )
};
const SESSION: Facts = Facts {
    is_fixed: true,
    needs_standard: true,
    ..Facts::flag(
        5,
        160,
        "requires sessions",
        "Require a session for each message, and receive by session",
    )
};
const TIME_TO_LIVE: Facts = Facts {
    range: Some(|limits| [limits.time_to_live_min, limits.time_to_live_max].map(FieldValue::Span)),
    example: "14d",
    flag_alias: Some("ttl"),
    ..Facts::with_default(
        6,
        50,
        "default time to live",
        "Time to live of messages without their own, and maximum for the others",
        |limits| FieldValue::Span(limits.time_to_live_max),
    )
};
const DEAD_LETTER_EXPIRED: Facts = Facts {
    // Older names of the property (EXP-24).
    aliases: &[
        "enable_dead_lettering_on_message_expiration",
        "EnableDeadLetteringOnMessageExpiration",
    ],
    ..Facts::flag(
        7,
        60,
        "dead-letters expired",
        "Dead-letter expired messages instead of removing them",
    )
};
const DEAD_LETTER_RULE_FAILURES: Facts = Facts {
    default: |_| FieldValue::Flag(true),
    element: Some("DeadLetteringOnFilterEvaluationExceptions"),
    ..Facts::flag(
        8,
        70,
        "dead-letters rule failures",
        "Dead-letter a message if a filter or an action fails on it; otherwise that rule does not select it. If some \
         kinds of messages fail regularly, their dead letters pile up",
    )
};
const DELIVERY_COUNT: Facts = Facts {
    range: Some(|limits| [1, limits.delivery_count_max].map(FieldValue::Count)),
    ..Facts::with_default(
        9,
        20,
        "max delivery count",
        "Number of failed deliveries after which a message is dead-lettered",
        |limits| FieldValue::Count(limits.delivery_count_default),
    )
};
const BATCHED: Facts = Facts {
    default: |_| FieldValue::Flag(true),
    ..Facts::flag(10, 200, "batched operations", "Stored without effect")
};
const STATUS: Facts = Facts::with_default(
    11,
    130,
    "status",
    "Active, Disabled, SendDisabled or ReceiveDisabled",
    |_| FieldValue::Status(EntityStatus::Active),
);
const FORWARD_TO: Facts = Facts {
    needs_standard: true,
    ..Facts::text(12, 180, "forwards to", "Forward messages to this existing queue or topic")
};
const FORWARD_DEAD_LETTERS_TO: Facts = Facts {
    needs_standard: true,
    ..Facts::text(
        13,
        190,
        "dead letters forward to",
        "Forward dead-lettered messages to this existing queue or topic",
    )
};
const AUTO_DELETE: Facts = Facts {
    range: Some(|limits| [limits.auto_delete_on_idle_min, TimeSpan::MAX].map(FieldValue::Span)),
    example: "7d",
    needs_standard: true,
    ..Facts::with_default(
        14,
        120,
        "auto-delete on idle",
        "Delete the queue after it was unused for this long",
        |_| FieldValue::Span(TimeSpan::MAX),
    )
};
const PARTITIONING: Facts = Facts {
    is_fixed: true,
    ..Facts::flag(
        15,
        210,
        "partitioning",
        "Below Premium, allow 16 times the maximum size; no other effect",
    )
};
const EXPRESS: Facts = Facts::flag(16, 220, "express", "Stored without effect");
const SUPPORT_ORDERING: Facts = Facts {
    default: |_| FieldValue::Flag(true),
    ..Facts::flag(17, 150, "ordering", "Stored without effect: order is always kept")
};
const MAX_MESSAGE_SIZE: Facts = Facts {
    is_kept_if_absent: true,
    range: Some(|limits| {
        [limits.message_bytes_min / 1_024, limits.message_bytes_max / 1_024].map(FieldValue::Size)
    }),
    ..Facts::with_default(18, 90, "max message size", "Maximum size of one message", |limits| {
        FieldValue::Size(limits.message_bytes_default / 1_024)
    })
};
const USER_METADATA: Facts = Facts {
    range: Some(|limits| [0, limits.user_metadata_chars_max as u64].map(FieldValue::Size)),
    ..Facts::text(19, 140, "user metadata", "Text for your own use")
};
const RETRY_POLICY: Facts = Facts {
    is_in_azure: false,
    ..Facts::with_default(
        20,
        30,
        "retries",
        "Time of the next delivery after a failed one; a failed message comes again at once without a policy",
        |_| FieldValue::Retry(None),
    )
};
const SESSION_RETRY_ORDER: Facts = Facts {
    is_in_azure: false,
    ..Facts::with_default(
        21,
        40,
        "session retry order",
        "Order within a session while a message is delayed",
        |_| FieldValue::Order(SessionRetryOrder::Hold),
    )
};
const CATCH_ALL: Facts = Facts {
    is_in_azure: false,
    ..Facts::flag(
        22,
        170,
        "catch-all",
        "Get only messages that no other subscription of the topic selects",
    )
};

entity! {
    /// All properties of a queue with their effective values (ENT-31).
    QueueDescription, QueueProperties, Queue named by {
        /// The path in the case given at creation (ADR-06), valid by `path::validate_entity_path`.
        path,
    }
    /// Lock duration of a received message (ENT-06); applies to locks taken or renewed from now on
    /// (ENT-18).
    lock_duration: Span = LOCK_DURATION,
    /// Quota of the queue in MiB (ENT-10).
    max_size_in_megabytes: Megabytes = MAX_SIZE,
    /// Whether message ids are remembered (DUP-01); fixed at creation (ENT-16).
    requires_duplicate_detection: Flag = DUPLICATE_DETECTION,
    /// Time during which message ids are remembered (DUP-04).
    duplicate_detection_history_time_window: Span = DUPLICATE_WINDOW,
    /// Whether messages belong to sessions; fixed at creation (ENT-16).
    requires_session: Flag = SESSION,
    /// Time to live of messages without their own, and maximum for the others (EXP-04, EXP-05).
    default_message_time_to_live: Span = TIME_TO_LIVE,
    /// Whether expired messages are dead-lettered instead of removed (ENT-05).
    dead_lettering_on_message_expiration: Flag = DEAD_LETTER_EXPIRED,
    /// Failed deliveries after which a message is dead-lettered (ENT-04, ENT-19).
    max_delivery_count: Count = DELIVERY_COUNT,
    /// Stored, without effect.
    enable_batched_operations: Flag = BATCHED,
    /// Status, which blocks sending, receiving or both (ENT-20).
    status: Status = STATUS,
    /// Destination of messages (file 10).
    forward_to: Destination = FORWARD_TO,
    /// Destination of dead-lettered messages (file 10).
    forward_dead_lettered_messages_to: Destination = FORWARD_DEAD_LETTERS_TO,
    /// Idle time after which the queue is deleted (TMP-02); unlimited: never (TMP-04).
    auto_delete_on_idle: Span = AUTO_DELETE,
    /// Stored, without effect; fixed at creation (ENT-16).
    enable_partitioning: Flag = PARTITIONING,
    /// Stored, without effect.
    enable_express: Flag = EXPRESS,
    /// Size of the largest message in KiB.
    max_message_size_in_kilobytes: Kilobytes = MAX_MESSAGE_SIZE,
    /// Text for the owner's use.
    user_metadata: Text = USER_METADATA,
    /// Time of the next delivery after a failed one; at once without a policy (RTY-16).
    retry_policy: Retry = RETRY_POLICY,
    /// Whether a session waits for its Delayed messages (RTY-23).
    session_retry_order: Order = SESSION_RETRY_ORDER,
}

entity! {
    /// All properties of a topic with their effective values (ENT-31).
    TopicDescription, TopicProperties, Topic named by {
        /// The path in the case given at creation (ADR-06), valid by `path::validate_entity_path`.
        path,
    }
    /// Quota in MiB of the topic with all its subscriptions (ENT-10, TOP-10).
    max_size_in_megabytes: Megabytes = Facts {
        doc: "Maximum total size of messages, over all subscriptions",
        ..MAX_SIZE
    },
    /// Whether message ids are remembered (DUP-01); fixed at creation (ENT-16).
    requires_duplicate_detection: Flag = DUPLICATE_DETECTION,
    /// Time during which message ids are remembered (DUP-04).
    duplicate_detection_history_time_window: Span = DUPLICATE_WINDOW,
    /// Time to live of messages without their own, and maximum for the others (EXP-04 to EXP-07).
    default_message_time_to_live: Span = TIME_TO_LIVE,
    /// Stored, without effect.
    enable_batched_operations: Flag = BATCHED,
    /// Status, which blocks sending (ENT-21).
    status: Status = Facts { doc: "Active, Disabled or SendDisabled", ..STATUS },
    /// Idle time after which the topic is deleted (TMP-02); unlimited: never (TMP-04).
    auto_delete_on_idle: Span = Facts {
        doc: "Delete the topic after it and its subscriptions were unused for this long",
        ..AUTO_DELETE
    },
    /// Stored, without effect; fixed at creation (ENT-16).
    enable_partitioning: Flag = PARTITIONING,
    /// Stored, without effect.
    enable_express: Flag = EXPRESS,
    /// Stored, without effect: order is always kept.
    support_ordering: Flag = SUPPORT_ORDERING,
    /// Size of the largest message in KiB.
    max_message_size_in_kilobytes: Kilobytes = MAX_MESSAGE_SIZE,
    /// Text for the owner's use.
    user_metadata: Text = USER_METADATA,
}

entity! {
    /// All properties of a subscription with their effective values (ENT-31).
    SubscriptionDescription, SubscriptionProperties, Subscription named by {
        /// The path of its topic.
        topic,
        /// The name in the case given at creation (ADR-06).
        name,
    }
    /// Lock duration of a received message (ENT-06); applies to locks taken or renewed from now on
    /// (ENT-18).
    lock_duration: Span = LOCK_DURATION,
    /// Whether messages belong to sessions; fixed at creation (ENT-16).
    requires_session: Flag = Facts { label: "sessions", ..SESSION },
    /// Time to live of messages without their own, and maximum for the others, in addition to the
    /// topic's (EXP-06, EXP-07).
    default_message_time_to_live: Span = TIME_TO_LIVE,
    /// Whether expired messages are dead-lettered instead of removed (ENT-05).
    dead_lettering_on_message_expiration: Flag = DEAD_LETTER_EXPIRED,
    /// Whether a message is dead-lettered if a rule fails on it (DLQ-23, DLQ-24). Not for
    /// production if the rules do not suit every message of the topic: their dead letters pile up
    /// (DLQ-26).
    enable_dead_lettering_on_filter_evaluation_exceptions: Flag = DEAD_LETTER_RULE_FAILURES,
    /// Failed deliveries after which a message is dead-lettered (ENT-04, ENT-19).
    max_delivery_count: Count = DELIVERY_COUNT,
    /// Stored, without effect.
    enable_batched_operations: Flag = BATCHED,
    /// Status, which blocks receiving (ENT-22).
    status: Status = Facts { doc: "Active, Disabled or ReceiveDisabled", ..STATUS },
    /// Destination of messages (file 10).
    forward_to: Destination = FORWARD_TO,
    /// Destination of dead-lettered messages (file 10).
    forward_dead_lettered_messages_to: Destination = FORWARD_DEAD_LETTERS_TO,
    /// Whether it gets only messages that no other subscription of its topic selects (TOP-25).
    catch_all: Flag = CATCH_ALL,
    /// Idle time after which the subscription is deleted (TMP-02); unlimited: never (TMP-04).
    auto_delete_on_idle: Span = Facts {
        doc: "Delete the subscription after it was unused for this long",
        ..AUTO_DELETE
    },
    /// Text for the owner's use.
    user_metadata: Text = USER_METADATA,
    /// Time of the next delivery after a failed one; at once without a policy (RTY-16).
    retry_policy: Retry = RETRY_POLICY,
    /// Whether a session waits for its Delayed messages (RTY-23).
    session_retry_order: Order = SESSION_RETRY_ORDER,
}
