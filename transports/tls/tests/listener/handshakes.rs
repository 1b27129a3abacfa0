//! Tests of incomplete handshakes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use peeklock_tls::{Acceptor, HandshakeError, Protocol, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::advance;

use super::pair::{Server, authority, config, directory, run, talk, trusting, write_pair};

/// Head of a handshake record without its content.
const HALF: [u8; 6] = [22, 3, 1, 2, 0, 1];

async fn is_closed(mut socket: TcpStream) -> bool {
    let mut rest = Vec::new();
    // The connection may be reset, because the sent bytes are unread.
    socket.read_to_end(&mut rest).await.is_err() || rest.is_empty()
}

/// TLS-03: an incomplete handshake and a silent connection end after the time limit.
#[test]
fn half_a_handshake_ends_in_time() {
    run(async {
        let directory = directory("late");
        write_pair(&directory, &authority("ours"), |_| {});
        let mut config = config(&directory);
        config.handshake_timeout = Duration::from_millis(50);
        let mut server = Server::start(config).await;
        for bytes in [&[][..], &HALF[..1], &HALF] {
            let mut socket = server.socket().await;
            socket.write_all(bytes).await.unwrap();
            assert!(matches!(server.next().await, Err(HandshakeError::TimedOut)), "{bytes:?}");
            assert!(is_closed(socket).await);
        }
    });
}

/// TLS-03: by default a handshake has exactly 5 s, regardless of how much has arrived.
#[tokio::test(start_paused = true)]
async fn half_a_handshake_ends_after_five_seconds() {
    let directory = directory("five-seconds");
    write_pair(&directory, &authority("ours"), |_| {});
    let acceptor = Tls::open(config(&directory)).unwrap().acceptor(Protocol::Http);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for bytes in [&[][..], &HALF[..1], &HALF] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(bytes).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let mut accepting = pin!(Acceptor::accept_on(Some(&acceptor), socket));
        assert!(accepting.as_mut().poll(&mut context).is_pending());
        advance(Duration::from_millis(4_999)).await;
        assert!(accepting.as_mut().poll(&mut context).is_pending(), "{bytes:?}");
        advance(Duration::from_millis(2)).await;
        let accepted = accepting.as_mut().poll(&mut context);
        assert!(matches!(accepted, Poll::Ready(Err(HandshakeError::TimedOut))), "{bytes:?}");
    }
}

/// TLS-03: beyond the limit the oldest handshake ends, and a client with a complete handshake is
/// served despite any number of incomplete ones.
#[test]
fn half_handshakes_do_not_block_others() {
    run(async {
        let directory = directory("many");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let mut config = config(&directory);
        config.handshake_timeout = Duration::from_secs(3_600);
        config.handshake_count_max = 4;
        let mut server = Server::start(config).await;
        let mut halves = Vec::new();
        for _ in 0..12 {
            let mut socket = server.socket().await;
            socket.write_all(&HALF).await.unwrap();
            halves.push(socket);
        }
        for _ in 0..8 {
            assert!(matches!(server.next().await, Err(HandshakeError::Evicted)));
        }
        let mut stream = server.connect(&trusting(&issuer)).await.unwrap();
        talk(&mut stream).await.unwrap();
        assert!(matches!(server.next().await, Err(HandshakeError::Evicted)), "it needed a place");
        assert!(server.next().await.unwrap().is_none());
        for half in halves.drain(..9) {
            assert!(is_closed(half).await);
        }
        // The others keep their time.
        for half in &halves {
            let pending = half.try_read(&mut [0]).unwrap_err();
            assert_eq!(pending.kind(), std::io::ErrorKind::WouldBlock);
        }
    });
}

/// TLS-03: an oversized record and an invalid message are refused immediately.
#[test]
fn nonsense_is_refused() {
    run(async {
        let directory = directory("nonsense");
        write_pair(&directory, &authority("ours"), |_| {});
        let mut server = Server::start(config(&directory)).await;
        // A record over the maximum length, a message of 16 MiB, and a message of an unknown type.
        let long = [22, 3, 1, 0xff, 0xff, 1];
        let huge = [&[22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff][..], &[0; 64]].concat();
        let kind = [22, 3, 1, 0, 4, 99, 0, 0, 0];
        for bytes in [&long[..], &huge, &kind] {
            let mut socket = server.socket().await;
            socket.write_all(bytes).await.unwrap();
            assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))), "{bytes:?}");
        }
    });
}

/// TLS-03: a handshake holds at most 64 KiB, even in small records: it ends when that limit is
/// reached, not after the time limit. A message that announces one byte more is refused
/// immediately.
#[test]
fn a_handshake_holds_64_kib() {
    const BYTES_MAX: usize = 64 << 10;
    run(async {
        let directory = directory("large");
        write_pair(&directory, &authority("ours"), |_| {});
        let mut config = config(&directory);
        config.handshake_timeout = Duration::from_secs(3_600);
        let mut server = Server::start(config).await;
        let hello: Vec<u8> = [&[1_u8, 0, 0xff, 0xff][..], &[0; 0xffff]].concat();
        for content_bytes in [1_u8, 16, 251] {
            let mut socket = server.socket().await;
            let (mut sent_bytes, mut left) = (0, hello.chunks(usize::from(content_bytes)));
            while sent_bytes < BYTES_MAX {
                let content = left.next().unwrap();
                let record = [&[22, 3, 1, 0, content_bytes][..], content].concat();
                sent_bytes += record.len();
                // The connection may have ended after an earlier record.
                if socket.write_all(&record).await.is_err() {
                    break;
                }
            }
            assert!(left.next().is_some(), "it is not whole yet");
            assert!(
                matches!(server.next().await, Err(HandshakeError::Failed(_))),
                "{content_bytes}"
            );
        }
        let mut socket = server.socket().await;
        socket.write_all(&[22, 3, 1, 0, 5, 1, 1, 0, 0, 0]).await.unwrap();
        assert!(
            matches!(server.next().await, Err(HandshakeError::Failed(_))),
            "it announces 64 KiB"
        );
    });
}
