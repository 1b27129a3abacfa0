//! Builder methods for single properties, for callers that create or change an entity. Programs and
//! tests call them on descriptions and updates.

use super::{
    EntityStatus, QueueProperties, RetryPolicy, SessionRetryOrder, SubscriptionProperties,
    TopicProperties,
};
use crate::time::TimeSpan;

/// Each method sets a property: `=>` takes a value that converts into the type, `=` the type.
/// Methods of several kinds of entities are listed once.
macro_rules! named {
    (@ $(#[$doc:meta])* $method:ident => $field:ident: $kind:ty) => {
        $(#[$doc])*
        #[must_use]
        pub fn $method(mut self, value: impl Into<$kind>) -> Self {
            self.$field = Some(value.into());
            self
        }
    };
    (@ $(#[$doc:meta])* $method:ident = $field:ident: $kind:ty) => {
        $(#[$doc])*
        #[must_use]
        pub const fn $method(mut self, value: $kind) -> Self {
            self.$field = Some(value);
            self
        }
    };
    (@ $owner:ident { $($(#[$doc:meta])* $method:ident $how:tt $field:ident: $kind:ty,)* }) => {
        impl $owner {
            $(named!(@ $(#[$doc])* $method $how $field: $kind);)*
        }
    };
    ($(for $($owner:ident),+: $methods:tt)*) => {
        $($(named!(@ $owner $methods);)+)*
    };
}

named! {
    for QueueProperties, TopicProperties, SubscriptionProperties: {
        /// Sets DefaultMessageTimeToLive.
        with_time_to_live => default_message_time_to_live: TimeSpan,
        /// Sets AutoDeleteOnIdle.
        with_auto_delete_on_idle => auto_delete_on_idle: TimeSpan,
        /// Sets Status.
        with_status => status: EntityStatus,
        /// Sets UserMetadata.
        with_user_metadata => user_metadata: Box<str>,
    }
    for QueueProperties, TopicProperties: {
        /// Sets MaxSizeInMegabytes.
        with_max_size_in_megabytes = max_size_in_megabytes: u64,
        /// Sets MaxMessageSizeInKilobytes.
        with_max_message_size_in_kilobytes = max_message_size_in_kilobytes: u64,
    }
    for QueueProperties, SubscriptionProperties: {
        /// Sets LockDuration.
        with_lock_duration => lock_duration: TimeSpan,
        /// Sets MaxDeliveryCount.
        with_max_delivery_count = max_delivery_count: u32,
        /// Sets DeadLetteringOnMessageExpiration.
        with_dead_lettering_on_expiration = dead_lettering_on_message_expiration: bool,
        /// Sets ForwardTo.
        with_forward_to => forward_to: Box<str>,
        /// Sets ForwardDeadLetteredMessagesTo.
        with_forward_dead_letters_to => forward_dead_lettered_messages_to: Box<str>,
        /// Sets RetryPolicy (RTY-16).
        with_retry_policy => retry_policy: Option<RetryPolicy>,
        /// Sets SessionRetryOrder (RTY-22).
        with_session_retry_order => session_retry_order: SessionRetryOrder,
    }
    for SubscriptionProperties: {
        /// Sets CatchAll (TOP-25).
        with_catch_all = catch_all: bool,
    }
}

impl QueueProperties {
    /// Sets RequiresSession: messages belong to sessions, and are received by session. Fixed at
    /// creation.
    #[must_use]
    pub const fn with_sessions(mut self) -> Self {
        self.requires_session = Some(true);
        self
    }

    /// Sets RequiresDuplicateDetection with this window: a message whose id was sent within it is
    /// dropped. Fixed at creation.
    #[must_use]
    pub fn with_duplicate_detection(mut self, window: impl Into<TimeSpan>) -> Self {
        self.requires_duplicate_detection = Some(true);
        self.duplicate_detection_history_time_window = Some(window.into());
        self
    }
}

impl TopicProperties {
    /// Sets RequiresDuplicateDetection with this window: a message whose id was sent within it is
    /// dropped. Fixed at creation.
    #[must_use]
    pub fn with_duplicate_detection(mut self, window: impl Into<TimeSpan>) -> Self {
        self.requires_duplicate_detection = Some(true);
        self.duplicate_detection_history_time_window = Some(window.into());
        self
    }
}

impl SubscriptionProperties {
    /// Sets RequiresSession: messages belong to sessions, and are received by session. Fixed at
    /// creation.
    #[must_use]
    pub const fn with_sessions(mut self) -> Self {
        self.requires_session = Some(true);
        self
    }
}
