//! Tests of property views and header sizes with overlays.

use super::*;
use crate::message::{Message, MessageId, PropertyChange, SettableProperty, Value};

fn full() -> Message {
    Message::new(vec![7; 1_000])
        .with_message_id(MessageId::Ulong(5))
        .with_correlation_id(MessageId::Uuid(1))
        .with_session_id("s")
        .with_partition_key("s")
        .with_transaction_partition_key("v")
        .with_reply_to_session_id("rs")
        .with_content_type("text/plain")
        .with_subject("subject")
        .with_to("to")
        .with_reply_to("reply")
        .with_time_to_live(TimeSpan::from_minutes(1))
        .with_scheduled_enqueue_time(Timestamp::from_unix_ms(5))
        .with_application_property("a", 1)
        .with_application_property("B", "text")
        .with_application_property("b", Value::Null)
}

/// An overlay that changes every property.
fn everything() -> Overlay {
    let text = ValueRef::String("new");
    let settable = SettableProperty::ALL.into_iter().map(|property| match property {
        SettableProperty::TimeToLive => {
            PropertyChange::SetBroker(property, ValueRef::TimeSpan(20_000))
        }
        SettableProperty::ScheduledEnqueueTimeUtc => {
            PropertyChange::SetBroker(property, ValueRef::Timestamp(9))
        }
        _ => PropertyChange::SetBroker(property, text),
    });
    Overlay::of_changes(settable.chain([
        PropertyChange::Set("a", ValueRef::Bool(true)),
        PropertyChange::Set("MessageId", text),
        PropertyChange::Remove("B"),
        PropertyChange::Remove("absent"),
    ]))
}

/// An overlay that unsets every broker property.
fn nothing() -> Overlay {
    Overlay::of_changes(
        SettableProperty::ALL
            .into_iter()
            .map(|property| PropertyChange::SetBroker(property, ValueRef::Null)),
    )
}

/// The properties of a view as text, for comparisons.
fn shown(view: &PropertyView<'_>) -> String {
    let properties: Vec<_> = view.keys().map(|key| (key, view.resolve(key))).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {properties:?}",
        view.message_id(),
        view.correlation_id(),
        view.session_id(),
        view.partition_key(),
        view.transaction_partition_key(),
        view.reply_to_session_id(),
        view.content_type(),
        view.subject(),
        view.to(),
        view.reply_to(),
        view.time_to_live(),
        view.scheduled_enqueue_time(),
    )
}

/// ACT-02: a view with an overlay has the properties of the changed message.
#[test]
fn a_view_with_an_overlay_shows_the_changed_message() {
    let settled = Overlay::encode(&[("c".to_owned(), Value::I32(1))]).unwrap();
    for message in [full(), Message::new("")] {
        for overlays in [
            vec![],
            vec![everything()],
            vec![nothing()],
            vec![everything(), settled.clone()],
            vec![settled.clone(), everything(), nothing()],
        ] {
            let content = message.encode();
            let mut changed = message.clone();
            let mut view = content.property_view();
            for overlay in &overlays {
                changed.apply_overlay(overlay);
                view = view.with(overlay);
            }
            let expected = changed.encode();
            assert_eq!(shown(&view), shown(&expected.property_view()));
        }
    }
}

/// SET-08, ACT-02: a broker property and an application property of the same name are different
/// properties.
#[test]
fn overlays_of_broker_and_application_properties_combine() {
    let to = |text| {
        Overlay::of_changes([
            PropertyChange::SetBroker(SettableProperty::To, ValueRef::String(text)),
            PropertyChange::Set("Subject", ValueRef::I32(1)),
        ])
    };
    let application = Overlay::of_changes([
        PropertyChange::Set("To", ValueRef::I32(2)),
        PropertyChange::Remove("Subject"),
    ]);
    for (earlier, later) in [
        (everything(), nothing()),
        (nothing(), everything()),
        (to("x"), to("y")),
        (to("x"), application.clone()),
        (application, to("x")),
    ] {
        let (mut once, mut twice) = (full(), full());
        once.apply_overlay(&later.on_top_of(&earlier));
        twice.apply_overlay(&earlier);
        twice.apply_overlay(&later);
        let sorted = |mut message: Message| {
            message.application_properties.sort_by(|left, right| left.0.cmp(&right.0));
            message
        };
        assert_eq!(sorted(once), sorted(twice));
    }
}

/// DLQ-20: the size is exact, to the byte, for every change that an overlay can make.
#[test]
fn header_size_with_an_overlay_matches_the_changed_message() {
    for message in [full(), Message::new("b")] {
        for overlay in [everything(), nothing(), Overlay::of_changes([])] {
            let mut changed = message.clone();
            changed.apply_overlay(&overlay);
            let expected = changed.encode().header_size();
            assert_eq!(message.encode().header_size_with(&overlay), expected);
        }
    }
}

/// Stored overlays stay readable: text keys for application properties, the empty list for
/// removals, symbols for broker properties.
#[test]
fn golden_overlay() {
    let overlay = Overlay::of_changes([
        PropertyChange::SetBroker(SettableProperty::To, ValueRef::String("x")),
        PropertyChange::SetBroker(SettableProperty::SessionId, ValueRef::Null),
        PropertyChange::Set("a", ValueRef::I64(1)),
        PropertyChange::Remove("b"),
    ]);
    let golden =
        b"\xc1\x1d\x08\xa3\x02To\xa1\x01x\xa3\x09SessionId\x40\xa1\x01a\x55\x01\xa1\x01b\x45";
    assert_eq!(&overlay.as_bytes()[..], golden);
    let read = Overlay::from_bytes(overlay.as_bytes().clone());
    assert_eq!(read.changes().collect::<Vec<_>>(), overlay.changes().collect::<Vec<_>>());
    assert_eq!(read.properties().collect::<Vec<_>>(), [("a", Value::I64(1))]);
    assert!(!read.is_empty());
    for property in SettableProperty::ALL {
        assert_eq!(SettableProperty::parse(property.name()), Some(property));
    }
}

/// SQL-07
#[test]
fn names_are_the_same_ignoring_case() {
    for (left, right, expected) in [
        ("color", "COLOR", true),
        ("color", "colour", false),
        ("größe", "GRÖSSE", false),
        ("größe", "GRÖßE", true),
        ("ω", "Ω", true),
        ("", "", true),
        ("a", "ä", false),
        ("k", "\u{212a}", true),
    ] {
        assert_eq!(same_name(left, right), expected, "{left} {right}");
        assert_eq!(same_name(right, left), expected, "{right} {left}");
    }
}
