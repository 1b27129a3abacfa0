//! AMQP over a socket, with the codec of the transport and a client of this suite that works like
//! the official SDKs: links that are attached for an operation, credit and drains, dispositions,
//! and requests to management nodes.
//!
//! Operations that AMQP lacks run in this process, in every scenario. [`in_process`] lists them
//! with the reasons.

mod connection;
pub mod in_process;
mod link;
mod manage;
mod message;
mod session;
mod settle;
mod topics;
mod transaction;
mod via;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_amqp::server::{AmqpConfig, AmqpTransport};
use peeklock_amqp_testing::client::request::{list, longs, map, uuids, value};
use peeklock_amqp_testing::client::{Reply, link as attach};
use peeklock_core::Broker;
use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::command::{Described, ReceiveMode, SessionFilter};
use peeklock_core::contract::{RunningTransport, Transport as _};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::PartOutcome;
use peeklock_words::amqp::Scalar;

use self::connection::{Connection, SHARED};
use self::in_process::{InProcess, Row};
use self::link::Link;
use self::manage::{Entries, bytes_of, int, timestamp};
use self::message::{batch, encoded, seen};
use self::session::Held;
use self::settle::Unsettled;
use self::transaction::{Open, Part, Transactions, within};
use self::via::{SenderVia, last_number, numbers_since};
use crate::subject::{Answer, Decision, Extra, Seen, Session, Subject, Topics as _, Via, Work};

/// From this instant on, the filter selects sessions with active messages (AMQP-85).
const WITH_ACTIVE_MESSAGES_MS: i64 = 253_402_300_800_000;

/// A listener on a free port, and a connection. Each operation uses links of its own.
pub struct Amqp {
    clock: Arc<ManualClock>,
    connection: Rc<Connection>,
    address: SocketAddr,
    running: RefCell<Option<Box<dyn RunningTransport>>>,
    unsettled: Unsettled,
    transactions: Transactions,
    /// Operations that AMQP lacks.
    in_process: Rc<InProcess>,
}

impl Amqp {
    pub async fn open(broker: &Broker, clock: &Arc<ManualClock>) -> Self {
        let mut config = AmqpConfig::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.workers = 1;
        let running = Box::new(AmqpTransport::new(config)).start(broker.clone()).await.unwrap();
        let address = running.local_address();
        Self {
            clock: Arc::clone(clock),
            connection: Connection::open(address).await.unwrap(),
            address,
            running: RefCell::new(Some(running)),
            unsettled: Unsettled::default(),
            transactions: Transactions::default(),
            in_process: Rc::new(InProcess::of(broker)),
        }
    }

    /// The rows of the table that were used since the last call.
    pub fn done_in_process(&self) -> Vec<Row> {
        self.in_process.used()
    }

    async fn ask(
        &self,
        path: &str,
        operation: &str,
        entries: &Entries<'_>,
    ) -> Answer<Option<Reply>> {
        self.connection.ask(path, operation, entries).await
    }

    /// Sends bytes on a new link, in a transaction if one is given.
    async fn transfer(
        &self,
        path: &str,
        format: u32,
        transaction: Option<u64>,
        message: &[u8],
    ) -> Answer<()> {
        let state = transaction.map(|number| within(&self.transactions.txn_id(number)));
        let link = match transaction {
            Some(number) => {
                let root = root(path);
                let channel = self.transactions.channel(&self.connection, number, &root).await?;
                self.sender_on(channel.unwrap_or(SHARED), path, None).await?
            }
            None => self.sender(path, None).await?,
        };
        link.send(format, state.as_ref(), message).await?;
        link.detach().await
    }

    /// A link for sending, through `path` to `destination` if one is given (AMQP-96).
    async fn sender(&self, path: &str, destination: Option<&str>) -> Answer<Link> {
        self.sender_on(SHARED, path, destination).await
    }

    async fn sender_on(&self, channel: u16, path: &str, destination: Option<&str>) -> Answer<Link> {
        let attach = |name: &str, handle| {
            let mut attach = attach::sender(name, handle, path);
            attach.properties = destination.map(|destination| {
                let destination = value(destination);
                let raw = Raw::encoded(|bytes| bytes.extend_from_slice(&destination));
                Map::of_symbols([("com.microsoft:transfer-destination-address", raw)])
            });
            attach
        };
        Link::attach(&self.connection, channel, attach).await
    }

    async fn add(&self, transaction: u64, path: &str, work: Work) -> Answer<Part> {
        let of = path.to_owned();
        Ok(match work {
            Work::Send(message) => {
                self.transfer(path, 0, Some(transaction), &encoded(&message)).await?;
                Part::Send(of, message)
            }
            Work::SendBatch(messages) => {
                let batch = batch(&messages);
                self.transfer(path, BATCH_FORMAT, Some(transaction), &batch).await?;
                Part::SendBatch(of, messages)
            }
            Work::SendOn { destination, message } => {
                let state = within(&self.transactions.txn_id(transaction));
                let channel =
                    self.transactions.channel(&self.connection, transaction, &root(path)).await?;
                let link =
                    self.sender_on(channel.unwrap_or(SHARED), path, Some(&destination)).await?;
                link.send(0, Some(&state), &encoded(&message)).await?;
                link.detach().await?;
                Part::SendOn(of, message)
            }
            Work::Settle { token, decision } => {
                let txn_id = self.transactions.txn_id(transaction);
                let at = (path, None);
                let settled = self
                    .unsettled
                    .settle(&self.connection, at, &token, &decision, Some(&txn_id))
                    .await;
                settled?;
                Part::Settle(of)
            }
            Work::Cancel { sequences } => {
                let state = within(&self.transactions.txn_id(transaction));
                let entries = vec![("sequence-numbers", numbers(&sequences))];
                let operation = "cancel-scheduled-message";
                let asked = self.connection.ask_within(path, Some(&state), operation, &entries);
                asked.await?;
                Part::Cancel(of)
            }
            Work::Renew { token } => {
                let state = within(&self.transactions.txn_id(transaction));
                let entries = vec![("lock-tokens", uuids(&[LockToken::parse(&token).unwrap().0]))];
                let asked = self.connection.ask_within(path, Some(&state), "renew-lock", &entries);
                asked.await?;
                Part::Renew(of)
            }
        })
    }

    /// The lock duration at a path.
    async fn lock_duration(&self, path: &str) -> TimeSpan {
        let whole = path.to_lowercase();
        let end = whole.find("/$").unwrap_or(whole.len());
        let in_process = self.in_process.by(Row::Outcomes);
        if let Ok(queue) = in_process.describe(&path[..end]).await {
            return queue.description.lock_duration;
        }
        match in_process.subscription(&path[..end]).await {
            Ok(subscription) => subscription.description.lock_duration,
            // A topic has no lock duration.
            Err(_) => TimeSpan::from_minutes(1),
        }
    }

    /// The outcomes of the parts of a committed transaction.
    async fn outcomes(&self, open: Open, before: u64) -> Vec<PartOutcome> {
        let Some(root) = open.parts.first().map(|part| root(part.path())) else { return vec![] };
        let is_here = |path: &str| !open.is_across || root == self::root(path);
        // Messages for other entities are numbered after those that stay (TXN-13).
        let (mut sent, mut going_on) = (Vec::new(), Vec::new());
        for part in &open.parts {
            let (messages, stays) = part.messages();
            let to = if stays && is_here(part.path()) { &mut sent } else { &mut going_on };
            to.extend_from_slice(messages);
        }
        let stay = sent.len();
        sent.append(&mut going_on);
        let in_process = self.in_process.by(Row::Outcomes);
        let mut numbers = numbers_since(in_process, &root, before, &sent).await;
        let mut pending = numbers.split_off(stay).into_iter().map(SequenceNumber);
        let mut numbers = numbers.into_iter().map(SequenceNumber);
        let mut outcomes = Vec::new();
        for part in &open.parts {
            outcomes.push(match part {
                Part::Send(path, _) if is_here(path) => {
                    PartOutcome::Accepted(numbers.next().unwrap())
                }
                Part::SendBatch(path, messages) if is_here(path) => {
                    PartOutcome::AcceptedBatch(numbers.by_ref().take(messages.len()).collect())
                }
                Part::Send(..) | Part::SendBatch(..) | Part::SendOn(..) => {
                    let count = part.messages().0.len();
                    PartOutcome::Pending(pending.by_ref().take(count).collect())
                }
                Part::Settle(_) | Part::Cancel(_) => PartOutcome::Done,
                Part::Renew(path) => {
                    PartOutcome::Renewed(self.clock.now().plus(self.lock_duration(path).await))
                }
            });
        }
        outcomes
    }
}

/// The queue or topic that a path belongs to, in lower case.
fn root(path: &str) -> String {
    let path = path.to_lowercase();
    let end = ["/subscriptions/", "/$"].iter().filter_map(|mark| path.find(mark)).min();
    path[..end.unwrap_or(path.len())].to_owned()
}

/// The messages of a reply to a peek.
fn peeked(reply: Option<Reply>) -> Vec<Seen> {
    let maps = reply.map(|reply| reply.maps("messages")).unwrap_or_default();
    maps.iter().map(|map| seen(bytes_of(map, "message").unwrap(), None)).collect()
}

/// The messages of a reply to a receive by number.
fn deferred(reply: Option<Reply>) -> Vec<Seen> {
    let token = |raw: Value| match raw {
        Value::Uuid(token) => LockToken(token),
        other => panic!("lock-token is {other:?}"),
    };
    let maps = reply.map(|reply| reply.maps("messages")).unwrap_or_default();
    let mut all = Vec::new();
    for map in maps {
        let raw = map.get("lock-token").map(|raw| Value::decode(raw.as_bytes()).unwrap());
        all.push(seen(bytes_of(&map, "message").unwrap(), raw.map(token)));
    }
    all
}

/// The number of removed messages in a reply.
fn deleted(reply: Option<Reply>) -> u64 {
    let count = reply.and_then(|reply| reply.body().get("message-count"));
    match count.map(|raw| Value::decode(raw.as_bytes()).unwrap()) {
        Some(Value::I32(count)) => u64::try_from(count).unwrap(),
        None => 0,
        Some(other) => panic!("message-count is {other:?}"),
    }
}

fn numbers(sequences: &[u64]) -> Vec<u8> {
    let number = |number: &u64| i64::try_from(*number).unwrap_or(i64::MAX);
    longs(&sequences.iter().map(number).collect::<Vec<_>>())
}

#[async_trait(?Send)]
impl Subject for Amqp {
    fn offers(&self, extra: Extra) -> bool {
        match extra {
            Extra::VersionedUpdate => true,
        }
    }

    async fn create(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        self.in_process.by(Row::Entities).create(path, properties).await
    }

    async fn update(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        self.in_process.by(Row::Entities).update(path, properties).await
    }

    async fn update_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Answer<Described> {
        self.in_process.by(Row::Entities).update_of(path, properties, read_at).await
    }

    async fn delete(&self, path: &str) -> Answer<()> {
        self.in_process.by(Row::Entities).delete(path).await
    }

    async fn describe(&self, path: &str) -> Answer<Described> {
        self.in_process.by(Row::Entities).describe(path).await
    }

    async fn list(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        self.in_process.by(Row::Entities).list(skip, top).await
    }

    async fn send(&self, path: &str, message: Message) -> Answer<u64> {
        let in_process = self.in_process.by(Row::Numbers);
        let before = last_number(in_process, path).await;
        self.transfer(path, 0, None, &encoded(&message)).await?;
        Ok(numbers_since(in_process, path, before, &[message]).await[0])
    }

    async fn send_batch(&self, path: &str, messages: Vec<Message>) -> Answer<Vec<u64>> {
        let in_process = self.in_process.by(Row::Numbers);
        let before = last_number(in_process, path).await;
        self.transfer(path, BATCH_FORMAT, None, &batch(&messages)).await?;
        Ok(numbers_since(in_process, path, before, &messages).await)
    }

    async fn schedule(&self, path: &str, message: Message, at: Timestamp) -> Answer<u64> {
        let message = message.with_scheduled_enqueue_time(at);
        let id = message.message_id.as_ref().map(|id| ("message-id", value(id.to_string())));
        let mut entries = vec![("message", manage::binary(&encoded(&message)))];
        entries.extend(id);
        let entries = vec![("messages", list(&[map(&entries)]))];
        let reply = self.ask(path, "schedule-message", &entries).await?.unwrap();
        Ok(u64::try_from(reply.numbers("sequence-numbers")[0]).unwrap())
    }

    async fn cancel(&self, path: &str, sequences: &[u64]) -> Answer<()> {
        let entries = vec![("sequence-numbers", numbers(sequences))];
        self.ask(path, "cancel-scheduled-message", &entries).await.map(drop)
    }

    async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        count_max: u32,
        wait: TimeSpan,
    ) -> Answer<Vec<Seen>> {
        let until = self.clock.now().plus(wait);
        loop {
            let attach = |name: &str, handle| {
                let mut attach = attach::receiver(name, handle, path);
                if mode == ReceiveMode::ReceiveAndDelete {
                    attach.snd_settle_mode = Some(SenderSettleMode::Settled);
                }
                attach
            };
            let mut link = Link::attach(&self.connection, SHARED, attach).await?;
            let wait = until.since(self.clock.now());
            match link.receive(count_max, wait, &self.clock).await {
                Ok(taken) => {
                    let seen = self.unsettled.see(SHARED, path, taken);
                    // The link of a deleted queue is already detached.
                    let _detached = link.detach().await;
                    return Ok(seen);
                }
                // The reason is returned to the next attach (AMQP-79).
                Err(refusal) if refusal.condition == "amqp:link:detach-forced" => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    async fn receive_deferred(
        &self,
        path: &str,
        mode: ReceiveMode,
        sequences: &[u64],
    ) -> Answer<Vec<Seen>> {
        let mode = match mode {
            ReceiveMode::PeekLock => 1,
            ReceiveMode::ReceiveAndDelete => 0,
        };
        let entries = vec![
            ("sequence-numbers", numbers(sequences)),
            ("receiver-settle-mode", value(Value::U32(mode))),
        ];
        Ok(deferred(self.ask(path, "receive-by-sequence-number", &entries).await?))
    }

    async fn settle(&self, path: &str, token: &str, decision: Decision) -> Answer<()> {
        self.unsettled.settle(&self.connection, (path, None), token, &decision, None).await
    }

    async fn complete_many(&self, path: &str, tokens: &[String]) -> Answer<Vec<Answer<()>>> {
        let mut answers = Vec::new();
        for token in tokens {
            answers.push(self.settle(path, token, Decision::Complete).await);
        }
        Ok(answers)
    }

    async fn renew(&self, path: &str, token: &str) -> Answer<Timestamp> {
        let entries = vec![("lock-tokens", uuids(&[LockToken::parse(token).unwrap().0]))];
        let reply = self.ask(path, "renew-lock", &entries).await?.unwrap();
        Ok(Timestamp::from_unix_ms(reply.numbers("expirations")[0]))
    }

    async fn peek(&self, path: &str, from: u64, count_max: u32) -> Answer<Vec<Seen>> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let entries = vec![
            ("from-sequence-number", value(Value::I64(from))),
            ("message-count", int(count_max)),
        ];
        Ok(peeked(self.ask(path, "peek-message", &entries).await?))
    }

    async fn delete_batch(
        &self,
        path: &str,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Answer<u64> {
        let mut entries = vec![("message-count", int(count_max))];
        entries.extend(enqueued_before.map(|at| ("enqueued-time-utc", timestamp(at))));
        Ok(deleted(self.ask(path, "batch-delete-messages", &entries).await?))
    }

    /// Deletes like the SDKs: one batch after another of messages that existed at the beginning.
    async fn purge(&self, path: &str) -> Answer<u64> {
        // Messages enqueued in this millisecond existed.
        let begun = Timestamp::from_unix_ms(self.clock.now().unix_ms() + 1);
        let mut all = 0;
        loop {
            match self.delete_batch(path, 4_000, Some(begun)).await? {
                0 => return Ok(all),
                more => all += more,
            }
        }
    }

    async fn delete_deferred(&self, path: &str, sequence: u64) -> Answer<()> {
        self.in_process.by(Row::Deferred).delete_deferred(path, sequence).await
    }

    async fn sender_via(&self, destination: &str, via: &str) -> Option<Answer<Box<dyn Via>>> {
        let link = self.sender(via, Some(destination)).await;
        let in_process = Rc::clone(&self.in_process);
        let via = via.to_owned();
        Some(link.map(|link| Box::new(SenderVia { via, link, in_process }) as Box<dyn Via>))
    }

    async fn begin(&self) -> Answer<u64> {
        self.transactions.begin(&self.connection, false).await
    }

    async fn begin_across(&self) -> Answer<u64> {
        self.transactions.begin(&self.connection, true).await
    }

    async fn within(&self, transaction: u64, path: &str, work: Work) -> Answer<()> {
        self.transactions.channel(&self.connection, transaction, &root(path)).await?;
        let part = self.add(transaction, path, work).await?;
        self.transactions.joined(transaction, part);
        Ok(())
    }

    async fn commit(&self, transaction: u64) -> Answer<Vec<PartOutcome>> {
        let open = self.transactions.take(transaction);
        let before = match open.parts.first() {
            // Scheduled messages have their numbers already (SCH-13).
            Some(part) => {
                let in_process = self.in_process.by(Row::Outcomes);
                last_number(in_process, &root(part.path())).await - open.scheduled_count()
            }
            None => 0,
        };
        self.transactions.discharge(&self.connection, &open, false).await?;
        Ok(self.outcomes(open, before).await)
    }

    async fn roll_back(&self, transaction: u64) -> Answer<()> {
        let open = self.transactions.take(transaction);
        self.transactions.discharge(&self.connection, &open, true).await
    }

    async fn accept(
        &self,
        path: &str,
        session: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Answer<Box<dyn Session>> {
        let held = Held::accept(self.address, &self.clock, path, session, (mode, wait)).await?;
        Ok(Box::new(held))
    }

    async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Answer<Vec<String>> {
        let since = match which {
            // The filter would select only sessions with a state, but not every session has one.
            SessionFilter::All => {
                let in_process = self.in_process.by(Row::Sessions);
                return in_process.sessions(path, which, skip, top).await;
            }
            SessionFilter::WithActiveMessages => Value::Timestamp(WITH_ACTIVE_MESSAGES_MS),
            SessionFilter::StateSetAfter(at) => Value::Timestamp(at.unix_ms()),
        };
        let entries = vec![
            ("last-updated-time", value(since)),
            ("skip", int(u32::try_from(skip).unwrap())),
            ("top", int(top)),
        ];
        let reply = self.ask(path, "get-message-sessions", &entries).await?;
        let names = reply.and_then(|reply| reply.body().get("sessions-ids"));
        let mut all = Vec::new();
        for name in names.iter().flat_map(|names| names.items().unwrap()) {
            let Ok(Scalar::Text(name)) = name else { panic!("{name:?} is no name") };
            all.push(name.to_owned());
        }
        Ok(all)
    }

    async fn delete_unlocked(&self, path: &str, count_max: u32) -> Answer<u64> {
        self.in_process.by(Row::Unlocked).delete_unlocked(path, count_max).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    async fn stop(&self) {
        let running = self.running.borrow_mut().take();
        if let Some(running) = running {
            running.stop(Duration::ZERO).await;
        }
    }
}
