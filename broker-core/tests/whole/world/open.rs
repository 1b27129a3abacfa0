//! Creation of entities, and the opening of a tree from the store.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use peeklock_core::admission::Budget;
use peeklock_core::change::codec::read_rule;
use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::command::{Command, Outcome, TopicCommand};
use peeklock_core::description::{
    Jitter, QueueDescription, RetryPolicy, SessionRetryOrder, SubscriptionDescription,
    TopicDescription,
};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::machine::Machine;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::family::Family;
use peeklock_core::machine::queue::{ForwardingConfig, Queue, QueueConfig};
use peeklock_core::machine::topic::Topic;
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::rule::Rule as ProductRule;
use peeklock_core::shell::Shell;
use peeklock_core::shell::commit::Participant;
use peeklock_core::shell::tree::Tree;
use peeklock_core::store::{Batch, Shard, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Crash, Fate, FaultStore, Odds, Random, visit_records};

use super::{AnyShell, Grove, KEY, Member, SHARDS, Seen, TOPIC, World};
use crate::ground::{PLANNED, Shared, take, writers};
use crate::image::{Image, is_stored};
use crate::oracle::{Entity, Kind, Mutable, Nature, Oracle, Retry, WINDOW};
use crate::rules::{Rule, rule};

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let limits = Arc::new(Limits::of(Tier::Premium));
        let failures_into =
            if random.one_in(4) { SubQueue::DeadLetter } else { SubQueue::TransferDeadLetter };
        let expires_whole_sessions = !random.one_in(3);
        // One publish makes at most 15 copies here.
        let copy_count_max = if seed.is_multiple_of(2) { 16 } else { 10_000 };
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: expires_whole_sessions,
            duplicate_key: KEY,
            forwarding: ForwardingConfig {
                failures_into,
                copy_count_max,
                ..ForwardingConfig::default()
            },
        };
        let odds = match random.below(4) {
            0 => Odds::default(),
            1 => Odds { fail: 10, unknown: 30 },
            2 => Odds { fail: 0, unknown: 80 },
            _ => Odds { fail: 30, unknown: 30 },
        };
        let store = FaultStore::new(SHARDS, 1 << 40);
        if random.one_in(2) {
            store.separate_contents();
        }
        let unknown = Shared::default();
        let writers = writers(&store, SHARDS, &unknown);
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let seconds = if random.one_in(2) { 12 } else { 40 };
        let topic_time_to_live = TimeSpan::from_seconds(seconds);
        let mut world = Self {
            edge: Edge::new(Entropy::with_key(KEY), &limits, KEY),
            limits,
            config,
            store,
            odds,
            writers,
            unknown,
            done: Shared::default(),
            settled: Shared::default(),
            ended: Shared::default(),
            outlet: Arc::default(),
            groves: Vec::new(),
            errands: Vec::new(),
            fates: BTreeMap::new(),
            asked: BTreeMap::new(),
            oracle: Oracle {
                now,
                entities: BTreeMap::new(),
                replies: BTreeMap::new(),
                groups: BTreeMap::new(),
                expires_whole_sessions,
                failures_into,
                copy_count_max,
                next_name: 0,
                ticket: 0,
                token_holds: BTreeMap::new(),
                reached: BTreeMap::new(),
            },
            deliveries: Vec::new(),
            receivers: BTreeMap::new(),
            tokens: std::collections::BTreeSet::new(),
            topic_time_to_live,
            subscription_times: BTreeMap::new(),
            next_seat: 1,
            next_ticket: 1,
            next_marker: 1,
            next_receiver: 1,
            seen: Seen::default(),
            fuse: Rc::new(Cell::new(false)),
            random,
            traced,
            lines: Vec::new(),
        };
        world.found();
        world
    }

    /// Draws all entities and creates them.
    fn found(&mut self) {
        for id in 1..=8 {
            let kind = match id {
                TOPIC => Kind::Topic,
                1..TOPIC => Kind::Queue,
                _ => Kind::Subscription,
            };
            let path = match kind {
                Kind::Queue => format!("q{}", id - 1),
                Kind::Topic => "t".to_owned(),
                Kind::Subscription => format!("t/Subscriptions/s{}", id - 6),
            };
            let span = if self.random.one_in(3) {
                TimeSpan::from_seconds(15)
            } else {
                self.limits.time_to_live_max
            };
            self.subscription_times.insert(id, span);
            let time_to_live = match kind {
                Kind::Subscription => span.min(self.topic_time_to_live),
                Kind::Topic => self.topic_time_to_live,
                Kind::Queue => span,
            };
            let nature = Nature {
                kind,
                path,
                detects: id == 3 || (id == TOPIC && self.random.one_in(2)),
                requires_session: id == 2 || id == 7,
                delivery_count_max: u32::try_from(self.random.between(2, 4)).unwrap(),
                lock: TimeSpan::from_seconds(10),
                keeps_expired: self.random.one_in(2),
                time_to_live,
                dead_letters_errors: !self.random.one_in(3),
            };
            let now = self.draw_mutable(id, kind);
            let mut rules = BTreeMap::new();
            if kind == Kind::Subscription {
                for name in ["alpha", "beta", "gamma"].iter().take(self.random.index(4)) {
                    rules.insert((*name).to_owned(), self.draw_rule());
                }
                if rules.is_empty() {
                    let all = Rule { select: crate::rules::Select::All, act: None };
                    rules.insert("$default".to_owned(), all);
                }
            }
            self.note(|| format!("{id}: {nature:?} {now:?} {rules:?}"));
            self.oracle.entities.insert(id, Entity::new(nature, now, rules));
        }
        for root in 1..=TOPIC {
            let members = if root == TOPIC { vec![TOPIC, 6, 7, 8] } else { vec![root] };
            self.create(root, &members);
        }
    }

    fn create(&mut self, root: u64, members: &[u64]) {
        let mut batch = Batch::default();
        let now = self.oracle.now;
        if root == TOPIC {
            let topic = Topic::new(Self::id(root), self.topic_description(), self.config, now);
            topic.write_creation(&mut batch);
        } else {
            let description = self.queue_description(root);
            let queue = Queue::new(Self::id(root), description, self.config, now);
            queue.write_creation(&mut batch);
        }
        batch.require_sync();
        self.writer_of(root).submit(batch, Box::new(|result| result.unwrap()));
        let shard = Shard(u16::try_from(root % u64::from(SHARDS)).unwrap());
        while self.store.complete_next(shard, Fate::Store) {}
        let grove = self.open(root, &members[..1]);
        self.groves.push(grove);
        if root != TOPIC {
            return;
        }
        for id in &members[1..] {
            let description = Box::new(self.subscription_description(*id));
            let rules = &self.oracle.entities[id].rules;
            let rules = rules.iter().map(|(name, one)| rule(name, *one)).collect();
            let id = Self::id(*id);
            let command =
                Command::OfTopic(TopicCommand::CreateSubscription { id, description, rules });
            let ticket = self.send_raw(TOPIC, SubQueue::Main, command);
            self.store_everything();
            let heard = self.outlet.take();
            let is_done = heard.iter().any(|one| {
                matches!(one, peeklock_core::request::Released::Answer {
                    correlation, result: Ok(Outcome::Done)
                } if *correlation == ticket)
            });
            assert!(is_done, "the subscription is created");
        }
        self.groves.pop();
        let grove = self.open(root, members);
        self.groves.push(grove);
    }

    /// Makes everything of the newest tree durable without the oracle.
    fn store_everything(&mut self) {
        let place = self.groves.len() - 1;
        self.groves[place].tree.borrow_mut().flush();
        self.submit_tree(place);
        for shard in 0..SHARDS {
            while self.store.complete_next(Shard(shard), Fate::Store) {}
        }
        for (_, stage, result) in take(&self.done) {
            result.unwrap();
            let mut held = self.groves[place].tree.borrow_mut().complete(stage);
            peeklock_core::request::release_all(&mut held);
        }
    }

    pub(super) fn queue_description(&self, id: u64) -> QueueDescription {
        let Entity { nature, now, .. } = &self.oracle.entities[&id];
        QueueDescription {
            lock_duration: nature.lock,
            requires_duplicate_detection: nature.detects,
            duplicate_detection_history_time_window: WINDOW,
            requires_session: nature.requires_session,
            default_message_time_to_live: nature.time_to_live,
            dead_lettering_on_message_expiration: nature.keeps_expired,
            max_delivery_count: nature.delivery_count_max,
            status: now.status,
            forward_to: now.forward_to.as_deref().map(Box::from),
            forward_dead_lettered_messages_to: now.forward_dead.as_deref().map(Box::from),
            retry_policy: now.retry.map(policy),
            session_retry_order: order(now.passes),
            ..QueueDescription::new(&*nature.path, &self.limits)
        }
    }

    pub(super) fn topic_description(&self) -> TopicDescription {
        let Entity { nature, now, .. } = &self.oracle.entities[&TOPIC];
        TopicDescription {
            requires_duplicate_detection: nature.detects,
            duplicate_detection_history_time_window: WINDOW,
            default_message_time_to_live: self.topic_time_to_live,
            status: now.status,
            ..TopicDescription::new(&*nature.path, &self.limits)
        }
    }

    pub(super) fn subscription_description(&self, id: u64) -> SubscriptionDescription {
        let Entity { nature, now, .. } = &self.oracle.entities[&id];
        SubscriptionDescription {
            lock_duration: nature.lock,
            requires_session: nature.requires_session,
            default_message_time_to_live: self.subscription_times[&id],
            dead_lettering_on_message_expiration: nature.keeps_expired,
            enable_dead_lettering_on_filter_evaluation_exceptions: nature.dead_letters_errors,
            max_delivery_count: nature.delivery_count_max,
            status: now.status,
            forward_to: now.forward_to.as_deref().map(Box::from),
            forward_dead_lettered_messages_to: now.forward_dead.as_deref().map(Box::from),
            catch_all: now.catch_all,
            retry_policy: now.retry.map(policy),
            session_retry_order: order(now.passes),
            ..SubscriptionDescription::new("t", format!("s{}", id - 6), &self.limits)
        }
    }

    /// Opens a tree from the store, like the namespace.
    fn open(&mut self, root: u64, members: &[u64]) -> Grove {
        let now = self.oracle.now;
        let seat = self.next_seat;
        self.next_seat += 1;
        let writer = self.writer_of(root);
        if root != TOPIC {
            let mut queue =
                Queue::new(Self::id(root), self.queue_description(root), self.config, now);
            self.restore(root, &mut queue, |_, _| false);
            queue.restored(now);
            let description = queue.description();
            let found = Mutable {
                status: description.status,
                forward_to: description.forward_to.as_deref().map(str::to_owned),
                forward_dead: description
                    .forward_dead_lettered_messages_to
                    .as_deref()
                    .map(str::to_owned),
                catch_all: false,
                retry: description.retry_policy.map(Retry::of),
                passes: description.session_retry_order == SessionRetryOrder::Pass,
            };
            self.find_description(root, found);
            let tree = Rc::new(RefCell::new(Tree::new(writer, queue.size_bytes())));
            let machine = AnyMachine::Queue(Box::new(queue));
            let member = self.member(root, machine, &tree);
            return Grove { seat, tree, members: vec![member], ending: None, settled: 0 };
        }
        let mut topic = Topic::new(Self::id(root), self.topic_description(), self.config, now);
        self.restore(root, &mut topic, |_, _| false);
        topic.restored(now);
        let status = topic.description().status;
        self.find_description(
            root,
            Mutable {
                status,
                forward_to: None,
                forward_dead: None,
                catch_all: false,
                retry: None,
                passes: false,
            },
        );
        let mut family = Family::new(Arc::clone(topic.description()));
        let mut stored_bytes = topic.size_bytes();
        let mut queues = Vec::new();
        for id in &members[1..] {
            let description = self.subscription_description(*id);
            let described = Arc::clone(topic.description());
            let mut queue =
                Queue::subscription(Self::id(*id), description, described, self.config, now);
            let mut rules = Vec::new();
            self.restore(*id, &mut queue, |key, value| {
                let is_rule = matches!(codec::read_key(key), Ok(RecordKey::Rule));
                if is_rule {
                    rules.push(ProductRule::restore(read_rule(value).unwrap()).unwrap());
                }
                is_rule
            });
            queue.restored(now);
            let description = queue.subscription_description().unwrap();
            let found = Mutable {
                status: description.status,
                forward_to: description.forward_to.as_deref().map(str::to_owned),
                forward_dead: description
                    .forward_dead_lettered_messages_to
                    .as_deref()
                    .map(str::to_owned),
                catch_all: description.catch_all,
                retry: description.retry_policy.map(Retry::of),
                passes: description.session_retry_order == SessionRetryOrder::Pass,
            };
            topic.adopt(Self::id(*id), description, queue.last_sequence(), rules.clone());
            self.find_description(*id, found);
            self.find_rules(*id, &rules);
            family.add_subscription(Self::id(*id));
            queue.report_to_family(&mut family);
            stored_bytes += queue.size_bytes();
            queues.push((*id, queue));
        }
        let tree = Rc::new(RefCell::new(Tree::of_family(writer, stored_bytes, family)));
        let mut grown = vec![self.member(root, AnyMachine::Topic(Box::new(topic)), &tree)];
        for (id, queue) in queues {
            grown.push(self.member(id, AnyMachine::Queue(Box::new(queue)), &tree));
        }
        Grove { seat, tree, members: grown, ending: None, settled: 0 }
    }

    fn restore(
        &self,
        id: u64,
        machine: &mut impl Machine,
        mut other: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        let mut visit = |key: &[u8], value: &[u8]| {
            if !other(key, value) {
                machine.restore(key, value).unwrap();
            }
        };
        visit_records(&*self.store, &codec::space_key(Self::id(id)), &mut visit).unwrap();
    }

    /// The stored description is a given one, not older than the last acknowledged one.
    fn find_description(&mut self, id: u64, found: Mutable) {
        let counted = Image::read(&self.store, id).counted;
        let entity = self.oracle.entities.get_mut(&id).unwrap();
        let is_known = found == entity.durable
            || found == entity.now
            || entity.updates.values().any(|one| *one == found);
        assert!(is_known, "{id} is described as {found:?} (ENT-17)");
        entity.durable = found.clone();
        entity.now = found;
        entity.updates.clear();
        entity.proving = None;
        entity.proved = counted;
    }

    fn find_rules(&mut self, id: u64, rules: &[ProductRule]) {
        let is_it = |candidate: &BTreeMap<String, Rule>| {
            candidate.len() == rules.len()
                && rules.iter().all(|found| {
                    let found = found.description();
                    candidate.get(&found.name.to_ascii_lowercase()).is_some_and(|one| {
                        let wanted = rule(&found.name, *one);
                        wanted.filter == found.filter && wanted.action == found.action
                    })
                })
        };
        let entity = self.oracle.entities.get_mut(&id).unwrap();
        let found = entity.durable_rules.iter().rev().find(|one| is_it(one)).cloned();
        let found = found.expect("the rules that are stored were in force once (TOP-24)");
        entity.rules.clone_from(&found);
        entity.durable_rules = vec![found];
    }

    fn member(&mut self, id: u64, machine: AnyMachine, tree: &Rc<RefCell<Tree>>) -> Member {
        let mut tokens = Random::new(self.random.bits());
        let fuse = Rc::clone(&self.fuse);
        let shell = Shell::new(
            machine,
            Rc::clone(tree),
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&self.limits),
            Box::new(move || {
                if fuse.replace(false) {
                    std::panic::panic_any(PLANNED);
                }
                tokens.bits()
            }),
            Budget::new(64 << 20),
            Box::new(|| Box::new(|| {})),
        );
        tree.borrow_mut().join_family(Self::id(id), shell.number());
        let shell: AnyShell = Rc::new(RefCell::new(shell));
        let participant: Weak<RefCell<dyn Participant>> =
            Rc::downgrade(&(Rc::clone(&shell) as Rc<RefCell<dyn Participant>>));
        tree.borrow_mut().register_participant(Self::id(id), participant);
        Member {
            id,
            path: self.oracle.entities[&id].nature.path.clone(),
            shell: Some(shell),
            claims: Arc::default(),
            mail: std::collections::VecDeque::new(),
        }
    }

    pub(super) fn images(&self, ids: &[u64]) -> BTreeMap<u64, Image> {
        ids.iter().map(|id| (*id, Image::read(&self.store, *id))).collect()
    }

    pub(super) fn look(&mut self, ids: &[u64]) {
        self.seen.looked += 1;
        let images = self.images(ids);
        let store = Arc::clone(&self.store);
        self.oracle.look(&images, &|id, sequence| is_stored(&store, id, sequence));
    }

    /// Opens an ended tree again, like the namespace.
    pub(super) fn reopen(&mut self, place: usize) {
        let ids: Vec<u64> = self.groves[place].members.iter().map(|member| member.id).collect();
        self.look(&ids);
        self.forget(&ids);
        self.groves[place] = self.open(ids[0], &ids);
        self.note(|| format!("{} is open again", ids[0]));
        for id in ids {
            self.wake(id);
        }
    }

    fn forget(&mut self, ids: &[u64]) {
        let images = self.images(ids);
        let edge = &self.edge;
        let hash = |id: &str| {
            let message = Message::new("0").with_message_id(id);
            edge.take(message).envelope.message_id_hash.unwrap()
        };
        self.oracle.reopen(&images, &hash);
    }

    /// Crashes the process; another finds the stored records.
    pub(super) fn crash(&mut self) {
        self.seen.crashed += 1;
        self.note(|| "crash".to_owned());
        let mut random = self.random.clone();
        let how = if random.one_in(2) { Crash::KeepsSome(&mut random) } else { Crash::Loses };
        let store = self.store.crash(how);
        self.random = random;
        for grove in &mut self.groves {
            for member in &mut grove.members {
                member.shell = None;
                member.mail.clear();
            }
        }
        self.errands.clear();
        take(&self.done);
        take(&self.settled);
        take(&self.ended);
        take(&self.unknown);
        self.store = store;
        self.writers = writers(&self.store, SHARDS, &self.unknown);
        self.asked.clear();
        self.fates.clear();
        self.oracle.replies.clear();
        self.outlet = Arc::default();
        let all: Vec<Vec<u64>> = self
            .groves
            .iter()
            .map(|grove| grove.members.iter().map(|member| member.id).collect())
            .collect();
        for ids in &all {
            self.look(ids);
        }
        for ids in &all {
            self.forget(ids);
        }
        self.oracle.check_nothing_vanished();
        for (place, ids) in all.iter().enumerate() {
            self.groves[place] = self.open(ids[0], ids);
        }
        take(&self.ended);
        for id in all.into_iter().flatten() {
            self.wake(id);
        }
    }

    /// A command that the oracle does not know of.
    fn send_raw(&mut self, id: u64, sub_queue: SubQueue, command: Command) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let request = self.request(ticket, sub_queue, command);
        let (grove, member) = self.place_of(id);
        let shell = Rc::clone(self.groves[grove].members[member].shell.as_ref().unwrap());
        let mut out = Vec::new();
        shell.borrow_mut().run([request], self.oracle.now, &mut out).unwrap();
        peeklock_core::request::release_all(&mut out);
        ticket
    }
}

fn policy(retry: Retry) -> RetryPolicy {
    RetryPolicy {
        kind: retry.kind,
        delay: TimeSpan::from_ms(retry.delay),
        delay_max: retry.most.map(TimeSpan::from_ms),
        jitter: Jitter::NONE,
    }
}

const fn order(passes: bool) -> SessionRetryOrder {
    if passes { SessionRetryOrder::Pass } else { SessionRetryOrder::Hold }
}
