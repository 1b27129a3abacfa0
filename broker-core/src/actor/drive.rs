//! State that the actor of an entity shares with the actors of its held sessions: the shell of
//! their one machine, and all work around its turns. Part of steps 2 to 5 of the data path.
//!
//! ```text
//!  queue's inlet ──► EntityActor ──┐                       ┌─► releases, couriers, contents
//!                                  ├─► Drive::turn ─► Shell ┤
//!  session's inlet ─► SessionActor ┘        │              └─► begins and ends SessionActors
//!                                           └─ mails the EntityActor only if work is due earlier
//! ```
//!
//! All of these actors run on one arbiter, and a turn is over before the next one begins.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Addr, Recipient, WeakAddr};
use peeklock_model::inspect::EntitySetup;

use super::background::drop_in_background;
use super::courier::Courier;
use super::desk::Desk;
use super::entity::EntityActor;
use super::inlet::{Inlet, StaleKind, next};
use super::messages::{ContentsLoaded, HoldEnded, IdleElapsed, Round, RoundQuestion, RoundScope};
use super::session::{HeldSession, SessionActor};
use super::wakeups::Knock;
use crate::admission::{Budget, LoadedFor, Loads};
use crate::clock::Clock;
use crate::error::Rejection;
use crate::ids::{EntityId, ReceiverId};
use crate::machine::Machine;
use crate::machine::any::AnyMachine;
use crate::machine::family::MemberNumber;
use crate::request::{Release, Request, RequesterId, SessionEntrance, release_all};
use crate::shell::load::LoadRequest;
use crate::shell::session::SessionHost;
use crate::shell::tree::Tree;
use crate::shell::{ArbiterShare, Shell, TreeFault, TurnResults};
use crate::telemetry::LiveGauges;
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of commands in a turn for the requests that precede the end of a hold.
const LAST_COMMANDS: usize = 256;

/// Reason for the end of all trees of a broker whose tenure has ended.
const TENURE_ENDED: &str = "the tenure of the broker has ended";

type SharedShell = Rc<RefCell<Shell<AnyMachine>>>;

/// A held session and its actor.
struct DrivenSession {
    session: Rc<HeldSession>,
    actor: Addr<SessionActor>,
}

/// The drive of a machine.
pub(super) struct Drive {
    pub(super) id: EntityId,
    /// `None` after a failure, until the parent has rebuilt the entity. The tree holds a weak
    /// reference: one machine carries out a transaction that covers several (TXN-08).
    shell: RefCell<Option<SharedShell>>,
    pub(super) tree: Rc<RefCell<Tree>>,
    /// Number of the machine in its tree.
    pub(super) number: MemberNumber,
    pub(super) inlet: Arc<Inlet>,
    /// Gauges that the drive publishes after each turn.
    observed: Arc<LiveGauges>,
    /// Properties that were published last.
    setup: RefCell<Arc<EntitySetup>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Desk of the arbiter, which submits the stages of its trees.
    pub(super) desk: Rc<Desk>,
    /// Number of the tree at the desk.
    pub(super) tree_number: u64,
    namespace: Recipient<IdleElapsed>,
    pub(super) queue_timeout: QueueTimeout,
    /// Moves messages to other entities.
    courier: Courier,
    /// The actor of the entity, which owns this drive. The reference is weak so that the actor can
    /// end.
    entity: OnceCell<WeakAddr<EntityActor>>,
    /// Instant at which that actor next takes a turn by itself.
    wakes_at: Cell<Option<Timestamp>>,
    /// The held sessions by their holders.
    sessions: RefCell<BTreeMap<ReceiverId, DrivenSession>>,
    /// Question of a broker that stops ([`Round`]): answered when [`Self::holds_something`] is
    /// false.
    held_round: RefCell<Option<Arc<Round>>>,
}

/// Parts from which a drive is built.
pub(super) struct DriveParts {
    pub(super) id: EntityId,
    pub(super) shell: Shell<AnyMachine>,
    pub(super) inlet: Arc<Inlet>,
    pub(super) observed: Arc<LiveGauges>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) desk: Rc<Desk>,
    pub(super) tree_number: u64,
    pub(super) namespace: Recipient<IdleElapsed>,
    pub(super) courier: Courier,
    pub(super) queue_timeout: QueueTimeout,
}

/// Maximum time that sends, and lists from other entities, wait for their turn while others need
/// the room that they hold.
pub(super) struct QueueTimeout {
    pub(super) room: Budget,
    pub(super) loads: Loads,
    pub(super) wait_max: TimeSpan,
}

impl QueueTimeout {
    /// Returns the latest arrival time of requests of this kind that must be refused; none if room
    /// is not short.
    pub(super) fn arrival_deadline(&self, kind: StaleKind, now: Timestamp) -> Option<Timestamp> {
        let is_short = match kind {
            StaleKind::Sends => self.room.is_short(),
            StaleKind::Lists => self.loads.is_short(),
        };
        is_short.then(|| now.minus(self.wait_max))
    }

    /// Refuses requests that waited too long; no part was applied (ERR-06).
    pub(super) fn refuse(&self, late: Vec<Request>) {
        let rejection = Rejection::server_busy(format!(
            "the request waited {} s for earlier work of this entity (limits.send_wait_max), and \
             others need its memory; wait 10 s and retry",
            self.wait_max.as_seconds_f64()
        ));
        let answers = late.into_iter().map(|request| request.reply.answer(Err(rejection.clone())));
        release_all(&mut answers.flatten().collect());
    }
}

impl Drive {
    pub(super) fn new(parts: DriveParts) -> Rc<Self> {
        let DriveParts {
            id,
            mut shell,
            inlet,
            observed,
            clock,
            desk,
            tree_number,
            namespace,
            courier,
            queue_timeout,
        } = parts;
        observed.publish(&shell.machine().readings());
        let setup = Arc::new(shell.machine().setup());
        observed.publish_setup(Arc::clone(&setup));
        shell.share(ArbiterShare::Turn);
        let (tree, number) = (Rc::clone(shell.tree()), shell.number());
        let shell = Rc::new(RefCell::new(shell));
        let participant = Rc::downgrade(&shell);
        tree.borrow_mut().register_participant(id, participant);
        let drive = Rc::new(Self {
            id,
            shell: RefCell::new(Some(Rc::clone(&shell))),
            tree,
            number,
            inlet,
            observed,
            setup: RefCell::new(setup),
            clock,
            desk,
            tree_number,
            namespace,
            queue_timeout,
            courier,
            entity: OnceCell::new(),
            wakes_at: Cell::new(None),
            sessions: RefCell::default(),
            held_round: RefCell::default(),
        });
        let host = Host(Rc::downgrade(&drive));
        shell.borrow_mut().host_sessions(Box::new(host));
        drive
    }

    /// Connects the actor of the entity.
    pub(super) fn connect(&self, entity: &Addr<EntityActor>) {
        // The actor starts only once, so the cell is empty.
        self.entity.set(entity.downgrade()).ok();
    }

    fn entity(&self) -> Option<Addr<EntityActor>> {
        self.entity.get()?.upgrade()
    }

    pub(super) fn shell(&self) -> Option<SharedShell> {
        self.shell.borrow().as_ref().map(Rc::clone)
    }

    /// Runs one long turn of the shell.
    pub(super) fn long_turn(&self, run: impl FnOnce()) {
        self.share(ArbiterShare::LongTurn);
        self.desk.long_turns.run(run);
        self.share(ArbiterShare::Turn);
    }

    fn share(&self, share: ArbiterShare) {
        if let Some(shell) = self.shell() {
            shell.borrow_mut().share(share);
        }
    }

    /// Whether the machine needs a long turn before it can continue.
    pub(super) fn wants_long_turn(&self) -> bool {
        self.shell().is_some_and(|shell| shell.borrow().wants_long_turn())
    }

    /// The client whose request needs the long turn, if it is known.
    pub(super) fn requester_of_long_turn(&self) -> Option<RequesterId> {
        self.shell()?.borrow().requester_of_long_turn()
    }

    /// Whether the machine evaluates rules in slices and needs another turn after all others.
    pub(super) fn is_judging(&self) -> bool {
        self.shell().is_some_and(|shell| shell.borrow().is_preparing())
    }

    pub(super) fn is_running(&self) -> bool {
        self.shell.borrow().is_some()
    }

    /// Runs one turn of the shell, then releases its results. Neither happens while the broker is
    /// suspended (CLU-17): it may have been stopped between the two.
    pub(super) fn turn(
        &self,
        run: impl FnOnce(
            &mut Shell<AnyMachine>,
            Timestamp,
            &mut Vec<Release>,
        ) -> Result<TurnResults, TreeFault>,
    ) {
        let Some(shell) = self.shell() else { return };
        // Read before the tenure is checked: the process may be stopped between the two.
        let mut now = self.clock.now();
        if !self.desk.tenure.is_valid() {
            if self.desk.tenure.wait().is_err() {
                drop(shell);
                return self.fail(TENURE_ENDED);
            }
            now = self.clock.now();
        }
        let mut running = Some(self.desk.pulse.begin(self.id, now));
        self.desk.note_turn(self.tree_number, now);
        let mut releases = Vec::new();
        let result =
            catch_unwind(AssertUnwindSafe(|| run(&mut shell.borrow_mut(), now, &mut releases)));
        if !self.desk.tenure.is_valid() {
            // A suspended turn is not stuck.
            running.take();
            if self.desk.tenure.wait().is_err() {
                drop(shell);
                self.fail(TENURE_ENDED);
                // To clients, these results are unknown.
                drop(releases);
                return;
            }
        }
        match result {
            Ok(Ok(turn)) => {
                let mut shell = shell.borrow_mut();
                self.publish(shell.machine());
                shell.add_flows(&turn);
                self.desk.telemetry.count(&turn.counts);
                if turn.counts.undelayed > 0 {
                    self.desk.warn_of_undelayed(self.id, turn.counts.undelayed, now);
                }
                self.desk.long_turns.note(turn.total_work());
                if turn.idle_elapsed {
                    self.namespace.do_send(IdleElapsed(self.id));
                }
                let to_wake = self.tree.borrow_mut().take_to_wake();
                if !to_wake.is_empty() {
                    self.desk.wake(self.tree_number, &to_wake);
                }
                release_all(&mut releases);
                let outgoing = shell.take_outgoing();
                drop(shell);
                if (turn.wants_load || !outgoing.is_empty())
                    && let Some(entity) = self.entity()
                {
                    for list in outgoing {
                        self.courier.carry(list, entity.clone().recipient());
                    }
                    if turn.wants_load {
                        self.load(entity);
                    }
                }
                if self.tree.borrow().wants_submit(now) {
                    self.desk.mark_dirty(self.tree_number);
                }
            }
            Ok(Err(failure)) => {
                drop(shell);
                release_all(&mut releases);
                self.fail(&failure.0);
            }
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(ToString::to_string)
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "panic".to_owned());
                drop(shell);
                self.fail(&format!("panic: {text}"));
            }
        }
        if self.held_round.borrow().is_some() && !self.holds_something() {
            self.held_round.take();
        }
    }

    /// Publishes the figures of a machine, and its properties if they have changed.
    fn publish(&self, machine: &AnyMachine) {
        self.observed.publish(&machine.readings());
        if !machine.has_setup(&self.setup.borrow()) {
            let setup = Arc::new(machine.setup());
            self.observed.publish_setup(Arc::clone(&setup));
            self.setup.replace(setup);
        }
    }

    /// Ends the tree: answers all waiting requests, and drops staged changes. The parent rebuilds
    /// the entity from the store when no batch of its tree is on its way (DESIGN D3).
    pub(super) fn fail(&self, why: &str) {
        let Some(shell) = self.shell.take() else { return };
        let reason = match self.desk.tenure.ending() {
            Some(ending) => ending.refusal(),
            None => {
                tracing::error!(entity_id = self.id.0, why, "entity failed and is being rebuilt");
                Rejection::internal("the entity failed and is being rebuilt; retry in a moment")
            }
        };
        match self.desk.tenure.ending() {
            // No machine is built again for requests that wait.
            Some(_) => self.inlet.close(&reason),
            None => self.inlet.detach(),
        }
        let mut releases = Vec::new();
        // A panicked machine is not used again; the shell has its waiting calls and links.
        shell.borrow_mut().close(&reason, &mut releases);
        self.tree.borrow_mut().abandon();
        drop_machine(shell);
        // A session actor may be in its own turn: each hands over its waiting requests itself, in
        // order.
        for driven in self.sessions.take().into_values() {
            driven.actor.do_send(HoldEnded);
        }
        release_all(&mut releases);
        self.held_round.take();
        self.desk.fail(self.tree_number, why);
    }

    /// Ends the tree if an append failed whose notification is still on its way; commands then wait
    /// for the rebuilt machine. Returns whether there is a machine to drive.
    pub(super) fn check_tree(&self) -> bool {
        if self.is_running() && self.tree.borrow().is_lost() {
            self.fail("an append failed");
        }
        self.is_running()
    }

    /// Stops driving the machine, because the entity is retired. Returns whether it was driven
    /// until now.
    pub(super) fn retire(&self) -> bool {
        let shell = self.shell.take();
        let was_running = shell.is_some();
        if let Some(shell) = shell {
            drop_machine(shell);
        }
        self.held_round.take();
        for driven in self.sessions.take().into_values() {
            self.end_session(&driven);
        }
        was_running
    }

    /// Loads contents that the machine requested, away from this arbiter and when there is room.
    /// The machine gets all contents that could be read.
    fn load(&self, entity: Addr<EntityActor>) {
        let wanted = self.shell().and_then(|shell| shell.borrow_mut().take_load());
        let Some(LoadRequest { contents, bytes, room }) = wanted else { return };
        let (at_work, loads) = (self.courier.pending_work(), self.courier.loads());
        actix_rt::spawn(async move {
            let room = match room {
                Some(room) => room,
                None => loads.wait(bytes, LoadedFor::Entity).await,
            };
            let mut loaded = Vec::with_capacity(contents.len());
            for (sequence, content) in contents {
                let bytes = content.load().await;
                if let Err(error) = &bytes {
                    tracing::error!(sequence_number = sequence.0, %error, "content is not readable");
                }
                loaded.push((sequence, bytes.ok()));
            }
            entity.do_send(ContentsLoaded { contents: loaded, room });
            drop(at_work);
        });
    }

    /// The next deadline of the entity itself, without its held sessions.
    pub(super) fn own_deadline(&self) -> Option<Timestamp> {
        self.shell().and_then(|shell| shell.borrow().own_deadline())
    }

    /// Notes the instant at which the actor of the entity next takes a turn by itself.
    pub(super) fn entity_wakes_at(&self, at: Option<Timestamp>) {
        self.wakes_at.set(at);
    }

    /// Wakes the actor of the entity if it has work before its next turn.
    pub(super) fn wake_entity(&self) {
        let now = self.clock.now();
        // The desk already has staged changes that are due.
        let flush = self.tree.borrow().flush_deadline().filter(|at| *at > now);
        let Some(due) = self.own_deadline().into_iter().chain(flush).min() else { return };
        if self.wakes_at.get().is_some_and(|at| at <= due) {
            return;
        }
        if let Some(entity) = self.entity() {
            // Prevents further mail until the actor has taken its turn.
            self.wakes_at.set(Some(Timestamp::NONE));
            entity.do_send(Knock);
        }
    }
}

/// Checks for outstanding work.
impl Drive {
    /// Whether no work is left that proceeds without the passage of time: no waiting command, no
    /// due work of the machine, no batch of its tree on the way to the store.
    pub(super) fn is_quiet(&self, now: Timestamp, scope: RoundScope) -> bool {
        let tree = self.tree.borrow();
        let is_due = self.own_deadline().is_some_and(|at| at <= now);
        self.is_running()
            && self.inlet.is_empty()
            && !is_due
            && !self.is_judging()
            && !tree.wants_submit(now)
            && (scope == RoundScope::AllButStore || !tree.is_submitting())
    }

    /// Whether a client holds a lock here or waits for a command to be carried out. The end of
    /// either is always part of a turn.
    pub(super) fn holds_something(&self) -> bool {
        self.shell().is_some_and(|shell| {
            let shell = shell.borrow();
            shell.machine().has_locks() || shell.has_parked() || shell.is_preparing()
        }) || (self.is_running() && !self.inlet.is_empty())
    }

    /// Keeps a round until no client holds a lock and no command waits here.
    pub(super) fn keep(&self, round: Arc<Round>) {
        self.held_round.replace(Some(round));
    }

    /// Asks the actors of the held sessions too.
    pub(super) fn ask_sessions(&self, round: &Arc<Round>) {
        for driven in self.sessions.borrow().values() {
            driven.actor.do_send(RoundQuestion(Arc::clone(round)));
        }
    }
}

/// Held sessions.
impl Drive {
    /// The next deadline of a held session.
    pub(super) fn deadline_of(&self, holder: ReceiverId) -> Option<Timestamp> {
        self.shell().and_then(|shell| shell.borrow().machine().deadline_of(holder))
    }

    /// Takes a turn for a session, with up to `count_max` commands. Returns the number taken from
    /// the inlet, and whether more can run at once. Commands that need the state of the session
    /// wait while that is being stored.
    pub(super) fn session_turn(&self, session: &HeldSession, count_max: usize) -> (usize, bool) {
        let mut groups = session.groups.take();
        let had_some = !groups.is_empty();
        let (count, more) = match had_some {
            true => (0, true),
            false => session.inlet.take(count_max, &mut groups),
        };
        let mut requests = std::iter::from_fn(|| next(&mut groups));
        self.turn(|shell, now, out| shell.run_in_session(session.holder, &mut requests, now, out));
        let has_more = more || !groups.is_empty();
        session.groups.replace(groups);
        (count, has_more && !self.waits_for_state_of(session.holder))
    }

    fn waits_for_state_of(&self, holder: ReceiverId) -> bool {
        self.shell().is_some_and(|shell| shell.borrow().waits_for_state_of(holder))
    }

    /// Whether a holder has requests that are not carried out yet. They precede the end of its
    /// hold.
    pub(super) fn has_requests_of(&self, holder: ReceiverId) -> bool {
        self.session(holder).is_some_and(|session| session.has_requests())
    }

    /// Takes a turn for a session whose hold ends, with the requests in its inlet, and closes the
    /// inlet. It does not wait for a session state that waits for room in the store: that state is
    /// lost with the hold.
    pub(super) fn last_turn_of(&self, holder: ReceiverId) {
        let Some(session) = self.session(holder) else { return };
        session.inlet.end();
        let mut groups = session.groups.take();
        if groups.is_empty() {
            session.inlet.take(LAST_COMMANDS, &mut groups);
        }
        let mut requests = std::iter::from_fn(|| next(&mut groups));
        self.turn(|shell, now, out| shell.run(&mut requests, now, out));
        // Not empty only after a failure; the session actor hands the rest over.
        session.groups.replace(groups);
    }

    /// Moves the waiting requests of a session to the inlet of the entity, and ends its actor.
    fn end_session(&self, driven: &DrivenSession) {
        driven.session.move_requests_into(&self.inlet);
        driven.actor.do_send(HoldEnded);
    }

    fn session(&self, holder: ReceiverId) -> Option<Rc<HeldSession>> {
        self.sessions.borrow().get(&holder).map(|driven| Rc::clone(&driven.session))
    }

    /// Wakes the actors of sessions.
    pub(super) fn wake_sessions(&self, holders: &BTreeSet<ReceiverId>) {
        let sessions = self.sessions.borrow();
        for driven in holders.iter().filter_map(|holder| sessions.get(holder)) {
            driven.actor.do_send(Knock);
        }
    }
}

/// Drops a machine that is no longer driven; it may have millions of messages and sessions.
fn drop_machine(shell: SharedShell) {
    // The only strong reference, since turns do not overlap and the tree has a weak one.
    let Some(shell) = Rc::into_inner(shell) else { return };
    let machine = shell.into_inner().into_machine();
    let kept = machine.memory_use();
    let parts = [machine.counts().total(), kept.sessions, kept.duplicate_ids, kept.rules];
    drop_in_background(machine, parts.into_iter().sum());
}

/// Starts and ends session actors when the machine grants and ends holds.
struct Host(std::rc::Weak<Drive>);

impl SessionHost for Host {
    fn begin(&mut self, holder: ReceiverId) -> Option<SessionEntrance> {
        let drive = self.0.upgrade()?;
        let inlet = Arc::new(Inlet::of_session(holder));
        let session = Rc::new(HeldSession::new(holder, Arc::clone(&inlet), &drive.observed));
        let actor = SessionActor::new(Rc::clone(&drive), Rc::clone(&session)).start();
        drive.sessions.borrow_mut().insert(holder, DrivenSession { session, actor });
        Some(SessionEntrance::new(inlet))
    }

    fn end(&mut self, holder: ReceiverId) {
        let Some(drive) = self.0.upgrade() else { return };
        let ended = drive.sessions.borrow_mut().remove(&holder);
        if let Some(driven) = ended {
            drive.end_session(&driven);
        }
    }

    fn resume(&mut self, holder: ReceiverId) {
        let Some(drive) = self.0.upgrade() else { return };
        drive.wake_sessions(&BTreeSet::from([holder]));
    }
}
