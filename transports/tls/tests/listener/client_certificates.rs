//! Tests of client certificates.

use std::path::Path;
use std::sync::Arc;

use peeklock_tls::{ClientCertificates, ClientTls, HandshakeError, Protocol, Tls, TlsConfig};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, crypto, version,
};

use super::pair::{
    Issuer, Server, authority, config, directory, issued, run, talk, trusting, write_pair,
};

/// Returns a client with a certificate of `issuer`.
fn client(
    directory: &Path,
    server: &Issuer,
    issuer: &Issuer,
    change: impl FnOnce(&mut CertificateParams),
) -> ClientTls {
    let (certificate, key) = issued(issuer, |params| {
        params.subject_alt_names.clear();
        change(params);
    });
    let files = ["client.pem", "client.key"].map(|file| directory.join(file));
    std::fs::write(&files[0], certificate).unwrap();
    std::fs::write(&files[1], key).unwrap();
    trusting(server).with_identity(&files[0], &files[1]).unwrap()
}

fn named(parts: &[(DnType, &str)]) -> impl Fn(&mut CertificateParams) {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), DnValue::Utf8String((*value).to_owned()));
    }
    move |params| params.distinguished_name = name.clone()
}

/// Returns settings of a listener that trusts an authority for clients.
fn asking(directory: &Path, clients: &Issuer, is_required: bool) -> TlsConfig {
    let file = directory.join("clients.pem");
    std::fs::write(&file, clients.pem()).unwrap();
    let mut config = config(directory);
    config.client_certificates = if is_required {
        ClientCertificates::Required(file)
    } else {
        ClientCertificates::Optional(file)
    };
    config
}

/// TLS-04: the principal contains the verified certificate and its subject in the format of RFC
/// 4514.
#[test]
fn a_certificate_identifies_its_client() {
    run(async {
        let directory = directory("identity");
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        write_pair(&directory, &ours, |_| {});
        let mut server = Server::start(asking(&directory, &theirs, false)).await;
        let subjects = [
            (vec![(DnType::CommonName, "shop")], "CN=shop"),
            (
                vec![
                    (DnType::CountryName, "DE"),
                    (DnType::OrganizationName, "Acme, Inc."),
                    (DnType::CommonName, "#shop"),
                ],
                "CN=\\#shop,O=Acme\\, Inc.,C=DE",
            ),
            (vec![(DnType::CommonName, "a,CN=root")], "CN=a\\,CN=root"),
            (vec![(DnType::CustomDnType(vec![1, 2, 3]), "a")], "1.2.3=#0C0161"),
            (vec![], ""),
        ];
        for (parts, expected) in subjects {
            let client = client(&directory, &ours, &theirs, named(&parts));
            talk(&mut server.connect(&client).await.unwrap()).await.unwrap();
            let identity = server.next().await.unwrap().unwrap();
            assert_eq!(&*identity.subject, expected);
            let shown = peeklock_tls::certificates(&directory.join("client.pem")).unwrap();
            assert_eq!(&identity.certificate[..], &shown[0][..]);
        }
        // A client without a certificate has no identity.
        talk(&mut server.connect(&trusting(&ours)).await.unwrap()).await.unwrap();
        assert!(server.next().await.unwrap().is_none());
    });
}

/// TLS-04: a certificate of an untrusted authority and an expired one are refused, not ignored.
#[test]
fn an_invalid_client_certificate_is_refused() {
    run(async {
        let directory = directory("strangers");
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        write_pair(&directory, &ours, |_| {});
        let mut server = Server::start(asking(&directory, &theirs, false)).await;
        let stranger = client(&directory, &ours, &authority("strangers"), |_| {});
        let expired = |params: &mut CertificateParams| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        };
        let late = client(&directory, &ours, &theirs, expired);
        for client in [stranger, late] {
            // With TLS 1.3 a client learns of the refusal after the handshake.
            if let Ok(mut stream) = server.connect(&client).await {
                assert!(talk(&mut stream).await.is_err());
            }
            assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))));
        }
    });
}

/// TLS-04: where a certificate is required, a client without one is refused with the reason.
#[test]
fn a_required_certificate_is_asked_for() {
    run(async {
        let directory = directory("required");
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        write_pair(&directory, &ours, |_| {});
        let mut server = Server::start(asking(&directory, &theirs, true)).await;
        let mut stream = server.connect(&trusting(&ours)).await.unwrap();
        let error = talk(&mut stream).await.unwrap_err();
        let text = ClientTls::explain("localhost", error).to_string();
        assert!(text.contains("requires a client certificate"), "{text}");
        assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))));
        let client = client(&directory, &ours, &theirs, named(&[(DnType::CommonName, "shop")]));
        talk(&mut server.connect(&client).await.unwrap()).await.unwrap();
        assert_eq!(&*server.next().await.unwrap().unwrap().subject, "CN=shop");

        // The authorities for clients can change too (TLS-02).
        let others = authority("others");
        std::fs::write(directory.join("clients.pem"), others.pem()).unwrap();
        server.tls.reload().unwrap();
        if let Ok(mut stream) = server.connect(&client).await {
            assert!(talk(&mut stream).await.is_err());
        }
        assert!(matches!(server.next().await, Err(HandshakeError::Failed(_))));
    });
}

/// Returns a connector with a client certificate, one TLS version and a session cache.
fn keeping_sessions(
    directory: &Path,
    (server, clients): (&Issuer, &Issuer),
    version: &'static SupportedProtocolVersion,
) -> TlsConnector {
    client(directory, server, clients, named(&[(DnType::CommonName, "shop")]));
    let chain = peeklock_tls::certificates(&directory.join("client.pem")).unwrap();
    let key = std::fs::read(directory.join("client.key")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(server.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    TlsConnector::from(Arc::new(config))
}

/// TLS-04: each handshake verifies the client's certificate; a resumed session would accept one
/// that has expired. Sessions are resumed only if no certificate is requested.
#[test]
fn a_certificate_is_verified_by_each_handshake() {
    run(async {
        let directory = directory("sessions");
        let (ours, theirs) = (authority("ours"), authority("theirs"));
        write_pair(&directory, &ours, |_| {});
        let optional = asking(&directory, &theirs, false);
        let required = asking(&directory, &theirs, true);
        for (config, second) in [
            (optional, HandshakeKind::Full),
            (required, HandshakeKind::Full),
            (config(&directory), HandshakeKind::Resumed),
        ] {
            let is_asked = second == HandshakeKind::Full;
            let tls = Tls::open(config).unwrap();
            for protocol in [Protocol::Http, Protocol::Other] {
                let mut server = Server::of(Arc::clone(&tls), protocol).await;
                for version in [&version::TLS12, &version::TLS13] {
                    let client = keeping_sessions(&directory, (&ours, &theirs), version);
                    for expected in [HandshakeKind::Full, second] {
                        let (name, socket) = ("localhost", server.socket().await);
                        let mut stream =
                            client.connect(name.try_into().unwrap(), socket).await.unwrap();
                        // Session tickets arrive before the first answer.
                        talk(&mut stream).await.unwrap();
                        assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected));
                        let identity = server.next().await.unwrap();
                        assert_eq!(identity.is_some(), is_asked, "{version:?}");
                    }
                }
            }
        }
    });
}
