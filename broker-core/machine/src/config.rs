//! Settings of a namespace that change the behaviour of a machine. The namespace passes them to
//! each new machine.

use crate::description::{FailureTarget, OnDestinationFull, Settings};
use crate::path::SubQueue;

/// Settings of the namespace for all its queues.
#[derive(Clone, Copy, Debug)]
pub struct QueueConfig {
    /// Whether an orderly detach releases the locks of a link (SET-21).
    pub release_on_detach: bool,
    /// Whether the loss of a connection of AMQP releases the locks of its links (SET-21).
    pub release_on_connection_loss: bool,
    /// Whether one expired message of a session expires the whole session (EXP-47).
    pub expire_whole_sessions: bool,
    /// Key of the hash by which message ids are compared (DUP-01).
    pub duplicate_key: [u8; 16],
    /// Settings of transfers.
    pub forwarding: ForwardingConfig,
}

/// Settings of the namespace for transfers of all its entities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardingConfig {
    /// Maximum number of transfers of a message (FWD-12).
    pub hop_count_max: u8,
    /// Maximum number of copies of a message over all its hops (FWD-33).
    pub copy_count_max: u16,
    /// Sub-queue for messages that cannot be forwarded (FWD-18).
    pub failures_into: SubQueue,
    /// Whether a message stays while its destination is full (VIA-03).
    pub holds_when_full: bool,
}

impl Default for ForwardingConfig {
    fn default() -> Self {
        Self {
            hop_count_max: 4,
            copy_count_max: 10_000,
            failures_into: SubQueue::TransferDeadLetter,
            holds_when_full: false,
        }
    }
}

impl QueueConfig {
    /// Returns the settings that the machine of a queue needs.
    #[must_use]
    pub const fn of(settings: &Settings, duplicate_key: [u8; 16]) -> Self {
        Self {
            release_on_detach: settings.locks_release_on_detach,
            release_on_connection_loss: settings.locks_release_on_connection_loss,
            expire_whole_sessions: settings.sessions_expire_whole,
            duplicate_key,
            forwarding: ForwardingConfig {
                hop_count_max: settings.limits.hop_count_max,
                copy_count_max: settings.limits.message_copy_count_max,
                failures_into: match settings.forwarding_failure_target {
                    FailureTarget::TransferDeadLetter => SubQueue::TransferDeadLetter,
                    FailureTarget::DeadLetter => SubQueue::DeadLetter,
                },
                holds_when_full: matches!(
                    settings.forwarding_on_destination_full,
                    OnDestinationFull::Hold
                ),
            },
        }
    }
}
