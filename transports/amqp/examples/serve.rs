//! An in-memory broker that serves AMQP on loopback, for trying clients. It has a queue `q`, and a
//! topic `t` with a subscription `s`. The first argument is the port, 5672 by default. It ends when
//! its standard input ends.

#![allow(clippy::print_stdout, reason = "it prints its address")]

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use peeklock_amqp::server::{AmqpConfig, AmqpTransport};
use peeklock_core::Broker;
use peeklock_core::contract::Transport as _;
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(5672), |port| port.parse())?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let broker = Broker::builder().start().await?;
        broker.create_queue("q", QueueUpdate::default()).await?;
        broker.create_topic("t", TopicUpdate::default()).await?;
        broker.create_subscription("t", "s", SubscriptionUpdate::default(), vec![]).await?;
        let config = AmqpConfig::at(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let running = Box::new(AmqpTransport::new(config)).start(broker.clone()).await?;
        println!("amqp://{}", running.local_address());
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        running.stop(Duration::from_secs(1)).await;
        broker.stop(Duration::ZERO).await?;
        Ok(())
    })
}
