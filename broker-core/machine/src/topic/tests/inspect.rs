//! Inquiries of operators to a topic.

use super::*;
use crate::inspect::{
    Excerpt, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, Inquiry, LockOrder, LockQuery,
    TimelineOf, TimelineQuery,
};
use crate::time::TimeSpan;

impl Stand {
    fn schedule(&mut self, at: Timestamp) {
        let message = Message { scheduled_enqueue_time: Some(at), ..Message::new("") };
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        self.apply(Command::Send { message: InboundMessage { content, envelope } }).unwrap();
        self.topic.committed(StageNumber(1));
    }

    /// All pages of scheduled messages, as their numbers.
    fn scheduled(&self, order: HeadOrder, is_descending: bool, mut start: HeadStart) -> Vec<u64> {
        let mut found = Vec::new();
        loop {
            let (session, states, count_max) = (None, HeadStates::ALL, 3);
            let query = HeadQuery { session, states, order, is_descending, start, count_max };
            let excerpt =
                self.topic.inspect(SubQueue::Main, &Inquiry::Heads(query), self.now).unwrap();
            let Excerpt::Heads { heads, next, .. } = excerpt else { panic!("other excerpt") };
            assert!(heads.iter().all(|head| head.state == HeadState::Scheduled));
            found.extend(heads.iter().map(|head| head.message.sequence.0));
            let Some(next) = next else { return found };
            start = HeadStart::After(next);
        }
    }
}

/// CON-02, CON-28: a topic lists its scheduled messages by number and by instant, and counts them by slot.
#[test]
fn inspected_schedule_of_a_topic_equals_a_plain_list() {
    let mut stand = Stand::new(1);
    let mut plain = Vec::new();
    for number in 1..=20u64 {
        let seconds = 10 + i64::try_from(number * 7 % 11).unwrap() * 10;
        let at = stand.now.plus(TimeSpan::from_seconds(seconds));
        stand.schedule(at);
        plain.push((at, number));
    }
    let cancelled = Command::CancelScheduled { sequences: vec![SequenceNumber(5)] };
    stand.apply(cancelled).unwrap();
    plain.retain(|(_, number)| *number != 5);
    let numbers: Vec<u64> = plain.iter().map(|(_, number)| *number).collect();
    assert_eq!(stand.scheduled(HeadOrder::Number, false, HeadStart::End), numbers);
    let from = HeadStart::Number(SequenceNumber(9));
    let down = numbers.iter().copied().rev().filter(|number| *number <= 9);
    assert_eq!(stand.scheduled(HeadOrder::Number, true, from), down.collect::<Vec<_>>());
    plain.sort_unstable();
    let by_instant: Vec<u64> = plain.iter().map(|(_, number)| *number).collect();
    assert_eq!(stand.scheduled(HeadOrder::ScheduledAt, false, HeadStart::End), by_instant);
    let instant = stand.now.plus(TimeSpan::from_seconds(50));
    let later = plain.iter().filter(|(at, _)| *at >= instant).map(|(_, number)| *number);
    let found = stand.scheduled(HeadOrder::ScheduledAt, false, HeadStart::Instant(instant));
    assert_eq!(found, later.collect::<Vec<_>>());
    let query = TimelineQuery {
        of: TimelineOf::Scheduled,
        from: instant,
        slot: TimeSpan::from_seconds(20),
        slot_count: 2,
        after: None,
    };
    let excerpt = stand.topic.inspect(SubQueue::Main, &Inquiry::Timeline(query), stand.now);
    let Ok(Excerpt::Timeline { counts, before, later, next: None }) = excerpt else {
        panic!("other excerpt")
    };
    let count = |from: i64, to: i64| {
        let [from, to] = [from, to].map(|at| stand.now.plus(TimeSpan::from_seconds(at)));
        plain.iter().filter(|(at, _)| *at >= from && *at < to).count() as u64
    };
    assert_eq!(
        (before, counts, later),
        (count(0, 50), vec![count(50, 70), count(70, 90)], count(90, 999))
    );
}

/// CON-01, CON-02: an inquiry creates no outbox and is no use of the topic. A topic has no locks, sessions or expiry to
/// list; its transfer dead-letter queue has.
#[test]
fn inquiry_changes_nothing_in_a_topic() {
    let mut stand = Stand::new(1);
    let used_at = stand.topic.usage.last_at;
    stand.now = stand.now.plus(TimeSpan::from_seconds(9));
    let locks =
        Inquiry::Locks(LockQuery { order: LockOrder::End, from: 0, after: None, count_max: 1 });
    let topic = &stand.topic;
    let refusal = topic.inspect(SubQueue::Main, &locks, stand.now).unwrap_err();
    assert_eq!(refusal.condition(), Condition::InvalidOperation);
    let excerpt = topic.inspect(SubQueue::TransferDeadLetter, &locks, stand.now);
    assert!(matches!(excerpt, Ok(Excerpt::Locks { count: 0, .. })));
    assert!(stand.apply(Command::Inspect(locks)).is_err());
    let expiring = HeadQuery {
        session: None,
        states: HeadStates::ALL,
        order: HeadOrder::ExpiresAt,
        is_descending: false,
        start: HeadStart::End,
        count_max: 1,
    };
    assert!(stand.apply(Command::Inspect(Inquiry::Heads(expiring.clone()))).is_err());
    let scheduled = HeadQuery { order: HeadOrder::Number, ..expiring };
    let (_, step) = stand.apply(Command::Inspect(Inquiry::Heads(scheduled))).unwrap();
    assert!(step.changes.is_empty() && step.effects.is_empty());
    assert!(stand.topic.outbox.is_none() && stand.topic.usage.last_at == used_at);
}
