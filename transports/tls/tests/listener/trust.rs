//! Tests of trusted and untrusted certificates, TLS versions, and connections without TLS.

use std::sync::Arc;

use peeklock_tls::{ClientTls, HandshakeError, Protocol, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, version};

use super::pair::{Server, authority, config, directory, run, talk, trusting, write_pair};

/// TLS-06: a client accepts a certificate by its authority and name. For others the error contains
/// the remedy.
#[test]
fn a_client_trusts_a_certificate_by_its_authority_and_name() {
    run(async {
        let directory = directory("trust");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let mut server = Server::start(config(&directory)).await;
        let mut stream = server.connect(&trusting(&issuer)).await.unwrap();
        talk(&mut stream).await.unwrap();
        assert!(server.next().await.unwrap().is_none());

        let text = server.connect(&ClientTls::of_system()).await.unwrap_err().to_string();
        assert!(text.contains("--ca or PEEKLOCK_CA") && text.contains("localhost"), "{text}");
        assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))));

        let socket = server.socket().await;
        let other_name = trusting(&issuer).connect("127.0.0.1", socket).await;
        let text = other_name.unwrap_err().to_string();
        assert!(text.contains("with a name that is in the certificate"), "{text}");
        let other = authority("others");
        assert!(server.connect(&trusting(&other)).await.is_err());
        let nonsense = trusting(&issuer).connect("a b", server.socket().await).await;
        assert!(nonsense.unwrap_err().to_string().contains("`a b`"));
    });
}

/// TLS-06: an expired certificate is refused.
#[test]
fn an_expired_certificate_is_refused() {
    run(async {
        let directory = directory("expired");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        // The broker starts nevertheless; the log reports the expiry.
        let server = Server::start(config(&directory)).await;
        let text = server.connect(&trusting(&issuer)).await.unwrap_err().to_string();
        assert!(text.contains("is not valid") && text.contains("expired"), "{text}");
    });
}

/// TLS-01, LIS-01: versions before 1.2 are refused, 1.2 and 1.3 are accepted. ALPN selects HTTP,
/// also for a gateway, and nothing that is not served.
#[test]
fn versions_and_protocols_are_agreed_on() {
    run(async {
        let directory = directory("versions");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let tls = Tls::open(config(&directory)).unwrap();
        let http = Server::of(Arc::clone(&tls), Protocol::Http).await;
        let gateway = Server::of(Arc::clone(&tls), Protocol::HttpOrAmqp).await;
        let other = Server::of(tls, Protocol::Other).await;
        let agreed = async |server: &Server,
                            versions: &[&'static rustls::SupportedProtocolVersion],
                            offered: &[&str]| {
            let mut roots = RootCertStore::empty();
            roots.add(issuer.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
            let name = "localhost".try_into().unwrap();
            let stream =
                TlsConnector::from(Arc::new(config)).connect(name, server.socket().await).await;
            let stream = stream.ok()?;
            let connection = stream.get_ref().1;
            let protocol = connection.alpn_protocol().map(<[u8]>::to_vec);
            Some((connection.protocol_version().unwrap(), protocol))
        };
        let http11 = Some(b"http/1.1".to_vec());
        for (version, name) in [
            (&version::TLS12, rustls::ProtocolVersion::TLSv1_2),
            (&version::TLS13, rustls::ProtocolVersion::TLSv1_3),
        ] {
            let both = ["h2", "http/1.1"];
            for server in [&http, &gateway] {
                assert_eq!(agreed(server, &[version], &both).await, Some((name, http11.clone())));
                assert_eq!(agreed(server, &[version], &[]).await, Some((name, None)));
                assert_eq!(agreed(server, &[version], &["h2"]).await, None);
            }
            assert_eq!(agreed(&other, &[version], &["amqp"]).await, Some((name, None)));
        }
    });
}

/// TLS-01: a hello of TLS 1.1 is answered with the alert `protocol_version` (RFC 5246 7.2).
#[test]
fn an_old_version_is_refused_with_its_alert() {
    run(async {
        let directory = directory("old");
        write_pair(&directory, &authority("ours"), |_| {});
        let mut server = Server::start(config(&directory)).await;
        let mut socket = server.socket().await;
        socket.write_all(&hello_of_tls_1_1()).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        // An alert: fatal, protocol_version.
        assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
        assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))));
    });
}

/// Returns a ClientHello as sent by clients of 2010.
fn hello_of_tls_1_1() -> Vec<u8> {
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    // No session; the suites ECDHE_RSA_WITH_AES_128_CBC_SHA and RSA_WITH_AES_128_CBC_SHA; no
    // compression.
    body.extend([0, 0, 4, 0xc0, 0x13, 0x00, 0x2f, 1, 0]);
    // Extensions: supported groups (secp256r1), point formats, signature algorithms. Only the
    // version is unacceptable.
    body.extend([0, 22, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(body.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    record
}

/// TLS-01: a client that uses HTTP at a TLS port, and one that uses TLS at a plain port, get a
/// clear error.
#[test]
fn clients_of_another_protocol_get_a_clear_error() {
    run(async {
        let directory = directory("else");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let mut server = Server::start(config(&directory)).await;
        let mut socket = server.socket().await;
        socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
        assert!(matches!(server.next().await, Err(HandshakeError::NotTls)));

        let mut other = Server::of(Arc::clone(&server.tls), Protocol::Other).await;
        let mut socket = other.socket().await;
        socket.write_all(b"AMQP\x00\x01\x00\x00").await.unwrap();
        let mut answer = Vec::new();
        // The connection may be reset, because the sent bytes are unread.
        socket.read_to_end(&mut answer).await.ok();
        assert!(answer.is_empty(), "{answer:?}");
        assert!(matches!(other.next().await, Err(HandshakeError::NotTls)));

        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = plain.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = plain.accept().await.unwrap();
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            socket.shutdown().await.unwrap();
        });
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let text = trusting(&issuer).connect("localhost", socket).await.unwrap_err().to_string();
        assert!(text.contains("does not use TLS"), "{text}");
    });
}
