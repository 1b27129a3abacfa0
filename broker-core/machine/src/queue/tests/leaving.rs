//! Slots visited and messages handed over by a step while messages wait for many destinations that
//! senders named.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::command::InboundMessage;
use crate::transfer::{Departure, ListNumber};

/// Maximum messages that a turn hands over while other queues have turns too.
const FEW: usize = MoveLimit::Few.max();
/// Maximum slots that an idle turn visits.
const LOOKS_IDLE: u64 = 16;

/// A list that was handed over.
struct Handed {
    list: ListNumber,
    destination: Arc<str>,
    numbers: Vec<u64>,
}

impl Handed {
    fn ended(&self, departure: &Departure) -> Command {
        let departures = vec![departure.clone(); self.numbers.len()];
        Command::EndTransfer { list: self.list, departures }
    }
}

fn destination(number: usize) -> Arc<str> {
    format!("to-{number:05}").into()
}

impl Stand {
    /// Adds `count` messages for each of `destinations` destinations, which all can leave in the
    /// next turn, as after a restart.
    fn entrust(&mut self, destinations: usize, count: usize) {
        let message = || {
            let content = Message::new("").encode();
            let envelope = content.envelope(&PropertyLimits::default(), &KEY);
            InboundMessage { content, envelope }
        };
        for number in 0..destinations {
            let messages = (0..count).map(|_| message()).collect();
            let send = Command::SendVia { destination: destination(number), messages };
            self.turn_before_commit(SubQueue::Main, [send]);
        }
        self.queue.committed(StageNumber(self.stage));
    }

    /// The lists that the last turn handed over.
    fn handed_over(&self) -> Vec<Handed> {
        let lists = self.effects.iter().filter_map(|effect| match effect {
            Effect::HandOver(list) => Some(list),
            _ => None,
        });
        lists
            .map(|list| Handed {
                list: list.list,
                destination: Arc::clone(&list.destination),
                numbers: list.messages.iter().map(|one| one.facts.sequence.0).collect(),
            })
            .collect()
    }

    /// Takes turns until no deadline is due. Each hands over at most `most` messages. Returns all
    /// lists and the number of turns.
    fn hand_all_over(&mut self, most: usize) -> (Vec<Handed>, usize) {
        let (mut all, mut turns) = (Vec::new(), 0);
        while self.is_due() {
            self.wait();
            let left = self.handed_over();
            let count: usize = left.iter().map(|list| list.numbers.len()).sum();
            assert!(0 < count && count <= most, "{count} messages in one turn");
            assert!((count as u64..=most as u64).contains(&self.moves), "{}", self.moves);
            self.queue.check_invariants().unwrap();
            all.extend(left);
            turns += 1;
        }
        (all, turns)
    }
}

/// DESIGN D6, VIA-01, FWD-10: regardless of the number of destinations, a turn hands over at most
/// the messages that it may move, and the next continues at once; each destination gets its
/// messages in order, without a gap.
#[test]
fn messages_for_many_destinations_leave_in_slices() {
    let mut stand = Stand::new(|_| {});
    stand.queue.set_move_limit(MoveLimit::Few);
    stand.entrust(100, 300);
    let (all, turns) = stand.hand_all_over(FEW);
    assert!((25..=30).contains(&turns), "{turns} turns");
    assert!(!stand.queue.is_behind(), "nobody who asks something waits for that");
    let by_destination: BTreeMap<_, _> =
        all.iter().map(|list| (Arc::clone(&list.destination), &list.numbers)).collect();
    assert_eq!((all.len(), by_destination.len()), (100, 100), "one list each");
    for (place, numbers) in by_destination.values().enumerate() {
        let first = place as u64 * 300 + 1;
        let expected: Vec<u64> = (first..).take(numbers.len()).collect();
        assert_eq!(**numbers, expected);
    }
    // Messages cut off by the end of a turn leave after their list has arrived.
    let shortest = all.iter().min_by_key(|list| list.numbers.len()).unwrap();
    stand.ask(shortest.ended(&Departure::Taken));
    let again = stand.handed_over();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].destination, shortest.destination);
    assert_eq!(again[0].numbers[0], shortest.numbers.last().unwrap() + 1);
}

/// DESIGN D6: destinations take turns in order. A destination whose lists arrive at once delays no
/// other, even with many messages left.
#[test]
fn each_destination_has_its_turn() {
    let mut stand = Stand::new(|_| {});
    stand.queue.set_move_limit(MoveLimit::Few);
    stand.entrust(12, 900);
    let (mut seen, mut under_way) = (BTreeSet::new(), Vec::<Handed>::new());
    for _ in 0..3 {
        let ended = under_way.iter().map(|list| list.ended(&Departure::Taken)).collect::<Vec<_>>();
        stand.queue.committed(StageNumber(stand.stage));
        stand.turn_before_commit(SubQueue::Main, ended);
        under_way = stand.handed_over();
        seen.extend(under_way.iter().map(|list| Arc::clone(&list.destination)));
        stand.queue.check_invariants().unwrap();
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
}

/// DESIGN D6: a turn visits no destination for which no message can leave, regardless of their
/// number. Messages that are offered again after a delay leave after it, also in slices.
#[test]
fn a_turn_looks_at_no_destination_that_waits() {
    let mut stand = Stand::new(|_| {});
    stand.entrust(3_000, 1);
    let (all, _) = stand.hand_all_over(COMMAND_MOVES_MAX);
    assert_eq!(all.len(), 3_000);
    for list in &all {
        stand.ask(list.ended(&Departure::Unknown));
        assert!(stand.looks <= 2 * LOOKS_IDLE, "{} for one list of many", stand.looks);
    }
    stand.queue.check_invariants().unwrap();
    let before = looks::all();
    assert!(!stand.is_due(), "they are offered again in a second");
    stand.queue.committed(StageNumber(stand.stage));
    assert!(looks::all() - before <= LOOKS_IDLE);
    stand.wait();
    assert!(stand.looks <= LOOKS_IDLE && stand.effects.is_empty(), "{}", stand.looks);
    stand.now = stand.now.plus(TimeSpan::from_seconds(1));
    let (again, turns) = stand.hand_all_over(COMMAND_MOVES_MAX);
    let destinations: BTreeSet<_> = again.iter().map(|list| &list.destination).collect();
    assert_eq!((again.len(), destinations.len()), (3_000, 3_000));
    assert!(turns > 1, "a turn looks at some of them");
}
