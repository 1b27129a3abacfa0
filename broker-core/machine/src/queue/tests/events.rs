//! Events of messages for journeys (CON-29).

use super::*;
use crate::command::Settlement;
use crate::event::{EventKind, LockEnd};

const HOLDER: Option<ReceiverId> = Some(ReceiverId(1));

/// Takes the events until now.
fn taken(stand: &mut Stand) -> Vec<(Option<ReceiverId>, EventKind)> {
    stand.events.drain(..).map(|event| (event.holder, event.kind)).collect()
}

/// CON-30: a queue notes no event without journeys, and still counts the ends of locks. The holder
/// of a session lock is the holder of its messages.
#[test]
fn events_are_noted_only_for_journeys() {
    for (in_session, notes_events) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut stand = Stand::new(|queue| {
            queue.requires_session = in_session;
            queue.requires_duplicate_detection = true;
        });
        stand.notes_events = notes_events;
        let session = in_session.then(|| "s".into());
        let send = |message: &mut Message| {
            message.session_id.clone_from(&session);
            message.message_id = Some("id".into());
        };
        let check = |stand: &mut Stand, expected: &[(Option<ReceiverId>, EventKind)]| {
            assert_eq!(taken(stand), if notes_events { expected } else { &[] });
        };
        stand.send(1, send);
        stand.send(1, send);
        let is_duplicate = |kind: EventKind| matches!(kind, EventKind::Duplicate { .. });
        let sent = taken(&mut stand);
        assert_eq!(sent.len(), usize::from(notes_events));
        assert!(sent.iter().all(|(_, kind)| is_duplicate(*kind)));
        let tokens = if in_session {
            accept(&mut stand, 1);
            receive_in_session(&mut stand, 1, 1)
        } else {
            stand.receive(SubQueue::Main, 1, 1)
        };
        check(&mut stand, &[(HOLDER, EventKind::Delivered { delivery_count: 0 })]);
        let [token] = tokens[..] else { panic!("{tokens:?}") };
        if !in_session {
            stand.ask(Command::RenewLock { token });
            check(&mut stand, &[(HOLDER, EventKind::Renewed)]);
        }
        stand.ask(Command::Settle { token, settlement: Settlement::Complete });
        check(&mut stand, &[(HOLDER, EventKind::LockEnded { end: LockEnd::Settled })]);
        assert_eq!(stand.ended, 1);
    }
}
