//! Requests and replies through one shared queue: prints two requesters, each with its own reply,
//! and the state that the first step of a workflow leaves for the second.
//!
//! `cargo run --example sessions`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use peeklock::description::QueueProperties;
use peeklock::message::Message;
use peeklock::time::TimeSpan;
use peeklock::{Broker, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().start().await?;
    let client = Client::new(&broker);
    let by_session = QueueProperties::new().with_sessions();
    client.admin().create_queue("requests").await?;
    client.admin().create_queue_with("replies", by_session).await?;
    let wait = TimeSpan::from_seconds(5);

    // Each requester accepts its session before there is a reply in it.
    let ada = client.accept_session("replies", "ada").await?;
    let bob = client.accept_session("replies", "bob").await?;
    for (name, question) in [("ada", "6 x 7"), ("bob", "2 + 2")] {
        let request = Message {
            reply_to: Some("replies".into()),
            reply_to_session_id: Some(name.into()),
            ..Message::new(question)
        };
        client.sender("requests")?.send(request).await?;
    }

    let responder = client.receiver("requests")?;
    for answer in ["42", "4"] {
        let Some(request) = responder.receive(wait).await? else { break };
        let reply = Message {
            session_id: request.message().reply_to_session_id.clone(),
            correlation_id: request.message().message_id.clone(),
            ..Message::new(answer)
        };
        client.sender("replies")?.send(reply).await?;
        responder.complete(&request).await?;
    }
    for requester in [&ada, &bob] {
        if let Some(reply) = requester.receive(wait).await? {
            println!("{} gets the answer {:?}", requester.session_id(), reply.body());
            requester.complete(&reply).await?;
        }
    }

    // The state of the session stays for the next holder.
    ada.set_state(Some("asked once".into())).await?;
    ada.close().await?;
    let ada = client.accept_session("replies", "ada").await?;
    println!("state of {}: {:?}", ada.session_id(), ada.state().await?);
    ada.set_state(None).await?;

    broker.stop(std::time::Duration::from_secs(1)).await?;
    Ok(())
}
