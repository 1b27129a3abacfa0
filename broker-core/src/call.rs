//! Calls as futures: one command and its answer, or a list of commands. Handles on entities return
//! them. Dropping a waiting receive withdraws it; other commands still take effect.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::activity::{self, PendingWork};
use crate::admission::Permit;
use crate::broker::Entity;
use crate::command::{Command, LinkEnd, Outcome, SessionCommand, Settlement};
use crate::error::Rejection;
use crate::ids::Ticket;
use crate::request::{Outlet, Released, Reply, Request};
use crate::telemetry::count_undelivered;

/// A future on the heap, polled through a table of functions. Its code exists once, in this crate;
/// the code of an `async fn` exists again in each crate that awaits it. For large and rare work.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A submitted command and the slot for its answer.
pub(crate) struct SubmittedCall {
    entity: Entity,
    slot: Arc<CallSlot>,
    ticket: Ticket,
    is_receive: bool,
}

struct CallSlot {
    state: Mutex<CallState>,
    entity: Entity,
    is_receive: bool,
    /// Room that this command shares with others, until all are dropped.
    _shared: Option<Arc<Permit>>,
}

enum CallState {
    Waiting(Option<Waker>),
    /// With a receive, the received messages count as work in progress, if that is counted.
    Answered(Result<Outcome, Rejection>, Option<PendingWork>),
    /// The answer was taken.
    Taken,
    /// The call was dropped.
    Abandoned,
}

impl SubmittedCall {
    pub(crate) fn start(entity: Entity, command: Command, permit: Permit) -> Self {
        Self::begin(entity, command, Some(permit), None)
    }

    /// Starts one of several consecutive commands that share the same room.
    pub(crate) fn start_in(room: &Arc<Permit>, entity: Entity, command: Command) -> Self {
        Self::begin(entity, command, None, Some(Arc::clone(room)))
    }

    fn begin(
        entity: Entity,
        command: Command,
        permit: Option<Permit>,
        shared: Option<Arc<Permit>>,
    ) -> Self {
        let ticket = entity.broker().ticket();
        let is_receive = matches!(
            command,
            Command::Receive { .. }
                | Command::ReceiveDeferred { .. }
                | Command::AcceptSession { .. }
                | Command::InSession {
                    command: SessionCommand::Receive { .. }
                        | SessionCommand::ReceiveDeferred { .. },
                    ..
                }
        );
        let slot = Arc::new(CallSlot {
            state: Mutex::new(CallState::Waiting(None)),
            entity: entity.clone(),
            is_receive,
            _shared: shared,
        });
        let reply = Reply::new(Arc::clone(&slot) as Arc<dyn Outlet>, 0, permit);
        entity.submit(vec![Request { ticket, sub_queue: entity.sub_queue(), command, reply }]);
        Self { entity, slot, ticket, is_receive }
    }

    /// Withdraws a waiting receive; the answer has the messages that arrived before (RCV-14).
    pub(crate) fn withdraw(&self) {
        if self.is_receive {
            submit_unanswered(&self.entity, vec![Command::CancelReceive { call: self.ticket }]);
        }
    }
}

impl Future for SubmittedCall {
    type Output = Result<Outcome, Rejection>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.slot.state);
        match std::mem::replace(&mut *state, CallState::Taken) {
            CallState::Answered(result, at_work) => {
                activity::note_work(at_work);
                Poll::Ready(result)
            }
            CallState::Waiting(_) => {
                *state = CallState::Waiting(Some(context.waker().clone()));
                drop(state);
                if self.is_receive {
                    activity::note_wait();
                }
                Poll::Pending
            }
            CallState::Taken | CallState::Abandoned => {
                Poll::Ready(Err(Rejection::internal("the answer was already taken")))
            }
        }
    }
}

impl Drop for SubmittedCall {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *lock(&self.slot.state), CallState::Abandoned);
        match before {
            CallState::Waiting(_) if self.is_receive => self.withdraw(),
            CallState::Answered(Ok(outcome), _) => return_result(&self.entity, &outcome),
            CallState::Waiting(_)
            | CallState::Answered(Err(_), _)
            | CallState::Taken
            | CallState::Abandoned => {}
        }
    }
}

impl Outlet for CallSlot {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            let Released::Answer { result, .. } = item else { continue };
            let mut state = lock(&self.state);
            match std::mem::replace(&mut *state, CallState::Taken) {
                CallState::Waiting(waker) => {
                    let broker = self.entity.broker();
                    let at_work = self.is_receive.then(|| broker.pending_work()).flatten();
                    *state = CallState::Answered(result, at_work);
                    drop(state);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                CallState::Abandoned => {
                    *state = CallState::Abandoned;
                    drop(state);
                    if let Ok(outcome) = result {
                        return_result(&self.entity, &outcome);
                    }
                }
                other @ (CallState::Answered(..) | CallState::Taken) => *state = other,
            }
        }
    }
}

/// Returns the result of a call that was dropped: unlocks messages whose delivery had not begun,
/// without a change of their count (RCV-14); releases a session (SES-08).
fn return_result(entity: &Entity, outcome: &Outcome) {
    match outcome {
        Outcome::Received(messages) => {
            let commands = messages
                .iter()
                .filter_map(|message| message.facts.lock)
                .map(|lock| Command::Settle { token: lock.token, settlement: Settlement::Release })
                .collect();
            submit_unanswered(entity, commands);
            // Messages without a lock were removed when they were received.
            let removed = messages.iter().filter(|message| message.facts.lock.is_none()).count();
            if removed > 0 {
                count_undelivered(removed as u64);
            }
        }
        Outcome::SessionAccepted { receiver, .. } => {
            let command = Command::Detach { receiver: *receiver, end: LinkEnd::ByBroker };
            submit_unanswered(entity, vec![command]);
        }
        _ => {}
    }
}

/// Submits commands without waiting for their answers, on the broker's own account: they return
/// messages or sessions even if the grant has ended.
pub fn submit_unanswered(entity: &Entity, commands: Vec<Command>) {
    if commands.is_empty() {
        return;
    }
    let outlet: Arc<dyn Outlet> = Arc::new(Nobody);
    let requests = commands
        .into_iter()
        .map(|command| Request {
            ticket: entity.broker().ticket(),
            sub_queue: entity.sub_queue(),
            command,
            reply: Reply::new(Arc::clone(&outlet), 0, None),
        })
        .collect();
    entity.as_broker().submit(requests);
}

struct Nobody;

impl Outlet for Nobody {
    fn release(&self, _: Vec<Released>) {}
}

/// Submitted commands and the slots for their answers.
pub(crate) struct CallList {
    slot: Arc<ListSlot>,
}

struct ListSlot {
    state: Mutex<ListState>,
}

struct ListState {
    results: Vec<Option<Result<Outcome, Rejection>>>,
    missing: usize,
    waker: Option<Waker>,
    permit: Option<Permit>,
}

impl CallList {
    pub(crate) fn start(entity: &Entity, commands: Vec<Command>, permit: Permit) -> Self {
        let count = commands.len();
        let slot = Arc::new(ListSlot {
            state: Mutex::new(ListState {
                results: (0..count).map(|_| None).collect(),
                missing: count,
                waker: None,
                permit: Some(permit),
            }),
        });
        let first = entity.broker().tickets(count as u64);
        let requests = commands
            .into_iter()
            .zip(0u64..)
            .map(|(command, index)| Request {
                ticket: Ticket(first.0 + index),
                sub_queue: entity.sub_queue(),
                command,
                reply: Reply::new(Arc::clone(&slot) as Arc<dyn Outlet>, index, None),
            })
            .collect();
        entity.submit(requests);
        Self { slot }
    }
}

impl Future for CallList {
    type Output = Vec<Result<Outcome, Rejection>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.slot.state);
        if state.missing > 0 {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let results = std::mem::take(&mut state.results);
        let unanswered = || Err(Rejection::internal("the command was not answered"));
        Poll::Ready(results.into_iter().map(|one| one.unwrap_or_else(unanswered)).collect())
    }
}

impl Outlet for ListSlot {
    fn release(&self, group: Vec<Released>) {
        let mut state = lock(&self.state);
        for item in group {
            let Released::Answer { correlation, result } = item else { continue };
            let place =
                usize::try_from(correlation).ok().and_then(|place| state.results.get_mut(place));
            if let Some(place) = place
                && place.is_none()
            {
                *place = Some(result);
                state.missing -= 1;
            }
        }
        if state.missing == 0 {
            state.permit = None;
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Locks a mutex whose data no panic can leave inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
