//! The loop of a consumer of messages: it processes pushed messages concurrently, up to the limit
//! in its options, and settles them in groups.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use tokio::sync::oneshot;
use tracing::{Instrument as _, Span};

use super::handler::{Delivery, Handler, Origin};
use super::outcome::{PendingSettlement, outcome_of, unreadable};
use super::renewal::{Place, Renewal};
use super::{ConsumerOptions, RETRY_PAUSE, handler_gone, is_transient, span};
use crate::port::{Arrival, BoxFuture, Deliveries, Link, Request, Settlement, Verdict};
use crate::trace::Tracing;
use crate::{Client, Received, Refusal, TraceContext};

/// Maximum number of outcomes in one settlement group. A smaller group is sent as soon as no more
/// outcomes are ready.
const SETTLED_AT_ONCE: usize = 64;

/// Runs until the link ends, the handler is gone, or the consumer is stopped. Returns the reason,
/// or `None` if it was stopped.
pub(super) async fn run<H: Handler<Delivery>>(
    client: Client,
    deliveries: Box<dyn Deliveries>,
    handler: H,
    options: ConsumerOptions,
    mut stopped: oneshot::Receiver<()>,
) -> Option<BrokerError> {
    let handler = Arc::new(handler);
    let concurrent_max = usize::try_from(options.concurrent_max.max(1)).unwrap_or(usize::MAX);
    let path: Arc<str> = deliveries.link().path().into();
    let traces = client.tracing();
    let mut state = LinkLoop::new(client.clone(), deliveries, options);
    let mut at_work = FuturesUnordered::new();
    let mut gone = pin!(handler.wait_until_gone());
    poll_fn(|context| {
        loop {
            state.renewal.begin_turn();
            if !state.is_closing && stopped.poll_unpin(context).is_ready() {
                state.close();
            }
            if !state.is_closing && (handler.is_gone() || gone.as_mut().poll(context).is_ready()) {
                state.gone = Some(state.deliveries.link().refuse(handler_gone()));
                state.close();
            }
            while let Poll::Ready(arrival) = state.poll_arrival(context) {
                state.take(arrival);
            }
            if state.poll_next_link(context).is_ready() {
                continue;
            }
            while at_work.len() < concurrent_max
                && let Some(waiting) = state.waiting.pop_front()
            {
                let WaitingMessage { held, message } = &waiting;
                // The lock may have expired while the message waited. Even without prefetch a
                // message waits while the handler still has messages of a previous link.
                if !state.renewal.begin(held.place, held.token, message) {
                    state.give_back(*held);
                    continue;
                }
                let (handler, origin) = (Arc::clone(&handler), state.origin.clone());
                at_work.push(work(handler, traces, &path, origin, waiting));
            }
            let (mut has_room, mut has_settled) = (false, false);
            while let Poll::Ready(Some(Done { held, outcome })) = at_work.poll_next_unpin(context) {
                let reports_errors = state.options.reports_errors;
                let decided = PendingSettlement::outcome(held.token, outcome, reports_errors);
                state.decide(held, decided);
                has_room = true;
                // The entity settles this group while the handler works on the next messages.
                if state.verdicts.len() >= SETTLED_AT_ONCE {
                    has_settled |= state.settle();
                }
            }
            has_settled |= state.settle();
            // Start waiting messages even if the settlements go over another link, whose answers do
            // not wake this loop.
            if has_settled || (has_room && !state.waiting.is_empty()) {
                continue;
            }
            state.poll_late(context);
            state.renewal.poll(context);
            if state.is_done() && at_work.is_empty() {
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
    })
    .await;
    state.deliveries.finish().await;
    state.detached.or(state.gone)
}

/// Gives a message to the handler, and returns its outcome.
async fn work<H: Handler<Delivery>>(
    handler: Arc<H>,
    traces: &Tracing,
    path: &str,
    origin: Origin,
    WaitingMessage { held, message }: WaitingMessage,
) -> Done {
    let sub_queue = message.facts.sub_queue;
    // The handler's future is pinned in one place: it is large, and each move would enlarge the
    // allocation per message by its size.
    let mut handling = pin!(None);
    let mut outcome = Ok(());
    let (trace, span) = match Received::load(&message).await {
        Ok(message) => {
            let trace = TraceContext::of(message.message());
            let span = span::of(path, &message, trace.as_ref());
            traces.go_on(&span, trace.as_ref());
            let delivery = Delivery { message, origin };
            handling.set(Some(async { handler.handle(delivery).await }));
            (trace, span)
        }
        Err(reason) => {
            outcome = Err(unreadable(sub_queue, &reason));
            (None, Span::none())
        }
    };
    // Frees the message's place in the store before the handler runs.
    drop(message);
    if let Some(handling) = handling.as_pin_mut() {
        outcome = TraceContext::within(trace, outcome_of(handling)).instrument(span).await;
    }
    Done { held, outcome }
}

/// A locked message, as known to its link and to the renewal of locks.
#[derive(Clone, Copy)]
struct Held {
    /// Index of its link among the consecutive links.
    link: u32,
    tag: u64,
    token: LockToken,
    place: Place,
}

/// Settles a message of a previous link; its token is valid over any link (SET-24). Returns the
/// index of its link.
async fn settle_over_next_link(
    link: Arc<dyn Link>,
    held: Held,
    (mut pending, mut settlement): (PendingSettlement, Settlement),
) -> Option<u32> {
    while let Err(error) = link.ask(Request::Settle(held.token, settlement)).await {
        let Some(next) = pending.refused(link.path(), &error) else { break };
        (pending, settlement) = next;
    }
    Some(held.link)
}

/// A previous link, kept while any of its messages is in hand: its end would release the locks of
/// messages with handlers.
struct PreviousLink {
    numbers: RangeInclusive<u32>,
    deliveries: Box<dyn Deliveries>,
}

/// A message that the handler has finished.
struct Done {
    held: Held,
    outcome: Result<(), Refusal>,
}

/// A message that waits for the handler.
struct WaitingMessage {
    held: Held,
    message: Box<ReceivedMessage>,
}

/// A new link, or the reason why attaching it failed.
type Attached = Result<Box<dyn Deliveries>, BrokerError>;

/// State of a consumer with its links.
struct LinkLoop {
    client: Client,
    options: ConsumerOptions,
    deliveries: Box<dyn Deliveries>,
    /// Origin of deliveries over the current link.
    origin: Origin,
    /// Index of the current link.
    link: u32,
    /// Index of the link when its deliveries were attached. The index advances when these
    /// deliveries end, so that later settlements go over the next link.
    first: u32,
    /// Number of messages in hand, by link index.
    unsettled: BTreeMap<u32, usize>,
    previous: Vec<PreviousLink>,
    /// The next link, if the entity closed this one for a transient reason.
    next_link: Option<BoxFuture<'static, Attached>>,
    waiting: VecDeque<WaitingMessage>,
    renewal: Renewal,
    /// Settlements to send next, together.
    verdicts: Vec<Verdict>,
    /// Settlements without an answer, including those to send next.
    unanswered: HashMap<u64, PendingSettlement>,
    /// Settlements over previous links, which return the link index, and the ends of such links.
    late: FuturesUnordered<BoxFuture<'static, Option<u32>>>,
    is_closing: bool,
    /// The link delivers nothing more.
    has_ended: bool,
    detached: Option<BrokerError>,
    /// Set when the handler accepts no more messages.
    gone: Option<BrokerError>,
}

impl LinkLoop {
    fn new(client: Client, deliveries: Box<dyn Deliveries>, options: ConsumerOptions) -> Self {
        let renewal = Renewal::new(Arc::clone(deliveries.link()), options.renewal_max);
        let origin = Origin::of(client.port(), deliveries.link());
        let origin = origin.reporting_errors(options.reports_errors);
        Self {
            client,
            options,
            deliveries,
            origin,
            link: 0,
            first: 0,
            unsettled: BTreeMap::new(),
            previous: Vec::new(),
            next_link: None,
            waiting: VecDeque::new(),
            renewal,
            verdicts: Vec::new(),
            unanswered: HashMap::new(),
            late: FuturesUnordered::new(),
            is_closing: false,
            has_ended: false,
            detached: None,
            gone: None,
        }
    }

    /// Stops receiving and gives back the waiting messages.
    fn close(&mut self) {
        self.is_closing = true;
        // Do not stop a link that the entity has closed: a change of credit would open it again.
        let is_closed = self.next_link.take().is_some() || self.detached.is_some();
        if !is_closed {
            self.deliveries.stop();
        }
        self.give_all_back();
    }

    /// Gives back the waiting messages.
    fn give_all_back(&mut self) {
        for WaitingMessage { held, .. } in std::mem::take(&mut self.waiting) {
            self.give_back(held);
        }
    }

    /// Handles the end of the link. After a transient error another link is attached after a pause;
    /// messages in hand stay with their handlers, and are settled if their locks still exist
    /// (ENT-25).
    fn on_link_closed(&mut self, error: BrokerError) {
        if self.is_closing || !is_transient(&self.client, &error) {
            self.detached = Some(error);
            self.close();
            return;
        }
        let path = self.deliveries.link().path().to_owned();
        let condition = error.condition();
        tracing::warn!(path = &*path, %condition, %error, "a link was closed; it is attached again");
        let (client, unsettled_max) = (self.client.clone(), self.options.unsettled_max());
        self.next_link = Some(Box::pin(async move {
            tokio::time::sleep(RETRY_PAUSE).await;
            client.port().deliveries(&path, unsettled_max).await
        }));
        self.give_all_back();
    }

    /// Changes to the next link once it is attached and all settlements over the current link are
    /// answered.
    fn poll_next_link(&mut self, context: &mut std::task::Context<'_>) -> Poll<()> {
        let Some(next_link) = self.next_link.as_mut().filter(|_| self.unanswered.is_empty()) else {
            return Poll::Pending;
        };
        let Poll::Ready(attached) = next_link.as_mut().poll(context) else { return Poll::Pending };
        self.next_link = None;
        match attached {
            Ok(deliveries) => {
                self.renewal.change_to(Arc::clone(deliveries.link()));
                let origin = Origin::of(self.client.port(), deliveries.link());
                self.origin = origin.reporting_errors(self.options.reports_errors);
                let mut deliveries = std::mem::replace(&mut self.deliveries, deliveries);
                deliveries.retire();
                self.previous.push(PreviousLink { numbers: self.first..=self.link, deliveries });
                self.link += 1;
                self.first = self.link;
                self.has_ended = false;
            }
            Err(error) => self.on_link_closed(error),
        }
        Poll::Ready(())
    }

    /// Releases a message that no handler has received (RCV-14).
    fn give_back(&mut self, held: Held) {
        self.decide(held, PendingSettlement::give_back(held.token));
    }

    fn decide(&mut self, held: Held, decided: (PendingSettlement, Settlement)) {
        self.renewal.forget(held.place, held.token);
        if held.link == self.link {
            self.record_settled(held.link);
            self.queue_settlement(held.tag, held.token, decided);
            return;
        }
        let link = Arc::clone(self.deliveries.link());
        self.late.push(Box::pin(settle_over_next_link(link, held, decided)));
    }

    /// Records that a message of this link is no longer in hand.
    fn record_settled(&mut self, link: u32) {
        if let Some(count) = self.unsettled.get_mut(&link) {
            *count -= 1;
            if *count == 0 {
                self.unsettled.remove(&link);
            }
        }
    }

    /// Continues settlements over previous links, and ends links without messages in hand.
    fn poll_late(&mut self, context: &mut std::task::Context<'_>) {
        loop {
            while let Poll::Ready(Some(link)) = self.late.poll_next_unpin(context) {
                let Some(link) = link else { continue };
                self.record_settled(link);
            }
            let unsettled = &self.unsettled;
            let is_done =
                |one: &mut PreviousLink| unsettled.range(one.numbers.clone()).next().is_none();
            let done: Vec<PreviousLink> = self.previous.extract_if(.., is_done).collect();
            if done.is_empty() {
                return;
            }
            for PreviousLink { deliveries, .. } in done {
                self.late.push(Box::pin(deliveries.finish().map(|()| None)));
            }
        }
    }

    fn queue_settlement(
        &mut self,
        tag: u64,
        token: LockToken,
        (pending, settlement): (PendingSettlement, Settlement),
    ) {
        self.unanswered.insert(tag, pending);
        self.verdicts.push(Verdict { tag, token, settlement });
    }

    fn poll_arrival(&mut self, context: &mut std::task::Context<'_>) -> Poll<Option<Arrival>> {
        if self.has_ended { Poll::Pending } else { self.deliveries.poll_next(context) }
    }

    fn take(&mut self, arrival: Option<Arrival>) {
        match arrival {
            Some(Arrival::Delivered { tag, message }) => {
                let Some(lock) = message.facts.lock else { return };
                let token = lock.token;
                if self.is_closing {
                    self.queue_settlement(tag, token, PendingSettlement::give_back(token));
                    return;
                }
                let place = self.renewal.keep(token, lock.until);
                let held = Held { link: self.link, tag, token, place };
                *self.unsettled.entry(self.link).or_default() += 1;
                self.waiting.push_back(WaitingMessage { held, message });
            }
            Some(Arrival::Settled { tag, result }) => self.settled(tag, result),
            Some(Arrival::Reattached) => {
                // The locks of these messages are lost, and they are delivered again.
                self.next_link = None;
                for WaitingMessage { held, .. } in std::mem::take(&mut self.waiting) {
                    self.record_settled(held.link);
                }
                self.renewal.clear();
            }
            Some(Arrival::Detached(error)) => self.on_link_closed(error),
            None => {
                self.has_ended = true;
                if self.next_link.is_none() {
                    self.is_closing = true;
                    return;
                }
                // Settlements over this link get no answer either. The new index sends later ones
                // over the next link.
                self.link += 1;
                self.verdicts.clear();
                self.unanswered.clear();
            }
        }
    }

    fn settled(&mut self, tag: u64, result: Result<(), BrokerError>) {
        let (Some(pending), Err(error)) = (self.unanswered.remove(&tag), result) else { return };
        let token = pending.token();
        if let Some(next) = pending.refused(self.deliveries.link().path(), &error) {
            self.queue_settlement(tag, token, next);
        }
    }

    /// Sends the collected settlements. Returns whether there were any.
    fn settle(&mut self) -> bool {
        if self.verdicts.is_empty() {
            return false;
        }
        self.deliveries.settle(std::mem::take(&mut self.verdicts));
        true
    }

    /// Returns whether only the handler is left to wait for.
    fn is_done(&self) -> bool {
        let has_ended = self.has_ended || (self.is_closing && self.unanswered.is_empty());
        has_ended && self.next_link.is_none() && self.late.is_empty() && self.previous.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Ready;

    use super::*;

    /// Limits the memory per concurrent message, in addition to the handler's own.
    #[test]
    fn a_message_at_work_takes_little() {
        fn size<A, B, C, D, E, F>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
            size_of::<F>()
        }
        let taken = size(work::<fn(Delivery) -> Ready<Result<(), Refusal>>>);
        assert!(taken <= 1_280, "{taken} bytes");
    }
}
