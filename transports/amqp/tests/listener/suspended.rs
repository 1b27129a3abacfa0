//! Connections to a broker whose lease has ended, because it cannot renew it.

use std::time::Duration;

use peeklock_amqp::performative::{Open, Performative, SenderSettleMode};
use peeklock_core::Broker;
use peeklock_core::cluster::ownership::LeaseTimes;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::{MessageId, Value};
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::FaultStore;

use crate::client::Client;
use crate::server::Server;
use crate::tokens::{put, status};

/// CLU-17: a suspended broker takes tokens and sends heartbeats, also while an attach waits for the
/// entity. It does not report that an entity is missing, and answers the attach when its lease is
/// renewed.
#[tokio::test]
async fn heartbeats_go_on_while_the_broker_is_suspended() {
    let (store, member) = FaultStore::at_once(2, u64::MAX).join("only");
    let times = LeaseTimes {
        renew: TimeSpan::from_ms(20),
        lease: TimeSpan::from_ms(700),
        margin: TimeSpan::from_ms(300),
    };
    let builder = Broker::builder().store(store).lease(times);
    let server = Server::start_as(builder, QueueUpdate::default(), |_| {}).await;
    let open = Open { idle_time_out: Some(400), ..Open::default() };
    let mut client = Client::open_with(server.address, open, 100).await;
    client.passes_flows = true;
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 100, false).await;
    member.cut_off(true);
    while !server.broker.is_suspended() {
        tokio::task::yield_now().await;
    }
    let suspended = async {
        for audience in ["amqp://h/q", "amqp://h/none"] {
            let reply = put(&mut client, audience, "any", MessageId::Ulong(1)).await;
            assert_eq!(status(&reply), Value::I32(202), "{audience}");
        }
        let refused = client.sender(2, "none").await;
        assert_eq!(refused, Err("com.microsoft:server-busy".to_owned()));
        let attach = Client::sender_of(3, "q");
        client.send_frame(&Performative::Attach(Box::new(attach))).await;
        for _ in 0..3 {
            assert!(client.any_frame().await.unwrap().is_empty(), "only heartbeats are sent");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), suspended).await.expect("the broker answers");
    assert!(server.broker.is_suspended());
    member.cut_off(false);
    let (Performative::Attach(answer), _) = client.next_frame().await else { panic!() };
    assert!(answer.target.is_some(), "{answer:?}");
    server.stop().await;
}
