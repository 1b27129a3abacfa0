//! A client behind which there is no broker: what handlers send over it is written down.

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

/// A client for the test of a handler that sends: every sender of it takes what it is given and writes it down. The
/// handler is the one of the program, with the [`Client`] and the [`Sender`](peeklock_client::Sender)s that it has there. Clones
/// write into one record.
///
/// What is sent in a transaction is in the record after its commit, and nowhere if it is rolled back. A delivery that is
/// made by hand and given a client ([`TestDelivery::with_client`](super::TestDelivery::with_client)) begins its transactions
/// there.
///
/// It sends, schedules, cancels, and has transactions; that is all. Whether an entity is there, what its rights, limits,
/// duplicates and sessions say, nobody asks: what a path refuses is said by [`TestClient::refuse`]. A receiver of it gets
/// nothing, its clock stands at the instant at which a [`TestBroker`](super::TestBroker) starts, and management, consumers
/// and sessions are refused with `NotImplemented`: for them there is the `TestBroker`.
///
/// ```
/// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
/// use peeklock::condition::Condition;
/// use peeklock::message::Message;
/// use peeklock::port::Settlement;
/// use peeklock::testing::{TestClient, TestDelivery};
/// use peeklock::{Client, Delivery, Refusal};
///
/// /// Brews, and sends a receipt with it or does neither.
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
/// // What it makes of an outage: the message comes again, and no receipt was sent.
/// test.refuse("receipts", Condition::QuotaExceeded);
/// assert!(matches!(order.again().given_to(&handler).await, Settlement::Abandon { .. }));
/// assert_eq!(test.sent().len(), 1);
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TestClient {
    record: Record,
}

/// A message that was sent over a [`TestClient`]. Given to the next handler it is a
/// [`TestDelivery::of`](super::TestDelivery::of) its message.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Sent {
    /// The path of the queue or topic, as the sender has it.
    pub to: String,
    /// The path of the entity at which it is stored first, of a sender that has one
    /// ([`Client::sender_via`](peeklock_client::Client::sender_via)).
    pub via: Option<String>,
    /// The number by which it can be cancelled: those of one path count from 1.
    pub sequence_number: SequenceNumber,
    /// Whether it was sent at the commit of a transaction.
    pub in_transaction: bool,
    /// The message; when it is scheduled, its `scheduled_enqueue_time` says so.
    pub message: Message,
}

impl TestClient {
    /// One with an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The client that the handler is given.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::over(self.port())
    }

    /// What was sent, in its order; without what was scheduled and has been cancelled.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.record.state().sent.clone()
    }

    /// The messages that were sent to a path, in their order; the path is read as brokers do, in upper or lower case.
    #[must_use]
    pub fn sent_to(&self, path: &str) -> Vec<Message> {
        let sent = self.sent().into_iter().filter(|sent| sent.to.eq_ignore_ascii_case(path));
        sent.map(|sent| sent.message).collect()
    }

    /// From now on every send to the path is refused with that, also in a transaction.
    pub fn refuse(&self, path: &str, condition: Condition) {
        self.record.state().refused.insert(path.to_ascii_lowercase(), condition);
    }

    /// From now on the path takes what is sent to it, as at first.
    pub fn accept(&self, path: &str) {
        self.record.state().refused.remove(&path.to_ascii_lowercase());
    }

    fn port(&self) -> Arc<dyn Port> {
        Arc::new(self.record.clone())
    }

    /// A way on which one delivery seems to have come, and what is settled over it.
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

/// How one delivery was settled by its handler, if it was.
#[derive(Clone, Default)]
pub(super) struct Settled(Arc<Mutex<Option<Settlement>>>);

impl Settled {
    /// What it was.
    pub(super) fn get(&self) -> Option<Settlement> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Settles it; whether it was not before.
    fn set(&self, settlement: Settlement) -> bool {
        let mut settled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if settled.is_some() {
            return false;
        }
        *settled = Some(settlement);
        true
    }
}
