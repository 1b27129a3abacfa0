//! A client without a broker that records the messages that handlers send. Tests of handlers use
//! it.

mod link;
mod record;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use peeklock_core::condition::Condition;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;

use self::link::RecordLink;
use self::record::Record;
use peeklock_client::Client;
use peeklock_client::port::{Link, Port, Settlement};
use peeklock_client::testing::Origin;

/// A client for tests of handlers that send messages: all of its senders accept and record them.
/// The handler is the program's own, with its [`Client`] and [`Sender`](peeklock_client::Sender)s.
/// Clones share one record.
///
/// Messages sent in a transaction are recorded at its commit, and dropped if it is rolled back. A
/// delivery made by hand with a client
/// ([`TestDelivery::with_client`](super::TestDelivery::with_client)) begins its transactions there.
///
/// It only sends, schedules, cancels, and has transactions. It checks neither the existence of an
/// entity nor rights, limits, duplicates or sessions; use [`TestClient::refuse`] to make a path
/// refuse messages. Its receivers get nothing, its clock shows the start time of a
/// [`TestBroker`](super::TestBroker), and management, consumers and sessions return
/// `NotImplemented`: use a `TestBroker` for those.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::condition::Condition;
/// use peeklock::message::Message;
/// use peeklock::port::Settlement;
/// use peeklock::testing::{TestClient, TestDelivery};
/// use peeklock::{Client, Delivery, Refusal};
///
/// /// Brews, and sends a receipt in the same transaction.
/// async fn brew(client: Client, order: Delivery) -> Result<(), Refusal> {
///     let transaction = order.transaction().await?;
///     transaction.send(&client.sender("receipts")?, Message::new("250 cents")).await?;
///     transaction.commit().await?;
///     Err(Refusal::already_settled())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let test = TestClient::new();
/// let client = test.client();
/// let handler = move |order: Delivery| brew(client.clone(), order);
/// let order = TestDelivery::of(Message::new("one coffee")).with_client(&test);
/// assert_eq!(order.given_to(&handler).await, Settlement::Complete);
/// let sent = test.sent();
/// assert_eq!((sent.len(), sent[0].to.as_str()), (1, "receipts"));
/// assert_eq!(sent[0].message.body.as_bytes(), "250 cents");
///
/// // After a refused send the message is delivered again, and no receipt is recorded.
/// test.refuse("receipts", Condition::QuotaExceeded);
/// assert!(matches!(order.again().given_to(&handler).await, Settlement::Abandon { .. }));
/// assert_eq!(test.sent().len(), 1);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TestClient {
    record: Record,
}

/// A message that was sent over a [`TestClient`]. [`TestDelivery::of`](super::TestDelivery::of) its
/// message passes it to the next handler.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Sent {
    /// The path of the queue or topic as given to the sender.
    pub to: String,
    /// The path of the entity that stores it first, for a sender of
    /// [`Client::sender_via`](peeklock_client::Client::sender_via).
    pub via: Option<String>,
    /// The number by which it can be cancelled; numbers count from 1 per path.
    pub sequence_number: SequenceNumber,
    /// Whether it was sent at the commit of a transaction.
    pub in_transaction: bool,
    /// The message; a scheduled one has `scheduled_enqueue_time`.
    pub message: Message,
}

impl TestClient {
    /// Creates a client with an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the client to pass to the handler.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::over(self.port())
    }

    /// Returns the sent messages in order, without scheduled messages that were cancelled.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.record.state().sent.clone()
    }

    /// Returns the messages sent to a path, in order; ignores the case of the path, as brokers do.
    #[must_use]
    pub fn sent_to(&self, path: &str) -> Vec<Message> {
        let sent = self.sent().into_iter().filter(|sent| sent.to.eq_ignore_ascii_case(path));
        sent.map(|sent| sent.message).collect()
    }

    /// Refuses every further send to the path with this condition, also in a transaction.
    pub fn refuse(&self, path: &str, condition: Condition) {
        self.record.state().refused.insert(path.to_ascii_lowercase(), condition);
    }

    /// Accepts sends to the path again, as at the start.
    pub fn accept(&self, path: &str) {
        self.record.state().refused.remove(&path.to_ascii_lowercase());
    }

    fn port(&self) -> Arc<dyn Port> {
        Arc::new(self.record.clone())
    }

    /// Returns an origin for a delivery made by hand, and its settlement.
    pub(super) fn hand(&self) -> (Origin, Settled) {
        let settled = Settled::default();
        let link: Arc<dyn Link> = Arc::new(RecordLink::of_delivery(&self.record, settled.clone()));
        (Origin::of(&self.port(), &link), settled)
    }
}

impl fmt::Debug for TestClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClient").field("sent", &self.sent()).finish()
    }
}

/// The settlement of a delivery by its handler, if any.
#[derive(Clone, Default)]
pub(super) struct Settled(Arc<Mutex<Option<Settlement>>>);

impl Settled {
    /// Returns the settlement.
    pub(super) fn get(&self) -> Option<Settlement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the settlement. Returns false if there already is one.
    fn set(&self, settlement: Settlement) -> bool {
        let mut settled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.is_some() {
            return false;
        }
        *settled = Some(settlement);
        true
    }
}
