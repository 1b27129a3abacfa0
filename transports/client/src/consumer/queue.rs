//! Works off what is pushed: as many messages at once as the options say, settled in groups.

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
use super::outcome::{Tried, outcome_of, unread};
use super::renewal::{Place, Renewal};
use super::{ConsumerOptions, RETRY_PAUSE, can_pass, handler_is_gone, span};
use crate::port::{Arrival, Deliveries, Link, Request, Settlement, Verdict, Waiting};
use crate::trace::Tracing;
use crate::{Client, Received, Refusal, TraceContext};

/// So many outcomes are settled together, and as many as there are when no more are at hand.
const SETTLED_AT_ONCE: usize = 64;

/// Runs to the end of the link, of its handler, or until it is stopped. Why it ended, unless it was stopped.
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
    let mut hand = Hand::new(client.clone(), deliveries, options);
    let mut at_work = FuturesUnordered::new();
    let mut gone = pin!(handler.gone());
    poll_fn(|context| {
        loop {
            hand.renewal.begin_turn();
            if !hand.is_closing && stopped.poll_unpin(context).is_ready() {
                hand.close();
            }
            if !hand.is_closing && (handler.is_gone() || gone.as_mut().poll(context).is_ready()) {
                hand.gone = Some(hand.deliveries.link().refuse(handler_is_gone()));
                hand.close();
            }
            while let Poll::Ready(arrival) = hand.poll_arrival(context) {
                hand.take(arrival);
            }
            if hand.poll_again(context).is_ready() {
                continue;
            }
            while at_work.len() < concurrent_max
                && let Some(waits) = hand.waiting.pop_front()
            {
                let Waits { held, message } = &waits;
                // Somebody else may have it by now: also without prefetch one waits for its handler where those of the link
                // before still have others.
                if !hand.renewal.begin(held.place, held.token, message) {
                    hand.give_back(*held);
                    continue;
                }
                let (handler, origin) = (Arc::clone(&handler), hand.origin.clone());
                at_work.push(work(handler, traces, &path, origin, waits));
            }
            let (mut has_room, mut has_settled) = (false, false);
            while let Poll::Ready(Some(Done { held, outcome })) = at_work.poll_next_unpin(context) {
                hand.decide(held, Tried::outcome(held.token, outcome));
                has_room = true;
                // The entity is at these while the handler is at the next.
                if hand.verdicts.len() >= SETTLED_AT_ONCE {
                    has_settled |= hand.settle();
                }
            }
            has_settled |= hand.settle();
            // Also where that is settled over another link, and no answer comes to go on with.
            if has_settled || (has_room && !hand.waiting.is_empty()) {
                continue;
            }
            hand.poll_late(context);
            hand.renewal.poll(context);
            if hand.is_done() && at_work.is_empty() {
                return Poll::Ready(());
            }
            return Poll::Pending;
        }
    })
    .await;
    hand.deliveries.finish().await;
    hand.detached.or(hand.gone)
}

/// Gives a message to the handler, and says what it has come to.
async fn work<H: Handler<Delivery>>(
    handler: Arc<H>,
    traces: &Tracing,
    path: &str,
    origin: Origin,
    Waits { held, message }: Waits,
) -> Done {
    let sub_queue = message.facts.sub_queue;
    // In one place, which all that is around it only points to: it is large, and what is allocated for a message would be
    // as much larger as there are places where it is.
    let mut handling = pin!(None);
    let (trace, span) = match Received::load(&message).await {
        Ok(message) => {
            let trace = TraceContext::of(message.message());
            let span = span::of(path, &message, trace.as_ref());
            traces.go_on(&span, trace.as_ref());
            let delivery = Delivery { message, origin };
            handling.set(Some(async { handler.handle(delivery).await }));
            (trace, span)
        }
        Err(rejection) => {
            tracing::error!(detail = rejection.detail(), "a message is abandoned");
            (None, Span::none())
        }
    };
    // The store keeps no place of its own for it as long as the handler takes.
    drop(message);
    let outcome = match handling.as_pin_mut() {
        Some(handling) => TraceContext::within(trace, outcome_of(handling)).instrument(span).await,
        None => Err(unread(sub_queue)),
    };
    Done { held, outcome }
}

/// A message under lock, as its link and the renewal of locks know it.
#[derive(Clone, Copy)]
struct Held {
    /// Over which link it came, of those one after the other.
    link: u32,
    tag: u64,
    token: LockToken,
    place: Place,
}

/// Settles a message that came over a link before this one; its token is good over any (SET-24). Over which it came.
async fn settle_late(
    link: Arc<dyn Link>,
    held: Held,
    (mut tried, mut settlement): (Tried, Settlement),
) -> Option<u32> {
    while let Err(error) = link.ask(Request::Settle(held.token, settlement)).await {
        let Some(next) = tried.refused(link.path(), &error) else { break };
        (tried, settlement) = next;
    }
    Some(held.link)
}

/// A link before this one, kept until nothing of it is in hand: with it the locks would go of what handlers have.
struct Before {
    numbers: RangeInclusive<u32>,
    deliveries: Box<dyn Deliveries>,
}

/// A message that the handler is done with.
struct Done {
    held: Held,
    outcome: Result<(), Refusal>,
}

/// A message that waits for the handler.
struct Waits {
    held: Held,
    message: Box<ReceivedMessage>,
}

/// A link that was made anew, or why it was not.
type Attached = Result<Box<dyn Deliveries>, BrokerError>;

/// What a consumer has of its link.
struct Hand {
    client: Client,
    options: ConsumerOptions,
    deliveries: Box<dyn Deliveries>,
    /// The way over this link, for what is handled.
    origin: Origin,
    /// How many there were before this one.
    link: u32,
    /// The same when it began.
    first: u32,
    /// How many messages are in hand of each link.
    in_hand: BTreeMap<u32, usize>,
    before: Vec<Before>,
    /// The next one, if the entity has closed this one for a reason that can pass.
    again: Option<Waiting<'static, Attached>>,
    waiting: VecDeque<Waits>,
    renewal: Renewal,
    /// To be settled next, together.
    verdicts: Vec<Verdict>,
    /// Settled, and not answered yet; those that are to be settled next too.
    unanswered: HashMap<u64, Tried>,
    /// Settlements of what came over a link before this one, which say over which, and the ends of such links.
    late: FuturesUnordered<Waiting<'static, Option<u32>>>,
    is_closing: bool,
    /// Nothing comes any more.
    is_over: bool,
    detached: Option<BrokerError>,
    /// That the handler takes no message any more.
    gone: Option<BrokerError>,
}

impl Hand {
    fn new(client: Client, deliveries: Box<dyn Deliveries>, options: ConsumerOptions) -> Self {
        let renewal = Renewal::new(Arc::clone(deliveries.link()), options.renewal_max);
        let origin = Origin::of(client.port(), deliveries.link());
        Self {
            client,
            options,
            deliveries,
            origin,
            link: 0,
            first: 0,
            in_hand: BTreeMap::new(),
            before: Vec::new(),
            again: None,
            waiting: VecDeque::new(),
            renewal,
            verdicts: Vec::new(),
            unanswered: HashMap::new(),
            late: FuturesUnordered::new(),
            is_closing: false,
            is_over: false,
            detached: None,
            gone: None,
        }
    }

    /// Takes nothing more; what the handler does not have goes back.
    fn close(&mut self) {
        self.is_closing = true;
        // A link that the entity has closed is left alone: told anything of credit, it would be opened again.
        let is_closed = self.again.take().is_some() || self.detached.is_some();
        if !is_closed {
            self.deliveries.stop();
        }
        self.give_all_back();
    }

    /// Gives back what the handler does not have.
    fn give_all_back(&mut self) {
        for Waits { held, .. } in std::mem::take(&mut self.waiting) {
            self.give_back(held);
        }
    }

    /// The entity delivers no more over this link. If why can pass, another is made after a pause; what is in hand goes on,
    /// and is settled if its lock is there still (ENT-25).
    fn left(&mut self, error: BrokerError) {
        if self.is_closing || !can_pass(&self.client, &error) {
            self.detached = Some(error);
            self.close();
            return;
        }
        let path = self.deliveries.link().path().to_owned();
        let condition = error.condition();
        tracing::warn!(path = &*path, %condition, %error, "a link was closed; it is attached again");
        let (client, unsettled_max) = (self.client.clone(), self.options.unsettled_max());
        self.again = Some(Box::pin(async move {
            tokio::time::sleep(RETRY_PAUSE).await;
            client.port().deliveries(&path, unsettled_max).await
        }));
        self.give_all_back();
    }

    /// Goes over to the next link when it is there, and all that was decided over this one is answered.
    fn poll_again(&mut self, context: &mut std::task::Context<'_>) -> Poll<()> {
        let Some(again) = self.again.as_mut().filter(|_| self.unanswered.is_empty()) else {
            return Poll::Pending;
        };
        let Poll::Ready(attached) = again.as_mut().poll(context) else { return Poll::Pending };
        self.again = None;
        match attached {
            Ok(deliveries) => {
                self.renewal.change_to(Arc::clone(deliveries.link()));
                self.origin = Origin::of(self.client.port(), deliveries.link());
                let mut deliveries = std::mem::replace(&mut self.deliveries, deliveries);
                deliveries.retire();
                self.before.push(Before { numbers: self.first..=self.link, deliveries });
                self.link += 1;
                self.first = self.link;
                self.is_over = false;
            }
            Err(error) => self.left(error),
        }
        Poll::Ready(())
    }

    /// Releases a message that no handler has got (RCV-14).
    fn give_back(&mut self, held: Held) {
        self.decide(held, Tried::give_back(held.token));
    }

    fn decide(&mut self, held: Held, decided: (Tried, Settlement)) {
        self.renewal.forget(held.place, held.token);
        if held.link == self.link {
            self.put_down(held.link);
            self.say(held.tag, held.token, decided);
            return;
        }
        let link = Arc::clone(self.deliveries.link());
        self.late.push(Box::pin(settle_late(link, held, decided)));
    }

    /// A message of this link is in hand no more.
    fn put_down(&mut self, link: u32) {
        if let Some(count) = self.in_hand.get_mut(&link) {
            *count -= 1;
            if *count == 0 {
                self.in_hand.remove(&link);
            }
        }
    }

    /// Goes on with what is to be done over links before this one, and ends those of which nothing is in hand.
    fn poll_late(&mut self, context: &mut std::task::Context<'_>) {
        loop {
            while let Poll::Ready(Some(link)) = self.late.poll_next_unpin(context) {
                let Some(link) = link else { continue };
                self.put_down(link);
            }
            let in_hand = &self.in_hand;
            let is_done = |one: &mut Before| in_hand.range(one.numbers.clone()).next().is_none();
            let done: Vec<Before> = self.before.extract_if(.., is_done).collect();
            if done.is_empty() {
                return;
            }
            for Before { deliveries, .. } in done {
                self.late.push(Box::pin(deliveries.finish().map(|()| None)));
            }
        }
    }

    fn say(&mut self, tag: u64, token: LockToken, (tried, settlement): (Tried, Settlement)) {
        self.unanswered.insert(tag, tried);
        self.verdicts.push(Verdict { tag, token, settlement });
    }

    fn poll_arrival(&mut self, context: &mut std::task::Context<'_>) -> Poll<Option<Arrival>> {
        if self.is_over { Poll::Pending } else { self.deliveries.poll_next(context) }
    }

    fn take(&mut self, arrival: Option<Arrival>) {
        match arrival {
            Some(Arrival::Delivered { tag, message }) => {
                let Some(lock) = message.facts.lock else { return };
                let token = lock.token;
                if self.is_closing {
                    self.say(tag, token, Tried::give_back(token));
                    return;
                }
                let place = self.renewal.keep(token, lock.until);
                let held = Held { link: self.link, tag, token, place };
                *self.in_hand.entry(self.link).or_default() += 1;
                self.waiting.push_back(Waits { held, message });
            }
            Some(Arrival::Settled { tag, result }) => self.settled(tag, result),
            Some(Arrival::Anew) => {
                // Their locks are gone, and they come again.
                self.again = None;
                for Waits { held, .. } in std::mem::take(&mut self.waiting) {
                    self.put_down(held.link);
                }
                self.renewal.clear();
            }
            Some(Arrival::Detached(error)) => self.left(error),
            None => {
                self.is_over = true;
                if self.again.is_none() {
                    self.is_closing = true;
                    return;
                }
                // Nothing is answered over it either.
                self.link += 1;
                self.verdicts.clear();
                self.unanswered.clear();
            }
        }
    }

    fn settled(&mut self, tag: u64, result: Result<(), BrokerError>) {
        let (Some(tried), Err(error)) = (self.unanswered.remove(&tag), result) else { return };
        let token = tried.token();
        if let Some(next) = tried.refused(self.deliveries.link().path(), &error) {
            self.say(tag, token, next);
        }
    }

    /// Settles what there is to settle; tells whether there was something.
    fn settle(&mut self) -> bool {
        if self.verdicts.is_empty() {
            return false;
        }
        self.deliveries.settle(std::mem::take(&mut self.verdicts));
        true
    }

    /// Whether nothing is to be waited for but the handler.
    fn is_done(&self) -> bool {
        let is_over = self.is_over || (self.is_closing && self.unanswered.is_empty());
        is_over && self.again.is_none() && self.late.is_empty() && self.before.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Ready;

    use super::*;

    /// What is allocated for each message at work, beside what its handler holds itself.
    #[test]
    fn a_message_at_work_takes_little() {
        fn size<A, B, C, D, E, F>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
            size_of::<F>()
        }
        let taken = size(work::<fn(Delivery) -> Ready<Result<(), Refusal>>>);
        assert!(taken <= 1_280, "{taken} bytes");
    }
}
