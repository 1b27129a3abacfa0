//! The errors of handlers: they stay on their messages, and dead letters describe them.

use std::error::Error;
use std::fmt;

use peeklock_client::{
    Client, ConsumerOptions, Delivery, Received, Refusal, SessionConsumerOptions, SessionDelivery,
};
use peeklock_client_testing::TestBroker;
use peeklock_core::Broker;
use peeklock_core::command::LAST_ERROR_PROPERTY;
use peeklock_core::description::{QueueProperties, QueueUpdate};
use peeklock_core::message::{Message, Value};
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::TimeSpan;
use tokio::sync::mpsc;

use crate::local::Local;

const ATTEMPTS: &str = "the message was not consumed after 1 delivery attempts, the maximum is 1";

/// A client with the queue `orders`, which dead-letters after this number of deliveries.
async fn client(deliveries: u32, requires_session: bool) -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    let queue = QueueUpdate {
        requires_session: Some(requires_session),
        ..QueueProperties::new().with_max_delivery_count(deliveries)
    };
    client.admin().create_queue_with("orders", queue).await.unwrap();
    client
}

/// Waits for a dead letter.
async fn dead_letter(client: &Client) -> Received {
    let letters = client.receiver(&dead_letter_path("orders")).unwrap();
    let letter = letters.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    letters.complete(&letter).await.unwrap();
    letter
}

/// A brewing that fails because of the water, which fails because of the pump.
#[derive(Debug)]
enum Trouble {
    Brewing(Box<Self>),
    Pump,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Brewing(_) => "no coffee",
            Self::Pump => "the pump is broken",
        })
    }
}

impl Error for Trouble {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Brewing(cause) => Some(cause.as_ref()),
            Self::Pump => None,
        }
    }
}

async fn fail(order: Delivery) -> Result<(), Refusal> {
    let body = String::from_utf8(order.body().to_vec()).unwrap();
    let trouble = Trouble::Brewing(Box::new(Trouble::Pump));
    match body.as_str() {
        "text" => Err(Refusal::failed("sold out")),
        "sources" => Err(Refusal::from_error(trouble)),
        "repeated" => Err(std::io::Error::other(trouble).into()),
        "literal" => panic!("as asked"),
        "formatted" => panic!("no {body}"),
        "other" => std::panic::panic_any(7),
        "later" => {
            let later = Refusal::retry_after(TimeSpan::from_minutes(1));
            Err(later.with_error("first").with_error("second"))
        }
        "at once" => {
            order.refuse(Refusal::failed("settled by the handler")).await?;
            Err(Refusal::already_settled())
        }
        "long" => Err(Refusal::failed("€".repeat(400))),
        "hostile" => Err(Refusal::failed("\u{202e}<b>\0\r\n\u{1b}[31m'; --")),
        _ => Err(Refusal::abandon()),
    }
}

/// SET-42, SET-43, SET-45, DLQ-34, DLQ-36: a dead letter describes the error of the handler with its
/// sources, or the text of its panic; the message has it as a property. Without an error the
/// description has none.
#[tokio::test]
async fn dead_letter_describes_error_of_handler() {
    let client = client(1, false).await;
    let consumer = client.consume("orders", fail, ConsumerOptions::at_once(1)).await.unwrap();
    let long = format!("{}… [cut]", "€".repeat(338));
    for (body, error) in [
        ("text", Some("sold out")),
        ("sources", Some("no coffee: the pump is broken")),
        // The text of an I/O error is the text of the error in it.
        ("repeated", Some("no coffee: the pump is broken")),
        ("literal", Some("the handler panicked: as asked")),
        ("formatted", Some("the handler panicked: no formatted")),
        ("other", Some("the handler panicked: its payload is no text")),
        ("later", Some("second")),
        ("at once", Some("settled by the handler")),
        ("long", Some(long.as_str())),
        ("hostile", Some("\u{202e}<b>\0\r\n\u{1b}[31m'; --")),
        ("none", None),
    ] {
        client.sender("orders").unwrap().send(Message::new(body)).await.unwrap();
        let letter = dead_letter(&client).await;
        assert_eq!(letter.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
        assert_eq!(letter.last_error(), error, "{body}");
        let description = error.map_or(ATTEMPTS.into(), |error| format!("{error}; {ATTEMPTS}"));
        assert_eq!(letter.dead_letter_error_description(), Some(&*description), "{body}");
        // A resubmitted message starts again.
        assert_eq!(letter.to_resubmit().application_properties, []);
    }
    consumer.stop().await;
    client.stop().await;
}

/// SET-42: the next attempt sees the error of the previous one, and the dead letter has the last.
#[tokio::test]
async fn next_attempt_sees_last_error() {
    let client = client(3, false).await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = move |order: Delivery| {
        seen.send(order.last_error().map(str::to_owned)).unwrap();
        async move {
            match order.delivery_count() {
                2 => Err(Refusal::abandon()),
                count => Err(Refusal::failed(format!("attempt {count} failed"))),
            }
        }
    };
    let consumer = client.consume("orders", handler, ConsumerOptions::default()).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("two coffees")).await.unwrap();
    let letter = dead_letter(&client).await;
    let first = Some("attempt 1 failed".to_owned());
    for expected in [None, first.clone(), first] {
        assert_eq!(arrivals.recv().await.unwrap(), expected);
    }
    assert_eq!(letter.last_error(), Some("attempt 3 failed"));
    let description = letter.dead_letter_error_description().unwrap();
    assert!(description.starts_with("attempt 3 failed; "), "{description}");
    consumer.stop().await;
    client.stop().await;
}

/// DLQ-36: a forwarded dead letter keeps its error and its description.
#[tokio::test]
async fn forwarded_dead_letter_keeps_error() {
    let client = client(1, false).await;
    client.admin().create_queue("park").await.unwrap();
    let forwards = QueueUpdate {
        forward_dead_lettered_messages_to: Some("park".into()),
        ..QueueUpdate::default()
    };
    client.admin().update_queue("orders", forwards).await.unwrap();
    let consumer = client.consume("orders", fail, ConsumerOptions::default()).await.unwrap();
    client.sender("orders").unwrap().send(Message::new("text")).await.unwrap();
    let park = client.receiver("park").unwrap();
    let letter = park.receive(TimeSpan::from_seconds(60)).await.unwrap().unwrap();
    assert_eq!(letter.last_error(), Some("sold out"));
    assert!(letter.dead_letter_error_description().unwrap().starts_with("sold out; "));
    consumer.stop().await;
    client.stop().await;
}

/// DLQ-35, EXP-28: expiry wins over the delivery count, and keeps its own description.
#[tokio::test]
async fn expired_message_keeps_error_as_property() {
    let test = TestBroker::start().await.unwrap();
    let client = test.client();
    let expiring = QueueUpdate {
        max_delivery_count: Some(1),
        dead_lettering_on_message_expiration: Some(true),
        ..QueueUpdate::default()
    };
    client.admin().create_queue_with("orders", expiring).await.unwrap();
    let time_to_live = Some(TimeSpan::from_seconds(5));
    let message = Message { time_to_live, ..Message::new("late") };
    client.sender("orders").unwrap().send(message).await.unwrap();
    let orders = client.receiver("orders").unwrap();
    let late = orders.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    test.advance(TimeSpan::from_seconds(6)).await;
    let error = [(LAST_ERROR_PROPERTY.to_owned(), Value::from("down"))];
    orders.abandon(&late, &error).await.unwrap();
    let letters = client.receiver(&dead_letter_path("orders")).unwrap();
    let letter = letters.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    assert_eq!(letter.dead_letter_reason(), Some("TTLExpiredException"));
    let description = letter.dead_letter_error_description();
    assert_eq!(description, Some("the message expired and was dead-lettered"));
    assert_eq!(letter.last_error(), Some("down"));
}

/// SET-46: a consumer that reports no errors leaves neither errors nor panics, also if the handler
/// settles.
#[tokio::test]
async fn consumer_without_error_reports_leaves_no_error() {
    let client = client(1, false).await;
    let options = ConsumerOptions::at_once(1).without_error_reports();
    let consumer = client.consume("orders", fail, options).await.unwrap();
    for body in ["text", "sources", "literal", "later", "at once"] {
        client.sender("orders").unwrap().send(Message::new(body)).await.unwrap();
        let letter = dead_letter(&client).await;
        assert_eq!(letter.dead_letter_error_description(), Some(ATTEMPTS), "{body}");
        assert_eq!(letter.message().application_properties.len(), 2, "{body}");
    }
    consumer.stop().await;
    client.stop().await;
}

/// SET-45, SET-46: a consumer of sessions reports errors and panics in the same way.
#[tokio::test]
async fn consumer_of_sessions_reports_errors() {
    let client = client(1, true).await;
    let handler = |step: SessionDelivery| async move {
        assert_ne!(step.body(), "panic", "as asked");
        Err(Refusal::failed("sold out"))
    };
    for (options, errors) in [
        (SessionConsumerOptions::at_once(1), [Some("sold out"), Some("the handler panicked: ")]),
        (SessionConsumerOptions::at_once(1).without_error_reports(), [None, None]),
    ] {
        let consumer = client.consume_sessions("orders", handler, options).await.unwrap();
        for (body, error) in ["fail", "panic"].into_iter().zip(errors) {
            let step = Message { session_id: Some("7".into()), ..Message::new(body) };
            client.sender("orders").unwrap().send(step).await.unwrap();
            let letter = dead_letter(&client).await;
            let description = letter.dead_letter_error_description().unwrap();
            match error {
                Some(error) => assert!(description.starts_with(error), "{description}"),
                None => assert_eq!(description, ATTEMPTS),
            }
        }
        consumer.stop().await;
    }
    client.stop().await;
}
