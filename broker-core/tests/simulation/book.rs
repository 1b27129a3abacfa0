//! The auditor's knowledge of one entity, from commands and answers of clients.

mod sessions;

use std::collections::BTreeMap;

use peeklock_core::command::ReceiveMode;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::{EntityId, LockToken, ReceiverId};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::clients::Sent;

pub use self::sessions::Sessions;

/// State of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// Not answered yet.
    Asked,
    /// Acknowledged.
    Accepted,
    /// Answered with an unknown outcome; decided when the entity was read back.
    Unknown,
    /// Refused, or never stored when read back: it must never appear.
    Refused,
    /// Acknowledged as a duplicate: it must never appear (DUP-02).
    Duplicate,
}

/// A lock of a client.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub token: LockToken,
    pub until: Timestamp,
    pub holder: Option<ReceiverId>,
}

/// Knowledge about one message.
#[derive(Clone, Debug)]
pub struct Message {
    pub sent: Sent,
    pub sending: Sending,
    /// The command that sent it, and the time of the command.
    pub ticket: u64,
    pub asked_at: Timestamp,
    /// The number in the acknowledgement, and the number when received.
    pub accepted_as: u64,
    pub accepted_at: Timestamp,
    pub number: u64,
    pub lock: Option<Held>,
    /// Token of its last delivery.
    pub last_token: Option<LockToken>,
    /// An acknowledged removal, by the order of the acknowledgement.
    pub gone_at: Option<u64>,
    pub perhaps_gone: bool,
    /// It is removed exactly if one of these is stored: transactions with an unknown outcome sent
    /// these messages and complete it.
    pub gone_with: Vec<u64>,
    pub deferred: bool,
    pub perhaps_deferred: bool,
    /// Earliest next delivery if it is still in the same queue: whether that is a dead-letter
    /// queue, and the instant (RTY-01).
    pub delayed_until: Option<(bool, Timestamp)>,
    pub dead: bool,
    pub perhaps_dead: bool,
    /// Whether it may be in another state than untouched and available.
    pub touched: bool,
    /// Deliveries under a lock, the highest seen count, and the count that must survive.
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

/// An acceptance of a message id: the times of the command and its acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Acceptance {
    pub asked_at: Timestamp,
    pub known_at: Timestamp,
    pub known_order: u64,
}

/// Knowledge about one entity.
pub struct Book {
    pub id: EntityId,
    /// The last acknowledged or read-back description.
    pub description: QueueDescription,
    /// Descriptions of later updates, by ticket: each may be in force and durable before its
    /// answer.
    pub updates: BTreeMap<u64, QueueDescription>,
    /// The highest MaxDeliveryCount that was ever in force.
    pub max_delivery_count: u32,
    /// The lowest.
    pub max_delivery_count_min: u32,
    pub messages: BTreeMap<u64, Message>,
    pub by_number: BTreeMap<u64, u64>,
    /// The message that a token locks, and its stored count then.
    pub tokens: BTreeMap<LockToken, (u64, u32)>,
    pub links: BTreeMap<ReceiverId, LinkBook>,
    pub sessions: Sessions,
    pub ids: BTreeMap<u64, Acceptance>,
    /// Numbers of messages that may, and must, be missing because of deletes without numbers.
    pub loss_max: u64,
    pub loss_min: u64,
    /// Unanswered receive-and-delete calls, whose messages may be invisible.
    pub hidden_calls: u32,
    /// Holders with an unanswered end, by ticket.
    pub ending: BTreeMap<u64, ReceiverId>,
    /// Number of failures of the entity.
    pub failures: u64,
    /// The last acknowledged send.
    pub used_at: Timestamp,
    /// Numbers that sends with an unknown outcome may have used.
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

    /// An update was acknowledged: earlier ones are no longer in force.
    pub fn updated(&mut self, ticket: u64, description: QueueDescription) {
        self.updates = self.updates.split_off(&(ticket + 1));
        self.description = description;
    }

    /// The stored description is in force. Others can be only if their update is still waiting.
    pub fn read_back(&mut self, stored: QueueDescription, waits: impl Fn(u64) -> bool) {
        let known = self.descriptions().any(|description| *description == stored);
        assert!(known, "nobody asked for {stored:?}, or it was overwritten (ENT-17)");
        self.updates.retain(|ticket, _| waits(*ticket));
        self.description = stored;
    }

    /// Minimum idle time before the entity may be deleted.
    pub fn idle_min(&self) -> TimeSpan {
        let idle = |description: &QueueDescription| description.auto_delete_on_idle;
        self.descriptions().map(idle).min().unwrap_or(TimeSpan::ZERO)
    }

    /// Whether a message may be expired by now: it cannot have been enqueued before its send.
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

    /// The same for a message or for its session (EXP-45).
    pub fn may_go_with_its_session(&self, message: &Message, now: Timestamp) -> bool {
        let Some(session) = message.sent.session else { return self.may_be_expired(message, now) };
        self.messages.values().any(|one| {
            one.sent.session == Some(session)
                && !matches!(one.sending, Sending::Refused | Sending::Duplicate)
                && self.may_be_expired(one, now)
        })
    }

    /// Whether an unanswered call may have made messages invisible.
    pub fn hides(&self) -> bool {
        self.hidden_calls > 0
            || self.links.values().any(|link| link.mode == ReceiveMode::ReceiveAndDelete)
    }

    /// The message with this number.
    pub fn message_at(&mut self, number: u64) -> Option<&mut Message> {
        let marker = self.by_number.get(&number)?;
        self.messages.get_mut(marker)
    }

    /// Records the number of a message. Two messages never have the same number (MSG-12).
    pub fn learn_number(&mut self, number: u64, marker: u64) {
        let earlier = self.by_number.insert(number, marker);
        assert!(
            earlier.is_none_or(|earlier| earlier == marker),
            "number {number} was given to messages {earlier:?} and {marker} (MSG-12)"
        );
    }

    /// Ends the locks of a holder.
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
