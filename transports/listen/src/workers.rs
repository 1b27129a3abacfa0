//! Threads that serve connections. Listeners and gateways start and end them. Connections are
//! distributed in turn, and each stays on its thread.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// Threads with a runtime each: a connection stays on its thread, without work stealing.
pub(crate) struct Workers {
    end: watch::Sender<bool>,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads with this name.
    pub(crate) fn start(name: &str, count: usize) -> io::Result<Self> {
        Self::start_with(name, vec![std::future::pending::<()>; count])
    }

    /// Starts a thread for each of `mains`. Each future is created on its thread, and may spawn
    /// tasks that stay there.
    pub(crate) fn start_with<M, F>(name: &str, mains: Vec<M>) -> io::Result<Self>
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
                        // The sender is dropped only with the workers.
                        _ = ended.wait_for(|ended| *ended) => {}
                        () = main() => {}
                    }
                });
            })?);
        }
        Ok(workers)
    }

    /// Runtimes of the threads.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Ends the threads with all their tasks, and waits for them. Returns whether no thread
    /// panicked.
    pub(crate) async fn end(self) -> bool {
        self.end.send_replace(true);
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().all(|thread| thread.join().is_ok())
        });
        matches!(joined.await, Ok(true))
    }
}
