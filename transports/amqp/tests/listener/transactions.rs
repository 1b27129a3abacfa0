//! Tests of transactions: declared and discharged at a coordinator, used by transfers, dispositions
//! and requests.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::codec::list::write_list;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::message::{Declare, Discharge};
use peeklock_amqp::performative::{Attach, SenderSettleMode};
use peeklock_amqp::state::{DeliveryState, Modified, Outcome, Transactional};
use peeklock_amqp::terminus::{Coordinator, Source, Target};
use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::description::QueueUpdate;
use peeklock_core::limits::Limits;
use peeklock_core::message::{Message, Value};
use peeklock_core::request::Outcome as Answered;
use peeklock_core::time::TimeSpan;
use peeklock_words::amqp::Scalar;

use crate::client::{Client, text};
use crate::forced::FORCED;
use crate::request::{list, longs, map, uuids, value};
use crate::sending::condition;
use crate::server::Server;
use crate::sessions::{of_session, raw};

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
/// Handle of the coordinator in these tests.
const COORDINATOR: u32 = 20;

async fn coordinating(texts: &[&str]) -> (Server, Client) {
    let server = Server::start().await;
    server.put(texts).await;
    let mut client = server.client().await;
    client.coordinator().await;
    (server, client)
}

fn of_value(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0x00, 0x53, 0x77];
    write(&mut bytes);
    bytes
}

impl Client {
    pub async fn coordinator(&mut self) {
        let attach = Attach {
            target: Some(Target::Coordinator(Coordinator::default())),
            ..Self::sender_of(COORDINATOR, "")
        };
        let answer = self.attach_sender(attach).await.unwrap();
        assert!(matches!(answer.target, Some(Target::Coordinator(_))), "AMQP-97");
    }

    pub async fn declare(&mut self) -> Bytes {
        let body = of_value(|bytes| write_list(bytes, &Declare::default()));
        self.send(COORDINATOR, 0, false, &body).await;
        match self.disposed().await.1 {
            // Not wrapped in a transactional state (AMQP-97).
            DeliveryState::Outcome(Outcome::Declared(declared)) => declared.txn_id,
            other => panic!("{other:?}"),
        }
    }

    pub async fn discharge(&mut self, txn_id: &Bytes, fail: bool) -> DeliveryState {
        self.say_discharge(txn_id, fail).await;
        self.disposed().await.1
    }

    async fn say_discharge(&mut self, txn_id: &Bytes, fail: bool) {
        let discharge = Discharge { txn_id: txn_id.clone(), fail };
        let body = of_value(|bytes| write_list(bytes, &discharge));
        self.send(COORDINATOR, 0, false, &body).await;
    }

    /// Sends a message in a transaction; returns the answer.
    pub async fn send_within(
        &mut self,
        handle: u32,
        txn_id: &Bytes,
        message: &[u8],
    ) -> DeliveryState {
        self.send_in(handle, 0, false, Some(state(txn_id, None)), message).await;
        self.disposed().await.1
    }
}

pub fn state(txn_id: &Bytes, outcome: Option<Outcome>) -> DeliveryState {
    let state = Transactional { txn_id: txn_id.clone(), outcome };
    DeliveryState::Transactional(Box::new(state))
}

fn accepted(txn_id: &Bytes) -> DeliveryState {
    state(txn_id, Some(Outcome::Accepted))
}

/// TXN-01, TXN-03, AMQP-66, AMQP-95, AMQP-97: sends and settlements take effect together with the
/// commit. Their answers have the state of the transaction.
#[tokio::test]
async fn a_transaction_takes_effect_at_once() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.sender(0, "q").await.unwrap();
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let id = client.declare().await;
    assert_eq!(client.send_within(0, &id, &text("b")).await, accepted(&id));
    let settled = client.settle_within(transfer.delivery_id.unwrap(), accepted(&id)).await;
    assert_eq!(settled, accepted(&id));
    assert_eq!(server.counts().await.active, 1, "nothing has happened yet");
    assert_eq!(server.bodies().await, ["a"]);
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["b"]);
    server.stop().await;
}

/// TXN-04: after a rollback nothing was sent, and a settled delivery is still locked with the same
/// token.
#[tokio::test]
async fn a_rollback_undoes_everything() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.sender(0, "q").await.unwrap();
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.manager(2, "q").await;
    client.credit(1, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let token = crate::management::token(transfer.delivery_tag.unwrap().as_slice());
    let id = client.declare().await;
    client.send_within(0, &id, &text("b")).await;
    client.settle_within(transfer.delivery_id.unwrap(), accepted(&id)).await;
    assert_eq!(client.discharge(&id, true).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["a"]);
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[token]))];
    assert_eq!(client.ask(2, "update-disposition", &settle).await.status(), 200);
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// TXN-04, AMQP-66: a delivery that the client has settled itself becomes available immediately
/// after a rollback, with a higher delivery count. The same holds when the coordinator is detached
/// (TXN-12, AMQ-28).
#[tokio::test]
async fn self_settled_delivery_returns_after_rollback() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let id = client.declare().await;
    client.settle_for_good(transfer.delivery_id.unwrap(), accepted(&id)).await;
    assert_eq!(client.discharge(&id, true).await, DeliveryState::accepted());
    client.credit(1, 1, 1, false).await;
    let (transfer, _) = client.message().await;
    assert_eq!(server.delivery_counts().await, [1]);
    let id = client.declare().await;
    client.settle_for_good(transfer.delivery_id.unwrap(), accepted(&id)).await;
    client.detach(COORDINATOR).await;
    client.credit(1, 2, 1, false).await;
    let (transfer, _) = client.message().await;
    assert_eq!(server.delivery_counts().await, [2]);
    // Another coordinator does not know the transaction.
    client.coordinator().await;
    let unknown = client.discharge(&id, false).await;
    assert_eq!(condition(&unknown), "amqp:transaction:unknown-id");
    let answer = client.settle_within(transfer.delivery_id.unwrap(), accepted(&id)).await;
    assert_eq!(condition(&answer), "amqp:transaction:unknown-id", "bare, or it is taken for done");
    server.stop().await;
}

/// AMQP-100: a transaction with a refused send cannot be committed.
#[tokio::test]
async fn a_refused_send_dooms_its_transaction() {
    let (server, mut client) = coordinating(&[]).await;
    client.sender(0, "q").await.unwrap();
    let id = client.declare().await;
    client.send_within(0, &id, &text("a")).await;
    let mut properties = peeklock_core::message::Message::new("b");
    properties.message_id = Some("x".repeat(200).into());
    let refused = client.send_within(0, &id, properties.encode().as_bytes()).await;
    condition(&refused);
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    assert_eq!(server.total().await, 0);
    // A later transaction is not affected.
    let id = client.declare().await;
    client.send_within(0, &id, &text("c")).await;
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    server.stop().await;
}

/// AMQP-43, AMQP-100: the same holds for a send that is too large or aborted. Later sends on the
/// link are not part of the transaction.
#[tokio::test]
async fn oversized_or_aborted_send_requires_rollback() {
    let (server, mut client) = coordinating(&[]).await;
    let answer = client.attach_sender(Client::sender_of(0, "q")).await.unwrap();
    let most = usize::try_from(answer.max_message_size.unwrap()).unwrap();
    let id = client.declare().await;
    client.send_within(0, &id, &text("a")).await;
    let refused = client.send_within(0, &id, &vec![0; 2 * most]).await;
    assert_eq!(condition(&refused), "amqp:link:message-size-exceeded");
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    let id = client.declare().await;
    client.send_within(0, &id, &text("b")).await;
    client.abort(0, Some(state(&id, None))).await;
    client.send(0, 0, false, &text("c")).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted(), "in no transaction");
    assert_eq!(server.bodies().await, ["c"]);
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    assert_eq!(server.bodies().await, ["c"]);
    server.stop().await;
}

/// AMQP-100, AMQP-63, TXN-04: a settled disposition that cannot be decoded marks its transaction
/// for rollback. The message becomes available after the rollback.
#[tokio::test]
async fn a_settlement_that_cannot_be_read_dooms_its_transaction() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let id = client.declare().await;
    // A list is not a valid property value.
    let list = Raw::encoded(|bytes| bytes.push(0x45));
    let message_annotations = Some(Map::of_symbols([("x", list)]));
    let modified = Outcome::Modified(Modified { message_annotations, ..Modified::default() });
    client.settle_for_good(transfer.delivery_id.unwrap(), state(&id, Some(modified))).await;
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    client.credit(1, 1, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    server.stop().await;
}

/// AMQP-100: a transaction marked for rollback keeps at most as many such deliveries as it may have
/// operations. Further ones become available immediately.
#[tokio::test]
async fn settlements_that_doom_their_transaction_are_few() {
    let mut limits = Limits::default();
    limits.transaction_operation_count_max = 2;
    let server = Server::start_under(limits).await;
    server.put(&["a", "b", "c"]).await;
    let mut client = server.client().await;
    client.coordinator().await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let mut deliveries = Vec::new();
    for _ in 0..3 {
        deliveries.push(client.message().await.0.delivery_id.unwrap());
    }
    let id = client.declare().await;
    for delivery in deliveries {
        let list = Raw::encoded(|bytes| bytes.push(0x45));
        let message_annotations = Some(Map::of_symbols([("x", list)]));
        let modified = Outcome::Modified(Modified { message_annotations, ..Modified::default() });
        client.settle_for_good(delivery, state(&id, Some(modified))).await;
    }
    let again = tokio::time::timeout(Duration::from_secs(20), client.message()).await;
    assert_eq!(again.expect("it comes back").1.body_bytes(), "c");
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    for body in ["a", "b"] {
        assert_eq!(client.message().await.1.body_bytes(), body);
    }
    server.stop().await;
}

/// TXN-04: the same holds if the transaction is rolled back before the entity has answered the
/// settlement.
#[tokio::test]
async fn self_settled_delivery_returns_after_early_rollback() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let id = client.declare().await;
    client.hold_back();
    client.settle_for_good(transfer.delivery_id.unwrap(), accepted(&id)).await;
    client.say_discharge(&id, true).await;
    client.let_go().await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    client.credit(1, 1, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    assert_eq!(server.delivery_counts().await, [1]);
    server.stop().await;
}

/// AMQP-66, AMQP-95: a transaction whose commit waits for an operation has ended for the client. A
/// further discharge is refused immediately, and does not wait.
#[tokio::test]
async fn a_transaction_is_ended_once() {
    let (server, mut client) = coordinating(&[]).await;
    client.passes_flows = true;
    client.sender(0, "q").await.unwrap();
    let id = client.declare().await;
    client.hold_back();
    client.send_in(0, 0, false, Some(state(&id, None)), &text("a")).await;
    for fail in [false, false, true] {
        client.say_discharge(&id, fail).await;
    }
    client.let_go().await;
    // The declare is delivery 0, the message 1, and the effective commit 2.
    for refused in [3, 4] {
        let (delivery, answer) = client.disposed().await;
        assert_eq!((delivery, &*condition(&answer)), (refused, "amqp:transaction:unknown-id"));
    }
    assert_eq!(client.disposed().await, (1, accepted(&id)));
    assert_eq!(client.disposed().await, (2, DeliveryState::accepted()));
    assert_eq!(server.bodies().await, ["a"]);
    server.stop().await;
}

/// AMQP-98, TXN-08: a coordinator in a session of its own covers a single entity.
#[tokio::test]
async fn a_coordinator_in_another_session_covers_one_entity() {
    let (server, mut client) = coordinating(&["a"]).await;
    server.broker.create_queue("r", QueueUpdate::default()).await.unwrap();
    client.begin_on(1).await;
    client.sender(0, "q").await.unwrap();
    client.sender(1, "r").await.unwrap();
    client.on(0);
    let id = client.declare().await;
    client.on(1);
    client.restart_deliveries();
    assert_eq!(client.send_within(0, &id, &text("b")).await, accepted(&id));
    let refused = client.send_within(1, &id, &text("c")).await;
    assert_eq!(condition(&refused), "amqp:not-allowed");
    server.stop().await;
}

/// A server with the queues `q`, which has messages, and `r`, and a client with a coordinator.
async fn grouping(texts: &[&str]) -> (Server, Client) {
    let (server, client) = coordinating(texts).await;
    server.broker.create_queue("r", QueueUpdate::default()).await.unwrap();
    (server, client)
}

/// Waits until a queue has a message, and removes it.
async fn take(server: &Server, queue: &str) {
    let receive = Command::Receive {
        mode: ReceiveMode::ReceiveAndDelete,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::from_minutes(1),
        holder: None,
    };
    let answer = server.broker.entity(queue).unwrap().call(receive).await;
    assert!(matches!(answer, Ok(Answered::Received(messages)) if messages.len() == 1));
}

/// AMQP-98, TXN-09, VIA-04: the entity of the first link of the session is the root of its
/// transactions, in any order of use.
#[tokio::test]
async fn the_first_link_of_a_session_is_the_root_of_its_transactions() {
    let (server, mut client) = grouping(&["a", "b"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.sender(0, "r").await.unwrap();
    client.credit(1, 0, 2, false).await;
    let mut deliveries = Vec::new();
    for _ in 0..2 {
        deliveries.push(client.message().await.0.delivery_id.unwrap());
    }
    for (sends_first, delivery) in [true, false].into_iter().zip(deliveries) {
        let id = client.declare().await;
        for sends in [sends_first, !sends_first] {
            let answer = match sends {
                true => client.send_within(0, &id, &text("c")).await,
                false => client.settle_within(delivery, accepted(&id)).await,
            };
            assert_eq!(answer, accepted(&id));
        }
        assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    }
    for _ in 0..2 {
        take(&server, "r").await;
    }
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// AMQP-98: in a session with a coordinator, a receiver of a second queue or topic is refused,
/// whether the first link sends or receives, and also after it is detached. Sub-queues of the root
/// and senders are allowed.
#[tokio::test]
async fn a_group_receives_from_one_entity() {
    for receives in [false, true] {
        let (server, mut client) = grouping(&["a"]).await;
        if receives {
            client.receiver(0, "q", LOCKED).await.unwrap();
        } else {
            client.sender(0, "q").await.unwrap();
        }
        let attach = Client::receiver_of(1, "r", LOCKED);
        let refused = client.refused_receiver(attach).await;
        assert_eq!(refused.condition(), "amqp:not-allowed");
        let words =
            "Local transactions cannot span multiple top-level entities such as queue or topic";
        assert!(refused.description().contains(words), "{refused}");
        client.detach(0).await;
        assert_eq!(client.receiver(9, "r", LOCKED).await.unwrap_err(), "amqp:not-allowed");
        client.sender(2, "r").await.unwrap();
        client.receiver(3, "q", LOCKED).await.unwrap();
        client.receiver(4, "q/$DeadLetterQueue", LOCKED).await.unwrap();
        // Management is not a receiver.
        client.manager(5, "r").await;
        // Another session has its own root, and a session without a coordinator has none.
        client.begin_on(1).await;
        client.receiver(0, "q", LOCKED).await.unwrap();
        client.receiver(1, "r", LOCKED).await.unwrap();
        server.stop().await;
    }
}

/// AMQP-98: links attached before the coordinator count. A delivery of another entity cannot be
/// settled in a transaction; it stays locked and unsettled on its link.
#[tokio::test]
async fn a_late_coordinator_finds_the_first_link() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    server.broker.create_queue("r", QueueUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    client.sender(0, "r").await.unwrap();
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.coordinator().await;
    client.credit(1, 0, 1, false).await;
    let delivery = client.message().await.0.delivery_id.unwrap();
    let id = client.declare().await;
    let refused = client.settle_within(delivery, accepted(&id)).await;
    assert_eq!(condition(&refused), "amqp:not-allowed");
    assert_eq!(client.discharge(&id, true).await, DeliveryState::accepted());
    assert_eq!(client.settle(delivery, DeliveryState::accepted()).await, DeliveryState::accepted());
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// AMQP-98: after the root was deleted, the next link becomes the first.
#[tokio::test]
async fn a_deleted_root_makes_room_for_the_next() {
    let (server, mut client) = grouping(&["a"]).await;
    client.sender(0, "r").await.unwrap();
    server.broker.delete_entity("r").await.unwrap();
    assert_eq!(client.detached().await, FORCED);
    client.receiver(2, "q", LOCKED).await.unwrap();
    client.sender(1, "q").await.unwrap();
    let id = client.declare().await;
    assert_eq!(client.send_within(1, &id, &text("b")).await, accepted(&id));
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["a", "b"]);
    server.stop().await;
}

/// AMQP-66, TXN-04: after a rollback a delivery can be settled on its link with any outcome, also
/// in another transaction, whose commit ends its lock.
#[tokio::test]
async fn a_delivery_is_settled_on_its_link_after_a_rollback() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.receiver(1, "q", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    let delivery = client.message().await.0.delivery_id.unwrap();
    for outcome in [Outcome::Accepted, Outcome::Modified(Modified::default())] {
        let id = client.declare().await;
        let said = state(&id, Some(outcome));
        assert_eq!(client.settle_within(delivery, said.clone()).await, said);
        assert_eq!(client.discharge(&id, true).await, DeliveryState::accepted());
    }
    let id = client.declare().await;
    client.settle_within(delivery, accepted(&id)).await;
    // A second settlement in the same transaction is refused, without effect on the first.
    let again = client.settle_within(delivery, accepted(&id)).await;
    assert_eq!(condition(&again), "com.microsoft:message-lock-lost");
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.total().await, 0);
    let late = client.settle(delivery, DeliveryState::accepted()).await;
    assert_eq!(condition(&late), "com.microsoft:message-lock-lost");
    server.stop().await;
}

/// TXN-06: a transaction that takes too long is rolled back, with an error that reports it.
#[tokio::test]
async fn a_transaction_times_out() {
    let (server, mut client) = coordinating(&[]).await;
    client.sender(0, "q").await.unwrap();
    let id = client.declare().await;
    client.send_within(0, &id, &text("a")).await;
    server.clock.advance(TimeSpan::from_minutes(3));
    assert_eq!(condition(&client.discharge(&id, false).await), "amqp:transaction:timeout");
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// AMQP-100: the id of a transaction is unknown on another connection, which has its own
/// transaction open, and to a restarted broker. Using it there is refused, and affects neither
/// transaction.
#[tokio::test]
async fn a_transaction_of_another_connection_is_unknown() {
    const UNKNOWN: &str = "amqp:transaction:unknown-id";
    let (server, mut first) = coordinating(&[]).await;
    first.sender(0, "q").await.unwrap();
    let lost = first.declare().await;
    first.send_within(0, &lost, &text("a")).await;
    let mut second = server.client().await;
    second.coordinator().await;
    second.sender(0, "q").await.unwrap();
    let own = second.declare().await;
    second.send_within(0, &own, &text("b")).await;
    for fail in [false, true] {
        assert_eq!(condition(&second.discharge(&lost, fail).await), UNKNOWN);
    }
    assert_eq!(condition(&second.send_within(0, &lost, &text("c")).await), UNKNOWN);
    assert_eq!(second.discharge(&own, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["b"]);
    assert_eq!(first.discharge(&lost, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["b", "a"]);
    server.stop().await;
    let (server, mut client) = coordinating(&[]).await;
    client.sender(0, "q").await.unwrap();
    let new = client.declare().await;
    client.send_within(0, &new, &text("d")).await;
    for old in [&lost, &own] {
        assert_eq!(condition(&client.discharge(old, false).await), UNKNOWN);
    }
    assert_eq!(client.discharge(&new, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["d"]);
    server.stop().await;
}

/// AMQP-66, TXN-06: if a send in a transaction finds no room, the oldest transaction of a
/// connection that holds more than twice as much is rolled back, as after a timeout. A send that
/// would hold more than half as much is refused.
#[tokio::test]
async fn oldest_transaction_of_largest_holder_makes_room() {
    const OVER: &str = "amqp:transaction:timeout";
    let mut limits = Limits::default();
    // Half of this is reserved.
    limits.broker_inbound_bytes_max = 1 << 20;
    let server = Server::start_under(limits).await;
    let of = |kibibytes: usize| text(&"x".repeat(kibibytes << 10));
    let mut most = server.client().await;
    most.passes_flows = true;
    most.coordinator().await;
    most.sender(0, "q").await.unwrap();
    let oldest = most.declare().await;
    assert_eq!(most.send_within(0, &oldest, &of(200)).await, accepted(&oldest));
    server.clock.advance(TimeSpan::from_seconds(1));
    let newer = most.declare().await;
    assert_eq!(most.send_within(0, &newer, &of(201)).await, accepted(&newer));
    let mut other = server.client().await;
    other.passes_flows = true;
    other.coordinator().await;
    other.sender(0, "q").await.unwrap();
    let id = other.declare().await;
    let refused = other.send_within(0, &id, &of(300)).await;
    assert_eq!(condition(&refused), "com.microsoft:server-busy");
    let id = other.declare().await;
    assert_eq!(other.send_within(0, &id, &of(150)).await, accepted(&id));
    assert_eq!(condition(&most.send_within(0, &oldest, &of(1)).await), OVER);
    assert_eq!(condition(&most.discharge(&oldest, false).await), OVER);
    assert_eq!(most.discharge(&newer, false).await, DeliveryState::accepted());
    assert_eq!(other.discharge(&id, false).await, DeliveryState::accepted());
    let kibibytes: Vec<usize> = server.bodies().await.iter().map(|body| body.len() >> 10).collect();
    assert_eq!(kibibytes, [201, 150]);
    server.stop().await;
}

/// AMQP-97, AMQP-34: the .NET SDK attaches a coordinator with a source whose address is the name of
/// the link, in move mode. The answer repeats it, and the link works like others.
#[tokio::test]
async fn a_coordinator_may_have_a_source() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let name = "6f9619ff-8b86-d011-b42d-00cf4fc964ff";
    let source = Source { distribution_mode: Some("move".into()), ..Source::at(name) };
    let attach = Attach {
        name: name.into(),
        source: Some(source.clone()),
        target: Some(Target::Coordinator(Coordinator::default())),
        ..Client::sender_of(COORDINATOR, "")
    };
    let answer = client.attach_sender(attach).await.unwrap();
    assert_eq!((&*answer.name, &answer.source), (name, &Some(source)));
    assert_eq!(answer.target, Some(Target::Coordinator(Coordinator::default())));
    client.sender(0, "q").await.unwrap();
    let id = client.declare().await;
    assert_eq!(client.send_within(0, &id, &text("a")).await, accepted(&id));
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["a"]);
    server.stop().await;
}

/// AMQ-26, TXN-02: schedules, cancellations and settlements by management are part of a
/// transaction; receives and deletions are not.
#[tokio::test]
async fn management_takes_part() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.manager(0, "q").await;
    let token = server.lock_one().await;
    let id = client.declare().await;
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[token]))];
    let within = || Some(state(&id, None));
    let reply = client.ask_with(0, "update-disposition", &[], within(), &settle).await;
    assert_eq!(reply.status(), 200);
    let message = text("b");
    let message = map(&[("message", value(Value::Binary(message)))]);
    let schedule = [("messages", list(&[message]))];
    let reply = client.ask_with(0, "schedule-message", &[], within(), &schedule).await;
    assert_eq!(
        reply.numbers("sequence-numbers"),
        [0],
        "a message that is due has no number before the commit"
    );
    assert_eq!(server.bodies().await, ["a"]);
    let receive = [("sequence-numbers", longs(&[1]))];
    let reply = client.ask_with(0, "receive-by-sequence-number", &[], within(), &receive).await;
    assert_eq!((reply.status(), &*reply.condition()), (400, "amqp:not-allowed"));
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.bodies().await, ["b"]);
    server.stop().await;
}

/// The map of a message that is due in an hour.
fn later(server: &Server, body: &str) -> Vec<u8> {
    let due = server.now().plus(TimeSpan::from_minutes(60));
    let message = Message::new(body.to_owned()).with_scheduled_enqueue_time(due).encode();
    map(&[("message", value(Value::Binary(message.as_bytes().clone())))])
}

/// SCH-13, TXN-02, TXN-03: a message scheduled in a transaction gets its number immediately. It
/// keeps the number, and no other message gets it, also after a rollback. The number cancels the
/// message after the commit.
#[tokio::test]
async fn a_scheduled_message_has_its_number_before_the_commit() {
    let (server, mut client) = coordinating(&[]).await;
    client.manager(0, "q").await;
    let mut all = Vec::new();
    for fail in [true, false] {
        let id = client.declare().await;
        let messages = [("messages", list(&[later(&server, "a"), later(&server, "b")]))];
        let within = Some(state(&id, None));
        let reply = client.ask_with(0, "schedule-message", &[], within, &messages).await;
        let numbers = reply.numbers("sequence-numbers");
        assert!(server.bodies().await.is_empty());
        server.put(&["now"]).await;
        assert_eq!(client.discharge(&id, fail).await, DeliveryState::accepted());
        assert_eq!(server.counts().await.scheduled, if fail { 0 } else { 2 });
        all.extend(numbers);
        all.extend(server.numbers().await);
        take(&server, "q").await;
    }
    let scheduled = all[3..5].to_vec();
    let mut unique = all.clone();
    unique.sort_unstable();
    unique.dedup();
    // Each scheduled message appears twice: in the answer to its sender, and when it is peeked.
    assert_eq!(unique.len(), 6, "{all:?}");
    let cancel = [("sequence-numbers", longs(&scheduled[..1]))];
    assert_eq!(client.ask(0, "cancel-scheduled-message", &cancel).await.status(), 200);
    assert_eq!(server.counts().await.scheduled, 1);
    // No message has the number 0.
    let cancel = [("sequence-numbers", longs(&[0]))];
    assert_eq!(client.ask(0, "cancel-scheduled-message", &cancel).await.status(), 400);
    server.stop().await;
}

/// TXN-02, SCH-05: a cancellation takes effect with the commit, and is undone by a rollback.
#[tokio::test]
async fn a_cancellation_takes_effect_with_its_transaction() {
    let (server, mut client) = coordinating(&[]).await;
    client.manager(0, "q").await;
    let messages = [("messages", list(&[later(&server, "a")]))];
    let reply = client.ask(0, "schedule-message", &messages).await;
    let cancel = [("sequence-numbers", longs(&reply.numbers("sequence-numbers")))];
    for (fail, left) in [(true, 1), (false, 0)] {
        let id = client.declare().await;
        let within = || Some(state(&id, None));
        let reply = client.ask_with(0, "cancel-scheduled-message", &[], within(), &cancel).await;
        assert_eq!(reply.status(), 200);
        assert_eq!(server.counts().await.scheduled, 1);
        assert_eq!(client.discharge(&id, fail).await, DeliveryState::accepted());
        assert_eq!(server.counts().await.scheduled, left);
    }
    server.stop().await;
}

/// TXN-02, SES-24: a session state that is set or cleared in a transaction takes effect with the
/// commit. Reading it and renewing locks are carried out immediately, outside the transaction.
#[tokio::test]
async fn the_state_of_a_session_is_set_by_the_commit() {
    let (server, mut client) = coordinating(&[]).await;
    server.put_in_sessions(&[("one", "a")]).await;
    client.attach_receiver(of_session(0, "s", raw("one"))).await.unwrap();
    client.manager(1, "s").await;
    client.credit(0, 0, 1, false).await;
    let delivery = client.message().await.0.delivery_id.unwrap();
    let session = || ("session-id", value("one"));
    let set = |text: Option<&'static str>| {
        let state = match text {
            Some(text) => value(Value::Binary(Bytes::from_static(text.as_bytes()))),
            None => value(Value::Null),
        };
        [session(), ("session-state", state)]
    };
    for (text, fail) in [("x", true), ("first", false), ("y", true)] {
        let id = client.declare().await;
        let within = || Some(state(&id, None));
        let reply = client.ask_with(1, "set-session-state", &[], within(), &set(Some(text))).await;
        assert_eq!(reply.status(), 200);
        let seen = client.ask_with(1, "get-session-state", &[], within(), &[session()]).await;
        assert!(seen.get("session-state").scalar() != Ok(Scalar::Binary(text.as_bytes())));
        let renewed = client.ask_with(1, "renew-session-lock", &[], within(), &[session()]).await;
        assert_eq!(renewed.status(), 200);
        assert_eq!(client.discharge(&id, fail).await, DeliveryState::accepted());
    }
    let seen = client.ask(1, "get-session-state", &[session()]).await;
    assert_eq!(seen.get("session-state").scalar(), Ok(Scalar::Binary(b"first")));
    // Together with sends and settlements: all or nothing.
    let id = client.declare().await;
    let within = || Some(state(&id, None));
    client.ask_with(1, "set-session-state", &[], within(), &set(None)).await;
    assert_eq!(client.settle_within(delivery, accepted(&id)).await, accepted(&id));
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    let seen = client.ask(1, "get-session-state", &[session()]).await;
    assert_eq!(seen.get("session-state").scalar(), Ok(Scalar::Null));
    // Without the lock of the session, the whole commit fails.
    let id = client.declare().await;
    let within = || Some(state(&id, None));
    client.ask_with(1, "set-session-state", &[], within(), &set(Some("late"))).await;
    client.detach(0).await;
    condition(&client.discharge(&id, false).await);
    server.stop().await;
}

/// AMQP-100: a request that is not carried out because no link receives its reply marks its
/// transaction for rollback.
#[tokio::test]
async fn request_without_reply_link_requires_rollback() {
    let (server, mut client) = coordinating(&[]).await;
    client.sender(0, "q/$management").await.unwrap();
    let id = client.declare().await;
    let message = map(&[("message", value(Value::Binary(text("b"))))]);
    let body = map(&[("messages", list(&[message]))]);
    let request = crate::request::request(7, "com.microsoft:schedule-message", &[], &body);
    client.send_within(0, &id, request.as_bytes()).await;
    let answer = client.discharge(&id, false).await;
    assert_eq!(condition(&answer), "amqp:transaction:rollback");
    server.stop().await;
}

/// AMQ-26: a request in many frames names its transaction in the first frame.
#[tokio::test]
async fn requests_in_many_frames_take_part() {
    let (server, mut client) = coordinating(&["a"]).await;
    client.manager(0, "q").await;
    let token = server.lock_one().await;
    let id = client.declare().await;
    let settle = [("disposition-status", value("completed")), ("lock-tokens", uuids(&[token]))];
    let whole = std::mem::replace(&mut client.frame_bytes, 50);
    let within = Some(state(&id, None));
    let reply = client.ask_with(0, "update-disposition", &[], within, &settle).await;
    client.frame_bytes = whole;
    assert_eq!(reply.status(), 200);
    assert_eq!(server.bodies().await, ["a"], "nothing has happened yet");
    assert_eq!(client.discharge(&id, false).await, DeliveryState::accepted());
    assert_eq!(server.total().await, 0);
    server.stop().await;
}

/// AMQ-27: a declare that is sent settled is refused, since it cannot be answered.
#[tokio::test]
async fn declares_are_not_sent_settled() {
    let (server, mut client) = coordinating(&[]).await;
    let body = of_value(|bytes| write_list(bytes, &Declare::default()));
    client.send(COORDINATOR, 0, true, &body).await;
    assert_eq!(client.detached().await, "amqp:not-allowed");
    server.stop().await;
}

/// VIA-01, VIA-02, AMQP-96, AMQ-11: messages are sent through a queue to another one, which must
/// exist.
#[tokio::test]
async fn messages_go_by_way_of_another_queue() {
    let server = Server::start().await;
    server.broker.create_queue("r", QueueUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    let via = |handle, destination: &str| {
        let destination = Raw::encoded(|bytes| Value::from(destination).encode_to(bytes));
        let name = "com.microsoft:transfer-destination-address";
        let properties = Some(Map::of_symbols([(name, destination)]));
        Attach { properties, ..Client::sender_of(handle, "q") }
    };
    client.attach_sender(via(0, "amqps://localhost/R")).await.unwrap();
    client.send(0, 0, false, &text("a")).await;
    assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    client.receiver(1, "r", LOCKED).await.unwrap();
    client.credit(1, 0, 1, false).await;
    assert_eq!(client.message().await.1.body_bytes(), "a");
    let refused = client.attach_sender(via(2, "none")).await;
    assert_eq!(refused.unwrap_err(), "amqp:not-found");
    server.stop().await;
}

/// AMQP-65, AMQP-66: a transactional state without an outcome does not settle its delivery.
#[tokio::test]
async fn no_outcome_is_no_acceptance() {
    let (server, mut client) = coordinating(&["a", "b"]).await;
    client.receiver(0, "q", LOCKED).await.unwrap();
    client.credit(0, 0, 2, false).await;
    let first = client.message().await.0.delivery_id.unwrap();
    let second = client.message().await.0.delivery_id.unwrap();
    let txn_id = client.declare().await;
    client.say_of(first, state(&txn_id, None), false).await;
    client.say_of(second, state(&txn_id, None), true).await;
    assert_eq!(client.discharge(&txn_id, false).await, DeliveryState::accepted());
    assert_eq!(server.total().await, 2);
    assert_eq!(client.settle(first, DeliveryState::accepted()).await, DeliveryState::accepted());
    assert_eq!(server.total().await, 1, "the lock of the other runs on");
    server.stop().await;
}
