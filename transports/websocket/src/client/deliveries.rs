//! Pushed deliveries of a link, and the credit that settlements restore. Delivery numbers start
//! again on a new connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use peeklock_client::port::{self, Arrival, BoxFuture, Deliveries, Request, Settlement, Verdict};
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::BrokerError;
use tokio::sync::mpsc;

use super::core::{Lifeline, Link, PushEvent};
use crate::operation::{Credit, Operation, Role};

/// A link with credit.
pub(super) struct PushedLink {
    link: Arc<Link>,
    /// The same link, for callers that send requests over it.
    shared: Arc<dyn port::Link>,
    arrivals: mpsc::UnboundedReceiver<PushEvent>,
    settling: FuturesUnordered<BoxFuture<'static, (u64, Result<(), BrokerError>)>>,
    unsettled_max: u32,
    /// For each delivery of this connection from the tag `first` on, whether it is unsettled.
    unsettled: VecDeque<bool>,
    first: u64,
    /// Number of settled deliveries of this connection.
    settled: u32,
    granted: u32,
    is_stopped: bool,
    /// Whether the entity has closed the link. Any credit would make the broker open it again.
    is_closed: bool,
}

impl PushedLink {
    pub(super) async fn attach(
        core: &Arc<Lifeline>,
        path: &str,
        unsettled_max: u32,
    ) -> Result<Self, BrokerError> {
        // Unbounded, but the credit limits the number of deliveries in it.
        let (pushed, arrivals) = mpsc::unbounded_channel();
        let pushed = Some((unsettled_max, pushed));
        let mode = ReceiveMode::PeekLock;
        let link = Arc::new(core.attach_pushed(path, Role::Receiver, mode, pushed)?);
        // The link has this credit already; the answer shows whether it was attached.
        let credit = Credit { link: link.number, up_to: unsettled_max };
        link.call(Operation::Credit(credit)).await?;
        Ok(Self {
            shared: Arc::clone(&link) as Arc<dyn port::Link>,
            link,
            arrivals,
            settling: FuturesUnordered::new(),
            unsettled_max,
            unsettled: VecDeque::new(),
            first: 0,
            settled: 0,
            granted: unsettled_max,
            is_stopped: false,
            is_closed: false,
        })
    }

    /// Restores the credit of a settled delivery, once per delivery, even after several attempts.
    /// Credit is sent in steps, since each update costs a command.
    fn record_settled(&mut self, tag: u64) {
        let place = tag.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let is_unsettled = place.and_then(|place| self.unsettled.get_mut(place));
        if !is_unsettled.is_some_and(std::mem::take) {
            return;
        }
        while self.unsettled.front() == Some(&false) {
            self.unsettled.pop_front();
            self.first += 1;
        }
        self.settled = self.settled.saturating_add(1);
        let up_to = self.settled.saturating_add(self.unsettled_max);
        let step = (self.unsettled_max / 4).max(1);
        if !self.is_stopped && !self.is_closed && up_to.saturating_sub(self.granted) >= step {
            self.granted = up_to;
            self.link.credit(up_to);
        }
    }

    fn arrival(&mut self, pushed: PushEvent) -> Arrival {
        match pushed {
            PushEvent::Message(mut message) => {
                message.facts.sub_queue = self.link.sub_queue;
                let tag = self.first + self.unsettled.len() as u64;
                self.unsettled.push_back(true);
                Arrival::Delivered { tag, message }
            }
            PushEvent::Fresh => {
                self.first += self.unsettled.len() as u64;
                self.unsettled.clear();
                (self.settled, self.granted) = (0, self.unsettled_max);
                self.is_closed = false;
                Arrival::Reattached
            }
            PushEvent::Detached(error) => {
                self.is_closed = true;
                Arrival::Detached(error)
            }
        }
    }
}

impl Deliveries for PushedLink {
    fn link(&self) -> &Arc<dyn port::Link> {
        &self.shared
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>> {
        if let Poll::Ready(Some((tag, result))) = self.settling.poll_next_unpin(context) {
            self.record_settled(tag);
            return Poll::Ready(Some(Arrival::Settled { tag, result }));
        }
        self.arrivals.poll_recv(context).map(|pushed| Some(self.arrival(pushed?)))
    }

    fn settle(&mut self, group: Vec<Verdict>) {
        for Verdict { tag, token, settlement } in group {
            let link = Arc::clone(&self.link);
            self.settling.push(if settlement == Settlement::Complete {
                // Started at once, so that completions of a group share a frame.
                let begun = link.begin_complete(token);
                Box::pin(async move { (tag, link.completed(begun).await) })
            } else {
                Box::pin(async move {
                    let settle = Request::Settle(token, settlement);
                    (tag, port::Link::ask(&*link, settle).await.map(drop))
                })
            });
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            self.link.credit(0);
        }
    }

    fn retire(&mut self) {
        // On a new connection the link gets no credit, and no credit is sent for it now.
        self.is_stopped = true;
        self.arrivals.close();
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut back = Vec::new();
            while let Ok(pushed) = self.arrivals.try_recv() {
                if let PushEvent::Message(message) = pushed {
                    back.extend(message.facts.lock.map(|lock| lock.token));
                }
            }
            port::Link::give_back(&*self.link, back);
            if let Err(error) = self.link.end().await {
                // The entity or the connection is gone, and the link with it.
                tracing::debug!(path = &*self.link.path, %error, "a link was not detached");
            }
        })
    }
}
