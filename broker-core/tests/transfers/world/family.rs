//! The topic with subscriptions: its creation, its opening in one tree, and its rules.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::change::codec::{self, RecordKey, read_rule};
use peeklock_core::command::{Command, RuleCommand, TopicCommand};
use peeklock_core::description::EntityStatus;
use peeklock_core::ids::EntityId;
use peeklock_core::machine::Machine;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::family::{Family, MemberNumber};
use peeklock_core::machine::queue::Queue;
use peeklock_core::machine::topic::Topic;
use peeklock_core::path::SubQueue;
use peeklock_core::request::Request;
use peeklock_core::rule::Rule;
use peeklock_core::shell::tree::Tree;
use peeklock_store_testing::{Fate, visit_records};

use super::{CommandKind, Description, FAN, PLACES, World, check, grove_of};
use crate::fan::{CATCH_ALL, RULE, rule};
use crate::ground::marker;

impl World {
    /// Creates the topic and its subscriptions in a working store.
    pub(super) fn found_family(&mut self) {
        let odds = std::mem::take(&mut self.odds);
        let topic = self.create(FAN);
        self.entities.push(topic);
        for place in FAN + 1..PLACES {
            let (id, description) = (EntityId(self.next_id), self.draw(place));
            self.next_id += 1;
            let number = place - FAN - 1;
            self.judge.fan.ids[number] = id.0;
            let Description::Subscription(described) = description.clone() else { continue };
            // Without a given rule it has the rule that selects everything.
            let rules = (number != CATCH_ALL).then(|| rule(number)).into_iter().collect();
            let create =
                TopicCommand::CreateSubscription { id, description: Box::new(described), rules };
            self.submit(FAN, SubQueue::Main, Command::OfTopic(create), CommandKind::Other);
            let tree = Rc::clone(&self.entities[FAN].tree);
            self.entities.push(super::Entity::resting(id, place, description, tree));
        }
        self.run_inlet(FAN);
        self.store_all_of(FAN);
        self.reopen(FAN);
        self.odds = odds;
    }

    /// Stores the staged changes of a tree.
    fn store_all_of(&mut self, root: usize) {
        self.entities[root].tree.borrow_mut().flush();
        self.entities[root].dirty = true;
        self.submit_tree(root);
        let shard = Self::shard_of(self.entities[root].id);
        while self.complete(shard, Fate::Store) {}
        self.take_completions();
    }

    /// Opens the topic and its subscriptions from the store, like the namespace.
    pub(super) fn open_family(&mut self) {
        let root = self.entities[FAN].id;
        let Description::Topic(described) = self.entities[FAN].description.clone() else { return };
        let mut topic = Topic::new(root, described, self.config, self.now);
        self.restore(root, &mut topic, |_, _| false);
        topic.restored(self.now);
        let described = Arc::clone(topic.description());
        let mut family = Family::new(Arc::clone(&described));
        let mut bytes = topic.size_bytes();
        let mut queues = Vec::new();
        for place in FAN + 1..PLACES {
            let id = self.entities[place].id;
            let Description::Subscription(subscription) = self.entities[place].description.clone()
            else {
                continue;
            };
            let topic_described = Arc::clone(&described);
            let mut queue =
                Queue::subscription(id, subscription, topic_described, self.config, self.now);
            let mut rules = Vec::new();
            self.restore(id, &mut queue, |key, value| {
                let is_rule = matches!(codec::read_key(key), Ok(RecordKey::Rule));
                if is_rule {
                    rules.push(Rule::restore(read_rule(value).unwrap()).unwrap());
                }
                is_rule
            });
            queue.restored(self.now);
            if let Some(has_rule) = self.judge.fan.has_rule.get_mut(place - FAN - 1) {
                *has_rule = !rules.is_empty();
            }
            let description = queue.subscription_description().unwrap();
            topic.adopt(id, description, queue.last_sequence(), rules);
            family.add_subscription(id);
            queue.report_to_family(&mut family);
            bytes += queue.size_bytes();
            queues.push(AnyMachine::Queue(Box::new(queue)));
        }
        let tree = Tree::of_family(self.writer_of(root), bytes, family);
        let tree = Rc::new(RefCell::new(tree));
        let machines = std::iter::once(AnyMachine::Topic(Box::new(topic))).chain(queues);
        for (place, machine) in grove_of(FAN).zip(machines) {
            check(&machine);
            let description = Description::of(&machine);
            let (seat, shell) = self.drive(machine, &tree);
            tree.borrow_mut().join_family(self.entities[place].id, shell.number());
            let entity = &mut self.entities[place];
            entity.open(seat, Rc::clone(&tree), shell, description);
        }
    }

    fn restore(
        &self,
        id: EntityId,
        machine: &mut impl Machine,
        mut other: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        let mut visit = |key: &[u8], value: &[u8]| {
            if !other(key, value) {
                machine.restore(key, value).expect("every record can be read");
            }
        };
        visit_records(&*self.store, &codec::space_key(id), &mut visit).unwrap();
    }

    /// The member with this number in the tree of an entity.
    pub(super) fn numbered(&self, place: usize, number: MemberNumber) -> Option<usize> {
        grove_of(place).find(|place| {
            let shell = self.entities[*place].shell.as_ref();
            shell.is_some_and(|shell| shell.number() == number)
        })
    }

    /// Creates or deletes the rule of a lane.
    pub(super) fn change_lane(&mut self) -> Command {
        let lane = self.random.index(CATCH_ALL);
        let creates = self.random.one_in(2);
        self.lane_to(lane, creates)
    }

    fn lane_to(&self, lane: usize, creates: bool) -> Command {
        let subscription = self.entities[FAN + 1 + lane].id;
        let command = match creates {
            true => RuleCommand::Create(Box::new(rule(lane))),
            false => RuleCommand::Delete(RULE.into()),
        };
        Command::OfTopic(TopicCommand::InSubscription { subscription, command })
    }

    /// Makes the topic and its subscriptions accept and keep everything, each lane with its rule.
    pub(super) fn open_all_lanes(&mut self) {
        for place in grove_of(FAN) {
            let before = self.entities[place].description.clone();
            let mut plain = before.clone();
            match &mut plain {
                Description::Subscription(one) => {
                    one.forward_to = None;
                    one.forward_dead_lettered_messages_to = None;
                    one.status = EntityStatus::Active;
                }
                Description::Topic(topic) => topic.status = EntityStatus::Active,
                Description::Queue(_) => {}
            }
            let (description, update) = plain.update(&before);
            self.entities[place].description = description;
            self.submit(place, SubQueue::Main, update, CommandKind::Other);
        }
        for lane in 0..CATCH_ALL {
            let create = self.lane_to(lane, true);
            self.submit(FAN, SubQueue::Main, create, CommandKind::Other);
        }
    }

    /// Predicts the effect of these requests, which the topic carries out in order.
    pub(super) fn foresee(&mut self, requests: &[Request]) {
        let fan = &mut self.judge.fan;
        for request in requests {
            match &request.command {
                Command::Send { message } => {
                    fan.publish(marker(message.content.as_bytes().clone()));
                }
                Command::TransferIn { messages, .. } => {
                    for arrival in messages {
                        fan.publish(marker(arrival.message.content.as_bytes().clone()));
                    }
                }
                Command::OfTopic(TopicCommand::InSubscription { subscription, command }) => {
                    let lane = fan.ids.iter().position(|id| *id == subscription.0);
                    let has_rule = lane.and_then(|lane| fan.has_rule.get_mut(lane)).unwrap();
                    *has_rule = matches!(command, RuleCommand::Create(_));
                }
                _ => {}
            }
        }
    }
}
