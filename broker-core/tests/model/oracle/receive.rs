//! Demand, and its matching with available messages.

use peeklock_core::command::{Drain, LinkEnd, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::path::SubQueue;

use super::{
    Answered, Conditions, Demand, Link, Lock, Oracle, State, Waiting, check_count, refuse,
};
use crate::operation::{LockName, Reply, Seen};

impl Oracle {
    pub(super) fn check_receive(&mut self) -> Result<(), Conditions> {
        if !self.description.status.allows_receive() {
            self.reach("ENT-24");
            self.reach("ENT-29");
            return refuse(Condition::EntityDisabled);
        }
        Ok(())
    }

    /// RCV-22: calls and links together.
    pub(super) fn check_receiver_count(&mut self) -> Result<(), Conditions> {
        if self.waiting.len() + self.links.len() >= self.limits.receiver_count_max {
            self.reach("RCV-22");
            return refuse(Condition::QuotaExceeded);
        }
        Ok(())
    }

    pub(super) fn receive(&mut self, call: Waiting) -> Answered {
        if call.count_max == 0 && !self.description.status.allows_receive() {
            return Err(vec![Condition::EntityDisabled, Condition::ArgumentOutOfRange]);
        }
        self.check_receive()?;
        check_count(call.count_max)?;
        self.check_receiver_count()?;
        self.touch();
        self.ring.push(Demand::Call(call.ticket));
        self.waiting.push(call);
        Ok(None)
    }

    /// RCV-14: it takes no more locks.
    pub(super) fn cancel_receive(&mut self, call: u64) -> Answered {
        if self.waiting.iter().any(|waiting| waiting.ticket == call) {
            self.reach("RCV-14");
            self.end_call(call, Vec::new());
        }
        self.touch_perhaps();
        Ok(Some(Reply::Done))
    }

    pub(super) fn end_call(&mut self, ticket: u64, messages: Vec<Seen>) {
        self.waiting.retain(|call| call.ticket != ticket);
        self.ring.retain(|demand| *demand != Demand::Call(ticket));
        self.turn.replies.insert(ticket, Reply::Received(messages));
        self.last_use.idle_from = self.now;
        self.last_use.possible = self.now;
    }

    /// DEF-02, DEF-03: by number, all or none.
    pub(super) fn receive_deferred(
        &mut self,
        sub_queue: SubQueue,
        mode: ReceiveMode,
        sequences: &[u64],
        holder: Option<u64>,
    ) -> Answered {
        self.check_receive()?;
        let mut found = Vec::new();
        for sequence in sequences {
            let index = self.find_deferred(sub_queue, *sequence);
            let Some(index) = index.filter(|index| !found.contains(index)) else {
                self.reach("DEF-03");
                return refuse(Condition::MessageNotFound);
            };
            // EXP-38; not in a dead-letter queue (EXP-39).
            if sub_queue == SubQueue::Main && self.is_expired(&self.messages[index]) {
                self.reach("EXP-38");
                return refuse(Condition::MessageNotFound);
            }
            found.push(index);
        }
        self.touch();
        let mut seen = Vec::new();
        for index in found {
            self.reach("DEF-02");
            seen.push(self.take(index, mode, holder));
        }
        Ok(Some(Reply::Received(seen)))
    }

    /// Gives one message to a receiver: under a lock (RCV-05), or removed (RCV-02).
    pub(super) fn take(&mut self, index: usize, mode: ReceiveMode, holder: Option<u64>) -> Seen {
        match mode {
            ReceiveMode::PeekLock => {
                self.reach("RCV-05");
                self.locks_given += 1;
                // SET-15, RCV-06, RCV-07, ENT-18.
                let lock = Lock {
                    name: LockName(self.locks_given),
                    until: self.now.plus(self.description.lock_duration),
                    holder,
                    taken_by: holder,
                    taken_at: self.now,
                    renewals: 0,
                };
                let message = &mut self.messages[index];
                message.lock = Some(lock);
                message.state = match message.state {
                    State::Available => State::Locked,
                    State::Deferred => State::LockedDeferred,
                    State::DlqAvailable => State::DlqLocked,
                    State::DlqDeferred => State::DlqLockedDeferred,
                    other => panic!("{other:?} was taken"),
                };
                self.seen_on_receive(index)
            }
            ReceiveMode::ReceiveAndDelete => {
                self.reach("RCV-02");
                let seen = self.seen_on_receive(index);
                self.remove(index);
                seen
            }
        }
    }

    pub(super) fn attach(
        &mut self,
        sub_queue: SubQueue,
        receiver: u64,
        mode: ReceiveMode,
    ) -> Answered {
        self.check_receive()?;
        self.check_receiver_count()?;
        self.links.push(Link {
            receiver,
            sub_queue,
            mode,
            sent: 0,
            sent_bytes: 0,
            delivery_limit: 0,
            byte_limit: 0,
            drain: None,
        });
        self.touch_perhaps();
        Ok(Some(Reply::Done))
    }

    /// RCV-16, RCV-18.
    pub(super) fn grant(
        &mut self,
        ticket: u64,
        receiver: u64,
        delivery_limit: u64,
        byte_limit: u64,
        drain: Drain,
    ) -> Answered {
        let demand = Demand::Link(receiver);
        self.check_link(receiver)?;
        // RCV-18: a drain delivers available messages, also if the next grant follows immediately.
        if self.link(receiver).drain.is_some() {
            self.sweep();
            let sub_queue = self.link(receiver).sub_queue;
            self.match_demand(sub_queue);
            self.end_drain(receiver);
        }
        let link = self.link(receiver);
        let had_credit = link.credit() > 0;
        link.delivery_limit = delivery_limit;
        link.byte_limit = byte_limit;
        let credit = link.credit();
        if !link.can_take() {
            self.ring.retain(|other| *other != demand);
        } else if !self.ring.contains(&demand) {
            self.ring.push(demand);
        }
        // TMP-15: a grant for a link without credit is no use.
        match (had_credit, credit) {
            (false, 0) => {}
            (true, 0) => self.touch_perhaps(),
            _ => self.touch(),
        }
        match drain {
            Drain::No => Ok(Some(Reply::Granted(credit))),
            Drain::Yes => {
                self.link(receiver).drain = Some(ticket);
                Ok(None)
            }
        }
    }

    pub(super) fn check_link(&self, receiver: u64) -> Result<(), Conditions> {
        if self.links.iter().any(|link| link.receiver == receiver) {
            return Ok(());
        }
        refuse(Condition::InvalidOperation)
    }

    pub(super) fn link(&mut self, receiver: u64) -> &mut Link {
        let link = self.links.iter_mut().find(|link| link.receiver == receiver);
        link.unwrap_or_else(|| panic!("link {receiver} does not exist"))
    }

    /// Whether the end of a link releases its locks (SET-21).
    const fn releases(&self, end: LinkEnd) -> bool {
        match end {
            LinkEnd::Orderly => self.release_on_detach,
            LinkEnd::Lost => self.release_on_connection_loss,
            LinkEnd::Broken | LinkEnd::ByBroker => true,
        }
    }

    pub(super) fn detach(&mut self, receiver: u64, end: LinkEnd) -> Answered {
        self.end_drain(receiver);
        self.links.retain(|link| link.receiver != receiver);
        self.ring.retain(|demand| *demand != Demand::Link(receiver));
        // RCV-14: a receive of a disconnected client takes no lock.
        for call in self.waiting.clone() {
            if call.holder == Some(receiver) {
                self.reach("RCV-14");
                self.end_call(call.ticket, Vec::new());
            }
        }
        self.touch_perhaps();
        for index in 0..self.messages.len() {
            let held = self.messages[index].lock.as_ref();
            if held.is_none_or(|lock| lock.holder != Some(receiver)) {
                continue;
            }
            match end {
                // SET-21: an orderly detach and a lost connection keep the locks, unless a setting
                // releases them.
                LinkEnd::Orderly | LinkEnd::Lost if !self.releases(end) => {
                    self.reach("SET-21");
                    if let Some(lock) = &mut self.messages[index].lock {
                        lock.holder = None;
                    }
                }
                // SET-31: counted like the end of a lock.
                LinkEnd::Orderly | LinkEnd::Broken | LinkEnd::Lost => {
                    self.reach("SET-21");
                    self.reach("SET-31");
                    self.fail_delivery(index, None);
                }
                // SET-31: an end by the broker itself is not counted.
                LinkEnd::ByBroker => {
                    self.reach("SET-31");
                    self.release(index);
                }
            }
        }
        Ok(Some(Reply::Done))
    }

    /// Matches demand with available messages: ascending numbers (RCV-25), demand in the order of
    /// arrival (RCV-17).
    pub(super) fn serve(&mut self) {
        // EXP-35: a receive that finds only expired messages has moved or dropped them.
        self.sweep();
        for sub_queue in [SubQueue::Main, SubQueue::DeadLetter, SubQueue::TransferDeadLetter] {
            self.match_demand(sub_queue);
        }
        // RCV-10: calls that may not wait are answered now.
        let hasty: Vec<u64> = self
            .waiting
            .iter()
            .filter(|call| call.deadline.is_none())
            .map(|call| call.ticket)
            .collect();
        for ticket in hasty {
            self.reach("RCV-10");
            self.end_call(ticket, Vec::new());
        }
        // RCV-18: the rest of a drained credit is returned.
        let drained: Vec<u64> = self
            .links
            .iter()
            .filter(|link| link.drain.is_some())
            .map(|link| link.receiver)
            .collect();
        for receiver in drained {
            self.reach("RCV-18");
            // TMP-15: there was credit until now, unless there was none before.
            let had_credit = self.link(receiver).credit() > 0;
            self.end_drain(receiver);
            if had_credit {
                self.last_use.idle_from = self.now;
                self.last_use.possible = self.now;
            }
        }
    }

    fn match_demand(&mut self, sub_queue: SubQueue) {
        while let Some(demand) = self.first_demand(sub_queue) {
            if self.first_available(sub_queue).is_none() {
                return;
            }
            self.touch();
            match demand {
                Demand::Call(ticket) => self.serve_call(sub_queue, ticket),
                Demand::Link(receiver) => self.serve_link(sub_queue, receiver),
            }
        }
    }

    /// Every command is answered once, also if its link ends before.
    pub(super) fn end_drain(&mut self, receiver: u64) {
        let link = self.links.iter_mut().find(|link| link.receiver == receiver);
        if let Some(link) = link
            && let Some(ticket) = link.drain.take()
        {
            let unused = link.credit();
            link.delivery_limit = link.sent;
            self.turn.replies.insert(ticket, Reply::Granted(unused));
            self.ring.retain(|demand| *demand != Demand::Link(receiver));
        }
    }

    /// The demand that has waited longest and can take a message.
    pub(super) fn first_demand(&self, sub_queue: SubQueue) -> Option<Demand> {
        self.ring.iter().copied().find(|demand| match demand {
            Demand::Call(ticket) => self
                .waiting
                .iter()
                .any(|call| call.ticket == *ticket && call.sub_queue == sub_queue),
            Demand::Link(receiver) => self.links.iter().any(|link| {
                link.receiver == *receiver && link.sub_queue == sub_queue && link.can_take()
            }),
        })
    }

    /// RCV-25 to RCV-27: the lowest number that is available, not expired and durable.
    pub(super) fn first_available(&self, sub_queue: SubQueue) -> Option<usize> {
        (0..self.messages.len())
            .filter(|index| {
                let message = &self.messages[*index];
                !message.in_flight
                    && match sub_queue {
                        SubQueue::Main => {
                            message.state == State::Available && !self.is_expired(message)
                        }
                        SubQueue::DeadLetter => message.state == State::DlqAvailable,
                        SubQueue::TransferDeadLetter => false,
                    }
            })
            .min_by_key(|index| self.messages[*index].sequence)
    }

    /// RCV-12, RCV-13: everything available up to the count and the bytes, but at least one.
    pub(super) fn serve_call(&mut self, sub_queue: SubQueue, ticket: u64) {
        let Some(call) = self.waiting.iter().find(|call| call.ticket == ticket).cloned() else {
            return;
        };
        let mut seen = Vec::new();
        let mut bytes = 0;
        while let Some(index) = self.first_available(sub_queue) {
            let size = u64::from(self.messages[index].size);
            if seen.len() as u64 == u64::from(call.count_max) {
                break;
            }
            if !seen.is_empty() && bytes + size > call.bytes_max {
                self.reach("RCV-13");
                break;
            }
            bytes += size;
            seen.push(self.take(index, call.mode, call.holder));
        }
        self.reach("RCV-12");
        self.end_call(ticket, seen);
    }

    /// RCV-17: some messages or bytes, then the next demand has its turn.
    pub(super) fn serve_link(&mut self, sub_queue: SubQueue, receiver: u64) {
        let (mut count, mut bytes) = (0, 0);
        while let Some(index) = self.first_available(sub_queue) {
            let size = u64::from(self.messages[index].size);
            let link = self.link(receiver);
            if !link.can_take() {
                break;
            }
            let mode = link.mode;
            if count == self.limits.link_turn_count_max || bytes >= self.limits.link_turn_bytes_max
            {
                self.reach("RCV-17");
                break;
            }
            let link = self.link(receiver);
            link.sent += 1;
            link.sent_bytes += size;
            count += 1;
            bytes += size;
            self.reach("RCV-16");
            let seen = self.take(index, mode, Some(receiver));
            self.turn.deliveries.entry(receiver).or_default().push(seen);
        }
        self.ring.retain(|demand| *demand != Demand::Link(receiver));
        if self.link(receiver).can_take() {
            self.ring.push(Demand::Link(receiver));
        }
        self.last_use.idle_from = self.now;
    }

    /// ENT-24: waiting receives are refused too, and links are closed with the same condition.
    /// ENT-25: their locks stay, and can be settled or renewed.
    pub(super) fn close_receivers(&mut self) {
        for call in std::mem::take(&mut self.waiting) {
            let refused = Reply::Refused(vec![Condition::EntityDisabled]);
            self.turn.replies.insert(call.ticket, refused);
        }
        for link in std::mem::take(&mut self.links) {
            if let Some(ticket) = link.drain {
                let refused = Reply::Refused(vec![Condition::EntityDisabled]);
                self.turn.replies.insert(ticket, refused);
            }
            self.turn.detached.entry(link.receiver).or_default().push(Condition::EntityDisabled);
        }
        self.ring.clear();
    }
}
