//! What attackers have in common: they keep at it until they are told to end.

use std::any::Any;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The lowest priority.
const NICE_MAX: i32 = 19;
/// How long a socket that takes nothing is tried.
const STUCK: Duration = Duration::from_millis(100);

/// An attack that goes on.
#[derive(Default)]
pub struct Attack {
    keeps: bool,
    memory_max: Option<u64>,
    attempts: Arc<AtomicU64>,
    lasting: Duration,
    grace: Duration,
    connections_left: usize,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    held: Vec<Box<dyn Any>>,
}

impl Attack {
    /// It makes the broker keep what it should: messages, and what has a bound of its own.
    pub const fn makes_it_keep(&mut self) {
        self.keeps = true;
    }

    /// Whether it does.
    pub const fn keeps(&self) -> bool {
        self.keeps
    }

    /// The broker may take no more memory than this for it, whatever its budgets are.
    pub const fn takes_at_most(&mut self, bytes: u64) {
        self.memory_max = Some(bytes);
    }

    /// How much that is, if it is bounded so.
    pub const fn memory_max(&self) -> Option<u64> {
        self.memory_max
    }

    /// Goes on for so long at least, whatever else it takes to judge it.
    pub const fn last(&mut self, lasting: Duration) {
        self.lasting = lasting;
    }

    /// For how long it has to go on.
    pub const fn lasting(&self) -> Duration {
        self.lasting
    }

    /// When it is gone, what it held may be held for so long, because it may come back.
    pub const fn is_kept_for(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// For how long.
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// When it is gone, so many connections of its may be left: of who has said much before he went, which is carried out as
    /// far as there is room (AMQP-69).
    pub const fn may_leave(&mut self, connections: usize) {
        self.connections_left = connections;
    }

    /// How many.
    pub const fn connections_left(&self) -> usize {
        self.connections_left
    }

    /// How often it has done what it repeats.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Keeps this open until the end.
    pub fn hold(&mut self, what: impl Any) {
        self.held.push(Box::new(what));
    }

    /// Does this again and again, beside everything else, until the end.
    pub fn repeat(&mut self, mut attempt: impl FnMut() + Send + 'static) {
        let (over, attempts) = (Arc::clone(&self.over), Arc::clone(&self.attempts));
        self.threads.push(std::thread::spawn(move || {
            yield_to_others();
            while !over.load(Ordering::Relaxed) {
                attempt();
                attempts.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    /// The attacker is gone.
    pub fn end(self) {
        drop(self.held);
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Has this thread get hardly any of a core that others want. Attackers have machines of their own: what others wait for here
/// is to be the broker, and not a core that an attacker is at.
pub fn yield_to_others() {
    // Linux takes the calling thread for the process.
    rustix::process::setpriority_process(None, NICE_MAX).unwrap();
}

/// Writes as much as the socket takes at once, of these bytes again and again.
pub fn flood(stream: &mut TcpStream, bytes: &[u8], times: usize) {
    use std::io::Write as _;
    stream.set_write_timeout(Some(STUCK)).ok();
    for _ in 0..times {
        // Partly written or closed: the rest would be no frame.
        if stream.write_all(bytes).is_err() {
            return;
        }
    }
}
