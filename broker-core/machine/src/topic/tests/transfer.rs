//! Lists of messages from another entity.

use super::*;
use crate::message::Overlay;
use crate::transfer::{Admission, Arrival, Origin, WhenFull};

/// What is set on each message of [`list`].
const SET_BYTES: usize = 10_000;

/// So many messages of another entity, with so much set on each.
fn list(count: u64) -> Command {
    let text = "x".repeat(SET_BYTES);
    let overlay = Overlay::encode(&[("set".to_owned(), text.into())]).unwrap();
    let content = Message::new("x").encode();
    let mut envelope = content.envelope(&PropertyLimits::default(), &KEY);
    envelope.size += overlay.size_bytes();
    let arrival = |number| Arrival {
        message: InboundMessage { content: content.clone(), envelope: envelope.clone() },
        overlays: vec![overlay.clone()],
        enqueued_sequence: SequenceNumber(number),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        origin: Origin {
            key: crate::change::codec::slot_key(EntityId(99), SequenceNumber(number)),
            overlays: Vec::new(),
        },
    };
    Command::TransferIn {
        messages: (1..=count).map(arrival).collect(),
        when_full: WhenFull::Refuse,
    }
}

impl Stand {
    /// What was said of each message of a list: `+` accepted, `-` refused, `.` not tried; and why one was refused.
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
            Admission::NotTried => '.',
        });
        (said.collect(), why)
    }
}

/// QUO-10: what was set on a message on its way is written for each of its copies, and counts so. Of a list as much is
/// taken as one step may store; the rest comes again. A message that is too much by itself is refused.
#[test]
fn of_a_list_as_much_is_taken_as_one_step_may_store() {
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
