//! Extension point for programs that are `peeklock` with parts of their own. `main.rs` uses it
//! without additions, and `server.rs` takes the parts out.

mod connection;
mod forward;

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use peeklock::contract::{Authorizer, Forwarder, Outgoing, Tracer, Transport, Verdict};
use peeklock::store::Store;

pub use connection::Connection;
use connection::FunctionTransport;
use forward::FunctionForwarder;

use crate::cli;

/// Builder of a program with all features of `peeklock` and additions. [`Host::run`] reads the
/// command line; its `serve` command serves the configured parts and the additions until a signal
/// or a failure ends it.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use peeklock::contract::Verdict;
/// use peeklock_server::Host;
///
/// fn main() -> ExitCode {
///     // A queue with the ForwardTo `discard://all` is emptied.
///     Host::new().forward_by("discard", |_, _| Verdict::Delivered).run()
/// }
/// ```
#[derive(Default)]
pub struct Host {
    pub(crate) transports: Vec<Box<dyn Transport>>,
    pub(crate) forwarders: Vec<Arc<dyn Forwarder>>,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) store: Option<Arc<dyn Store>>,
    /// Tracer of operations, set from the configuration.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl Host {
    /// Creates the program `peeklock` without additions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a transport. It starts after the configured transports, appears in the banner, and
    /// stops with them.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transports.push(Box::new(transport));
        self
    }

    /// Accepts connections at an address, with port 0 at a free port, and passes each one with a
    /// client to `attend`. The authorizer decides the rights of that client, whose principal is
    /// anonymous. If anonymous access is allowed, the address must be loopback (SEC-17). At most
    /// `limits.connection_count_max` connections are open, in addition to connections of other
    /// transports.
    #[must_use]
    pub fn listen_by<F>(
        self,
        name: &'static str,
        address: SocketAddr,
        attend: impl Fn(Connection) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.transport(FunctionTransport { name, address, attend: Arc::new(attend) })
    }

    /// Adds a forwarder. It replaces a forwarder of the program for the same scheme.
    #[must_use]
    pub fn forwarder(mut self, forwarder: impl Forwarder + 'static) -> Self {
        self.forwarders.push(Arc::new(forwarder));
        self
    }

    /// Serves destinations of a scheme, such as `region` for `region://orders`, with a function
    /// that receives the destination and a message, and returns the outcome. Each source has its
    /// own thread for it, so the function may block.
    #[must_use]
    pub fn forward_by(
        self,
        scheme: &'static str,
        decide: impl Fn(&str, &Outgoing) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.forwarder(FunctionForwarder::new(scheme, Arc::new(decide)))
    }

    /// Sets the authorizer, which replaces the configured ones.
    #[must_use]
    pub fn authorizer(mut self, authorizer: impl Authorizer + 'static) -> Self {
        self.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Sets the store, which replaces the configured one. `server.data_dir` still holds the files
    /// of the first key and of the development authority.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Reads the command line and runs its command, as `peeklock` does. Without a command, or with
    /// `serve`, it blocks until a signal or a failure ends the broker. Call it once, outside any
    /// runtime.
    #[must_use]
    pub fn run(self) -> ExitCode {
        cli::run(self)
    }
}

#[cfg(test)]
mod tests;
