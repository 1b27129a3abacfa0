//! Works off what is pushed: as many messages at once as the options say, settled in groups.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use peeklock_core::command::ReceivedMessage;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::LockToken;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::handler::{Delivery, Handler, Origin, Refusal};
use super::outcome::{Tried, outcome_of};
use super::renewal::{Place, Renewal};
use super::{ConsumerOptions, handler_is_gone, span};
use crate::port::{Arrival, Deliveries, Settlement, Verdict};
use crate::trace::Tracing;
use crate::{Client, Received, TraceContext};

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
    let origin = Origin::of(client.port(), deliveries.link());
    let mut hand = Hand::new(deliveries, &options);
    let mut at_work = FuturesUnordered::new();
    let mut gone = std::pin::pin!(handler.gone());
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
            while at_work.len() < concurrent_max
                && let Some(waits) = hand.waiting.pop_front()
            {
                let Waits { held, message } = &waits;
                // Somebody else may have it by now.
                if hand.is_ahead && !hand.renewal.begin(held.place, held.token, message) {
                    hand.give_back(*held);
                    continue;
                }
                let (handler, origin) = (Arc::clone(&handler), origin.clone());
                at_work.push(work(handler, traces, &path, origin, waits));
            }
            while let Poll::Ready(Some(Done { held, outcome })) = at_work.poll_next_unpin(context) {
                hand.decide(held, Tried::outcome(held.token, outcome));
            }
            if hand.settle() {
                continue;
            }
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
    let outcome = match Received::load(*message).await {
        Ok(message) => {
            let trace = TraceContext::of(message.message());
            let span = span::of(path, &message, trace.as_ref());
            traces.go_on(&span, trace.as_ref());
            let handling = async { handler.handle(Delivery { message, origin }).await };
            TraceContext::within(trace, outcome_of(handling)).instrument(span).await
        }
        Err(rejection) => {
            tracing::error!(detail = rejection.detail(), "a message is abandoned");
            Err(Refusal::abandon())
        }
    };
    Done { held, outcome }
}

/// A message under lock, as its link and the renewal of locks know it.
#[derive(Clone, Copy)]
struct Held {
    tag: u64,
    token: LockToken,
    place: Place,
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

/// What a consumer has of its link.
struct Hand {
    deliveries: Box<dyn Deliveries>,
    /// Whether messages may wait for the handler.
    is_ahead: bool,
    waiting: VecDeque<Waits>,
    renewal: Renewal,
    /// To be settled next, together.
    verdicts: Vec<Verdict>,
    /// Settled, and not answered yet; those that are to be settled next too.
    unanswered: HashMap<u64, Tried>,
    is_closing: bool,
    /// Nothing comes any more.
    is_over: bool,
    detached: Option<BrokerError>,
    /// That the handler takes no message any more.
    gone: Option<BrokerError>,
}

impl Hand {
    fn new(deliveries: Box<dyn Deliveries>, options: &ConsumerOptions) -> Self {
        let renewal = Renewal::new(Arc::clone(deliveries.link()), options.renewal_max);
        Self {
            deliveries,
            is_ahead: options.prefetch > 0,
            waiting: VecDeque::new(),
            renewal,
            verdicts: Vec::new(),
            unanswered: HashMap::new(),
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
        if self.detached.is_none() {
            self.deliveries.stop();
        }
        for Waits { held, .. } in std::mem::take(&mut self.waiting) {
            self.give_back(held);
        }
    }

    /// Releases a message that no handler has got (RCV-14).
    fn give_back(&mut self, held: Held) {
        self.decide(held, Tried::give_back(held.token));
    }

    fn decide(&mut self, held: Held, decided: (Tried, Settlement)) {
        self.renewal.forget(held.place, held.token);
        self.say(held.tag, held.token, decided);
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
                let place = self.renewal.keep(token, lock.until, self.is_ahead);
                self.waiting.push_back(Waits { held: Held { tag, token, place }, message });
            }
            Some(Arrival::Settled { tag, result }) => self.settled(tag, result),
            Some(Arrival::Anew) => {
                // Their locks are gone, and they come again.
                self.waiting.clear();
                self.renewal.clear();
            }
            Some(Arrival::Detached(error)) => {
                // What is in hand can still be settled (ENT-25).
                self.detached = Some(error);
                self.close();
            }
            None => {
                self.is_over = true;
                self.is_closing = true;
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
        self.is_over || (self.is_closing && self.unanswered.is_empty())
    }
}
