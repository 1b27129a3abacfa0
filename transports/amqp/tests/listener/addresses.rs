//! Tests of addresses in the forms that clients write.

use peeklock_amqp::performative::SenderSettleMode;
use peeklock_amqp::state::DeliveryState;
use peeklock_amqp::terminus::Target;
use peeklock_core::description::QueueUpdate;

use crate::client::{Client, text};
use crate::rights::sender_via;
use crate::server::Server;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;

/// AMQP-33, AMQP-34, AMQP-96: an address may be percent-encoded, as the .NET SDK writes it, and so
/// may the destination of messages through another queue. The answer repeats the original form.
#[tokio::test]
async fn addresses_may_be_percent_encoded() {
    let server = Server::start().await;
    server.broker.create_queue("eu/r", QueueUpdate::default()).await.unwrap();
    let mut client = server.client().await;
    let written = "/eu%2Fr";
    let answer = client.attach_sender(Client::sender_of(0, written)).await.unwrap();
    let echoed = answer.target.as_ref().and_then(Target::address);
    assert_eq!(echoed, Some(written));
    let dead_letters = Client::receiver_of(1, "/q/%24DeadLetterQueue", LOCKED);
    client.attach_receiver(dead_letters).await.unwrap();
    client.manager(2, "eu%2fr").await;
    for (handle, destination) in [(4, "eu%2FR"), (5, "amqps://localhost/eu%2fr")] {
        client.attach_sender(sender_via(handle, "q", destination)).await.unwrap();
        client.send(handle, 0, false, &text(destination)).await;
        assert_eq!(client.disposed().await.1, DeliveryState::accepted());
    }
    client.receiver(6, "eu/r", LOCKED).await.unwrap();
    client.credit(6, 0, 2, false).await;
    for sent in ["eu%2FR", "amqps://localhost/eu%2fr"] {
        assert_eq!(client.message().await.1.body_bytes(), sent);
    }
    // An address that does not decode to text is used unchanged, and names nothing.
    assert_eq!(client.sender(7, "q%ff").await.unwrap_err(), "amqp:not-found");
    server.stop().await;
}
