//! What the auditor knows of one entity, from what clients asked and were told.

mod sessions;

use std::collections::BTreeMap;

use peeklock_core::command::ReceiveMode;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::{EntityId, LockToken, ReceiverId};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::clients::Sent;

pub use self::sessions::Sessions;

/// What is known of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// Not answered yet.
    Asked,
    /// Acknowledged.
    Accepted,
    /// Answered that the outcome is unknown; decided when the entity was read back.
    Unknown,
    /// Refused, or read back as never stored: it must never show up.
    Refused,
    /// Acknowledged as a duplicate: it must never show up (DUP-02).
    Duplicate,
}

/// A lock that a client was given.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub token: LockToken,
    pub until: Timestamp,
    pub holder: Option<ReceiverId>,
}

/// What is known of one message.
#[derive(Clone, Debug)]
pub struct Message {
    pub sent: Sent,
    pub sending: Sending,
    /// The command that sent it, and when that was asked.
    pub ticket: u64,
    pub asked_at: Timestamp,
    /// The number given at acknowledgement, and the one it is received under.
    pub accepted_as: u64,
    pub accepted_at: Timestamp,
    pub number: u64,
    pub lock: Option<Held>,
    /// Under which it was delivered last.
    pub last_token: Option<LockToken>,
    /// An acknowledged removal, by the order in which it was known.
    pub gone_at: Option<u64>,
    pub perhaps_gone: bool,
    /// It is gone exactly if one of these is stored: they were sent by transactions of unknown outcome
    /// that complete it.
    pub gone_with: Vec<u64>,
    pub deferred: bool,
    pub perhaps_deferred: bool,
    /// Not before this it is delivered again, if it is where it was: among the dead, or not (RTY-01).
    pub delayed_until: Option<(bool, Timestamp)>,
    pub dead: bool,
    pub perhaps_dead: bool,
    /// Whether it may be anything else than untouched and available.
    pub touched: bool,
    /// Deliveries under a lock, the highest count seen, and the count that must survive.
    pub deliveries: u32,
    pub count: u32,
    pub count_floor: u32,
}

impl Message {
    pub const fn new(sent: Sent, ticket: u64, asked_at: Timestamp) -> Self {
        Self {
            sent,
            sending: Sending::Asked,
            ticket,
            asked_at,
            accepted_as: 0,
            accepted_at: asked_at,
            number: 0,
            lock: None,
            last_token: None,
            gone_at: None,
            perhaps_gone: false,
            gone_with: Vec::new(),
            deferred: false,
            perhaps_deferred: false,
            delayed_until: None,
            dead: false,
            perhaps_dead: false,
            touched: false,
            deliveries: 0,
            count: 0,
            count_floor: 0,
        }
    }
}

/// A link that a client attached.
#[derive(Clone, Copy, Debug)]
pub struct LinkBook {
    pub mode: ReceiveMode,
    pub delivery_limit: u64,
    pub delivered: u64,
}

/// An acceptance under a message id: when it was asked for and when it was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acceptance {
    pub asked_at: Timestamp,
    pub known_at: Timestamp,
    pub known_order: u64,
}

/// What is known of one entity.
pub struct Book {
    pub id: EntityId,
    /// The last that was acknowledged or read back.
    pub description: QueueDescription,
    /// Those of later updates, by ticket: each may be in force, and durable, before it is known.
    pub updates: BTreeMap<u64, QueueDescription>,
    /// The highest MaxDeliveryCount that ever was in force.
    pub max_delivery_count: u32,
    /// The lowest.
    pub max_delivery_count_min: u32,
    pub messages: BTreeMap<u64, Message>,
    pub by_number: BTreeMap<u64, u64>,
    /// Which message a token locks, and its stored count then.
    pub tokens: BTreeMap<LockToken, (u64, u32)>,
    pub links: BTreeMap<ReceiverId, LinkBook>,
    pub sessions: Sessions,
    pub ids: BTreeMap<u64, Acceptance>,
    /// How many messages may, and must, be missing because of deletes that name none.
    pub loss_max: u64,
    pub loss_min: u64,
    /// Receive-and-delete calls that are not answered: what they took may be out of sight.
    pub hidden_calls: u32,
    /// Holders whose end was asked for and not answered, by ticket.
    pub ending: BTreeMap<u64, ReceiverId>,
    /// How often the entity failed.
    pub failures: u64,
    /// The last acknowledged send.
    pub used_at: Timestamp,
    /// Numbers that unknown sends may have used up.
    pub unknown_numbers: u64,
}

impl Book {
    pub fn new(id: EntityId, description: QueueDescription, now: Timestamp) -> Self {
        Self {
            id,
            max_delivery_count: description.max_delivery_count,
            max_delivery_count_min: description.max_delivery_count,
            description,
            updates: BTreeMap::new(),
            messages: BTreeMap::new(),
            by_number: BTreeMap::new(),
            tokens: BTreeMap::new(),
            links: BTreeMap::new(),
            sessions: Sessions::default(),
            ids: BTreeMap::new(),
            loss_max: 0,
            loss_min: 0,
            hidden_calls: 0,
            ending: BTreeMap::new(),
            failures: 0,
            used_at: now,
            unknown_numbers: 0,
        }
    }

    /// Every description that may be in force.
    pub fn descriptions(&self) -> impl Iterator<Item = &QueueDescription> {
        std::iter::once(&self.description).chain(self.updates.values())
    }

    /// An update was acknowledged: those asked before it are in force no more.
    pub fn updated(&mut self, ticket: u64, description: QueueDescription) {
        self.updates = self.updates.split_off(&(ticket + 1));
        self.description = description;
    }

    /// What is stored is in force; nothing else can be that was asked for and is not waiting still.
    pub fn read_back(&mut self, stored: QueueDescription, waits: impl Fn(u64) -> bool) {
        let known = self.descriptions().any(|description| *description == stored);
        assert!(known, "nobody asked for {stored:?}, or it was overwritten (ENT-17)");
        self.updates.retain(|ticket, _| waits(*ticket));
        self.description = stored;
    }

    /// How long the entity must at least be unused before it may be deleted.
    pub fn idle_min(&self) -> TimeSpan {
        let idle = |description: &QueueDescription| description.auto_delete_on_idle;
        self.descriptions().map(idle).min().unwrap_or(TimeSpan::ZERO)
    }

    /// Whether a message may be expired by now: it cannot have been enqueued before it was asked for.
    pub fn may_be_expired(&self, message: &Message, now: Timestamp) -> bool {
        let default = self
            .descriptions()
            .map(|description| description.default_message_time_to_live)
            .min()
            .unwrap_or(TimeSpan::ZERO);
        let span = message.sent.time_to_live.map_or(default, |own| own.min(default));
        message.sent.scheduled_at.unwrap_or(message.asked_at).max(message.asked_at).plus(span)
            <= now
    }

    /// The same of a message, or of the session that it goes with (EXP-45).
    pub fn may_go_with_its_session(&self, message: &Message, now: Timestamp) -> bool {
        let Some(session) = message.sent.session else { return self.may_be_expired(message, now) };
        self.messages.values().any(|one| {
            one.sent.session == Some(session)
                && !matches!(one.sending, Sending::Refused | Sending::Duplicate)
                && self.may_be_expired(one, now)
        })
    }

    /// Whether somebody takes messages out of sight.
    pub fn hides(&self) -> bool {
        self.hidden_calls > 0
            || self.links.values().any(|link| link.mode == ReceiveMode::ReceiveAndDelete)
    }

    /// The message that a number names.
    pub fn message_at(&mut self, number: u64) -> Option<&mut Message> {
        let marker = self.by_number.get(&number)?;
        self.messages.get_mut(marker)
    }

    /// Notes under which number a message is; no two messages ever share one (MSG-12).
    pub fn learn_number(&mut self, number: u64, marker: u64) {
        let earlier = self.by_number.insert(number, marker);
        assert!(
            earlier.is_none_or(|earlier| earlier == marker),
            "number {number} was given to messages {earlier:?} and {marker} (MSG-12)"
        );
    }

    /// Ends what a holder holds.
    pub fn end_locks_of(&mut self, holder: ReceiverId) {
        for message in self.messages.values_mut() {
            if message.lock.is_some_and(|lock| lock.holder == Some(holder)) {
                message.lock = None;
            }
        }
    }
}

/// Whether a message in this sub-queue was dead-lettered.
pub fn is_dead(sub_queue: SubQueue) -> bool {
    sub_queue != SubQueue::Main
}
