//! Tunnels to the broker that are invisible to clients: through TLS, or through a proxy that
//! announces a client address. The relayed bytes are not inspected.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peeklock::tls::ClientTls;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;

/// Address of proxies, by the settings of the broker.
pub const PROXIES: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Begin of a header of the PROXY protocol: version 2, for a client over TCP and IPv4, 12 bytes of
/// addresses.
const HEADER: [u8; 16] =
    [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a, 0x21, 0x11, 0, 12];

/// Route of a tunnel to the broker.
#[derive(Clone)]
pub enum Way {
    Secure(Arc<ClientTls>),
    /// Each connection announces another client address.
    Relayed(Arc<AtomicU32>),
}

/// A route that is open until it is dropped.
pub struct Tunnel {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Tunnel {
    /// Opens a tunnel to `target`. Each of its threads first calls `begin`.
    pub fn to(target: SocketAddr, way: Way, begin: fn()) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(begin)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let way = way.clone();
                // If the broker refuses the connection, the client's side is closed too.
                tokio::spawn(async move { pass(client, target, way).await.ok() });
            }
        });
        Self { address, runtime: Some(runtime) }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, way: Way) -> io::Result<()> {
    client.set_nodelay(true)?;
    match way {
        Way::Secure(tls) => {
            let stream = TcpStream::connect(target).await?;
            stream.set_nodelay(true)?;
            let mut stream = tls.connect("localhost", stream).await.map_err(io::Error::other)?;
            copy_bidirectional(&mut client, &mut stream).await?;
        }
        Way::Relayed(next) => {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((PROXIES, 0)))?;
            let mut stream = socket.connect(target).await?;
            stream.set_nodelay(true)?;
            let mut header = HEADER.to_vec();
            let [_, b, c, d] = next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            header.extend([10, b, c, d, 127, 0, 0, 1, 0x30, 0x39, 0x14, 0xb4]);
            stream.write_all(&header).await?;
            copy_bidirectional(&mut client, &mut stream).await?;
        }
    }
    Ok(())
}
