//! A hostile broker: it relays the first frames of a real broker, then writes without end and reads
//! nothing.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::attacker::yield_to_others;
use super::wire::frame_in;

/// How long a write to a socket that accepts nothing may block before the end is checked.
const STUCK: Duration = Duration::from_millis(100);

/// Bytes that the peer writes without end.
#[derive(Clone, Copy, Debug)]
pub enum Flood {
    /// Pings whose pongs it does not read.
    Pings,
    /// One frame of 255 MiB.
    Frame,
}

/// The point up to which the real broker answers.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// The upgrade is accepted.
    Upgrade,
    /// The client has its welcome.
    Welcome,
}

pub struct HostilePeer {
    pub address: SocketAddr,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl HostilePeer {
    /// Starts a hostile peer in front of a real broker. It runs until it is dropped.
    pub fn before(real: SocketAddr, until: Until, flood: Flood) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let accepting = std::thread::spawn(move || {
            let mut serving = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let Ok((client, _)) = listener.accept() else {
                    std::thread::sleep(STUCK / 10);
                    continue;
                };
                let over = Arc::clone(&is_over);
                serving.push(std::thread::spawn(move || {
                    yield_to_others();
                    // The client may disconnect at any time.
                    serve(client, real, until, flood, &over).ok();
                }));
            }
            for served in serving {
                served.join().unwrap();
            }
        });
        Self { address, over, accepting: Some(accepting) }
    }
}

impl Drop for HostilePeer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().ok();
        }
    }
}

fn serve(
    mut client: TcpStream,
    real: SocketAddr,
    until: Until,
    flood: Flood,
    over: &AtomicBool,
) -> io::Result<()> {
    let patience = Some(Duration::from_secs(10));
    client.set_nonblocking(false)?;
    client.set_read_timeout(patience)?;
    let mut broker = TcpStream::connect(real)?;
    broker.set_read_timeout(patience)?;
    let head_end = |bytes: &[u8]| bytes.windows(4).position(|four| four == b"\r\n\r\n");
    pass(&mut client, &mut broker, |bytes| head_end(bytes).map(|at| at + 4))?;
    pass(&mut broker, &mut client, |bytes| head_end(bytes).map(|at| at + 4))?;
    if matches!(until, Until::Welcome) {
        // The four bytes are the mask of a client's frame.
        pass(&mut client, &mut broker, |bytes| Some(frame_in(bytes)?.2 + 4))?;
        pass(&mut broker, &mut client, |bytes| Some(frame_in(bytes)?.2))?;
    }
    let (begin, endless) = match flood {
        Flood::Pings => {
            let ping = [&[0x89, 125][..], &[b'x'; 125]].concat();
            (Vec::new(), ping.repeat(500))
        }
        Flood::Frame => {
            let length: u64 = 255 << 20;
            ([&[0x82, 127][..], &length.to_be_bytes()].concat(), vec![0; 64 << 10])
        }
    };
    client.write_all(&begin)?;
    client.set_write_timeout(Some(STUCK))?;
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        match client.write(&endless[at..]) {
            Ok(0) => break,
            Ok(written) => at = (at + written) % endless.len(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Relays bytes until one item, whose length `length` computes, is complete, along with bytes read
/// after it.
fn pass(
    from: &mut TcpStream,
    to: &mut TcpStream,
    length: impl Fn(&[u8]) -> Option<usize>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut more = [0; 16 << 10];
    while length(&bytes).is_none_or(|length| bytes.len() < length) {
        match from.read(&mut more)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&more[..read]),
        }
    }
    to.write_all(&bytes)
}
