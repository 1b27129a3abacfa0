//! Test of a queue that forwards to a webhook.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use peeklock_forward_webhook::WebhookForwarder;

use crate::server::*;

/// FWD-01, FWD-02, FWD-31: a message leaves the queue after 2xx and moves to its transfer
/// dead-letter queue after 4xx. A forbidden destination is refused.
#[test]
fn a_queue_forwards_to_a_webhook() {
    run(async {
        let acts = vec![
            Act::Answer(OK.to_owned()),
            answer("404 Not Found", ""),
            Act::Answer(OK.to_owned()),
        ];
        let mut server = serve(acts).await;
        let forwarder = Arc::new(WebhookForwarder::new(config()));
        let broker = Broker::builder().arbiters(1).forwarder(forwarder).start().await.unwrap();
        let to = |destination: String| QueueUpdate {
            forward_to: Some(destination.into()),
            ..QueueUpdate::default()
        };
        let inside = to("webhook+http://10.0.0.7/".to_owned());
        let error = broker.create_queue("q", inside).await.unwrap_err();
        assert_eq!(error.condition(), Condition::ArgumentError);
        let unknown = to("pigeon://coop".to_owned());
        let error = broker.create_queue("q", unknown).await.unwrap_err();
        assert!(error.detail().contains("webhook+https"), "{error}");

        let hook = to(format!("webhook+http://127.0.0.1:{}/", server.port));
        broker.create_queue("q", hook).await.unwrap();
        let queue = broker.entity("q").unwrap();
        for body in ["first", "second", "third"] {
            let message = broker.inbound(Message::new(body));
            queue.call(Command::Send { message }).await.unwrap();
        }
        for body in ["first", "second", "third"] {
            let got = server.got.recv().await.unwrap();
            assert_eq!(got.body, body.as_bytes());
            assert_eq!(got.header("ce-hopcount"), Some("1"));
            assert!(got.header("ce-source").unwrap().ends_with("/q"));
        }
        let receive = Command::Receive {
            mode: ReceiveMode::ReceiveAndDelete,
            count_max: 1,
            bytes_max: u64::MAX,
            wait: TimeSpan::from_seconds(30),
            holder: None,
        };
        let kept = broker.entity("q/$Transfer/$deadletterqueue").unwrap();
        let Outcome::Received(messages) = kept.call(receive).await.unwrap() else { panic!() };
        let overlay = messages[0].overlays[0].load().await.unwrap();
        let overlay = format!(
            "{:?}",
            peeklock_core::message::Overlay::from_bytes(overlay).properties().collect::<Vec<_>>()
        );
        assert!(overlay.contains("WebhookRefused") && overlay.contains("404"), "{overlay}");
        broker.stop(Duration::ZERO).await.unwrap();
    });
}
