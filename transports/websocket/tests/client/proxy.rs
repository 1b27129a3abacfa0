//! A proxy that cuts connections after random numbers of bytes, at any position.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_store_testing::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    pub address: SocketAddr,
    pub cuts: Arc<AtomicU64>,
}

impl Proxy {
    /// Cuts `cuts_max` connections, each after a random number of bytes in both directions
    /// together.
    pub async fn start(target: SocketAddr, seed: u64, cuts_max: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cuts);
        tokio::spawn(async move {
            let mut random = Random::new(seed);
            let mut left = cuts_max;
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let Ok(far) = TcpStream::connect(target).await else { continue };
                let bytes = if left == 0 { u64::MAX } else { random.between(300, 3_000) };
                left = left.saturating_sub(1);
                tokio::spawn(pass(near, far, bytes, Arc::clone(&counted)));
            }
        });
        Self { address, cuts }
    }
}

async fn pass(mut near: TcpStream, mut far: TcpStream, mut left: u64, cuts: Arc<AtomicU64>) {
    let (mut up, mut down) = ([0; 4_096], [0; 4_096]);
    loop {
        let (read, bytes, to): (_, &[u8], &mut TcpStream) = tokio::select! {
            read = near.read(&mut up) => (read, &up, &mut far),
            read = far.read(&mut down) => (read, &down, &mut near),
        };
        let Ok(length @ 1..) = read else { return };
        let passed = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        if to.write_all(&bytes[..passed]).await.is_err() {
            return;
        }
        left -= passed as u64;
        if left == 0 {
            // Both sides lose the connection and the bytes under way.
            cuts.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}
