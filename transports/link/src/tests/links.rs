//! Flow, drains, ends and pending requests of links, against an entity that records its commands.
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_core::command::{Command, Drain, LinkEnd, Outcome, ReceiveMode, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::error::Rejection;
use peeklock_core::path::SubQueue;
use peeklock_core::request::Released;
use peeklock_core::store::StoreError;
use peeklock_core::time::TimeSpan;

use super::stand::{Stand, WINDOW_BYTES, at, message, token};
use crate::pending::correlation;
use crate::{Event, LinkRole, PendingClose, numbered_bytes};

/// The limit counts from the attach: credit and the maximum of unsettled deliveries bound it, and
/// settling raises it. The test checks the limits that are sent; the entity enforces them.
#[test]
fn limits_follow_credit_and_unsettled_deliveries() {
    let mut stand = Stand::new();
    let receiver = stand.receiver(1, 100);
    for sequence in 1..=4 {
        let event = stand.deliver(receiver, sequence, 50);
        assert!(matches!(event, Event::Delivered { link: 1, number, .. } if number == sequence));
    }
    // The table holds at most four deliveries, and none is settled.
    stand.links.update_limits(1);
    let limit = |commands: &[Command]| match commands {
        [Command::SetCredit { delivery_limit, drain: Drain::No, .. }] => Some(*delivery_limit),
        _ => None,
    };
    assert_eq!(limit(&stand.commands()), None);
    assert_eq!(
        stand.links.remove_settled(token(2)).map(|held| (held.link, held.number)),
        Some((1, 2))
    );
    stand.links.update_limits(1);
    assert_eq!(limit(&stand.commands()), Some(5));
    // Deliveries whose locks have ended make room without a settlement.
    stand.deliver(receiver, 5, 90);
    stand.links.remove_ended(at(60));
    assert_eq!(stand.links.unsettled.count(1), 1);
    assert_eq!(limit(&stand.commands()), Some(8));
}

/// DESIGN D6: a delivery is removed after its lock has ended, whether its receiver is full or not.
/// Otherwise each link that a message was ever delivered on would remember it. A renewal under way
/// has five minutes to arrive.
#[test]
fn a_delivery_is_forgotten_when_its_lock_has_ended() {
    const GRACE: u64 = 5 * 60 * 10_000_000;
    let mut stand = Stand::new();
    let receiver = stand.receiver(1, 100);
    for sequence in 1..=3 {
        stand.deliver(receiver, sequence, 50);
    }
    stand.links.remove_ended(at(49 + GRACE));
    assert_eq!(stand.links.unsettled.count(1), 3);
    assert!(stand.commands().is_empty());
    stand.links.remove_ended(at(50 + GRACE));
    assert!(stand.links.unsettled.is_empty());
    assert!(matches!(stand.commands()[..], [Command::SetCredit { delivery_limit: 7, .. }]));
}

/// SES-15: deliveries of a session stay in the table while their link holds the session, so that
/// later settlements are answered with the loss of the session lock, and no longer.
#[test]
fn deliveries_of_a_session_are_forgotten_when_it_is_lost() {
    let mut stand = Stand::new();
    let entity = stand.entity.clone();
    stand.links.attach(1, entity, "q".into(), LinkRole::Receiver, ReceiveMode::PeekLock);
    stand.links.accept(1, None, TimeSpan::ZERO, 9, 7, None);
    let (_, correlation) = stand.requests().remove(0);
    let receiver = stand.links.get(1).unwrap().receiver;
    let (session, locked_until) = ("s".into(), at(50));
    let accepted =
        Outcome::SessionAccepted { session, receiver, locked_until, session_entrance: None };
    stand.answer(correlation, Ok(accepted));
    for sequence in 1..=4 {
        stand.deliver(receiver, sequence, 50);
    }
    stand.links.remove_ended(at(60));
    assert_eq!(stand.links.unsettled.count(1), 4);
    let reason = Rejection::session_lock_lost("it has expired");
    stand.links.handle_released(Released::Detached { receiver, reason });
    assert!(stand.links.get(1).unwrap().has_lost_session());
    stand.links.remove_ended(at(60));
    assert!(stand.links.unsettled.is_empty());
}

/// A link goes on after 2³² deliveries: limits, unsettled deliveries and the rest of a drain use
/// numbers that keep counting (AMQP-09).
#[test]
fn delivery_numbers_continue_after_32_bits() {
    let first = u64::from(u32::MAX) - 2;
    let mut stand = Stand::counting_from(first);
    let receiver = stand.receiver(1, first + 4);
    for sequence in 1..=4 {
        let event = stand.deliver(receiver, sequence, 50);
        let Event::Delivered { number, .. } = event else { panic!("{event:?}") };
        assert_eq!(number, first + sequence);
    }
    let settled =
        (1..=4).map(|sequence| stand.links.remove_settled(token(sequence)).unwrap().number);
    assert_eq!(settled.collect::<Vec<_>>(), [first + 1, first + 2, first + 3, first + 4]);
    stand.links.credit(1, first + 6);
    assert!(matches!(stand.commands()[..], [Command::SetCredit { delivery_limit: 6, .. }]));
    stand.links.drain(1, 7, None).unwrap();
    let (_, correlation) = stand.requests().remove(0);
    stand.deliver(receiver, 5, 50);
    stand.answer(correlation, Ok(Outcome::Granted { unused: 1 }));
    assert_eq!(stand.links.get(1).unwrap().last(), first + 5);
    stand.links.credit(1, first + 7);
    assert!(matches!(stand.commands()[..], [Command::SetCredit { delivery_limit: 7, .. }]));
}

/// Received bytes raise the byte limit once they reach half of the window.
#[test]
fn bytes_are_given_back_by_halves_of_the_window() {
    let mut stand = Stand::new();
    stand.receiver(1, 2);
    stand.links.record_received_bytes(1, WINDOW_BYTES / 2 - 1);
    stand.links.update_limits(1);
    assert!(stand.commands().is_empty());
    stand.links.record_received_bytes(1, 1);
    stand.links.update_limits(1);
    let asked = stand.commands();
    let [Command::SetCredit { byte_limit, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(*byte_limit, WINDOW_BYTES + WINDOW_BYTES / 2);
}

/// RCV-18: a drain is answered with the unused credit, and ends the credit at the last delivery.
#[test]
fn a_drain_ends_at_the_last_delivery() {
    let mut stand = Stand::new();
    let receiver = stand.receiver(1, 3);
    assert_eq!(stand.links.drain(1, 7, None).unwrap(), None);
    assert!(stand.links.drain(1, 8, None).is_err());
    let requests = stand.requests();
    let [(Command::SetCredit { delivery_limit: 3, drain: Drain::Yes, .. }, correlation)] =
        requests[..]
    else {
        panic!("{requests:?}")
    };
    stand.deliver(receiver, 1, 50);
    let event = stand.answer(correlation, Ok(Outcome::Granted { unused: 2 }));
    assert!(matches!(event, Event::Drained { id: 7, result: Ok(2), .. }), "{event:?}");
    stand.commands();
    stand.links.credit(1, 2);
    assert!(matches!(stand.commands()[..], [Command::SetCredit { delivery_limit: 2, .. }]));
}

/// RCV-14: messages that arrive for a link that is being closed are released, without counting a
/// delivery, before the detach.
#[test]
fn a_detach_releases_arriving_messages() {
    let mut stand = Stand::new();
    let receiver = stand.receiver(1, 10);
    stand.links.detach(1, PendingClose { id: 9, end: LinkEnd::Orderly });
    let requests = stand.requests();
    let [(Command::SetCredit { delivery_limit: 0, .. }, quiet)] = requests[..] else { panic!() };
    assert!(matches!(stand.deliver(receiver, 1, 50), Event::Nothing));
    assert!(matches!(stand.answer(quiet, Ok(Outcome::Granted { unused: 0 })), Event::Nothing));
    let requests = stand.requests();
    let [
        (Command::Settle { token: given, settlement: Settlement::Release }, _),
        (Command::Detach { end: LinkEnd::Orderly, .. }, detached),
    ] = requests[..]
    else {
        panic!("{requests:?}")
    };
    assert_eq!(given, token(1));
    let event = stand.answer(detached, Ok(Outcome::Done));
    assert!(matches!(event, Event::Done { id: 9, result: Ok(()), .. }), "{event:?}");
    assert!(stand.links.is_empty());
}

/// Receives reserve the bytes of their answers before they are submitted. A receive that does not
/// wait needs room; a waiting receive always has a minimum.
#[test]
fn a_receive_has_its_room_before_it_is_asked() {
    let mut stand = Stand::new();
    stand.receiver(1, 0);
    let bytes_of = |commands: Vec<(Command, u64)>| match commands[..] {
        [(Command::Receive { bytes_max, .. }, correlation)] => (bytes_max, correlation),
        _ => panic!("{commands:?}"),
    };
    let room = 100_000;
    assert!(stand.links.may_receive(room));
    stand.links.receive(1, 10, TimeSpan::ZERO, room, 1, None);
    let (first, correlation) = bytes_of(stand.requests());
    assert_eq!(first, room);
    assert!(!stand.links.may_receive(room));
    stand.links.receive(1, 10, TimeSpan::from_seconds(5), room, 2, None);
    assert_eq!(bytes_of(stand.requests()).0, 4_096);
    let event = stand.answer(correlation, Ok(Outcome::Received(Vec::new())));
    assert!(matches!(event, Event::Messages { id: 1, result: Ok(_), .. }));
    assert!(stand.links.may_receive(room));
    assert_eq!(stand.links.waiting_count(), 1);
    stand.links.cancel_wait(2);
    assert!(matches!(stand.commands()[..], [Command::CancelReceive { .. }]));
}

/// DEF-11: a receive by numbers reserves the estimated bytes of its answer before it is submitted.
/// If nothing is reserved, it may always be submitted.
#[test]
fn a_receive_by_numbers_has_its_room_before_it_is_asked() {
    let mut stand = Stand::new();
    stand.receiver(1, 0);
    let (most, room) = (4 << 20, 2 << 20);
    assert_eq!([0, 1, 3].map(|count| numbered_bytes(count, most)), [0, 64 << 10, 192 << 10]);
    assert_eq!(numbered_bytes(4_096, most), most);
    let ask = |stand: &mut Stand, bytes, id| {
        let mode = peeklock_core::command::ReceiveMode::PeekLock;
        let command = Command::ReceiveDeferred { mode, sequences: Vec::new(), holder: None };
        stand.links.receive_numbered(1, command, bytes, id, None);
        stand.requests().remove(0).1
    };
    assert!(stand.links.may_receive_numbered(most, room));
    let large = ask(&mut stand, most, 1);
    assert!(!stand.links.may_receive_numbered(1, room) && !stand.links.may_receive(room));
    stand.answer(large, Err(Rejection::internal("no")));
    let small = ask(&mut stand, 64 << 10, 2);
    let left = room - (64 << 10);
    assert!(stand.links.may_receive_numbered(left, room) && stand.links.may_receive(room));
    assert!(!stand.links.may_receive_numbered(left + 1, room));
    stand.answer(small, Ok(Outcome::Received(Vec::new())));
    assert!(stand.links.may_receive_numbered(most, room));
}

/// Locked messages are released if they no longer reach the client. Received-and-deleted messages
/// are lost and counted (RCV-02).
#[test]
fn abandoned_messages_are_released_or_counted() {
    let mut stand = Stand::new();
    stand.receiver(1, 0);
    stand.links.receive(1, 10, TimeSpan::ZERO, 10_000, 1, None);
    let correlation = stand.requests().last().unwrap().1;
    stand.links.begin_end();
    assert_eq!(stand.links.unstopped_count(), 2);
    let mut taken = message(2, 50, 10);
    taken.facts.lock = None;
    let result = Ok(Outcome::Received(vec![message(1, 50, 10), taken]));
    let released = peeklock_core::request::Released::Answer { correlation, result };
    assert_eq!(stand.links.note_undelivered(released), 1);
    let quiet = stand.requests().last().unwrap().1;
    let result = Ok(Outcome::Granted { unused: 0 });
    let released = peeklock_core::request::Released::Answer { correlation: quiet, result };
    assert_eq!(stand.links.note_undelivered(released), 0);
    assert_eq!(stand.links.unstopped_count(), 0);
    stand.links.finish_end(LinkEnd::Broken, 1);
    let asked = stand.commands();
    assert!(
        matches!(
            &asked[..],
            [Command::Settle { settlement: Settlement::Release, .. }, Command::Detach { .. }]
        ),
        "{asked:?}"
    );
}

/// RCV-02: the end waits for a receive-and-delete request of the transport and counts its messages;
/// it does not wait for other requests.
#[test]
fn deleting_requests_are_counted_at_the_end() {
    let mut stand = Stand::new();
    stand.links.add_unlinked_request("q".into(), 0, None, "renew");
    let slot = stand.links.add_deleting_request("q".into(), 0, None, "receive");
    assert!(matches!(stand.links.request_mut(slot), Some((0, _, &mut "receive"))));
    assert_eq!(stand.links.unstopped_count(), 1);
    let mut taken = message(1, 50, 10);
    taken.facts.lock = None;
    let result = Ok(Outcome::Received(vec![taken.clone(), taken]));
    let released = Released::Answer { correlation: correlation(slot, 0), result };
    assert_eq!(stand.links.note_undelivered(released), 2);
    assert_eq!(stand.links.unstopped_count(), 0);
    assert_eq!(stand.links.pending_count(), 1);
}

/// RCV-02: messages received and deleted while their link or connection ends are counted, because
/// they cannot be released. Locked messages are released. Messages that reached the transport are
/// its to count.
#[test]
fn deleted_messages_of_ending_links_are_counted() {
    let mut stand = Stand::new();
    let receiver = stand.receiver(1, 5);
    let deliver = |stand: &mut Stand, is_locked: bool| {
        let mut message = Box::new(message(1, 50, 10));
        message.facts.lock = message.facts.lock.filter(|_| is_locked);
        stand.links.handle_released(Released::Delivery { receiver, message })
    };
    assert!(matches!(deliver(&mut stand, false), Event::Delivered { .. }));
    assert_eq!(stand.links.lost_count, 0);
    stand.links.return_deliveries();
    assert!(matches!(deliver(&mut stand, true), Event::Nothing));
    assert_eq!(stand.links.lost_count, 0);
    assert!(matches!(deliver(&mut stand, false), Event::Nothing));
    assert_eq!(stand.links.lost_count, 1);
    stand.links.detach(1, PendingClose { id: 7, end: LinkEnd::Orderly });
    assert!(matches!(deliver(&mut stand, false), Event::Nothing));
    assert_eq!(stand.links.lost_count, 2);
}

/// A receiver that was attached with credit is removed if the attach fails; a receiver that got its
/// credit later stays without a flow.
#[test]
fn a_refused_attach_leaves_nothing() {
    let mut stand = Stand::new();
    stand.receiver(1, 5);
    let entity = stand.entity.clone();
    let role = crate::LinkRole::Receiver;
    let mode = peeklock_core::command::ReceiveMode::PeekLock;
    stand.links.attach(2, entity, "q".into(), role, mode);
    let permit = peeklock_core::admission::Budget::new(1).try_take(1).unwrap();
    stand.links.attach_flow(2, 5, 4, std::sync::Arc::new(permit));
    let correlation = stand.requests().first().unwrap().1;
    let event = stand.answer(correlation, Err(Rejection::internal("no")));
    assert!(matches!(event, Event::Done { id: 4, result: Err(_), .. }), "{event:?}");
    assert!(stand.links.get(2).is_none() && stand.links.get(1).is_some());
}

/// Commands issued before a link was refused go to the entity; later ones are answered immediately,
/// so that every request leaves the table in the end.
#[test]
fn commands_on_a_refused_link_are_answered() {
    let mut stand = Stand::new();
    let entity = stand.entity.clone();
    stand.links.attach(2, entity, "q".into(), LinkRole::Receiver, ReceiveMode::PeekLock);
    let permit = peeklock_core::admission::Budget::new(1).try_take(1).unwrap();
    stand.links.attach_flow(2, 5, 4, Arc::new(permit));
    let attach = stand.requests().first().unwrap().1;
    let slot = stand.links.add_request(2, 9, None, "renewals");
    let renew = || Command::RenewLock { token: token(1) };
    stand.links.submit(2, renew(), correlation(slot, 0));
    stand.answer(attach, Err(Rejection::internal("no")));
    assert!(stand.links.get(2).is_none());
    assert!(matches!(stand.commands()[..], [Command::RenewLock { .. }]));
    assert_eq!(stand.dropped_answer(), None);
    stand.links.submit(2, renew(), correlation(slot, 1));
    assert!(stand.commands().is_empty());
    assert_eq!(stand.dropped_answer(), Some(correlation(slot, 1)));
}

/// A waiting receive reserves at most a quarter of the room; receives that do not wait get the
/// rest.
#[test]
fn a_waiting_receive_leaves_room_for_others() {
    let mut stand = Stand::new();
    stand.receiver(1, 0);
    let room_bytes = WINDOW_BYTES / 2;
    let promised = |commands: &[Command]| match commands {
        [Command::Receive { bytes_max, .. }] => *bytes_max,
        other => panic!("{other:?}"),
    };
    stand.links.receive(1, 10, TimeSpan::from_minutes(1), room_bytes, 7, None);
    assert_eq!(promised(&stand.commands()), room_bytes / 4);
    assert!(stand.links.may_receive(room_bytes));
    stand.links.receive(1, 10, TimeSpan::ZERO, room_bytes, 8, None);
    assert_eq!(promised(&stand.commands()), room_bytes * 3 / 4);
    // Now all room is reserved; the next receive may be submitted when one of these is answered.
    assert!(!stand.links.may_receive(room_bytes));
    // A waiting receive may always bring a minimum, so that it can be answered with messages.
    stand.links.receive(1, 10, TimeSpan::from_minutes(1), room_bytes, 9, None);
    assert_eq!(promised(&stand.commands()), 4 << 10);
}

/// Content that the store has lost.
struct Lost;

#[async_trait]
impl StoredContent for Lost {
    fn length(&self) -> u64 {
        10
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        Err(StoreError::Failed("lost".into()))
    }
}

/// RCV-31: a message whose content cannot be loaded at present is released uncounted, and the flow
/// ends with `ServerBusy`. A removed message is lost, so its flow ends with `InternalError`.
#[test]
fn a_message_is_released_while_its_content_is_not_available() {
    let unavailable = || ContentRef::failed(10, StoreError::Unavailable("no answer".into()));
    for is_removed in [false, true] {
        let mut stand = Stand::new();
        let receiver = stand.receiver(1, 9);
        let mut message = message(7, 50, 10);
        // Another content of the message may be there.
        message.overlays = vec![unavailable()];
        if is_removed {
            message.facts.lock = None;
        }
        let event = stand
            .links
            .handle_released(Released::Delivery { receiver, message: Box::new(message) });
        let Event::Stopped { link: 1, reason, .. } = event else { panic!("{event:?}") };
        let asked = stand.commands();
        if is_removed {
            assert_eq!(reason.condition(), Condition::InternalError);
            assert!(matches!(asked[..], [Command::Detach { .. }]), "{asked:?}");
            assert_eq!(stand.links.lost_count, 1);
            continue;
        }
        assert_eq!(reason.condition(), Condition::ServerBusy);
        assert!(
            matches!(
                asked[..],
                [
                    Command::Settle { token: of, settlement: Settlement::Release },
                    Command::Detach { .. }
                ] if of == token(7)
            ),
            "{asked:?}"
        );
    }
}

/// SET-35, SET-38: lost content is a failed delivery, so that the message is dead-lettered in the
/// end; in a sub-queue, which does not count, redelivery is delayed. The flow ends with an event,
/// the client keeps its unsettled deliveries (SET-21), and messages on their way are released
/// (RCV-14).
#[test]
fn a_message_whose_content_is_lost_fails() {
    let a_minute = Some(TimeSpan::from_minutes(1));
    for (sub_queue, expected) in [(SubQueue::Main, None), (SubQueue::DeadLetter, a_minute)] {
        let mut stand = Stand::new();
        let receiver = stand.receiver(1, 9);
        let mut message = message(7, 50, 10);
        message.facts.sub_queue = sub_queue;
        message.content = ContentRef::Stored(Arc::new(Lost));
        let event = stand
            .links
            .handle_released(Released::Delivery { receiver, message: Box::new(message) });
        assert!(matches!(event, Event::Stopped { link: 1, .. }), "{event:?}");
        let asked = stand.commands();
        let [Command::Settle { token: of, settlement }, Command::Detach { end, .. }] = &asked[..]
        else {
            panic!("{asked:?}");
        };
        assert_eq!((*of, *end), (token(7), LinkEnd::Orderly));
        let Settlement::Abandon { properties: None, delay } = settlement else {
            panic!("{settlement:?}");
        };
        assert_eq!(*delay, expected);
        assert!(matches!(stand.deliver(receiver, 8, 50), Event::Nothing));
        let asked = stand.commands();
        assert!(
            matches!(asked[..], [Command::Settle { token: of, settlement: Settlement::Release }] if of == token(8)),
            "{asked:?}"
        );
    }
}
