//! Inquiries of operators against plain lists, and their bounds (CON-01, CON-02, CON-25, CON-27, CON-28).

use super::inspect_rows::locks_of;
use super::*;
use crate::command::{SessionFilter, Settlement};
use crate::excerpt::{EXAMINED_MAX, MachineExcerpt};
use crate::inspect::{
    Cursor, Excerpt, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, Inquiry, LockOrder,
    LockQuery, SessionOrder, SessionQuery, TimelineOf, TimelineQuery,
};

/// Pseudorandom numbers that are the same in each run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

pub(super) const SESSIONS: [&str; 5] = ["a", "b", "c", "d", "e"];

impl Stand {
    /// Answers an inquiry within the bounds of a command.
    pub(super) fn excerpt(&self, sub_queue: SubQueue, inquiry: &Inquiry) -> MachineExcerpt {
        let steps = self.queue.work_of_inquiry(inquiry);
        let before = looks::all();
        let excerpt = self.queue.inspect(sub_queue, inquiry, self.now).unwrap();
        let looked = looks::all() - before;
        assert!(steps <= 1_024, "{steps} steps for {inquiry:?}");
        assert!(looked <= 2_048 + 16 * steps, "{looked} slots in {steps} steps for {inquiry:?}");
        excerpt
    }

    /// All pages of a list of messages, as state and number.
    fn heads(&self, sub_queue: SubQueue, query: &HeadQuery) -> Vec<(HeadState, u64)> {
        let (mut query, mut found) = (query.clone(), Vec::new());
        for _ in 0..10_000 {
            let excerpt = self.excerpt(sub_queue, &Inquiry::Heads(query.clone()));
            let Excerpt::Heads { heads, next, .. } = excerpt else { panic!("other excerpt") };
            assert!(heads.len() <= query.count_max as usize);
            for head in heads {
                assert!(head.message.lock.is_none(), "a token is shown (SET-24)");
                assert_eq!(head.lock.is_some(), head.state == HeadState::Locked);
                found.push((head.state, head.message.sequence.0));
            }
            let Some(next) = next else { return found };
            query.start = HeadStart::After(next);
        }
        panic!("the pages do not end");
    }

    /// The same list, from all slots.
    fn plain_heads(&self, sub_queue: SubQueue, query: &HeadQuery) -> Vec<(HeadState, u64)> {
        let mut all = Vec::new();
        for (sequence, slot) in self.queue.slots.iter() {
            let head = self.queue.head(sequence, slot, self.now);
            let is_listed = slot.sub_queue == sub_queue
                && !slot.is_in_flight()
                && query.states.contains(head.state)
                && query.session.as_deref().is_none_or(|one| head.session.as_deref() == Some(one));
            let at = match query.order {
                HeadOrder::Number => Timestamp::NONE,
                HeadOrder::ScheduledAt if head.state == HeadState::Scheduled => slot.enqueued_at,
                HeadOrder::ExpiresAt
                    if self.queue.expiry.watches(sequence, slot) && !head.expires_at.is_never() =>
                {
                    head.expires_at
                }
                HeadOrder::ScheduledAt | HeadOrder::ExpiresAt => continue,
            };
            if is_listed {
                all.push(((at, sequence), slot.enqueued_at, head.state));
            }
        }
        all.sort_unstable_by_key(|(place, ..)| *place);
        if query.is_descending {
            all.reverse();
        }
        all.retain(|((at, sequence), enqueued_at, state)| {
            match (query.start, query.is_descending) {
                (HeadStart::End, _) => true,
                (HeadStart::Number(number), false) => *sequence >= number,
                (HeadStart::Number(number), true) => *sequence <= number,
                (HeadStart::Instant(instant), is_descending) => {
                    let at = if query.order == HeadOrder::Number { *enqueued_at } else { *at };
                    let has_no_place =
                        query.order == HeadOrder::Number && *state == HeadState::Scheduled;
                    has_no_place || if is_descending { at <= instant } else { at >= instant }
                }
                (HeadStart::After(_), _) => panic!("no list begins there"),
            }
        });
        all.into_iter().map(|((_, sequence), _, state)| (state, sequence.0)).collect()
    }

    /// One random command, or time that passes.
    pub(super) fn act(
        &mut self,
        random: &mut Random,
        with_sessions: bool,
        locks: &mut Vec<LockToken>,
    ) {
        let (now, kind) = (self.now, random.below(12));
        let span = TimeSpan::from_seconds(i64::try_from(random.below(200)).unwrap());
        match kind {
            0..=3 => {
                let session = with_sessions.then(|| random.of(&SESSIONS).to_owned());
                let (at, ttl) = (random.below(3) == 0, random.below(3) == 0);
                self.send(usize::try_from(random.below(6)).unwrap(), |message| {
                    message.session_id.clone_from(&session);
                    message.scheduled_enqueue_time = at.then(|| now.plus(span));
                    message.time_to_live = ttl.then(|| span.plus(TimeSpan::from_seconds(1)));
                });
            }
            4 | 5 if with_sessions => {
                let receiver = ReceiverId(self.stage + 1);
                let session = Some(random.of(&SESSIONS).into());
                let (mode, wait) = (ReceiveMode::PeekLock, TimeSpan::ZERO);
                let held =
                    self.queue.session_named(random.of(&SESSIONS)).and_then(|one| one.hold());
                match held.map(|held| held.receiver) {
                    Some(receiver) if random.below(2) == 0 => {
                        locks.extend(receive_in_session(self, receiver.0, 3));
                    }
                    Some(receiver) => {
                        let command = crate::command::SessionCommand::Renew;
                        self.try_ask(Command::InSession { receiver, command });
                    }
                    None => {
                        self.try_ask(Command::AcceptSession { session, receiver, mode, wait });
                    }
                }
            }
            4 | 5 => locks.extend(self.receive(SubQueue::Main, 4, random.below(3))),
            6 => locks.extend(self.receive(SubQueue::DeadLetter, 2, 7)),
            7 | 8 if !locks.is_empty() => {
                let token =
                    locks.swap_remove(usize::try_from(random.below(locks.len() as u64)).unwrap());
                let settlement = match random.below(4) {
                    0 => Settlement::Complete,
                    1 => Settlement::Abandon { properties: None, delay: Some(span) },
                    2 => Settlement::Defer { properties: None },
                    _ => Settlement::DeadLetter { properties: None },
                };
                for which in SubQueue::ALL {
                    self.turn_leniently(
                        which,
                        Command::Settle { token, settlement: settlement.clone() },
                    );
                }
            }
            9 if !locks.is_empty() => {
                let token = random.of(locks);
                self.try_ask(Command::RenewLock { token });
            }
            10 => {
                self.now =
                    now.plus(TimeSpan::from_seconds(i64::try_from(random.below(20)).unwrap()))
            }
            _ => self.wait(),
        }
        self.wait();
    }

    pub(super) fn try_ask(&mut self, command: Command) {
        self.turn_leniently(SubQueue::Main, command);
    }

    /// A turn with a command that may be refused.
    fn turn_leniently(&mut self, sub_queue: SubQueue, command: Command) {
        self.queue.committed(StageNumber(self.stage));
        self.turn_asking(sub_queue, [command], drop);
    }
}

fn all_heads() -> HeadQuery {
    HeadQuery {
        session: None,
        states: HeadStates::ALL,
        order: HeadOrder::Number,
        is_descending: false,
        start: HeadStart::End,
        count_max: 3,
    }
}

fn random_heads(stand: &Stand, random: &mut Random, with_sessions: bool) -> HeadQuery {
    let order = random.of(&[HeadOrder::Number, HeadOrder::ScheduledAt, HeadOrder::ExpiresAt]);
    let instant = {
        let seconds = i64::try_from(random.below(400)).unwrap();
        stand.now.plus(TimeSpan::from_seconds(200)).minus(TimeSpan::from_seconds(seconds))
    };
    let start = match random.below(3) {
        0 => HeadStart::End,
        1 if order == HeadOrder::Number => {
            HeadStart::Number(SequenceNumber(random.below(stand.queue.last_sequence.0 + 2)))
        }
        _ => HeadStart::Instant(instant),
    };
    let states = match random.below(3) {
        0 => HeadStates::ALL,
        1 => HeadStates::default().with(random.of(&HeadState::ALL)),
        _ => (0..3).map(|_| random.of(&HeadState::ALL)).collect(),
    };
    let session = with_sessions && random.below(2) == 0;
    HeadQuery {
        session: session.then(|| random.of(&SESSIONS).into()),
        states,
        order,
        is_descending: random.below(2) == 0,
        start,
        count_max: u32::try_from(1 + random.below(5)).unwrap(),
    }
}

/// CON-02, CON-28: pages of messages in any state, order and direction are a filtered list of all.
#[test]
fn inspected_heads_equal_a_plain_list() {
    for (seed, with_sessions) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed);
        let mut stand = Stand::new(|queue| {
            queue.requires_session = with_sessions;
            queue.lock_duration = TimeSpan::from_seconds(30);
            if seed > 2 {
                queue.default_message_time_to_live = TimeSpan::from_seconds(90);
            }
        });
        let (mut locks, mut seen) = (Vec::new(), BTreeSet::new());
        for round in 0..400 {
            stand.act(&mut random, with_sessions, &mut locks);
            for _ in 0..6 {
                let query = random_heads(&stand, &mut random, with_sessions);
                let by_number = query.order == HeadOrder::Number;
                let which = match by_number && query.session.is_none() {
                    true => random.of(&[SubQueue::Main, SubQueue::Main, SubQueue::DeadLetter]),
                    false => SubQueue::Main,
                };
                let (found, plain) = (stand.heads(which, &query), stand.plain_heads(which, &query));
                // In the order of numbers a list from an instant begins near it: scheduled messages
                // with lower numbers may be missing.
                if by_number && matches!(query.start, HeadStart::Instant(_)) {
                    let settled = |all: &[(HeadState, u64)]| -> Vec<_> {
                        let is_settled =
                            |(state, _): &&(HeadState, u64)| *state != HeadState::Scheduled;
                        all.iter().filter(is_settled).copied().collect()
                    };
                    assert_eq!(settled(&found), settled(&plain), "{seed} {round} {query:?}");
                    assert!(found.iter().all(|one| plain.contains(one)));
                } else {
                    assert_eq!(found, plain, "{seed} {round} {which:?} {query:?}");
                }
                seen.extend(found.into_iter().map(|(state, _)| format!("{state:?}")));
            }
        }
        stand.queue.check_invariants().unwrap();
        assert!(seen.len() >= 6, "only messages in these states: {seen:?}");
    }
}

/// CON-28: the slots of a timeline have the counts of a plain histogram.
#[test]
fn inspected_timeline_equals_a_plain_histogram() {
    let mut random = Random(77);
    let mut stand = Stand::new(|queue| {
        queue.default_message_time_to_live = TimeSpan::from_seconds(500);
    });
    let mut locks = Vec::new();
    for _ in 0..200 {
        stand.act(&mut random, false, &mut locks);
        let of = random.of(&[TimelineOf::Scheduled, TimelineOf::Expiring]);
        let order = match of {
            TimelineOf::Scheduled => HeadOrder::ScheduledAt,
            TimelineOf::Expiring => HeadOrder::ExpiresAt,
        };
        let from = stand.now.plus(TimeSpan::from_seconds(i64::try_from(random.below(60)).unwrap()));
        let slot = TimeSpan::from_seconds(i64::try_from(10 + random.below(50)).unwrap());
        let slot_count = u16::try_from(1 + random.below(9)).unwrap();
        let mut query = TimelineQuery { of, from, slot, slot_count, after: None };
        let all = stand.heads(SubQueue::Main, &HeadQuery { order, ..all_heads() });
        let mut plain = vec![0; usize::from(slot_count) + 2];
        for (_, sequence) in all {
            let slot_of = stand.queue.slots.get(SequenceNumber(sequence)).unwrap();
            let at = match of {
                TimelineOf::Scheduled => slot_of.enqueued_at,
                TimelineOf::Expiring => stand.queue.expires_at(slot_of),
            };
            let place = match at < from {
                true => 0,
                false => 1 + usize::try_from(at.since(from).ticks() / slot.ticks()).unwrap(),
            };
            plain[place.min(usize::from(slot_count) + 1)] += 1;
        }
        // A position between any two entries continues the same count.
        let cut = stand.queue.schedule.range(..).nth(2).filter(|_| of == TimelineOf::Scheduled);
        let whole = stand.excerpt(SubQueue::Main, &Inquiry::Timeline(query));
        let Excerpt::Timeline { counts, before, later, next } = whole else { panic!("other") };
        assert_eq!(next, None);
        assert_eq!([&[before], &counts[..], &[later]].concat(), plain);
        if let Some((at, sequence)) = cut {
            query.after = Some(Cursor { at, sequence });
            let rest = stand.excerpt(SubQueue::Main, &Inquiry::Timeline(query));
            let Excerpt::Timeline { counts, before, later, .. } = rest else { panic!("other") };
            assert_eq!(before + later + counts.iter().sum::<u64>() + 3, plain.iter().sum());
        }
    }
}

/// CON-01, CON-02: among many messages in other states, a command examines a bounded number, and ends with the position
/// of the next one.
#[test]
fn inquiry_examines_a_bounded_number_of_messages() {
    let mut stand = Stand::new(|_| {});
    stand.send(MANY, |_| {});
    let used_at = stand.queue.usage.last_at;
    stand.now = stand.now.plus(TimeSpan::from_seconds(9));
    let query = HeadQuery { states: HeadStates::default().with(HeadState::Expired), ..all_heads() };
    let (mut start, mut commands) = (HeadStart::End, 0);
    loop {
        let inquiry = Inquiry::Heads(HeadQuery { start, ..query.clone() });
        let excerpt = stand.excerpt(SubQueue::Main, &inquiry);
        let Excerpt::Heads { heads, next, examined } = excerpt else { panic!("other excerpt") };
        assert!(heads.is_empty() && examined <= EXAMINED_MAX as u64);
        commands += 1;
        let Some(next) = next else { break };
        start = HeadStart::After(next);
    }
    assert_eq!(commands, MANY.div_ceil(EXAMINED_MAX));
    // No message is scheduled, so none is examined.
    let scheduled = HeadStates::default().with(HeadState::Scheduled);
    let inquiry = Inquiry::Heads(HeadQuery { states: scheduled, ..all_heads() });
    let Excerpt::Heads { next: None, examined: 0, .. } = stand.excerpt(SubQueue::Main, &inquiry)
    else {
        panic!("messages were examined");
    };
    let locks = stand.receive(SubQueue::Main, MANY, 1);
    assert_eq!(locks_of(&stand, SubQueue::Main, LockOrder::Age, 500).len(), locks.len());
    stand.ask(Command::Inspect(inquiry));
    assert_eq!(stand.queue.usage.last_at, used_at.max(stand.now), "the receive was the last use");
    stand.now = stand.now.plus(TimeSpan::from_seconds(9));
    stand.ask(Command::Inspect(Inquiry::Locks(LockQuery {
        order: LockOrder::End,
        from: 0,
        after: None,
        count_max: 1,
    })));
    assert_eq!(stand.queue.usage.last_at, stand.now.minus(TimeSpan::from_seconds(9)), "CON-01");
}

/// CON-02, CON-25, CON-28: bounds of a query are accepted at their limit, and refused with a typed error beyond it.
#[test]
fn inquiry_is_refused_outside_of_its_bounds() {
    let stand = Stand::new(|_| {});
    let is_refused =
        |inquiry: Inquiry| stand.queue.inspect(SubQueue::Main, &inquiry, stand.now).is_err();
    for (count_max, is_over) in [(0, true), (1, false), (500, false), (501, true)] {
        assert_eq!(is_refused(Inquiry::Heads(HeadQuery { count_max, ..all_heads() })), is_over);
        let (order, from, after) = (LockOrder::End, 0, None);
        assert_eq!(
            is_refused(Inquiry::Locks(LockQuery { order, from, after, count_max })),
            is_over
        );
    }
    for (seconds, slot_count, is_over) in [
        (9, 1, true),
        (10, 1, false),
        (86_400, 240, false),
        (86_401, 240, true),
        (10, 0, true),
        (10, 241, true),
    ] {
        let (of, slot) = (TimelineOf::Expiring, TimeSpan::from_seconds(seconds));
        let query = TimelineQuery { of, from: stand.now, slot, slot_count, after: None };
        assert_eq!(is_refused(Inquiry::Timeline(query)), is_over, "{seconds} {slot_count}");
    }
    // A queue without sessions has none to list, and a list by instant does not begin at a number.
    assert!(is_refused(Inquiry::SessionState { session: "a".into() }));
    assert!(is_refused(Inquiry::Heads(HeadQuery { session: Some("a".into()), ..all_heads() })));
    let (order, start) = (HeadOrder::ScheduledAt, HeadStart::Number(SequenceNumber(1)));
    assert!(is_refused(Inquiry::Heads(HeadQuery { order, start, ..all_heads() })));
    let dead_letters = Inquiry::Heads(HeadQuery { order, ..all_heads() });
    assert!(stand.queue.inspect(SubQueue::DeadLetter, &dead_letters, stand.now).is_err());
}

/// CON-02, LIF-05: messages on their way to another entity are listed, whether the queue forwards all or a sender has
/// named a destination.
#[test]
fn inspection_lists_messages_in_transfer() {
    let mut stand = Stand::new(|queue| queue.forward_to = Some("b".into()));
    stand.send(3, |_| {});
    let content = Message::new("").encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    let messages = vec![crate::command::InboundMessage { content, envelope }; 2];
    stand.ask(Command::SendVia { destination: "c".into(), messages });
    stand.wait();
    stand.send(2, |_| {});
    let query =
        HeadQuery { states: HeadStates::default().with(HeadState::Transferring), ..all_heads() };
    for is_descending in [false, true] {
        for start in [HeadStart::End, HeadStart::Number(SequenceNumber(4))] {
            let query = HeadQuery { is_descending, start, ..query.clone() };
            let found = stand.heads(SubQueue::Main, &query);
            assert_eq!(found, stand.plain_heads(SubQueue::Main, &query), "{query:?}");
            assert!(!found.is_empty());
        }
    }
    assert!(stand.heads(SubQueue::Main, &query).len() >= 5);
    let start = HeadStart::Number(SequenceNumber(4));
    let inquiry = Inquiry::Heads(HeadQuery { start, count_max: 1, ..query });
    let Excerpt::Heads { heads, .. } = stand.excerpt(SubQueue::Main, &inquiry) else {
        panic!("other excerpt")
    };
    assert_eq!(heads[0].destination.as_deref(), Some("c"));
    assert!(heads[0].expires_at.is_never() && heads[0].lock.is_none());
}

/// One inquiry of each kind, and of each order.
fn inquiries(now: Timestamp) -> Vec<Inquiry> {
    let mut all = vec![Inquiry::SessionState { session: "a".into() }];
    for order in [HeadOrder::Number, HeadOrder::ScheduledAt, HeadOrder::ExpiresAt] {
        all.push(Inquiry::Heads(HeadQuery { order, ..HeadQuery::default() }));
    }
    for order in [LockOrder::End, LockOrder::Age] {
        all.push(Inquiry::Locks(LockQuery { order, from: 0, after: None, count_max: 100 }));
    }
    for order in [SessionOrder::Name, SessionOrder::Oldest, SessionOrder::LockedUntil] {
        let (filter, is_descending) = (SessionFilter::All, order != SessionOrder::Name);
        let (from, beyond, count_max) = (None, None, 100);
        all.push(Inquiry::Sessions(SessionQuery {
            order,
            is_descending,
            filter,
            from,
            beyond,
            count_max,
        }));
    }
    for of in [TimelineOf::Scheduled, TimelineOf::Expiring] {
        let slot = TimeSpan::from_seconds(10);
        let query = TimelineQuery { of, from: now, slot, slot_count: 9, after: None };
        all.push(Inquiry::Timeline(query));
    }
    all
}

/// CON-01: a queue that is inspected between all commands has the same state, effects and deadlines
/// as one that is not, in each sub-queue, with and without sessions.
#[test]
fn inspected_queue_equals_one_that_is_not_inspected() {
    for with_sessions in [false, true] {
        let stand = || {
            Stand::new(|queue| {
                queue.requires_session = with_sessions;
                queue.lock_duration = TimeSpan::from_seconds(5);
            })
        };
        let (mut plain, mut inspected) = (stand(), stand());
        let (mut first, mut second) = (Random(17), Random(17));
        let mut locks = [Vec::new(), Vec::new()];
        let [of_plain, of_inspected] = &mut locks;
        let mut answered = 0;
        for round in 0..120 {
            plain.act(&mut first, with_sessions, of_plain);
            inspected.act(&mut second, with_sessions, of_inspected);
            for inquiry in inquiries(inspected.now) {
                let sub_queue = [SubQueue::Main, SubQueue::DeadLetter][round % 2];
                inspected.queue.committed(StageNumber(inspected.stage));
                let inquiry = Command::Inspect(inquiry);
                inspected.turn_asking(sub_queue, [inquiry], |answer| {
                    answered += u32::from(answer.is_ok());
                });
                plain.wait();
                let turn = |stand: &Stand| {
                    format!("{:?} {} {}", stand.effects, stand.changes, stand.moves)
                };
                assert_eq!(turn(&inspected), turn(&plain), "round {round}");
            }
            let state = |stand: &Stand| {
                let queue = &stand.queue;
                let heads =
                    |sub_queue| stand.excerpt(sub_queue, &Inquiry::Heads(HeadQuery::default()));
                let kept = (queue.describe(), queue.own_deadline(), queue.memory_use());
                format!("{:?} {:?} {kept:?}", heads(SubQueue::Main), heads(SubQueue::DeadLetter))
            };
            assert_eq!(state(&inspected), state(&plain), "round {round}");
        }
        assert!(answered > 500, "{answered}");
    }
}
