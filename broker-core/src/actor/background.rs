//! Drops large values away from the arbiter. Dropping a machine with a million sessions takes a
//! second, during which no other actor of the arbiter would get a turn.

/// Maximum number of parts of a value that is dropped in place.
const PARTS_MAX: u64 = 10_000;

/// Drops a value with about `parts` parts: in place up to [`PARTS_MAX`], otherwise on a blocking
/// thread.
pub(super) fn drop_in_background<T: Send + 'static>(value: T, parts: u64) {
    if parts > PARTS_MAX {
        // The result is not awaited.
        drop(actix_rt::task::spawn_blocking(move || drop(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use super::*;

    struct ReportsThread(Sender<ThreadId>);

    impl Drop for ReportsThread {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// A value with many parts is dropped on another thread, a smaller one on the thread of the
    /// caller.
    #[test]
    fn large_value_is_dropped_on_another_thread() {
        actix_rt::System::new().block_on(async {
            let (sender, receiver) = channel();
            drop_in_background(ReportsThread(sender.clone()), PARTS_MAX);
            assert_eq!(receiver.recv().unwrap(), thread::current().id());
            drop_in_background(ReportsThread(sender), PARTS_MAX + 1);
            assert_ne!(receiver.recv().unwrap(), thread::current().id());
        });
    }
}
