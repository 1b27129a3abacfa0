//! A lock for tests that measure time or use the whole disk: only one runs at a time, under every
//! test runner.

use std::fs::File;

/// Waits until no other such test runs. Others wait until the result is dropped or the process
/// ends.
pub fn alone() -> File {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/alone.lock");
    let file = File::create(path).expect("the lock file can be made");
    file.lock().expect("the lock file can be locked");
    file
}
