//! Request and reply as a call: prints the price of two cups, the failure of a request for too
//! many, and the timeout of a request without a responder. First in process, then over WebSocket
//! with the same handles.
//!
//! `cargo run --example request_reply`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::net::SocketAddr;
use std::time::Duration;

use peeklock::contract::Transport as _;
use peeklock::time::TimeSpan;
use peeklock::websocket::{WebSocketConfig, WebSocketTransport, client::connect};
use peeklock::{
    Broker, Client, ConsumerOptions, Failure, Job, JobType, RequesterOptions, ResponseError,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    cups: u32,
}

impl JobType for Order {
    const NAME: &'static str = "order";
}

#[derive(Serialize, Deserialize)]
struct Total {
    cents: u32,
}

impl JobType for Total {
    const NAME: &'static str = "total";
}

async fn price(order: Job<Order>) -> Result<Total, ResponseError> {
    match order.value.cups {
        0..10 => Ok(Total { cents: order.value.cups * 250 }),
        cups => Err(Failure::new("OutOfStock", format!("{cups} cups are too many")).into()),
    }
}

async fn ask(client: &Client, way: &str) -> Result<(), Box<dyn std::error::Error>> {
    let barista =
        client.consume("orders", client.responder(price), ConsumerOptions::default()).await?;
    // Replies arrive in the requester's own session. The queue is created, and deleted when it is
    // no longer used.
    let requester = client.requester("replies", RequesterOptions::default()).await?;
    let wait = TimeSpan::from_seconds(5);
    for cups in [2, 12] {
        match requester.request::<_, Total>("orders", &Order { cups }, wait).await {
            Ok(total) => println!("{way}: {cups} cups are {} cents", total.cents),
            Err(error) => println!("{way}: {error}"),
        }
    }
    barista.stop().await;
    let unheard =
        requester.request::<_, Total>("orders", &Order { cups: 1 }, TimeSpan::from_ms(10));
    if let Err(error) = unheard.await {
        println!("{way}: {error}");
    }
    requester.close().await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    client.admin().create_queue("orders").await?;
    ask(&client, "in process").await?;

    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let transport = Box::new(WebSocketTransport::new(WebSocketConfig::at(anywhere)));
    let listener = transport.start(broker.clone()).await?;
    let remote = connect(&format!("ws://{}", listener.local_address())).await?;
    ask(&remote, "over WebSocket").await?;

    remote.close().await;
    listener.stop(Duration::from_secs(1)).await;
    broker.stop(Duration::from_secs(1)).await?;
    Ok(())
}
