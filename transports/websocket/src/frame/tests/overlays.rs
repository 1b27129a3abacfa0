//! Changes by settlements, rules and forwarding on a delivered message, in both encodings.

use peeklock_core::message::{MessageId, PropertyChange, SettableProperty, ValueRef};

use super::*;

/// Like `golden.txt`: a delivery with overlays of each kind.
const GOLDEN: &str = include_str!("../golden_overlays.txt");

/// Returns `order-1` changed by a rule, dead-lettered in `events/Subscriptions/eu` and forwarded.
fn forwarded() -> DeliveredMessage {
    let mut delivered = delivered();
    let changes = [
        PropertyChange::SetBroker(SettableProperty::MessageId, ValueRef::String("order-2")),
        PropertyChange::SetBroker(SettableProperty::Subject, ValueRef::Null),
        PropertyChange::Remove("priority"),
        PropertyChange::Set("table", ValueRef::String("seven")),
    ];
    let overlays = [
        Overlay::of_changes(changes),
        Overlay::encode(&[("cause".into(), "broken".into())]).unwrap(),
        Overlay::dead_letter_source("events/Subscriptions/eu"),
    ];
    delivered.facts.enqueued_sequence = SequenceNumber(7);
    delivered.carried = DeliveredContent::Stored {
        content: message().encode().as_bytes().clone(),
        overlays: overlays.iter().map(|overlay| overlay.as_bytes().clone()).collect(),
    };
    delivered
}

fn frame() -> Vec<Item> {
    let messages = vec![forwarded()];
    vec![Item::push(Notice::Deliveries(Deliveries { link: 1, first: 17, messages }))]
}

/// FWD-26, ACT-02, ACT-07: a delivery contains set and unset broker properties, set and removed
/// application properties, and the dead-letter source.
#[test]
fn a_delivery_contains_all_changes_of_its_message() {
    let [json, binary] = Encoding::ALL.map(|encoding| server_frame(encoding, 5, frame()));
    let (json, binary) = if json.starts_with(b"{") { (json, binary) } else { (binary, json) };
    let now = format!("{}\n{}\n", std::str::from_utf8(&json).unwrap(), hexadecimal(&binary));
    assert_eq!(now, GOLDEN);
}

/// FWD-26, ACT-02, ACT-07
#[test]
fn both_encodings_decode_to_the_same_delivery() {
    for (line, encoding) in GOLDEN.lines().zip([Encoding::Json, Encoding::Binary]) {
        let bytes = match encoding {
            Encoding::Json => Bytes::from(line),
            Encoding::Binary => bytes_of(line),
        };
        let mut frame = client_side::decode(encoding, &bytes).unwrap();
        let Some(Item { notice: Notice::Deliveries(read), .. }) = frame.items.pop() else {
            panic!()
        };
        let (message, source) = read.messages[0].carried.read().unwrap();
        assert_eq!(source.as_deref(), Some("events/Subscriptions/eu"));
        assert_eq!(message.message_id, Some(MessageId::String("order-2".into())));
        assert_eq!(message.subject, None);
        let mut properties = message.application_properties.clone();
        properties.sort_by(|left, right| left.0.cmp(&right.0));
        assert_eq!(
            properties,
            [("cause".into(), "broken".into()), ("table".into(), "seven".into())]
        );
    }
}

/// MSG-11: a received message can be sent again unchanged; facts that only a broker adds are
/// ignored, even invalid ones.
#[test]
fn broker_facts_are_ignored_in_sent_messages() {
    let mut sent: serde_json::Value = serde_json::to_value(forwarded()).unwrap();
    sent["deliveryCount"] = "many".into();
    sent["state"] = serde_json::json!({});
    let SentMessage::Typed(read) = serde_json::from_value(sent.clone()).unwrap() else { panic!() };
    assert_eq!(read.message_id, Some(MessageId::String("order-2".into())));
    sent["deadLetterSourc"] = "misspelt".into();
    assert!(serde_json::from_value::<SentMessage>(sent).is_err());
}
