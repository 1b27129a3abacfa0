//! The CPU that an attack takes, and a load that takes the same and does nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::broker::Broker;

/// Of a thread that burns a part of a core, busy and at rest together.
const PERIOD: Duration = Duration::from_millis(5);
/// Linux counts in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// The CPU that the broker and this process, which has attackers and clients in it, have taken since.
pub struct Load {
    broker: u32,
    begun: Instant,
    before: Duration,
}

impl Load {
    pub fn begin(broker: &Broker) -> Self {
        Self { broker: broker.id(), begun: Instant::now(), before: taken(broker.id()) }
    }

    pub fn cpu(&self) -> Duration {
        taken(self.broker).saturating_sub(self.before)
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

fn taken(broker: u32) -> Duration {
    let of = |process: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Behind the name, which may have anything in it: state is the third field, utime and stime are the
        // fourteenth and fifteenth.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u32 = fields.skip(11).take(2).filter_map(|text| text.parse::<u32>().ok()).sum();
        TICK * ticks
    };
    of("self") + of(&broker.to_string())
}

/// Threads that are busy for so many cores in all.
pub struct Burner {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    pub fn begin(cores: f64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        // No machine of the tests has more.
        let count = (1..1_024_u32).find(|count| f64::from(*count) >= cores).unwrap_or(1_024);
        let busy = PERIOD.mul_f64((cores / f64::from(count)).clamp(0.0, 1.0));
        let threads = (0..count).map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    while begun.elapsed() < busy {
                        std::hint::spin_loop();
                    }
                    std::thread::sleep(PERIOD.saturating_sub(busy));
                }
            })
        });
        let threads = threads.collect();
        Self { over, threads }
    }

    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}
