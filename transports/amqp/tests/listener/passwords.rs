//! Tests of SASL: credentials before a connection is opened, and the time limit for a client
//! without any.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_amqp::performative::{Flow, Performative};
use peeklock_core::contract::{Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::error::Rejection;

use crate::client::Client;
use crate::server::Server;

/// Grants Listen at `q` to the key `k` of the policy `ears`, and everything to the token `t`;
/// refuses all others.
struct OneKey;

#[async_trait]
impl Authorizer for OneKey {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        assert!(principal.peer.is_some(), "an authorizer knows where attempts come from (SEC-26)");
        let key = principal.key.as_ref().map(|shown| (&*shown.policy, &*shown.key));
        match (key, principal.token.as_deref()) {
            (Some(("ears", "k")), None) if resource == "q" => {
                Ok(Grant::of(Rights::of(Right::Listen)))
            }
            (Some(("ears", "k")), None) => Ok(Grant::nothing()),
            (None, Some("t")) => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("not known")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// AMQP-08: PLAIN with a policy and its key grants the rights of the policy, without `$cbs`. With
/// the user `$jwt` the password is a token. Invalid credentials get code 1, and the connection
/// ends.
#[tokio::test]
async fn a_password_is_a_key_or_a_token() {
    let server = Server::start_for(Arc::new(OneKey)).await;
    for wrong in
        [&b"\0ears\0x"[..], b"\0nobody\0k", b"\0$jwt\0x", b"\0ears\0", b"ears\0k", b"a\0ears\0k"]
    {
        let (mut client, code) = Client::log_in(server.address, "PLAIN", wrong).await;
        assert_eq!(code, 1, "{wrong:?}");
        assert!(client.is_closed().await, "{wrong:?}");
    }
    let (mut client, code) = Client::log_in(server.address, "PLAIN", b"\0ears\0k").await;
    assert_eq!(code, 0);
    client.begin().await;
    let settled = peeklock_amqp::performative::SenderSettleMode::Unsettled;
    client.receiver(0, "q", settled).await.unwrap();
    let refused = Err("amqp:unauthorized-access".to_owned());
    assert_eq!(client.sender(1, "q").await, refused);
    assert_eq!(client.sender(2, "other").await, refused);
    let (mut client, code) = Client::log_in(server.address, "PLAIN", b"\0$jwt\0t").await;
    assert_eq!(code, 0);
    client.begin().await;
    client.sender(0, "q").await.unwrap();
    server.stop().await;
}

/// AMQP-03, AMQ-02: EXTERNAL without a certificate equals ANONYMOUS; an unknown mechanism ends the
/// connection.
#[tokio::test]
async fn external_without_certificate_equals_anonymous() {
    let server = Server::start().await;
    let (mut client, code) = Client::log_in(server.address, "EXTERNAL", b"").await;
    assert_eq!(code, 0);
    client.begin().await;
    client.sender(0, "q").await.unwrap();
    let (mut client, code) = Client::log_in(server.address, "SCRAM-SHA-256", b"").await;
    assert_eq!(code, 1);
    assert!(client.is_closed().await);
    server.stop().await;
}

/// SEC-16, AMQP-25: a connection without credentials is closed; one that has logged in with a
/// password is not.
#[tokio::test]
async fn connection_without_credentials_is_closed() {
    let brief = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.opening_timeout = Duration::from_millis(300);
    };
    let server = Server::start_with(Arc::new(OneKey), brief).await;
    let (mut known, code) = Client::log_in(server.address, "PLAIN", b"\0ears\0k").await;
    assert_eq!(code, 0);
    known.begin().await;
    let mut unknown = Client::open(server.address).await;
    let (Performative::Close(close), _) = unknown.next_frame().await else { panic!("no close") };
    assert_eq!(close.error.unwrap().condition(), "amqp:unauthorized-access");
    let settled = peeklock_amqp::performative::SenderSettleMode::Unsettled;
    known.receiver(0, "q", settled).await.unwrap();
    server.stop().await;
}

/// SEC-16: a connection without credentials is closed even if it is busy.
#[tokio::test]
async fn busy_connection_without_credentials_is_closed() {
    let brief = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.opening_timeout = Duration::from_millis(300);
    };
    let server = Server::start_with(Arc::new(OneKey), brief).await;
    let mut unknown = Client::open(server.address).await;
    let echo = Flow {
        next_incoming_id: Some(0),
        incoming_window: 1_000,
        outgoing_window: 1_000,
        echo: true,
        ..Flow::default()
    };
    let close = loop {
        unknown.send_frame(&Performative::Flow(echo.clone())).await;
        match unknown.next_frame().await.0 {
            Performative::Flow(_) => {}
            Performative::Close(close) => break close,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(close.error.unwrap().condition(), "amqp:unauthorized-access");
    server.stop().await;
}

/// SEC-16: if anonymous access is on, nobody needs credentials.
#[tokio::test]
async fn anonymous_clients_are_kept_where_they_are_let_in() {
    let brief = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.opening_timeout = Duration::from_millis(100);
    };
    let server = Server::start_with(Arc::new(peeklock_core::contract::AllowAll), brief).await;
    let mut client = Client::open(server.address).await;
    // Until the regular check of the connection, every five seconds.
    tokio::time::timeout(Duration::from_millis(5_500), client.next_frame()).await.unwrap_err();
    client.sender(0, "q").await.unwrap();
    server.stop().await;
}
