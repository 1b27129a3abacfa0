//! Jobs and requests over a connection that is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use peeklock_core::description::QueueUpdate;
use peeklock_core::time::TimeSpan;
use peeklock_websocket::client::{
    Client, ClientOptions, Consumer, ConsumerOptions, Job, JobType, RequestError, RequesterOptions,
    ResponseError,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::proxy::Proxy;
use super::server::{Server, run};

const WAIT: TimeSpan = TimeSpan::from_seconds(50);

#[derive(Debug, Serialize, Deserialize)]
struct Number(u32);

impl JobType for Number {
    const NAME: &'static str = "number";
}

/// Doubles numbers, one for each permit of the gate.
async fn doubling(client: &Client, gate: &Arc<Semaphore>) -> Consumer {
    let gate = Arc::clone(gate);
    let handler = client.responder(move |number: Job<Number>| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, ResponseError>(Number(2 * number.value.0))
        }
    });
    client.consume("q", handler, ConsumerOptions::default()).await.unwrap()
}

/// SES-34: whichever frame is cut, each request gets its reply.
#[test]
fn requests_have_their_replies_over_cuts() {
    run(async {
        let server = Server::start(60).await;
        let proxy = Proxy::start(server.address, 3, 20).await;
        let client = Server::quick_client(proxy.address, ClientOptions::default()).await;
        let gate = Arc::new(Semaphore::new(1_000));
        let consumer = doubling(&client, &gate).await;
        let requester = client.requester("replies", RequesterOptions::at_once(16)).await.unwrap();
        let requests = (0..200).map(|number| {
            let requester = requester.clone();
            async move { requester.request::<_, Number>("q", &Number(number), WAIT).await }
        });
        let replies = join_all(requests).await;
        assert!(replies.into_iter().map(|reply| reply.unwrap().0).eq((0..200).map(|n| 2 * n)));
        assert!(proxy.cuts.load(Ordering::Relaxed) > 5, "nothing was cut");
        consumer.stop().await;
        requester.close().await;
        client.close().await;
        server.stop().await;
    });
}

/// SES-34, SES-15: a requester whose session was lost with the broker locks the session again, and
/// gets the reply to its earlier request.
#[test]
fn a_request_outlives_a_restart() {
    run(async {
        let server = Server::start(60).await;
        let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        server.broker.create_queue("replies", by_session).await.unwrap();
        let client = Server::quick_client(server.address, ClientOptions::default()).await;
        let gate = Arc::new(Semaphore::new(0));
        let consumer = doubling(&client, &gate).await;
        let requester = client.requester("replies", RequesterOptions::default()).await.unwrap();
        let waits = {
            let requester = requester.clone();
            tokio::spawn(async move { requester.request("q", &Number(21), WAIT).await })
        };
        while server.delivery_counts().await.is_empty() {
            tokio::task::yield_now().await;
        }
        // Its acknowledgement implies that the previous send was acknowledged.
        client.sender("q").unwrap().send_job(&Number(1)).await.unwrap();
        let server = server.restart().await;
        // For the handlers that had the messages, and for those that get them again.
        gate.add_permits(4);
        let reply: Result<Number, RequestError> = waits.await.unwrap();
        assert_eq!(reply.unwrap().0, 42);
        consumer.stop().await;
        requester.close().await;
        client.close().await;
        server.stop().await;
    });
}
