//! Measures the in-process handles: lists, single sends, and a consumer with an empty handler.
//! Ignored, because other tests at the same time would distort the figures: `cargo test --release
//! -p peeklock-client --test speed -- --ignored --nocapture`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints what it found")]

use std::time::Instant;

use actix::{Actor, Context, Handler};
use peeklock_client::{Client, ConsumerOptions, Delivery, Refusal};
use peeklock_core::Broker;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use tokio::sync::mpsc;

const MESSAGES: usize = 200_000;
const LIST: usize = 500;

struct Empty {
    left: usize,
    done: mpsc::UnboundedSender<()>,
}

impl Actor for Empty {
    type Context = Context<Self>;
}

impl Handler<Delivery> for Empty {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, _: Delivery, _: &mut Self::Context) -> Self::Result {
        self.left -= 1;
        if self.left == 0 {
            self.done.send(()).unwrap();
        }
        Ok(())
    }
}

async fn fill(client: &Client) -> f64 {
    let sender = client.sender("q").unwrap().with_in_flight_max(LIST);
    let started = Instant::now();
    for _ in 0..MESSAGES / LIST {
        let messages = vec![Message::new(vec![7; 100]); LIST];
        assert!(sender.send_many(messages).await.iter().all(Result::is_ok));
    }
    rate(MESSAGES, started)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: usize, started: Instant) -> f64 {
    count as f64 / started.elapsed().as_secs_f64() / 1_000.0
}

fn options(is_renewing: bool) -> ConsumerOptions {
    let options = ConsumerOptions::at_once(256);
    if is_renewing { options } else { options.without_renewal() }
}

#[actix::test]
#[ignore = "a measurement"]
async fn handles_in_process() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let client = Client::new(&broker);
    let large = QueueUpdate { max_size_in_megabytes: Some(5_120), ..QueueUpdate::default() };
    client.admin().create_queue_with("q", large).await.unwrap();
    for round in 0..3 {
        let sent = fill(&client).await;
        let receiver = client.receiver("q").unwrap();
        let started = Instant::now();
        let mut left = MESSAGES;
        while left > 0 {
            let list = receiver.receive_many(500, TimeSpan::from_seconds(1)).await.unwrap();
            let tokens: Vec<_> = list.iter().filter_map(|message| message.lock_token()).collect();
            assert!(receiver.complete_many(&tokens).await.iter().all(Result::is_ok));
            left -= tokens.len();
        }
        let lists = rate(MESSAGES, started);
        print!("round {round}: sent {sent:.0} k/s, lists {lists:.0} k/s");
        for is_renewing in [false, true] {
            fill(&client).await;
            let (done, mut told) = mpsc::unbounded_channel();
            let recipient = Empty { left: MESSAGES, done }.start().recipient();
            let started = Instant::now();
            let consumer = client.consume("q", recipient, options(is_renewing)).await.unwrap();
            told.recv().await.unwrap();
            let consumed = rate(MESSAGES, started);
            consumer.stop().await;
            print!(", consumer {consumed:.0} k/s (renewing: {is_renewing})");
        }
        let sender = client.sender("q").unwrap();
        let started = Instant::now();
        for _ in 0..MESSAGES / 10 {
            sender.send(Message::new("one")).await.unwrap();
        }
        println!(", one by one {:.0} k/s", rate(MESSAGES / 10, started));
        receiver.purge().await.unwrap();
    }
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}
