//! Golden records: a record that was written once stays readable.

use super::*;
use crate::change::slot::{Mark, Marks, Slot, SlotState};
use crate::command::{ActResult, ActedMessage, BodyEdit, Edit, JobStep, Receipt, Route};
use crate::description::{
    EntityStatus, Jitter, QueueDescription, RetryKind, RetryPolicy, SessionRetryOrder,
    SubscriptionDescription, TopicDescription,
};
use crate::ids::{EntityId, JobId, SequenceNumber};
use crate::limits::Limits;
use crate::path::SubQueue;
use crate::policy::{KeyText, PolicyDescription, PolicyKeys, Right, Rights};
use crate::time::{TimeSpan, Timestamp};
use crate::transfer::peer::{PeerRecord, PeerSource};

fn slot() -> Slot {
    Slot {
        enqueued_at: Timestamp::from_ticks(0x0102_0304_0506_0708),
        expires_at: Timestamp::from_ticks(0x1112_1314_1516_1718),
        enqueued_sequence: SequenceNumber(0x21),
        size: 0x31,
        header_size: 0x32,
        delivery_count: 0x33,
        lock: None,
        overlay_count: 0x34,
        state: SlotState::Deferred,
        sub_queue: SubQueue::Main,
        hops: 3,
        marks: Marks::NONE,
        copies_spent: 0,
    }
}

/// The fields of a slot, which versions 1 and 2 have in common.
const SLOT_FIELDS: &[u8] = b"\x02\x00\x03\
    \x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\
    \x00\x00\x00\x00\x00\x00\x00\x21\x00\x00\x00\x31\x00\x00\x00\x32\x00\x00\x00\x33\x00\x34";

/// DESIGN D11: the slot of a message without session has version 1.
#[test]
fn a_slot_of_version_1_stays_readable() {
    let golden = [b"\x01", SLOT_FIELDS].concat();
    let mut written = Vec::new();
    write_slot(&slot(), None, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_slot(&golden), Ok((slot(), None)));
}

/// DESIGN D11: the slot of a message in a session has version 2.
#[test]
fn a_slot_of_version_2_stays_readable() {
    let golden = [b"\x02", SLOT_FIELDS, b"\x00\x00\x00\x05caf\xc3\xa9"].concat();
    let mut written = Vec::new();
    write_slot(&slot(), Some("caf\u{e9}"), &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_slot(&golden), Ok((slot(), Some("caf\u{e9}"))));
}

/// DESIGN D11: only the slot of a pending message has version 3.
#[test]
fn a_slot_of_version_3_stays_readable() {
    let fields = [b"\x03", &SLOT_FIELDS[1..]].concat();
    let golden = [b"\x03", &fields[..], b"\x00\x00\x00\x03a/b"].concat();
    let pending = Slot { state: SlotState::Pending, ..slot() };
    let mut written = Vec::new();
    write_slot(&pending, Some("a/b"), &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_slot(&golden), Ok((pending, Some("a/b"))));
    assert!(read_slot(&[b"\x01", &fields[..]].concat()).is_err());
    assert!(read_slot(&[b"\x03", SLOT_FIELDS, b"\x00\x00\x00\x03a/b"].concat()).is_err());
}

/// DESIGN D11, DUP-14: the slot of a message without an id from its sender has version 4, in any
/// state.
#[test]
fn a_slot_of_version_4_stays_readable() {
    let fresh = Slot { marks: Marks::never_duplicate(true), ..slot() };
    let pending = Slot { state: SlotState::Pending, ..fresh };
    let pending_fields = [b"\x03", &SLOT_FIELDS[1..]].concat();
    for (slot, text, fields, end) in [
        (fresh, None, SLOT_FIELDS, &b"\x00"[..]),
        (fresh, Some("s1"), SLOT_FIELDS, b"\x01\x00\x00\x00\x02s1"),
        (pending, Some("a/b"), &pending_fields, b"\x01\x00\x00\x00\x03a/b"),
    ] {
        let golden = [b"\x04", fields, end].concat();
        let mut written = Vec::new();
        write_slot(&slot, text, &mut written);
        assert_eq!(written, golden);
        assert_eq!(read_slot(&golden), Ok((slot, text)));
    }
    for (fields, end) in [
        (&pending_fields[..], &b"\x00"[..]),
        (SLOT_FIELDS, b""),
        (SLOT_FIELDS, b"\x02"),
        (SLOT_FIELDS, b"\x01"),
        (SLOT_FIELDS, b"\x00\x00"),
    ] {
        assert!(read_slot(&[b"\x04", fields, end].concat()).is_err());
    }
}

/// DESIGN D11, FWD-33: the slot of a message whose publish has made copies has version 5, in any
/// state.
#[test]
fn a_slot_of_version_5_stays_readable() {
    let copied = Slot { copies_spent: 0x0142, ..slot() };
    let fresh = Slot { marks: Marks::never_duplicate(true), ..copied };
    let pending = Slot { state: SlotState::Pending, ..copied };
    let pending_fields = [b"\x03", &SLOT_FIELDS[1..]].concat();
    for (slot, text, fields, end) in [
        (copied, None, SLOT_FIELDS, &b"\x01\x42\x00"[..]),
        (copied, Some("s1"), SLOT_FIELDS, b"\x01\x42\x01\x00\x00\x00\x02s1"),
        (fresh, None, SLOT_FIELDS, b"\x01\x42\x02"),
        (fresh, Some("s1"), SLOT_FIELDS, b"\x01\x42\x03\x00\x00\x00\x02s1"),
        (pending, Some("a/b"), &pending_fields, b"\x01\x42\x01\x00\x00\x00\x03a/b"),
    ] {
        let golden = [b"\x05", fields, end].concat();
        let mut written = Vec::new();
        write_slot(&slot, text, &mut written);
        assert_eq!(written, golden);
        assert_eq!(read_slot(&golden), Ok((slot, text)));
    }
    for (fields, end) in [
        (&pending_fields[..], &b"\x01\x42\x00"[..]),
        (SLOT_FIELDS, b""),
        (SLOT_FIELDS, b"\x01"),
        (SLOT_FIELDS, b"\x00\x00\x00"),
        (SLOT_FIELDS, b"\x01\x42"),
        (SLOT_FIELDS, b"\x01\x42\x04"),
        (SLOT_FIELDS, b"\x01\x42\x01"),
        (SLOT_FIELDS, b"\x01\x42\x00\x00"),
    ] {
        assert!(read_slot(&[b"\x05", fields, end].concat()).is_err());
    }
}

/// DESIGN D11, RTY-06: the slot of a Delayed message has version 6: the end of the delay, then a
/// slot of another version.
#[test]
fn a_slot_of_version_6_stays_readable() {
    let until = Timestamp::from_ticks(0x2142_4344_4546_4748);
    let fields = [b"\x01", &SLOT_FIELDS[1..]].concat();
    let active = Slot { state: SlotState::Active, ..slot() };
    let fresh = Slot { marks: Marks::never_duplicate(true), ..active };
    let copied = Slot { copies_spent: 0x0142, ..active };
    for (mut slot, text, rest) in [
        (active, None, [b"\x01", &fields[..]].concat()),
        (active, Some("s1"), [b"\x02", &fields[..], b"\x00\x00\x00\x02s1"].concat()),
        (fresh, None, [b"\x04", &fields[..], b"\x00"].concat()),
        (copied, None, [b"\x05", &fields[..], b"\x01\x42\x00"].concat()),
    ] {
        slot.marks.set(Mark::Delayed);
        let golden = [b"\x06\x21\x42\x43\x44\x45\x46\x47\x48", &rest[..]].concat();
        let mut written = Vec::new();
        write_delay(until, &mut written);
        write_slot(&slot, text, &mut written);
        assert_eq!(written, golden);
        assert_eq!(read_slot(&golden), Ok((slot, text)));
        assert_eq!(read_delay(&golden), Ok(Some(until)));
        assert_eq!(read_delay(&rest), Ok(None));
        assert!(read_slot(&golden[..8]).is_err() && read_slot(&golden[..9]).is_err());
        let twice = [&golden[..9], &golden[..]].concat();
        assert!(read_slot(&twice).is_err(), "one delay for one message");
    }
    let deferred = [b"\x06\0\0\0\0\0\0\0\0\x01", SLOT_FIELDS].concat();
    assert!(read_slot(&deferred).is_err());
}

/// DESIGN D11: the state of a session.
#[test]
fn a_session_state_stays_readable() {
    let golden = b"\x01\x01\x02\x03\x04\x05\x06\x07\x08\
        \x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02s1";
    let set_at = Timestamp::from_ticks(0x0102_0304_0506_0708);
    let mut written = Vec::new();
    write_session_state("s1", set_at, 256, &mut written);
    assert_eq!(written, golden);
    let expected = SessionStateRecord { session: "s1".into(), set_at, size: 256 };
    assert_eq!(read_session_state(golden), Ok(expected));
    let key = session_state_key(EntityId(7), 0x0f);
    assert_eq!(key.as_bytes(), b"\0\0\0\0\0\0\0\x07\x30\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0f");
    assert_eq!(read_key(key.as_bytes()), Ok(RecordKey::SessionState));
}

/// DESIGN D11: a message that another broker forwarded.
#[test]
fn peer_records_stay_readable() {
    let golden = b"\x01\0\0\0\0\0\0\x04\x01\0\0\0\0\0\0\0\x2a\
        \x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18";
    let record = PeerRecord {
        ordinal: 1_025,
        sequence: SequenceNumber(42),
        enqueued_at: Timestamp::from_ticks(0x0102_0304_0506_0708),
        at: Timestamp::from_ticks(0x1112_1314_1516_1718),
    };
    let mut written = Vec::new();
    write_peer_record(&record, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_peer_record(golden), Ok(record));
    let source =
        PeerSource { broker: 0xb0b, entity: EntityId(18), sub_queue: SubQueue::DeadLetter };
    let key = peer_key(EntityId(7), &source, record.place());
    assert_eq!(
        key.as_bytes(),
        b"\0\0\0\0\0\0\0\x07\x21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\x0b\
          \0\0\0\0\0\0\0\x12\x01\0\x01"
    );
    assert_eq!(read_key(key.as_bytes()), Ok(RecordKey::Peer(source)));
}

/// CON-15, DESIGN D11: the receipt of a job.
#[test]
fn receipts_stay_readable() {
    let golden = b"\x01\0\0\0\0\0\0\x04\x01\x11\x12\x13\x14\x15\x16\x17\x18\x01\
        \x21\x22\x23\x24\x25\x26\x27\x28\
        \0\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0\0\x2b\x02";
    let message = |number, result| ActedMessage { sequence: SequenceNumber(number), result };
    let job = JobId(0xb0b);
    let receipt = Receipt {
        step: JobStep { job, number: 1_025 },
        at: Timestamp::from_ticks(0x1112_1314_1516_1718),
        sub_queue: SubQueue::DeadLetter,
        deed_hash: 0x2122_2324_2526_2728,
        route: None,
        messages: vec![message(42, ActResult::Done), message(43, ActResult::Locked)],
    };
    let mut written = Vec::new();
    write_receipt(&receipt, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_receipt(job, golden), Ok(receipt.clone()));
    assert!(read_receipt(job, &golden[..golden.len() - 1]).is_err());
    assert!(read_receipt(job, &[&golden[..golden.len() - 1], b"\x10"].concat()).is_err());
    let changes = crate::message::Overlay::from_bytes("xy".into());
    let edit = Edit { changes, new_id: true, body: None };
    let body = Some(BodyEdit::Whole("b".into()));
    let whole = Edit { new_id: false, body, ..edit.clone() };
    let patch = Edit { body: Some(BodyEdit::MergePatch("{}".into())), ..edit.clone() };
    for (to, edit, written_to) in [
        (Some("q"), None, &b"\x01\0\0\0\x01q\0\0\0\0\0"[..]),
        (None, Some(edit), b"\0\0\0\0\0\x02\0\0\0\x02xy"),
        (None, Some(whole), b"\0\0\0\0\0\x05\0\0\0\x02xy\0\0\0\x01b"),
        (None, Some(patch), b"\0\0\0\0\0\x0a\0\0\0\x02xy\0\0\0\x02{}"),
    ] {
        let edit = edit.map(std::sync::Arc::new);
        let route = Some(Route { to: to.map(Into::into), is_resubmit: true, edit });
        let routed = Receipt { route, ..receipt.clone() };
        let mut written = Vec::new();
        write_receipt(&routed, &mut written);
        let (before, after) = golden.split_at(26);
        let expected = [b"\x02", &before[1..], b"\x01", written_to, after].concat();
        assert_eq!(written, expected);
        assert_eq!(read_receipt(job, &expected), Ok(routed));
    }
    // Marks that no edit has, such as two bodies.
    for marks in [3, 4, 8, 13, 0x12] {
        let (before, after) = golden.split_at(26);
        let route = [&b"\x01\0\0\0\0\0"[..], &[marks], b"\0\0\0\x02xy\0\0\0\x02{}"].concat();
        let unknown = [b"\x02", &before[1..], &route, after].concat();
        assert_eq!(read_receipt(job, &unknown), Err("unknown marks of an edit"), "{marks}");
    }
    for (code, result) in (0u8..).zip(ActResult::ALL) {
        assert_eq!(result as u8, code);
    }
    let key = receipt_key(EntityId(7), job);
    assert_eq!(key.as_bytes(), b"\0\0\0\0\0\0\0\x07\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\x0b");
    assert_eq!(read_key(key.as_bytes()), Ok(RecordKey::Receipt(job)));
}

/// A record that is too short, too long or of an unknown version is rejected.
#[test]
fn invalid_records_are_rejected() {
    for value in [&[b"\x03", SLOT_FIELDS].concat()[..], &[b"\x02", SLOT_FIELDS].concat(), b""] {
        assert!(read_slot(value).is_err());
    }
    assert!(read_slot(&[b"\x01", SLOT_FIELDS, b"\0"].concat()).is_err());
    assert!(read_slot(&[b"\x02", SLOT_FIELDS, b"\0\0\0\x01\xff"].concat()).is_err());
    assert!(read_session_state(b"\x02").is_err());
}

/// DESIGN D11: the description of a topic.
#[test]
fn the_description_of_a_topic_stays_readable() {
    let golden = b"\x01\x00\x00\x00\x06events\
        \x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00\x00\x00\x00\x00\x00\x13\
        \x00\x00\x00\x00\x00\x00\x00\x21\x00\x00\x00\x00\x00\x00\x00\x22\x01\x00\x01\x00\x01\
        \x00\x00\x00\x0cSendDisabled\x01\x00\x00\x00\x02me";
    let description = TopicDescription {
        path: "events".into(),
        max_size_in_megabytes: 0x21,
        requires_duplicate_detection: true,
        duplicate_detection_history_time_window: TimeSpan::from_ticks(0x11),
        default_message_time_to_live: TimeSpan::from_ticks(0x12),
        enable_batched_operations: false,
        status: EntityStatus::SendDisabled,
        auto_delete_on_idle: TimeSpan::from_ticks(0x13),
        enable_partitioning: true,
        enable_express: false,
        support_ordering: true,
        max_message_size_in_kilobytes: 0x22,
        user_metadata: Some("me".into()),
        extensions: None,
    };
    let mut written = Vec::new();
    write_description(&description, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_description(golden), Ok(description.clone()));
    assert!(read_description::<TopicDescription>(&golden[..golden.len() - 1]).is_err());
    // HTP-17: a description with unknown properties has version 2.
    let extended = TopicDescription { extensions: Some("<x/>".into()), ..description };
    let golden = [b"\x02", &golden[1..], b"\x00\x00\x00\x04<x/>"].concat();
    let mut written = Vec::new();
    write_description(&extended, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_description(&golden), Ok(extended));
    assert!(read_description::<TopicDescription>(&golden[..golden.len() - 1]).is_err());
}

/// DESIGN D11: the description of a subscription.
#[test]
fn the_description_of_a_subscription_stays_readable() {
    let golden = b"\x01\x00\x00\x00\x06events\x00\x00\x00\x05audit\
        \x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00\x00\x00\x00\x00\x00\x13\
        \x00\x00\x00\x31\x01\x00\x01\x00\
        \x00\x00\x00\x0fReceiveDisabled\x01\x00\x00\x00\x01q\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02me";
    let description = SubscriptionDescription {
        topic: "events".into(),
        name: "audit".into(),
        lock_duration: TimeSpan::from_ticks(0x11),
        requires_session: true,
        default_message_time_to_live: TimeSpan::from_ticks(0x12),
        dead_lettering_on_message_expiration: false,
        enable_dead_lettering_on_filter_evaluation_exceptions: true,
        max_delivery_count: 0x31,
        enable_batched_operations: false,
        status: EntityStatus::ReceiveDisabled,
        forward_to: Some("q".into()),
        forward_dead_lettered_messages_to: None,
        auto_delete_on_idle: TimeSpan::from_ticks(0x13),
        user_metadata: Some("me".into()),
        retry_policy: None,
        session_retry_order: SessionRetryOrder::Hold,
        catch_all: false,
        extensions: None,
    };
    let mut written = Vec::new();
    write_description(&description, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_description(golden), Ok(description.clone()));
    assert!(read_description::<SubscriptionDescription>(&golden[..golden.len() - 1]).is_err());
    // TOP-25: a catch-all has version 4, which ends like version 3.
    let caught = SubscriptionDescription { catch_all: true, ..description.clone() };
    let passing = SubscriptionDescription {
        session_retry_order: SessionRetryOrder::Pass,
        extensions: Some("<x/>".into()),
        ..caught.clone()
    };
    for (caught, end) in [(caught, &b"\0\0\0\0\0\0"[..]), (passing, b"\x01\0\0\0\x04<x/>\x04")] {
        let golden = [b"\x04", &golden[1..], end].concat();
        let mut written = Vec::new();
        write_description(&caught, &mut written);
        assert_eq!(written, golden);
        assert_eq!(read_description(&golden), Ok(caught));
        assert!(read_description::<SubscriptionDescription>(&golden[..golden.len() - 1]).is_err());
        assert!(
            read_description::<SubscriptionDescription>(&[&golden[..], b"\0"].concat()).is_err()
        );
    }
    assert!(
        read_description::<SubscriptionDescription>(
            &[b"\x05", &golden[1..], b"\0\0\0\0\0\0"].concat()
        )
        .is_err()
    );
    let queue = QueueDescription::new("orders", &Limits::default());
    let mut written = Vec::new();
    write_description(&queue, &mut written);
    let catching = [b"\x04", &written[1..], b"\0\0\0\0\0\0"].concat();
    assert!(read_description::<QueueDescription>(&catching).is_err(), "a queue is no catch-all");
}

/// DESIGN D11, RTY-16, RTY-23: a description with a retry policy has version 3 and ends with the
/// policy; others are written as before.
#[test]
fn retry_policies_stay_readable() {
    let plain = QueueDescription::new("orders", &Limits::default());
    let mut before = Vec::new();
    write_description(&plain, &mut before);
    assert_eq!(before[0], 1);
    let policy = RetryPolicy {
        kind: RetryKind::Linear,
        delay: TimeSpan::from_ticks(0x11),
        delay_max: Some(TimeSpan::from_ticks(0x12)),
        jitter: Jitter::of(0.5).unwrap(),
    };
    let open = RetryPolicy { delay_max: None, ..policy };
    let (hold, pass) = (SessionRetryOrder::Hold, SessionRetryOrder::Pass);
    for (retry_policy, session_retry_order, extensions, end) in [
        (
            Some(policy),
            hold,
            None,
            &b"\0\0\0\0\0\x03\0\0\0\x06linear\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0\x12\x00\x07\xa1\x20"
                [..],
        ),
        (
            Some(open),
            pass,
            Some("<x/>"),
            b"\x01\0\0\0\x04<x/>\x05\0\0\0\x06linear\0\0\0\0\0\0\0\x11\x00\x07\xa1\x20",
        ),
        (None, pass, None, b"\0\0\0\0\0\x04"),
    ] {
        let extensions = extensions.map(Box::from);
        let description =
            QueueDescription { retry_policy, session_retry_order, extensions, ..plain.clone() };
        let golden = [b"\x03", &before[1..], end].concat();
        let mut written = Vec::new();
        write_description(&description, &mut written);
        assert_eq!(written, golden);
        assert_eq!(read_description(&golden), Ok(description));
        assert!(read_description::<QueueDescription>(&golden[..golden.len() - 1]).is_err());
        assert!(read_description::<QueueDescription>(&[&golden[..], b"\0"].concat()).is_err());
    }
    let audit = SubscriptionDescription {
        retry_policy: Some(policy),
        ..SubscriptionDescription::new("events", "audit", &Limits::default())
    };
    let mut written = Vec::new();
    write_description(&audit, &mut written);
    assert_eq!((written[0], read_description(&written)), (3, Ok(audit)));
    for flags in [b"\x08", b"\x02"] {
        let unknown = [b"\x03", &before[1..], b"\0\0\0\0\0", &flags[..], &[0u8; 30]].concat();
        assert!(read_description::<QueueDescription>(&unknown).is_err());
    }
}

/// DESIGN D11: version 5 stores each further property with its tag, so that a new property needs no
/// version of its own. It is written only if no older version can express the description.
#[test]
fn a_description_of_version_5_has_tagged_properties() {
    let golden_start = |description: &SubscriptionDescription| {
        let mut written = Vec::new();
        super::description::write_version(description, 1, &mut written);
        [b"\x05", &written[1..]].concat()
    };
    let policy = RetryPolicy {
        kind: RetryKind::Fixed,
        delay: TimeSpan::from_ticks(0x11),
        delay_max: None,
        jitter: Jitter::NONE,
    };
    let plain = SubscriptionDescription::new("events", "audit", &Limits::default());
    let tagged = SubscriptionDescription {
        retry_policy: Some(policy),
        session_retry_order: SessionRetryOrder::Pass,
        catch_all: true,
        extensions: Some("<x/>".into()),
        ..plain.clone()
    };
    let extensions = b"\x01\0\0\0\x04<x/>";
    let catch_all = b"\x16\0\0\0\x01\x01";
    let retry = b"\x14\0\0\0\x16\x01\0\0\0\x05fixed\0\0\0\0\0\0\0\x11\0\0\0\0";
    let order = b"\x15\0\0\0\x01\x04";
    let start = [&golden_start(&tagged)[..], extensions].concat();
    let golden = [&start[..], catch_all, retry, order].concat();
    let mut written = Vec::new();
    super::description::write_version(&tagged, 5, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_description(&golden), Ok(tagged.clone()));
    let reordered = [&start[..], order, catch_all, retry].concat();
    assert_eq!(read_description(&reordered), Ok(tagged.clone()));
    let mut written = Vec::new();
    write_description(&tagged, &mut written);
    assert_eq!(written[0], 4);
    let bare = [&golden_start(&plain)[..], b"\0\0\0\0\0"].concat();
    assert_eq!(read_description(&bare), Ok(plain));
    for wrong in [
        &b"\x17\0\0\0\x01\x01"[..],
        b"\x16\0\0\0\x02\x01\0",
        b"\x16\0\0\0\x01",
        b"\x01\0\0\0\x01\x01",
    ] {
        let refused = read_description::<SubscriptionDescription>(&[&bare, wrong].concat());
        assert!(refused.is_err(), "{wrong:?}");
    }
}

/// DESIGN D11: the key of a rule.
#[test]
fn the_key_of_a_rule_stays_the_same() {
    let key = rule_key(EntityId(7), 0x0f);
    assert_eq!(key.as_bytes(), b"\0\0\0\0\0\0\0\x07\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0f");
    assert_eq!(read_key(key.as_bytes()), Ok(RecordKey::Rule));
}

/// DESIGN D11, CNT-10: the facts of the namespace itself.
#[test]
fn the_facts_of_the_namespace_stay_readable() {
    let golden = b"\x01\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\
        \x00\x00\x00\x04shop\x00\x00\x00\x07Premium";
    let facts = NamespaceFacts {
        created_at: Timestamp::from_ticks(0x0102_0304_0506_0708),
        modified_at: Timestamp::from_ticks(0x1112_1314_1516_1718),
        name: "shop".into(),
        tier: "Premium".into(),
    };
    let mut written = Vec::new();
    write_namespace_facts(&facts, &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_namespace_facts(golden), Ok(facts));
    assert!(read_namespace_facts(&golden[..golden.len() - 1]).is_err());
    assert_eq!(namespace_facts_key().as_bytes(), b"\x80\0\0\0\0\0\0\0\x01");
}

/// DESIGN D11: the namespace's entry for each kind of entity.
#[test]
fn the_entries_of_the_namespace_stay_readable() {
    let golden = b"\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x05audit";
    let mut written = Vec::new();
    write_subscription_entry(EntityId(7), "audit", &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_subscription_entry(golden), Ok((EntityId(7), "audit".into())));
    assert!(read_subscription_entry(&golden[..17]).is_err());
    let id = EntityId(0x0102);
    let keys = [queue_entry_key(id), topic_entry_key(id), subscription_entry_key(id)];
    for (key, table) in keys.iter().zip([0x10, 0x11, 0x12]) {
        let expected = [&[0; 8][..], &[table], &[0, 0, 0, 0, 0, 0, 1, 2]].concat();
        assert_eq!(key.as_bytes(), expected);
    }
}

/// DESIGN D11: the key and the record of the policies of an entity.
#[test]
fn policies_stay_readable() {
    let golden =
        b"\x01\x00\x00\x00\x01\x00\x00\x00\x04team\x03\x00\x00\x00\x02k1\x00\x00\x00\x02k2\
        \x00\x00\x00\x00\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x12";
    let policy = PolicyKeys {
        policy: PolicyDescription {
            name: "team".into(),
            rights: Rights::of(Right::Send).and(Right::Listen),
            created_at: Timestamp::from_ticks(0x11),
            updated_at: Timestamp::from_ticks(0x12),
        },
        primary_key: KeyText::stored("k1"),
        secondary_key: KeyText::stored("k2"),
    };
    let mut written = Vec::new();
    write_policies([policy.clone()].iter(), &mut written);
    assert_eq!(written, golden);
    assert_eq!(read_policies(golden), Ok(vec![policy]));
    assert!(read_policies(&golden[..golden.len() - 1]).is_err());
    let unknown_right = [&golden[..13], &[8], &golden[14..]].concat();
    assert_eq!(read_policies(&unknown_right), Err("unknown right"));
    assert_eq!(read_policies(b"\x01\x00\x00\x00\x00"), Ok(Vec::new()));
    let key = policies_key(EntityId(7));
    assert_eq!(key.as_bytes(), b"\0\0\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\x07");
    assert_eq!(read_instant(&golden[golden.len() - 8..]), Ok(Timestamp::from_ticks(0x12)));
}
