//! Commands of clients: each goes to the oracle and to the machine.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::command::{
    Command, InboundMessage, LinkEnd, ReceiveMode, RuleCommand, SessionCommand, Settlement,
    TopicCommand,
};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber};
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{Operation, Part};

use super::{Delivery, TOPIC, World};
use crate::image::Bare;
use crate::oracle::{Call, Kind, Lane, Mutable, Oracle, Piece, Reply, Settled, Undertaking};
use crate::rules::rule;

const NAMES: [&str; 4] = ["alpha", "beta", "gamma", "$default"];

const LINK_ENDS: [LinkEnd; 4] =
    [LinkEnd::Orderly, LinkEnd::Broken, LinkEnd::Lost, LinkEnd::ByBroker];

impl World {
    pub(super) fn ask(&mut self) {
        let id = self.random.between(1, 8);
        if !self.is_open(id) {
            return;
        }
        let nature = &self.oracle.entities[&id].nature;
        match nature.kind {
            Kind::Topic => match self.random.below(20) {
                0..=10 => self.send(id),
                11 | 12 => self.cancel(id),
                13..=15 => self.change_rule(),
                16 => self.update(id),
                _ => self.commit(id),
            },
            Kind::Queue | Kind::Subscription => {
                let takes_sends = nature.kind == Kind::Queue;
                let has_sessions = nature.requires_session;
                match self.random.below(24) {
                    0..=5 if takes_sends => self.send(id),
                    0..=2 | 6 | 7 if has_sessions => self.accept(id),
                    8..=11 if has_sessions => self.in_session(id),
                    6..=11 => self.receive(id),
                    0..=5 | 12..=16 => self.settle(id),
                    17 => self.receive_deferred(id),
                    18 if takes_sends => self.cancel(id),
                    19 => self.peek(id),
                    20 if self.random.one_in(3) => self.update(id),
                    21 => self.detach(id),
                    22 if takes_sends => self.send_via(id),
                    _ => self.commit(id),
                }
            }
        }
    }

    /// Carries out a command in both.
    pub(super) fn both(
        &mut self,
        id: u64,
        sub_queue: SubQueue,
        command: Command,
        predict: impl FnOnce(&mut Oracle, u64) -> Option<Reply>,
    ) {
        self.both_of(id, None, sub_queue, command, predict);
    }

    pub(super) fn both_of(
        &mut self,
        id: u64,
        member: Option<u64>,
        sub_queue: SubQueue,
        command: Command,
        predict: impl FnOnce(&mut Oracle, u64) -> Option<Reply>,
    ) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.note(|| {
            let text = format!("{command:?}");
            let text: String = text.chars().take(300).collect();
            format!("{id} {ticket} {sub_queue:?} {text}")
        });
        self.asked.insert(ticket, id);
        self.oracle.advance(id);
        if let Some(member) = member {
            self.oracle.advance(member);
        }
        self.oracle.ticket = ticket;
        let reply = predict(&mut self.oracle, ticket);
        // A refusal does not advance the other member.
        let member = member.filter(|_| !matches!(reply, Some(Reply::Refused(_))));
        self.note(|| format!("  {ticket} should be {reply:?}"));
        if let Some(reply) = reply {
            self.oracle.replies.insert(ticket, reply);
        }
        let request = self.request(ticket, sub_queue, command);
        self.run(id, member, |shell, now, out| shell.run([request], now, out));
    }

    fn messages(&mut self, id: u64) -> (Vec<Bare>, Vec<InboundMessage>) {
        let with_session = self.oracle.entities[&id].nature.requires_session;
        let count = if self.random.one_in(3) { self.random.between(2, 4) } else { 1 };
        let mut all: Vec<Bare> = (0..count).map(|_| self.draw_message(with_session)).collect();
        let inbound: Vec<InboundMessage> = all.iter().map(|one| self.inbound(one)).collect();
        for (one, inbound) in all.iter_mut().zip(&inbound) {
            one.id = inbound.content.message_id().unwrap().into_owned();
        }
        self.note(|| format!("{id} gets {all:?}"));
        (all, inbound)
    }

    fn send(&mut self, id: u64) {
        let (all, mut messages) = self.messages(id);
        let command = if messages.len() == 1 {
            Command::Send { message: messages.remove(0) }
        } else {
            Command::SendBatch { messages }
        };
        self.both(id, SubQueue::Main, command, |oracle, _| Some(oracle.send(id, &all)));
    }

    fn draw_via(&mut self, id: u64) -> String {
        let all = ["q0", "q1", "q2", "q3", "t", "nowhere"];
        let own = format!("q{}", id - 1);
        let others: Vec<&str> = all.iter().filter(|one| **one != own).copied().collect();
        (*self.random.pick(&others).unwrap()).to_owned()
    }

    fn send_via(&mut self, id: u64) {
        let to = self.draw_via(id);
        let (all, messages) = self.messages(id);
        let command = Command::SendVia { destination: Arc::from(&*to), messages };
        self.both(id, SubQueue::Main, command, |oracle, _| Some(oracle.send_via(id, &to, &all)));
    }

    fn draw_sub_queue(&mut self) -> SubQueue {
        match self.random.below(8) {
            0 | 1 => SubQueue::DeadLetter,
            2 => SubQueue::TransferDeadLetter,
            _ => SubQueue::Main,
        }
    }

    fn draw_receiver(&mut self, id: u64) -> u64 {
        let known = self.receivers.entry(id).or_default();
        if known.len() > 6 {
            known.remove(0);
        }
        if known.is_empty() || self.random.one_in(4) {
            known.push(self.next_receiver);
            self.next_receiver += 1;
        }
        let known = self.receivers[&id].clone();
        *self.random.pick(&known).unwrap()
    }

    fn draw_wait(&mut self) -> TimeSpan {
        let wait = if self.random.one_in(3) { 5 } else { 0 };
        TimeSpan::from_seconds(wait)
    }

    fn receive(&mut self, id: u64) {
        let sub_queue = self.draw_sub_queue();
        let count_max = u32::try_from(self.random.between(1, 4)).unwrap();
        let (wait, takes) = (self.draw_wait(), self.random.one_in(6));
        let receiver = self.draw_receiver(id);
        let holder = (!self.random.one_in(3)).then_some(receiver);
        let mode = if takes { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock };
        let command = Command::Receive {
            mode,
            count_max,
            bytes_max: u64::MAX,
            wait,
            holder: holder.map(ReceiverId),
        };
        self.both(id, sub_queue, command, |oracle, ticket| {
            let deadline = oracle.now.plus(wait);
            let (lane, count_max) = (Lane::Of(sub_queue), usize::try_from(count_max).unwrap());
            oracle.receive(id, Call { ticket, lane, count_max, deadline, holder, takes })
        });
    }

    fn draw_settlement(&mut self) -> (Settled, Settlement) {
        match self.random.below(12) {
            0..=2 => (Settled::Complete, Settlement::Complete),
            3..=6 => {
                let delay = (self.random.one_in(2))
                    .then(|| TimeSpan::from_seconds(i64::try_from(self.random.below(8)).unwrap()));
                (Settled::Abandon(delay), Settlement::Abandon { properties: None, delay })
            }
            7 | 8 => (Settled::Defer, Settlement::Defer { properties: None }),
            9 | 10 => {
                let settlement =
                    Settlement::dead_letter(Some("app"), Some("d"), &[], &self.limits).unwrap();
                (Settled::DeadLetter, settlement)
            }
            _ => (Settled::Release, Settlement::Release),
        }
    }

    /// Usually one of the last deliveries of an entity.
    fn draw_delivery(&mut self, id: u64) -> Option<Delivery> {
        let all: Vec<Delivery> =
            self.deliveries.iter().rev().filter(|one| one.id == id).take(6).copied().collect();
        self.random.pick(&all).copied()
    }

    fn settle(&mut self, id: u64) {
        let Some(Delivery { sub_queue, token, .. }) = self.draw_delivery(id) else { return };
        if self.random.one_in(10) {
            let command = Command::RenewLock { token: LockToken(token) };
            self.both(id, sub_queue, command, |oracle, _| Some(oracle.renew(id, sub_queue, token)));
            return;
        }
        let (how, settlement) = self.draw_settlement();
        let command = Command::Settle { token: LockToken(token), settlement };
        self.both(id, sub_queue, command, |oracle, _| {
            Some(oracle.settle(id, sub_queue, token, how))
        });
    }

    fn draw_deferred(&mut self, id: u64, sub_queue: SubQueue) -> Vec<u64> {
        use peeklock_core::machine::slot::SlotState;
        let cards = self.oracle.entities[&id].cards.iter();
        let deferred: Vec<u64> = cards
            .filter(|(_, card)| {
                card.record.state == SlotState::Deferred && card.record.sub_queue == sub_queue
            })
            .map(|(sequence, _)| *sequence)
            .collect();
        let count = self.random.between(1, 2);
        (0..count).filter_map(|_| self.random.pick(&deferred).copied()).collect()
    }

    fn receive_deferred(&mut self, id: u64) {
        let sub_queue = self.draw_sub_queue();
        let numbers = self.draw_deferred(id, sub_queue);
        if numbers.is_empty() {
            return;
        }
        let holder = Some(self.draw_receiver(id));
        let command = Command::ReceiveDeferred {
            mode: ReceiveMode::PeekLock,
            sequences: numbers.iter().copied().map(SequenceNumber).collect(),
            holder: holder.map(ReceiverId),
        };
        self.both(id, sub_queue, command, |oracle, _| {
            Some(oracle.receive_deferred(id, sub_queue, &numbers, holder))
        });
    }

    fn cancel(&mut self, id: u64) {
        use peeklock_core::machine::slot::SlotState;
        let cards = self.oracle.entities[&id].cards.iter();
        let scheduled: Vec<u64> = cards
            .filter(|(_, card)| card.record.state == SlotState::Scheduled)
            .map(|(sequence, _)| *sequence)
            .collect();
        let mut numbers: Vec<u64> = self.random.pick(&scheduled).copied().into_iter().collect();
        if self.random.one_in(3) || numbers.is_empty() {
            numbers.push(self.random.between(1, 40));
        }
        let sequences = numbers.iter().copied().map(SequenceNumber).collect();
        let command = Command::CancelScheduled { sequences };
        self.both(id, SubQueue::Main, command, |oracle, _| Some(oracle.cancel(id, &numbers)));
    }

    fn peek(&mut self, id: u64) {
        let sub_queue = self.draw_sub_queue();
        let command = Command::Peek { from: SequenceNumber(0), count_max: 250 };
        self.both(id, sub_queue, command, |oracle, _| {
            let Reply::Peeked(mut all) = oracle.peek(id, sub_queue) else { return None };
            all.truncate(250);
            Some(Reply::Peeked(all))
        });
    }

    fn update(&mut self, id: u64) {
        let kind = self.oracle.entities[&id].nature.kind;
        let to = self.draw_mutable(id, kind);
        self.update_to(id, to);
    }

    pub(super) fn update_to(&mut self, id: u64, to: Mutable) {
        let kind = self.oracle.entities[&id].nature.kind;
        let before =
            std::mem::replace(&mut self.oracle.entities.get_mut(&id).unwrap().now, to.clone());
        let read_at = None;
        let command = match kind {
            Kind::Queue => {
                let description = Box::new(self.queue_description(id));
                Command::Update { description, read_at }
            }
            Kind::Topic => {
                let description = Box::new(self.topic_description());
                Command::OfTopic(TopicCommand::Update { description, read_at })
            }
            Kind::Subscription => {
                let description = Box::new(self.subscription_description(id));
                Command::UpdateSubscription { description, read_at }
            }
        };
        self.oracle.entities.get_mut(&id).unwrap().now = before;
        self.both(id, SubQueue::Main, command, |oracle, _| Some(oracle.update(id, to)));
    }

    fn detach(&mut self, id: u64) {
        let receiver = self.draw_receiver(id);
        let end = *self.random.pick(&LINK_ENDS).unwrap();
        let command = Command::Detach { receiver: ReceiverId(receiver), end };
        self.both(id, SubQueue::Main, command, |oracle, _| Some(oracle.detach(id, receiver, end)));
    }

    fn accept(&mut self, id: u64) {
        let receiver = self.next_receiver;
        self.next_receiver += 1;
        self.receivers.entry(id).or_default().push(receiver);
        let session = self.random.one_in(2).then(|| self.random.below(3));
        let wait = self.draw_wait();
        let command = Command::AcceptSession {
            session: session.map(|session| session.to_string().into()),
            receiver: ReceiverId(receiver),
            mode: ReceiveMode::PeekLock,
            wait,
        };
        self.both(id, SubQueue::Main, command, |oracle, ticket| {
            let call = Call {
                ticket,
                lane: Lane::Accept,
                count_max: 0,
                deadline: oracle.now.plus(wait),
                holder: Some(receiver),
                takes: false,
            };
            oracle.accept(id, call, session)
        });
    }

    fn in_session(&mut self, id: u64) {
        let holders: Vec<u64> =
            self.oracle.entities[&id].holds.values().map(|hold| hold.receiver).collect();
        let receiver = match self.random.pick(&holders) {
            Some(holder) if !self.random.one_in(8) => *holder,
            _ => self.draw_receiver(id),
        };
        let ask = |command| Command::InSession { receiver: ReceiverId(receiver), command };
        let main = SubQueue::Main;
        match self.random.below(10) {
            0..=4 => {
                let count_max = u32::try_from(self.random.between(1, 3)).unwrap();
                let wait = self.draw_wait();
                let receive = SessionCommand::Receive { count_max, bytes_max: u64::MAX, wait };
                self.both(id, main, ask(receive), |oracle, ticket| {
                    let call = Call {
                        ticket,
                        lane: Lane::Accept,
                        count_max: usize::try_from(count_max).unwrap(),
                        deadline: oracle.now.plus(wait),
                        holder: Some(receiver),
                        takes: false,
                    };
                    oracle.receive_in_session(id, call)
                });
            }
            5 => self.both(id, main, ask(SessionCommand::Renew), |oracle, _| {
                Some(oracle.renew_session(id, receiver))
            }),
            6 => self.both(id, main, ask(SessionCommand::GetState), |oracle, _| {
                Some(oracle.state(id, receiver))
            }),
            7 => {
                let state =
                    (!self.random.one_in(3)).then(|| u8::try_from(self.random.below(200)).unwrap());
                let bytes = state.map(|state| Bytes::copy_from_slice(&[state]));
                let set = SessionCommand::SetState { state: bytes };
                self.both(id, main, ask(set), |oracle, _| {
                    Some(oracle.set_state(id, receiver, state))
                });
            }
            _ => {
                let numbers = self.draw_deferred(id, main);
                if numbers.is_empty() {
                    return;
                }
                let sequences = numbers.iter().copied().map(SequenceNumber).collect();
                let receive = SessionCommand::ReceiveDeferred { sequences };
                self.both(id, main, ask(receive), |oracle, _| {
                    Some(oracle.receive_deferred_in(id, receiver, &numbers))
                });
            }
        }
    }

    fn change_rule(&mut self) {
        let id = self.random.between(6, 8);
        let name = *self.random.pick(&NAMES).unwrap();
        let new = self.draw_rule();
        let described = Box::new(rule(name, new));
        let (command, new, is_new) = match self.random.below(3) {
            0 => (RuleCommand::Create(described), Some(new), true),
            1 => (RuleCommand::Update(described), Some(new), false),
            _ => (RuleCommand::Delete(name.into()), None, false),
        };
        let subscription = Self::id(id);
        let command = Command::OfTopic(TopicCommand::InSubscription { subscription, command });
        self.both(TOPIC, SubQueue::Main, command, |oracle, _| {
            Some(oracle.set_rule(id, name, new, is_new))
        });
    }

    /// TXN-08, TXN-09, TXN-14: over a queue with its sub-queues, with sends to others through it,
    /// or over the topic and one of its subscriptions.
    fn commit(&mut self, id: u64) {
        let kind = self.oracle.entities[&id].nature.kind;
        let member = (kind == Kind::Topic).then(|| self.random.between(6, 8));
        let mut all: Vec<Undertaking> = Vec::new();
        let mut parts = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            let settles = kind == Kind::Subscription || self.random.one_in(2);
            if settles {
                let of = member.unwrap_or(id);
                let Some(Delivery { sub_queue, token, .. }) = self.draw_delivery(of) else {
                    continue;
                };
                let to = LockToken(token);
                let (piece, operation) = if self.random.one_in(8) {
                    (Piece::Renew(token), Operation::RenewLock { token: to })
                } else {
                    let (how, settlement) = self.draw_settlement();
                    if how == Settled::Release {
                        continue;
                    }
                    (Piece::Settle(token, how), Operation::Settle { token: to, settlement })
                };
                let member = member.map(Self::id);
                parts.push(Part { member, sub_queue, operation, numbers: Vec::new() });
                all.push(Undertaking { id: of, sub_queue, piece });
                continue;
            }
            let (bares, messages) = self.messages(id);
            let via = (kind == Kind::Queue && self.random.one_in(2)).then(|| self.draw_via(id));
            let (piece, operation) = match via {
                Some(to) => {
                    let destination = Arc::from(&*to);
                    (Piece::Via(to, bares), Operation::SendVia { destination, messages })
                }
                None => (Piece::Send(bares), Operation::SendBatch { messages }),
            };
            let sub_queue = SubQueue::Main;
            parts.push(Part { member: None, sub_queue, operation, numbers: Vec::new() });
            all.push(Undertaking { id, sub_queue, piece });
        }
        if parts.is_empty() {
            return;
        }
        self.seen.committed += 1;
        let takes_part = member.filter(|member| all.iter().any(|one| one.id == *member));
        let command = Command::Commit { parts };
        self.both_of(id, takes_part, SubQueue::Main, command, |oracle, _| {
            Some(oracle.commit(&all, takes_part))
        });
    }
}
