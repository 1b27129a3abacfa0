//! Tests of TLS and the authorities that the forwarder trusts.

use std::sync::Arc;

use peeklock_core::contract::Verdict;
use peeklock_reach::{AuthoritiesError, certificates};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::server::*;

/// Returns an authority as PEM, and an acceptor with a certificate for `name` that it signed.
fn authority(name: &str) -> (String, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (authority.pem(), TlsAcceptor::from(Arc::new(config)))
}

async fn serve_tls(acceptor: TlsAcceptor) -> Server {
    serve_over(vec![Act::Answer(OK.to_owned())], move |stream| {
        let accepting = acceptor.accept(stream);
        async move { accepting.await.ok() }
    })
    .await
}

/// Returns the number of certificates in a file with this text.
fn read(name: &str, text: &str) -> Result<usize, AuthoritiesError> {
    load(name, text).map(|found| found.len())
}

fn load(
    name: &str,
    text: &str,
) -> Result<Vec<tokio_rustls::rustls::pki_types::CertificateDer<'static>>, AuthoritiesError> {
    let file = std::env::temp_dir().join(format!("peeklock-{name}-{}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let found = certificates(&file);
    std::fs::remove_file(&file).unwrap();
    found
}

#[test]
fn a_receiver_is_trusted_by_its_authority_and_its_name() {
    run(async {
        let (pem, acceptor) = authority("localhost");
        let mut trusting = config();
        trusting.reach = reach(load("trusted", &pem).unwrap());
        let mut server = serve_tls(acceptor).await;
        let destination = format!("webhook+https://localhost:{}/a", server.port);
        let mut secure = route(trusting.clone(), &destination);
        assert_eq!(secure.forward(&messages(3)).await, vec![Verdict::Delivered; 3]);
        for _ in 0..3 {
            assert_eq!(server.got.recv().await.unwrap().connection, 0);
        }

        // Its authority is not trusted.
        let verdicts = route(config(), &destination).forward(&messages(1)).await;
        assert!(failure(&verdicts[0]).0.contains("UnknownIssuer"), "{verdicts:?}");
        // The certificate has another name.
        let by_address = format!("webhook+https://127.0.0.1:{}/a", server.port);
        let verdicts = route(trusting.clone(), &by_address).forward(&messages(1)).await;
        assert!(failure(&verdicts[0]).0.contains("not valid for name"), "{verdicts:?}");
        assert!(server.got.try_recv().is_err());

        // The server does not use TLS.
        let server = serve(vec![Act::Answer(OK.to_owned())]).await;
        let destination =
            format!("webhook+https://localhost:{}/?connect_timeout=50ms", server.port);
        let verdicts = route(trusting, &destination).forward(&messages(1)).await;
        failure(&verdicts[0]);
    });
}

#[test]
fn a_file_of_authorities_has_certificates() {
    let (pem, _) = authority("localhost");
    assert_eq!(read("two", &format!("{pem}{pem}")).unwrap(), 2);
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(read("none", text), Err(AuthoritiesError::Unusable { .. })), "{text}");
    }
    let missing = certificates(std::path::Path::new("/nowhere/at/all"));
    assert!(matches!(missing, Err(AuthoritiesError::Unreadable { .. })));
}
