//! Stages that an arbiter commits on its own thread (decision 46).

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::store::Shard;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Fate, FaultStore};

/// A broker with one arbiter and two queues, whose batches wait for the driver of the store unless
/// the arbiter commits them.
struct Stand {
    broker: Broker,
    store: Arc<FaultStore>,
    clock: Arc<ManualClock>,
}

impl Stand {
    async fn start(fate: Fate) -> Self {
        let store = FaultStore::at_once(1, u64::MAX);
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let builder =
            Broker::builder().store(Arc::clone(&store) as _).clock(Arc::clone(&clock) as _);
        let broker = builder.arbiters(1).start().await.unwrap();
        for path in ["first", "second"] {
            broker.create_queue(path, QueueUpdate::default()).await.unwrap();
        }
        store.complete_at_once(false);
        store.commit_here_with(Some(fate));
        clock.advance(TimeSpan::from_ms(1));
        Self { broker, store, clock }
    }

    /// Sends a message. The driver of the store does nothing, so the arbiter must commit it.
    async fn send(&self, path: &'static str) -> Result<Outcome, BrokerError> {
        send(self.broker.clone(), path).await
    }

    /// Sends a message whose batch waits for the driver of the store.
    async fn send_through_store(&self, path: &'static str) {
        let sending = tokio::spawn(send(self.broker.clone(), path));
        while self.store.queued(Shard(0)) == 0 {
            assert!(!sending.is_finished(), "the arbiter has committed the batch");
            tokio::task::yield_now().await;
        }
        assert!(self.store.complete_next(Shard(0), Fate::Store));
        sending.await.unwrap().unwrap();
    }

    async fn active(&self, path: &str) -> u64 {
        self.broker.describe_queue(path).await.unwrap().counts.active
    }

    async fn stop(self) {
        self.store.complete_at_once(true);
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

async fn send(broker: Broker, path: &'static str) -> Result<Outcome, BrokerError> {
    let message = broker.inbound(Message::new("x"));
    broker.entity(path).unwrap().call(Command::Send { message }).await
}

/// FND-02: an arbiter without other work commits a send itself.
#[tokio::test]
async fn arbiter_commits_a_single_send_itself() {
    let stand = Stand::start(Fate::Store).await;
    for count in 1..=3 {
        stand.send("first").await.unwrap();
        assert_eq!(stand.active("first").await, count);
    }
    stand.stop().await;
}

/// Decision 46: while another entity of the arbiter is active, it must not wait for the disk.
#[tokio::test]
async fn arbiter_leaves_commits_to_the_store_while_others_are_active() {
    let stand = Stand::start(Fate::Store).await;
    stand.send("first").await.unwrap();
    stand.send_through_store("second").await;
    stand.send_through_store("first").await;
    stand.clock.advance(TimeSpan::from_ms(1));
    stand.send("first").await.unwrap();
    stand.stop().await;
}

/// FND-02, DESIGN D3: a send whose commit on the arbiter fails is not acknowledged and not retried;
/// the entity is restored without it.
#[tokio::test]
async fn failed_commit_of_an_arbiter_acknowledges_nothing() {
    let stand = Stand::start(Fate::Fail).await;
    let refused = stand.send("first").await.unwrap_err();
    assert_eq!(refused.condition(), Condition::InternalError);
    stand.store.commit_here_with(None);
    stand.store.complete_at_once(true);
    stand.send("first").await.unwrap();
    assert_eq!(stand.active("first").await, 1, "only the second message");
    stand.stop().await;
}
