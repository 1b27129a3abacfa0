//! CPU time that an attack uses, and a neutral load that uses the same CPU time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::attacker::yield_to_others;
use super::broker::Broker;

/// Period of a thread that burns part of a core, busy and idle time together.
const PERIOD: Duration = Duration::from_millis(5);
/// Unit of CPU time in `/proc`: Linux counts hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of the broker, and of this process, which runs the attackers and the well-behaved
/// clients.
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

/// CPU time of the broker and of this process since `begin`.
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
    // The fields follow the name, which may contain any character: state is the third field, utime
    // and stime are the fourteenth and fifteenth.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|text| text.parse::<u32>().ok()).sum();
    TICK * ticks
}

fn of_this_thread() -> Duration {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(taken.tv_sec.unsigned_abs(), taken.tv_nsec.unsigned_abs().try_into().unwrap())
}

/// Threads that burn CPU.
pub struct Burner {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burner {
    /// Burns `taken` CPU time in each `elapsed`: the share of the broker with normal priority, and
    /// the share of its clients with the lowest priority, as attackers have.
    pub fn begin(taken: Cpu, elapsed: Duration) -> Self {
        let mut burner = Self { over: Arc::default(), threads: Vec::new() };
        let cores = |taken: Duration| taken.as_secs_f64() / elapsed.as_secs_f64();
        burner.burn(cores(taken.broker), || {});
        burner.burn(cores(taken.clients), yield_to_others);
        burner
    }

    /// Adds threads that together burn `cores` cores.
    fn burn(&mut self, cores: f64, begin: fn()) {
        // No test machine has more cores.
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
