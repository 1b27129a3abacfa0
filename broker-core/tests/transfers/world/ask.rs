//! Commands to entities.

use std::sync::Arc;

use peeklock_core::command::{Command, LinkEnd, ReceiveMode};
use peeklock_core::ids::Ticket;
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Reply, Request};
use peeklock_core::time::TimeSpan;

use super::{CommandKind, FAN, PLACES, QUEUES, TOPIC, World, path};
use crate::fan::in_its_lane;

impl World {
    pub(super) fn ask(&mut self) {
        let place = match self.random.one_in(4) {
            true => QUEUES + self.random.index(PLACES - QUEUES),
            false => self.random.index(QUEUES),
        };
        if self.entities[place].closed {
            return;
        }
        if place == TOPIC || place == FAN {
            self.ask_topic(place);
            return;
        }
        // Subscriptions accept no sends.
        let first = if place > FAN { 12 } else { 0 };
        let (sub_queue, command, asked) = match self.random.between(first, 19) {
            0..=9 => {
                let message = self.message();
                let marker = self.next_marker - 1;
                self.seen.sent += 1;
                (SubQueue::Main, Command::Send { message }, CommandKind::Send(vec![marker]))
            }
            10 | 11 => {
                let other = (place + 1 + self.random.index(QUEUES - 1)) % QUEUES;
                let messages = vec![self.message(), self.message()];
                let markers = vec![self.next_marker - 2, self.next_marker - 1];
                self.seen.via += 1;
                let destination = Arc::from(format!("q{other}"));
                (
                    SubQueue::Main,
                    Command::SendVia { destination, messages },
                    CommandKind::Send(markers),
                )
            }
            12..=16 => {
                // Under lock, so that a removal is known before the message is gone.
                let first = usize::from(!self.locks);
                let sub_queue = SubQueue::ALL[first + self.random.index(3 - first)];
                let command = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 3,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                (sub_queue, command, CommandKind::Receive)
            }
            17 => (SubQueue::Main, self.draw_update(place), CommandKind::Other),
            18 => {
                let sub_queue = SubQueue::ALL[self.random.index(3)];
                let peek = Command::Peek { from: Default::default(), count_max: 1_000 };
                (sub_queue, peek, CommandKind::Other)
            }
            _ => {
                let receiver = peeklock_core::ids::ReceiverId(1);
                let end = LinkEnd::Broken;
                (SubQueue::Main, Command::Detach { receiver, end }, CommandKind::Other)
            }
        };
        self.submit(place, sub_queue, command, asked);
    }

    /// Commands to a topic: sends through it, and operations in its transfer dead-letter queue; for
    /// the topic with subscriptions mostly publishes and changes of rules.
    fn ask_topic(&mut self, place: usize) {
        let rest = SubQueue::TransferDeadLetter;
        let (sub_queue, command, asked) = match self.random.below(20) {
            0..=6 if place == FAN => {
                let message = self.message();
                let marker = self.next_marker - 1;
                self.seen.published += 1;
                (SubQueue::Main, Command::Send { message }, CommandKind::Send(vec![marker]))
            }
            10..=13 if place == FAN => (SubQueue::Main, self.change_lane(), CommandKind::Other),
            0..=9 => {
                let (via, markers) = self.send_via();
                (SubQueue::Main, via, CommandKind::Send(markers))
            }
            10..=15 => {
                let command = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 3,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                (rest, command, CommandKind::Receive)
            }
            16..=17 => (SubQueue::Main, self.draw_update(place), CommandKind::Other),
            18 => {
                let peek = Command::Peek { from: Default::default(), count_max: 1_000 };
                (rest, peek, CommandKind::Other)
            }
            _ => {
                let receiver = peeklock_core::ids::ReceiverId(1);
                (rest, Command::Detach { receiver, end: LinkEnd::Broken }, CommandKind::Other)
            }
        };
        self.submit(place, sub_queue, command, asked);
    }

    /// Two messages through a topic to a queue or to the topic with subscriptions, and their
    /// markers.
    pub(super) fn send_via(&mut self) -> (Command, Vec<u64>) {
        let to = self.random.index(QUEUES + 1);
        let destination = Arc::from(path(if to == QUEUES { FAN } else { to }));
        let messages = vec![self.message(), self.message()];
        self.seen.via_topic += 1;
        let markers = vec![self.next_marker - 2, self.next_marker - 1];
        (Command::SendVia { destination, messages }, markers)
    }

    pub(super) fn message(&mut self) -> peeklock_core::command::InboundMessage {
        let marker = self.next_marker;
        self.next_marker += 1;
        let filling = match self.random.below(8) {
            0 => 100_000,
            1 => 5_000,
            _ => 0,
        };
        let message = Message::new(format!("{marker}{}", "x".repeat(filling)));
        let message = in_its_lane(message, marker);
        // In a chain nothing may disappear, although a queue may detect duplicates.
        let repeats = self.judge.may_absorb && self.random.one_in(4);
        let id = if repeats { marker / 4 } else { marker };
        if marker % 4 == 3 {
            self.judge.without_id.insert(marker);
            return self.edge.take(message);
        }
        self.edge.take(message.with_message_id(format!("id{id}")))
    }

    pub(super) fn submit(
        &mut self,
        place: usize,
        sub_queue: SubQueue,
        command: Command,
        asked: CommandKind,
    ) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.note(|| match &asked {
            CommandKind::Send(markers) => format!("{} {} sends {markers:?}", path(place), ticket.0),
            CommandKind::Receive | CommandKind::Other => {
                format!("{} {} {sub_queue:?} {command:?}", path(place), ticket.0)
            }
        });
        let path = self.entities[place].path.clone();
        self.asked.insert(ticket.0, (asked, path));
        let reply = Reply::new(Arc::clone(&self.outlet) as Arc<dyn Outlet>, ticket.0, None);
        self.entities[place].inlet.push_back(Request { ticket, sub_queue, command, reply });
    }
}
