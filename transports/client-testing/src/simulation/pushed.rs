//! Pushed deliveries of a consumer in a simulated world: the driver passes on each delivery and
//! each verdict.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;

use super::port::{SimulatedLink, SimulatedPort, settled};
use super::shared::{Owner, Shared, State};
use peeklock_client::port::{Arrival, BoxFuture, Deliveries, Link, Verdict};
use peeklock_client::testing::PushedLink;

/// A link with credit, on the driver's side.
pub(super) struct Pushed {
    pub(super) owner: Owner,
    pub(super) path: Arc<str>,
    pub(super) unsettled_max: u32,
    pub(super) link: SimulatedLink,
    /// Link to the current broker.
    pub(super) real: Option<PushedLink>,
    /// Arrivals from the broker that are not yet passed on.
    pub(super) arrived: VecDeque<Arrival>,
    /// Arrivals that the consumer takes next.
    handed: VecDeque<Arrival>,
    /// Verdicts of the consumer that the broker has not received.
    pub(super) decided: VecDeque<Verdict>,
    /// Passed-on deliveries, with their tags at the broker unless these have changed.
    tags: BTreeMap<u64, Tag>,
    next_tag: u64,
    waker: Option<Waker>,
    is_over: bool,
}

struct Tag {
    is_decided: bool,
    real: Option<u64>,
    sequence: SequenceNumber,
}

/// An arrival that was passed on.
pub(super) struct Handed {
    /// Text for the trace.
    pub(super) what: String,
    /// The message whose settlement was answered.
    pub(super) settled: Option<SequenceNumber>,
}

impl Pushed {
    /// Takes the arrivals from the broker. Returns whether there were any.
    pub(super) fn take_in(&mut self, context: &mut Context<'_>) -> bool {
        let mut had_some = false;
        while let Some(real) = &mut self.real
            && let Poll::Ready(arrival) = real.poll_next(context)
        {
            had_some = true;
            match arrival {
                Some(arrival) => self.arrived.push_back(arrival),
                None => self.real = None,
            }
        }
        had_some
    }

    /// Returns the number of arrivals that may be passed on next: messages in any order, everything
    /// else in its own.
    pub(super) fn choices(&self, any_order: bool) -> usize {
        let is_message = |arrival: &&Arrival| matches!(arrival, Arrival::Delivered { .. });
        match any_order {
            true => self.arrived.iter().take_while(is_message).count().max(1),
            false => 1,
        }
    }

    /// Passes an arrival on. Returns its description.
    pub(super) fn hand_over(&mut self, index: usize) -> Option<Handed> {
        let arrival = self.arrived.remove(index)?;
        let mut settled = None;
        let (arrival, what) = match arrival {
            Arrival::Delivered { tag: real, message } => {
                let tag = self.next_tag;
                self.next_tag += 1;
                let (sequence, attempt) =
                    (message.facts.sequence, message.facts.shown_delivery_count());
                self.tags.insert(tag, Tag { is_decided: false, real: Some(real), sequence });
                let what = format!("{}: #{sequence} is delivered, attempt {attempt}", self.path);
                (Arrival::Delivered { tag, message }, Some(what))
            }
            Arrival::Settled { tag: real, result } => {
                let tag = self.tags.iter().find(|(_, tag)| tag.real == Some(real));
                let tag = tag.map(|(tag, _)| *tag)?;
                let sequence = self.tags.remove(&tag)?.sequence;
                settled = Some(sequence);
                let what = match &result {
                    Ok(()) => format!("{}: #{sequence} is settled", self.path),
                    Err(error) => {
                        format!("{}: #{sequence} is not settled: {}", self.path, error.condition())
                    }
                };
                (Arrival::Settled { tag, result }, Some(what))
            }
            Arrival::Detached(error) => {
                let what = format!("{}: detached: {}", self.path, error.condition());
                (Arrival::Detached(error), Some(what))
            }
            anew @ Arrival::Reattached => (anew, None),
        };
        self.give(arrival);
        Some(Handed { what: what?, settled })
    }

    fn give(&mut self, arrival: Arrival) {
        self.handed.push_back(arrival);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Sends the first verdict to the broker. Returns the message if its lock was lost with its
    /// broker, so that it is not settled.
    pub(super) fn settle_next(&mut self) -> Option<SequenceNumber> {
        let verdict = self.decided.pop_front()?;
        let real = self.tags.get(&verdict.tag).and_then(|tag| tag.real);
        match (real, &mut self.real) {
            (Some(tag), Some(real)) => {
                real.settle(vec![Verdict { tag, ..verdict }]);
                None
            }
            _ => Some(self.refuse(&verdict)),
        }
    }

    fn refuse(&mut self, verdict: &Verdict) -> SequenceNumber {
        self.tags.remove(&verdict.tag);
        let error = self.link.refuse(Rejection::message_lock_lost(verdict.token));
        self.give(Arrival::Settled { tag: verdict.tag, result: Err(error) });
        verdict.token.sequence()
    }

    /// Handles the loss of the broker with all locks. The results of verdicts in transit are
    /// unknown.
    pub(super) fn lose(&mut self) {
        self.real = None;
        self.arrived.clear();
        self.decided.clear();
        let gone = Rejection::new(Condition::CommunicationProblem, "the broker has crashed");
        for tag in self.lost_answers() {
            let error = self.link.refuse(gone.clone());
            self.give(Arrival::Settled { tag, result: Err(error) });
        }
        for tag in self.tags.values_mut() {
            tag.real = None;
        }
        self.link.replace(None);
    }

    /// Returns the tags of verdicts without an answer.
    fn lost_answers(&mut self) -> Vec<u64> {
        let decided = self.tags.iter().filter(|(_, tag)| tag.is_decided).map(|(tag, _)| *tag);
        let decided: Vec<u64> = decided.collect();
        for tag in &decided {
            self.tags.remove(tag);
        }
        decided
    }

    /// Records that the handler is done with a message.
    fn decide(&mut self, verdict: Verdict) {
        if let Some(tag) = self.tags.get_mut(&verdict.tag) {
            tag.is_decided = true;
        }
        self.decided.push_back(verdict);
    }

    /// Sets the newly opened link.
    pub(super) fn restore(&mut self, real: PushedLink) {
        self.link.replace(Some(Arc::clone(real.link())));
        self.real = Some(real);
        self.give(Arrival::Reattached);
    }

    /// Ends the link of a dead consumer: its locks are released and counted (SET-23).
    pub(super) fn break_off(&mut self) {
        if let Some(real) = self.real.take() {
            real.break_off();
        }
        self.link.replace(None);
        self.arrived.clear();
        self.decided.clear();
        self.handed.clear();
        self.is_over = true;
        self.wake();
    }
}

/// The same deliveries on the consumer's side.
pub(super) struct SimulatedDeliveries {
    shared: Arc<Shared>,
    id: u64,
    link: Arc<dyn Link>,
}

impl SimulatedDeliveries {
    pub(super) fn begin(
        port: &SimulatedPort,
        path: &str,
        unsettled_max: u32,
        real: PushedLink,
    ) -> Self {
        let link = port.pushed_link(path, Arc::clone(real.link()));
        let pushed = Pushed {
            owner: port.owner,
            path: path.into(),
            unsettled_max,
            link: link.clone(),
            real: Some(real),
            arrived: VecDeque::new(),
            handed: VecDeque::new(),
            decided: VecDeque::new(),
            tags: BTreeMap::new(),
            next_tag: 1,
            waker: None,
            is_over: false,
        };
        let shared = Arc::clone(&port.shared);
        let id = {
            let mut state = shared.state();
            let id = state.number();
            state.pushed.insert(id, pushed);
            id
        };
        Self { shared, id, link: Arc::new(link) }
    }

    fn with<T>(&self, what: impl FnOnce(&mut State, &mut Pushed) -> T) -> Option<T> {
        let mut state = self.shared.state();
        let mut pushed = state.pushed.remove(&self.id)?;
        let result = what(&mut state, &mut pushed);
        state.pushed.insert(self.id, pushed);
        Some(result)
    }
}

impl Deliveries for SimulatedDeliveries {
    fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>> {
        let next = self.with(|_, pushed| match pushed.handed.pop_front() {
            Some(arrival) => Poll::Ready(Some(arrival)),
            None if pushed.is_over => Poll::Ready(None),
            None => {
                pushed.waker = Some(context.waker().clone());
                Poll::Pending
            }
        });
        next.unwrap_or(Poll::Ready(None))
    }

    fn settle(&mut self, group: Vec<Verdict>) {
        self.with(|state, pushed| {
            for verdict in group {
                if pushed.is_over {
                    continue;
                }
                let sequence = verdict.token.sequence();
                let how = settled(&verdict.settlement);
                state.note(&format!("{}: the handler is done, #{sequence} {how}", pushed.path));
                pushed.decide(verdict);
            }
        });
    }

    fn stop(&mut self) {
        self.with(|_, pushed| pushed.real.as_mut().map(Deliveries::stop));
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, ()> {
        // The drop ends it in order.
        drop(self);
        Box::pin(std::future::ready(()))
    }
}

impl Drop for SimulatedDeliveries {
    fn drop(&mut self) {
        let ended = self.shared.state().pushed.remove(&self.id);
        drop(ended);
        self.shared.touch();
    }
}
