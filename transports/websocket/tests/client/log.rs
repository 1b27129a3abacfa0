//! Captures the log of a test from WARN on, by the thread of the test.
//!
//! All threads share one subscriber. With one subscriber per test, a thread without a subscriber
//! could reach a log statement first: `tracing` asks that thread whether the statement is of
//! interest and caches the answer for all threads.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// The captured log lines.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Keeps the log of its thread until it is dropped.
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        OF_THIS_THREAD.set(None);
    }
}

impl Log {
    /// Starts to capture the log of this thread, until the guard is dropped.
    pub fn begin() -> (Self, Guard) {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN);
            subscriber.with_ansi(false).with_writer(|| Writer).init();
        });
        let log = Self::default();
        OF_THIS_THREAD.set(Some(log.clone()));
        (log, Guard)
    }

    /// Returns the first line that contains a text.
    pub fn line(&self, what: &str) -> Option<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().find(|line| line.contains(what)).map(str::to_owned)
    }
}

/// Writes to the log of its thread, if there is one.
struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let log = OF_THIS_THREAD.try_with(|log| log.borrow().clone());
        if let Ok(Some(Log(written))) = log {
            written.lock().unwrap().extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
