//! `$cbs`: who has put which token may do what.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::error::Rejection;
use peeklock_core::message::{Body, Content, Message, MessageId, Value};

use crate::client::Client;
use crate::server::Server;

/// The token `q` is good for the queue `q`, and nothing else for anything.
struct OneToken;

#[async_trait]
impl Authorizer for OneToken {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some("q") if resource == "q" => Ok(Grant::everything()),
            _ => Err(Rejection::unauthorized("token is not good")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Puts a token; what it is answered.
async fn put(client: &mut Client, audience: &str, token: &str, id: MessageId) -> Content {
    let mut body = vec![0x00, 0x53, 0x77];
    Value::String(token.into()).encode_to(&mut body);
    let property = |name: &str, value: &str| (name.to_owned(), Value::String(value.into()));
    let request = Message {
        message_id: Some(id),
        body: Body::Value(body.into()),
        application_properties: vec![
            property("operation", "put-token"),
            property("type", "servicebus.windows.net:sastoken"),
            property("name", audience),
        ],
        ..Message::default()
    };
    client.send(0, 0, true, request.encode().as_bytes()).await;
    client.message().await.1
}

fn status(reply: &Content) -> Value {
    reply.application_properties().find(|(name, _)| *name == "status-code").unwrap().1
}

/// AMQP-20, AMQP-21, AMQP-25, AMQ-03: a link takes a token, which is put at `$cbs`; the reply keeps the type of the id.
#[tokio::test]
async fn a_link_takes_a_token() {
    let server = Server::start_for(Arc::new(OneToken)).await;
    let mut client = server.client().await;
    let refused = Err("amqp:unauthorized-access".to_owned());
    assert_eq!(client.sender(5, "q").await, refused);
    client.sender(0, "$cbs").await.unwrap();
    client.receiver(1, "$cbs", SenderSettleMode::Unsettled).await.unwrap();
    client.credit(1, 0, 10, false).await;
    let bad = put(&mut client, "amqp://h:1/q", "x", MessageId::Uuid(7)).await;
    assert_eq!(status(&bad), Value::I32(401));
    assert_eq!(client.sender(6, "q").await, refused);
    let good = put(&mut client, "amqps://h/q/$management", "q", MessageId::Ulong(7)).await;
    assert_eq!(status(&good), Value::I32(202));
    let message = good.decode().unwrap();
    assert_eq!(message.correlation_id, Some(MessageId::Ulong(7)));
    client.sender(7, "q").await.unwrap();
    assert_eq!(client.sender(8, "other").await, refused);
    server.stop().await;
}
