//! Commands to an entity and their outcomes. Read first, then [`crate::change`] and
//! [`crate::effect`]. (Data path, step 1.)
//!
//! A [`Command`] is addressed to a sub-queue of an entity. Transports build it from bytes, and the
//! actor that owns the entity applies it. The authorizer has checked the right to it before.

mod act;
mod cost;
mod described;
mod last_error;
mod opens;
mod operator;
mod outcome;
mod retry;
mod session;
mod topic;

use std::sync::Arc;

use crate::description::{QueueDescription, SubscriptionDescription};
use crate::error::Rejection;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::inspect::Inquiry;
use crate::limits::Limits;
use crate::message::{Content, Envelope, Overlay, Value};
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::{Operation, Part};
use crate::transfer::peer::PeerSource;
use crate::transfer::{Arrival, Departure, ListNumber, WhenFull};

pub use self::act::{
    ACT_COUNT_MAX, Act, ActResult, ActedMessage, BODY_EDIT_BYTES_MAX, BodyEdit, Deed,
    EDIT_BYTES_MAX, Edit, ExportForm, JobStep, NewInstant, Original, PATCHED_BODY_BYTES_MAX,
    PutBack, RECEIPT_AGE_MAX, RECEIPT_COUNT_MAX, Receipt, Route,
};
pub use self::cost::{Cost, Stored, peeked_bytes, rules_bytes};
pub use self::described::{
    Counts, Described, DescribedSubscription, DescribedTopic, SessionCounts,
};
pub use self::last_error::{LAST_ERROR_BYTES_MAX, LAST_ERROR_PROPERTY, bounded_error};
pub use self::opens::Opens;
pub use self::operator::{BROKEN_LOCK_COUNT_MAX, OperatorCommand};
pub use self::outcome::{
    LockGrant, MachineOutcome, MessageFacts, MessageState, Outcome, StateFacts,
};
pub use self::retry::{RETRY_DELAY_PROPERTY, refuse_retry_delay, retry_delay_of};
pub use self::session::{SessionCommand, SessionFilter};
pub use self::topic::{RuleCommand, TopicCommand};

/// An incoming message: its bytes, and the facts that the entity decides with.
#[derive(Clone, Debug)]
pub struct InboundMessage {
    /// The bare message in AMQP section encoding; stored as it is.
    pub content: Content,
    /// Facts that the entity reads; computed once, at the edge.
    pub envelope: Envelope,
}

/// A message that another broker forwards to this one.
#[derive(Clone, Debug)]
pub struct PeerArrival {
    /// The message.
    pub message: InboundMessage,
    /// Sequence number at its source.
    pub sequence: SequenceNumber,
    /// Instant at which it was enqueued at its source.
    pub enqueued_at: Timestamp,
    /// Sequence number at its original point of submission (MSG-15).
    pub enqueued_sequence: SequenceNumber,
    /// Number of transfers, this one included (FWD-13).
    pub hops: u8,
    /// Copies that the original message has made already, or that other copies may still make; the
    /// limit minus this is left to this message (FWD-33).
    pub copies_spent: u16,
    /// Entity in which it was dead-lettered, if dead letters are forwarded (FWD-26).
    pub dead_letter_source: Option<Arc<str>>,
}

/// Mode of receiving: locks a message or removes it (RCV-01).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ReceiveMode {
    /// The message stays under an exclusive lock until it is settled or the lock ends (RCV-05).
    PeekLock,
    /// The message is removed when it is delivered (RCV-02).
    ReceiveAndDelete,
}

/// Decision of a receiver about a message that it holds.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// The message was processed and is removed (SET-01).
    Complete,
    /// The message is unlocked for redelivery, and the delivery counts as failed (SET-03).
    Abandon {
        /// Application properties to set (SET-08).
        properties: Option<Overlay>,
        /// Time for which the message is not available; `None` uses the retry policy of the entity
        /// (RTY-01, RTY-17).
        delay: Option<TimeSpan>,
    },
    /// The message is deferred: from now on it is received by number only (DEF-01).
    Defer {
        /// Application properties to set (SET-08).
        properties: Option<Overlay>,
    },
    /// The message moves to the dead-letter queue (SET-05).
    DeadLetter {
        /// Reason, description and application properties to set (SET-06).
        properties: Option<Overlay>,
    },
    /// The message is unlocked as if it had never been delivered; the delivery does not count
    /// (SET-32).
    Release,
}

impl Settlement {
    /// A dead-letter settlement with reason, description and further properties, each optional.
    ///
    /// # Errors
    /// `ArgumentOutOfRange` for a text longer than its limit (SET-11), and the errors of
    /// [`refuse_retry_delay`] and [`Overlay::encode`].
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
        for (field, text, chars_max) in texts {
            let chars = text.map_or(0, |text| text.chars().count());
            if chars > chars_max {
                return Err(Rejection::out_of_range(format!(
                    "{field} has {chars} characters, the limit is {chars_max}"
                )));
            }
        }
        refuse_retry_delay("dead-letter", properties)?;
        if reason.is_none() && description.is_none() && properties.is_empty() {
            return Ok(Self::DeadLetter { properties: None });
        }
        let overlay = Overlay::dead_letter(reason, description, properties)?;
        Ok(Self::DeadLetter { properties: Some(overlay) })
    }
}

/// Reason for which a receiver link or its connection ended (SET-21, SET-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The client closed it. Locks stay unless `locks.release_on_detach` is set.
    Orderly,
    /// The transport was lost, or an in-process handle was dropped. Locks are released and counted.
    Broken,
    /// The transport was lost, and the client can settle by lock token after it reconnects. Locks
    /// stay unless `locks.release_on_connection_loss` is set. A session ends as with
    /// [`LinkEnd::Broken`].
    Lost,
    /// The broker closed it. Locks are released and not counted.
    ByBroker,
}

/// A request to an entity. Every variant is answered exactly once.
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
    /// Stores messages, all or none, that wait in this entity for their transfer to another one. No
    /// receiver gets them here (VIA-01). Answer: [`Outcome::AcceptedBatch`].
    SendVia {
        /// Path of the destination, which existed when the sender attached (VIA-02).
        destination: Arc<str>,
        /// The messages, in their order.
        messages: Vec<InboundMessage>,
    },
    /// Takes over messages from another entity. Their records at the source are deleted in the same
    /// batch (FND-03). Issued by the broker only. Answer: [`Outcome::Admitted`].
    TransferIn {
        /// The messages, in the order of their source (FWD-10).
        messages: Vec<Arrival>,
        /// Handling of the remaining messages when the quota is reached.
        when_full: WhenFull,
    },
    /// Reports the result for each message of a list that this entity has handed over. Issued by
    /// the broker only. Answer: [`Outcome::Done`].
    EndTransfer {
        /// The list.
        list: ListNumber,
        /// Results, one per message in the order of the list; messages without a result are kept.
        departures: Vec<Departure>,
    },
    /// Takes over messages that another broker forwards, in their order, each as a unit of its own.
    /// A message that was taken before is not stored again. Ends at the first message that is
    /// refused. Requires the right to manage the entity (FWD-13). Answer: [`Outcome::TakenOver`].
    TransferFromPeer {
        /// Source of the messages.
        source: PeerSource,
        /// The messages, in the order of their source (FWD-10).
        messages: Vec<PeerArrival>,
    },
    /// Removes scheduled messages, all or none (SCH-05). Answer: [`Outcome::Done`].
    CancelScheduled {
        /// The numbers given when they were scheduled.
        sequences: Vec<SequenceNumber>,
    },
    /// Takes available messages, or waits for one (RCV-10 to RCV-13). Answer:
    /// [`Outcome::Received`].
    Receive {
        /// Peek-lock or receive-and-delete.
        mode: ReceiveMode,
        /// At least 1 and at most this many messages.
        count_max: u32,
        /// No further message once this many bytes are taken; the first always fits (RCV-13).
        bytes_max: u64,
        /// Maximum time to wait for the first message; zero never waits (RCV-10).
        wait: TimeSpan,
        /// Holder whose end releases the locks; `None` for a stateless client (SET-23).
        holder: Option<ReceiverId>,
    },
    /// Withdraws the waiting [`Command::Receive`] sent under this ticket (RCV-14). It is then
    /// answered with an empty [`Outcome::Received`]. Answer: [`Outcome::Done`].
    CancelReceive {
        /// The ticket of the call to withdraw.
        call: crate::ids::Ticket,
    },
    /// Takes deferred messages by number, all or none (DEF-03, DEF-11). Answer:
    /// [`Outcome::Received`].
    ReceiveDeferred {
        /// Peek-lock or receive-and-delete.
        mode: ReceiveMode,
        /// The numbers.
        sequences: Vec<SequenceNumber>,
        /// Holder whose end releases the locks; `None` for a stateless client (SET-23).
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
    /// Sets the limits up to which messages may be delivered over a link. Both limits count from
    /// the attach, so that grants and deliveries that cross on their way are not counted twice
    /// (AMQP 2.6.7: a limit is the receiver's delivery-count plus its link-credit). Answer:
    /// [`Outcome::Granted`]; for a drain, it follows the deliveries that the drain caused.
    SetCredit {
        /// The link.
        receiver: ReceiverId,
        /// Maximum number of messages delivered since the attach.
        delivery_limit: u64,
        /// Maximum number of bytes delivered since the attach; the connection raises it as it
        /// writes.
        byte_limit: u64,
        /// Whether the link gives credit that it cannot use now back at once (RCV-18).
        drain: Drain,
    },
    /// Ends a link or a holder of locks (SET-21). Answer: [`Outcome::Done`].
    Detach {
        /// The link or holder.
        receiver: ReceiverId,
        /// Reason of the end.
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
    /// Returns messages without changing them (PEK-01). Answer: [`Outcome::Peeked`].
    Peek {
        /// The first number to return (PEK-04).
        from: SequenceNumber,
        /// Maximum number of messages (PEK-08).
        count_max: u32,
    },
    /// Locks a session for a new receiver link without credit, or waits until one can be locked
    /// (SES-05 to SES-08). Deliveries go to the outlet of this request. [`Command::Detach`]
    /// releases the session, and [`Command::CancelReceive`] withdraws a waiting call. Answer:
    /// [`Outcome::SessionAccepted`].
    AcceptSession {
        /// The session; `None` selects the session with the lowest available message (SES-07).
        session: Option<Box<str>>,
        /// The new link, an id that was never used.
        receiver: ReceiverId,
        /// Peek-lock or receive-and-delete (SES-21).
        mode: ReceiveMode,
        /// Maximum time to wait if `session` is `None`; zero never waits.
        wait: TimeSpan,
    },
    /// Runs a command that requires the lock of a session. Without the lock it is rejected with
    /// `SessionLockLost` (SES-15).
    InSession {
        /// The link that was given with [`Command::AcceptSession`].
        receiver: ReceiverId,
        /// The command.
        command: SessionCommand,
    },
    /// Returns messages of a session without changing them (PEK-07). Answer: [`Outcome::Peeked`].
    PeekSession {
        /// The session.
        session: Box<str>,
        /// The first number to return (PEK-04).
        from: SequenceNumber,
        /// Maximum number of messages (PEK-08).
        count_max: u32,
    },
    /// Lists session ids in ascending order (SES-29). Answer: [`Outcome::Sessions`].
    ListSessions {
        /// Selects the sessions.
        which: SessionFilter,
        /// Lists only sessions after this id.
        after: Option<Box<str>>,
        /// Number of sessions to skip at the start.
        skip: u64,
        /// Maximum number of sessions, capped by the limit for lists.
        top: u32,
    },
    /// Removes available messages of all unlocked sessions, lowest numbers first (DEL-07). Requires
    /// the right to manage the entity. Answer: [`Outcome::Deleted`].
    DeleteBatchUnlocked {
        /// Maximum number of messages.
        count_max: u32,
        /// Only messages enqueued before this instant; `None` is now (DEL-03).
        enqueued_before: Option<Timestamp>,
    },
    /// Removes available messages, lowest numbers first (DEL-01). Answer: [`Outcome::Deleted`].
    DeleteBatch {
        /// Maximum number of messages.
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
        /// Fails with `UpdateConflict` unless the current description was written at this instant
        /// (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// Checks whether an operation could be carried out now; changes nothing except reserved
    /// numbers of scheduled messages (TXN-07, SCH-13). Answer: [`Outcome::Done`] or
    /// [`Outcome::NumbersReserved`].
    Check {
        /// The operation of a transaction.
        operation: Operation,
    },
    /// Carries out all operations of a transaction as one atomic unit, or none (TXN-01). Each part
    /// names its own sub-queue (TXN-14). Answer: [`Outcome::Committed`].
    Commit {
        /// The operations, in their order.
        parts: Vec<Part>,
    },
    /// Replaces the description of a subscription; it was validated before (ENT-17).
    /// Answer: [`Outcome::Done`].
    UpdateSubscription {
        /// The new description.
        description: Box<SubscriptionDescription>,
        /// Fails with `UpdateConflict` unless the current description was written at this instant
        /// (ENT-17).
        read_at: Option<Timestamp>,
    },
    /// A command that only topics accept.
    OfTopic(TopicCommand),
    /// A command of an operator about messages or a session that others may hold.
    OfOperator(OperatorCommand),
    /// Examines a bounded part of the state and changes nothing, not even AccessedAt (CON-01).
    /// Answer: [`Outcome::Inspected`].
    Inspect(Inquiry),
    /// Reads description, counts and instants (ENT-31, CNT-01). Answer: [`Outcome::Described`] from
    /// a queue, [`Outcome::TopicDescribed`] from a topic, [`Outcome::SubscriptionDescribed`] from a
    /// subscription.
    Describe,
}

/// Handling of credit that cannot be used at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// The credit waits for messages (RCV-17).
    No,
    /// The credit is given back (RCV-18).
    Yes,
}
