//! Sessions after a failure: their locks end with the tree, their states stay.

use std::sync::atomic::Ordering;
use std::time::Duration;

use peeklock_core::command::{Command, Outcome, ReceiveMode, SessionCommand};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::ReceiverId;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

use super::{World, numbers};

/// A queue that requires sessions, with one message of session `a`.
async fn with_session() -> World {
    let properties = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    let world = World::new(properties).await;
    let message = world.broker.inbound(Message::new("1").with_session_id("a"));
    world.queue.call(Command::Send { message }).await.unwrap();
    world
}

impl World {
    async fn accept(&self, session: Option<&str>) -> Result<ReceiverId, BrokerError> {
        let command = Command::AcceptSession {
            session: session.map(Box::from),
            receiver: self.broker.receiver_id(),
            mode: ReceiveMode::PeekLock,
            wait: TimeSpan::ZERO,
        };
        match self.queue.call(command).await? {
            Outcome::SessionAccepted { receiver, .. } => Ok(receiver),
            other => panic!("{other:?}"),
        }
    }

    async fn in_session(
        &self,
        receiver: ReceiverId,
        command: SessionCommand,
    ) -> Result<Outcome, BrokerError> {
        self.queue.call(Command::InSession { receiver, command }).await
    }

    async fn set_state(
        &self,
        receiver: ReceiverId,
        state: &'static str,
    ) -> Result<(), BrokerError> {
        let command = SessionCommand::SetState { state: Some(state.into()) };
        self.in_session(receiver, command).await.map(|_| ())
    }

    async fn state(&self, receiver: ReceiverId) -> String {
        match self.in_session(receiver, SessionCommand::GetState).await.unwrap() {
            Outcome::SessionState(Some(state)) => {
                String::from_utf8(state.load().await.unwrap().to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// SES-18, DESIGN D3: when the tree of a queue fails and is rebuilt, session locks are gone, and
/// messages and the last durable state are there.
#[tokio::test]
async fn a_failure_ends_session_locks_and_keeps_states() {
    let world = with_session().await;
    let holder = world.accept(Some("a")).await.unwrap();
    world.set_state(holder, "first").await.unwrap();
    let receive =
        SessionCommand::Receive { count_max: 9, bytes_max: u64::MAX, wait: TimeSpan::ZERO };
    let Outcome::Received(held) = world.in_session(holder, receive.clone()).await.unwrap() else {
        panic!("a receive is answered with messages");
    };
    world.store.failures.store(1, Ordering::SeqCst);
    let failed = world.set_state(holder, "second").await.unwrap_err();
    assert_eq!(failed.condition(), Condition::InternalError);
    let lost = world.in_session(holder, SessionCommand::Renew).await.unwrap_err();
    assert_eq!(lost.condition(), Condition::SessionLockLost);
    let lost = world.complete(&held[0]).await.unwrap_err();
    assert_eq!(lost.condition(), Condition::SessionLockLost);
    let next = world.accept(None).await.unwrap();
    assert_eq!(world.state(next).await, "first");
    let Outcome::Received(again) = world.in_session(next, receive).await.unwrap() else {
        panic!("a receive is answered with messages");
    };
    assert_eq!((numbers(&again), again[0].facts.delivery_count), (vec![1], 0));
    world.complete(&again[0]).await.unwrap();
    let world = world.restarted().await;
    let holder = world.accept(Some("a")).await.unwrap();
    assert_eq!(world.state(holder).await, "first");
    world.broker.stop(Duration::ZERO).await.unwrap();
}

/// DESIGN D11: a state waits for room in the store like a send.
#[tokio::test]
async fn a_state_waits_for_room_in_the_store() {
    let world = with_session().await;
    let holder = world.accept(Some("a")).await.unwrap();
    world.store.busy.store(1, Ordering::SeqCst);
    let set = world.set_state(holder, "late");
    let room = async {
        world.store.refused().await;
        world.store.make_room();
    };
    let (set, ()) = tokio::join!(set, room);
    set.unwrap();
    assert_eq!(world.state(holder).await, "late");
    world.broker.stop(Duration::ZERO).await.unwrap();
}
