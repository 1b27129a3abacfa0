//! Test of TLS in front of the other broker.

use std::net::SocketAddr;
use std::sync::Arc;

use peeklock_core::contract::{Forwarder as _, Verdict};
use peeklock_forward_peeklock::PeerForwarder;
use peeklock_reach::Reach;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::peer::*;

/// Starts a reverse proxy that terminates TLS.
async fn terminate(target: SocketAddr) -> (u16, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], der)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(stream).await else { return };
                let Ok(mut far) = TcpStream::connect(target).await else { return };
                copy_bidirectional(&mut near, &mut far).await.ok();
            });
        }
    });
    (port, certificate.der().clone())
}

#[test]
fn messages_go_over_tls_to_a_trusted_broker() {
    run(async {
        let peer = Peer::start().await;
        let (port, certificate) = terminate(peer.address).await;
        let destination = format!("peeklock+wss://localhost:{port}/q");
        let hosts = || vec!["localhost".parse().unwrap()];
        let mut trusting = config();
        trusting.reach = Reach::new(hosts(), vec![certificate]);
        let mut way = PeerForwarder::new(trusting).route(&destination, source()).unwrap();
        assert_eq!(way.forward(&messages(3)).await, vec![Verdict::Delivered; 3]);

        let mut strict = config();
        strict.reach = Reach::new(hosts(), Vec::new());
        let mut way = PeerForwarder::new(strict).route(&destination, source()).unwrap();
        assert_eq!(way.forward(&messages(3)).await, [postponed()]);
        assert_eq!(peer.bodies().await, numbers(3));
        peer.stop().await;
    });
}
