//! The CPU that an attack takes, and a load that takes the same and does nothing else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::attacker::yield_to_others;
use super::broker::Broker;

/// Of a thread that burns a part of a core, busy and at rest together.
const PERIOD: Duration = Duration::from_millis(5);
/// Linux counts in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// CPU of the broker, and of this process, which has attackers and well-behaved clients in it.
#[derive(Clone, Copy)]
pub struct Cpu {
    pub broker: Duration,
    pub clients: Duration,
}

impl Cpu {
    fn of(broker: u32) -> Self {
        Self { broker: taken(&broker.to_string()), clients: taken("self") }
    }

    pub fn minus(self, other: Self) -> Self {
        Self {
            broker: self.broker.saturating_sub(other.broker),
            clients: self.clients.saturating_sub(other.clients),
        }
    }

    pub fn times(self, count: u32) -> Self {
        Self { broker: self.broker * count, clients: self.clients * count }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "{:.2?} of the broker and {:.2?} of its clients", self.broker, self.clients)
    }
}

/// What they have taken since it began.
pub struct Load {
    broker: u32,
    begun: Instant,
    before: Cpu,
}

impl Load {
    pub fn begin(broker: &Broker) -> Self {
        Self { broker: broker.id(), begun: Instant::now(), before: Cpu::of(broker.id()) }
    }

    pub fn cpu(&self) -> Cpu {
        Cpu::of(self.broker).minus(self.before)
    }

    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

fn taken(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may have anything in it: state is the third field, utime and stime are the fourteenth
    // and fifteenth.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|text| text.parse::<u32>().ok()).sum();
    TICK * ticks
}

fn of_this_thread() -> Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(taken.tv_sec.unsigned_abs(), taken.tv_nsec.unsigned_abs().try_into().unwrap())
}

/// Threads that are busy.
pub struct Burner {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    /// For as much as was taken in a time: what the broker took like any program, and what its clients took as attackers
    /// do, who yield to others.
    pub fn begin(taken: Cpu, elapsed: Duration) -> Self {
        let mut burner = Self { over: Arc::default(), threads: Vec::new() };
        let cores = |taken: Duration| taken.as_secs_f64() / elapsed.as_secs_f64();
        burner.burn(cores(taken.broker), || {});
        burner.burn(cores(taken.clients), yield_to_others);
        burner
    }

    /// So many cores more.
    fn burn(&mut self, cores: f64, begin: fn()) {
        // No machine of the tests has more.
        let count = (1..1_024_u32).find(|count| f64::from(*count) >= cores).unwrap_or(1_024);
        let busy = PERIOD.mul_f64((cores / f64::from(count)).clamp(0.0, 1.0));
        self.threads.extend((0..count).map(|_| {
            let over = Arc::clone(&self.over);
            std::thread::spawn(move || {
                begin();
                while !over.load(Ordering::Relaxed) {
                    let (begun, taken) = (Instant::now(), of_this_thread());
                    while of_this_thread() < taken + busy && !over.load(Ordering::Relaxed) {}
                    std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
                }
            })
        }));
    }

    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}
