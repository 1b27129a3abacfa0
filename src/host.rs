//! A program of one's own that is `peeklock`, and more.

mod connection;
mod forward;

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use peeklock::contract::{Authorizer, Forwarder, Outgoing, Tracer, Transport, Verdict};
use peeklock::store::Store;

use connection::Accepts;
pub use connection::Connection;
use forward::Decides;

use crate::cli;

/// What a program is made of beside what `peeklock` has: [`Host::run`] reads the command line and does what it says, and
/// `serve` serves all of it, after the configuration, until a signal or a failure ends it.
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
    /// Whom the configuration has told of operations.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl Host {
    /// The program `peeklock`, without additions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves clients by this transport too. It is started after those of the configuration, told by the banner, and
    /// stopped with them.
    #[must_use]
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transports.push(Box::new(transport));
        self
    }

    /// Takes connections at an address, port 0 for a free one, and hands each to a function, which has a client for
    /// what comes over it. What that client may do is for the authorizer to say, of somebody who has shown nothing; with
    /// nobody to ask it listens on loopback alone (SEC-17). There are as many connections as
    /// `limits.connection_count_max` says, beside those of other transports.
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
        self.transport(Accepts { name, address, attend: Arc::new(attend) })
    }

    /// Serves destinations of this forwarder's schemes. One of the program that has the scheme gives way.
    #[must_use]
    pub fn forwarder(mut self, forwarder: impl Forwarder + 'static) -> Self {
        self.forwarders.push(Arc::new(forwarder));
        self
    }

    /// Serves destinations of a scheme, such as `region` for `region://orders`, by a function that is given the
    /// destination and a message, and says what becomes of it. It has a thread of its own for each source and may block.
    #[must_use]
    pub fn forward_by(
        self,
        scheme: &'static str,
        decide: impl Fn(&str, &Outgoing) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.forwarder(Decides::new(scheme, Arc::new(decide)))
    }

    /// Asks this authorizer who may do what, and none of the configuration.
    #[must_use]
    pub fn authorizer(mut self, authorizer: impl Authorizer + 'static) -> Self {
        self.authorizer = Some(Arc::new(authorizer));
        self
    }

    /// Keeps messages in this store, whatever the configuration says. In `server.data_dir` there are still the files of
    /// the first key and of the development authority.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Reads the command line and does what it says, as `peeklock` does: without a command, or with `serve`, a broker
    /// until a signal or a failure ends it. To be called once, outside any runtime.
    #[must_use]
    pub fn run(self) -> ExitCode {
        cli::run(self)
    }
}

#[cfg(test)]
mod tests;
