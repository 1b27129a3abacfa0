//! Inquiries of operators about locks and sessions against sorted lists (CON-25, CON-27).

use std::collections::BTreeMap;

use super::inspect::{Random, SESSIONS};
use super::*;
use crate::command::{SessionFilter, Settlement};
use crate::inspect::{
    Excerpt, Inquiry, LockOrder, LockQuery, LockRow, RowKey, SessionOrder, SessionQuery, SessionRow,
};
use crate::slot::SlotState;

pub(super) fn locks_of(
    stand: &Stand,
    sub_queue: SubQueue,
    order: LockOrder,
    count_max: u32,
) -> Vec<LockRow> {
    let (mut all, mut after) = (Vec::<LockRow>::new(), None);
    loop {
        let (mut page, mut query) = (Vec::new(), LockQuery { order, from: 0, after, count_max });
        let mut total = 0;
        loop {
            let excerpt = stand.excerpt(sub_queue, &Inquiry::Locks(query));
            let Excerpt::Locks { locks, next, count } = excerpt else { panic!("other excerpt") };
            total += count;
            assert!(locks.is_sorted_by_key(|row| row.key(order)));
            page.extend(locks);
            let Some(next) = next else { break };
            query.from = next;
        }
        page.sort_by_key(|row| row.key(order));
        page.truncate(count_max as usize);
        after = page.last().map(|row| row.key(order));
        all.extend(page);
        if after.is_none() {
            assert_eq!(all.len() as u64, total);
            return all;
        }
    }
}

/// CON-25: pages of locks by end and by age are the sorted locks of the sub-queue, with start, end and renewals.
#[test]
fn inspected_locks_equal_a_sorted_list() {
    let mut random = Random(5);
    let mut stand = Stand::new(|_| {});
    let (mut held, mut expected) = (Vec::new(), BTreeMap::new());
    for round in 0..60 {
        stand.send(20, |_| {});
        stand.now = stand.now.plus(TimeSpan::from_ms(i64::try_from(random.below(3)).unwrap()));
        let until = stand.now.plus(stand.queue.description.lock_duration);
        for token in stand.receive(SubQueue::Main, 15, round % 4) {
            held.push(token);
            expected.insert(token.sequence(), (stand.now, until, 0));
        }
        for _ in 0..10 {
            let place = usize::try_from(random.below(held.len() as u64)).unwrap();
            if random.below(2) == 0 {
                let token = held.swap_remove(place);
                expected.remove(&token.sequence());
                stand.ask(Command::Settle { token, settlement: Settlement::Complete });
            } else {
                stand.ask(Command::RenewLock { token: held[place] });
                let (_, end, renewals) = expected.get_mut(&held[place].sequence()).unwrap();
                (*end, *renewals) = (until, *renewals + 1);
            }
        }
        if round % 20 == 0 {
            let dead = held.split_off(held.len() - 5);
            expected.retain(|sequence, _| dead.iter().all(|token| token.sequence() != *sequence));
            stand.dead_letter(&dead);
            assert_eq!(stand.receive(SubQueue::DeadLetter, 2, 9).len(), 2);
        }
        for order in [LockOrder::End, LockOrder::Age] {
            let rows = locks_of(&stand, SubQueue::Main, order, 7);
            assert!(rows.is_sorted_by_key(|row| row.key(order)));
            let found: BTreeMap<_, _> = rows
                .iter()
                .map(|row| (row.sequence, (row.lock.taken_at, row.lock.until, row.lock.renewals)))
                .collect();
            assert_eq!((found.len(), &found), (rows.len(), &expected));
            assert!(rows.iter().all(|row| row.lock.holder.is_some() && row.session.is_none()));
        }
        assert_eq!(locks_of(&stand, SubQueue::DeadLetter, LockOrder::Age, 1).len() % 2, 0);
    }
}

fn sessions_of(stand: &Stand, query: &SessionQuery) -> Vec<SessionRow> {
    let (mut all, mut query) = (Vec::<SessionRow>::new(), query.clone());
    loop {
        let mut page = Vec::new();
        query.from = None;
        loop {
            let excerpt = stand.excerpt(SubQueue::Main, &Inquiry::Sessions(query.clone()));
            let Excerpt::Sessions { rows, next, .. } = excerpt else { panic!("other excerpt") };
            page.extend(rows);
            let is_by_name = query.order == SessionOrder::Name && !query.is_descending;
            if next.is_none() || is_by_name && page.len() == query.count_max as usize {
                break;
            }
            query.from = next;
        }
        page.sort_by_key(|row| row.key(query.order));
        if query.is_descending {
            page.reverse();
        }
        page.truncate(query.count_max as usize);
        query.beyond = page.last().map(|row| row.key(query.order));
        all.extend(page);
        if query.beyond.is_none() {
            return all;
        }
    }
}

/// CON-27: sessions by each column, in both directions, are a sorted list; the state of a session is read without its
/// lock.
#[test]
fn inspected_sessions_equal_a_sorted_list() {
    let mut random = Random(11);
    let mut stand = Stand::new(|queue| {
        queue.requires_session = true;
        queue.lock_duration = TimeSpan::from_seconds(5);
    });
    let (mut locks, mut are_stuck) = (Vec::new(), 0);
    for _ in 0..150 {
        stand.act(&mut random, true, &mut locks);
        if let Some(session) = stand.queue.session_named(random.of(&SESSIONS))
            && let Some(held) = session.hold()
        {
            let (receiver, state) = (held.receiver, bytes::Bytes::from_static(b"at work"));
            let state = (random.below(3) > 0).then_some(state);
            let command = crate::command::SessionCommand::SetState { state };
            stand.try_ask(Command::InSession { receiver, command });
            stand.wait();
        }
        let mut plain = Vec::new();
        for (_, session) in stand.queue.sessions.iter().flat_map(|sessions| sessions.iter()) {
            let count = |state: SlotState| {
                let members = session.members().iter_from(SequenceNumber(0));
                let is = |one: &SequenceNumber| stand.queue.slots.get(*one).unwrap().state == state;
                members.filter(is).count() as u64
            };
            let oldest = session.members().iter_from(SequenceNumber(0)).find_map(|one| {
                let slot = stand.queue.slots.get(one)?;
                (slot.state != SlotState::Scheduled).then_some(slot.enqueued_at)
            });
            let counts = [SlotState::Active, SlotState::Deferred, SlotState::Scheduled].map(count);
            let is_stuck =
                oldest.is_some_and(|at| at < stand.now.minus(TimeSpan::from_seconds(50)));
            are_stuck += usize::from(is_stuck);
            plain.push((session.name().clone(), counts, oldest, is_stuck));
        }
        for order in [
            SessionOrder::Name,
            SessionOrder::Active,
            SessionOrder::Deferred,
            SessionOrder::Scheduled,
            SessionOrder::Oldest,
            SessionOrder::StateSize,
            SessionOrder::StateSetAt,
            SessionOrder::LockedUntil,
        ] {
            for is_descending in [false, true] {
                let (filter, from) = (SessionFilter::All, None);
                let (beyond, count_max) = (None::<RowKey>, 2);
                let query = SessionQuery { order, is_descending, filter, from, beyond, count_max };
                let mut rows = sessions_of(&stand, &query);
                let keys = rows.iter().map(|row| row.key(order));
                assert!(if is_descending {
                    keys.is_sorted_by(|a, b| a > b)
                } else {
                    keys.is_sorted()
                });
                rows.sort_by(|a, b| a.name.cmp(&b.name));
                let facts: Vec<_> = rows
                    .iter()
                    .map(|row| {
                        let counts = [row.active, row.deferred, row.scheduled];
                        (row.name.clone(), counts, row.oldest_at, row.is_stuck)
                    })
                    .collect();
                assert_eq!(facts, plain, "{order:?}");
            }
        }
        let name = random.of(&SESSIONS);
        let has_state = stand.queue.session_named(name).is_some_and(|one| one.state().is_some());
        let inquiry = Inquiry::SessionState { session: name.into() };
        let Excerpt::SessionState(state) = stand.excerpt(SubQueue::Main, &inquiry) else {
            panic!("other excerpt")
        };
        assert_eq!(state.is_some(), has_state);
        for order in [LockOrder::End, LockOrder::Age] {
            let rows = locks_of(&stand, SubQueue::Main, order, 1);
            assert_eq!(rows.len() as u64, stand.queue.sessions.as_ref().unwrap().counts().locked);
            assert!(rows.iter().all(|row| row.lock.is_of_session && row.session.is_some()));
        }
    }
    assert!(are_stuck > 0, "no session was stuck");
    stand.queue.check_invariants().unwrap();
}
