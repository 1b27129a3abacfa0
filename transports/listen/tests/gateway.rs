//! Sockets of a gateway, in front of transports that accept any bytes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use peeklock_core::Broker;
use peeklock_core::contract::Transport as _;
use peeklock_listen::{
    Admission, Attend, Enter, Entrance, Entrances, Gateway, GatewayConfig, Upgrade,
};
use peeklock_tls::Stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A test that takes longer than this hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);
/// Sockets of the AMQP transport.
const SOCKETS: usize = 20;

/// Transport that answers immediately and keeps the connection until its client disconnects.
#[derive(Clone, Copy)]
struct Answering {
    socket_count: usize,
}

impl Enter for Answering {
    fn open(&self) -> LocalBoxFuture<'static, io::Result<Rc<dyn Attend>>> {
        let here: Rc<dyn Attend> = Rc::new(*self);
        Box::pin(async { Ok(here) })
    }

    fn takes_upgrade(&self, _: &str) -> bool {
        false
    }

    fn sockets(&self) -> usize {
        self.socket_count
    }
}

impl Attend for Answering {
    fn attend(&self, mut stream: Stream) -> LocalBoxFuture<'static, Option<Upgrade>> {
        Box::pin(async move {
            stream.write_all(b"h").await.unwrap();
            while stream.read_u8().await.is_ok() {}
            None
        })
    }
}

/// Sends the first bytes of AMQP; returns the answer, or none if the connection is closed.
async fn answer(client: &mut TcpStream) -> Option<u8> {
    client.write_all(b"AMQP").await.unwrap();
    client.read_u8().await.ok()
}

/// LIS-02, LIS-03: there are sockets for the connections of all transports, and for 256 that have
/// not shown their protocol. When all are taken, the connection that has been silent for longest is
/// closed for a further one, however few are silent.
#[tokio::test]
async fn the_oldest_silent_connection_is_evicted_when_sockets_are_full() {
    let test = async {
        let broker = Broker::builder().arbiters(1).start().await.unwrap();
        let entrances = Entrances::default();
        let open = |entrance: &Entrance, socket_count| entrance.open(Answering { socket_count });
        open(&entrances.amqp, SOCKETS);
        open(&entrances.http, 0);
        open(&entrances.websocket, 0);
        let gateway = Gateway::new(GatewayConfig {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            workers: 1,
            // Silent connections end only to make room.
            opening_timeout: 2 * TEST_TIME_MAX,
            admission: Admission::default(),
            i_know: false,
            entrances,
        });
        let running = Box::new(gateway).start(broker.clone()).await.unwrap();
        let address = running.local_address();
        let connect = async || TcpStream::connect(address).await.unwrap();
        let mut served = Vec::new();
        for _ in 0..SOCKETS {
            let mut client = connect().await;
            assert_eq!(answer(&mut client).await, Some(b'h'));
            served.push(client);
        }
        let mut silent = Vec::new();
        for _ in 0..255 {
            silent.push(connect().await);
        }
        // Once this client is answered, all earlier ones have arrived, and every socket is taken.
        let mut last = connect().await;
        assert_eq!(answer(&mut last).await, Some(b'h'));
        assert_eq!(answer(&mut silent[0]).await, Some(b'h'), "nobody had to go");
        let mut next = connect().await;
        assert_eq!(answer(&mut next).await, Some(b'h'));
        assert!(silent[1].read_u8().await.is_err(), "the oldest of 254 that are silent");
        assert_eq!(answer(&mut silent[254]).await, Some(b'h'), "and not the youngest");
        drop((served, silent, last, next));
        running.stop(Duration::ZERO).await;
        broker.stop(Duration::ZERO).await.unwrap();
    };
    tokio::time::timeout(TEST_TIME_MAX, test).await.unwrap();
}
