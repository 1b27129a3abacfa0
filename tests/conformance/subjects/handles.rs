//! Client handles: in process, and over a socket in both encodings. Only the construction of the
//! client differs.

mod topics;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_core::Broker;
use peeklock_core::command::{Described, ReceiveMode, SessionFilter};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{RunningTransport, Transport as _};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::PartOutcome;
use peeklock_websocket::client::{
    Client, ClientOptions, Received, Receiver, Refusal as Outcome, Sender, SessionReceiver,
    Transaction, connect_with,
};
use peeklock_websocket::{Encoding, WebSocketConfig, WebSocketTransport};

use crate::subject::{Answer, Decision, Extra, Refusal, Seen, Session, Subject, Via, Work};

/// A client of the broker itself or of a listener on a free port. Each operation opens a handle and
/// closes it again, so that only the lock token connects a settlement with the receive before it
/// (SET-24).
pub struct Handles {
    client: RefCell<Option<Client>>,
    listener: Option<Listener>,
    /// Messages received under lock, by token.
    received: RefCell<HashMap<String, Received>>,
    /// Transactions, by the order of their begin.
    transactions: RefCell<HashMap<u64, Transaction>>,
    begun: Cell<u64>,
}

struct Listener {
    address: SocketAddr,
    running: RefCell<Option<Box<dyn RunningTransport>>>,
}

impl Handles {
    /// Connects in process.
    pub fn in_process(broker: &Broker) -> Self {
        Self::over(Client::new(broker), None)
    }

    /// Connects over a socket.
    pub async fn over_websocket(broker: &Broker, encoding: Encoding) -> Self {
        let mut config = WebSocketConfig::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.workers = 1;
        let transport = Box::new(WebSocketTransport::new(config));
        let running = transport.start(broker.clone()).await.unwrap();
        let address = running.local_address();
        let mut options = ClientOptions::default();
        options.encoding = encoding;
        let client = connect_with(&format!("ws://{address}"), options).await.unwrap();
        let running = RefCell::new(Some(running));
        Self::over(client, Some(Listener { address, running }))
    }

    fn over(client: Client, listener: Option<Listener>) -> Self {
        Self {
            client: RefCell::new(Some(client)),
            listener,
            received: RefCell::default(),
            transactions: RefCell::default(),
            begun: Cell::new(0),
        }
    }

    fn keep(&self, transaction: Transaction) -> u64 {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        self.transactions.borrow_mut().insert(number, transaction);
        number
    }

    async fn add(&self, transaction: &Transaction, path: &str, work: Work) -> Answer<()> {
        let message = |token: &str| self.known(token).expect("a message that was received");
        match work {
            Work::Send(message) => transaction.send(&self.client().sender(path)?, message).await?,
            Work::SendBatch(messages) => {
                transaction.send_batch(&self.client().sender(path)?, messages).await?;
            }
            Work::SendOn { destination, message } => {
                let sender = self.client().sender_via(&destination, path)?;
                transaction.send(&sender, message).await?;
            }
            Work::Cancel { sequences } => {
                let sequences = sequences.into_iter().map(SequenceNumber).collect();
                transaction.cancel_scheduled(&self.client().sender(path)?, sequences).await?;
            }
            Work::Renew { token } => {
                transaction.renew_lock(&self.receiver(path)?, &message(&token)).await?;
            }
            Work::Settle { token, decision } => {
                let receiver = self.receiver(path)?;
                let message = message(&token);
                match decision {
                    Decision::Complete => transaction.complete(&receiver, &message).await?,
                    Decision::Abandon(properties) => {
                        transaction.abandon(&receiver, &message, &properties).await?;
                    }
                    Decision::Defer(properties) => {
                        transaction.defer(&receiver, &message, &properties).await?;
                    }
                    Decision::DeadLetter { reason, description, properties } => {
                        let (why, what) = (reason.as_deref(), description.as_deref());
                        transaction
                            .dead_letter(&receiver, &message, why, what, &properties)
                            .await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begun(&self, transaction: u64) -> Transaction {
        let handle = self.transactions.borrow_mut().remove(&transaction);
        handle.expect("a transaction that was begun")
    }

    fn client(&self) -> Client {
        self.client.borrow().clone().unwrap()
    }

    fn receiver(&self, path: &str) -> Answer<Receiver> {
        Ok(self.client().receiver(path)?)
    }

    fn see(&self, messages: Vec<Received>) -> Vec<Seen> {
        let mut kept = self.received.borrow_mut();
        messages
            .into_iter()
            .map(|received| {
                let seen = Seen::from(&received);
                if let Some(token) = &seen.lock_token {
                    kept.insert(token.clone(), received);
                }
                seen
            })
            .collect()
    }

    fn known(&self, token: &str) -> Option<Received> {
        self.received.borrow().get(token).cloned()
    }
}

impl From<&Received> for Seen {
    fn from(received: &Received) -> Self {
        let mut message = received.message().clone();
        message.application_properties.sort_by(|left, right| left.0.cmp(&right.0));
        Self {
            message,
            sequence: received.sequence_number().0,
            enqueued_sequence: received.facts().enqueued_sequence.0,
            enqueued_at: received.enqueued_at(),
            expires_at: received.expires_at(),
            delivery_count: received.delivery_count(),
            state: received.state(),
            lock_token: received.lock_token().map(|token| token.to_string()),
            locked_until: received.locked_until(),
            dead_letter_source: received.dead_letter_source().map(str::to_owned),
        }
    }
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self {
            condition: error.condition().name().to_owned(),
            retryable: error.retryable(),
            tracking_id: Some(error.tracking_id().to_string()),
            text: error.to_string(),
        }
    }
}

fn numbers(sequences: &[u64]) -> Vec<SequenceNumber> {
    sequences.iter().copied().map(SequenceNumber).collect()
}

/// An attached sender through an entity. Over a network the first request attaches it, so this
/// cancels a message that does not exist.
pub async fn attached_via(client: &Client, destination: &str, via: &str) -> Answer<Box<dyn Via>> {
    let sender = client.sender_via(destination, via)?;
    match sender.cancel_scheduled(numbers(&[u64::MAX])).await {
        Err(error) if error.condition() != Condition::MessageNotFound => Err(error.into()),
        Err(_) | Ok(()) => Ok(Box::new(sender)),
    }
}

#[async_trait(?Send)]
impl Via for Sender {
    async fn send(&self, message: Message) -> Answer<u64> {
        Ok(Self::send(self, message).await?.0)
    }

    async fn send_batch(&self, messages: Vec<Message>) -> Answer<Vec<u64>> {
        let sequences = Self::send_batch(self, messages).await?;
        Ok(sequences.into_iter().map(|sequence| sequence.0).collect())
    }

    async fn schedule(&self, message: Message, at: Timestamp) -> Answer<u64> {
        Ok(Self::schedule(self, message, at).await?.0)
    }
}

#[async_trait(?Send)]
impl Subject for Handles {
    fn client(&self) -> Option<Client> {
        self.client.borrow().clone()
    }

    fn offers(&self, extra: Extra) -> bool {
        match extra {
            Extra::VersionedUpdate => true,
        }
    }

    async fn create(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        Ok(self.client().admin().create_queue_with(path, properties).await?)
    }

    async fn update(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        Ok(self.client().admin().update_queue(path, properties).await?)
    }

    async fn update_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Answer<Described> {
        Ok(self.client().admin().update_queue_of(path, properties, read_at).await?)
    }

    async fn delete(&self, path: &str) -> Answer<()> {
        Ok(self.client().admin().delete_queue(path).await?)
    }

    async fn describe(&self, path: &str) -> Answer<Described> {
        Ok(self.client().admin().queue(path).await?)
    }

    async fn list(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        let paths = self.client().admin().queue_paths(skip, top).await?;
        Ok(paths.iter().map(|path| path.to_string()).collect())
    }

    async fn send(&self, path: &str, message: Message) -> Answer<u64> {
        Ok(self.client().sender(path)?.send(message).await?.0)
    }

    async fn send_batch(&self, path: &str, messages: Vec<Message>) -> Answer<Vec<u64>> {
        let sequences = self.client().sender(path)?.send_batch(messages).await?;
        Ok(sequences.into_iter().map(|sequence| sequence.0).collect())
    }

    async fn schedule(&self, path: &str, message: Message, at: Timestamp) -> Answer<u64> {
        Ok(self.client().sender(path)?.schedule(message, at).await?.0)
    }

    async fn cancel(&self, path: &str, sequences: &[u64]) -> Answer<()> {
        Ok(self.client().sender(path)?.cancel_scheduled(numbers(sequences)).await?)
    }

    async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        count_max: u32,
        wait: TimeSpan,
    ) -> Answer<Vec<Seen>> {
        let receiver = self.client().receiver_in(path, mode)?;
        let answer = receiver.receive_many(count_max, wait).await;
        // If the queue is deleted, the answer already reports that.
        let _closed = receiver.close().await;
        Ok(self.see(answer?))
    }

    async fn receive_deferred(
        &self,
        path: &str,
        mode: ReceiveMode,
        sequences: &[u64],
    ) -> Answer<Vec<Seen>> {
        let receiver = self.client().receiver_in(path, mode)?;
        let answer = receiver.receive_deferred(numbers(sequences)).await;
        let _closed = receiver.close().await;
        Ok(self.see(answer?))
    }

    async fn settle(&self, path: &str, token: &str, decision: Decision) -> Answer<()> {
        let receiver = self.receiver(path)?;
        let Some(message) = self.known(token) else {
            // This client never got the token, so the handle has no message for it.
            let token = LockToken::parse(token).unwrap();
            let outcome = match decision {
                Decision::Complete => Ok(()),
                Decision::Abandon(properties) => Err(Outcome::Abandon { properties }),
                Decision::Defer(_) => Err(Outcome::Defer),
                Decision::DeadLetter { .. } => {
                    Err(Outcome::DeadLetter { reason: String::new(), description: String::new() })
                }
            };
            return Ok(receiver.settle_token(token, outcome).await?);
        };
        match decision {
            Decision::Complete => receiver.complete(&message).await?,
            Decision::Abandon(properties) => receiver.abandon(&message, &properties).await?,
            Decision::Defer(properties) => receiver.defer(&message, &properties).await?,
            Decision::DeadLetter { reason, description, properties } => {
                let (reason, description) = (reason.as_deref(), description.as_deref());
                receiver.dead_letter(&message, reason, description, &properties).await?;
            }
        }
        Ok(())
    }

    async fn complete_many(&self, path: &str, tokens: &[String]) -> Answer<Vec<Answer<()>>> {
        let tokens: Vec<LockToken> =
            tokens.iter().map(|token| LockToken::parse(token).unwrap()).collect();
        let answers = self.receiver(path)?.complete_many(&tokens).await;
        Ok(answers.into_iter().map(|answer| Ok(answer?)).collect())
    }

    async fn renew(&self, path: &str, token: &str) -> Answer<Timestamp> {
        let token = LockToken::parse(token).unwrap();
        Ok(self.receiver(path)?.renew_token(token).await?)
    }

    async fn peek(&self, path: &str, from: u64, count_max: u32) -> Answer<Vec<Seen>> {
        let peeked = self.receiver(path)?.peek(SequenceNumber(from), count_max).await?;
        Ok(self.see(peeked))
    }

    async fn delete_batch(
        &self,
        path: &str,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Answer<u64> {
        Ok(self.receiver(path)?.delete_batch(count_max, enqueued_before).await?)
    }

    async fn purge(&self, path: &str) -> Answer<u64> {
        Ok(self.receiver(path)?.purge().await?)
    }

    async fn delete_deferred(&self, path: &str, sequence: u64) -> Answer<()> {
        Ok(self.client().admin().delete_deferred(path, SequenceNumber(sequence)).await?)
    }

    async fn sender_via(&self, destination: &str, via: &str) -> Option<Answer<Box<dyn Via>>> {
        Some(attached_via(&self.client(), destination, via).await)
    }

    async fn begin(&self) -> Answer<u64> {
        Ok(self.keep(self.client().begin_transaction().await?))
    }

    async fn begin_across(&self) -> Answer<u64> {
        Ok(self.keep(self.client().begin_cross_entity_transaction().await?))
    }

    async fn within(&self, transaction: u64, path: &str, work: Work) -> Answer<()> {
        let handle = self.begun(transaction);
        let answer = self.add(&handle, path, work).await;
        self.transactions.borrow_mut().insert(transaction, handle);
        answer
    }

    async fn commit(&self, transaction: u64) -> Answer<Vec<PartOutcome>> {
        Ok(self.begun(transaction).commit().await?.parts().to_vec())
    }

    async fn roll_back(&self, transaction: u64) -> Answer<()> {
        Ok(self.begun(transaction).roll_back().await?)
    }

    async fn accept(
        &self,
        path: &str,
        session: Option<&str>,
        mode: ReceiveMode,
        wait: TimeSpan,
    ) -> Answer<Box<dyn Session>> {
        let receiver = self.client().accept_session_in(path, session, mode, wait).await?;
        Ok(Box::new(Held { receiver, received: RefCell::default() }))
    }

    async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Answer<Vec<String>> {
        let names = self.client().sessions(path, which, skip, top).await?;
        Ok(names.iter().map(|name| name.to_string()).collect())
    }

    async fn delete_unlocked(&self, path: &str, count_max: u32) -> Answer<u64> {
        let admin = self.client().admin();
        let deleted = admin.delete_batch_unlocked(path, Some(count_max), None).await?;
        Ok(deleted)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(|listener| listener.address)
    }

    async fn stop(&self) {
        let client = self.client.borrow_mut().take();
        if let Some(client) = client {
            client.close().await;
        }
        let running = self.listener.as_ref().map(|listener| listener.running.borrow_mut().take());
        if let Some(running) = running.flatten() {
            running.stop(Duration::ZERO).await;
        }
    }
}

/// A held session, and the messages received from it.
struct Held {
    receiver: SessionReceiver,
    received: RefCell<HashMap<String, Received>>,
}

impl Held {
    fn see(&self, messages: Vec<Received>) -> Vec<Seen> {
        let mut kept = self.received.borrow_mut();
        let seen: Vec<Seen> = messages.iter().map(Seen::from).collect();
        for (seen, received) in seen.iter().zip(messages) {
            kept.extend(seen.lock_token.clone().map(|token| (token, received)));
        }
        seen
    }
}

#[async_trait(?Send)]
impl Session for Held {
    fn id(&self) -> &str {
        self.receiver.session_id()
    }

    fn locked_until(&self) -> Timestamp {
        self.receiver.locked_until()
    }

    async fn receive(&self, count_max: u32, wait: TimeSpan) -> Answer<Vec<Seen>> {
        Ok(self.see(self.receiver.receive_many(count_max, wait).await?))
    }

    async fn receive_deferred(&self, sequences: &[u64]) -> Answer<Vec<Seen>> {
        Ok(self.see(self.receiver.receive_deferred(numbers(sequences)).await?))
    }

    async fn peek(&self, from: u64, count_max: u32) -> Answer<Vec<Seen>> {
        Ok(self.see(self.receiver.peek(SequenceNumber(from), count_max).await?))
    }

    async fn settle(&self, seen: &Seen, decision: Decision) -> Answer<()> {
        let known = self.received.borrow().get(seen.token()).cloned();
        match (decision, known) {
            (Decision::Complete, _) => {
                let token = LockToken::parse(seen.token()).unwrap();
                self.receiver.complete_many(&[token]).await.remove(0)?;
            }
            (Decision::Abandon(properties), Some(message)) => {
                self.receiver.abandon(&message, &properties).await?;
            }
            (Decision::Defer(properties), Some(message)) => {
                self.receiver.defer(&message, &properties).await?;
            }
            (Decision::DeadLetter { reason, description, properties }, Some(message)) => {
                let (reason, description) = (reason.as_deref(), description.as_deref());
                self.receiver.dead_letter(&message, reason, description, &properties).await?;
            }
            (_, None) => panic!("this holder did not receive {}", seen.sequence),
        }
        Ok(())
    }

    async fn renew(&self) -> Answer<Timestamp> {
        Ok(self.receiver.renew_lock().await?)
    }

    async fn state(&self) -> Answer<Option<Bytes>> {
        Ok(self.receiver.state().await?)
    }

    async fn set_state(&self, state: Option<Bytes>) -> Answer<()> {
        Ok(self.receiver.set_state(state).await?)
    }

    async fn delete_batch(&self, count_max: u32) -> Answer<u64> {
        Ok(self.receiver.delete_batch(count_max, None).await?)
    }

    async fn close(self: Box<Self>) -> Answer<()> {
        Ok(self.receiver.close().await?)
    }
}
