//! Test of vectored writes.

use std::io::IoSlice;

use peeklock_tls::{Acceptor, Protocol, Stream, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::pair::{authority, config, directory, run, trusting, write_pair};

const PIECES: [&[u8]; 3] = [b"one", b"and two", b"and three"];

/// Writes all pieces with one call. Returns the number of bytes.
async fn write(stream: &mut Stream) -> usize {
    assert!(stream.is_write_vectored());
    let written = stream.write_vectored(&PIECES.map(IoSlice::new)).await.unwrap();
    stream.flush().await.unwrap();
    written
}

/// One call writes all pieces, with and without TLS. If only the first piece were written, each
/// message would need another call.
#[test]
fn pieces_are_written_by_one_call() {
    run(async {
        let whole = PIECES.concat();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = async || {
            let client = TcpStream::connect(address).await.unwrap();
            (client, listener.accept().await.unwrap().0)
        };
        let mut heard = vec![0; whole.len()];

        let (mut client, socket) = connect().await;
        assert_eq!(write(&mut Stream::plain(socket)).await, whole.len());
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, whole);

        let (directory, issuer) = (directory("pieces"), authority("pieces"));
        write_pair(&directory, &issuer, |_| {});
        let tls = Tls::open(config(&directory)).unwrap();
        let acceptor = tls.acceptor(Protocol::Other);
        let (client, socket) = connect().await;
        let trusted = trusting(&issuer);
        let (client, stream) = tokio::join!(
            trusted.connect("localhost", client),
            Acceptor::accept_on(Some(&acceptor), socket)
        );
        let (Ok(mut client), Ok(mut stream)) = (client, stream) else { panic!("no handshake") };
        assert_eq!(write(&mut stream).await, whole.len());
        heard.fill(0);
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, whole);
    });
}
