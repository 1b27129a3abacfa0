//! What can be asked of an entity, and what it answers. Read first, with [`crate::change`] and
//! [`crate::effect`]. (Data path, step 1.)
//!
//! A [`Command`] is addressed to a sub-queue of an entity. Transports build it from bytes; the actor
//! that owns the entity applies it. Who may ask what is decided before, by the authorizer.

mod cost;

use std::sync::Arc;

use bytes::Bytes;

use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::error::Rejection;
use crate::ids::{EntityId, LockToken, ReceiverId, SequenceNumber};
use crate::limits::Limits;
use crate::message::{Content, Envelope, Overlay, Value};
use crate::path::SubQueue;
use crate::rule::{Explanation, RuleDescription};
use crate::store::Key;
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::{Operation, Part, PartOutcome};
use crate::transfer::peer::PeerSource;
use crate::transfer::{Admission, Arrival, Departure, ListNumber, WhenFull};

pub use self::cost::{Cost, Stored};

/// A message on its way in: its bytes, and the facts that admission needs of them.
#[derive(Clone, Debug)]
pub struct InboundMessage {
    /// The bare message in AMQP section encoding; stored as it is.
    pub content: Content,
    /// What the entity reads of it; computed once, at the edge.
    pub envelope: Envelope,
}

/// A message on its way in from another broker.
#[derive(Clone, Debug)]
pub struct PeerArrival {
    /// The message.
    pub message: InboundMessage,
    /// Its number at its source.
    pub sequence: SequenceNumber,
    /// When it was enqueued at its source.
    pub enqueued_at: Timestamp,
    /// The number it was first given (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Transfers so far, this one included (FWD-13).
    pub hops: u8,
    /// Of the copies that one message may become, those that are not its own to make any more (FWD-33).
    pub copies_spent: u16,
    /// The entity in which it was dead-lettered, if dead letters are forwarded (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
}

/// How a received message leaves the entity (RCV-01).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ReceiveMode {
    /// Stays under an exclusive lock until it is settled or the lock ends (RCV-05).
    PeekLock,
    /// Is removed when it is delivered (RCV-02).
    ReceiveAndDelete,
}

/// What a receiver decides about a message it holds.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// Processed: the message is removed (SET-01).
    Complete,
    /// Unlocked for redelivery, counted as a failed delivery (SET-03).
    Abandon {
        /// Application properties to set (SET-08).
        properties: Option<Overlay>,
    },
    /// Set aside: from now on received by number only (DEF-01).
    Defer {
        /// Application properties to set (SET-08).
        properties: Option<Overlay>,
    },
    /// Moved to the dead-letter queue (SET-05).
    DeadLetter {
        /// Reason, description and application properties to set (SET-06).
        properties: Option<Overlay>,
    },
    /// Unlocked as if it had never been delivered; not counted (SET-32).
    Release,
}

impl Settlement {
    /// A dead-letter settlement with reason, description and further properties, each optional.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for a text that is too long (SET-11), and those of [`Overlay::encode`].
    pub fn dead_letter(
        reason: Option<&str>,
        description: Option<&str>,
        properties: &[(String, Value)],
        limits: &Limits,
    ) -> Result<Self, Rejection> {
        let texts = [
            ("dead-letter reason", reason, limits.dead_letter_reason_chars_max),
            ("dead-letter description", description, limits.dead_letter_description_chars_max),
        ];
        for (what, text, chars_max) in texts {
            let chars = text.map_or(0, |text| text.chars().count());
            if chars > chars_max {
                return Err(Rejection::out_of_range(format!(
                    "{what} has {chars} characters, the limit is {chars_max}"
                )));
            }
        }
        if reason.is_none() && description.is_none() && properties.is_empty() {
            return Ok(Self::DeadLetter { properties: None });
        }
        let overlay = Overlay::dead_letter(reason, description, properties)?;
        Ok(Self::DeadLetter { properties: Some(overlay) })
    }
}

/// How the connection of a receiver ended (SET-21, SET-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The client closed it; locks stay unless `locks.release_on_detach` is set.
    Orderly,
    /// The transport was lost, or an in-process handle was dropped; locks are released and counted.
    Broken,
    /// The broker closed it; locks are released and not counted.
    ByBroker,
}

/// One thing asked of an entity. Every variant is answered exactly once.
#[derive(Clone, Debug)]
pub enum Command {
    /// Stores one message, now or for its scheduled instant. Answer: [`Outcome::Accepted`].
    Send {
        /// The message.
        message: InboundMessage,
    },
    /// Stores all messages or none (SND-29). Answer: [`Outcome::AcceptedBatch`].
    SendBatch {
        /// The messages, in the order in which they are numbered (SND-31).
        messages: Vec<InboundMessage>,
    },
    /// Stores messages, all or none, that wait here for their transfer to another entity and are seen
    /// by nobody (VIA-01). Answer: [`Outcome::AcceptedBatch`].
    SendVia {
        /// The path of the destination, which was there when the sender attached (VIA-02).
        destination: Arc<str>,
        /// The messages, in their order.
        messages: Vec<InboundMessage>,
    },
    /// Takes messages over from another entity, whose records of them go in the same batch (FND-03).
    /// Asked by the broker only. Answer: [`Outcome::Admitted`].
    TransferIn {
        /// The messages, in the order of their source (FWD-10).
        messages: Vec<Arrival>,
        /// What becomes of the rest when there is no room.
        when_full: WhenFull,
    },
    /// Says what became of a list of messages that the entity has handed over. Asked by the broker
    /// only. Answer: [`Outcome::Done`].
    TransferOut {
        /// The list.
        list: ListNumber,
        /// One for each message; those without one are kept.
        departures: Vec<Departure>,
    },
    /// Takes messages over that another broker forwards, in their order, each by itself; one that was
    /// taken before is not stored again. Ends at the first that is refused. Only for who may
    /// manage the entity (FWD-13). Answer: [`Outcome::TakenOver`].
    TransferFromPeer {
        /// Where they come from.
        source: PeerSource,
        /// The messages, in the order of their source (FWD-10).
        messages: Vec<PeerArrival>,
    },
    /// Removes scheduled messages, all or none (SCH-05). Answer: [`Outcome::Done`].
    CancelScheduled {
        /// The numbers given when they were scheduled.
        sequences: Vec<SequenceNumber>,
    },
    /// Takes what is available, or waits for it (RCV-10 to RCV-13). Answer: [`Outcome::Received`].
    Receive {
        /// Peek-lock or receive-and-delete.
        mode: ReceiveMode,
        /// At least 1 and at most this many messages.
        count_max: u32,
        /// No further message once this many bytes are taken; the first always fits (RCV-13).
        bytes_max: u64,
        /// How long to wait for the first message; zero never waits (RCV-10).
        wait: TimeSpan,
        /// Whose end releases the locks; `None` for a stateless client (SET-23).
        holder: Option<ReceiverId>,
    },
    /// Withdraws the waiting [`Command::Receive`] sent under this ticket (RCV-14). It is then
    /// answered with an empty [`Outcome::Received`]. Answer: [`Outcome::Done`].
    CancelReceive {
        /// The ticket of the call to withdraw.
        call: crate::ids::Ticket,
    },
    /// Takes deferred messages by number, all or none (DEF-03). Answer: [`Outcome::Received`].
    ReceiveDeferred {
        /// Peek-lock or receive-and-delete.
        mode: ReceiveMode,
        /// The numbers.
        sequences: Vec<SequenceNumber>,
        /// Whose end releases the locks; `None` for a stateless client (SET-23).
        holder: Option<ReceiverId>,
    },
    /// Opens a receiver link without credit. Deliveries go to the outlet of this request.
    /// Answer: [`Outcome::Done`].
    Attach {
        /// The new link, an id that was never used.
        receiver: ReceiverId,
        /// Peek-lock or receive-and-delete.
        mode: ReceiveMode,
    },
    /// Sets how far a link may be sent. Both limits count from the attach, so that neither grants
    /// nor deliveries that cross each other are counted twice (AMQP 2.6.7: a limit is the
    /// receiver's delivery-count plus its link-credit). Answer: [`Outcome::Granted`], for a drain
    /// after the deliveries it made.
    Grant {
        /// The link.
        receiver: ReceiverId,
        /// How many messages it may have been sent in all.
        delivery_limit: u64,
        /// How many bytes it may have been sent in all; the connection raises it as it writes.
        byte_limit: u64,
        /// Whether credit that cannot be used now is given back at once (RCV-18).
        drain: Drain,
    },
    /// Ends a link or a holder of locks (SET-21). Answer: [`Outcome::Done`].
    Detach {
        /// The link or holder.
        receiver: ReceiverId,
        /// How it ended.
        end: LinkEnd,
    },
    /// Settles one locked message. Answer: [`Outcome::Done`].
    Settle {
        /// The lock.
        token: LockToken,
        /// The decision.
        settlement: Settlement,
    },
    /// Prolongs a lock to now plus the lock duration (SET-18). Answer: [`Outcome::Renewed`].
    RenewLock {
        /// The lock.
        token: LockToken,
    },
    /// Looks at messages without changing them (PEK-01). Answer: [`Outcome::Peeked`].
    Peek {
        /// The first number to return (PEK-04).
        from: SequenceNumber,
        /// At most this many (PEK-08).
        count_max: u32,
    },
    /// Locks a session for a new receiver link without credit, or waits for one that can be locked
    /// (SES-05 to SES-08). Deliveries go to the outlet of this request; [`Command::Detach`] releases
    /// the session, [`Command::CancelReceive`] withdraws a call that waits.
    /// Answer: [`Outcome::SessionAccepted`].
    AcceptSession {
        /// This session, or whichever has the lowest available message (SES-07).
        session: Option<Box<str>>,
        /// The new link, an id that was never used.
        receiver: ReceiverId,
        /// Peek-lock or receive-and-delete (SES-21).
        mode: ReceiveMode,
        /// How long to wait if any session will do; zero never waits.
        wait: TimeSpan,
    },
    /// Something that only the holder of a session may ask. Without the lock it is refused with
    /// `SessionLockLost` (SES-15).
    InSession {
        /// The link that was given with [`Command::AcceptSession`].
        receiver: ReceiverId,
        /// What is asked.
        command: SessionCommand,
    },
    /// Looks at the messages of one session (PEK-07). Answer: [`Outcome::Peeked`].
    PeekSession {
        /// The session.
        session: Box<str>,
        /// The first number to return (PEK-04).
        from: SequenceNumber,
        /// At most this many (PEK-08).
        count_max: u32,
    },
    /// Names sessions, ascending (SES-29). Answer: [`Outcome::Sessions`].
    ListSessions {
        /// Which of them.
        which: SessionFilter,
        /// So many of the first are left out.
        skip: u64,
        /// At most this many; the limit for lists caps it.
        top: u32,
    },
    /// Removes available messages of all unlocked sessions, lowest numbers first (DEL-07); for whoever
    /// may manage the entity. Answer: [`Outcome::Deleted`].
    DeleteBatchUnlocked {
        /// At most this many.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
    /// Removes available messages, lowest numbers first (DEL-01). Answer: [`Outcome::Deleted`].
    DeleteBatch {
        /// At most this many.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
    /// Removes one deferred message, expired or not (DEL-09). Answer: [`Outcome::Done`].
    DeleteDeferred {
        /// Its number.
        sequence: SequenceNumber,
    },
    /// Replaces the description; it was validated before (ENT-17). Answer: [`Outcome::Done`].
    Update {
        /// The new description.
        description: Box<QueueDescription>,
        /// Fails with `UpdateConflict` unless the description is of this instant (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// Whether an operation would be carried out now; changes nothing (TXN-07).
    /// Answer: [`Outcome::Done`].
    Check {
        /// What a transaction is to do.
        operation: Operation,
    },
    /// Carries out all operations of a transaction as one atomic unit, or none (TXN-01). Each part
    /// names its own sub-queue (TXN-14). Answer: [`Outcome::Committed`].
    Commit {
        /// What it does, in its order.
        parts: Vec<Part>,
    },
    /// Replaces the description of a subscription; it was validated before (ENT-17).
    /// Answer: [`Outcome::Done`].
    UpdateSubscription {
        /// The new description.
        description: Box<SubscriptionDescription>,
        /// Fails with `UpdateConflict` unless the description is of this instant (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// What only topics are asked.
    OfTopic(TopicCommand),
    /// Reads description, counts and instants (ENT-31, CNT-01). Answer: [`Outcome::Described`], of a
    /// topic [`Outcome::TopicDescribed`], of a subscription [`Outcome::SubscriptionDescribed`].
    Describe,
}

/// What only topics are asked: about themselves, and about their subscriptions.
#[derive(Clone, Debug)]
pub enum TopicCommand {
    /// Replaces the description of the topic; it was validated before (ENT-17). Answer: [`Outcome::Done`].
    Update {
        /// The new description.
        description: Box<TopicDescription>,
        /// Fails with `UpdateConflict` unless the description is of this instant (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// Stores a new subscription with its rules, which are judged here (TOP-17); for the namespace, which
    /// has given it its identity. Answer: [`Outcome::Done`].
    CreateSubscription {
        /// Its identity.
        id: EntityId,
        /// Its description, validated before.
        description: Box<SubscriptionDescription>,
        /// Its rules; with none it gets `$Default` (TOP-12).
        rules: Vec<RuleDescription>,
    },
    /// Removes a subscription with everything in it (ENT-14); for the namespace, which has retired it.
    /// Answer: [`Outcome::Done`].
    RemoveSubscription {
        /// Its identity.
        id: EntityId,
    },
    /// Asked about the rules of one of its subscriptions.
    InSubscription {
        /// The subscription.
        subscription: EntityId,
        /// What is asked.
        command: RuleCommand,
    },
}

impl From<TopicCommand> for Command {
    fn from(command: TopicCommand) -> Self {
        Self::OfTopic(command)
    }
}

/// What can be asked about the rules of a subscription.
#[derive(Clone, Debug)]
pub enum RuleCommand {
    /// Adds a rule (TOP-13). Answer: [`Outcome::Done`].
    Create(Box<RuleDescription>),
    /// Replaces filter and action of a rule (TOP-24). Answer: [`Outcome::Done`].
    Update(Box<RuleDescription>),
    /// Removes a rule (TOP-13). Answer: [`Outcome::Done`].
    Delete(Box<str>),
    /// Reads one rule. Answer: [`Outcome::Rules`] with one.
    Get(Box<str>),
    /// Reads rules in the order of their names (ENT-30). Answer: [`Outcome::Rules`].
    List {
        /// So many of the first are left out.
        skip: usize,
        /// At most this many.
        top: usize,
    },
    /// Tells which rules select a message, and why; nothing is stored. Answer: [`Outcome::Explained`].
    Explain(Box<InboundMessage>),
}

/// What the holder of a session may ask.
#[derive(Clone, Debug)]
pub enum SessionCommand {
    /// Opens the link again, without credit, after the entity has closed it and left the session to
    /// its holder (ENT-24, ENT-25). Answer: [`Outcome::Done`].
    Attach,
    /// As [`Command::Receive`], from the session, in the mode of its receiver (SES-21).
    Receive {
        /// At least 1 and at most this many messages.
        count_max: u32,
        /// No further message once this many bytes are taken; the first always fits (RCV-13).
        bytes_max: u64,
        /// How long to wait for the first message; zero never waits (RCV-10).
        wait: TimeSpan,
    },
    /// As [`Command::ReceiveDeferred`]; the messages must be of the session (DEF-08).
    ReceiveDeferred {
        /// The numbers.
        sequences: Vec<SequenceNumber>,
    },
    /// Prolongs the session lock, and with it all message locks under it (SES-12, SES-14).
    /// Answer: [`Outcome::Renewed`].
    Renew,
    /// Reads the state of the session (SES-24). Answer: [`Outcome::SessionState`].
    GetState,
    /// Replaces the state of the session, or clears it (SES-24). Answer: [`Outcome::Done`].
    SetState {
        /// The new state.
        state: Option<Bytes>,
    },
    /// As [`Command::DeleteBatch`], in the session (DEL-07). Answer: [`Outcome::Deleted`].
    DeleteBatch {
        /// At most this many.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
}

/// Which sessions are listed (SES-29).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter {
    /// All that exist (SES-04).
    All,
    /// Those that have active messages.
    WithActiveMessages,
    /// Those whose state was set after this instant.
    StateSetAfter(Timestamp),
}

/// What becomes of credit that cannot be used at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// It waits for messages (RCV-17).
    No,
    /// It is given back (RCV-18).
    Yes,
}

/// The answer to a command that was not rejected. Of messages and states it holds what `M` and `S`
/// say: a machine names them, a shell adds references to their contents. What `W` says of a session that
/// was accepted is the shell's to add.
#[derive(Clone, Debug)]
pub enum Outcome<M, S, W> {
    /// It is done; there is nothing more to say.
    Done,
    /// The message is stored under this number; 0 for a silently dropped duplicate (DUP-02), or, if it
    /// was to be scheduled, the number of the scheduled message that it repeats (DUP-12).
    Accepted(SequenceNumber),
    /// The numbers of a batch, in its order, each as in [`Outcome::Accepted`].
    AcceptedBatch(Vec<SequenceNumber>),
    /// Received messages; empty when none came in time (RCV-11).
    Received(Vec<M>),
    /// Messages looked at, ascending by number.
    Peeked(Vec<M>),
    /// The new end of the lock.
    Renewed(Timestamp),
    /// How much of the credit is left unused; with a drain, all that was given back.
    Granted {
        /// Unused credit.
        unused: u64,
    },
    /// How many messages were removed.
    Deleted(u64),
    /// The description with its runtime part.
    Described(Box<Described>),
    /// The description of a topic with its runtime part.
    TopicDescribed(Box<DescribedTopic>),
    /// The description of a subscription with its runtime part.
    SubscriptionDescribed(Box<DescribedSubscription>),
    /// Rules, in the order of their names (ENT-30).
    Rules(Vec<RuleDescription>),
    /// What each rule makes of a message, in the order of their names.
    Explained(Vec<Explanation>),
    /// A session is locked for the receiver (SES-10).
    SessionAccepted {
        /// The session.
        session: Arc<str>,
        /// The receiver that holds it.
        receiver: ReceiverId,
        /// When the lock ends, unless renewed.
        locked_until: Timestamp,
        /// The way in to the session; see `Entity::by_way_of` of `peeklock-core`.
        way: W,
    },
    /// The state of a session, if it has one (SES-24).
    SessionState(Option<S>),
    /// Session ids, ascending (SES-29).
    Sessions(Vec<Arc<str>>),
    /// What became of the parts of a transaction, in their order.
    Committed(Vec<PartOutcome>),
    /// What became of each message of a list that came in from another entity.
    Admitted(Vec<Admission>),
    /// Which messages of another broker are here now, from the first on as far as they were looked at.
    TakenOver(Vec<Result<(), Rejection>>),
}

/// An outcome as a machine tells it.
pub type MachineOutcome = Outcome<MessageFacts, StateFacts, ()>;

/// Where the state of a session is.
#[derive(Clone, Debug)]
pub enum StateFacts {
    /// In the store, as the content of this key.
    Stored(Key),
    /// Here: it was set a moment ago and is not durable yet.
    Fresh(Bytes),
}

/// State of a message as receivers see it (PEK-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum MessageState {
    /// Available or locked.
    Active,
    /// Set aside by a receiver.
    Deferred,
    /// Waiting for its instant.
    Scheduled,
}

/// The lock of a delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockGrant {
    /// Names the lock.
    pub token: LockToken,
    /// When it ends, unless renewed (SET-16).
    pub until: Timestamp,
}

/// What the broker says about a message beside its content (file 02, "Properties set by the broker").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageFacts {
    /// Identity in the entity (MSG-12).
    pub sequence: SequenceNumber,
    /// Number at the original point of submission, else 0 (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// When it was enqueued in this entity; for a scheduled message when it will be.
    pub enqueued_at: Timestamp,
    /// When it expires; `None` where it is not computed (EXP-11).
    pub expires_at: Option<Timestamp>,
    /// The TTL to show (EXP-14): effective on receive; own, possibly lowered, on peek.
    pub time_to_live: Option<TimeSpan>,
    /// The stored count (SET-29). A peek-lock delivery shows one more (SET-30).
    pub delivery_count: u32,
    /// Active, deferred or scheduled.
    pub state: MessageState,
    /// Where the message is.
    pub sub_queue: SubQueue,
    /// The lock, only on messages received under one (MSG-19).
    pub lock: Option<LockGrant>,
    /// Stored size in bytes, overlays included.
    pub size: u32,
    /// How many overlays its content has.
    pub overlay_count: u16,
}

impl MessageFacts {
    /// The count that a receiver is shown (SET-29, SET-30).
    #[must_use]
    pub const fn shown_delivery_count(&self) -> u32 {
        match self.lock {
            Some(_) => self.delivery_count.saturating_add(1),
            None => self.delivery_count,
        }
    }
}

/// Message counts of an entity (CNT-01 to CNT-05).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Active messages of the main queue, locked ones included (CNT-02).
    pub active: u64,
    /// Deferred messages of the main queue.
    pub deferred: u64,
    /// Scheduled messages.
    pub scheduled: u64,
    /// Messages in the dead-letter queue, deferred ones included.
    pub dead_letter: u64,
    /// Messages waiting to be moved to another entity (CNT-05).
    pub transfer: u64,
    /// Messages in the transfer dead-letter queue.
    pub transfer_dead_letter: u64,
}

impl Counts {
    /// The sum of all (CNT-03).
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.active
            + self.deferred
            + self.scheduled
            + self.dead_letter
            + self.transfer
            + self.transfer_dead_letter
    }
}

/// How many sessions an entity has (CNT-11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionCounts {
    /// Those that exist (SES-04).
    pub existing: u64,
    /// Those that a receiver holds.
    pub locked: u64,
}

/// A description with its runtime part (ENT-31, file 17).
#[derive(Clone, Debug)]
pub struct Described {
    /// All settable properties with their effective values.
    pub description: QueueDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes (CNT-08).
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the entity was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the entity requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}

/// A topic's description with its runtime part (ENT-31, CNT-04).
#[derive(Clone, Debug)]
pub struct DescribedTopic {
    /// All settable properties with their effective values.
    pub description: TopicDescription,
    /// How many subscriptions it has.
    pub subscription_count: u64,
    /// How many messages wait for their instant.
    pub scheduled: u64,
    /// How many messages wait for their transfer to another entity, or are on their way (VIA-06).
    pub transfer: u64,
    /// How many messages are in its transfer dead-letter queue (VIA-06).
    pub transfer_dead_letter: u64,
    /// Sum of stored sizes, over its subscriptions too (CNT-08, TOP-10).
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the topic was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, on its subscriptions too, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
}

/// A subscription's description with its runtime part (ENT-31, CNT-01).
#[derive(Clone, Debug)]
pub struct DescribedSubscription {
    /// All settable properties with their effective values.
    pub description: SubscriptionDescription,
    /// Message counts.
    pub counts: Counts,
    /// Sum of stored sizes, which count for the topic's quota.
    pub size_bytes: u64,
    /// The highest sequence number given so far, 0 if none (CNT-13).
    pub last_sequence: SequenceNumber,
    /// When the subscription was created.
    pub created_at: Timestamp,
    /// Last change of the description.
    pub updated_at: Timestamp,
    /// Last activity, [`Timestamp::NONE`] if none yet (CNT-09).
    pub accessed_at: Timestamp,
    /// Counts of sessions, if the subscription requires them (CNT-11).
    pub sessions: Option<SessionCounts>,
}
