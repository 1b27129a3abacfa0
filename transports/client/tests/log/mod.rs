//! Log capture for tests: log lines of the test's own thread, from INFO on.
//!
//! All threads share one subscriber. With one per test, a thread without a subscriber could reach a
//! log statement first, and `tracing` would cache for all threads that nobody is interested in it.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// The captured text.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Captures the log of its thread until it is dropped.
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        OF_THIS_THREAD.set(None);
    }
}

impl Log {
    /// Starts to capture the log of this thread until the guard is dropped.
    pub fn begin() -> (Self, Guard) {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER
            .call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Writer).init());
        let log = Self::default();
        OF_THIS_THREAD.set(Some(log.clone()));
        (log, Guard)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the only line that contains `what`.
    pub fn line(&self, what: &str) -> String {
        let text = self.text();
        let mut lines = text.lines().filter(|line| line.contains(what));
        let line = lines.next().unwrap_or_else(|| panic!("no `{what}` in\n{text}"));
        assert_eq!(lines.next(), None, "once");
        line.to_owned()
    }
}

/// Writes to the capture of the current thread, if any.
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
