//! What can be asked of an entity, and what it answers. Read first, with [`crate::change`] and
//! [`crate::effect`]. (Data path, step 1.)
//!
//! A [`Command`] is addressed to a sub-queue of an entity. Transports build it from bytes; the actor
//! that owns the entity applies it. Who may ask what is decided before, by the authorizer.

mod cost;
mod described;
mod opens;
mod outcome;
mod retry;
mod session;
mod topic;

use std::sync::Arc;

use crate::description::{QueueDescription, SubscriptionDescription};
use crate::error::Rejection;
use crate::ids::{LockToken, ReceiverId, SequenceNumber};
use crate::limits::Limits;
use crate::message::{Content, Envelope, Overlay, Value};
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::{Operation, Part};
use crate::transfer::peer::PeerSource;
use crate::transfer::{Arrival, Departure, ListNumber, WhenFull};

pub use self::cost::{Cost, Stored, peeked_bytes, rules_bytes};
pub use self::described::{
    Counts, Described, DescribedSubscription, DescribedTopic, SessionCounts,
};
pub use self::opens::Opens;
pub use self::outcome::{
    LockGrant, MachineOutcome, MessageFacts, MessageState, Outcome, StateFacts,
};
pub use self::retry::{RETRY_DELAY_PROPERTY, refuse_retry_delay, retry_delay_of};
pub use self::session::{SessionCommand, SessionFilter};
pub use self::topic::{RuleCommand, TopicCommand};

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
        /// For how long nobody gets it; `None` is as long as the entity's policy says (RTY-01, RTY-17).
        delay: Option<TimeSpan>,
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
    /// `ArgumentOutOfRange` for a text that is too long (SET-11), and those of [`refuse_retry_delay`] and of
    /// [`Overlay::encode`].
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

/// How the connection of a receiver ended (SET-21, SET-31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The client closed it; locks stay unless `locks.release_on_detach` is set.
    Orderly,
    /// The transport was lost, or an in-process handle was dropped; locks are released and counted.
    Broken,
    /// The transport was lost, of a client that settles by lock tokens when it is back: locks stay unless
    /// `locks.release_on_connection_loss` is set; a session ends as if it was broken.
    Lost,
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
    /// Takes deferred messages by number, all or none (DEF-03, DEF-11). Answer: [`Outcome::Received`].
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
        /// Only those behind this name.
        behind: Option<Box<str>>,
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

/// What becomes of credit that cannot be used at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// It waits for messages (RCV-17).
    No,
    /// It is given back (RCV-18).
    Yes,
}
