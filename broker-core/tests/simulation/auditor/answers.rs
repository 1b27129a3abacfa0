//! Facts that an acknowledgement makes certain.

use super::*;

pub(super) fn accepted(
    book: &mut Book,
    pending: &Pending,
    numbers: &[u64],
    order: u64,
    now: Timestamp,
) {
    assert_eq!(numbers.len(), pending.markers.len(), "one number for each message of a batch");
    if !book.description.requires_duplicate_detection {
        let consecutive = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
        assert!(consecutive, "a batch has the numbers {numbers:?} (SND-31)");
    }
    book.used_at = book.used_at.max(pending.asked_at);
    for (marker, number) in pending.markers.iter().zip(numbers) {
        let known_number = book.by_number.get(number).copied();
        let duplicate = *number == 0 || known_number.is_some_and(|known| known != *marker);
        let message_id = book.messages[marker].sent.message_id;
        if duplicate {
            assert!(message_id.is_some(), "number {number} for a message that repeats nothing");
            let repeats = book.messages.values().any(|earlier| {
                earlier.sent.message_id == message_id && earlier.sending == Sending::Accepted
            });
            assert!(repeats, "{marker} is called a duplicate of a message that is lost (DUP-02)");
            if let Some(message) = book.messages.get_mut(marker) {
                message.sending = Sending::Duplicate;
            }
            continue;
        }
        book.learn_number(*number, *marker);
        if let Some(message) = book.messages.get_mut(marker) {
            message.sending = Sending::Accepted;
            message.accepted_as = *number;
            message.accepted_at = now;
            message.touched |= message.sent.scheduled_at.is_some();
        }
        let Some(message_id) = message_id else { continue };
        let acceptance =
            Acceptance { asked_at: pending.asked_at, known_at: now, known_order: order };
        if let Some(earlier) = book.ids.insert(message_id, acceptance) {
            let window = book.description.duplicate_detection_history_time_window;
            let inside = now.since(earlier.asked_at) < window;
            assert!(
                !(inside && pending.order > earlier.known_order),
                "two messages with id {message_id} within {window} (DUP-02), the first known at {}",
                earlier.known_at
            );
        }
    }
}

/// Records that a settlement was sent: it may take effect before its answer.
pub(super) fn settling(book: &mut Book, token: LockToken, settlement: &Settlement) {
    if !matches!(settlement, Settlement::Complete) {
        forget_lock(book, token);
    }
    if matches!(settlement, Settlement::DeadLetter { .. } | Settlement::Defer { .. })
        && let Some((marker, _)) = book.tokens.get(&token)
        && let Some(message) = book.messages.get_mut(marker)
    {
        message.touched = true;
    }
}

/// Records a settlement with an unknown outcome; in a transaction, with a message that was sent
/// `with` it.
pub(super) fn perhaps_settled(
    book: &mut Book,
    token: LockToken,
    settlement: &Settlement,
    with: Option<u64>,
) {
    let Some((marker, _)) = book.tokens.get(&token) else { return };
    let Some(message) = book.messages.get_mut(marker) else { return };
    match (settlement, with) {
        (Settlement::Complete, None) => message.perhaps_gone = true,
        (Settlement::Complete, Some(sent)) => message.gone_with.push(sent),
        (Settlement::Defer { .. }, _) => message.perhaps_deferred = true,
        (Settlement::DeadLetter { .. }, _) => message.perhaps_dead = true,
        (Settlement::Abandon { .. } | Settlement::Release, _) => {}
    }
}

fn forget_lock(book: &mut Book, token: LockToken) {
    if let Some((marker, _)) = book.tokens.get(&token)
        && let Some(message) = book.messages.get_mut(marker)
        && message.lock.is_some_and(|lock| lock.token == token)
    {
        message.lock = None;
    }
}

pub(super) fn settled(
    book: &mut Book,
    token: LockToken,
    settlement: &Settlement,
    asked_at: Timestamp,
    order: u64,
) {
    let Some((marker, count)) = book.tokens.get(&token).copied() else {
        panic!("a token that nobody was given settles");
    };
    // A delayed message that others may pass is not the next of its session (RTY-23).
    let may_be_passed = book
        .descriptions()
        .any(|description| description.session_retry_order == SessionRetryOrder::Pass);
    let Some(message) = book.messages.get_mut(&marker) else { return };
    assert!(message.gone_at.is_none(), "message {marker} is settled after it was gone (LIF-02)");
    message.lock = message.lock.filter(|lock| lock.token != token);
    match settlement {
        Settlement::Complete => message.gone_at = Some(order),
        Settlement::Abandon { delay, .. } => {
            // A dead-letter queue counts nothing (SET-38).
            message.count_floor = message.count_floor.max(count + u32::from(!message.dead));
            if let Some(delay) = delay
                && message.last_token == Some(token)
            {
                message.delayed_until = Some((message.dead, asked_at.plus(*delay)));
            }
            // It comes next in its session, unless it reached the maximum of deliveries (SES-20).
            let is_left = book.max_delivery_count_min > count + 1;
            message.touched &= !(is_left && !may_be_passed && comes_next(message, token));
        }
        Settlement::Defer { .. } => {
            message.count_floor = message.count_floor.max(count + u32::from(!message.dead));
            // Unless it reached the maximum of deliveries (SET-33).
            message.deferred = book.max_delivery_count_min > count + 1 || message.dead;
            message.perhaps_deferred = !message.deferred;
        }
        Settlement::DeadLetter { .. } => {
            message.dead = true;
            message.deferred = false;
        }
        Settlement::Release => message.touched &= !comes_next(message, token),
    }
}

/// Whether a released message is the next of its session and was not delivered since: an answer may
/// wait for a commit that a delivery does not wait for.
fn comes_next(message: &Message, token: LockToken) -> bool {
    message.sent.session.is_some() && !message.deferred && message.last_token == Some(token)
}

pub(super) fn peeked(book: &mut Book, pending: &Pending, message: &ReceivedMessage) -> u64 {
    let marker = marker(message.content.loaded().expect("it is in memory").clone());
    book.learn_number(message.facts.sequence.0, marker);
    let Some(known) = book.messages.get(&marker) else {
        panic!("message {marker} is peeked and was never sent");
    };
    assert!(
        !matches!(known.sending, Sending::Refused | Sending::Duplicate),
        "a message that was refused is peeked (ERR-06): {known:?}"
    );
    assert!(
        known.gone_at.is_none_or(|at| at > pending.order),
        "a message is peeked that was gone when the peek was asked (PEK-03): {known:?}"
    );
    assert!(message.facts.lock.is_none(), "a peek shows a lock (PEK-05)");
    marker
}
