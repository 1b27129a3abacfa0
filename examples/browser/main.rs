//! A broker and a page in one program: open the address it prints, and see messages arrive
//! under lock, with buttons that complete, abandon, defer and dead-letter them.
//!
//! `cargo run --example browser`; ports of the page and of the broker can follow: `-- 8080 5301`.

#![expect(clippy::print_stdout, reason = "an example prints its result")]

mod serve;

use std::net::{Ipv4Addr, SocketAddr};

use peeklock::Client;
use peeklock::description::QueueProperties;
use peeklock::message::Message;
use peeklock::time::TimeSpan;
use serve::Served;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut ports = std::env::args().skip(1).map(|port| port.parse());
    let mut address = |default| -> Result<SocketAddr, std::num::ParseIntError> {
        Ok((Ipv4Addr::LOCALHOST, ports.next().unwrap_or(Ok(default))?).into())
    };
    let served = Served::start(address(8080)?, address(5301)?).await?;
    let orders = QueueProperties::new()
        .with_lock_duration(TimeSpan::from_seconds(30))
        .with_max_delivery_count(3);
    let client = Client::new(&served.broker);
    client.admin().create_queue_with("orders", orders).await?;
    let sender = client.sender("orders")?;
    for body in ["two coffees", "one tea", "<img src=x onerror=alert(1)> is text here"] {
        sender.send(Message::new(body)).await?;
    }
    println!("broker at ws://{}/", served.broker_address());
    println!("open http://{}/ in a browser; Ctrl+C ends", served.page);
    tokio::signal::ctrl_c().await?;
    served.stop().await
}
