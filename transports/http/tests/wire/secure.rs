//! HTTP over TLS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use peeklock_listen::Proxies;
use peeklock_tls::authority::Authority;
use peeklock_tls::{ClientCertificates, ClientTls, Protocol, Tls, TlsConfig, certificates};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::bounds::{LARGE, large};
use super::server::{Plan, Server};

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("http-tls").join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    directory
}

/// Starts a listener with a certificate of a test authority; returns it and the TLS settings of its
/// clients.
async fn start(authority: &Authority, config: TlsConfig, plan: Plan) -> (Server, ClientTls) {
    let mut plan = plan;
    let tls = Tls::open(config).unwrap();
    plan.config.tls = Some(tls.acceptor(Protocol::Http));
    let trusted = certificates(&authority.authority_file()).unwrap();
    (plan.start().await, ClientTls::of_system().trusting(trusted))
}

async fn connect(server: &Server, client: &ClientTls) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(server.address).await.unwrap();
    client.connect("localhost", socket).await.unwrap()
}

/// Sends a request on its own connection and reads to the end.
async fn ask(server: &Server, client: &ClientTls, head: &str, body: &[u8]) -> String {
    let mut stream = connect(server, client).await;
    let head = format!("{head}\nConnection: close");
    stream.write_all(&server.request(&head, body)).await.unwrap();
    // TLS buffers the bytes that the socket did not accept at once.
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    // A truncated answer is detected by its length.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8(answer).unwrap()
}

/// TLS-01, HTP-06: requests and answers of each size pass, addresses begin with `https`, and a
/// plain connection gets an error.
#[tokio::test]
async fn requests_are_served_over_tls() {
    let authority = Authority::at(directory("served"));
    authority.prepare(&[]).unwrap();
    let (server, client) = start(&authority, authority.config(), Plan::new()).await;
    let body = vec![b'x'; 900 << 10];
    let sent = ask(&server, &client, "POST /q/messages", &body).await;
    assert!(sent.starts_with("HTTP/1.1 201 "), "{sent}");
    let received = ask(&server, &client, "POST /q/messages/head?timeout=0", b"").await;
    let (head, received) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    let location = format!("location: https://{}/q/messages/", server.address);
    assert!(head.to_lowercase().contains(&location), "{head}");
    assert_eq!(received.as_bytes(), body);

    // Several requests on one connection.
    let mut stream = connect(&server, &client).await;
    for _ in 0..3 {
        stream.write_all(&server.request("GET /livez", "")).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut rest = vec![0; 4 << 10];
        assert!(stream.read(&mut rest).await.unwrap() > 0);
    }
    let plain = server.ask("GET /livez", "").await;
    assert_eq!(plain.status, 400);
    assert!(plain.text().contains("https://"), "{}", plain.text());
    drop(stream);
    server.stop().await;
}

/// Records the principals of requests.
#[derive(Default)]
struct Noting(Mutex<Vec<Principal>>);

#[async_trait]
impl Authorizer for Noting {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        self.0.lock().unwrap().push(principal.clone());
        Ok(Grant::everything())
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// TLS-04: the authorizer gets the subject of a client certificate, with and without a token.
#[tokio::test]
async fn the_authorizer_gets_the_certificate_subject() {
    let directory = directory("subject");
    let authority = Authority::at(&directory);
    authority.prepare(&[]).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let clients = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let files = ["clients.pem", "client.pem", "client.key"].map(|file| directory.join(file));
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "shop");
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &clients).unwrap();
    for (file, text) in files.iter().zip([clients.pem(), certificate.pem(), key.serialize_pem()]) {
        std::fs::write(file, text).unwrap();
    }
    let mut config = authority.config();
    config.client_certificates = ClientCertificates::Optional(files[0].clone());
    let noting = Arc::new(Noting::default());
    let plan = Plan { authorizer: Arc::clone(&noting) as Arc<_>, ..Plan::new() };
    let (server, client) = start(&authority, config, plan).await;
    let shop = client.clone().with_identity(&files[1], &files[2]).unwrap();
    for (client, expected) in [(&shop, Some("CN=shop")), (&client, None)] {
        for token in ["", "\nAuthorization: a"] {
            let head = format!("POST /q/messages{token}");
            let sent = ask(&server, client, &head, b"x").await;
            assert!(sent.starts_with("HTTP/1.1 201 "), "{sent}");
            let told = noting.0.lock().unwrap().drain(..).next_back().unwrap();
            let subject = told.tls.as_ref().map(|identity| identity.subject.to_string());
            assert_eq!(subject.as_deref(), expected);
        }
    }
    server.stop().await;
}

/// LIS-04: the header of a proxy precedes TLS and applies only to its connection; without it there
/// is no TLS.
#[tokio::test]
async fn the_header_of_a_proxy_comes_before_tls() {
    let authority = Authority::at(directory("proxy"));
    authority.prepare(&[]).unwrap();
    let noting = Arc::new(Noting::default());
    let mut plan = Plan { authorizer: Arc::clone(&noting) as Arc<_>, ..Plan::new() };
    plan.config.proxies = Proxies::at(vec!["*".parse().unwrap()]);
    let (server, client) = start(&authority, authority.config(), plan).await;
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x34, 0, 80]);
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&header).await.unwrap();
    let mut stream = client.connect("localhost", socket).await.unwrap();
    let request = server.request("POST /q/messages\nConnection: close", "x");
    stream.write_all(&request).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    assert!(answer.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&answer));
    let told = noting.0.lock().unwrap().drain(..).next_back().unwrap();
    assert_eq!(told.peer, "192.0.2.7:4660".parse().ok());
    let socket = TcpStream::connect(server.address).await.unwrap();
    assert!(client.connect("localhost", socket).await.is_err(), "TLS without a header");
    server.stop().await;
}

/// RCV-14: over TLS too, a lock for a client that stops reading is released without a count when
/// its time is over.
#[tokio::test]
async fn an_answer_that_is_not_read_gives_its_lock_back() {
    let authority = Authority::at(directory("unread"));
    authority.prepare(&[]).unwrap();
    let mut plan = large();
    // Long enough for a client that keeps reading, on any machine.
    plan.config.write_timeout = Duration::from_secs(2);
    let (server, client) = start(&authority, authority.config(), plan).await;
    let body = vec![b'x'; LARGE];
    assert!(ask(&server, &client, "POST /q/messages", &body).await.contains(" 201 "));
    let mut stuck = connect(&server, &client).await;
    let receive = server.request("POST /q/messages/head?timeout=0", "");
    stuck.write_all(&receive).await.unwrap();
    stuck.read_exact(&mut vec![0; LARGE / 64]).await.unwrap();
    let answer = loop {
        let answer = ask(&server, &client, "POST /q/messages/head?timeout=60", b"").await;
        if answer.len() > LARGE {
            break answer;
        }
    };
    assert!(answer.starts_with("HTTP/1.1 201 "));
    assert!(answer.contains("\"DeliveryCount\":1,"), "its release is not counted");
    drop(stuck);
    server.stop().await;
}
