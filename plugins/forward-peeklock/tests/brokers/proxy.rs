//! A proxy that cuts the first connections, each after a given number of bytes in both directions
//! together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    pub address: SocketAddr,
    /// Number of connections that were cut.
    pub cuts: Arc<AtomicU64>,
    /// Bytes of the connection that was not cut.
    pub passed: Arc<AtomicU64>,
}

impl Proxy {
    /// Starts a proxy that cuts one connection per count in `cuts_at`, and passes later
    /// connections.
    pub async fn start(target: SocketAddr, cuts_at: Vec<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let passed = Arc::new(AtomicU64::new(0));
        let (counted, bytes) = (Arc::clone(&cuts), Arc::clone(&passed));
        tokio::spawn(async move {
            let mut cuts_at = cuts_at.into_iter();
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(target).await else { continue };
                let left = cuts_at.next().unwrap_or(u64::MAX);
                tokio::spawn(pass(near, far, left, Arc::clone(&counted), Arc::clone(&bytes)));
            }
        });
        Self { address, cuts, passed }
    }
}

async fn pass(
    mut near: TcpStream,
    mut far: TcpStream,
    mut left: u64,
    cuts: Arc<AtomicU64>,
    passed: Arc<AtomicU64>,
) {
    let (mut up, mut down) = ([0; 4_096], [0; 4_096]);
    loop {
        let (read, bytes, to): (_, &[u8], &mut TcpStream) = tokio::select! {
            read = near.read(&mut up) => (read, &up, &mut far),
            read = far.read(&mut down) => (read, &down, &mut near),
        };
        let Ok(length @ 1..) = read else { return };
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
        passed.fetch_add(length as u64, Ordering::Relaxed);
        left -= length as u64;
        if left == 0 {
            // Both sides lose the connection and the bytes in transit.
            cuts.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}
