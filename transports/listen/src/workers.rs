//! The threads that connections live in.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// The threads, each with a runtime of its own: a connection stays with one, and nothing is stolen.
pub(crate) struct Workers {
    end: watch::Sender<bool>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// As many as that, all with this name.
    pub(crate) fn start(name: &str, count: usize) -> io::Result<Self> {
        Self::running(name, vec![std::future::pending::<()>; count])
    }

    /// One for each of these, which is made in its thread and may spawn what stays there.
    pub(crate) fn running<M, F>(name: &str, mains: Vec<M>) -> io::Result<Self>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let (end, ended) = watch::channel(false);
        let mut workers = Self { end, handles: Vec::new(), threads: Vec::new() };
        for main in mains {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            workers.handles.push(runtime.handle().clone());
            let mut ended = ended.clone();
            let thread = std::thread::Builder::new().name(name.to_owned());
            workers.threads.push(thread.spawn(move || {
                let local = LocalSet::new();
                local.block_on(&runtime, async {
                    tokio::select! {
                        biased;
                        // The sender lives as long as the workers are wanted.
                        _ = ended.wait_for(|ended| *ended) => {}
                        () = main() => {}
                    }
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
