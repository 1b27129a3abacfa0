//! What the WebSocket transport costs: whole cycles through the built binary, its own CPU per million
//! messages. Four senders and four receivers, each on a connection of its own, window 256.
//!
//! `cargo bench --bench websocket -- [messages]`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use peeklock::message::Message;
use peeklock::websocket::Encoding;
use peeklock::websocket::client::{Client, ClientOptions, ConsumerOptions};
use tokio::sync::Notify;

const CLIENTS: u64 = 4;
const WINDOW: u32 = 256;
const MESSAGES: u64 = 200_000;
/// Clock ticks of /proc in a second.
const TICKS_PER_SECOND: f64 = 100.0;

struct Served {
    process: Child,
    url: String,
}

impl Served {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_peeklock"))
            .args(["serve", "--ephemeral", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0", "-q"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}"));
        let output = process.stdout.take().unwrap_or_else(|| panic!("no output"));
        let url = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.trim().strip_prefix("websocket ")?.trim().to_owned()))
            .unwrap_or_else(|| panic!("the banner names no address"));
        Self { process, url }
    }

    /// CPU seconds that the process has used.
    fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let stat = stat.unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|it| it.parse::<f64>().ok()).sum();
        ticks / TICKS_PER_SECOND
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn main() {
    let messages =
        std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(MESSAGES);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"));
    for (encoding, bytes) in
        [(Encoding::Binary, 1_024), (Encoding::Binary, 16), (Encoding::Json, 1_024)]
    {
        runtime.block_on(cycle(encoding, bytes, messages));
    }
}

#[expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]
async fn cycle(encoding: Encoding, bytes: usize, messages: u64) {
    let served = Served::start();
    let connect = || async {
        let mut options = ClientOptions::default();
        options.encoding = encoding;
        Client::connect_with(&served.url, options).await.unwrap_or_else(|it| panic!("{it}"))
    };
    let admin = connect().await;
    admin.admin().create_queue("bench").await.unwrap_or_else(|error| panic!("{error}"));
    let done = Arc::new((AtomicU64::new(0), Notify::new()));
    let mut consumers = Vec::new();
    for _ in 0..CLIENTS {
        let done = Arc::clone(&done);
        let client = connect().await;
        let options = ConsumerOptions { concurrent_max: WINDOW, renew_locks: false };
        let consumer = client.consume("bench", options, move |_| {
            if done.0.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                done.1.notify_one();
            }
            std::future::ready(Ok(()))
        });
        consumers.push((client, consumer.unwrap_or_else(|error| panic!("{error}"))));
    }
    let (before, started) = (served.cpu_seconds(), Instant::now());
    let mut senders = Vec::new();
    for _ in 0..CLIENTS {
        let client = connect().await;
        senders.push(tokio::spawn(async move {
            let sender = client.sender("bench").unwrap_or_else(|error| panic!("{error}"));
            let body = bytes::Bytes::from(vec![b'x'; bytes]);
            let mut left = messages / CLIENTS;
            let mut in_flight = futures_util::stream::FuturesUnordered::new();
            while left > 0 || !in_flight.is_empty() {
                while left > 0 && in_flight.len() < WINDOW as usize {
                    in_flight.push(sender.send(Message::new(body.clone())));
                    left -= 1;
                }
                if let Some(Err(error)) = futures_util::StreamExt::next(&mut in_flight).await {
                    panic!("{error}");
                }
            }
        }));
    }
    for sender in senders {
        sender.await.unwrap_or_else(|error| panic!("{error}"));
    }
    done.1.notified().await;
    for (_, consumer) in consumers {
        consumer.stop().await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu = served.cpu_seconds() - before;
    let millions = messages as f64 / 1e6;
    println!(
        "{encoding:?}, {bytes} bytes: {:>8.0} cycles/s   server CPU {:>5.2} s per million",
        messages as f64 / seconds,
        cpu / millions
    );
}
