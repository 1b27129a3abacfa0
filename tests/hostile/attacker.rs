//! The state that all attacks share: threads that repeat an attempt until the attack ends, and the
//! bounds that the judge applies.

use std::any::Any;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The lowest priority of Linux.
const NICE_MAX: i32 = 19;
/// How long a write to a socket that accepts nothing may block.
const STUCK: Duration = Duration::from_millis(100);

/// An attack in progress.
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
    /// Marks that the attack stores messages and other things with bounds of their own, which the
    /// judge then allows in addition to the budgets.
    pub const fn makes_it_keep(&mut self) {
        self.keeps = true;
    }

    /// Whether the attack stores messages.
    pub const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Bounds the memory of the broker during this attack; replaces the sum of its budgets.
    pub const fn takes_at_most(&mut self, bytes: u64) {
        self.memory_max = Some(bytes);
    }

    /// The bound of memory in bytes, if one was set.
    pub const fn memory_max(&self) -> Option<u64> {
        self.memory_max
    }

    /// Minimum duration of the attack.
    pub const fn last(&mut self, lasting: Duration) {
        self.lasting = lasting;
    }

    /// Returns the minimum duration.
    pub const fn lasting(&self) -> Duration {
        self.lasting
    }

    /// Time after its end during which the broker may hold resources of the attack, because its
    /// clients may resume.
    pub const fn is_kept_for(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Returns that time.
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// Connections of the attack that may be open after its end. A client that sent many requests
    /// before it disconnected keeps its connection until the broker has carried them out (AMQP-69).
    pub const fn may_leave(&mut self, connections: usize) {
        self.connections_left = connections;
    }

    /// Returns how many connections may be open.
    pub const fn connections_left(&self) -> usize {
        self.connections_left
    }

    /// Number of completed attempts.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Keeps `what` alive until the end of the attack.
    pub fn hold(&mut self, what: impl Any) {
        self.held.push(Box::new(what));
    }

    /// Repeats `attempt` on a thread of its own until the end of the attack.
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

    /// Ends the attack and closes its connections.
    pub fn end(self) {
        drop(self.held);
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Gives this thread the lowest CPU priority. Real attackers have machines of their own, so clients
/// in these tests must wait for the broker and never for a core that an attacker uses.
pub fn yield_to_others() {
    // For Linux, process 0 is the calling thread.
    rustix::process::setpriority_process(None, NICE_MAX).unwrap();
}

/// Writes `bytes` up to `times` times, until the socket accepts no more.
pub fn flood(stream: &mut TcpStream, bytes: &[u8], times: usize) {
    use std::io::Write as _;
    stream.set_write_timeout(Some(STUCK)).ok();
    for _ in 0..times {
        // After a partial write the stream no longer ends at a frame; the socket may also be
        // closed.
        if stream.write_all(bytes).is_err() {
            return;
        }
    }
}
