//! Sends that wait for room in the store (DESIGN D11), and lists from other entities, which wait at
//! their source instead.
//!
//! ```text
//!   send ──reserve──► granted ─────────────────────────► applied with the reservation
//!            │ busy       ▲
//!            ▼            │ the waker was called
//!   checks of SND-19 ──► parked, in order ──5 s──► checks again ──► ServerBusy
//!            │
//!            └─ refused at once, if the send is invalid anyway
//! ```
//!
//! There are two bounds. Parked sends of a broker use a budget of their own, a share of its
//! permits, so that other commands still pass. And a shell has at most one waker at the store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Shell, TreeFault, TurnResults};
use crate::admission::{Budget, Permit};
use crate::command::{Command, Stored};
use crate::condition::Condition;
use crate::effect::{Answer, Gate};
use crate::error::Rejection;
use crate::ids::ReceiverId;
use crate::machine::{Machine, Preparation};
use crate::request::{Release, Request};
use crate::store::{Reserved, Shortage, Waker};
use crate::time::{TimeSpan, Timestamp};
use crate::transfer::Arrival;
use crate::transfer::claim::TransferClaim;

/// Maximum number of parked sends that a turn takes up again.
const TAKEN_UP_PER_TURN: usize = 256;
/// Delay before the next request to a store that accepted no waker because it has enough.
const ASK_AGAIN_AFTER: TimeSpan = TimeSpan::from_ms(100);

/// Sends of a shell that wait for room.
pub(super) struct ParkedSends {
    sends: VecDeque<ParkedSend>,
    /// Number of sends that set the state of a session, by its holder.
    states: BTreeMap<ReceiverId, usize>,
    budget: Budget,
    /// Creates a waker for the driver of the shell.
    waker: Box<dyn Fn() -> Waker>,
    /// Whether the store has a waker that it has not called yet.
    has_waker: Arc<AtomicBool>,
    /// Time of the next request if the store has no waker.
    ask_at: Timestamp,
}

struct ParkedSend {
    deadline: Timestamp,
    request: Request,
    /// Bytes that it needs in the store, computed on arrival.
    bytes: u64,
    _place: Permit,
}

impl ParkedSends {
    pub(super) fn new(budget: Budget, waker: Box<dyn Fn() -> Waker>) -> Self {
        Self {
            sends: VecDeque::new(),
            states: BTreeMap::new(),
            budget,
            waker,
            has_waker: Arc::default(),
            ask_at: Timestamp::NONE,
        }
    }

    /// Next deadline that does not depend on the store's waker.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let deadline = self.sends.front()?.deadline;
        Some(if self.has_waker() { deadline } else { deadline.min(self.ask_at) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Whether a session state set by this holder waits.
    pub(super) fn has_state_of(&self, holder: ReceiverId) -> bool {
        self.states.contains_key(&holder)
    }

    fn push(&mut self, send: ParkedSend) {
        if let Some(holder) = send.request.command.sets_state_of() {
            *self.states.entry(holder).or_default() += 1;
        }
        self.sends.push_back(send);
    }

    /// Takes the first send; also returns the holder of a session if no more of its states wait.
    fn pop(&mut self) -> Option<(Request, Option<ReceiverId>)> {
        let ParkedSend { request, .. } = self.sends.pop_front()?;
        let holder = request.command.sets_state_of().filter(|holder| {
            let Some(count) = self.states.get_mut(holder) else { return true };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                self.states.remove(holder);
            }
            is_last
        });
        Some((request, holder))
    }

    /// Takes all sends.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Request> {
        self.states.clear();
        self.sends.drain(..).map(|parked| parked.request)
    }

    fn has_waker(&self) -> bool {
        self.has_waker.load(Ordering::Acquire)
    }

    /// Returns a waker for the store. It does nothing if the store already has one of this shell,
    /// so that a store that refuses for long is not flooded.
    fn new_waker(&self) -> Waker {
        if self.has_waker.swap(true, Ordering::AcqRel) {
            return Box::new(|| {});
        }
        let noted = WakerGuard(Arc::clone(&self.has_waker));
        let wake = (self.waker)();
        Box::new(move || {
            drop(noted);
            wake();
        })
    }
}

/// Clears the flag when the store calls the waker or drops it.
struct WakerGuard(Arc<AtomicBool>);

impl Drop for WakerGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<M: Machine> Shell<M> {
    /// Takes a send: applies it if the store has room, refuses it if the store is full, and parks
    /// it if the store is busy.
    pub(super) fn take_send(
        &mut self,
        request: Request,
        stored: Stored,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let bytes = self.machine.room_of(stored);
        if self.parked.sends.is_empty() {
            let room = self.reserve(bytes, now);
            if room != Reserved::Busy {
                return self.apply_send(request, bytes, room, now, out, turn);
            }
        }
        self.park(request, (stored, bytes), now, out, turn)
    }

    /// Takes a list from another entity. Its contents are already stored, but rules may add
    /// overlays to copies. If these may be large, so that rules were evaluated ahead, and the store
    /// is busy, the list is refused and offered again later. A full store accepts it (QUO-05),
    /// unless a job has changed messages (CON-17).
    pub(super) fn take_over_list(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let changed = match &request.command {
            Command::TransferIn { messages, .. } => {
                messages.iter().map(Arrival::changed_bytes).sum()
            }
            _ => 0,
        };
        let bytes = self.machine.judged_bytes().unwrap_or(0).saturating_add(changed);
        let room = (bytes > 0).then(|| self.reserve(bytes, now));
        if room == Some(Reserved::Busy) || room == Some(Reserved::Full) && changed > 0 {
            let rejection = Rejection::server_busy("the store has no space at the moment");
            out.extend(request.reply.answer(Err(rejection)));
            return Ok(());
        }
        // A rebuilt source offers its messages again; a deleted one has none.
        let guard = request.reply.transfer_claim().and_then(TransferClaim::take_guard);
        let is_changed = match guard {
            Some(guard) => {
                self.tree.borrow_mut().add_guard(guard);
                let is_changed = self.apply(request, now, Reserved::Granted, out, turn)?;
                if !is_changed {
                    self.tree.borrow_mut().give_back_guard();
                }
                is_changed
            }
            None => false,
        };
        if room == Some(Reserved::Granted) && !is_changed {
            self.tree.borrow_mut().give_back_reservation(bytes);
        }
        Ok(())
    }

    /// Takes up parked sends in order, while the store has room. Sends that waited too long are
    /// refused.
    pub(super) fn take_up_parked(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        for _ in 0..TAKEN_UP_PER_TURN {
            if !self.is_turn_open(turn) {
                break;
            }
            let Some(first) = self.parked.sends.front() else { return Ok(()) };
            let (deadline, bytes) = (first.deadline, first.bytes);
            let room =
                if self.parked.has_waker() { Reserved::Busy } else { self.reserve(bytes, now) };
            if room == Reserved::Busy && deadline > now {
                return Ok(());
            }
            if !self.prepare_first_parked(now) {
                // Returns granted room until the evaluation is done.
                if room == Reserved::Granted {
                    self.tree.borrow_mut().give_back_reservation(bytes);
                }
                return Ok(());
            }
            let Some((request, holder)) = self.parked.pop() else { return Ok(()) };
            if let (Some(holder), Some(host)) = (holder, &mut self.host) {
                // The session takes its turn after this one.
                host.resume(holder);
            }
            if room != Reserved::Busy {
                self.apply_send(request, bytes, room, now, out, turn)?;
                continue;
            }
            if let Some(request) = self.answer_without_room(request, now, out, turn)? {
                let wait = self.limits.send_wait_max;
                let rejection = Rejection::server_busy(format!(
                    "the store made no progress for {} s; wait 10 s and retry",
                    wait.as_seconds_f64()
                ));
                // Released at once: it depends on no staged change, and these may not become
                // durable soon.
                out.extend(request.reply.answer(Err(rejection)));
            }
        }
        // The rest continues after all other ready work on this arbiter.
        self.parked.ask_at = now;
        Ok(())
    }

    /// Prepares the first parked send.
    fn prepare_first_parked(&mut self, now: Timestamp) -> bool {
        let Some(first) = self.parked.sends.pop_front() else { return true };
        let request = &first.request;
        let command = Preparation::Command { ticket: request.ticket, command: &request.command };
        let is_finished = self.prepare(command, now);
        self.preparation.is_of_parked = !is_finished;
        self.parked.sends.push_front(first);
        is_finished
    }

    /// Requests room from the store; the stage carries a granted reservation.
    fn reserve(&mut self, bytes: u64, now: Timestamp) -> Reserved {
        let shard = self.tree.borrow().shard();
        let room = self.store.reserve(shard, bytes, &|| self.parked.new_waker());
        match room {
            Reserved::Granted => self.tree.borrow_mut().carry_reservation(bytes),
            Reserved::Busy => self.parked.ask_at = now.plus(ASK_AGAIN_AFTER),
            Reserved::Full => {}
        }
        room
    }

    /// Explains the refusal of a full store: the exhausted resource, the missing amount, and the
    /// remedy (QUO-05).
    pub(super) fn explain_shortage(&self, rejection: Rejection, room: Reserved) -> Rejection {
        if room != Reserved::Full || rejection.condition() != Condition::ServerBusy {
            return rejection;
        }
        // The smallest size that has no room: a small message may still fit where a large one does
        // not.
        let sizes = [0, Shortage::PROBE_BYTES, u64::MAX];
        match sizes.into_iter().find_map(|bytes| self.store.shortage(bytes)) {
            Some(shortage) => Rejection::server_busy(format!(
                "the store is full: {shortage}; {}, then retry",
                shortage.remedy()
            )),
            None => rejection,
        }
    }

    /// Applies a send with the answer of the store, and returns unused room.
    fn apply_send(
        &mut self,
        request: Request,
        bytes: u64,
        room: Reserved,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let changed = self.apply(request, now, room, out, turn)?;
        if room == Reserved::Granted && !changed {
            self.tree.borrow_mut().give_back_reservation(bytes);
        }
        Ok(())
    }

    /// Parks a send, unless it needs no room or the budget is exhausted.
    #[cold]
    fn park(
        &mut self,
        request: Request,
        (stored, bytes): (Stored, u64),
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let Some(request) = self.answer_without_room(request, now, out, turn)? else {
            return Ok(());
        };
        let Some(place) = self.parked.budget.try_take(stored.bytes) else {
            let detail = "too many sends wait for space in the store; wait 10 s and retry";
            out.extend(request.reply.answer(Err(Rejection::server_busy(detail))));
            return Ok(());
        };
        let deadline = now.plus(TimeSpan::from_std(self.limits.send_wait_max.to_std()));
        self.parked.push(ParkedSend { deadline, request, bytes, _place: place });
        Ok(())
    }

    /// Answers a send that needs no room, for example because a check before the check of room
    /// refuses it (SND-19). Returns any other send unanswered. To find out whether the send needs
    /// room, the machine applies it as if the store were busy. The send needs room if the machine
    /// then refuses it as busy.
    #[cold]
    fn answer_without_room(
        &mut self,
        request: Request,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<Option<Request>, TreeFault> {
        let (ticket, sub_queue) = (request.ticket, request.sub_queue);
        let command = super::commit::own_part(request.command.clone());
        let mut answer = None;
        let result = self.step(out, turn, now, Reserved::Busy, |machine, ctx, step| {
            answer = Some(machine.apply(ticket, sub_queue, command, ctx, step)?);
            Ok(())
        })?;
        let result = match (result, answer) {
            (Err(rejection), _) if rejection.condition() == Condition::ServerBusy => {
                return Ok(Some(request));
            }
            (Err(rejection), _) => Err(rejection),
            (Ok(()), Some(Answer::Now(outcome, _))) => Ok(self.resolve(outcome)?),
            (Ok(()), Some(Answer::Later) | None) => return Ok(Some(request)),
        };
        self.release(request.reply.answer(result), Gate::Commit, out);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// DESIGN D11: a store that refuses repeatedly wakes the driver once; dropping a waker counts
    /// as calling it.
    #[test]
    fn a_store_has_one_waker_that_wakes() {
        let woken = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&woken);
        let waker = Box::new(move || {
            let counter = Arc::clone(&counter);
            Box::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }) as Waker
        });
        let parked = ParkedSends::new(Budget::new(0), waker);
        let wakers: Vec<Waker> = (0..3).map(|_| parked.new_waker()).collect();
        for waker in wakers {
            waker();
        }
        assert_eq!((woken.load(Ordering::Relaxed), parked.has_waker()), (1, false));
        drop(parked.new_waker());
        assert!(!parked.has_waker());
        parked.new_waker()();
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }
}
