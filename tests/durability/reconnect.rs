//! A WebSocket client whose broker ends and starts again: its handles stay usable, acknowledged
//! messages are there, and unsettled messages are delivered again with an unchanged count.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use peeklock::condition::Condition;
use peeklock::message::Message;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::{ClientOptions, Receiver, connect_with};

use crate::alone::alone;
use crate::process::{Broker, Place, Storage};

const SENT: usize = 30;
const COMPLETED: usize = 4;
const HELD: usize = 6;
/// Longer than any wait here takes.
const PATIENCE: TimeSpan = TimeSpan::from_seconds(30);

/// SET-27, SET-31, LIF-04, FND-02 after SIGTERM.
#[test]
fn a_client_continues_after_a_stop_of_its_broker() {
    over_a_restart("stopped", |broker| broker.stop().unwrap());
}

/// SET-27, LIF-04, FND-02 after SIGKILL.
#[test]
fn a_client_continues_after_a_kill_of_its_broker() {
    over_a_restart("killed", Broker::kill);
}

fn over_a_restart(name: &str, end: impl FnOnce(Broker)) {
    let _alone = alone();
    let place = Place::new(name, Storage::Journal);
    let address = free_address();
    let broker = place.spawn_at(&address).ready().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = ClientOptions::default();
        options.pause_max = Duration::from_millis(100);
        let client = connect_with(&format!("ws://{address}"), options).await.unwrap();
        client.admin().create_queue("orders").await.unwrap();
        let sender = client.sender("orders").unwrap();
        let messages = (0..SENT).map(|number| Message::new(format!("order {number}"))).collect();
        for sent in sender.send_many(messages).await {
            sent.unwrap();
        }
        let receiver = client.receiver("orders").unwrap();
        let first = take(&receiver, COMPLETED + HELD).await;
        for message in &first[..COMPLETED] {
            receiver.complete(message).await.unwrap();
        }
        let held = &first[COMPLETED..];

        end(broker);
        let broker = place.spawn_at(&address).ready().unwrap();

        let error = receiver.complete(&held[0]).await.unwrap_err();
        let lost = [Condition::MessageLockLost, Condition::CommunicationProblem];
        assert!(lost.contains(&error.condition()), "{error}");
        let mut seen = BTreeMap::new();
        for message in take(&receiver, SENT - COMPLETED).await {
            assert_eq!(message.delivery_count(), 1, "{:?}", message.body());
            let earlier = seen.insert(message.body().clone(), message.sequence_number());
            assert_eq!(earlier, None, "{:?} came twice", message.body());
            receiver.complete(&message).await.unwrap();
        }
        for message in &first[..COMPLETED] {
            assert!(!seen.contains_key(message.body()), "{:?} is back", message.body());
        }
        for message in held {
            assert_eq!(seen.get(message.body()), Some(&message.sequence_number()));
        }
        assert!(receiver.receive(TimeSpan::ZERO).await.unwrap().is_none(), "nothing is left over");
        sender.send(Message::new("after that")).await.unwrap();
        client.close().await;
        broker.stop().unwrap();
    });
    place.remove();
}

/// Receives `count` messages.
async fn take(receiver: &Receiver, count: usize) -> Vec<peeklock::websocket::client::Received> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let left = u32::try_from(count - taken.len()).unwrap();
        // The call during which the connection ends fails. The next one uses the new connection.
        match receiver.receive_many(left, PATIENCE).await {
            Ok(messages) => {
                assert!(!messages.is_empty(), "{} of {count} came", taken.len());
                taken.extend(messages);
            }
            Err(error) => assert_eq!(error.condition(), Condition::CommunicationProblem, "{error}"),
        }
    }
    taken
}

/// An unused address for brokers that follow one another.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
