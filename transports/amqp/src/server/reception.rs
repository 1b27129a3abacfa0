//! First byte of a client: it selects AMQP or the upgrade to AMQP over WebSocket (AMQP-17). One
//! port serves both, since some SDKs use the port of the connection string for either (AMQP-18).

use std::sync::Arc;

use peeklock_core::contract::Principal;
use peeklock_core::telemetry::count_unopened;
use tokio::io::AsyncReadExt as _;

use super::conversation::Conversation;
use super::listener_state::ListenerState;
use super::turn::Socket;
use super::websocket;

/// Serves a client until its connection ends.
pub(super) async fn receive<S: Socket>(
    listener: Arc<ListenerState>,
    mut stream: S,
    principal: Principal,
) {
    let opening_timeout = listener.config.opening_timeout;
    let opening = listener.places.begin_opening();
    let mut first = [0];
    let read = tokio::select! {
        biased;
        () = opening.evicted() => return unopened(&principal, "made_room"),
        read = tokio::time::timeout(opening_timeout, stream.read_exact(&mut first)) => read,
    };
    match read {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            let peer = principal.peer;
            return tracing::debug!(?peer, %error, "a client disconnected without sending a byte");
        }
        Err(_) => return unopened(&principal, "silent"),
    }
    // An AMQP frame never begins with the first letter of an HTTP request.
    if first != *b"G" {
        return Conversation::new(listener, principal).run(stream, &first, opening).await;
    }
    let upgrade = websocket::accept(&listener, principal.peer, stream, &first);
    let upgraded = tokio::select! {
        biased;
        () = opening.evicted() => return unopened(&principal, "made_room"),
        upgraded = upgrade => upgraded,
    };
    if let Some((stream, by_proxy)) = upgraded {
        let principal = if by_proxy { principal.through_proxy() } else { principal };
        Conversation::new(listener, principal).run(stream, &[], opening).await;
    }
}

/// Counts and logs a connection that is closed before the client has sent its first request.
fn unopened(principal: &Principal, cause: &'static str) {
    count_unopened("amqp", cause);
    tracing::debug!(peer = ?principal.peer, cause, "connection closed before its client sent a byte");
}
