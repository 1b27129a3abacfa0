//! Lists of messages from another entity.

use super::*;
use crate::message::Overlay;
use crate::transfer::{Admission, Arrival, Origin, WhenFull};

/// Bytes set on each message of [`list`].
const SET_BYTES: usize = 10_000;

/// Returns a list of `count` messages from another entity, each with [`SET_BYTES`] of overlays.
fn list(count: u64) -> Command {
    let text = "x".repeat(SET_BYTES);
    let overlay = Overlay::encode(&[("set".to_owned(), text.into())]).unwrap();
    let content = Message::new("x").encode();
    let mut envelope = content.envelope(&PropertyLimits::default(), &KEY);
    envelope.size += overlay.size_bytes();
    let arrival = |number| {
        let message = InboundMessage { content: content.clone(), envelope: envelope.clone() };
        Arrival { overlays: vec![overlay.clone()], ..arrival(number, message) }
    };
    Command::TransferIn {
        messages: (1..=count).map(arrival).collect(),
        when_full: WhenFull::Refuse,
    }
}

/// Returns a message from another entity, with its number there.
fn arrival(number: u64, message: InboundMessage) -> Arrival {
    Arrival {
        message,
        overlays: Vec::new(),
        lowered_time_to_live: None,
        enqueued_sequence: SequenceNumber(number),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        origin: Origin {
            shard: 0,
            key: crate::change::codec::slot_key(EntityId(99), SequenceNumber(number)),
            overlays: Box::default(),
            contents: None,
        },
        resent: None,
    }
}

impl Stand {
    /// Runs a list; returns the answer for each message (`+` accepted, `-` refused, `.` not tried)
    /// and the reason of a refusal.
    fn admitted(&mut self, list: Command) -> (String, String) {
        let Answer::Now(Outcome::Admitted(admissions), _) = self.apply(list).unwrap().0 else {
            panic!("a list is answered for each of its messages")
        };
        let mut why = String::new();
        let said = admissions.iter().map(|admission| match admission {
            Admission::Accepted => '+',
            Admission::NotAdmitted(rejection) => {
                assert_eq!(rejection.condition(), Condition::QuotaExceeded);
                rejection.detail().clone_into(&mut why);
                '-'
            }
            Admission::Duplicate => '=',
            Admission::NotTried => '.',
        });
        (said.collect(), why)
    }
}

/// QUO-10: the overlays of a transferred message are written for each copy, and count for the
/// atomic step. A list is taken as far as one step allows; the source offers the rest again. A
/// message that exceeds the step by itself is refused.
#[test]
fn topic_takes_list_up_to_the_bytes_of_one_step() {
    let mut stand = Stand::new(3);
    let limits = stand.limits.clone();
    stand.limits.atomic_bytes_max = 7 * (SET_BYTES as u64 + 200);
    assert_eq!(stand.admitted(list(4)), ("++..".to_owned(), String::new()));
    stand.limits.atomic_bytes_max = 2 * SET_BYTES as u64;
    let (said, why) = stand.admitted(list(4));
    assert_eq!(said, "----");
    assert!(why.contains("`atomic_bytes_max`"), "{why}");
    stand.limits = limits.clone();
    stand.limits.publish_copy_count_max = 10;
    assert_eq!(stand.admitted(list(4)), ("+++.".to_owned(), String::new()));
    stand.limits = limits;
    assert_eq!(stand.admitted(list(4)), ("++++".to_owned(), String::new()));
}

/// DESIGN D6: applying the overlays of a message takes time with any rules, so a list of such
/// messages is judged in slices even if only true filters see them.
#[test]
fn overlays_of_arriving_messages_count_for_slices() {
    let mut stand = Stand::new(1);
    let list = list(64);
    let slices = stand.slices(&list);
    // 64 x 8 x 10,000 steps in slices of 2^20.
    assert!((5..=6).contains(&slices), "{slices} slices");
    assert!(stand.topic.take_evaluation_steps() >= 64 * 8 * SET_BYTES as u64);
    assert_eq!(stand.admitted(list).0, "+".repeat(64));
}

/// DESIGN D6, FWD-09: overlays of scheduled messages become part of their contents, within the time
/// of a step; the source offers the rest of the list again.
#[test]
fn topic_rewrites_contents_up_to_the_time_of_one_step() {
    let mut stand = Stand::new(1);
    let mut list = list(20);
    let Command::TransferIn { messages, .. } = &mut list else { unreachable!() };
    for arrival in messages {
        arrival.message.envelope.scheduled_enqueue_time = Some(Timestamp::NEVER);
    }
    // 13 x 10,000 bytes are less than 128 KiB.
    assert_eq!(stand.admitted(list).0, format!("{}{}", "+".repeat(13), ".".repeat(7)));
}

/// QUO-09, DESIGN D6: a list is judged until it has taken the time of a publish, and no further
/// message is begun; the source offers the rest again, so that no topic keeps its contents long. A
/// client's batch is judged completely.
#[test]
fn a_list_is_not_judged_for_longer_than_a_publish() {
    let mut stand = Stand::with_heavy_rules(4);
    let heavy = |stand: &Stand, count: u64| Command::TransferIn {
        messages: (1..=count).map(|number| arrival(number, stand.heavy())).collect(),
        when_full: WhenFull::Refuse,
    };
    let one = heavy(&stand, 1);
    assert!(stand.slices(&one) > 1);
    let steps = stand.topic.take_evaluation_steps();
    assert_eq!(stand.admitted(one).0, "+");
    for (most, said) in [(2 * steps - 1, "++.."), (2 * steps, "+++."), (4 * steps, "++++")] {
        stand.limits.publish_step_count_max = most;
        let list = heavy(&stand, 4);
        stand.slices(&list);
        assert_eq!(stand.admitted(list).0, said);
    }
    stand.limits.publish_step_count_max = 2 * steps - 1;
    let messages = vec![stand.heavy(), stand.heavy(), stand.heavy()];
    let batch = Command::SendBatch { messages };
    stand.slices(&batch);
    stand.apply(batch).unwrap();
}
