//! Tests of writing through a layer above the socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;

use bytes::BytesMut;
use peeklock_core::Broker;
use peeklock_core::contract::Principal;
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;
use crate::server::config::AmqpConfig;
use crate::server::deleted::UnflushedDeletions;
use crate::server::listener_state::ListenerState;

const HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";

/// A layer above a socket, such as TLS. Each write takes the bytes of a header, and the system gets
/// them at a flush.
struct Layer {
    taken_bytes: usize,
    lets_go: bool,
}

impl AsyncRead for Layer {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Layer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = bytes.len().min(HEADER.len());
        self.taken_bytes += taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.lets_go {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket for Layer {}

/// RCV-02: a deleted message belongs to the client when the system has its bytes, not when a layer
/// above the socket has them. That layer is flushed before it gets more bytes.
#[tokio::test]
async fn removed_message_is_lost_until_it_is_flushed() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    let config = AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = Arc::new(ListenerState::new(broker.clone(), config));
    let mut context = Context::from_waker(Waker::noop());
    for lets_go in [false, true] {
        let mut conversation = Conversation::new(Arc::clone(&listener), Principal::anonymous());
        let mut layer = Layer { taken_bytes: 0, lets_go };
        // The answer has the same size, and the offered mechanisms follow.
        let mut input = BytesMut::from(HEADER);
        assert!(conversation.amqp.next_event(&mut input, Duration::ZERO).is_none());
        let deleted = conversation.outflow.lost.guard(1);
        conversation.outflow.unflushed_deletions.put(deleted, HEADER.len() as u64);
        assert!(conversation.poll_write(&mut layer, &mut context).is_ready());
        assert_eq!(layer.taken_bytes, HEADER.len());
        let wrote = conversation.poll_write(&mut layer, &mut context);
        assert_eq!(wrote.is_ready(), lets_go);
        assert_eq!(layer.taken_bytes > HEADER.len(), lets_go);
        conversation.outflow.unflushed_deletions = UnflushedDeletions::default();
        assert_eq!(conversation.outflow.lost.count(), u64::from(!lets_go));
    }
    drop(listener);
    broker.stop(Duration::ZERO).await.unwrap();
}
