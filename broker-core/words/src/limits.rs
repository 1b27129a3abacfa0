//! Every number that bounds the broker (spec file 20), as defaults of a tier.
//!
//! An operator or an embedding host may change each of them (QUO-02, FND-12). Sizes are in bytes
//! unless the name says otherwise, lengths in characters, durations and instants are types. Absent
//! on purpose: what happens at a bound; that stands where it is checked.

use std::fmt;

use crate::error::Rejection;
use crate::time::TimeSpan;

#[cfg(test)]
mod tests;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// No delay is longer, whatever is configured (RTY-02).
const RETRY_DELAY_LARGEST: TimeSpan = TimeSpan::from_days(7);
/// Clients count deliveries in 31 bits (ENT-09).
const DELIVERIES_LARGEST: u64 = i32::MAX.unsigned_abs() as u64;
/// No peek returns more messages, whatever is configured and asked for (PEK-08): it pays for no more beforehand.
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

/// The numbers in force in one namespace.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The tier whose features are on (ENT-02).
    pub tier: Tier,

    /// Characters of the path of a queue or topic (ADR-07).
    pub path_chars_max: usize,
    /// Characters of the name of a subscription or rule (ADR-07).
    pub name_chars_max: usize,
    /// Queues plus topics of a namespace (QUO-01).
    pub entity_count_max: usize,
    /// Subscriptions of a topic; zero in Basic (QUO-01).
    pub subscription_count_max: usize,
    /// SQL rules of a topic, over its subscriptions (QUO-01).
    pub rule_sql_count_max: usize,
    /// Correlation rules of a topic, over its subscriptions (QUO-01).
    pub rule_correlation_count_max: usize,
    /// Policies of the namespace, and of each queue and topic (SEC-03, QUO-01).
    pub policy_count_max: usize,
    /// Entities or rules in one answer to a list request (ADM-23).
    pub list_count_max: usize,

    /// LockDuration at least (ENT-11, FND-12).
    pub lock_duration_min: TimeSpan,
    /// LockDuration where none is given (ENT-03).
    pub lock_duration_default: TimeSpan,
    /// LockDuration at most (ENT-11).
    pub lock_duration_max: TimeSpan,
    /// MaxSizeInMegabytes at least (ENT-10).
    pub entity_megabytes_min: u64,
    /// MaxSizeInMegabytes where none is given (ENT-03).
    pub entity_megabytes_default: u64,
    /// MaxSizeInMegabytes at most (ENT-10, QUO-01).
    pub entity_megabytes_max: u64,
    /// DuplicateDetectionHistoryTimeWindow at least (DUP-04, FND-12).
    pub duplicate_window_min: TimeSpan,
    /// DuplicateDetectionHistoryTimeWindow where none is given (ENT-12).
    pub duplicate_window_default: TimeSpan,
    /// DuplicateDetectionHistoryTimeWindow at most (DUP-04).
    pub duplicate_window_max: TimeSpan,
    /// Message ids in the history of one entity (DUP-01).
    pub duplicate_id_count_max: usize,
    /// Sessions of one entity that have a state. Ours: an empty state counts nothing for the size quota,
    /// and a session with one exists until it is cleared (SES-04).
    pub session_state_count_max: usize,
    /// DefaultMessageTimeToLive at least (EXP-09, FND-12).
    pub time_to_live_min: TimeSpan,
    /// DefaultMessageTimeToLive where none is given, and at most (ENT-08, EXP-08).
    pub time_to_live_max: TimeSpan,
    /// MaxDeliveryCount where none is given (ENT-04).
    pub delivery_count_default: u32,
    /// MaxDeliveryCount at most; at least it is 1 (ENT-09).
    pub delivery_count_max: u32,
    /// Delay of an abandon, and of a retry policy, at most (RTY-02, RTY-16).
    pub retry_delay_max: TimeSpan,
    /// AutoDeleteOnIdle at least (TMP-03, FND-12).
    pub auto_delete_on_idle_min: TimeSpan,
    /// Characters of UserMetadata (QUO-01).
    pub user_metadata_chars_max: usize,

    /// Size of a message where the entity gives none; MaxMessageSizeInKilobytes is told in KiB.
    pub message_bytes_default: u64,
    /// Lowest size that MaxMessageSizeInKilobytes may set.
    pub message_bytes_min: u64,
    /// Highest size that MaxMessageSizeInKilobytes may set.
    pub message_bytes_max: u64,
    /// Size of a message over HTTP, whatever its entity allows (QUO-01).
    pub message_bytes_http_max: u64,
    /// Size of a batch (SND-30).
    pub batch_bytes_max: u64,
    /// Size of a message's header: all of it that is not the body (SND-23).
    pub header_bytes_max: u64,
    /// Size of one property of a message (SND-23).
    pub property_bytes_max: u64,
    /// Characters of MessageId, SessionId, PartitionKey and their like (MSG-05).
    pub message_id_chars_max: usize,
    /// Characters of a dead-letter reason (SET-11).
    pub dead_letter_reason_chars_max: usize,
    /// Characters of a dead-letter description (SET-11).
    pub dead_letter_description_chars_max: usize,
    /// Hops of a message; may be set from 1 to 16 (QUO-02, FWD-12).
    pub hop_count_max: u8,
    /// Copies that one message becomes over all its hops (QUO-02, FWD-33).
    pub message_copy_count_max: u16,
    /// How often properties are set on one message by abandon and defer (SET-41).
    pub message_overlay_count_max: usize,

    /// Characters of a filter's text (SQL-02).
    pub filter_chars_max: usize,
    /// Characters of an action's text (SQL-02).
    pub action_chars_max: usize,
    /// Statements of an action (SQL-02).
    pub action_statement_count_max: usize,

    /// Properties of a correlation filter beside those of the broker, and parameters of a text. Ours, because each
    /// is looked up in every message.
    pub rule_property_count_max: usize,
    /// Bytes of the texts, names and values of a rule. Ours, because all of it stays in memory.
    pub rule_bytes_max: u64,

    /// Copies that one publish, batch or transaction makes in the subscriptions of a topic. Ours, because
    /// they are made in one go.
    pub publish_copy_count_max: usize,
    /// Steps of the rules of a topic for one message, a step being about a byte looked at. What takes long
    /// goes on in slices; beyond this it is refused. Ours.
    pub publish_step_count_max: u64,

    /// Messages sent in one transaction; zero in Basic (TXN-05).
    pub transaction_message_count_max: usize,
    /// Age of a transaction (QUO-01).
    pub transaction_duration_max: TimeSpan,
    /// Open transactions of one connection (TXN-17).
    pub transaction_open_count_max: usize,
    /// Operations of one transaction. Ours, because a commit is carried out in one go.
    pub transaction_operation_count_max: usize,
    /// Messages that one transaction settles or prolongs the lock of, each that it settles counted again for each time
    /// that properties were set on it. Ours, because a commit is carried out in one go (QUO-11).
    pub transaction_step_count_max: usize,
    /// Bytes that the operations of open transactions of one connection hold, but always one of them. Open
    /// transactions of all connections hold at most half of `broker_inbound_bytes_max`. Ours, because what is
    /// not committed is kept in memory.
    pub transaction_open_bytes_max: u64,
    /// Small contents of one transaction or atomic batch, together (QUO-07).
    pub atomic_bytes_max: u64,
    /// A content counts for `atomic_bytes_max` up to this size (QUO-07).
    pub atomic_content_bytes_max: u64,

    /// Messages of one batch delete (DEL-02).
    pub batch_delete_count_max: usize,
    /// Messages in the answer to one peek (PEK-08).
    pub peek_count_max: usize,
    /// Encoded messages in the answer to one peek, but always one message (PEK-08).
    pub peek_bytes_max: u64,
    /// Encoded messages that one receive by numbers brings, but always one message (DEF-11).
    pub deferred_bytes_max: u64,

    /// Concurrent receives of an entity; of a topic over its subscriptions (RCV-22).
    pub receiver_count_max: usize,
    /// Wait of one receive call; a longer one is cut. Ours, so that no wait is for ever.
    pub receive_wait_max: TimeSpan,
    /// Wait of one receive over HTTP; a longer one is cut (HTP-08).
    pub receive_wait_http_max: TimeSpan,
    /// Messages that one link gets in its turn before it goes to the back (RCV-17).
    pub link_turn_count_max: usize,
    /// Bytes that one link gets in its turn before it goes to the back (RCV-17).
    pub link_turn_bytes_max: u64,

    /// Connections of a namespace (QUO-01).
    pub connection_count_max: usize,
    /// Bytes of unanswered commands of one connection; then its socket is not read (DESIGN D6).
    pub connection_inbound_bytes_max: u64,
    /// Unanswered commands of one connection; then its socket is not read (DESIGN D6).
    pub connection_inbound_count_max: usize,
    /// Bytes of unanswered commands of all connections; then no socket is read (DESIGN D6). Sends that
    /// wait for room in the store hold at most half of it, those beyond are refused.
    pub broker_inbound_bytes_max: u64,
    /// Unanswered commands of all connections; then no socket is read (DESIGN D6). Each takes at least its
    /// share of `broker_inbound_bytes_max`, and never less than 4 KiB.
    pub broker_inbound_count_max: usize,
    /// Bytes that are held for clients that have not taken them, of all connections: answers, contents,
    /// frames kept to be sent again. Then only what every connection may hold is fetched. Ours.
    pub broker_outbound_bytes_max: u64,
    /// Messages that all entities hold, in whatever state: what describes one stays in memory wherever its content
    /// is. Ours, as the next six: what stays in memory has a bound over the whole broker.
    pub broker_message_count_max: usize,
    /// Subscriptions of all topics.
    pub broker_subscription_count_max: usize,
    /// Rules of all subscriptions.
    pub broker_rule_count_max: usize,
    /// Memory of all rules, and of what entities say in texts: metadata, destinations, what is kept for clients.
    pub broker_description_bytes_max: u64,
    /// Sessions of all entities.
    pub broker_session_count_max: usize,
    /// Message ids in the duplicate histories of all entities, and messages that other brokers have forwarded, as
    /// far as they are remembered.
    pub broker_duplicate_id_count_max: usize,
    /// Scheduled and deferred messages of all entities, and those that are Delayed (RTY-01). What is asked
    /// for beyond it is refused; a retry policy delays nothing then, since a lock has to end.
    pub broker_delayed_count_max: usize,
    /// Copies that the rules of all topics have made of messages that are not stored yet, because what else came with
    /// them is still to be judged: their records, and what rules set on them.
    pub broker_judged_bytes_max: u64,
    /// Contents that the broker has loaded for itself: of messages on their way to another entity or to a forwarder, and
    /// of scheduled ones that are due at topics. What is larger passes alone, others wait in their order; forwarders have
    /// at most half of it.
    pub broker_loaded_bytes_max: u64,
    /// Wait of a send before it is refused with `ServerBusy`: for room in the store (DESIGN D11), or for its turn at
    /// its entity while others wait for the room that it takes of `broker_inbound_bytes_max`.
    pub send_wait_max: TimeSpan,
    /// Time of one call of a forwarder; a longer one counts as failed (FWD-32).
    pub forwarder_time_max: TimeSpan,
    /// Threads of forwarders, one for each source that forwards to one; further ones wait. Ours.
    pub forwarder_thread_count_max: usize,
}

impl Tier {
    /// The name as settings and namespace information spell it (CNT-10).
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
    /// The defaults of a tier (QUO-01).
    #[must_use]
    pub const fn of(tier: Tier) -> Self {
        match tier {
            Tier::Basic => Self {
                subscription_count_max: 0,
                rule_sql_count_max: 0,
                rule_correlation_count_max: 0,
                transaction_message_count_max: 0,
                time_to_live_max: TimeSpan::from_days(14),
                ..Self::standard(tier)
            },
            Tier::Standard => Self::standard(tier),
            Tier::Premium => Self {
                entity_megabytes_max: 80 * KIB,
                message_bytes_default: MIB,
                message_bytes_min: MIB,
                message_bytes_max: 100 * MIB,
                message_bytes_http_max: MIB,
                batch_bytes_max: MIB,
                batch_delete_count_max: 4_000,
                ..Self::standard(tier)
            },
        }
    }

    const fn standard(tier: Tier) -> Self {
        Self {
            tier,

            path_chars_max: 260,
            name_chars_max: 50,
            entity_count_max: 10_000,
            subscription_count_max: 2_000,
            rule_sql_count_max: 2_000,
            rule_correlation_count_max: 100_000,
            policy_count_max: 12,
            list_count_max: 100,

            lock_duration_min: TimeSpan::from_seconds(5),
            lock_duration_default: TimeSpan::from_seconds(60),
            lock_duration_max: TimeSpan::from_minutes(5),
            entity_megabytes_min: 1,
            entity_megabytes_default: KIB,
            entity_megabytes_max: 5 * KIB,
            duplicate_window_min: TimeSpan::from_seconds(20),
            duplicate_window_default: TimeSpan::from_minutes(10),
            duplicate_window_max: TimeSpan::from_days(7),
            duplicate_id_count_max: 8_000_000,
            session_state_count_max: 1_000_000,
            time_to_live_min: TimeSpan::from_seconds(1),
            time_to_live_max: TimeSpan::MAX,
            delivery_count_default: 10,
            delivery_count_max: i32::MAX.unsigned_abs(),
            retry_delay_max: RETRY_DELAY_LARGEST,
            auto_delete_on_idle_min: TimeSpan::from_minutes(5),
            user_metadata_chars_max: 1_024,

            message_bytes_default: 256 * KIB,
            message_bytes_min: 256 * KIB,
            message_bytes_max: 256 * KIB,
            message_bytes_http_max: 256 * KIB,
            batch_bytes_max: 256 * KIB,
            header_bytes_max: 64 * KIB,
            property_bytes_max: 32 * KIB,
            message_id_chars_max: 128,
            dead_letter_reason_chars_max: 4_096,
            dead_letter_description_chars_max: 4_096,
            hop_count_max: 4,
            message_copy_count_max: 10_000,
            message_overlay_count_max: 100,

            filter_chars_max: 1_024,
            action_chars_max: 1_024,
            action_statement_count_max: 32,
            rule_property_count_max: 256,
            rule_bytes_max: 16 * KIB,

            publish_copy_count_max: 65_536,
            publish_step_count_max: 10_000_000_000,

            transaction_message_count_max: 100,
            transaction_duration_max: TimeSpan::from_minutes(2),
            transaction_open_count_max: 1_000,
            transaction_operation_count_max: 4_000,
            transaction_step_count_max: 10_000,
            transaction_open_bytes_max: 64 * MIB,
            atomic_bytes_max: 32 * MIB,
            atomic_content_bytes_max: 256 * KIB,

            batch_delete_count_max: 500,
            peek_count_max: 250,
            peek_bytes_max: MIB,
            deferred_bytes_max: 4 * MIB,

            receiver_count_max: 5_000,
            receive_wait_max: TimeSpan::from_days(1),
            receive_wait_http_max: TimeSpan::from_seconds(60),
            link_turn_count_max: 16,
            link_turn_bytes_max: 64 * KIB,

            connection_count_max: 5_000,
            connection_inbound_bytes_max: 16 * MIB,
            connection_inbound_count_max: 4_096,
            broker_inbound_bytes_max: 256 * MIB,
            broker_inbound_count_max: 65_536,
            broker_outbound_bytes_max: 64 * MIB,
            broker_message_count_max: 50_000_000,
            broker_subscription_count_max: 20_000,
            broker_rule_count_max: 200_000,
            broker_description_bytes_max: 256 * MIB,
            broker_session_count_max: 1_000_000,
            broker_duplicate_id_count_max: 8_000_000,
            broker_delayed_count_max: 8_000_000,
            broker_judged_bytes_max: 256 * MIB,
            broker_loaded_bytes_max: 128 * MIB,
            send_wait_max: TimeSpan::from_seconds(5),
            forwarder_time_max: TimeSpan::from_seconds(30),
            forwarder_thread_count_max: 256,
        }
    }

    /// Refuses numbers that contradict each other, as a configuration may set them (QUO-02).
    pub fn validate(&self) -> Result<(), Rejection> {
        within("hop_count_max", self.hop_count_max, (1, 16))?;
        self.validate_ranges()?;
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
        let least = TimeSpan::from_ms(1);
        ordered("retry delay", [least, self.retry_delay_max, RETRY_DELAY_LARGEST])?;
        ordered(
            "message size",
            [self.message_bytes_min, self.message_bytes_default, self.message_bytes_max],
        )
    }
}

/// What a queue, a topic or a subscription takes in memory, beside the texts of its description.
pub const ENTITY_BYTES: u64 = 8_192;
/// What a policy takes, with its keys.
pub const POLICY_BYTES: u64 = 512;
/// What describes a message, in its entity and in the index of the store.
pub const MESSAGE_BYTES: u64 = 80;
/// What properties take that were set on a message, beside themselves: a record of their own, and its place in the
/// index of the store. So much is counted for them in the size of the message and of its entity (SET-41).
pub const OVERLAY_BYTES: u32 = 256;
/// What a lock on a message takes in its entity.
pub const LOCK_BYTES: u64 = 112;
/// What the connection knows of it that was sent the message and has not settled it: so much over AMQP, 97 over
/// WebSocket.
pub const DELIVERY_BYTES: u64 = 464;
/// What a session takes.
pub const SESSION_BYTES: u64 = 1_024;
/// What an id in a duplicate history takes, or a message that another broker has forwarded.
pub const DUPLICATE_ID_BYTES: u64 = 160;
/// What a message takes beside the others that is scheduled, deferred or Delayed.
pub const DELAYED_BYTES: u64 = 128;

impl Limits {
    /// Memory that may be kept beside what is under way, when there is as much of everything as there may be.
    /// Measured, rounded up.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        let each_has_policies = self.entity_count_max.saturating_add(1);
        [
            (self.entity_count_max, ENTITY_BYTES),
            (self.policy_count_max.saturating_mul(each_has_policies), POLICY_BYTES),
            (self.broker_subscription_count_max, ENTITY_BYTES),
            // A lock is on a message, and one connection has it.
            (self.broker_message_count_max, MESSAGE_BYTES + LOCK_BYTES + DELIVERY_BYTES),
            (self.broker_session_count_max, SESSION_BYTES),
            (self.broker_duplicate_id_count_max, DUPLICATE_ID_BYTES),
            (self.broker_delayed_count_max, DELAYED_BYTES),
        ]
        .into_iter()
        .map(|(count, bytes)| (count as u64).saturating_mul(bytes))
        .fold(self.broker_description_bytes_max, u64::saturating_add)
    }

    /// Refuses a number that no broker can work with, or that would be no bound; with its range.
    fn validate_ranges(&self) -> Result<(), Rejection> {
        let counts: [(&str, usize, usize, usize); 39] = [
            ("path_chars_max", self.path_chars_max, 1, 1_024),
            ("name_chars_max", self.name_chars_max, 1, 1_024),
            ("entity_count_max", self.entity_count_max, 1, 1_000_000),
            ("subscription_count_max", self.subscription_count_max, 0, 100_000),
            ("rule_sql_count_max", self.rule_sql_count_max, 0, 1_000_000),
            ("rule_correlation_count_max", self.rule_correlation_count_max, 0, 1_000_000),
            ("policy_count_max", self.policy_count_max, 1, 100),
            ("list_count_max", self.list_count_max, 1, 10_000),
            ("duplicate_id_count_max", self.duplicate_id_count_max, 1, 1_000_000_000),
            ("session_state_count_max", self.session_state_count_max, 1, 1_000_000_000),
            ("user_metadata_chars_max", self.user_metadata_chars_max, 0, 65_536),
            ("message_id_chars_max", self.message_id_chars_max, 1, 4_096),
            ("dead_letter_reason_chars_max", self.dead_letter_reason_chars_max, 1, 65_536),
            (
                "dead_letter_description_chars_max",
                self.dead_letter_description_chars_max,
                1,
                65_536,
            ),
            ("filter_chars_max", self.filter_chars_max, 1, 65_536),
            ("action_chars_max", self.action_chars_max, 1, 65_536),
            ("action_statement_count_max", self.action_statement_count_max, 1, 1_024),
            ("rule_property_count_max", self.rule_property_count_max, 1, 16_384),
            ("message_copy_count_max", self.message_copy_count_max.into(), 1, u16::MAX.into()),
            ("message_overlay_count_max", self.message_overlay_count_max, 1, 10_000),
            ("publish_copy_count_max", self.publish_copy_count_max, 1, 1_000_000),
            ("transaction_message_count_max", self.transaction_message_count_max, 0, 100_000),
            ("transaction_open_count_max", self.transaction_open_count_max, 0, 1_000_000),
            ("transaction_operation_count_max", self.transaction_operation_count_max, 0, 100_000),
            ("transaction_step_count_max", self.transaction_step_count_max, 1, 100_000),
            ("batch_delete_count_max", self.batch_delete_count_max, 1, 100_000),
            ("peek_count_max", self.peek_count_max, 1, PEEK_COUNT_LARGEST.into()),
            ("receiver_count_max", self.receiver_count_max, 1, 1_000_000),
            ("connection_count_max", self.connection_count_max, 1, 1_000_000),
            ("connection_inbound_count_max", self.connection_inbound_count_max, 1, 1_000_000),
            ("broker_message_count_max", self.broker_message_count_max, 1, 1_000_000_000_000),
            ("broker_subscription_count_max", self.broker_subscription_count_max, 0, 1_000_000),
            ("broker_rule_count_max", self.broker_rule_count_max, 0, 10_000_000),
            ("broker_session_count_max", self.broker_session_count_max, 0, 1_000_000_000),
            ("broker_duplicate_id_count_max", self.broker_duplicate_id_count_max, 0, 1_000_000_000),
            ("broker_delayed_count_max", self.broker_delayed_count_max, 0, 1_000_000_000),
            ("forwarder_thread_count_max", self.forwarder_thread_count_max, 1, 65_536),
            ("broker_inbound_count_max", self.broker_inbound_count_max, 1, 1_000_000_000),
            ("link_turn_count_max", self.link_turn_count_max, 1, 1_000_000),
        ];
        for (name, count, least, most) in counts {
            within(name, count as u64, (least as u64, most as u64))?;
        }
        let sizes = [
            ("delivery_count_default", self.delivery_count_default.into(), 1, DELIVERIES_LARGEST),
            ("delivery_count_max", self.delivery_count_max.into(), 1, DELIVERIES_LARGEST),
            ("entity_megabytes_min", self.entity_megabytes_min, 1, 1 << 30),
            ("entity_megabytes_default", self.entity_megabytes_default, 1, 1 << 30),
            ("entity_megabytes_max", self.entity_megabytes_max, 1, 1 << 30),
            ("message_bytes_min", self.message_bytes_min, 1, 1 << 30),
            ("message_bytes_default", self.message_bytes_default, 1, 1 << 30),
            ("message_bytes_max", self.message_bytes_max, 1, 1 << 30),
            ("message_bytes_http_max", self.message_bytes_http_max, 1, 1 << 30),
            ("batch_bytes_max", self.batch_bytes_max, 1, 1 << 30),
            ("header_bytes_max", self.header_bytes_max, 1, MIB),
            ("property_bytes_max", self.property_bytes_max, 1, MIB),
            ("rule_bytes_max", self.rule_bytes_max, KIB, MIB),
            ("publish_step_count_max", self.publish_step_count_max, 1, u64::MAX),
            ("transaction_open_bytes_max", self.transaction_open_bytes_max, 0, 1 << 40),
            ("atomic_bytes_max", self.atomic_bytes_max, 1, 1 << 30),
            ("atomic_content_bytes_max", self.atomic_content_bytes_max, 0, 1 << 30),
            ("peek_bytes_max", self.peek_bytes_max, 1, 1 << 30),
            ("deferred_bytes_max", self.deferred_bytes_max, 1, 1 << 30),
            ("connection_inbound_bytes_max", self.connection_inbound_bytes_max, 1, 1 << 40),
            ("broker_inbound_bytes_max", self.broker_inbound_bytes_max, 1, 1 << 40),
            ("broker_outbound_bytes_max", self.broker_outbound_bytes_max, 1, 1 << 40),
            ("link_turn_bytes_max", self.link_turn_bytes_max, 1, 1 << 40),
            ("broker_description_bytes_max", self.broker_description_bytes_max, MIB, 1 << 40),
            ("broker_judged_bytes_max", self.broker_judged_bytes_max, MIB, 1 << 40),
            ("broker_loaded_bytes_max", self.broker_loaded_bytes_max, MIB, 1 << 40),
        ];
        for (name, bytes, least, most) in sizes {
            within(name, bytes, (least, most))?;
        }
        let [millisecond, hour] = [TimeSpan::from_ms(1), TimeSpan::from_minutes(60)];
        let (second, year) = (TimeSpan::from_seconds(1), TimeSpan::from_days(365));
        // What is shorter ends as it begins; a host for tests may have it short (FND-12).
        for (name, span, least, most) in [
            ("lock_duration_min", self.lock_duration_min, millisecond, year),
            ("lock_duration_default", self.lock_duration_default, millisecond, year),
            ("lock_duration_max", self.lock_duration_max, millisecond, year),
            ("duplicate_window_min", self.duplicate_window_min, millisecond, year),
            ("duplicate_window_default", self.duplicate_window_default, millisecond, year),
            ("duplicate_window_max", self.duplicate_window_max, millisecond, year),
            ("time_to_live_min", self.time_to_live_min, millisecond, year),
            ("time_to_live_max", self.time_to_live_max, millisecond, TimeSpan::MAX),
            ("retry_delay_max", self.retry_delay_max, millisecond, RETRY_DELAY_LARGEST),
            ("auto_delete_on_idle_min", self.auto_delete_on_idle_min, millisecond, TimeSpan::MAX),
            ("receive_wait_max", self.receive_wait_max, second, year),
            ("receive_wait_http_max", self.receive_wait_http_max, TimeSpan::ZERO, hour),
            ("send_wait_max", self.send_wait_max, millisecond, hour),
            ("forwarder_time_max", self.forwarder_time_max, millisecond, hour),
            ("transaction_duration_max", self.transaction_duration_max, millisecond, hour),
        ] {
            within(name, span, (least, most))?;
        }
        Ok(())
    }
}

/// Whether a limit is in its range.
fn within<T: PartialOrd + Copy + fmt::Display>(
    name: &str,
    value: T,
    (least, most): (T, T),
) -> Result<(), Rejection> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Rejection::out_of_range(format!(
        "`{name}` of {value} is out of range; write a value from {least} to {most}"
    )))
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(Tier::default())
    }
}

/// Whether minimum, default and maximum stand in that order.
fn ordered<T: PartialOrd + fmt::Display>(bound: &str, bounds: [T; 3]) -> Result<(), Rejection> {
    if bounds.is_sorted() {
        return Ok(());
    }
    let [min, default, max] = bounds;
    Err(Rejection::out_of_range(format!(
        "the limits of the {bound} are not in order: minimum {min}, default {default}, maximum {max}"
    )))
}
