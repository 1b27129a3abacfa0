//! Stand-in for a broker: ids that count up, and an entity that records its requests.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use peeklock_core::command::{
    Command, LockGrant, MessageFacts, MessageState, Outcome, ReceiveMode, ReceivedMessage,
};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Released, Request, SessionEntrance, Watch};
use peeklock_core::time::Timestamp;

use crate::{Event, Handle, Issuer, LinkRole, Links};

/// Issuer of ids that count up.
#[derive(Default)]
pub struct CountingIssuer(Cell<u64>);

/// Entity that records its requests.
#[derive(Clone, Default)]
pub struct RecordingEntity(Arc<Mutex<Vec<Request>>>);

/// Outlet that records the correlation of the last answer, such as the answer of a dropped request.
#[derive(Default)]
struct LastAnswer(Mutex<Option<u64>>);

impl Outlet for LastAnswer {
    fn release(&self, group: Vec<Released>) {
        for released in group {
            if let Released::Answer { correlation, .. } = released {
                *self.0.lock().unwrap() = Some(correlation);
            }
        }
    }
}

impl Issuer for CountingIssuer {
    type Entity = RecordingEntity;

    fn tickets(&self, count: u64) -> Ticket {
        Ticket(self.0.replace(self.0.get() + count))
    }

    fn receiver_id(&self) -> ReceiverId {
        ReceiverId(self.0.replace(self.0.get() + 1))
    }
}

impl Handle for RecordingEntity {
    fn sub_queue(&self) -> SubQueue {
        SubQueue::Main
    }

    fn submit(&self, group: Vec<Request>) {
        self.0.lock().unwrap().extend(group);
    }

    fn with_session_entrance(&self, _: Option<SessionEntrance>) -> Self {
        self.clone()
    }

    fn watch(&self, _: LinkRole, _: ReceiverId, _: &Arc<dyn Outlet>) -> Watch {
        Watch::default()
    }
}

/// Links to one entity, and the entity.
pub struct Stand {
    pub links: Links<CountingIssuer, &'static str>,
    pub entity: RecordingEntity,
    told: Arc<LastAnswer>,
}

pub const WINDOW_BYTES: u64 = 256 << 10;

impl Stand {
    pub fn new() -> Self {
        Self::counting_from(0)
    }

    /// Creates the stand with links that number deliveries from `first + 1`.
    pub fn counting_from(first: u64) -> Self {
        let told: Arc<LastAnswer> = Arc::default();
        let outlet = Arc::clone(&told) as Arc<dyn Outlet>;
        let mut links = Links::new(CountingIssuer::default(), outlet, WINDOW_BYTES, 4);
        links.count_from(first);
        Self { links, entity: RecordingEntity::default(), told }
    }

    /// Attaches a receiver with credit.
    pub fn receiver(&mut self, number: u32, credit: u64) -> ReceiverId {
        let entity = self.entity.clone();
        self.links.attach(number, entity, "q".into(), LinkRole::Receiver, ReceiveMode::PeekLock);
        self.links.credit(number, credit);
        assert!(matches!(
            &self.commands()[..],
            [Command::Attach { .. }, Command::SetCredit { .. }]
        ));
        self.links.get(number).unwrap().receiver
    }

    /// Commands that the entity received since the last call.
    pub fn commands(&mut self) -> Vec<Command> {
        self.requests().into_iter().map(|request| request.0).collect()
    }

    /// Commands that the entity received since the last call, each with the correlation of its
    /// answer.
    pub fn requests(&mut self) -> Vec<(Command, u64)> {
        self.links.submit_groups();
        let requests = std::mem::take(&mut *self.entity.0.lock().unwrap());
        requests
            .into_iter()
            .map(|request| {
                let command = request.command.clone();
                drop(request);
                (command, self.told.0.lock().unwrap().take().unwrap())
            })
            .collect()
    }

    /// Correlation of an answer that was sent because its request was dropped.
    pub fn dropped_answer(&self) -> Option<u64> {
        self.told.0.lock().unwrap().take()
    }

    pub fn answer(&mut self, correlation: u64, result: Result<Outcome, Rejection>) -> Event {
        self.links.handle_released(Released::Answer { correlation, result })
    }

    pub fn deliver(&mut self, receiver: ReceiverId, sequence: u64, until: u64) -> Event {
        let message = Box::new(message(sequence, until, 10));
        self.links.handle_released(Released::Delivery { receiver, message })
    }
}

pub const fn token(sequence: u64) -> LockToken {
    LockToken::new(SequenceNumber(sequence), sequence ^ 0x5bd1_e995)
}

pub fn facts(sequence: u64, until: u64, size: u32) -> MessageFacts {
    MessageFacts {
        sequence: SequenceNumber(sequence),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::NONE,
        expires_at: None,
        time_to_live: None,
        delivery_count: 0,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: Some(LockGrant { token: token(sequence), until: at(until) }),
        size,
        overlay_count: 0,
        was_scheduled: false,
    }
}

pub fn message(sequence: u64, until: u64, size: u32) -> ReceivedMessage {
    let content = ContentRef::Loaded(Bytes::from_static(b"content"));
    ReceivedMessage { facts: facts(sequence, until, size), content, overlays: Vec::new() }
}

pub fn at(ticks: u64) -> Timestamp {
    Timestamp::from_ticks(i64::try_from(ticks).unwrap())
}
