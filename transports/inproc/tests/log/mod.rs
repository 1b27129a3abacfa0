//! What is logged in a test, by the thread of that test.

use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// What is written to it.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Takes what this thread logs, from INFO on, until the guard is dropped.
    pub fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The one line that says so.
    pub fn line(&self, what: &str) -> String {
        let text = self.text();
        let mut lines = text.lines().filter(|line| line.contains(what));
        let line = lines.next().unwrap_or_else(|| panic!("no `{what}` in\n{text}"));
        assert_eq!(lines.next(), None, "once");
        line.to_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
