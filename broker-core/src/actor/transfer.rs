//! Brings messages from one entity to another: loads their contents, finds the destination, hands them
//! in there, and tells the source what became of them (DESIGN D9). (Data path, steps 2 to 4, once more.)
//!
//! Nothing here decides: the machine of the source has frozen the list, that of the destination judges
//! it. What is here is how both find out, whatever breaks between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::{Addr, Handler, Message};

use super::entity::EntityActor;
use super::inlet::Inlet;
use crate::broker::Shared;
use crate::command::Command;
use crate::description::Destination;
use crate::error::Rejection;
use crate::ids::Ticket;
use crate::path::{PathKey, SubQueue};
use crate::request::{Reply, Request, release_all};
use crate::store::Key;
use crate::transfer::passage::{PassageEnd, Passages};
use crate::transfer::{Arrival, HandOver, ListNumber, PinnedMessage, WhenFull, errand};

/// The courier of one entity.
pub(super) struct Courier {
    shared: Arc<Shared>,
    passages: Arc<Passages>,
}

/// Nothing of a list is on its way any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ListEnded {
    list: ListNumber,
    /// Where its messages lay.
    keys: Vec<Key>,
    end: PassageEnd,
}

impl Courier {
    pub(super) const fn new(shared: Arc<Shared>, passages: Arc<Passages>) -> Self {
        Self { shared, passages }
    }

    /// Brings a list to its destination.
    pub(super) fn carry(&self, list: HandOver<PinnedMessage>, source: Addr<EntityActor>) {
        let errand = Errand {
            shared: Arc::clone(&self.shared),
            passages: Arc::clone(&self.passages),
            source,
        };
        actix_rt::spawn(errand.run(list));
    }
}

/// One list on its way.
struct Errand {
    shared: Arc<Shared>,
    passages: Arc<Passages>,
    source: Addr<EntityActor>,
}

impl Errand {
    async fn run(self, list: HandOver<PinnedMessage>) {
        // At a start the destination may be opened after its source; it is not absent for that.
        let mut are_open = self.shared.are_open.subscribe();
        if are_open.wait_for(|open| *open).await.is_err() {
            return;
        }
        let keys = list.messages.iter().map(|message| message.origin.key).collect();
        let number = list.list;
        match errand::load(&list, &self.shared.edge).await {
            Ok(arrivals) => {
                self.hand_in(number, keys, &list.destination, list.when_full, arrivals);
            }
            Err(error) => {
                let destination = &list.destination;
                tracing::warn!(%error, %destination, "messages cannot be read to be forwarded");
                let reason = Rejection::internal("the content of a message cannot be read");
                self.source.do_send(ListEnded { list: number, keys, end: Some(Err(reason)) });
            }
        }
    }

    fn hand_in(
        &self,
        list: ListNumber,
        keys: Vec<Key>,
        destination: &str,
        when_full: WhenFull,
        messages: Vec<Arrival>,
    ) {
        let source = self.source.clone();
        let passage =
            self.passages.open(Box::new(move |end| source.do_send(ListEnded { list, keys, end })));
        let reply = Reply::new(passage.outlet(), 0, None);
        let entry = Destination::parse(destination).and_then(|found| match found {
            Destination::Entity(key) => self.find(&key, destination),
            Destination::Foreign(_) => Err(Rejection::entity_not_found(destination)),
        });
        let inlet = match entry {
            Ok(inlet) => inlet,
            Err(absent) => {
                release_all(&mut reply.answer(Err(absent)).into_iter().collect());
                return;
            }
        };
        let ticket = Ticket(self.shared.tickets.fetch_add(1, Ordering::Relaxed));
        let command = Command::TransferIn { messages, when_full, passage };
        let request = Request { ticket, sub_queue: SubQueue::Main, command, reply };
        if let Err((refused, reason)) = inlet.submit(vec![request]) {
            let mut releases = refused
                .into_iter()
                .filter_map(|request| request.reply.answer(Err(reason.clone())))
                .collect();
            release_all(&mut releases);
        }
    }

    fn find(&self, key: &PathKey, path: &str) -> Result<Arc<Inlet>, Rejection> {
        match self.shared.directory.get(key) {
            Some(entry) => Ok(entry.inlet),
            None => Err(Rejection::entity_not_found(path)),
        }
    }
}

impl Handler<ListEnded> for EntityActor {
    type Result = ();

    fn handle(&mut self, mail: ListEnded, context: &mut Self::Context) {
        let ListEnded { list, keys, end } = mail;
        let departures = errand::departures(&*self.courier().shared.store, &keys, end);
        let request = Request {
            ticket: Ticket(0),
            sub_queue: SubQueue::Main,
            command: Command::TransferOut { list, departures },
            reply: Reply::nobody(),
        };
        self.turn(context, |shell, now, out| shell.run([request], now, out));
    }
}
