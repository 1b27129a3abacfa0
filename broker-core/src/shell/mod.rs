//! What drives a machine: everything between mail and store. (Data path, steps 2 to 5.)
//!
//! Without actix, threads and a clock: the actor is a thin driver of a shell, the simulator is
//! another. A shell stamps the time, applies a list of commands, stages the changes in its tree, and
//! lets effects out by the rules of DESIGN D5.

pub mod commit;
pub mod load;
mod pin;
mod room;
pub mod session;
pub mod tree;
mod turn;
pub mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::admission::{Budget, Loads};
use crate::census::{Census, Counted};
use crate::change::Change;
use crate::command::{Command, MachineOutcome};
use crate::effect::{Answer, Effect, Gate};
use crate::entity::family::MemberNumber;
use crate::entity::{Ahead, Ctx, Left, Machine, Moves, StageNumber, Step};
use crate::error::Rejection;
use crate::ids::{ReceiverId, Ticket};
use crate::limits::Limits;
use crate::request::{Link, Release, Reply, Request};
use crate::store::{Reserved, Store, Waker};
use crate::time::Timestamp;
use crate::transfer::{HandOver, PinnedMessage};

use self::load::Load;
use self::room::Parked;
use self::session::SessionHost;
use self::tree::Tree;

pub use self::turn::Turn;

/// Something broke that is not the caller's doing; the tree ends and is rebuilt (DESIGN D3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

/// How much of its arbiter a turn may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Share {
    /// All: nobody else waits.
    #[default]
    All,
    /// That of one among many: what takes long is left to a long turn.
    Turn,
    /// That of a long turn, of which there is one at a time.
    LongTurn,
}

/// Drives one machine.
pub struct Shell<M> {
    machine: M,
    tree: Rc<RefCell<Tree>>,
    /// Its place among the machines of the tree, and the last stage that it has something in.
    number: MemberNumber,
    marked: StageNumber,
    store: Arc<dyn Store>,
    limits: Arc<Limits>,
    tokens: Box<dyn FnMut() -> u64>,
    /// Commands that are answered later.
    waiting: HashMap<Ticket, Reply>,
    links: HashMap<ReceiverId, Link>,
    parked: Parked,
    /// Who drives the sessions that are held, if it is not who drives this.
    host: Option<Box<dyn SessionHost>>,
    /// Contents that the machine has asked for, and the room for such.
    load: Option<Load>,
    loads: Loads,
    step: Step,
    keys: Vec<crate::store::Key>,
    /// Messages that leave, until the driver takes them.
    outgoing: Vec<HandOver<PinnedMessage>>,
    /// Whether the machine is judging something ahead; then it takes nothing else.
    is_judging: bool,
    /// The command that it is judged for, unless that is parked.
    judged: Option<Request>,
    /// Whether it was judging the first of those that are parked when that was last asked about.
    judges_parked: bool,
    /// What it has told of what the broker keeps, if somebody counts.
    counted: Option<Counted>,
    share: Share,
    /// Steps that were taken to judge in this turn.
    judged_steps: u64,
}

impl<M: Machine> Shell<M> {
    /// A shell around a machine. `tokens` gives random bits that cannot be guessed; `parking` is what
    /// sends draw on that wait for room in the store, and `waker` makes what wakes the driver then.
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
            parked: Parked::new(parking, waker),
            host: None,
            load: None,
            loads: Loads::new(u64::MAX),
            step: Step::default(),
            keys: Vec::new(),
            outgoing: Vec::new(),
            is_judging: false,
            judged: None,
            judges_parked: false,
            counted: None,
            share: Share::default(),
            judged_steps: 0,
        }
    }

    /// Has what the machine keeps counted with what all others of the broker do, and bounded by that.
    #[must_use]
    pub fn counted(mut self, census: Arc<Census>) -> Self {
        let mut counted = Counted::new(census);
        counted.note(self.machine.kept());
        self.counted = Some(counted);
        self
    }

    /// Has contents that the machine asks for take of the room that the broker has for such.
    #[must_use]
    pub fn loading_within(mut self, loads: Loads) -> Self {
        self.loads = loads;
        self
    }

    fn left(&self) -> Left {
        self.counted.as_ref().map_or(Left::ALL, |counted| counted.left(&self.limits))
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, without what drove it.
    pub fn into_machine(self) -> M {
        self.machine
    }

    /// Its place among the machines of the tree.
    pub const fn number(&self) -> MemberNumber {
        self.number
    }

    /// The lists that the machine has handed over since the last call; the driver brings each to its
    /// destination, and says what became of it with [`Command::TransferOut`].
    pub fn take_outgoing(&mut self) -> Vec<HandOver<PinnedMessage>> {
        std::mem::take(&mut self.outgoing)
    }

    /// The tree that carries its changes.
    pub const fn tree(&self) -> &Rc<RefCell<Tree>> {
        &self.tree
    }

    /// Runs a list of commands: time passes, each is applied, demand is matched once.
    ///
    /// # Errors
    /// When the tree must end.
    pub fn run(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<Turn, Failure> {
        let mut turn = Turn::default();
        self.catch_up(now)?;
        self.let_time_pass(now, out, &mut turn)?;
        self.is_judging |= self.share == Share::Turn && self.judged.is_some();
        if let Some(request) = self.judged.take_if(|_| !self.is_judging) {
            self.take(request, now, out, &mut turn)?;
        }
        // It waited behind what was judged, and nothing else would bring it up again.
        if !self.is_judging {
            self.hand_over_loaded(now, out, &mut turn)?;
        }
        let mut requests = requests.into_iter();
        // What is not taken stays with the driver, in its order.
        while !self.is_judging
            && self.is_turn_open(&turn)
            && let Some(request) = requests.next()
        {
            self.take(request, now, out, &mut turn)?;
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }

    /// Has the machine find out what it has to before it carries something out; returns whether it can now.
    fn go_ahead(&mut self, ahead: Ahead<'_>, now: Timestamp) -> bool {
        if self.share == Share::Turn && self.is_long(ahead, now) {
            self.is_judging = true;
            return false;
        }
        let left = self.left();
        let tree = self.tree.borrow();
        let mut ctx = Ctx {
            now,
            stage: tree.stage_number(),
            stored_bytes: tree.stored_bytes(),
            room: Reserved::Granted,
            left,
            limits: &self.limits,
            tokens: &mut *self.tokens,
        };
        let can_go_on = self.machine.go_ahead(ahead, &mut ctx);
        drop(tree);
        self.judged_steps += self.machine.take_judged();
        self.is_judging = !can_go_on;
        can_go_on
    }

    /// Is told that every stage up to this one is durable; matches demand with what that offers.
    ///
    /// # Errors
    /// When the tree must end.
    pub fn committed(
        &mut self,
        stage: StageNumber,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<Turn, Failure> {
        self.machine.committed(stage);
        self.run([], now, out)
    }

    /// Tells the machine what has come from the others of its tree and what is durable by now, and ends
    /// a tree of which an append failed: its answers would rest on what the store does not have.
    fn catch_up(&mut self, now: Timestamp) -> Result<(), Failure> {
        let mut tree = self.tree.borrow_mut();
        if tree.is_lost() {
            return Err(Failure("an append failed".to_owned()));
        }
        let durable = tree.durable_stage();
        if let Some(family) = tree.family() {
            self.machine.take_in(family, now);
        }
        drop(tree);
        self.machine.committed(durable);
        Ok(())
    }

    /// Whether a command waits for room in the store.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The next instant at which [`Shell::run`] has something to do, even without commands, for whoever
    /// drives everything.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.is_judging {
            return Some(Timestamp::NONE);
        }
        let others = [self.tree.borrow().flush_deadline(), self.parked.next_deadline()];
        self.machine.next_deadline().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// When something is due apart from the sessions that are held, and from the stage of the tree.
    pub fn own_deadline(&self) -> Option<Timestamp> {
        self.machine.own_deadline().into_iter().chain(self.parked.next_deadline()).min()
    }

    /// Ends everything that waits: calls and links get this reason. What is staged stays staged.
    pub fn close(&mut self, reason: &Rejection, out: &mut Vec<Release>) {
        for (_, reply) in self.waiting.drain() {
            out.extend(reply.answer(Err(reason.clone())));
        }
        for request in self.judged.take().into_iter().chain(self.parked.drain()) {
            out.extend(request.reply.answer(Err(reason.clone())));
        }
        for (receiver, link) in self.links.drain() {
            out.push(link.detached(receiver, reason.clone()));
        }
    }

    /// Ends waiting receive calls with nothing, as a stop does; links and locks stay.
    ///
    /// # Errors
    /// When the tree must end.
    pub fn end_waits(&mut self, now: Timestamp, out: &mut Vec<Release>) -> Result<Turn, Failure> {
        let mut turn = Turn::default();
        let calls: Vec<Ticket> = self.waiting.keys().copied().collect();
        for call in calls {
            let command = Command::CancelReceive { call };
            self.step(out, &mut turn, now, Reserved::Granted, |machine, ctx, step| {
                machine.apply(call, crate::path::SubQueue::Main, command, ctx, step).map(|_| ())
            })?
            .ok();
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }

    fn let_time_pass(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        self.machine.pace(match self.share {
            Share::Turn => Moves::Few,
            Share::All | Share::LongTurn => Moves::Many,
        });
        self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
            machine.advance(ctx, step);
            Ok(())
        })?
        .ok();
        // The machine keeps what it has found for one at a time: what is due would have a command that is begun be
        // judged from its beginning again, each time that something is.
        let is_command_begun = self.judged.is_some() || (self.is_judging && self.judges_parked);
        self.is_judging = false;
        if !is_command_begun {
            self.hand_over_loaded(now, out, turn)?;
        }
        if self.is_judging {
            return Ok(());
        }
        self.take_up_parked(now, out, turn)
    }

    /// Takes one command, unless it is for a long turn, which it waits for.
    fn take(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        turn.steps += 1;
        // Before anything is judged for it: that would stay until the machine is asked again.
        if let Command::Commit { parts } = &request.command
            && let Err(rejection) = self.refuse_many_steps(parts)
        {
            self.let_out(request.reply.answer(Err(rejection)), Gate::Commit, out);
            return Ok(());
        }
        let ahead = Ahead::Command { ticket: request.ticket, command: &request.command };
        if !self.go_ahead(ahead, now) {
            self.judged = Some(request);
            return Ok(());
        }
        self.carry_out(request, now, out, turn)
    }

    /// Carries one command out: what stores content of any size waits for room, all others run at once.
    fn carry_out(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        if let Some(stored) = request.command.cost().stored {
            return self.take_send(request, stored, now, out, turn);
        }
        if request.reply.passage().is_some() {
            return self.take_list(request, now, out, turn);
        }
        self.apply(request, now, Reserved::Granted, out, turn).map(|_| ())
    }

    /// Applies one command and answers it; returns whether it changed anything.
    fn apply(
        &mut self,
        request: Request,
        now: Timestamp,
        room: Reserved,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<bool, Failure> {
        if commit::is_over_several(&request.command) {
            return self.commit_over_several(request, now, room, out, turn);
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
            (Err(rejection), _) => self.let_out(reply.answer(Err(rejection)), Gate::Commit, out),
            (Ok(()), Some(Answer::Now(outcome, gate))) => {
                if let Some(receiver) = attached {
                    self.links.extend(reply.link().map(|link| (receiver, link)));
                }
                if let MachineOutcome::Received(shown) | MachineOutcome::Peeked(shown) = &outcome {
                    turn.steps += shown.iter().map(|facts| facts.steps() as u64).sum::<u64>();
                }
                let outcome = self.resolve(outcome)?;
                self.let_out(reply.answer(Ok(outcome)), gate, out);
            }
            (Ok(()), Some(Answer::Later) | None) => {
                reply.wait();
                self.waiting.insert(ticket, reply);
            }
        }
        Ok(changed)
    }

    /// Matches demand, writes the counters and closes the list.
    fn finish(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
            machine.serve(ctx, step);
            Ok(())
        })?
        .ok();
        if let Some(counted) = &mut self.counted {
            counted.note(self.machine.kept());
        }
        turn.steps += turn::judged_steps(std::mem::take(&mut self.judged_steps));
        turn.wants_load = self.load.as_ref().is_some_and(Load::is_wanted);
        let mut tree = self.tree.borrow_mut();
        if let Some(durability) = self.machine.checkpoint(now, tree.batch()) {
            tree.require(durability, now);
        }
        if let Some(family) = tree.family() {
            self.machine.give_out(family);
        }
        Ok(())
    }

    /// Runs one atomic unit of the machine: its changes are staged together, its effects let out.
    fn step(
        &mut self,
        out: &mut Vec<Release>,
        turn: &mut Turn,
        now: Timestamp,
        room: Reserved,
        run: impl FnOnce(&mut M, &mut Ctx<'_>, &mut Step) -> Result<(), Rejection>,
    ) -> Result<Result<(), Rejection>, Failure> {
        let mut step = std::mem::take(&mut self.step);
        let result = {
            let left = self.left();
            let tree = self.tree.borrow();
            let mut ctx = Ctx {
                now,
                stage: tree.stage_number(),
                stored_bytes: tree.stored_bytes(),
                room,
                left,
                limits: &self.limits,
                tokens: &mut *self.tokens,
            };
            run(&mut self.machine, &mut ctx, &mut step)
        };
        let result = result.map_err(|rejection| self.explain_shortage(rejection, room));
        let moves = std::mem::take(&mut step.moves);
        turn.weigh(moves, step.changes.iter().map(Change::steps).sum());
        if !step.changes.is_empty() {
            let mut tree = self.tree.borrow_mut();
            if tree.stage_number() > self.marked {
                self.marked = tree.stage_number();
                tree.mark(self.number);
            }
            for change in step.changes.drain(..) {
                self.machine.records(&change, tree.batch());
                turn.count(&change);
                if let Change::OfTopic(change) = change {
                    step.bytes_freed += tree.learn(change);
                }
            }
            tree.account(step.bytes_added, step.bytes_freed);
            tree.free(std::mem::take(&mut step.bytes_left));
            if let Some(durability) = step.durability.take() {
                tree.require(durability, now);
            }
            (step.bytes_added, step.bytes_freed) = (0, 0);
        }
        turn.counts.lapsed += std::mem::take(&mut step.lapsed_count);
        turn.counts.undelayed += std::mem::take(&mut step.undelayed_count);
        let mut effects = std::mem::take(&mut step.effects);
        self.step = step;
        for effect in effects.drain(..) {
            self.let_effect_out(effect, out, turn)?;
        }
        self.step.effects = effects;
        // A stage is cut between units, so that a batch holds whole units only. It takes the counters
        // along: a message that is durable can leave, and its number must not be given again.
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

    fn let_effect_out(
        &mut self,
        effect: Effect,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        match effect {
            Effect::Answer { ticket, result, gate } => {
                let Some(reply) = self.waiting.remove(&ticket) else { return Ok(()) };
                if let Ok(MachineOutcome::SessionAccepted { receiver, .. }) = &result {
                    self.links.extend(reply.link().map(|link| (*receiver, link)));
                }
                let result = match result {
                    Ok(outcome) => {
                        if let MachineOutcome::Received(messages) = &outcome {
                            messages.iter().for_each(|facts| turn.count_delivery(facts));
                        }
                        Ok(self.resolve(outcome)?)
                    }
                    Err(rejection) => Err(rejection),
                };
                self.let_out(reply.answer(result), gate, out);
            }
            Effect::Deliver { receiver, facts, gate } => {
                let Some(link) = self.links.get(&receiver).cloned() else { return Ok(()) };
                turn.count_delivery(&facts);
                let Some(message) = self.pin(vec![facts])?.pop() else { return Ok(()) };
                self.let_out(Some(link.delivery(receiver, message)), gate, out);
            }
            Effect::Detached { receiver, reason } => {
                if let Some(link) = self.links.remove(&receiver) {
                    self.let_out(Some(link.detached(receiver, reason)), Gate::Commit, out);
                }
            }
            Effect::SessionEnded { receiver } => {
                self.links.remove(&receiver);
                if let Some(host) = &mut self.host {
                    host.end(receiver);
                }
            }
            Effect::HandOver(list) => {
                // The messages of a list are moved; what is set on them is looked up.
                let facts = list.messages.iter().map(|handed| handed.facts);
                turn.steps += facts.map(|facts| u64::from(facts.overlay_count)).sum::<u64>();
                let list = self.pin_list(*list)?;
                self.outgoing.push(list);
            }
            Effect::IdleElapsed => turn.idle_elapsed = true,
            Effect::Load { sequences, bytes } => self.load(&sequences, bytes)?,
        }
        Ok(())
    }

    /// Lets something out now, or with the stage that it rests on.
    fn let_out(&self, release: Option<Release>, gate: Gate, out: &mut Vec<Release>) {
        let Some(release) = release else { return };
        match gate {
            Gate::Open => out.push(release),
            Gate::Commit => out.extend(self.tree.borrow_mut().hold(release)),
        }
    }
}
