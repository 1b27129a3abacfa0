//! What measures time or uses the whole disk runs alone, under every test runner.

use std::fs::File;

/// Waits until nobody else of this kind runs; they wait until this is dropped, or the process ends.
pub fn alone() -> File {
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/alone.lock");
    let file = File::create(path).expect("the lock file can be made");
    file.lock().expect("the lock file can be locked");
    file
}
