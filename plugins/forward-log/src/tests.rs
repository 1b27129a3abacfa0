use std::io;
use std::sync::{Arc, Mutex};

use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::*;

fn source() -> Source {
    Source { broker: 7, entity: EntityId(3), path: "orders".into(), sub_queue: SubQueue::Main }
}

fn outgoing(sequence: u64, message: &Message) -> Outgoing {
    let content = message.encode();
    Outgoing {
        facts: MessageFacts {
            sequence: SequenceNumber(sequence),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: Timestamp::NONE,
            expires_at: None,
            time_to_live: None,
            delivery_count: 0,
            state: MessageState::Active,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: None,
            size: content.size(),
            overlay_count: 0,
            was_scheduled: false,
        },
        content,
        overlays: Vec::new(),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        never_duplicate: false,
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the verdicts and the log lines after forwarding these messages.
async fn logged(destination: &str, messages: &[Outgoing]) -> (Vec<Verdict>, Vec<String>) {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .without_time()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let mut route = LogForwarder.route(destination, source()).unwrap();
    let guard = tracing::subscriber::set_default(subscriber);
    let verdicts = route.forward(messages).await;
    drop(guard);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    (verdicts, text.lines().map(str::to_owned).collect())
}

/// FWD-31: one verdict per message, in order.
#[tokio::test(flavor = "current_thread")]
async fn each_message_becomes_one_line_and_is_done() {
    let first = Message::new("secret").with_message_id("a-1").with_subject("tea");
    let second = Message::new("secret").with_message_id("a-2");
    let (verdicts, lines) =
        logged("log://warn", &[outgoing(1, &first), outgoing(2, &second)]).await;
    assert_eq!(verdicts, [Verdict::Delivered, Verdict::Delivered]);
    let size = first.encode().size();
    assert_eq!(
        lines[0].trim(),
        format!(
            "WARN peeklock_forward_log: message forwarded to the log entity=orders \
             sequence_number=1 message_id=\"a-1\" subject=\"tea\" bytes={size} hops=1"
        )
    );
    assert!(lines[1].contains("message_id=\"a-2\""), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

#[tokio::test(flavor = "current_thread")]
async fn the_destination_names_the_level() {
    for (destination, level) in [
        ("log://error", "ERROR"),
        ("log://warn", "WARN"),
        ("log://info", "INFO"),
        ("LOG://Debug", "DEBUG"),
        ("log://trace", "TRACE"),
    ] {
        let (_, lines) = logged(destination, &[outgoing(1, &Message::new("a"))]).await;
        assert!(lines[0].trim().starts_with(level), "{lines:?}");
    }
}

/// A log entry stays one line for any message id and subject.
#[tokio::test(flavor = "current_thread")]
async fn a_line_of_the_log_cannot_be_forged() {
    let message = Message::new("a").with_message_id("1\nERROR forged").with_subject("\u{1b}[2J");
    let (_, lines) = logged("log://info", &[outgoing(1, &message)]).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains('\u{1b}'), "{lines:?}");
}

/// FWD-02: a destination without a known level is refused.
#[test]
fn a_destination_without_a_level_is_refused() {
    for destination in ["log://", "log://loud", "log:info", "info", "log://info/", "log://info?a"] {
        let rejection = LogForwarder.check(destination).unwrap_err();
        assert!(rejection.detail().contains("log://info"), "{rejection}");
        assert!(LogForwarder.route(destination, source()).is_err());
    }
}
