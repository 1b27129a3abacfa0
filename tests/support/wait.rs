//! Waits of tests for other processes. Each has an end, and leaves the processor to the process.

use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum time of a wait.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until something is found. Panics with the log if that takes too long.
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>, log: impl FnOnce() -> String) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing after {PATIENCE:?}; the log:\n{}", log());
        std::thread::sleep(LOOK);
    }
}

/// Ends a wait for the output or the end of a process: the process is killed after some time,
/// unless this value is dropped before.
pub struct Limit {
    wait: Option<Sender<()>>,
    killer: Option<JoinHandle<()>>,
}

impl Limit {
    pub fn new(process: u32, time: Duration) -> Self {
        let (wait, ended) = mpsc::channel::<()>();
        let killer = std::thread::spawn(move || {
            if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let mut kill = Command::new("kill");
                kill.args(["-KILL", &process.to_string()]).status().unwrap();
            }
        });
        Self { wait: Some(wait), killer: Some(killer) }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        drop(self.wait.take());
        if let Some(killer) = self.killer.take() {
            // The kill may have failed.
            let _killed = killer.join();
        }
    }
}
