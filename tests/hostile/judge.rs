//! Measures the memory of the broker during an attack, and the remaining memory after it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::broker::{BUDGET_BYTES, Broker, kept_bytes};
use super::wire::{connect, read_answer, request};

/// Intervals between measurements of memory and between requests for the number of stored messages.
const LOOK: Duration = Duration::from_millis(20);
const ASK: Duration = Duration::from_secs(1);
/// Time until everything held for an attacker must be released, after the attack has ended and its
/// time to resume is over.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Memory that the allocator may retain (docs/decisions/0035).
const LEFT_BYTES: u64 = 96 << 20;
/// Sockets that other clients may have opened meanwhile.
const LEFT_SOCKETS: usize = 8;

pub struct Judge {
    broker: u32,
    before_bytes: u64,
    before_sockets: usize,
    seen: Arc<Seen>,
    looking: Vec<JoinHandle<()>>,
}

/// Highest values measured.
#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    messages: AtomicU64,
    over: AtomicBool,
}

impl Judge {
    pub fn begin(broker: &Broker) -> Self {
        let (id, http) = (broker.id(), broker.http);
        let before_bytes = Broker::resident_bytes(id).unwrap();
        let seen = Arc::new(Seen::default());
        let of_bytes = {
            let seen = Arc::clone(&seen);
            move || seen.bytes.fetch_max(Broker::resident_bytes(id).unwrap_or_default(), Relaxed)
        };
        let of_messages = {
            let seen = Arc::clone(&seen);
            // The broker may have no room for another connection now.
            move || seen.messages.fetch_max(stored(http).unwrap_or_default(), Relaxed)
        };
        let looking = vec![again(LOOK, &seen, of_bytes), again(ASK, &seen, of_messages)];
        let before_sockets = Broker::sockets(id);
        Self { broker: id, before_bytes, before_sockets, seen, looking }
    }

    /// Asserts that the growth of the process stayed within its budgets, or within `memory_max` if
    /// it is set, plus the stored messages if the attack stores any.
    pub fn memory_was_bounded(&self, keeps: bool, memory_max: Option<u64>) {
        let grown = self.seen.bytes.load(Relaxed).saturating_sub(self.before_bytes);
        let kept = self.kept(keeps);
        eprintln!("memory: {} MiB more at most, {} of them may be kept", grown >> 20, kept >> 20);
        let bound = memory_max.unwrap_or(BUDGET_BYTES) + kept;
        assert!(grown < bound, "the broker took {} MiB, of {}", grown >> 20, bound >> 20);
    }

    /// Asserts that the connections and memory of the attacker are released within seconds after
    /// the attack and its time to resume.
    pub fn nothing_is_left(&self, keeps: bool, grace: Duration, connections: usize) {
        let bytes_max = self.before_bytes + LEFT_BYTES + self.kept(keeps);
        let sockets_max = self.before_sockets + LEFT_SOCKETS + connections;
        let gone = Instant::now();
        loop {
            let bytes = Broker::resident_bytes(self.broker).unwrap();
            let sockets = Broker::sockets(self.broker);
            if bytes <= bytes_max && sockets <= sockets_max {
                let more = bytes.saturating_sub(self.before_bytes) >> 20;
                eprintln!("left: {more} MiB after {:?}", gone.elapsed());
                return;
            }
            assert!(
                gone.elapsed() < grace + AFTERWARDS,
                "{} MiB and {sockets} sockets are left, of {} and {sockets_max}",
                bytes >> 20,
                bytes_max >> 20,
            );
            std::thread::sleep(LOOK);
        }
    }

    fn kept(&self, keeps: bool) -> u64 {
        if keeps { kept_bytes(self.seen.messages.load(Relaxed)) } else { 0 }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.seen.over.store(true, Relaxed);
        for looking in self.looking.drain(..) {
            looking.join().ok();
        }
    }
}

/// Calls `measure` at intervals of `pause` until the judge is dropped.
fn again<T>(
    pause: Duration,
    seen: &Arc<Seen>,
    look: impl Fn() -> T + Send + 'static,
) -> JoinHandle<()> {
    let seen = Arc::clone(seen);
    std::thread::spawn(move || {
        while !seen.over.load(Relaxed) {
            look();
            std::thread::sleep(pause);
        }
    })
}

/// Number of messages in all entities, from the metrics of the broker.
fn stored(http: SocketAddr) -> Option<u64> {
    let mut stream = connect(http).ok()?;
    stream.set_read_timeout(Some(ASK)).ok()?;
    stream.write_all(&request("GET", "/metrics", "")).ok()?;
    let page = String::from_utf8(read_answer(&mut stream).ok()?.body).ok()?;
    let counts = page.lines().filter(|line| line.starts_with("peeklock_entity_messages{"));
    counts.map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
