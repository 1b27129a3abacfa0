use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::request::Released;

use super::stand::message;
use crate::arrivals::{Mail, removed_count};

/// RCV-02: of what nobody is told those messages are lost that were removed as they were received: not what is under a
/// lock, nor what was only looked at.
#[test]
fn what_was_removed_and_is_told_to_nobody_is_lost() {
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
