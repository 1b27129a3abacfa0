//! The threads that connections live in.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::watch;

/// The threads, each with a runtime of its own: a connection stays with one, and nothing is stolen.
pub(crate) struct Workers {
    end: watch::Sender<bool>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// As many as that, all with this name.
    pub(crate) fn start(name: &str, count: usize) -> io::Result<Self> {
        let (end, ended) = watch::channel(false);
        let mut workers = Self { end, handles: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            workers.handles.push(runtime.handle().clone());
            let mut ended = ended.clone();
            let thread = std::thread::Builder::new().name(name.to_owned());
            workers.threads.push(thread.spawn(move || {
                runtime.block_on(async {
                    // The sender lives as long as the workers are wanted.
                    drop(ended.wait_for(|ended| *ended).await);
                });
            })?);
        }
        Ok(workers)
    }

    /// Their runtimes.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Ends them, with whatever is left in them, and waits for it; whether none of them has panicked.
    pub(crate) async fn end(self) -> bool {
        self.end.send_replace(true);
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        matches!(joined.await, Ok(true))
    }
}
