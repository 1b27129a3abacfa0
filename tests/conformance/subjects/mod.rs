//! The transports under test.

pub mod handles;
pub mod http;

use peeklock_core::Broker;
use peeklock_websocket::Encoding;

use crate::subject::Subject;

/// Names a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    Inproc,
    Http,
    WebSocket,
    WebSocketJson,
}

impl Transport {
    pub const ALL: [Self; 4] = [Self::Inproc, Self::Http, Self::WebSocket, Self::WebSocketJson];

    /// What readers call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inproc => "in process",
            Self::Http => "HTTP",
            Self::WebSocket => "WebSocket",
            Self::WebSocketJson => "WebSocket in JSON",
        }
    }

    /// Connects the transport to a broker.
    pub async fn open(self, broker: &Broker) -> Box<dyn Subject> {
        match self {
            Self::Inproc => Box::new(handles::Handles::in_process(broker)),
            Self::Http => Box::new(http::Http::open(broker).await),
            Self::WebSocket => {
                Box::new(handles::Handles::over_websocket(broker, Encoding::Binary).await)
            }
            Self::WebSocketJson => {
                Box::new(handles::Handles::over_websocket(broker, Encoding::Json).await)
            }
        }
    }
}
