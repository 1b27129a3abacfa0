//! Actor of an entity: takes commands from its inlet, runs them through the shell, and arms one
//! timer. It shares a `Drive` with the actors of its sessions.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message};

use super::desk::Desk;
use super::drive::Drive;
use super::inlet::{self, RequestGroup, StaleKind};
use super::messages::{
    BeginLongTurn, ContentsLoaded, EndWaits, ListEnded, Retire, RetireWhen, RoomAgain, Round,
    RoundQuestion, RoundScope, TreeNews,
};
use super::wakeups::{self, Knock, TurnActor, Wakeups};
use crate::command::Command;
use crate::error::Rejection;
use crate::ids::Ticket;
use crate::machine::StageNumber;
use crate::machine::any::AnyMachine;
use crate::path::SubQueue;
use crate::request::{Release, Reply, Request};
use crate::shell::tree::Tree;
use crate::shell::{Shell, TreeFault, TurnResults};
use crate::time::Timestamp;

/// Maximum number of turns in which an idle queue takes new commands before it is closed.
const IDLE_LOOKS_MAX: usize = 4;

/// The actor of an entity.
pub struct EntityActor {
    drive: Rc<Drive>,
    /// Requests taken from the inlet that must wait for the end of a hold.
    groups: VecDeque<RequestGroup>,
    wakeups: Wakeups,
    /// Results of lists that were carried to other entities; the machine gets them before any new
    /// request.
    ended: VecDeque<Request>,
    /// Whether it waits for a long turn; until then it takes no other.
    awaits_long_turn: bool,
    /// Last stage of a retired actor, and the callback for when that stage is durable.
    retired: Option<(StageNumber, Box<dyn FnOnce() + Send>)>,
}

impl EntityActor {
    pub(super) fn new(drive: Rc<Drive>) -> Self {
        let wakeups = Wakeups::new(Arc::clone(&drive.clock));
        Self {
            drive,
            groups: VecDeque::new(),
            wakeups,
            ended: VecDeque::new(),
            awaits_long_turn: false,
            retired: None,
        }
    }

    /// Runs one turn of the shell, then arms the timer.
    pub(super) fn turn(
        &mut self,
        context: &mut Context<Self>,
        run: impl FnOnce(
            &mut Shell<AnyMachine>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        self.drive.turn(run);
        self.arm(context);
    }

    /// Arms the timer for the earliest deadline if it is earlier than the armed one. Deadlines of
    /// held sessions belong to their actors.
    fn arm(&mut self, context: &mut Context<Self>) {
        if !self.drive.is_running() {
            return;
        }
        let drive = Rc::clone(&self.drive);
        let now = drive.clock.now();
        if drive.wants_long_turn() {
            if !std::mem::replace(&mut self.awaits_long_turn, true) {
                let address = context.address();
                let begin = move |turn| address.do_send(BeginLongTurn(turn));
                drive.desk.long_turns.wait(drive.requester_of_long_turn(), begin);
            }
            // Staged changes do not wait for the long turn.
            let flush = drive.tree.borrow().flush_deadline().filter(|at| *at > now);
            if let Some(flush) = flush {
                wakeups::arm(self, flush, context);
            }
            drive.entity_wakes_at(Some(Timestamp::NONE));
            return;
        }
        let own = drive.own_deadline();
        if own.is_some_and(|at| at <= now) {
            // Due work needs a submission, whose completion starts the next turn; or it exceeds one
            // turn, and the rest waits until all other ready work has run. A timer would fire at
            // once, within this poll, and keep the desk from submitting.
            let wants_submit = drive.tree.borrow().wants_submit(now);
            if wants_submit {
                drive.tree.borrow_mut().mark_last(drive.number);
            } else {
                wakeups::knock_later(self, context);
            }
            drive.entity_wakes_at(Some(Timestamp::NONE));
            return;
        }
        // The desk already has staged changes that are due.
        let flush = drive.tree.borrow().flush_deadline().filter(|at| *at > now);
        if let Some(deadline) = own.into_iter().chain(flush).min() {
            wakeups::arm(self, deadline, context);
        }
        drive.entity_wakes_at(self.wakeups.armed());
    }

    /// Takes commands from the inlet, then yields to other ready work on this arbiter. A request
    /// that ends a hold, and all requests after it, wait until the earlier requests in the inlet of
    /// that session are carried out.
    fn take_commands(&mut self, context: &mut Context<Self>) {
        if !self.drive.check_tree() {
            self.give_back();
            return;
        }
        self.refuse_stale();
        if self.awaits_long_turn {
            return;
        }
        self.turn_of_commands(context);
    }

    /// Takes a turn with the requests that have arrived.
    fn turn_of_commands(&mut self, context: &mut Context<Self>) {
        let drive = Rc::clone(&self.drive);
        let mut groups = std::mem::take(&mut self.groups);
        let mut ended = std::mem::take(&mut self.ended);
        let started = Instant::now();
        let (count, more) = if groups.is_empty() {
            drive.inlet.take(self.wakeups.turn_size(), &mut groups)
        } else {
            (0, true)
        };
        let (mut holders, mut ends) = (BTreeSet::new(), None);
        let mut requests = std::iter::from_fn(|| {
            if let Some(request) = ended.pop_front() {
                return Some(request);
            }
            match inlet::first(&groups).map(|request| &request.command) {
                // This request bypasses the session's actor, which must check its deadlines
                // afterwards.
                Some(Command::InSession { receiver, .. }) => {
                    holders.insert(*receiver);
                }
                Some(Command::Detach { receiver, .. }) if drive.has_requests_of(*receiver) => {
                    ends = Some(*receiver);
                    return None;
                }
                Some(_) | None => {}
            }
            inlet::next(&mut groups)
        });
        drive.turn(|shell, now, out| shell.run(&mut requests, now, out));
        self.groups = groups;
        self.ended = ended;
        if let Some(holder) = ends {
            drive.last_turn_of(holder);
        }
        self.arm(context);
        self.give_back();
        self.wakeups.adapt_turn_size(count, started);
        drive.wake_sessions(&holders);
        if more || !self.groups.is_empty() || !self.ended.is_empty() {
            wakeups::knock_later(self, context);
        }
    }

    /// Takes a turn without commands, unless it waits for a long one.
    fn empty_turn(&mut self, context: &mut Context<Self>) {
        let drive = &self.drive;
        if !self.awaits_long_turn {
            self.turn(context, |shell, now, out| shell.run([], now, out));
        } else if drive.tree.borrow().wants_submit(drive.clock.now()) {
            drive.desk.mark_dirty(drive.tree_number);
        }
    }

    /// Refuses requests that have waited too long for an unfinished publish or for long turns, if
    /// others need their room.
    fn refuse_stale(&mut self) {
        let drive = &self.drive;
        for kind in [StaleKind::Sends, StaleKind::Lists] {
            let Some(at) = drive.queue_timeout.arrival_deadline(kind, drive.clock.now()) else {
                continue;
            };
            let mut late = inlet::take_stale(&mut self.groups, kind, at);
            late.extend(drive.inlet.take_stale(kind, at));
            if !late.is_empty() {
                drive.queue_timeout.refuse(late);
            }
        }
    }

    /// After a failure: returns requests that were not carried out to the inlet, for the rebuilt
    /// machine.
    fn give_back(&mut self) {
        if !self.drive.is_running() {
            // The rebuilt machine does not know these lists.
            self.ended.clear();
        }
        if !self.drive.is_running() && !self.groups.is_empty() {
            self.drive.inlet.give_back(std::mem::take(&mut self.groups));
        }
    }

    /// Ends the machine, and with it its tree. Requests wait for the rebuilt one.
    fn end_with_tree(&mut self, why: &str, context: &mut Context<Self>) {
        self.drive.fail(why);
        self.give_back();
        wakeups::disarm(self, context);
        self.end_if_quiet(context);
    }

    /// Closes the inlet if the queue is still idle after all arrived commands. After
    /// [`IDLE_LOOKS_MAX`] turns it gives up; the queue reports again later that it is idle.
    fn close_if_idle(&mut self, reason: &Rejection, context: &mut Context<Self>) -> bool {
        for _ in 0..IDLE_LOOKS_MAX {
            let now = self.drive.clock.now();
            let shell = self.drive.shell();
            // A publish that is being judged counts as arrived.
            if !shell.is_some_and(|shell| {
                let shell = shell.borrow();
                !shell.is_preparing() && shell.machine().is_idle(now)
            }) {
                return false;
            }
            if self.groups.is_empty() && self.drive.inlet.close_if_empty(reason) {
                return true;
            }
            self.take_commands(context);
        }
        false
    }

    /// Whether no work is left that proceeds without the passage of time.
    pub(super) fn is_quiet(&self, scope: RoundScope) -> bool {
        let now = self.drive.clock.now();
        self.groups.is_empty() && self.wakeups.is_quiet(now) && self.drive.is_quiet(now, scope)
    }

    /// Keeps a round while something is held here.
    pub(super) fn keep_while_held(&self, round: Arc<Round>) {
        if !self.groups.is_empty() || self.drive.holds_something() {
            round.record(false);
            self.drive.keep(round);
        }
    }

    /// Asks the actors of its sessions.
    pub(super) fn ask_sessions(&self, round: &Arc<Round>) {
        self.drive.ask_sessions(round);
    }

    /// Ends a retired actor, and calls back, when its last stage is durable or lost with its tree.
    fn end_if_quiet(&mut self, context: &mut Context<Self>) {
        let Some((last, _)) = &self.retired else { return };
        let tree = self.drive.tree.borrow();
        let is_quiet = tree.durable_stage() >= *last || (tree.is_lost() && tree.is_quiet());
        drop(tree);
        if !is_quiet {
            return;
        }
        if let Some((_, done)) = self.retired.take() {
            self.drive.desk.leave(self.drive.tree_number, self.drive.number);
            done();
            context.stop();
        }
    }
}

impl TurnActor for EntityActor {
    fn wakeups(&mut self) -> &mut Wakeups {
        &mut self.wakeups
    }

    fn alarm(&mut self, context: &mut Context<Self>) {
        self.empty_turn(context);
    }
}

impl Actor for EntityActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let drive = &self.drive;
        drive.connect(&context.address());
        drive.desk.connect(drive.tree_number, drive.number, context.address().recipient());
        drive.inlet.attach(context.address().recipient());
        self.turn(context, |shell, now, out| shell.run([], now, out));
    }
}

impl Handler<Knock> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: Knock, context: &mut Self::Context) {
        self.wakeups.note_knock();
        self.take_commands(context);
    }
}

impl Handler<BeginLongTurn> for EntityActor {
    type Result = ();

    fn handle(&mut self, BeginLongTurn(_turn): BeginLongTurn, context: &mut Self::Context) {
        self.awaits_long_turn = false;
        if !self.drive.check_tree() {
            self.give_back();
            return;
        }
        self.refuse_stale();
        let drive = Rc::clone(&self.drive);
        drive.long_turn(|| self.turn_of_commands(context));
    }
}

impl Handler<ContentsLoaded> for EntityActor {
    type Result = ();

    fn handle(&mut self, loaded: ContentsLoaded, context: &mut Self::Context) {
        let ContentsLoaded { contents, room } = loaded;
        self.turn(context, |shell, now, out| shell.loaded(contents, room, now, out));
    }
}

impl Handler<TreeNews> for EntityActor {
    type Result = ();

    fn handle(&mut self, news: TreeNews, context: &mut Self::Context) {
        match news {
            TreeNews::Knock => self.handle(Knock, context),
            TreeNews::Committed(stage) => {
                // A long turn will use the state that is durable when it begins.
                if !self.awaits_long_turn {
                    self.turn(context, |shell, now, out| shell.committed(stage, now, out));
                }
                self.end_if_quiet(context);
            }
            TreeNews::StoreFailed(why) => self.end_with_tree(&why, context),
        }
    }
}

impl Handler<ListEnded> for EntityActor {
    type Result = ();

    fn handle(&mut self, mail: ListEnded, context: &mut Self::Context) {
        let ListEnded { list, departures } = mail;
        let departures = match departures {
            Ok(departures) => departures,
            Err(error) => {
                let why = format!("the result of a transfer is unknown: {error}");
                self.end_with_tree(&why, context);
                return;
            }
        };
        let request = Request {
            ticket: Ticket(0),
            sub_queue: SubQueue::Main,
            command: Command::EndTransfer { list, departures },
            reply: Reply::without_receiver(),
        };
        self.ended.push_back(request);
        self.take_commands(context);
    }
}

impl Handler<RoundQuestion> for EntityActor {
    type Result = ();

    fn handle(&mut self, RoundQuestion(round): RoundQuestion, _: &mut Context<Self>) {
        if round.scope == RoundScope::Held {
            self.keep_while_held(round);
            return;
        }
        round.record(self.is_quiet(round.scope));
        self.ask_sessions(&round);
    }
}

impl Handler<RoomAgain> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: RoomAgain, context: &mut Self::Context) {
        self.empty_turn(context);
    }
}

impl Handler<EndWaits> for EntityActor {
    type Result = ();

    fn handle(&mut self, _: EndWaits, context: &mut Self::Context) {
        self.turn(context, Shell::end_waits);
    }
}

impl Handler<Retire> for EntityActor {
    type Result = ();

    fn handle(&mut self, Retire { when, reason, done }: Retire, context: &mut Self::Context) {
        if when == RetireWhen::Idle {
            // Other machines of its tree may have work for it.
            self.turn(context, |shell, now, out| shell.run([], now, out));
            if !self.close_if_idle(&reason, context) {
                return;
            }
        }
        self.drive.inlet.give_back(std::mem::take(&mut self.groups));
        self.drive.inlet.close(&reason);
        self.turn(context, |shell, _, out| {
            shell.close(&reason, out);
            Ok(TurnResults::default())
        });
        let drive = Rc::clone(&self.drive);
        let mut tree = drive.tree.borrow_mut();
        tree.leave_family(drive.id);
        let last = tree.mark_last(drive.number);
        tree.flush();
        drop(tree);
        self.retired = Some((last, done));
        if drive.retire() {
            drive.desk.halt(drive.tree_number);
            drive.desk.mark_dirty(drive.tree_number);
        }
        self.end_if_quiet(context);
    }
}

/// Asks a topic to take a new subscription into its tree, on its arbiter. The callback gets `None`
/// if the topic no longer can.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Adopt(pub(super) Box<dyn FnOnce(Option<SharedTree>) + Send>);

/// A tree that actors share, and its number at the desk.
pub(super) struct SharedTree {
    pub(super) tree: Rc<RefCell<Tree>>,
    pub(super) desk: Rc<Desk>,
    pub(super) tree_number: u64,
}

impl Handler<Adopt> for EntityActor {
    type Result = ();

    fn handle(&mut self, Adopt(start): Adopt, _: &mut Self::Context) {
        let drive = &self.drive;
        let home = drive.is_running() && !drive.tree.borrow().is_lost();
        start(home.then(|| SharedTree {
            tree: Rc::clone(&drive.tree),
            desk: Rc::clone(&drive.desk),
            tree_number: drive.tree_number,
        }));
    }
}
