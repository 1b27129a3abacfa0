//! Looks at the memory of the broker from the first byte of an attack to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::broker::{BUDGET_BYTES, Broker, KEPT_BYTES, MESSAGE_BYTES};

const LOOK: Duration = Duration::from_millis(20);
/// When the attacker is gone, this is how long what it held may be held: the grace of a body or a frame, and five
/// seconds.
const AFTERWARDS: Duration = Duration::from_secs(35);
/// What the allocator does not give back then (docs/decisions/0027).
const LEFT_BYTES: u64 = 96 << 20;
/// Files of the store that were opened meanwhile; of attackers there are many more.
const LEFT_DESCRIPTORS: usize = 16;

pub struct Judge {
    broker: u32,
    before_bytes: u64,
    before_descriptors: usize,
    most_bytes: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    looking: Option<JoinHandle<()>>,
}

impl Judge {
    pub fn begin(broker: &Broker) -> Self {
        let id = broker.id();
        let before_bytes = Broker::resident_bytes(id).unwrap();
        let (most_bytes, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let looking = {
            let (most_bytes, over) = (Arc::clone(&most_bytes), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let bytes = Broker::resident_bytes(id).unwrap_or_default();
                    most_bytes.fetch_max(bytes, Ordering::Relaxed);
                    std::thread::sleep(LOOK);
                }
            })
        };
        Self {
            broker: id,
            before_bytes,
            before_descriptors: Broker::descriptors(id),
            most_bytes,
            over,
            looking: Some(looking),
        }
    }

    /// What the process took since the beginning, at its most, is within its budgets, beside what it keeps of
    /// so many messages.
    pub fn memory_was_bounded(&self, messages: u64) {
        let grown = self.most_bytes.load(Ordering::Relaxed).saturating_sub(self.before_bytes);
        eprintln!("memory: {} MiB more at most", grown >> 20);
        let bound = BUDGET_BYTES + kept(messages);
        assert!(grown < bound, "the broker took {} MiB, of {}", grown >> 20, bound >> 20);
    }

    /// Seconds after the attacker is gone, so are its connections, and what was held for them.
    pub fn nothing_is_left(&self, messages: u64) {
        let bytes_max = self.before_bytes + LEFT_BYTES + kept(messages);
        let descriptors_max = self.before_descriptors + LEFT_DESCRIPTORS;
        let gone = Instant::now();
        loop {
            let bytes = Broker::resident_bytes(self.broker).unwrap();
            let descriptors = Broker::descriptors(self.broker);
            if bytes <= bytes_max && descriptors <= descriptors_max {
                let more = bytes.saturating_sub(self.before_bytes) >> 20;
                eprintln!("left: {more} MiB after {:?}", gone.elapsed());
                return;
            }
            assert!(
                gone.elapsed() < AFTERWARDS,
                "{} MiB and {descriptors} descriptors are left, of {} and {descriptors_max}",
                bytes >> 20,
                bytes_max >> 20,
            );
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(looking) = self.looking.take() {
            looking.join().ok();
        }
    }
}

/// What the broker keeps as it should.
fn kept(messages: u64) -> u64 {
    if messages == 0 { 0 } else { KEPT_BYTES + messages * MESSAGE_BYTES }
}
