//! Counting of messages that are lost with a mailbox.
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::request::Released;

use super::stand::message;
use crate::arrivals::{Mail, removed_count};

/// RCV-02: undelivered messages are lost if they were received and deleted, not if they are locked
/// or were only peeked.
#[test]
fn deleted_undelivered_messages_are_counted_as_lost() {
    let locked = message(1, 50, 10);
    let mut taken = message(2, 50, 10);
    taken.facts.lock = None;
    let all = || vec![locked.clone(), taken.clone(), taken.clone()];
    let answer = |result| Released::Answer { correlation: 0, result };
    let delivery = |message: &ReceivedMessage| Released::Delivery {
        receiver: ReceiverId(1),
        message: Box::new(message.clone()),
    };
    for (released, lost) in [
        (answer(Ok(Outcome::Received(all()))), 2),
        (answer(Ok(Outcome::Peeked(all()))), 0),
        (answer(Err(Rejection::internal("no"))), 0),
        (delivery(&taken), 1),
        (delivery(&locked), 0),
    ] {
        assert_eq!(removed_count([Mail::Own(()), Mail::Released(released)]), lost);
    }
}
