//! Actions of actors, desk, couriers and namespace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::command::Command;
use peeklock_core::description::Destination;
use peeklock_core::error::Rejection;
use peeklock_core::ids::Ticket;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::family::MemberNumber;
use peeklock_core::path::{PathKey, SubQueue};
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::shell::tree::StageCompletion;
use peeklock_core::shell::{Shell, TreeFault, TurnResults};
use peeklock_core::store::{Key, Store as _};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transfer::{Departure, contents};
use peeklock_store_testing::block_on;

use super::{Ending, Errand, World};
use crate::ground::{ListEnded, Mail, load, push, take};
use crate::oracle::{Fate, Handed, Stages};

impl World {
    pub(super) fn request(&self, ticket: u64, sub_queue: SubQueue, command: Command) -> Request {
        let outlet = Arc::clone(&self.outlet) as Arc<dyn Outlet>;
        let reply = Reply::new(outlet, ticket, None);
        Request { ticket: Ticket(ticket), sub_queue, command, reply }
    }

    /// A turn of a machine without a command for the oracle.
    pub(super) fn turn(
        &mut self,
        id: u64,
        run: impl FnOnce(
            &mut Shell<AnyMachine>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        if !self.is_open(id) {
            return;
        }
        self.oracle.advance(id);
        self.run(id, None, run);
    }

    /// Runs an empty turn.
    pub(super) fn wake(&mut self, id: u64) {
        self.turn(id, |shell, now, out| shell.run([], now, out));
    }

    /// A turn of a machine, after the oracle got its command. `member` is another machine that
    /// takes part.
    pub(super) fn run(
        &mut self,
        id: u64,
        member: Option<u64>,
        run: impl FnOnce(
            &mut Shell<AnyMachine>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        let (grove, place) = self.place_of(id);
        let Some(shell) = self.groves[grove].members[place].shell.as_ref().map(Rc::clone) else {
            return;
        };
        let now = self.oracle.now;
        if self.odds.fail > 0 && self.random.one_in(600) {
            self.fuse.set(true);
        }
        let mut out = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut shell.borrow_mut(), now, &mut out)));
        self.fuse.set(false);
        match result {
            Ok(Ok(_)) => {
                let mut expected = Vec::new();
                for one in member.into_iter().chain([id]) {
                    let stages = self.stages_of(grove, one);
                    let lists = self.oracle.serve(one, stages);
                    expected.extend(lists.into_iter().map(|list| (one, list)));
                }
                self.take_lists(grove, expected);
                release_all(&mut out);
                self.process_outputs();
                self.check(id);
                let to_wake = self.groves[grove].tree.borrow_mut().take_to_wake();
                for number in to_wake {
                    if let Some(woken) = self.numbered(grove, number) {
                        self.wake(woken);
                    }
                }
            }
            Ok(Err(TreeFault(why))) => {
                // A command is refused or carried out: a tree ends by itself only after a failure
                // of the store.
                let is_lost = self.groves[grove].tree.borrow().is_lost();
                assert!(is_lost, "{id} ends its tree: {why} (TXN-07, TXN-08)");
                self.fail(grove, &why);
                release_all(&mut out);
                self.process_outputs();
            }
            Err(panic) => {
                let is_planned = panic.downcast_ref::<&str>() == Some(&crate::ground::PLANNED);
                assert!(is_planned, "a machine panicked");
                self.fail(grove, "panic");
                release_all(&mut out);
                self.process_outputs();
            }
        }
    }

    fn stages_of(&self, grove: usize, id: u64) -> Stages {
        let grove = &self.groves[grove];
        let tree = grove.tree.borrow();
        let shell = grove.members.iter().find(|member| member.id == id).unwrap().shell.as_ref();
        let taken_in = shell.map_or(0, |shell| match shell.borrow().machine() {
            AnyMachine::Queue(queue) => queue.last_sequence().0,
            AnyMachine::Topic(_) => 0,
        });
        Stages { own: tree.stage_number(), durable: tree.durable_stage(), taken_in }
    }

    fn numbered(&self, grove: usize, number: MemberNumber) -> Option<u64> {
        let members = self.groves[grove].members.iter();
        let mut numbered = members.filter(|member| {
            member.shell.as_ref().is_some_and(|shell| shell.borrow().number() == number)
        });
        numbered.next().map(|member| member.id)
    }

    /// FWD-10, FWD-11: exactly the predicted transfers have left.
    fn take_lists(&mut self, grove: usize, mut expected: Vec<(u64, Handed)>) {
        let seat = self.groves[grove].seat;
        for place in 0..self.groves[grove].members.len() {
            let member = &self.groves[grove].members[place];
            let (id, claims) = (member.id, Arc::clone(&member.claims));
            let Some(shell) = member.shell.as_ref().map(Rc::clone) else { continue };
            for list in shell.borrow_mut().take_outgoing() {
                let handed = Handed {
                    sub_queue: list.sub_queue,
                    destination: list.destination.to_string(),
                    sequences: list
                        .messages
                        .iter()
                        .map(|one| one.message.facts.sequence.0)
                        .collect(),
                };
                self.note(|| format!("{id} hands over {:?}: {handed:?}", list.list));
                assert_eq!(*list.source, *self.oracle.entities[&id].nature.path);
                let at = expected.iter().position(|one| *one == (id, handed.clone()));
                let Some(at) = at else {
                    panic!("{id} hands over {handed:?}, and should {expected:?} (FWD-10)");
                };
                expected.remove(at);
                self.seen.lists += 1;
                let claims = Arc::clone(&claims);
                self.errands.push(Errand { seat, from: id, claims, list, handed });
            }
        }
        assert!(expected.is_empty(), "{expected:?} should have been handed over (FWD-11)");
    }

    /// Ends a tree: waiting callers get errors, and staged answers are dropped.
    pub(super) fn fail(&mut self, place: usize, why: &str) {
        if self.groves[place].ending.is_some() {
            return;
        }
        self.seen.failed += 1;
        let root = self.groves[place].members[0].id;
        self.note(|| format!("{root} fails: {why}"));
        let grove = &mut self.groves[place];
        grove.ending = Some(Ending::Failed);
        let mut out = Vec::new();
        for member in &mut grove.members {
            if let Some(shell) = member.shell.take() {
                let reason = Rejection::internal("the entity failed");
                shell.borrow_mut().close(&reason, &mut out);
            }
            member.mail.clear();
        }
        grove.tree.borrow_mut().abandon();
        release_all(&mut out);
        self.process_outputs();
    }

    /// Processes ended trees like the namespace.
    pub(super) fn move_endings(&mut self) {
        for seat in take(&self.settled) {
            if let Some(grove) = self.groves.iter_mut().find(|grove| grove.seat == seat) {
                grove.settled += 1;
            }
        }
        for place in 0..self.groves.len() {
            let grove = &self.groves[place];
            match grove.ending {
                Some(Ending::Failed) if !grove.tree.borrow().is_submitting() => {
                    block_on(self.writer_of(grove.members[0].id).recover()).unwrap();
                    let grove = &mut self.groves[place];
                    grove.ending = Some(Ending::Settling);
                    grove.settled = 0;
                    for member in &grove.members {
                        let (settled, seat) = (Arc::clone(&self.settled), grove.seat);
                        member.claims.close(Box::new(move || push(&settled, seat)));
                    }
                }
                Some(Ending::Settling) if grove.settled == grove.members.len() => {
                    self.reopen(place);
                }
                Some(_) | None => {}
            }
        }
    }

    pub(super) fn submit_someone(&mut self) {
        let place = self.random.index(self.groves.len());
        self.submit_tree(place);
    }

    pub(super) fn submit_tree(&mut self, place: usize) {
        let grove = &self.groves[place];
        let (seat, done) = (grove.seat, Arc::clone(&self.done));
        let completion = move || {
            let done = Arc::clone(&done);
            Box::new(move |stage, result| push(&done, (seat, stage, result))) as StageCompletion
        };
        grove.tree.borrow_mut().submit(self.oracle.now, &completion);
    }

    pub(super) fn step_store(&mut self) {
        let mut random = self.random.clone();
        self.store.step(&mut random, &self.odds);
        self.random = random;
        self.take_completions();
    }

    /// The desk gets the completion of a batch. The actors get mail about it, which they may read
    /// later.
    pub(super) fn take_completions(&mut self) {
        for (seat, stage, result) in take(&self.done) {
            let Some(place) = self.groves.iter().position(|grove| grove.seat == seat) else {
                continue;
            };
            let tree = Rc::clone(&self.groves[place].tree);
            if result.is_err() {
                for member in &mut self.groves[place].members {
                    member.mail.push_back(Mail::Failed);
                }
                tree.borrow_mut().note_lost(stage);
                continue;
            }
            let numbers = tree.borrow().members_of(stage);
            let mut held = tree.borrow_mut().complete(stage);
            if self.groves[place].ending.is_none() {
                let ids: Vec<u64> =
                    self.groves[place].members.iter().map(|member| member.id).collect();
                let root = ids[0];
                self.note(|| format!("{root}: stage {} is durable", stage.0));
                self.look(&ids);
            }
            release_all(&mut held);
            self.process_outputs();
            for number in numbers {
                let Some(id) = self.numbered(place, number) else { continue };
                let (grove, member) = self.place_of(id);
                self.groves[grove].members[member].mail.push_back(Mail::Committed(stage));
            }
        }
    }

    pub(super) fn read_mail(&mut self) {
        let place = self.random.index(self.groves.len());
        let member = self.random.index(self.groves[place].members.len());
        self.read_mail_of(place, member);
    }

    pub(super) fn read_mail_of(&mut self, place: usize, member: usize) {
        while let Some(mail) = self.groves[place].members[member].mail.pop_front() {
            let id = self.groves[place].members[member].id;
            match mail {
                Mail::Committed(stage) => {
                    self.turn(id, |shell, now, out| shell.committed(stage, now, out));
                }
                Mail::Failed => self.fail(place, "an append failed"),
            }
        }
        let id = self.groves[place].members[member].id;
        self.wake(id);
    }

    pub(super) fn resubmit(&mut self) {
        for writer in take(&self.unknown) {
            writer.resubmit();
        }
    }

    pub(super) fn pass(&mut self) {
        let ms = i64::try_from(self.random.between(1, 6_000)).unwrap();
        self.oracle.now = self.oracle.now.plus(TimeSpan::from_ms(ms));
        self.note(|| format!("{ms} ms pass"));
    }

    /// Delivers a random transfer to its destination, in any order among sources.
    pub(super) fn walk(&mut self) {
        if self.errands.is_empty() {
            return;
        }
        let at = self.random.index(self.errands.len());
        let destination = &self.errands[at].list.destination;
        let Destination::Entity(key) = Destination::parse(destination).unwrap() else {
            panic!("all destinations are entities");
        };
        let found = self
            .groves
            .iter()
            .flat_map(|grove| &grove.members)
            .find(|member| PathKey::fold(&member.path) == key)
            .map(|member| member.id);
        // A tree that is being opened again answers when it is open.
        if found.is_some_and(|to| !self.is_open(to)) {
            return;
        }
        let Errand { seat, from, claims, list, handed } = self.errands.swap_remove(at);
        let loading = contents::load(&list, &self.edge, &*self.store);
        let arrivals = load(&self.store, || false, loading).expect("all reads end");
        let keys: Vec<Key> = list.messages.iter().map(|one| one.origin.key).collect();
        let (ended, number) = (Arc::clone(&self.ended), list.list);
        let claim = claims.open(Box::new(move |end| {
            push(&ended, ListEnded { seat, list: number, keys, end });
        }));
        let is_alive = self
            .groves
            .iter()
            .any(|grove| grove.seat == seat && grove.ending != Some(Ending::Settling));
        let Some(to) = found else {
            if is_alive {
                let absent = Fate::Refused(peeklock_core::condition::Condition::EntityNotFound);
                let fates = vec![absent; handed.sequences.len()];
                self.fates.insert((seat, from, number.0), (handed, fates));
            }
            let result = Err(Rejection::entity_not_found(&list.destination));
            claim.outlet().release(vec![Released::Answer { correlation: 0, result }]);
            return;
        };
        self.note(|| format!("{handed:?} of {from} arrives at {to}"));
        self.oracle.advance(to);
        if is_alive {
            let fates = self.oracle.arrive(from, &handed, to);
            self.fates.insert((seat, from, number.0), (handed, fates));
        }
        let when_full = list.when_full;
        let command = Command::TransferIn { messages: arrivals, when_full };
        let reply = Reply::for_claim(claim);
        let request = Request { ticket: Ticket(0), sub_queue: SubQueue::Main, command, reply };
        self.run(to, None, |shell, now, out| shell.run([request], now, out));
    }

    /// Reports the results of transfers to their sources.
    pub(super) fn process_ends(&mut self) {
        for ListEnded { seat, list, keys, end } in take(&self.ended) {
            let of_seat = self.groves.iter().position(|grove| grove.seat == seat);
            // The keys of a transfer name its source.
            let from =
                keys.first().map(|key| u64::from_be_bytes(key.as_bytes()[..8].try_into().unwrap()));
            let key = from.map(|from| (seat, from, list.0));
            let fate = key.and_then(|key| self.fates.remove(&key));
            let (Some(_), Some(from)) = (of_seat, from) else { continue };
            if !self.is_open(from) {
                continue;
            }
            let (handed, predicted) = fate.expect("a list that has been handed in");
            let is_known = matches!(&end, Some(Ok(_)));
            let departures =
                block_on(contents::departures(&keys, end, self.store.exists(&keys))).unwrap();
            let fates: Vec<Fate> = departures
                .iter()
                .map(|one| match one {
                    Departure::Taken => Fate::Taken,
                    Departure::NotAdmitted(why) => Fate::Refused(why.condition()),
                    Departure::NotTried => Fate::NotTried,
                    _ => Fate::Kept,
                })
                .collect();
            self.note(|| format!("{from} hears of {list:?}: {fates:?}"));
            let is_absent = predicted.iter().all(|one| {
                *one == Fate::Refused(peeklock_core::condition::Condition::EntityNotFound)
            });
            if is_known || is_absent {
                assert_eq!(fates, predicted, "{handed:?} of {from} (FWD-15, FWD-22)");
            }
            for (sequence, fate) in handed.sequences.iter().zip(&fates) {
                let is_here = crate::image::is_stored(&self.store, from, *sequence);
                let is_taken = *fate == Fate::Taken;
                assert_ne!(is_here, is_taken, "{from}/{sequence}: {fate:?} (FND-03)");
            }
            self.oracle.advance(from);
            self.oracle.depart(from, &handed.sequences, &fates);
            let request = Request {
                ticket: Ticket(0),
                sub_queue: SubQueue::Main,
                command: Command::EndTransfer { list, departures },
                reply: Reply::without_receiver(),
            };
            self.run(from, None, |shell, now, out| shell.run([request], now, out));
        }
    }

    /// Invariants after every turn of a machine.
    fn check(&mut self, id: u64) {
        let (grove, member) = self.place_of(id);
        let Some(shell) = self.groves[grove].members[member].shell.as_ref() else { return };
        let shell = shell.borrow();
        match shell.machine() {
            AnyMachine::Queue(queue) => queue.check_invariants().unwrap(),
            AnyMachine::Topic(topic) => topic.check_invariants().unwrap(),
        }
        let (found, expected) = (shell.machine().counts(), self.oracle.counts(id));
        assert_eq!(found, expected, "{id}: counts (CNT-03, VIA-06)");
    }
}
