//! A listener that echoes every byte, its files, and clients.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::contract::TlsIdentity;
use peeklock_tls::{
    Acceptor, CertificateDer, ClientTls, ConnectError, HandshakeError, Protocol, Tls, TlsConfig,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

/// Time after which a test fails.
const TEST_TIME_MAX: Duration = Duration::from_secs(120);

/// Runs a test body with a time limit.
pub fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIME_MAX, body).await }).unwrap();
}

/// Returns an empty directory for a test.
pub fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tls").join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

pub type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Returns an unconstrained authority.
pub fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for `localhost` by an authority, and its key.
pub fn write_pair(directory: &Path, issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) {
    let (certificate, key) = issued(issuer, change);
    std::fs::write(directory.join("server.pem"), certificate).unwrap();
    std::fs::write(directory.join("server.key"), key).unwrap();
}

/// Returns a certificate for `localhost` by an authority, and its key, in PEM form.
pub fn issued(issuer: &Issuer, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Returns settings with the files of [`write_pair`].
pub fn config(directory: &Path) -> TlsConfig {
    TlsConfig::of_files(directory.join("server.pem"), directory.join("server.key"))
}

/// A listener.
pub struct Server {
    pub tls: Arc<Tls>,
    pub address: SocketAddr,
    /// Result of each accepted socket: the client's identity, or the reason for the refusal.
    pub accepted: mpsc::UnboundedReceiver<Result<Option<TlsIdentity>, HandshakeError>>,
}

impl Server {
    pub async fn start(config: TlsConfig) -> Self {
        Self::of(Tls::open(config).unwrap(), Protocol::Http).await
    }

    pub async fn of(tls: Arc<Tls>, protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tls.acceptor(protocol);
        let (sender, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move { serve(acceptor, socket, sender).await });
            }
        });
        Self { tls, address, accepted }
    }

    /// Returns a plain socket to the listener.
    pub async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub async fn connect(&self, client: &ClientTls) -> Result<TlsStream<TcpStream>, ConnectError> {
        client.connect("localhost", self.socket().await).await
    }

    /// Returns the result of the next socket.
    pub async fn next(&mut self) -> Result<Option<TlsIdentity>, HandshakeError> {
        self.accepted.recv().await.unwrap()
    }
}

async fn serve(
    acceptor: Acceptor,
    socket: TcpStream,
    sender: mpsc::UnboundedSender<Result<Option<TlsIdentity>, HandshakeError>>,
) {
    let mut stream = match Acceptor::accept_on(Some(&acceptor), socket).await {
        Ok(stream) => stream,
        Err(refused) => return sender.send(Err(refused)).unwrap(),
    };
    sender.send(Ok(stream.principal().tls)).unwrap();
    let mut bytes = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        stream.write_all(&bytes[..count]).await.unwrap();
        stream.flush().await.unwrap();
    }
}

/// Returns a client that trusts this authority.
pub fn trusting(issuer: &Issuer) -> ClientTls {
    ClientTls::of_system().trusting([issuer.der().clone()])
}

/// Returns a client that trusts the authorities in a file.
pub fn trusting_file(path: &Path) -> ClientTls {
    ClientTls::of_system().trusting(peeklock_tls::certificates(path).unwrap())
}

/// Sends a few bytes and reads their echo.
pub async fn talk(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"hello").await?;
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).await?;
    assert_eq!(&heard, b"hello");
    Ok(())
}

/// Returns the certificate of the other side.
pub fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}
