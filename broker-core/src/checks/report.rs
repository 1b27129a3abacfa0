//! Findings of the checks, and questions about them.

use std::sync::Arc;

use crate::time::{TimeSpan, Timestamp};

/// Maximum number of findings in an answer.
pub const FINDING_COUNT_MAX: usize = 1_000;
/// Maximum number of muted findings.
pub const MUTE_COUNT_MAX: usize = 1_000;
/// Maximum characters of the reason for which a finding is muted.
pub const MUTE_REASON_CHARS_MAX: usize = 256;

macro_rules! check_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $weight:ident, $remedy:literal;)+) => {
        /// Kind of a finding.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum CheckKind {
            $($(#[$doc])* $kind,)+
        }

        impl CheckKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// Name of the kind.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// How urgent a finding of this kind is.
            #[must_use]
            pub const fn weight(self) -> CheckWeight {
                match self {
                    $(Self::$kind => CheckWeight::$weight,)+
                }
            }

            /// Remedy for a finding of this kind.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$kind => $remedy,)+
                }
            }
        }
    };
}

check_kinds! {
    /// The destination of an entity does not exist, or no forwarder serves it.
    DestinationMissing = "destinationMissing", Error,
        "create the destination, or change ForwardTo or ForwardDeadLetteredMessagesTo of the \
         entity; then receive the messages from its transfer dead-letter queue and send them \
         again";
    /// The destination of an entity accepts no messages.
    DestinationDisabled = "destinationDisabled", Error,
        "set the status of the destination to Active; then receive the messages from the transfer \
         dead-letter queue of the entity and send them again";
    /// A chain of forwarding has more hops than a message may make.
    ChainTooLong = "chainTooLong", Error,
        "let an earlier entity forward to the end of the chain, or raise limits.hop_count_max";
    /// The disk, or the capacity of the store, is nearly used up.
    DiskNearlyFull = "diskNearlyFull", Error,
        "receive or delete messages, free space on the disk, or raise the capacity of the store";
    /// Clients on other machines need no credentials.
    AnonymousBeyondLoopback = "anonymousBeyondLoopback", Error,
        "set security.allow_anonymous to false, or bind every address to loopback";
    /// Entities forward in a circle.
    ForwardCircle = "forwardCircle", Warning,
        "remove ForwardTo or ForwardDeadLetteredMessagesTo from one entity of the circle; \
         messages in it end in a dead-letter queue by the limit of hops";
    /// Dead letters grow, and nobody removes any.
    DeadLettersUnread = "deadLettersUnread", Warning,
        "look at the causes with `peeklock dlq groups`, then send the messages again with \
         `peeklock dlq resubmit`, or delete them";
    /// Messages gather, and no receiver is there.
    BacklogWithoutReceiver = "backlogWithoutReceiver", Warning,
        "start a receiver, set ForwardTo, or delete the entity if nobody needs it";
    /// An entity is over 80 % of its maximum size.
    NearlyFull = "nearlyFull", Warning,
        "receive messages faster, delete dead letters, or raise MaxSizeInMegabytes";
    /// An entity has over 80 % of its maximum number of receivers.
    ManyReceivers = "manyReceivers", Warning,
        "close receivers that are not needed (`peeklock clients --links`), or raise \
         limits.receiver_count_max";
    /// A transport has over 80 % of its maximum number of connections.
    ManyConnections = "manyConnections", Warning,
        "let clients share connections, close idle ones (`peeklock clients`), or raise the limit \
         connection_count_max";
    /// More than one lock in a hundred ends by its time, without settlement or renewal.
    LockTooShort = "lockTooShort", Warning,
        "raise LockDuration, renew locks in time, or let receivers take fewer messages in advance";
    /// One message in twenty waits nearly as long as it may live.
    TimeToLiveTooShort = "timeToLiveTooShort", Warning,
        "receive messages faster, or raise DefaultMessageTimeToLive";
    /// The clock of the broker differs from the clock of the machine, which was set.
    ClockStep = "clockStep", Warning,
        "find the program that sets the clock of the machine; the broker follows it slowly, so \
         that no time is skipped";
    /// A subscription has `$Default`, which selects every message, and other rules.
    DefaultRuleAmongOthers = "defaultRuleAmongOthers", Notice,
        "delete the rule `$Default`, or the other rules";
}

/// How urgent a finding is, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CheckWeight {
    /// Messages are lost to their receivers, or will be soon.
    Error,
    /// Something does not work as meant.
    Warning,
    /// Something is probably not meant.
    Notice,
}

/// Something that a check has found (CON-39).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckFinding {
    /// Kind; it decides about weight and remedy.
    pub kind: CheckKind,
    /// Path of the entity; empty for the broker.
    pub path: Arc<str>,
    /// Instant of the first check that found it, in this run of the broker.
    pub since: Timestamp,
    /// Values that led to it.
    pub detail: Box<str>,
    /// Names of other entities that belong to it, at most 8.
    pub others: Vec<Arc<str>>,
    /// Why and since when it is muted, if it is.
    pub muted: Option<Mute>,
}

/// Reason for which a finding is muted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mute {
    /// Text of the operator.
    pub reason: Box<str>,
    /// Instant at which it was muted.
    pub at: Timestamp,
}

/// Change of the muted findings of an entity, or of the broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MuteChange {
    /// Mutes findings of a kind, also before there is one.
    Mute {
        /// The kind.
        kind: CheckKind,
        /// Why: one line of 1 to [`MUTE_REASON_CHARS_MAX`] characters.
        reason: Box<str>,
    },
    /// Reports findings of a kind again.
    Unmute {
        /// The kind.
        kind: CheckKind,
    },
}

/// Selection of findings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChecksQuery {
    /// Part of the path; the case of ASCII letters is ignored. Findings about the broker have the
    /// empty path.
    pub path: Option<Box<str>>,
    /// Only findings of this kind.
    pub kind: Option<CheckKind>,
    /// Only findings that are muted, or only others.
    pub is_muted: Option<bool>,
}

/// Findings of the last check, the most urgent first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChecksPage {
    /// The findings, at most [`FINDING_COUNT_MAX`].
    pub findings: Vec<CheckFinding>,
    /// Number of all selected findings.
    pub total: u64,
    /// Number of muted findings among them.
    pub muted_count: u64,
    /// Instant of the last check.
    pub checked_at: Timestamp,
    /// Number of further findings, for which the check had no room.
    pub left_out_count: u64,
    /// Working time of the last check, without the time that it waited.
    pub took: TimeSpan,
}
