//! Connector for the client: it connects only to the permitted hosts. `route.rs` passes it to the
//! client of each route. The check applies to the resolved address.

use std::fmt;
use std::io;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_reach::{Place, Reach};
use peeklock_websocket::client::{Connector, Stream};

/// The route to one broker.
pub struct PeerConnector {
    pub reach: Reach,
    pub place: Place,
    pub time: Duration,
}

#[async_trait]
impl Connector for PeerConnector {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self.reach.connect(&self.place, self.time).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

impl fmt::Debug for PeerConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConnector").field("place", &self.place).finish_non_exhaustive()
    }
}
