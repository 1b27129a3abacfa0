//! The transports under test.

pub mod amqp;
pub mod handles;
pub mod http;

use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_websocket::Encoding;

use crate::subject::Subject;

/// Names a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Inproc,
    Http,
    WebSocket,
    WebSocketJson,
    Amqp,
}

impl Transport {
    pub const ALL: [Self; 5] =
        [Self::Inproc, Self::Http, Self::WebSocket, Self::WebSocketJson, Self::Amqp];

    /// Name in documents and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inproc => "in process",
            Self::Http => "HTTP",
            Self::WebSocket => "WebSocket",
            Self::WebSocketJson => "WebSocket in JSON",
            Self::Amqp => "AMQP",
        }
    }

    /// Connects the transport to a broker with this clock.
    pub async fn open(self, broker: &Broker, clock: &Arc<ManualClock>) -> Box<dyn Subject> {
        match self {
            Self::Inproc => Box::new(handles::Handles::in_process(broker)),
            Self::Http => Box::new(http::Http::open(broker).await),
            Self::WebSocket => {
                Box::new(handles::Handles::over_websocket(broker, Encoding::Binary).await)
            }
            Self::WebSocketJson => {
                Box::new(handles::Handles::over_websocket(broker, Encoding::Json).await)
            }
            Self::Amqp => Box::new(amqp::Amqp::open(broker, clock).await),
        }
    }
}
