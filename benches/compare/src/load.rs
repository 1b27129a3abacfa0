//! The loads, and the state shared by all clients of a run. The loads are the same as in `peeklock
//! bench`: number of clients, windows, body sizes, warm-up and counting.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Load {
    /// W1: each message is sent when the one before it is completed
    #[value(alias = "w1")]
    Latency,
    /// W2: 4 senders, 4 receivers, windows of 256, 1 KiB
    #[value(alias = "w2")]
    Throughput,
    /// W4: the same with 16 bytes
    #[value(alias = "w4")]
    Small,
    /// W3: W2 kept in memory only
    #[value(alias = "w3")]
    Memory,
}

impl Load {
    pub const ALL: [Self; 4] = [Self::Latency, Self::Throughput, Self::Small, Self::Memory];

    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Small => "small",
            Self::Memory => "memory",
        }
    }

    pub fn clients(self) -> usize {
        if self == Self::Latency { 1 } else { 4 }
    }

    pub fn window(self) -> usize {
        if self == Self::Latency { 1 } else { 256 }
    }

    pub fn body_bytes(self) -> usize {
        if self == Self::Small { 16 } else { 1_024 }
    }
}

/// Results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Messages per second through the whole cycle.
    pub rate: f64,
    /// CPU seconds of the server per million messages.
    pub server_cpu: f64,
    /// CPU seconds of the load per million messages.
    pub load_cpu: f64,
    /// Time from the call of send to its acknowledgement, in microseconds.
    pub send_p50: f64,
    pub send_p99: f64,
    /// Median time of a disk sync, if measured.
    pub floor_p50: Option<f64>,
}

/// Counters of the messages of a run.
pub struct Tally {
    pub window: usize,
    messages: u64,
    body: Vec<u8>,
    taken: Cell<u64>,
    sent: Cell<u64>,
    received: Cell<u64>,
    one_at_a_time: bool,
    completed: watch::Sender<u64>,
    is_all_received: watch::Sender<bool>,
    took: RefCell<Histogram<u32>>,
}

impl Tally {
    pub fn new(load: Load, messages: u64) -> Result<Self> {
        Ok(Self {
            window: load.window(),
            messages,
            body: vec![b'x'; load.body_bytes()],
            taken: Cell::new(0),
            sent: Cell::new(0),
            received: Cell::new(0),
            one_at_a_time: load == Load::Latency,
            completed: watch::Sender::new(0),
            is_all_received: watch::Sender::new(false),
            took: RefCell::new(Histogram::new_with_bounds(1, 600_000_000_000, 3)?),
        })
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes up to `count` messages to send. Returns the number taken.
    pub fn take(&self, count: usize) -> usize {
        let left = self.messages - self.taken.get();
        let count = left.min(count as u64);
        self.taken.set(self.taken.get() + count);
        count as usize
    }

    /// Records `count` acknowledged sends that began together. Returns when the next send may
    /// start.
    pub async fn sent(&self, count: usize, began: Instant) {
        let nanoseconds = began.elapsed().as_nanos() as u64;
        self.took.borrow_mut().saturating_record_n(nanoseconds, count as u32);
        self.sent.set(self.sent.get() + count as u64);
        if self.one_at_a_time {
            let sent = self.sent.get();
            self.completed.subscribe().wait_for(|count| *count >= sent).await.map(drop).ok();
        }
    }

    /// Records received messages, and checks their bodies.
    pub fn received<'a>(&self, bodies: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        for body in bodies {
            ensure!(body.len() == self.body.len(), "a body of {} bytes came", body.len());
            self.received.set(self.received.get() + 1);
        }
        ensure!(self.received.get() <= self.messages, "messages came twice");
        if self.received.get() == self.messages {
            self.is_all_received.send_replace(true);
        }
        Ok(())
    }

    /// Records `count` completions.
    pub fn completed(&self, count: usize) {
        if self.one_at_a_time {
            self.completed.send_modify(|completed| *completed += count as u64);
        }
    }

    pub async fn all_received(&self) {
        self.is_all_received.subscribe().wait_for(|all| *all).await.map(drop).ok();
    }

    /// Returns the results of the run.
    pub fn figures(&self, elapsed: Duration, server_cpu: f64, load_cpu: f64) -> Result<Figures> {
        ensure!(self.sent.get() == self.messages, "{} were sent", self.sent.get());
        ensure!(self.received.get() == self.messages, "{} were received", self.received.get());
        let took = self.took.borrow();
        let us = |quantile| took.value_at_quantile(quantile) as f64 / 1e3;
        let millions = self.messages as f64 / 1e6;
        Ok(Figures {
            rate: self.messages as f64 / elapsed.as_secs_f64(),
            server_cpu: server_cpu / millions,
            load_cpu: load_cpu / millions,
            send_p50: us(0.5),
            send_p99: us(0.99),
            floor_p50: None,
        })
    }
}
