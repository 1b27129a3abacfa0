//! The limits of the broker (spec file 20): one table with type, range and defaults of the tiers.
//!
//! An operator or an embedding host may change each limit (QUO-02, FND-12). Sizes are in bytes
//! unless the name contains another unit, lengths in characters, durations are [`TimeSpan`]. The
//! operation that reaches a limit checks it in its own module.

use std::fmt;
use std::ops::RangeInclusive;

use crate::error::Rejection;
use crate::time::TimeSpan;

#[cfg(test)]
mod tests;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Upper bound of every delay, in any configuration (RTY-02).
const RETRY_DELAY_LARGEST: TimeSpan = TimeSpan::from_days(7);
/// Lower bound of most spans: a shorter one would end when it begins. Hosts for tests may set short
/// ones (FND-12).
const MILLISECOND: TimeSpan = TimeSpan::from_ms(1);
const SECOND: TimeSpan = TimeSpan::from_seconds(1);
const HOUR: TimeSpan = TimeSpan::from_minutes(60);
const YEAR: TimeSpan = TimeSpan::from_days(365);
/// Maximum that clients can count: deliveries have 31 bits (ENT-09).
const DELIVERIES_LARGEST: u32 = i32::MAX.unsigned_abs();
/// Maximum number of messages of a peek, in any configuration (PEK-08): room for them is reserved
/// before the peek runs.
pub const PEEK_COUNT_LARGEST: u8 = 250;

/// The tier that a namespace emulates: it selects limits and, for Basic, features (ENT-01, ENT-02).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Tier {
    /// Queues only, without sessions, duplicate detection, forwarding, temporary entities.
    Basic,
    /// All features, messages of at most 256 KiB.
    Standard,
    /// All features, messages of up to 100 MiB.
    #[default]
    Premium,
}

/// A number or a duration: the value of a limit, or an end of its range.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub enum Amount {
    /// A count or a size.
    Number(u64),
    /// A duration.
    Span(TimeSpan),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Span(span) => span.fmt(f),
        }
    }
}

/// A type in which [`Limits`] holds a limit.
trait LimitValue: Sized {
    fn amount(self) -> Amount;
    /// `None` if the amount is of the other kind, or too large for the type.
    fn from_amount(amount: Amount) -> Option<Self>;
}

macro_rules! limit_values {
    ($($kind:ty)*) => {$(
        impl LimitValue for $kind {
            fn amount(self) -> Amount {
                Amount::Number(self as u64)
            }

            fn from_amount(amount: Amount) -> Option<Self> {
                match amount {
                    Amount::Number(number) => number.try_into().ok(),
                    Amount::Span(_) => None,
                }
            }
        }
    )*};
}

limit_values!(u8 u16 u32 u64 usize);

impl LimitValue for TimeSpan {
    fn amount(self) -> Amount {
        Amount::Span(self)
    }

    fn from_amount(amount: Amount) -> Option<Self> {
        match amount {
            Amount::Span(span) => Some(span),
            Amount::Number(_) => None,
        }
    }
}

/// A row of the table of limits.
#[derive(Debug)]
pub struct Limit {
    /// The name of the field of [`Limits`], which is also the key in the configuration.
    pub name: &'static str,
    /// The effect of the limit in one sentence, with the requirements in parentheses at its end.
    doc: &'static str,
    range: fn() -> [Amount; 2],
    get: fn(&Limits) -> Amount,
    set: fn(&mut Limits, Amount) -> bool,
}

impl Limit {
    /// The limit of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Limits::TABLE.iter().find(|limit| limit.name == name)
    }

    /// The effect of the limit, without the requirements.
    #[must_use]
    pub fn effect(&self) -> &'static str {
        let doc = self.doc.trim().trim_end_matches('.');
        match doc.rsplit_once(" (") {
            Some((effect, ids)) if ids.contains('-') && ids.ends_with(')') => effect,
            _ => doc,
        }
    }

    /// The lowest and the highest value.
    #[must_use]
    pub fn range(&self) -> [Amount; 2] {
        (self.range)()
    }

    /// The value in `limits`.
    #[must_use]
    pub fn of(&self, limits: &Limits) -> Amount {
        (self.get)(limits)
    }

    /// Sets the value in `limits`.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` with the range, also for a duration where a number is expected and the
    /// reverse (QUO-02).
    pub fn set(&self, limits: &mut Limits, value: Amount) -> Result<(), Rejection> {
        self.check(value)?;
        if (self.set)(limits, value) { Ok(()) } else { Err(self.out_of_range(value)) }
    }

    fn check(&self, value: Amount) -> Result<(), Rejection> {
        let [least, most] = self.range();
        if value >= least && value <= most { Ok(()) } else { Err(self.out_of_range(value)) }
    }

    fn out_of_range(&self, value: Amount) -> Rejection {
        let (name, [least, most]) = (self.name, self.range());
        Rejection::out_of_range(format!(
            "`{name}` of {value} is out of range; write a value from {least} to {most}"
        ))
    }
}

/// The default of a tier: the general one, or a special one.
macro_rules! by_tier {
    ($tier:ident, $default:expr) => {
        $default
    };
    ($tier:ident, $default:expr, $($name:ident = $own:expr),+) => {
        match $tier {
            $(Tier::$name => $own,)+
            _ => $default,
        }
    };
}

/// A row per limit: name, type, range, default, and special defaults of tiers. The struct, its
/// defaults, the check of the ranges, the section `[limits]` of the configuration and the reference
/// page follow from it.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty, $range:expr, $default:expr $(, $tier:ident = $own:expr)*;)+) => {
        /// The limits in force in a namespace.
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct Limits {
            /// The tier whose features are on (ENT-02).
            pub tier: Tier,
            $($(#[doc = $doc])+ pub $name: $kind,)+
        }

        impl Limits {
            /// Every limit, in the order of the fields.
            pub const TABLE: &'static [Limit] = &[$(Limit {
                name: stringify!($name),
                doc: concat!($($doc),+),
                range: || {
                    let range: RangeInclusive<$kind> = $range;
                    [range.start().amount(), range.end().amount()]
                },
                get: |limits| limits.$name.amount(),
                set: |limits, value| match LimitValue::from_amount(value) {
                    Some(value) => {
                        limits.$name = value;
                        true
                    }
                    None => false,
                },
            },)+];

            /// The defaults of a tier (QUO-01).
            #[must_use]
            pub const fn of(tier: Tier) -> Self {
                Self { tier, $($name: by_tier!(tier, $default $(, $tier = $own)*),)+ }
            }
        }
    };
}

limits! {
    /// Characters of a queue or topic path; then `ArgumentOutOfRange` (ADR-07).
    path_chars_max: usize, 1..=1_024, 260;
    /// Characters of a subscription or rule name; then `ArgumentOutOfRange` (ADR-07).
    name_chars_max: usize, 1..=1_024, 50;
    /// Queues and topics; then `QuotaExceeded` (QUO-01).
    entity_count_max: usize, 1..=1_000_000, 10_000;
    /// Subscriptions of a topic; then `QuotaExceeded` (QUO-01).
    subscription_count_max: usize, 0..=100_000, 2_000, Basic = 0;
    /// SQL rules of a topic; then `QuotaExceeded` (QUO-01).
    rule_sql_count_max: usize, 0..=1_000_000, 2_000, Basic = 0;
    /// Correlation rules of a topic; then `QuotaExceeded` (QUO-01).
    rule_correlation_count_max: usize, 0..=1_000_000, 100_000, Basic = 0;
    /// Policies of the namespace, and of each queue and topic; then `QuotaExceeded` (SEC-03,
    /// QUO-01).
    policy_count_max: usize, 1..=100, 12;
    /// Entities or rules in a list answer; ask for the next page (ADM-23).
    list_count_max: usize, 1..=10_000, 100;

    /// Lowest LockDuration (ENT-11, FND-12).
    lock_duration_min: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_seconds(5);
    /// Default LockDuration (ENT-03).
    lock_duration_default: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_seconds(60);
    /// Highest LockDuration (ENT-11).
    lock_duration_max: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_minutes(5);
    /// Lowest MaxSizeInMegabytes (ENT-10).
    entity_megabytes_min: u64, 1..=1 << 30, 1;
    /// Default MaxSizeInMegabytes (ENT-03).
    entity_megabytes_default: u64, 1..=1 << 30, KIB;
    /// Highest MaxSizeInMegabytes, 16 times as high for partitioned entities below Premium; a full
    /// entity answers `QuotaExceeded` (ENT-10, QUO-01).
    entity_megabytes_max: u64, 1..=1 << 30, 5 * KIB, Premium = 80 * KIB;
    /// Lowest DuplicateDetectionHistoryTimeWindow (DUP-04, FND-12).
    duplicate_window_min: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_seconds(20);
    /// Default DuplicateDetectionHistoryTimeWindow (ENT-12).
    duplicate_window_default: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_minutes(10);
    /// Highest DuplicateDetectionHistoryTimeWindow (DUP-04).
    duplicate_window_max: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_days(7);
    /// Message ids in the duplicate history of an entity; then `QuotaExceeded` (DUP-01).
    duplicate_id_count_max: usize, 1..=1_000_000_000, 8_000_000;
    /// Sessions of an entity with a state; then `QuotaExceeded` (SES-04).
    session_state_count_max: usize, 1..=1_000_000_000, 1_000_000;
    /// Lowest DefaultMessageTimeToLive (EXP-09, FND-12).
    time_to_live_min: TimeSpan, MILLISECOND..=YEAR, TimeSpan::from_seconds(1);
    /// Highest and default DefaultMessageTimeToLive (ENT-08, EXP-08).
    time_to_live_max: TimeSpan, MILLISECOND..=TimeSpan::MAX, TimeSpan::MAX, Basic = TimeSpan::from_days(14);
    /// Default MaxDeliveryCount (ENT-04).
    delivery_count_default: u32, 1..=DELIVERIES_LARGEST, 10;
    /// Highest MaxDeliveryCount; the lowest is 1 (ENT-09).
    delivery_count_max: u32, 1..=DELIVERIES_LARGEST, DELIVERIES_LARGEST;
    /// Longest delay of an abandon or retry policy (RTY-02, RTY-16).
    retry_delay_max: TimeSpan, MILLISECOND..=RETRY_DELAY_LARGEST, RETRY_DELAY_LARGEST;
    /// Lowest AutoDeleteOnIdle (TMP-03, FND-12).
    auto_delete_on_idle_min: TimeSpan, MILLISECOND..=TimeSpan::MAX, TimeSpan::from_minutes(5);
    /// Characters of UserMetadata; then `ArgumentOutOfRange` (QUO-01).
    user_metadata_chars_max: usize, 0..=65_536, 1_024;

    /// Message size if the entity sets none; then `MessageSizeExceeded`.
    message_bytes_default: u64, 1..=1 << 30, 256 * KIB, Premium = MIB;
    /// Lowest MaxMessageSizeInKilobytes, in bytes.
    message_bytes_min: u64, 1..=1 << 30, 256 * KIB, Premium = MIB;
    /// Highest MaxMessageSizeInKilobytes, in bytes.
    message_bytes_max: u64, 1..=1 << 30, 256 * KIB, Premium = 100 * MIB;
    /// Message size over HTTP; then `MessageSizeExceeded` (QUO-01).
    message_bytes_http_max: u64, 1..=1 << 30, 256 * KIB, Premium = MIB;
    /// Size of a batch; then `MessageSizeExceeded` (SND-30).
    batch_bytes_max: u64, 1..=1 << 30, 256 * KIB, Premium = MIB;
    /// Size of a message without its body; then `MessageSizeExceeded` (SND-23).
    header_bytes_max: u64, 1..=MIB, 64 * KIB;
    /// Size of a property; then `MessageSizeExceeded` (SND-23).
    property_bytes_max: u64, 1..=MIB, 32 * KIB;
    /// Characters of MessageId, SessionId, PartitionKey; then `ArgumentOutOfRange` (MSG-05).
    message_id_chars_max: usize, 1..=4_096, 128;
    /// Characters of a dead-letter reason; then `ArgumentOutOfRange` (SET-11).
    dead_letter_reason_chars_max: usize, 1..=65_536, 4_096;
    /// Characters of a dead-letter description; then `ArgumentOutOfRange` (SET-11).
    dead_letter_description_chars_max: usize, 1..=65_536, 4_096;
    /// Forwarding hops; then the transfer dead-letter queue (`MaxTransferHopCountExceeded`)
    /// (QUO-02, FWD-12).
    hop_count_max: u8, 1..=16, 4;
    /// Copies of a message over all hops; then the transfer dead-letter queue, or `QuotaExceeded`
    /// for a send (QUO-02, FWD-33).
    message_copy_count_max: u16, 1..=u16::MAX, 10_000;
    /// Number of times that abandon and defer can set properties on a message; then
    /// `MessageSizeExceeded` (SET-41).
    message_overlay_count_max: usize, 1..=10_000, 100;

    /// Characters of a filter; then `ArgumentOutOfRange` (SQL-02).
    filter_chars_max: usize, 1..=65_536, 1_024;
    /// Characters of an action; then `ArgumentOutOfRange` (SQL-02).
    action_chars_max: usize, 1..=65_536, 1_024;
    /// Statements of an action; then `ArgumentOutOfRange` (SQL-02).
    action_statement_count_max: usize, 1..=1_024, 32;

    /// Properties of a correlation filter, parameters of a text; then `ArgumentOutOfRange`.
    rule_property_count_max: usize, 1..=16_384, 256;
    /// Texts, names and values of a rule; then `ArgumentOutOfRange`.
    rule_bytes_max: u64, KIB..=MIB, 16 * KIB;

    /// Copies that a publish, batch or transaction makes in a topic; then `QuotaExceeded`.
    publish_copy_count_max: usize, 1..=1_000_000, 65_536;
    /// Work of the rules for a publish, about one step for each byte read; then `QuotaExceeded`.
    publish_step_count_max: u64, 1..=u64::MAX, 10_000_000_000;

    /// Messages sent in a transaction; then `QuotaExceeded` (TXN-05).
    transaction_message_count_max: usize, 0..=100_000, 100, Basic = 0;
    /// Age of a transaction; then `TransactionTimedOut` (QUO-01).
    transaction_duration_max: TimeSpan, MILLISECOND..=HOUR, TimeSpan::from_minutes(2);
    /// Open transactions of a connection; then `QuotaExceeded` (TXN-17).
    transaction_open_count_max: usize, 0..=1_000_000, 1_000;
    /// Operations of a transaction; then `QuotaExceeded`.
    transaction_operation_count_max: usize, 0..=100_000, 4_000;
    /// Settled messages of a transaction, counted again for each overlay; then the commit gets
    /// `QuotaExceeded` (QUO-11).
    transaction_step_count_max: usize, 1..=100_000, 10_000;
    /// Open transactions of a connection; then `QuotaExceeded`.
    transaction_open_bytes_max: u64, 0..=1 << 40, 64 * MIB;
    /// Small contents of a transaction or atomic batch together; then `QuotaExceeded` (QUO-07).
    atomic_bytes_max: u64, 1..=1 << 30, 32 * MIB;
    /// Largest content that counts for `atomic_bytes_max` (QUO-07).
    atomic_content_bytes_max: u64, 0..=1 << 30, 256 * KIB;

    /// Messages of a batch delete; then `ArgumentOutOfRange` (DEL-02).
    batch_delete_count_max: usize, 1..=100_000, 500, Premium = 4_000;
    /// Messages of a peek; the answer is shorter (PEK-08).
    peek_count_max: usize, 1..=PEEK_COUNT_LARGEST as usize, 250;
    /// Bytes of a peek, but at least one message; the answer is shorter (PEK-08).
    peek_bytes_max: u64, 1..=1 << 30, MIB;
    /// Bytes of a receive by sequence numbers, but at least one message; then `QuotaExceeded`
    /// (DEF-11).
    deferred_bytes_max: u64, 1..=1 << 30, 4 * MIB;

    /// Simultaneous receivers of an entity; then `QuotaExceeded` (RCV-22).
    receiver_count_max: usize, 1..=1_000_000, 5_000;
    /// Open taps of the broker; then `ServerBusy` (CON-34).
    tap_count_max: usize, 0..=1_000, 64;
    /// Open searches of the broker; then `ServerBusy` (CON-07).
    search_count_max: usize, 0..=64, 2;
    /// Time that a search works; then it ends with a position to go on from (CON-07).
    search_time_max: TimeSpan, SECOND..=HOUR, TimeSpan::from_seconds(60);
    /// Bytes that a search reads; then it ends with a position to go on from (CON-07).
    search_bytes_max: u64, 1..=1 << 40, 2 << 30;
    /// Bytes of each body that a search looks at; longer bodies may stay undecided (CON-07).
    search_body_bytes_max: u64, 1..=1 << 30, 4 * MIB;
    /// Hits of a search; then it ends with a position to go on from (CON-07).
    search_hit_count_max: u32, 1..=100_000, 1_000;
    /// Wait of a receive; a longer wait is shortened.
    receive_wait_max: TimeSpan, SECOND..=YEAR, TimeSpan::from_days(1);
    /// Wait of a receive over HTTP; a longer wait is shortened (HTP-08).
    receive_wait_http_max: TimeSpan, TimeSpan::ZERO..=HOUR, TimeSpan::from_seconds(60);
    /// Messages of a receiver in its turn; then the next receiver has its turn (RCV-17).
    link_turn_count_max: usize, 1..=1_000_000, 16;
    /// Bytes of a receiver in its turn; then the next receiver has its turn (RCV-17).
    link_turn_bytes_max: u64, 1..=1 << 40, 64 * KIB;

    /// Connections of each listener without its own setting (QUO-01).
    connection_count_max: usize, 1..=1_000_000, 5_000;
    /// Unanswered commands of a connection; at most `broker_inbound_bytes_max`.
    connection_inbound_bytes_max: u64, 1..=1 << 40, 16 * MIB;
    /// Unanswered commands of a connection.
    connection_inbound_count_max: usize, 1..=1_000_000, 4_096;
    /// Unanswered commands of all connections; waiting sends have at most half.
    broker_inbound_bytes_max: u64, 1..=1 << 40, 256 * MIB;
    /// Unanswered commands of all connections; each takes at least 4 KiB.
    broker_inbound_count_max: usize, 1..=1_000_000_000, 65_536;
    /// Data for clients that have not read it; each connection always has 64 KiB.
    broker_outbound_bytes_max: u64, 1..=1 << 40, 64 * MIB;
    /// Messages, with their overlays; 80 bytes each, a lock 112 more.
    broker_message_count_max: usize, 1..=1_000_000_000_000, 50_000_000;
    /// Subscriptions; about 8 KiB each.
    broker_subscription_count_max: usize, 0..=1_000_000, 20_000;
    /// Rules.
    broker_rule_count_max: usize, 0..=10_000_000, 200_000;
    /// Rules, and texts in entity descriptions.
    broker_description_bytes_max: u64, MIB..=1 << 40, 256 * MIB;
    /// Sessions; about 1 KiB each.
    broker_session_count_max: usize, 0..=1_000_000_000, 1_000_000;
    /// Remembered message ids, and messages forwarded by other brokers; 160 bytes each.
    broker_duplicate_id_count_max: usize, 0..=1_000_000_000, 8_000_000;
    /// Scheduled, deferred and delayed messages; 128 bytes each. Retry policies then add no delay
    /// (RTY-01).
    broker_delayed_count_max: usize, 0..=1_000_000_000, 8_000_000;
    /// Copies that rules have made and that are not stored; then `ServerBusy`.
    broker_judged_bytes_max: u64, MIB..=1 << 40, 256 * MIB;
    /// Contents loaded for forwarding and due schedules; further ones wait. Forwarders have at most
    /// half.
    broker_loaded_bytes_max: u64, MIB..=1 << 40, 128 * MIB;
    /// Wait of a send for room or its turn; then `ServerBusy`.
    send_wait_max: TimeSpan, MILLISECOND..=HOUR, TimeSpan::from_seconds(5);
    /// Time of a forwarder call; then it counts as failed (FWD-32).
    forwarder_time_max: TimeSpan, MILLISECOND..=HOUR, TimeSpan::from_seconds(30);
    /// Threads of forwarders, one for each forwarding queue; further queues wait.
    forwarder_thread_count_max: usize, 1..=65_536, 256;
}

impl Tier {
    /// The name in settings and namespace information (CNT-10).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Basic => "Basic",
            Self::Standard => "Standard",
            Self::Premium => "Premium",
        }
    }

    /// The tier of that name, in any case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Basic, Self::Standard, Self::Premium]
            .into_iter()
            .find(|tier| tier.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Limits {
    /// Refuses values outside their ranges, and values that contradict each other (QUO-02).
    pub fn validate(&self) -> Result<(), Rejection> {
        Self::TABLE.iter().try_for_each(|limit| limit.check(limit.of(self)))?;
        ordered(
            "lock duration",
            [self.lock_duration_min, self.lock_duration_default, self.lock_duration_max],
        )?;
        ordered(
            "entity size",
            [self.entity_megabytes_min, self.entity_megabytes_default, self.entity_megabytes_max],
        )?;
        ordered(
            "duplicate window",
            [self.duplicate_window_min, self.duplicate_window_default, self.duplicate_window_max],
        )?;
        ordered(
            "time to live",
            [self.time_to_live_min, self.time_to_live_max, self.time_to_live_max],
        )?;
        ordered("delivery count", [1, self.delivery_count_default, self.delivery_count_max])?;
        ordered(
            "message size",
            [self.message_bytes_min, self.message_bytes_default, self.message_bytes_max],
        )
    }
}

/// Bytes of memory of a queue, a topic or a subscription, without the texts of its description.
pub const ENTITY_BYTES: u64 = 8_192;
/// Bytes of memory of a policy, with its keys.
pub const POLICY_BYTES: u64 = 512;
/// Bytes of memory of a message's facts, in its entity and in the index of the store.
pub const MESSAGE_BYTES: u64 = 80;
/// Bytes of memory and disk of properties set on a message, in addition to the properties: a
/// separate record and its place in the index of the store. They count in the size of the message
/// and of its entity (SET-41).
pub const OVERLAY_BYTES: u32 = 256;
/// Bytes of memory of a lock on a message, in its entity.
pub const LOCK_BYTES: u64 = 112;
/// Bytes of memory of an unsettled delivery in its connection: this many over AMQP, 97 over
/// WebSocket.
pub const DELIVERY_BYTES: u64 = 464;
/// Bytes of memory of a session.
pub const SESSION_BYTES: u64 = 1_024;
/// Bytes of memory of an id in a duplicate history, or of a message that another broker has
/// forwarded.
pub const DUPLICATE_ID_BYTES: u64 = 160;
/// Bytes of memory that a scheduled, deferred or Delayed message takes in addition.
pub const DELAYED_BYTES: u64 = 128;

impl Limits {
    /// Bytes of memory if all counts have reached their limits, without commands and deliveries in
    /// progress. Based on measurements, rounded up.
    #[must_use]
    pub fn resident_bytes_max(&self) -> u64 {
        let each_has_policies = self.entity_count_max.saturating_add(1);
        [
            (self.entity_count_max, ENTITY_BYTES),
            (self.policy_count_max.saturating_mul(each_has_policies), POLICY_BYTES),
            (self.broker_subscription_count_max, ENTITY_BYTES),
            // Every message can be locked, in a single connection.
            (self.broker_message_count_max, MESSAGE_BYTES + LOCK_BYTES + DELIVERY_BYTES),
            (self.broker_session_count_max, SESSION_BYTES),
            (self.broker_duplicate_id_count_max, DUPLICATE_ID_BYTES),
            (self.broker_delayed_count_max, DELAYED_BYTES),
        ]
        .into_iter()
        .map(|(count, bytes)| (count as u64).saturating_mul(bytes))
        .fold(self.broker_description_bytes_max, u64::saturating_add)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(Tier::default())
    }
}

/// Refuses bounds that are not in the order minimum, default, maximum.
fn ordered<T: PartialOrd + fmt::Display>(bound: &str, bounds: [T; 3]) -> Result<(), Rejection> {
    if bounds.is_sorted() {
        return Ok(());
    }
    let [min, default, max] = bounds;
    Err(Rejection::out_of_range(format!(
        "the limits of the {bound} are not in order: minimum {min}, default {default}, maximum {max}"
    )))
}
