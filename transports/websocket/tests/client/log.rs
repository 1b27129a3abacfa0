//! What is logged in a test, by the thread of that test, from WARN on.
//!
//! All threads have one subscriber. With one for each test, a thread without any that comes first to a place that logs may
//! settle for all of them that nobody wants to know of it: `tracing` asks the thread that comes first.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// What is written to it.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Until it is dropped, what its thread logs is kept.
pub struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        OF_THIS_THREAD.set(None);
    }
}

impl Log {
    /// Takes what this thread logs until the guard is dropped.
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

    /// The first line that says so.
    pub fn line(&self, what: &str) -> Option<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().find(|line| line.contains(what)).map(str::to_owned)
    }
}

/// Writes to the log of its thread, if that has one.
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
