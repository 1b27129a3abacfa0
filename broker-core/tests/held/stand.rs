//! A broker with one queue that requires sessions, an arbiter that tests can block, and outlets
//! that record the order of answers.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_core::admission::Permit;
use peeklock_core::clock::{Clock, ManualClock, SystemClock};
use peeklock_core::command::{
    Command, LinkEnd, Outcome, ReceiveMode, ReceivedMessage, SessionCommand, Settlement,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Released, Reply, Request};
use peeklock_core::telemetry::LiveGauges;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};

use crate::switched::Switched;

pub const LOCK: TimeSpan = TimeSpan::from_seconds(60);

pub struct Stand {
    pub store: Arc<Switched>,
    pub clock: Arc<ManualClock>,
    pub broker: Broker,
    pub queue: Entity,
    pub observed: Arc<LiveGauges>,
}

/// A held session.
pub struct Held {
    /// The queue, through the inlet of the session.
    pub entity: Entity,
    pub receiver: ReceiverId,
}

impl Stand {
    pub async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        Self::with(Arc::clone(&clock), clock).await
    }

    /// With the system's clock: a manual clock keeps every timer that ever slept on it.
    pub async fn in_real_time() -> Self {
        let stopped = Arc::new(ManualClock::at(Timestamp::NONE));
        Self::with(stopped, Arc::new(SystemClock::start())).await
    }

    async fn with(manual: Arc<ManualClock>, clock: Arc<dyn Clock>) -> Self {
        let store = Switched::new(1);
        let mut settings = Settings::default();
        settings.limits.receiver_count_max = 20_000;
        let broker = Broker::builder()
            .settings(settings)
            .store(Arc::clone(&store) as _)
            .clock(clock)
            .arbiters(1)
            .start()
            .await
            .unwrap();
        let properties = QueueUpdate {
            requires_session: Some(true),
            lock_duration: Some(LOCK),
            ..QueueUpdate::default()
        };
        broker.create_queue("orders", properties).await.unwrap();
        let queue = broker.entity("orders").unwrap();
        let observed = broker.observed().into_iter().next().unwrap().1;
        Self { store, clock: manual, broker, queue, observed }
    }

    pub async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }

    pub async fn send(&self, session: &str) {
        let message = self.broker.inbound(Message::new("body").with_session_id(session));
        self.queue.call(Command::Send { message }).await.unwrap();
    }

    /// Schedules `count` messages of a session, due in an hour.
    pub async fn schedule(&self, session: &str, count: usize) -> Vec<SequenceNumber> {
        let at = self.clock.now().plus(TimeSpan::from_seconds(3_600));
        let message = || {
            let message = Message::new("body").with_session_id(session);
            self.broker.inbound(message.with_scheduled_enqueue_time(at))
        };
        let messages = (0..count).map(|_| message()).collect();
        match self.queue.call(Command::SendBatch { messages }).await.unwrap() {
            Outcome::AcceptedBatch(sequences) => sequences,
            other => panic!("{other:?}"),
        }
    }

    pub fn accept_command(&self, session: Option<&str>) -> (ReceiverId, Command) {
        let receiver = self.broker.receiver_id();
        let session = session.map(Box::from);
        let (mode, wait) = (ReceiveMode::PeekLock, TimeSpan::ZERO);
        (receiver, Command::AcceptSession { session, receiver, mode, wait })
    }

    pub async fn accept(&self, session: &str) -> Result<Held, BrokerError> {
        let (_, command) = self.accept_command(Some(session));
        Ok(self.held(self.queue.call(command).await?))
    }

    pub fn held(&self, accepted: Outcome) -> Held {
        match accepted {
            Outcome::SessionAccepted { receiver, session_entrance, .. } => {
                assert!(session_entrance.is_some(), "an accepted session has an entrance");
                Held { entity: self.queue.with_session_entrance(session_entrance), receiver }
            }
            other => panic!("{other:?}"),
        }
    }

    /// Blocks the arbiter until the returned sender is dropped. Commands submitted meanwhile arrive
    /// together.
    pub fn hold_up(&self) -> mpsc::Sender<()> {
        let (go_on, waits) = mpsc::channel();
        let (reached, is_reached) = mpsc::channel();
        let outlet = Arc::new(Stuck(Mutex::new(Some((reached, waits)))));
        submit(&self.queue, vec![(Command::Describe, Reply::new(outlet, 0, None))]);
        is_reached.recv().unwrap();
        go_on
    }

    /// Waits until `count` sessions have an actor.
    pub async fn actors(&self, count: u64) {
        while self.observed.session_actors() != count {
            tokio::task::yield_now().await;
        }
    }

    pub async fn locked_count(&self) -> u64 {
        self.broker.describe_queue("orders").await.unwrap().sessions.unwrap().locked
    }
}

impl Held {
    pub fn command(&self, command: SessionCommand) -> Command {
        Command::InSession { receiver: self.receiver, command }
    }

    pub async fn ask(&self, command: SessionCommand) -> Result<Outcome, BrokerError> {
        self.entity.call(self.command(command)).await
    }

    pub async fn receive(&self, wait: TimeSpan) -> Result<Vec<ReceivedMessage>, BrokerError> {
        match self.ask(receive(wait)).await? {
            Outcome::Received(messages) => Ok(messages),
            other => panic!("{other:?}"),
        }
    }

    pub async fn complete(&self, token: LockToken) -> Result<(), BrokerError> {
        let command = Command::Settle { token, settlement: Settlement::Complete };
        self.entity.call(command).await.map(|_| ())
    }

    pub fn detach(&self, end: LinkEnd) -> Command {
        Command::Detach { receiver: self.receiver, end }
    }

    /// Result of a renewal of its lock.
    pub async fn renewal(&self) -> Result<(), Condition> {
        self.ask(SessionCommand::Renew).await.map(|_| ()).map_err(|error| error.condition())
    }
}

pub const fn receive(wait: TimeSpan) -> SessionCommand {
    SessionCommand::Receive { count_max: 100, bytes_max: u64::MAX, wait }
}

/// Submits commands as one group without waiting.
pub fn submit(entity: &Entity, commands: Vec<(Command, Reply)>) {
    let request = |(command, reply)| Request {
        ticket: entity.broker().ticket(),
        sub_queue: SubQueue::Main,
        command,
        reply,
    };
    entity.submit(commands.into_iter().map(request).collect());
}

/// An outlet that blocks the arbiter that releases something to it.
struct Stuck(Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>);

impl Outlet for Stuck {
    fn release(&self, _: Vec<Released>) {
        let Some((reached, waits)) = self.0.lock().unwrap().take() else { return };
        reached.send(()).unwrap();
        // Returns when the other side is dropped.
        waits.recv().unwrap_err();
    }
}

/// Answers in the order of their arrival, with the numbers of their commands.
#[derive(Default)]
pub struct Log {
    answers: Mutex<Vec<(u64, Result<Outcome, Condition>)>>,
}

impl Log {
    pub fn reply(self: &Arc<Self>, number: u64) -> Reply {
        self.reply_with(number, None)
    }

    pub fn reply_with(self: &Arc<Self>, number: u64, permit: Option<Permit>) -> Reply {
        Reply::new(Arc::clone(self) as Arc<dyn Outlet>, number, permit)
    }

    /// Waits for `count` answers and returns them.
    pub async fn answers(&self, count: usize) -> Vec<(u64, Result<Outcome, Condition>)> {
        while self.answers.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
        std::mem::take(&mut *self.answers.lock().unwrap())
    }

    pub fn is_empty(&self) -> bool {
        self.answers.lock().unwrap().is_empty()
    }
}

impl Outlet for Log {
    fn release(&self, group: Vec<Released>) {
        let mut answers = self.answers.lock().unwrap();
        for item in group {
            if let Released::Answer { correlation, result } = item {
                answers.push((correlation, result.map_err(|rejection| rejection.condition())));
            }
        }
    }
}
