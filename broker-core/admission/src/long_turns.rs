//! Long turns of a thread: judging a message by heavy rules, moving due messages by the ten thousand, batches and lists
//! of very many (DESIGN D6, decision 33).
//!
//! ```text
//!  users with ordinary work:      turn turn turn ........ turn turn turn ........ turn
//!  long turns, one at a time:                     long turn               long turn
//!                                                 of A                    of B
//! ```
//!
//! A user that wants a long turn waits here, even if it is asked for other things meanwhile. There is one long turn
//! between two rounds of all ready work, and then the others have three times the steps that it took, if they want
//! them. So a user without long work waits for one long turn at most, even if thousands of others want one.
//!
//! Waiters take turns by their requester, not by user: after a client with a thousand entities the next client waits
//! for one entity. Work without a requester, which is due or comes from other entities, has every other turn, if it
//! wants it, in its order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use tokio::sync::{Notify, oneshot};

/// The others have this multiple of the steps of a long turn.
const OTHERS: u64 = 3;
/// Steps that each turn counts in addition to its own, so that very small turns count as well.
const TURN_STEPS: u64 = 16;

/// A long turn. Dropping it ends the turn.
#[derive(Debug)]
pub struct LongTurn {
    _ended: oneshot::Sender<()>,
}

/// Begins the long turn of a waiter.
type Begin = Box<dyn FnOnce(LongTurn)>;

/// The long turns of a thread, for requesters that are known by `K`.
pub struct LongTurns<K> {
    waiting: RefCell<Waiting<K>>,
    wait_begun: Notify,
    /// Steps of the long turn, and of all other turns since.
    long: Cell<u64>,
    others: Cell<u64>,
    /// Whether a long turn runs.
    is_running: Cell<bool>,
}

/// The waiters.
struct Waiting<K> {
    /// Waiters whose work no client has requested.
    without_requester: VecDeque<Begin>,
    /// Waiters by requester, and the order of requesters.
    by_requester: BTreeMap<K, VecDeque<Begin>>,
    requesters: VecDeque<K>,
    /// Whether the last turn had no requester.
    was_without_requester: bool,
}

impl<K: Copy + Ord> Waiting<K> {
    fn push(&mut self, requester: Option<K>, begin: Begin) {
        let Some(requester) = requester else {
            self.without_requester.push_back(begin);
            return;
        };
        let of_requester = self.by_requester.entry(requester).or_default();
        if of_requester.is_empty() {
            self.requesters.push_back(requester);
        }
        of_requester.push_back(begin);
    }

    fn pop(&mut self) -> Option<Begin> {
        let is_without_requester = !self.was_without_requester || self.requesters.is_empty();
        self.was_without_requester = is_without_requester && !self.without_requester.is_empty();
        if self.was_without_requester {
            return self.without_requester.pop_front();
        }
        let requester = self.requesters.pop_front()?;
        let of_requester = self.by_requester.get_mut(&requester)?;
        let next = of_requester.pop_front();
        if of_requester.is_empty() {
            self.by_requester.remove(&requester);
        } else {
            self.requesters.push_back(requester);
        }
        next
    }
}

impl<K> Default for LongTurns<K> {
    fn default() -> Self {
        let waiting = Waiting {
            without_requester: VecDeque::new(),
            by_requester: BTreeMap::new(),
            requesters: VecDeque::new(),
            was_without_requester: false,
        };
        Self {
            waiting: RefCell::new(waiting),
            wait_begun: Notify::new(),
            long: Cell::default(),
            others: Cell::default(),
            is_running: Cell::default(),
        }
    }
}

impl<K: Copy + Ord> LongTurns<K> {
    /// Calls `begin` when the turn of its waiter has come. A user waits once for each turn.
    pub fn wait(&self, requester: Option<K>, begin: impl FnOnce(LongTurn) + 'static) {
        self.waiting.borrow_mut().push(requester, Box::new(begin));
        self.wait_begun.notify_one();
    }

    /// Runs the work of a long turn: the steps that are noted meanwhile count for it.
    pub fn run(&self, work: impl FnOnce()) {
        self.is_running.set(true);
        work();
        self.is_running.set(false);
    }

    /// Records the steps of a turn.
    pub fn note(&self, steps: u64) {
        let sum = if self.is_running.get() { &self.long } else { &self.others };
        sum.set(sum.get().saturating_add(steps).saturating_add(TURN_STEPS));
    }

    /// Begins the long turns of all waiters, one after the other, without end.
    pub async fn serve(self: Rc<Self>) {
        loop {
            let next = self.waiting.borrow_mut().pop();
            let Some(begin) = next else {
                self.wait_begun.notified().await;
                // All ready work goes before the first.
                tokio::task::yield_now().await;
                continue;
            };
            let (turn, ended) = oneshot::channel();
            self.long.set(0);
            begin(LongTurn { _ended: turn });
            // The turn is dropped by its user, or with the mailbox of a user that has ended.
            ended.await.ok();
            self.let_others_go_on().await;
        }
    }

    /// Waits until the others have had their steps, or want none.
    async fn let_others_go_on(&self) {
        let mut owed = self.long.get().saturating_mul(OTHERS);
        loop {
            self.others.set(0);
            tokio::task::yield_now().await;
            let done = self.others.get();
            owed = owed.saturating_sub(done);
            if done == 0 || owed == 0 {
                return;
            }
        }
    }
}

impl<K> fmt::Debug for LongTurns<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongTurns").field("is_running", &self.is_running).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turns in their order.
    type Log = Rc<RefCell<Vec<Turn>>>;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Turn {
        Long(usize),
        Other,
    }

    /// A user that wants a long turn again and again.
    #[derive(Clone)]
    struct Heavy {
        number: usize,
        requester: Option<u32>,
        steps: u64,
        turns: Rc<LongTurns<u32>>,
        log: Log,
    }

    impl Heavy {
        /// Wants `left` turns, each taken in a task of its own as an actor takes its mail.
        fn wants(self, left: usize) {
            if left == 0 {
                return;
            }
            let (turns, requester) = (Rc::clone(&self.turns), self.requester);
            turns.wait(requester, move |turn| {
                tokio::task::spawn_local(async move {
                    self.log.borrow_mut().push(Turn::Long(self.number));
                    self.turns.run(|| self.turns.note(self.steps));
                    self.wants(left - 1);
                    drop(turn);
                });
            });
        }
    }

    /// Takes ordinary turns, each after all ready work.
    async fn others(count: usize, steps: u64, turns: &LongTurns<u32>, log: &Log) {
        for _ in 0..count {
            tokio::task::yield_now().await;
            log.borrow_mut().push(Turn::Other);
            turns.note(steps);
        }
    }

    /// Runs a test with the turns of a thread, and users of the given numbers and requesters.
    fn run<F: Future<Output = ()>>(test: impl FnOnce(Rc<LongTurns<u32>>, Log) -> F) {
        let (turns, log) = (Rc::new(LongTurns::default()), Log::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(Rc::clone(&turns).serve());
            test(turns, log).await;
        });
    }

    fn heavy(
        (number, requester): (usize, Option<u32>),
        steps: u64,
        turns: &Rc<LongTurns<u32>>,
        log: &Log,
    ) -> Heavy {
        Heavy { number, requester, steps, turns: Rc::clone(turns), log: Rc::clone(log) }
    }

    /// With any number of waiters there is one long turn between two turns of another user, and the other has three
    /// times their steps; the waiters have their turns one after the other.
    #[test]
    fn others_have_a_share_and_one_turn_between_two_long_ones() {
        run(async |turns, log| {
            for number in 0..50 {
                heavy((number, None), 10_000, &turns, &log).wants(2);
            }
            others(400, 1_000, &turns, &log).await;
            let log = log.borrow();
            let long = log.iter().filter(|turn| matches!(turn, Turn::Long(_))).count();
            assert!((10..=20).contains(&long), "{long} long turns of 10,000 and 400 of 1,000");
            assert!(
                !log.windows(2).any(|two| !two.contains(&Turn::Other)),
                "two long turns without a turn of others between"
            );
            let order: Vec<Turn> =
                log.iter().filter(|turn| **turn != Turn::Other).copied().collect();
            assert_eq!(order, (0..long).map(Turn::Long).collect::<Vec<_>>());
        });
    }

    /// A requester of a hundred users has one turn among the requesters, as a requester with one user; work without a
    /// requester has every other turn.
    #[test]
    fn an_requester_of_many_users_has_one_turn_among_requesters() {
        run(async |turns, log| {
            let asked = (0..100).map(|number| (number, Some(1)));
            let asked = asked.chain([(100, Some(2)), (101, Some(3))]);
            let due = (102..105).map(|number| (number, None));
            let all: Vec<_> = asked.chain(due).collect();
            for user in &all {
                heavy(*user, 1, &turns, &log).wants(1);
            }
            while log.borrow().len() < all.len() {
                tokio::task::yield_now().await;
            }
            let first: Vec<Turn> = log.borrow().iter().take(8).copied().collect();
            assert_eq!(first, [102, 0, 103, 100, 104, 101, 1, 2].map(Turn::Long));
        });
    }

    /// Without other work, long turns follow each other; a waiter that has ended delays no other.
    #[test]
    fn long_turns_follow_each_other_without_other_work() {
        run(async |turns, log| {
            // As mail to an actor that has ended.
            turns.wait(None, drop);
            for number in 0..3 {
                heavy((number, None), 1_000_000, &turns, &log).wants(5);
            }
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            assert!(log.borrow().len() >= 15, "{:?}", log.borrow());
        });
    }
}
