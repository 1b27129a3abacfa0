//! How long a value is as JSON, before it is written: room for it is taken first.

use std::io;

use serde::Serialize;

/// Counts what is written to it.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many bytes a value has as JSON, of which none is made; none for what cannot be written.
#[must_use]
pub fn size_in_json(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    // To count never fails.
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}
