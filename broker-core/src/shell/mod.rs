//! Shell: drives a machine, and does everything between mail and store. Steps 2 to 5 of the data
//! path.
//!
//! It uses no actix, threads or clock: an actor is a thin driver of a shell, and the simulator is
//! another. A shell sets the time, applies a list of commands, stages the changes in its tree, and
//! releases effects by the rules of DESIGN D5.
//!
//! ```text
//! run ──► take ──► carry_out ──┬─► take_send ──► apply_send ──┬─► apply ──► step: one atomic unit
//!       long turn?             ├─► take_over_list ────────────┤
//!                              └──────────────────────────────┘   then finish: deliveries, counters
//! ```

pub mod commit;
mod end;
mod journey;
pub mod load;
mod observed;
mod pin;
mod preparation;
mod room;
mod sample;
pub mod session;
mod taps;
pub mod tree;
mod turn;
pub mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::admission::{Budget, Loads};
use crate::census::{Census, MachineCount};
use crate::change::Change;
use crate::cluster::tenure::{Prolongation, Tenure};
use crate::command::{Command, MachineOutcome};
use crate::effect::{Answer, Effect, Gate};
use crate::error::Rejection;
use crate::ids::{ReceiverId, Ticket};
use crate::limits::Limits;
use crate::machine::family::MemberNumber;
use crate::machine::{
    Ctx, Machine, MoveLimit, Preparation, RemainingCapacity, StageNumber, StepOutput,
};
use crate::request::{Link, Release, Reply, Request};
use crate::store::{Reserved, Store, Waker};
use crate::telemetry::LiveGauges;
use crate::time::Timestamp;
use crate::transfer::{HandOver, PinnedMessage};

use self::journey::JourneyRecorder;
use self::load::Load;
use self::preparation::UnfinishedPreparation;
use self::room::ParkedSends;
use self::sample::SampleRecorder;
use self::session::SessionHost;
use self::taps::EntityTaps;
use self::tree::Tree;

pub use self::turn::TurnResults;

/// A fault that the caller did not cause; the tree ends and is rebuilt (DESIGN D3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TreeFault(pub String);

/// Share of its arbiter that a turn may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ArbiterShare {
    /// The whole arbiter: no other work waits.
    #[default]
    All,
    /// An ordinary turn among others: long work is left to a long turn.
    Turn,
    /// A long turn; only one at a time.
    LongTurn,
}

/// Drives one machine.
pub struct Shell<M> {
    machine: M,
    tree: Rc<RefCell<Tree>>,
    /// Its number in the tree, and the last stage that it has changes in.
    number: MemberNumber,
    marked: StageNumber,
    store: Arc<dyn Store>,
    limits: Arc<Limits>,
    tokens: Box<dyn FnMut() -> u64>,
    /// Commands that are answered later.
    waiting: HashMap<Ticket, Reply>,
    links: HashMap<ReceiverId, Link>,
    parked: ParkedSends,
    /// Driver of the held sessions, if they have drivers of their own.
    host: Option<Box<dyn SessionHost>>,
    /// Contents that the machine requested, and the room for them.
    load: Option<Load>,
    loads: Loads,
    step: StepOutput,
    keys: Vec<crate::store::Key>,
    /// Messages that leave, until the driver takes them.
    outgoing: Vec<HandOver<PinnedMessage>>,
    /// Work ahead of a command, which few commands need.
    preparation: UnfinishedPreparation,
    /// Counters of the memory that the machine keeps, if the broker counts it.
    counted: Option<MachineCount>,
    /// Taps on the entity, if there can be any.
    taps: Option<EntityTaps>,
    /// Stations of its messages, if the broker keeps them.
    journey: Option<Box<JourneyRecorder>>,
    /// Published messages of a topic, if the broker keeps them.
    samples: Option<SampleRecorder>,
    /// Published figures of the entity, if there are any.
    observed: Option<Arc<LiveGauges>>,
    share: ArbiterShare,
    /// Suspensions of the broker, if it can be suspended.
    prolongation: Option<Prolongation>,
}

impl<M: Machine> Shell<M> {
    /// Creates a shell around a machine. `tokens` returns unpredictable random bits. `parking` is
    /// the budget of sends that wait for room in the store; `waker` creates a waker that wakes the
    /// driver when there is room again.
    pub fn new(
        machine: M,
        tree: Rc<RefCell<Tree>>,
        store: Arc<dyn Store>,
        limits: Arc<Limits>,
        tokens: Box<dyn FnMut() -> u64>,
        parking: Budget,
        waker: Box<dyn Fn() -> Waker>,
    ) -> Self {
        let number = tree.borrow_mut().join();
        Self {
            machine,
            tree,
            number,
            marked: StageNumber(0),
            store,
            limits,
            tokens,
            waiting: HashMap::new(),
            links: HashMap::new(),
            parked: ParkedSends::new(parking, waker),
            host: None,
            load: None,
            loads: Loads::new(u64::MAX),
            step: StepOutput::default(),
            keys: Vec::new(),
            outgoing: Vec::new(),
            preparation: UnfinishedPreparation::default(),
            counted: None,
            taps: None,
            journey: None,
            samples: None,
            observed: None,
            share: ArbiterShare::default(),
            prolongation: None,
        }
    }

    /// Prolongs locks by the time of suspensions (CLU-22).
    #[must_use]
    pub fn with_tenure(mut self, tenure: &Arc<Tenure>) -> Self {
        self.prolongation = Some(Prolongation::of(tenure));
        self
    }

    /// Counts and bounds the memory of the machine together with all others in the broker.
    #[must_use]
    pub fn with_census(mut self, census: Arc<Census>) -> Self {
        let mut counted = MachineCount::new(census);
        counted.note(self.machine.memory_use());
        self.counted = Some(counted);
        self
    }

    /// Takes room for requested contents from the broker's shared room.
    #[must_use]
    pub fn with_loads(mut self, loads: Loads) -> Self {
        self.loads = loads;
        self
    }

    fn left(&self) -> RemainingCapacity {
        self.counted.as_ref().map_or(RemainingCapacity::ALL, |counted| counted.left(&self.limits))
    }

    /// The driven machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Returns the machine without its shell.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// Number of the machine in its tree.
    pub const fn number(&self) -> MemberNumber {
        self.number
    }

    /// Returns the lists that the machine has handed over since the last call. The driver carries
    /// each to its destination, and reports the result with [`Command::EndTransfer`].
    pub fn take_outgoing(&mut self) -> Vec<HandOver<PinnedMessage>> {
        std::mem::take(&mut self.outgoing)
    }

    /// The tree that carries its changes.
    pub const fn tree(&self) -> &Rc<RefCell<Tree>> {
        &self.tree
    }

    /// Runs a list of commands: lets time pass, applies each command, then matches demand once.
    ///
    /// # Errors
    /// A failure that must end the tree.
    pub fn run(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<TurnResults, TreeFault> {
        let mut turn = TurnResults::default();
        self.catch_up(now)?;
        self.show_accepted(now, out, &mut turn)?;
        self.advance_time(now, out, &mut turn)?;
        if let Some(request) = self.take_prepared() {
            self.take(request, now, out, &mut turn)?;
        }
        // If a command was being prepared, the step above has left loaded contents aside. They are
        // handed over now, since nothing else would wake this shell for them.
        if !self.preparation.is_unfinished {
            self.hand_over_loaded(now, out, &mut turn)?;
        }
        let mut requests = requests.into_iter();
        // Commands that are not taken stay with the driver, in order.
        while !self.preparation.is_unfinished
            && self.is_turn_open(&turn)
            && let Some(request) = requests.next()
        {
            self.take(request, now, out, &mut turn)?;
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }

    /// Marks all stages up to `stage` as durable, then delivers messages that became available.
    ///
    /// # Errors
    /// A failure that must end the tree.
    pub fn committed(
        &mut self,
        stage: StageNumber,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<TurnResults, TreeFault> {
        self.machine.committed(stage);
        self.run([], now, out)
    }

    /// Passes arrivals from other machines of the tree and the last durable stage to the machine.
    /// Fails if an append of the tree failed, since later answers would depend on data that the
    /// store does not have.
    fn catch_up(&mut self, now: Timestamp) -> Result<(), TreeFault> {
        let mut tree = self.tree.borrow_mut();
        if tree.is_lost() {
            return Err(TreeFault("an append failed".to_owned()));
        }
        let durable = tree.durable_stage();
        if let Some(family) = tree.family() {
            self.machine.take_from_family(family, now);
        }
        drop(tree);
        self.machine.committed(durable);
        Ok(())
    }

    /// Whether a command waits for room in the store.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Next instant at which [`Shell::run`] has work even without commands, for a driver of
    /// everything.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.preparation.is_unfinished {
            return Some(Timestamp::NONE);
        }
        let others = [self.tree.borrow().flush_deadline(), self.parked.next_deadline()];
        self.machine.next_deadline().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Next deadline, without held sessions and the stage of the tree.
    pub fn own_deadline(&self) -> Option<Timestamp> {
        self.machine.own_deadline().into_iter().chain(self.parked.next_deadline()).min()
    }

    fn advance_time(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        if let Some(span) = self.prolongation.as_mut().and_then(Prolongation::take) {
            self.machine.prolong_locks(span);
        }
        self.machine.set_move_limit(match self.share {
            ArbiterShare::Turn => MoveLimit::Few,
            ArbiterShare::All | ArbiterShare::LongTurn => MoveLimit::Many,
        });
        self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
            machine.advance(ctx, step);
            Ok(())
        })?
        .ok();
        // The machine keeps the result of only one preparation. Preparing due messages now would
        // discard the progress of a command that has begun, each time that one is due.
        let is_begun = self.preparation.is_of_command();
        self.preparation.is_unfinished = false;
        if !is_begun {
            self.hand_over_loaded(now, out, turn)?;
        }
        if self.preparation.is_unfinished {
            return Ok(());
        }
        self.take_up_parked(now, out, turn)
    }

    /// Takes one command. If it needs a long turn, it waits for one.
    fn take(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        turn.work += self.work_to_take(&request.command, now);
        // Before any evaluation for it, whose result would stay until the next command.
        if let Command::Commit { parts } = &request.command
            && let Err(rejection) = self.refuse_many_steps(parts)
        {
            self.release(request.reply.answer(Err(rejection)), Gate::Commit, out);
            return Ok(());
        }
        let ahead = Preparation::Command { ticket: request.ticket, command: &request.command };
        if !self.prepare(ahead, now) {
            self.preparation.request = Some(request);
            return Ok(());
        }
        self.carry_out(request, now, out, turn)
    }

    /// Carries one command out. Commands that store contents may wait for room; others run at once.
    fn carry_out(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        if let Some(stored) = request.command.cost().stored {
            return self.take_send(request, stored, now, out, turn);
        }
        if request.reply.transfer_claim().is_some() {
            return self.take_over_list(request, now, out, turn);
        }
        self.apply(request, now, Reserved::Granted, out, turn).map(|_| ())
    }

    /// Applies one command and answers it. Returns whether it changed anything.
    fn apply(
        &mut self,
        request: Request,
        now: Timestamp,
        room: Reserved,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<bool, TreeFault> {
        if commit::covers_several_machines(&request.command) {
            return self.commit_across_machines(request, now, room, out, turn);
        }
        let Request { ticket, sub_queue, command, mut reply } = request;
        let attached = command.opens().link;
        if let Command::Detach { receiver, .. } = &command {
            self.links.remove(receiver);
        }
        let changes_before = turn.changes;
        let mut answer = None;
        let result = self.step(out, turn, now, room, |machine, ctx, step| {
            answer = Some(machine.apply(ticket, sub_queue, command, ctx, step)?);
            Ok(())
        })?;
        let changed = turn.changes > changes_before;
        match (result, answer) {
            (Err(rejection), _) => self.release(reply.answer(Err(rejection)), Gate::Commit, out),
            (Ok(()), Some(Answer::Now(outcome, gate))) => {
                if let Some(receiver) = attached {
                    self.links.extend(reply.link().map(|link| (receiver, link)));
                }
                if let MachineOutcome::Received(shown) | MachineOutcome::Peeked(shown) = &outcome {
                    turn.work += shown.iter().map(|facts| facts.work() as u64).sum::<u64>();
                }
                let outcome = self.resolve(outcome)?;
                self.release(reply.answer(Ok(outcome)), gate, out);
            }
            (Ok(()), Some(Answer::Later) | None) => {
                reply.release_permit();
                self.waiting.insert(ticket, reply);
            }
        }
        Ok(changed)
    }

    /// Matches demand, writes the counters and ends the list.
    fn finish(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
            machine.serve(ctx, step);
            Ok(())
        })?
        .ok();
        if let Some(counted) = &mut self.counted {
            counted.note(self.machine.memory_use());
        }
        turn.work += turn::turn_work(std::mem::take(&mut self.preparation.steps));
        turn.wants_load = self.load.as_ref().is_some_and(Load::is_wanted);
        if let Some(journey) = &mut self.journey {
            journey.hand_over();
        }
        let mut tree = self.tree.borrow_mut();
        if let Some(durability) = self.machine.checkpoint(now, tree.batch()) {
            tree.require(durability, now);
        }
        if let Some(family) = tree.family() {
            self.machine.report_to_family(family);
        }
        Ok(())
    }

    /// Lets the machine work with the state of its tree, the limits and the remaining capacity.
    fn with_context<R>(
        &mut self,
        now: Timestamp,
        room: Reserved,
        run: impl FnOnce(&mut M, &mut Ctx<'_>) -> R,
    ) -> R {
        let remaining = self.left();
        let tree = self.tree.borrow();
        let mut ctx = Ctx {
            now,
            stage: tree.stage_number(),
            stored_bytes: tree.stored_bytes(),
            room,
            remaining,
            limits: &self.limits,
            tokens: &mut *self.tokens,
        };
        run(&mut self.machine, &mut ctx)
    }

    /// Calls the machine once with `run`, as one atomic unit: stages all changes of the call
    /// together, and releases its effects.
    fn step(
        &mut self,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
        now: Timestamp,
        room: Reserved,
        run: impl FnOnce(&mut M, &mut Ctx<'_>, &mut StepOutput) -> Result<(), Rejection>,
    ) -> Result<Result<(), Rejection>, TreeFault> {
        let mut step = std::mem::take(&mut self.step);
        let result = self.with_context(now, room, |machine, ctx| run(machine, ctx, &mut step));
        let result = result.map_err(|rejection| self.explain_shortage(rejection, room));
        let moves = std::mem::take(&mut step.moves);
        turn.add_work(moves, step.changes.iter().map(Change::work).sum());
        if let Some(journey) = &mut self.journey {
            journey.note(&self.machine, &step.changes, &step.events, now);
        }
        if let Some(samples) = &mut self.samples {
            samples.note(&mut step.samples);
        }
        if !step.changes.is_empty() {
            let mut tree = self.tree.borrow_mut();
            if tree.stage_number() > self.marked {
                self.marked = tree.stage_number();
                tree.mark(self.number);
            }
            for change in step.changes.drain(..) {
                self.machine.records(&change, tree.batch());
                turn.count(&change);
                if let Some(taps) = &mut self.taps {
                    taps.note(&change, self.marked, now);
                }
                if let Change::OfTopic(change) = change {
                    step.bytes_freed += tree.apply_topic_change(change);
                }
            }
            tree.account(step.bytes_added, step.bytes_freed);
            tree.free(std::mem::take(&mut step.bytes_departed));
            if let Some(durability) = step.durability.take() {
                tree.require(durability, now);
            }
            (step.bytes_added, step.bytes_freed) = (0, 0);
        }
        self.note_locks(&mut step);
        turn.take_counts(&mut step);
        let mut effects = std::mem::take(&mut step.effects);
        self.step = step;
        for effect in effects.drain(..) {
            self.release_effect(effect, now, out, turn)?;
        }
        self.step.effects = effects;
        // A stage is cut between units, so that a batch has whole units only. It includes the
        // counters: a durable message may leave, so its number must not be given again.
        let mut tree = self.tree.borrow_mut();
        if tree.is_large() {
            if let Some(durability) = self.machine.checkpoint(now, tree.batch()) {
                tree.require(durability, now);
            }
            tree.cut();
        }
        drop(tree);
        Ok(result)
    }

    fn release_effect(
        &mut self,
        effect: Effect,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        match effect {
            Effect::Answer { ticket, result, gate } => {
                let Some(reply) = self.waiting.remove(&ticket) else { return Ok(()) };
                if let Ok(MachineOutcome::SessionAccepted { receiver, .. }) = &result {
                    self.links.extend(reply.link().map(|link| (*receiver, link)));
                }
                let result = match result {
                    Ok(outcome) => {
                        if let MachineOutcome::Received(messages) = &outcome {
                            for facts in messages {
                                turn.count_delivery(facts);
                                self.note_wait(facts, now);
                            }
                        }
                        Ok(self.resolve(outcome)?)
                    }
                    Err(rejection) => Err(rejection),
                };
                self.release(reply.answer(result), gate, out);
            }
            Effect::Deliver { receiver, facts, gate } => {
                let Some(link) = self.links.get(&receiver).cloned() else { return Ok(()) };
                turn.count_delivery(&facts);
                self.note_wait(&facts, now);
                let Some(message) = self.pin(vec![facts])?.pop() else { return Ok(()) };
                self.release(Some(link.delivery(receiver, message)), gate, out);
            }
            Effect::Detached { receiver, reason } => {
                if let Some(link) = self.links.remove(&receiver) {
                    self.release(Some(link.detached(receiver, reason)), Gate::Commit, out);
                }
            }
            Effect::SessionEnded { receiver } => {
                self.links.remove(&receiver);
                if let Some(host) = &mut self.host {
                    host.end(receiver);
                }
            }
            Effect::HandOver(list) => {
                // Handing over moves the messages, and looks up each overlay on them.
                let facts = list.messages.iter().map(|handed| handed.facts);
                turn.work += facts.map(|facts| u64::from(facts.overlay_count)).sum::<u64>();
                let list = self.pin_list(*list)?;
                self.outgoing.push(list);
            }
            Effect::IdleElapsed => turn.idle_elapsed = true,
            Effect::Load { sequences, bytes } => self.load(&sequences, bytes)?,
        }
        Ok(())
    }

    /// Releases a reply or delivery now, or with the stage on which it depends.
    fn release(&self, release: Option<Release>, gate: Gate, out: &mut Vec<Release>) {
        let Some(release) = release else { return };
        match gate {
            Gate::Open => out.push(release),
            Gate::Commit => out.extend(self.tree.borrow_mut().hold(release)),
        }
    }
}
