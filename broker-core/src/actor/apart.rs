//! Dropping what is large, away from the arbiter: a machine of a million sessions takes a second to go, in which
//! nobody else would have a turn.

/// What has no more parts than so many is dropped where it is.
const PARTS_MAX: u64 = 10_000;

/// Drops something of about so many parts: here if they are few, else on a thread for what takes long.
pub(super) fn drop_apart<T: Send + 'static>(what: T, parts: u64) {
    if parts > PARTS_MAX {
        // Nobody waits for it.
        drop(actix_rt::task::spawn_blocking(move || drop(what)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{self, ThreadId};

    use super::*;

    struct Tells(Sender<ThreadId>);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    /// What has many parts goes on another thread than that of who drops it, what has few on the same.
    #[test]
    fn what_is_large_is_dropped_elsewhere() {
        actix_rt::System::new().block_on(async {
            let (tell, told) = channel();
            drop_apart(Tells(tell.clone()), PARTS_MAX);
            assert_eq!(told.recv().unwrap(), thread::current().id());
            drop_apart(Tells(tell), PARTS_MAX + 1);
            assert_ne!(told.recv().unwrap(), thread::current().id());
        });
    }
}
