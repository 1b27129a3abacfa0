//! Turns of an arbiter that take long: judging a message by heavy rules, moving what is due by the ten thousand,
//! batches and lists of very many. (DESIGN D6, decision 33.)
//!
//! ```text
//!  entities with ordinary work:   turn turn turn ........ turn turn turn ........ turn
//!  long turns, one at a time:                     long turn               long turn
//!                                                 of A                    of B
//! ```
//!
//! Whoever wants a long turn waits here, whatever is asked of it meanwhile. There is one long turn between two rounds
//! of all that is ready, and then the others have three times what it took, if they want it. So who asks for nothing
//! long waits for a long turn at most, however many entities another has made to want one.
//!
//! Those who ask for something long take turns by who asks, not by entity: behind a client with a thousand entities
//! the next one waits for one of them. What nobody asks for, what is due or comes from other entities, has every other
//! turn, if it wants it, in its order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use actix::{Message, Recipient};
use tokio::sync::{Notify, oneshot};

use crate::request::Asker;

/// Others have so many times what a long turn took.
const OTHERS: u64 = 3;
/// What a turn is beside its steps, so that very small ones count as well.
const TURN_STEPS: u64 = 16;

/// Take a long turn. Dropping it says that it was taken.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct LongTurn {
    _taken: oneshot::Sender<()>,
}

/// Who waits for a long turn, and what everybody did meanwhile.
#[derive(Default)]
pub(super) struct LongTurns {
    waiting: RefCell<Waiting>,
    asked: Notify,
    /// Steps of the long turn, and of all others since.
    long: Cell<u64>,
    others: Cell<u64>,
    /// Whether a long turn is being taken.
    is_taken: Cell<bool>,
}

/// Who waits.
#[derive(Default)]
struct Waiting {
    /// With what nobody has asked for.
    of_nobody: VecDeque<Recipient<LongTurn>>,
    /// With what somebody has asked for, and whose turn it is.
    asked: BTreeMap<Asker, VecDeque<Recipient<LongTurn>>>,
    askers: VecDeque<Asker>,
    /// Whether the last turn was nobody's.
    was_nobodys: bool,
}

impl Waiting {
    fn push(&mut self, asker: Option<Asker>, who: Recipient<LongTurn>) {
        let Some(asker) = asker else {
            self.of_nobody.push_back(who);
            return;
        };
        let of_asker = self.asked.entry(asker).or_default();
        if of_asker.is_empty() {
            self.askers.push_back(asker);
        }
        of_asker.push_back(who);
    }

    fn pop(&mut self) -> Option<Recipient<LongTurn>> {
        let is_nobodys = !self.was_nobodys || self.askers.is_empty();
        self.was_nobodys = is_nobodys && !self.of_nobody.is_empty();
        if self.was_nobodys {
            return self.of_nobody.pop_front();
        }
        let asker = self.askers.pop_front()?;
        let of_asker = self.asked.get_mut(&asker)?;
        let next = of_asker.pop_front();
        if of_asker.is_empty() {
            self.asked.remove(&asker);
        } else {
            self.askers.push_back(asker);
        }
        next
    }
}

impl LongTurns {
    /// Has somebody take a long turn when it is his, for whoever has asked for it; he asks once for each.
    pub(super) fn ask(&self, asker: Option<Asker>, who: Recipient<LongTurn>) {
        self.waiting.borrow_mut().push(asker, who);
        self.asked.notify_one();
    }

    /// What is noted until it is said otherwise is of a long turn.
    pub(super) fn take(&self, is_taken: bool) {
        self.is_taken.set(is_taken);
    }

    /// A turn has come to so many steps.
    pub(super) fn note(&self, steps: u64) {
        let sum = if self.is_taken.get() { &self.long } else { &self.others };
        sum.set(sum.get().saturating_add(steps).saturating_add(TURN_STEPS));
    }

    /// Lets everybody have his long turn, for ever.
    pub(super) async fn serve(self: Rc<Self>) {
        loop {
            let next = self.waiting.borrow_mut().pop();
            let Some(next) = next else {
                self.asked.notified().await;
                // Everything that is ready comes before the first.
                tokio::task::yield_now().await;
                continue;
            };
            let (turn, taken) = oneshot::channel();
            self.long.set(0);
            next.do_send(LongTurn { _taken: turn });
            // It is dropped by who took it, or with the mailbox of who has ended.
            taken.await.ok();
            self.let_others_go_on().await;
        }
    }

    /// Waits until others have had their share, or want none.
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

#[cfg(test)]
mod tests {
    use actix::{Actor, Addr, Context, Handler};

    use super::*;

    /// What was done on the arbiter, in its order.
    type Log = Rc<RefCell<Vec<Turn>>>;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Turn {
        Long(usize),
        Other,
    }

    /// Wants a long turn again and again.
    struct Heavy {
        number: usize,
        asker: Option<Asker>,
        steps: u64,
        left: usize,
        turns: Rc<LongTurns>,
        log: Log,
    }

    impl Actor for Heavy {
        type Context = Context<Self>;
    }

    impl Handler<LongTurn> for Heavy {
        type Result = ();

        fn handle(&mut self, _turn: LongTurn, context: &mut Self::Context) {
            self.log.borrow_mut().push(Turn::Long(self.number));
            self.turns.take(true);
            self.turns.note(self.steps);
            self.turns.take(false);
            self.left -= 1;
            if self.left > 0 {
                let who = actix::AsyncContext::address(context).recipient();
                self.turns.ask(self.asker, who);
            }
        }
    }

    fn heavies(
        count: usize,
        each: usize,
        steps: u64,
        turns: &Rc<LongTurns>,
        log: &Log,
    ) -> Vec<Addr<Heavy>> {
        (0..count).map(|number| heavy((number, None), each, steps, turns, log)).collect()
    }

    fn heavy(
        (number, asker): (usize, Option<Asker>),
        each: usize,
        steps: u64,
        turns: &Rc<LongTurns>,
        log: &Log,
    ) -> Addr<Heavy> {
        let (its_turns, log) = (Rc::clone(turns), Rc::clone(log));
        let heavy = Heavy { number, asker, steps, left: each, turns: its_turns, log }.start();
        turns.ask(asker, heavy.clone().recipient());
        heavy
    }

    /// Takes ordinary turns as long as long ones are wanted, each after everything that is ready.
    async fn others(count: usize, steps: u64, turns: &LongTurns, log: &Log) {
        for _ in 0..count {
            tokio::task::yield_now().await;
            log.borrow_mut().push(Turn::Other);
            turns.note(steps);
        }
    }

    fn run(test: impl Future<Output = ()>) {
        actix_rt::System::new().block_on(test);
    }

    /// However many want long turns, there is one between two turns of another, and the other has three times
    /// what they take; they have theirs one after the other.
    #[test]
    fn there_is_one_long_turn_between_two_of_others_and_a_share_for_those() {
        run(async {
            let (turns, log) = (Rc::new(LongTurns::default()), Log::default());
            actix_rt::spawn(Rc::clone(&turns).serve());
            let all = heavies(50, 2, 10_000, &turns, &log);
            others(400, 1_000, &turns, &log).await;
            let log = log.borrow();
            let long = log.iter().filter(|turn| matches!(turn, Turn::Long(_))).count();
            assert!((10..=20).contains(&long), "{long} long turns of 10,000 beside 400 of 1,000");
            assert!(
                !log.windows(2).any(|two| !two.contains(&Turn::Other)),
                "two long turns without anything of others between"
            );
            let order: Vec<Turn> =
                log.iter().filter(|turn| **turn != Turn::Other).copied().collect();
            assert_eq!(order, (0..long).map(Turn::Long).collect::<Vec<_>>());
            drop(all);
        });
    }

    /// One who asks a hundred entities for something long has one turn of those who ask, as one who asks one entity; what
    /// nobody asks for has every other turn.
    #[test]
    fn who_asks_many_entities_has_one_turn_among_those_who_ask() {
        run(async {
            let (turns, log) = (Rc::new(LongTurns::default()), Log::default());
            let [many, one, another] = [1, 2, 3].map(|number| Some(Asker::numbered(number)));
            let asked = (0..100).map(|number| (number, many));
            let asked = asked.chain([(100, one), (101, another)]);
            let due = (102..105).map(|number| (number, None));
            let all: Vec<Addr<Heavy>> =
                asked.chain(due).map(|whose| heavy(whose, 1, 1, &turns, &log)).collect();
            actix_rt::spawn(Rc::clone(&turns).serve());
            while log.borrow().len() < all.len() {
                tokio::task::yield_now().await;
            }
            let first: Vec<Turn> = log.borrow().iter().take(8).copied().collect();
            assert_eq!(first, [102, 0, 103, 100, 104, 101, 1, 2].map(Turn::Long));
            drop(all);
        });
    }

    /// Where nobody else wants anything, long turns follow each other; one that has ended keeps nobody waiting.
    #[test]
    fn what_nobody_else_wants_is_for_long_turns() {
        run(async {
            let (turns, log) = (Rc::new(LongTurns::default()), Log::default());
            actix_rt::spawn(Rc::clone(&turns).serve());
            let gone = heavies(1, 1, 1, &turns, &log);
            drop(gone);
            let all = heavies(3, 5, 1_000_000, &turns, &log);
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            assert!(log.borrow().len() >= 15, "{:?}", log.borrow());
            drop(all);
        });
    }
}
