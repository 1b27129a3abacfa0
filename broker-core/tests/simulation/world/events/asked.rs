//! Commands of clients to the topic and its subscriptions.

use peeklock_core::command::{Command, ReceiveMode, RuleCommand, Settlement, TopicCommand};
use peeklock_core::message::{Message, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::Room;

use super::{Due, Events, Locked, SUBSCRIPTIONS, World};
use crate::fan::Caught;
use crate::rules::{Act, Matter, Rule, Select, rule};

/// Names of rules.
const NAMES: [&str; 3] = ["$default", "alpha", "beta"];

impl World {
    pub(super) fn ask_events(&mut self, events: &mut Events) {
        if events.shells.is_empty() {
            return;
        }
        match self.random.below(20) {
            0..=9 => self.publish(events),
            10 | 11 => self.change_rule(events),
            12 | 13 => self.mark(events),
            14..=16 => self.receive(events),
            _ => self.settle(events),
        }
    }

    fn publish(&mut self, events: &mut Events) {
        // A send that waits for room is judged by the rules at that time.
        if self.room != Room::Open {
            return;
        }
        let count = if self.random.one_in(3) { self.random.between(2, 4) } else { 1 };
        let (mut messages, mut sent) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let marker = events.next_marker;
            events.next_marker += 1;
            let matter = Matter {
                number: i32::try_from(self.random.below(5)).unwrap_or(0),
                subject: self.random.below(4),
                session: None,
            };
            let message = Message {
                subject: Some(matter.subject.to_string()),
                ..Message::new(marker.to_string())
            }
            .with_application_property("number", Value::I32(matter.number));
            messages.push(events.edge.take(message));
            sent.push((marker, matter));
        }
        let command = match messages.len() {
            1 => Command::Send { message: messages.remove(0) },
            _ => Command::SendBatch { messages },
        };
        let mut caught = Vec::new();
        self.carry_out(events, (0, SubQueue::Main), command, Due::Done, |fan| {
            caught = sent.into_iter().map(|(marker, matter)| fan.publish(marker, matter)).collect();
        });
        for one in caught {
            match one {
                Caught::Yes => self.seen.caught += 1,
                Caught::Elsewhere => self.seen.not_caught += 1,
                Caught::Nobody | Caught::Ordinary => {}
            }
        }
    }

    pub(super) fn draw_rule(&mut self) -> Rule {
        let select = match self.random.below(8) {
            0 => Select::All,
            1 => Select::None,
            2 | 3 => Select::Greater(i32::try_from(self.random.below(5)).unwrap_or(0)),
            4 => Select::Divides,
            _ => Select::Subject(self.random.below(4)),
        };
        let act = match self.random.below(6) {
            0 => Some(Act::Mark(self.random.below(9))),
            1 => Some(Act::Divide),
            // These messages have no session.
            2 => Some(Act::RemoveSession),
            _ => None,
        };
        Rule { select, act }
    }

    fn change_rule(&mut self, events: &mut Events) {
        let number = self.random.index(SUBSCRIPTIONS);
        let name = NAMES[self.random.index(NAMES.len())];
        let known = &events.last().subscriptions[number].rules;
        let (is_there, is_last) = (known.contains_key(name), known.len() == 1);
        let new = self.draw_rule();
        let described = Box::new(rule(name, new));
        // Usually there is one.
        let deletes = is_there && self.random.one_in(if is_last { 6 } else { 2 });
        let command = match (is_there, deletes) {
            (_, true) => RuleCommand::Delete(name.into()),
            (true, false) => RuleCommand::Update(described),
            (false, false) => RuleCommand::Create(described),
        };
        let subscription = events.ids[number + 1];
        let command = Command::OfTopic(TopicCommand::InSubscription { subscription, command });
        self.carry_out(events, (0, SubQueue::Main), command, Due::Done, |fan| {
            let rules = &mut fan.subscriptions[number].rules;
            match deletes {
                true => drop(rules.remove(name)),
                false => drop(rules.insert(name.to_owned(), new)),
            }
        });
    }

    /// Makes a subscription a catch-all, or an ordinary one again (TOP-25).
    fn mark(&mut self, events: &mut Events) {
        let number = self.random.index(SUBSCRIPTIONS);
        let catch_all = number > 0 && self.random.one_in(2);
        let is_new = events.last().subscriptions[number].catch_all != catch_all;
        self.seen.marked += u64::from(is_new);
        let description = Box::new(self.subscription_description(number, catch_all));
        let command = Command::UpdateSubscription { description, read_at: None };
        self.carry_out(events, (number + 1, SubQueue::Main), command, Due::Done, |fan| {
            fan.subscriptions[number].catch_all = catch_all;
        });
    }

    fn receive(&mut self, events: &mut Events) {
        let subscription = self.random.index(SUBSCRIPTIONS);
        let sub_queue = if self.random.one_in(4) { SubQueue::DeadLetter } else { SubQueue::Main };
        let command = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: u32::try_from(self.random.between(1, 6)).unwrap_or(1),
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let due = Due::Deliveries(subscription);
        self.carry_out(events, (subscription + 1, sub_queue), command, due, |_| {});
    }

    fn settle(&mut self, events: &mut Events) {
        if events.locked.is_empty() {
            return;
        }
        let place = self.random.index(events.locked.len());
        let Locked { subscription, sub_queue, token, until } = events.locked.swap_remove(place);
        let command = Command::Settle { token, settlement: Settlement::Complete };
        let is_held = until > self.now;
        let due = if is_held { Due::Done } else { Due::LockLost };
        self.carry_out(events, (subscription + 1, sub_queue), command, due, |fan| {
            if is_held {
                fan.subscriptions[subscription].copies.remove(&token.sequence().0);
            }
        });
    }
}
