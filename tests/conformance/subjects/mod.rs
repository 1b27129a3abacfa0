//! The transports under test.

pub mod http;
pub mod inproc;

use peeklock_core::Broker;

use crate::subject::Subject;

/// Names a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Inproc,
    Http,
}

impl Transport {
    pub const ALL: [Self; 2] = [Self::Inproc, Self::Http];

    /// Connects the transport to a broker.
    pub async fn open(self, broker: &Broker) -> Box<dyn Subject> {
        match self {
            Self::Inproc => Box::new(inproc::Inproc::open(broker)),
            Self::Http => Box::new(http::Http::open(broker).await),
        }
    }
}
