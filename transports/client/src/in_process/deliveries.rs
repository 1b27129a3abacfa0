//! Pushed deliveries in process: the entity's arbiter fills an outlet, and settlements return
//! credit. Consumers read them through the port.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use peeklock_core::Broker;
use peeklock_core::activity::PendingWork;
use peeklock_core::command::{Command, Drain, LinkEnd, Outcome, ReceiveMode};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::request::{Outlet, Released, Reply, Request};
use tokio::sync::{mpsc, oneshot};

use super::link::EntityLink;
use crate::port::{Arrival, BoxFuture, Deliveries, Link, Verdict};

/// Maximum bytes of unsettled messages of a consumer.
const WINDOW_BYTES: u64 = 16 << 20;
/// Tag of answers to commands other than settlements.
const UNTAGGED: u64 = 0;

/// A link with credit.
pub struct PushedLink {
    link: Arc<EntityLink>,
    /// The same link as a trait object.
    shared: Arc<dyn Link>,
    outlet: Arc<dyn Outlet>,
    arrivals: mpsc::UnboundedReceiver<Arrived>,
    /// The last group that arrived.
    group: std::vec::IntoIter<Released>,
    /// Held until all arrived messages are processed.
    at_work: Option<PendingWork>,
    unsettled_max: u64,
    /// Sizes of delivered messages from the tag `first` on; `None` after settlement.
    sizes: VecDeque<Option<u32>>,
    first: u64,
    settled: Settled,
    granted: Settled,
    is_stopped: bool,
    /// The entity has ended the link.
    is_closed: bool,
}

/// Total of settled messages.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Settled {
    count: u64,
    bytes: u64,
}

/// A group from the entity, with a marker that work is pending.
type Arrived = (Vec<Released>, Option<PendingWork>);

/// Outlet for arrivals, in order. The link's credit bounds their number.
struct Arrivals {
    mail: mpsc::UnboundedSender<Arrived>,
    broker: Broker,
}

impl Outlet for Arrivals {
    fn release(&self, group: Vec<Released>) {
        // Without a receiver, the detach that follows releases the locks.
        self.mail.send((group, self.broker.pending_work())).ok();
    }
}

/// Outlet that takes the answer to the attach and passes on all other items.
struct Attaching {
    outlet: Arc<dyn Outlet>,
    answer: Mutex<Option<oneshot::Sender<Result<Outcome, Rejection>>>>,
}

impl Outlet for Attaching {
    fn release(&self, group: Vec<Released>) {
        let mut rest = Vec::new();
        for item in group {
            match item {
                Released::Answer { result, .. } => {
                    let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(answer) = answer {
                        answer.send(result).ok();
                    }
                }
                other => rest.push(other),
            }
        }
        if !rest.is_empty() {
            self.outlet.release(rest);
        }
    }
}

impl PushedLink {
    pub(super) async fn attach(link: EntityLink, unsettled_max: u32) -> Result<Self, BrokerError> {
        let (mail, arrivals) = mpsc::unbounded_channel();
        let outlet: Arc<dyn Outlet> =
            Arc::new(Arrivals { mail, broker: link.entity.broker().clone() });
        let (answer, answered) = oneshot::channel();
        let attaching = Attaching { outlet: Arc::clone(&outlet), answer: Mutex::new(Some(answer)) };
        let link = Arc::new(link);
        let this = Self {
            shared: Arc::clone(&link) as Arc<dyn Link>,
            link,
            outlet,
            arrivals,
            group: Vec::new().into_iter(),
            at_work: None,
            unsettled_max: u64::from(unsettled_max.max(1)),
            sizes: VecDeque::new(),
            first: UNTAGGED + 1,
            settled: Settled::default(),
            granted: Settled::default(),
            is_stopped: false,
            is_closed: false,
        };
        // If `this` is dropped before the answer, the drop of its link detaches it.
        let receiver = this.link.holder.unwrap_or(peeklock_core::ids::ReceiverId(0));
        let attach = Command::Attach { receiver, mode: ReceiveMode::PeekLock };
        this.submit([(UNTAGGED, attach)], &(Arc::new(attaching) as Arc<dyn Outlet>));
        match answered.await {
            Ok(Ok(_)) => {}
            Ok(Err(rejection)) => return Err(this.link.refuse(rejection)),
            Err(_) => {
                let rejection = Rejection::internal("the link was not answered");
                return Err(this.link.refuse(rejection));
            }
        }
        this.grant();
        this.store_gauge();
        Ok(this)
    }

    /// Ends the link as if its holder were gone: its locks are released and counted (SET-23).
    #[cfg(feature = "testing")]
    pub fn break_off(self) {
        self.link.end(LinkEnd::Broken);
    }

    /// Grants credit up to the maximum of unsettled messages.
    fn grant(&self) {
        let Some(receiver) = self.link.holder else { return };
        let grant = Command::SetCredit {
            receiver,
            delivery_limit: self.settled.count + self.unsettled_max,
            byte_limit: self.settled.bytes + WINDOW_BYTES,
            drain: Drain::No,
        };
        self.submit([(UNTAGGED, grant)], &self.outlet);
    }

    /// Returns credit of durable settlements in steps, because each grant costs a command. A
    /// consumer with a limit of one message gets an abandoned message before later ones.
    fn grant_if_due(&mut self) {
        let (count, bytes) =
            (self.settled.count - self.granted.count, self.settled.bytes - self.granted.bytes);
        let is_idle = self.sizes.is_empty();
        let is_due =
            count >= (self.unsettled_max / 4).max(1) || bytes >= WINDOW_BYTES / 4 || is_idle;
        if count > 0 && is_due && !self.is_stopped {
            self.granted = self.settled;
            self.grant();
        }
    }

    fn submit(&self, commands: impl IntoIterator<Item = (u64, Command)>, outlet: &Arc<dyn Outlet>) {
        let entity = &self.link.entity;
        let requests = commands.into_iter().map(|(tag, command)| Request {
            ticket: entity.broker().ticket(),
            sub_queue: entity.sub_queue(),
            command,
            reply: Reply::new(Arc::clone(outlet), tag, None),
        });
        entity.submit(requests.collect());
    }

    /// Stores the numbers of the link for the list of clients.
    fn store_gauge(&self) {
        let Some(listed) = &self.link.listed else { return };
        let delivered = self.first - (UNTAGGED + 1) + self.sizes.len() as u64;
        let unsettled = delivered.saturating_sub(self.settled.count);
        let gauge = listed.gauge();
        gauge.set_credit((self.granted.count + self.unsettled_max).saturating_sub(delivered));
        gauge.set_delivered(delivered);
        gauge.set_unsettled(u32::try_from(unsettled).unwrap_or(u32::MAX));
    }

    /// Records that a message was settled.
    fn forget(&mut self, tag: u64) {
        let place = tag.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let size = place.and_then(|place| self.sizes.get_mut(place)?.take());
        let Some(size) = size else { return };
        self.settled.count += 1;
        self.settled.bytes += u64::from(size);
        while self.sizes.front().is_some_and(Option::is_none) {
            self.sizes.pop_front();
            self.first += 1;
        }
        self.store_gauge();
    }

    fn arrival(&mut self, item: Released) -> Option<Arrival> {
        match item {
            Released::Delivery { message, .. } => {
                let tag = self.first + self.sizes.len() as u64;
                self.sizes.push_back(Some(message.facts.size));
                self.store_gauge();
                Some(Arrival::Delivered { tag, message })
            }
            Released::Answer { correlation: UNTAGGED, .. } => None,
            Released::Answer { correlation: tag, result } => {
                self.forget(tag);
                let result = result.map(drop).map_err(|rejection| self.link.refuse(rejection));
                Some(Arrival::Settled { tag, result })
            }
            Released::Detached { reason, .. } | Released::Closed { reason, .. } => {
                self.is_closed = true;
                Some(Arrival::Detached(self.link.refuse(reason)))
            }
        }
    }
}

impl Deliveries for PushedLink {
    fn link(&self) -> &Arc<dyn Link> {
        &self.shared
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Arrival>> {
        loop {
            while let Some(item) = self.group.next() {
                if let Some(arrival) = self.arrival(item) {
                    return Poll::Ready(Some(arrival));
                }
            }
            match self.arrivals.poll_recv(context) {
                Poll::Ready(Some((group, at_work))) => {
                    self.group = group.into_iter();
                    self.at_work = at_work;
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.grant_if_due();
                    if self.sizes.is_empty() {
                        self.at_work = None;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn settle(&mut self, group: Vec<Verdict>) {
        let mut commands = Vec::with_capacity(group.len());
        let mut refused = Vec::new();
        for Verdict { tag, token, settlement } in group {
            match self.link.decided(settlement) {
                Ok(settlement) => commands.push((tag, Command::Settle { token, settlement })),
                Err(rejection) => {
                    refused.push(Released::Answer { correlation: tag, result: Err(rejection) });
                }
            }
        }
        self.submit(commands, &self.outlet);
        if !refused.is_empty() {
            self.outlet.release(refused);
        }
    }

    fn stop(&mut self) {
        self.is_stopped = true;
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, ()> {
        // A link closed by the entity can have nothing in transit.
        self.link.end(if self.is_closed { LinkEnd::Orderly } else { LinkEnd::ByBroker });
        Box::pin(std::future::ready(()))
    }
}

impl Drop for PushedLink {
    fn drop(&mut self) {
        // Unsettled messages are released without being counted, even if others still share the
        // link.
        self.link.end(LinkEnd::ByBroker);
    }
}
