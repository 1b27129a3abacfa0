//! Standard output, with detection of a reader that has closed it. Every command prints with it. A
//! closed pipe ends a command without an error.

use std::io::{self, IsTerminal as _, Write as _};

use super::super::Failure;
use crate::telemetry;

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum WriteOutcome {
    /// The text has left this process.
    Done,
    /// The reader has closed the pipe, as `head` does; nothing more can be written.
    OutputClosed,
}

/// Standard output.
#[derive(Clone, Copy)]
pub struct Out {
    pub is_terminal: bool,
    pub colours: bool,
}

impl Out {
    pub fn new() -> Self {
        let stdout = io::stdout();
        Self { is_terminal: stdout.is_terminal(), colours: telemetry::colours(&stdout) }
    }

    /// Writes and flushes: after [`WriteOutcome::Done`] the text has left this process.
    pub fn write(&self, bytes: impl AsRef<[u8]>) -> Result<WriteOutcome, Failure> {
        let mut out = io::stdout().lock();
        match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
            Ok(()) => Ok(WriteOutcome::Done),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(WriteOutcome::OutputClosed)
            }
            Err(error) => Err(Failure::Failed(format!("standard output: {error}"))),
        }
    }

    /// Writes text that the reader need not read to the end.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        self.write(text).map(|_| ())
    }

    /// Columns of the terminal; none if standard output is not a terminal.
    pub fn width(&self) -> Option<u16> {
        if !self.is_terminal {
            return None;
        }
        crossterm::terminal::size().ok().map(|(columns, _)| columns).filter(|columns| *columns > 0)
    }
}

/// Prints a note on standard error.
pub fn note(text: &str) {
    // If writing to standard error fails, the error cannot be reported.
    let _unheard = writeln!(io::stderr(), "{}", super::text(text.as_bytes()));
}
