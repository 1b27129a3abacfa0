//! Transfers from one entity to another.

use std::sync::Arc;

use peeklock_core::command::Command;
use peeklock_core::description::Destination;
use peeklock_core::error::Rejection;
use peeklock_core::ids::Ticket;
use peeklock_core::path::{PathKey, SubQueue};
use peeklock_core::request::{Released, Reply, Request};
use peeklock_core::store::{Key, Store as _};
use peeklock_core::transfer::{Departure, ListNumber, contents};
use peeklock_store_testing::block_on;

use super::{World, path};
use crate::ground::{ListEnded, load, push, take};

impl World {
    /// Delivers a random transfer to its destination, in any order among sources.
    pub(super) fn walk(&mut self) {
        if self.errands.is_empty() {
            return;
        }
        let errand = self.random.index(self.errands.len());
        let (seat, claims, list) = self.errands.swap_remove(errand);
        let loading = contents::load(&list, &self.edge, &*self.store);
        let refuses = || self.odds.unknown > 0 && self.random.one_in(10);
        let Some(arrivals) = load(&self.store, refuses, loading) else {
            self.seen.unread_lists += 1;
            return self.end_list(seat, list.list, Vec::new());
        };
        let keys: Vec<Key> = list.messages.iter().map(|one| one.origin.key).collect();
        let (ended, number, all) = (Arc::clone(&self.ended), list.list, keys);
        let claim = claims.open(Box::new(move |end| {
            push(&ended, ListEnded { seat, list: number, keys: all, end });
        }));
        let Destination::Entity(key) = Destination::parse(&list.destination).unwrap() else {
            panic!("all destinations are queues");
        };
        let found =
            self.entities.iter().position(|one| PathKey::fold(&one.path) == key && !one.closed);
        match found {
            Some(place) => {
                let command = Command::TransferIn { messages: arrivals, when_full: list.when_full };
                let reply = Reply::for_claim(claim);
                let (ticket, sub_queue) = (Ticket(0), SubQueue::Main);
                let request = Request { ticket, sub_queue, command, reply };
                self.entities[place].inlet.push_back(request);
            }
            None => {
                let absent = Rejection::entity_not_found(&list.destination);
                let result = Err(absent);
                claim.outlet().release(vec![Released::Answer { correlation: 0, result }]);
            }
        }
    }

    /// Reports the results of transfers to their sources.
    pub(super) fn process_ends(&mut self) {
        for ListEnded { seat, list, keys, end } in take(&self.ended) {
            if matches!(end, None | Some(Err(_))) {
                self.seen.unanswered += 1;
            }
            if let Some(Ok(admissions)) = &end {
                use peeklock_core::condition::Condition;
                use peeklock_core::transfer::Admission;
                self.seen.full += admissions
                    .iter()
                    .filter(|one| matches!(one, Admission::NotAdmitted(reason) if reason.condition() == Condition::QuotaExceeded))
                    .count() as u64;
            }
            let departures =
                block_on(contents::departures(&keys, end, self.store.exists(&keys))).unwrap();
            self.end_list(seat, list, departures);
        }
    }

    /// Reports the results of a list to its source, if that still exists.
    fn end_list(&mut self, seat: u64, list: ListNumber, departures: Vec<Departure>) {
        let place = self.entities.iter().position(|one| one.seat == seat);
        let is_open = |place: &usize| {
            let source = &self.entities[*place];
            source.shell.is_some() && !source.closed
        };
        let Some(place) = place.filter(is_open) else {
            self.seen.unclaimed += 1;
            return;
        };
        self.note(|| format!("{} hears of {list:?}: {departures:?}", path(place)));
        let request = Request {
            ticket: Ticket(0),
            sub_queue: SubQueue::Main,
            command: Command::EndTransfer { list, departures },
            reply: Reply::without_receiver(),
        };
        self.turn(place, |shell, now, out| shell.run([request], now, out));
    }
}
