//! Looks at the memory of the broker from the first byte of an attack to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::broker::{BUDGET_BYTES, Broker};

const LOOK: Duration = Duration::from_millis(20);

pub struct Judge {
    before_bytes: u64,
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
        Self { before_bytes, most_bytes, over, looking: Some(looking) }
    }

    /// What the process took since the beginning, at its most, is within its budgets.
    pub fn memory_was_bounded(&self) {
        let grown = self.most_bytes.load(Ordering::Relaxed).saturating_sub(self.before_bytes);
        eprintln!("memory: {} MiB more at most", grown >> 20);
        assert!(
            grown < BUDGET_BYTES,
            "the broker took {} MiB, of {}",
            grown >> 20,
            BUDGET_BYTES >> 20
        );
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
