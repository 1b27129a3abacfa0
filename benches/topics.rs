//! Benchmark of a publish compared with a send to a plain queue: shells with the memory store, on
//! one thread without actors. 64 messages are encoded in advance and sent repeatedly.
//!
//! `cargo bench --bench topics`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]
#![expect(clippy::print_stdout, reason = "the printed output is the result of a benchmark")]

mod measure;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use peeklock_core::admission::Budget;
use peeklock_core::command::{Command, InboundMessage, Outcome, TopicCommand};
use peeklock_core::description::{
    QueueDescription, Settings, SubscriptionDescription, TopicDescription,
};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::ids::{EntityId, Ticket};
use peeklock_core::machine::family::Family;
use peeklock_core::machine::queue::{ForwardingConfig, Queue, QueueConfig};
use peeklock_core::machine::topic::Topic;
use peeklock_core::machine::{Machine, StageNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::store::{MemoryStore, Shard, Store};
use peeklock_core::time::Timestamp;

const LIST: usize = 64;
const LISTS: usize = 500;

fn config() -> QueueConfig {
    QueueConfig {
        release_on_detach: false,
        release_on_connection_loss: false,
        expire_whole_sessions: true,
        duplicate_key: [3; 16],
        forwarding: ForwardingConfig::default(),
    }
}

/// Counts accepted messages. Rejected ones are cheaper, so they would distort the figure.
#[derive(Default)]
struct Accepted(AtomicUsize);

impl Outlet for Accepted {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            let Released::Answer { result, .. } = item else { continue };
            if let Outcome::Accepted(_) = result.unwrap_or_else(|error| panic!("{error}")) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A tree with its root, and with its subscriptions if any.
struct World<M> {
    tree: Rc<RefCell<Tree>>,
    root: Shell<M>,
    subscriptions: Vec<Shell<Queue>>,
    done: Arc<Mutex<Vec<StageNumber>>>,
    outlet: Arc<Accepted>,
    now: Timestamp,
}

fn main() {
    let settings = Settings::default();
    let edge = Edge::new(Entropy::with_key([1; 16]), &settings.limits, [2; 16]);
    let messages: Vec<InboundMessage> = (0..LIST)
        .map(|number| {
            let message = Message::new(vec![0; 1_024]).with_subject(format!("s{}", number * 7));
            edge.take(message)
        })
        .collect();
    let queue = measure::rate("plain queue: sends of 1 KiB, lists of 64", LIST * LISTS, || {
        let description = QueueDescription::new("orders", &settings.limits);
        let queue = Queue::new(EntityId(1), description, config(), now());
        send_all(World::new(queue, None, &settings), &messages);
    });
    for (count, filters) in [(1, Filters::All), (10, Filters::All), (1_000, Filters::Distinct)] {
        let title = match filters {
            Filters::All => format!("topic: {count} subscriptions that get everything"),
            Filters::Distinct => {
                format!("topic: {count} subscriptions, distinct correlation filters")
            }
        };
        // Created in advance, so that only publishing is measured.
        let mut worlds: Vec<_> =
            (0..measure::RUNS).map(|_| of_topic(count, filters, &settings)).collect();
        let topic = measure::rate(&title, LIST * LISTS, || {
            if let Some(world) = worlds.pop() {
                send_all(world, &messages);
            }
        });
        println!("{:<60} {:>11.0} %", "  of the rate of a plain queue", 100.0 * topic / queue);
    }
}

#[derive(Clone, Copy)]
enum Filters {
    All,
    Distinct,
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000)
}

impl<M: Machine> World<M> {
    fn new(machine: M, family: Option<Family>, settings: &Settings) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(16, u64::MAX));
        let acquiring = ShardWriter::acquire(Arc::clone(&store), Shard(0), Box::new(|_| {}));
        let writer = measure::block_on(acquiring).unwrap_or_else(|error| panic!("{error}"));
        let tree = match family {
            Some(family) => Tree::of_family(writer, 0, family),
            None => Tree::new(writer, 0),
        };
        let tree = Rc::new(RefCell::new(tree));
        let root = shell(machine, &tree, &store, settings);
        Self {
            tree,
            root,
            subscriptions: Vec::new(),
            done: Arc::default(),
            outlet: Arc::default(),
            now: now(),
        }
    }

    fn run(&mut self, commands: impl Iterator<Item = Command>) {
        let mut out: Vec<Release> = Vec::new();
        let requests = commands.map(|command| Request {
            ticket: Ticket(1),
            sub_queue: SubQueue::Main,
            command,
            reply: Reply::new(Arc::clone(&self.outlet) as Arc<dyn Outlet>, 0, None),
        });
        let now = self.now;
        self.root.run(requests, now, &mut out).unwrap_or_else(|error| panic!("{error}"));
        let completion = || {
            let done = Arc::clone(&self.done);
            Box::new(move |stage, _| {
                if let Ok(mut done) = done.lock() {
                    done.push(stage);
                }
            }) as StageCompletion
        };
        self.tree.borrow_mut().submit(now, &completion);
        let stages =
            self.done.lock().map(|mut done| std::mem::take(&mut *done)).unwrap_or_default();
        for stage in stages {
            let members = self.tree.borrow().members_of(stage);
            let mut held = self.tree.borrow_mut().complete(stage);
            for number in members {
                // The root has number 0, subscriptions follow in order.
                let committed = match number.0.checked_sub(1) {
                    None => self.root.committed(stage, now, &mut out),
                    Some(place) => match self.subscriptions.get_mut(place as usize) {
                        Some(shell) => shell.committed(stage, now, &mut out),
                        None => continue,
                    },
                };
                committed.unwrap_or_else(|error| panic!("{error}"));
            }
            release_all(&mut held);
        }
        release_all(&mut out);
    }
}

fn of_topic(count: u64, filters: Filters, settings: &Settings) -> World<Topic> {
    let description = TopicDescription::new("events", &settings.limits);
    let topic = Topic::new(EntityId(1), description, config(), now());
    let family = Family::new(Arc::clone(topic.description()));
    let mut world = World::new(topic, Some(family), settings);
    for number in 0..count {
        let id = EntityId(number + 2);
        let filter = match filters {
            Filters::All => Filter::True,
            Filters::Distinct => Filter::Correlation(CorrelationFilter {
                subject: Some(format!("s{number}").into()),
                ..CorrelationFilter::default()
            }),
        };
        let description =
            SubscriptionDescription::new("events", number.to_string(), &settings.limits);
        let described = Arc::clone(world.root.machine().description());
        let rules = vec![RuleDescription::new("rule", filter, now())];
        let create = TopicCommand::CreateSubscription {
            id,
            description: Box::new(description.clone()),
            rules,
        };
        world.run(std::iter::once(create.into()));
        let queue = Queue::subscription(id, description, described, config(), now());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1, u64::MAX));
        let shell = shell(queue, &world.tree, &store, settings);
        world.tree.borrow_mut().join_family(id, shell.number());
        world.subscriptions.push(shell);
    }
    world
}

fn shell<M: Machine>(
    machine: M,
    tree: &Rc<RefCell<Tree>>,
    store: &Arc<dyn Store>,
    settings: &Settings,
) -> Shell<M> {
    let entropy = Entropy::with_key([4; 16]);
    Shell::new(
        machine,
        Rc::clone(tree),
        Arc::clone(store),
        Arc::new(settings.limits.clone()),
        Box::new(move || entropy.next_u64()),
        Budget::new(0),
        Box::new(|| Box::new(|| {})),
    )
}

fn send_all<M: Machine>(mut world: World<M>, messages: &[InboundMessage]) {
    for _ in 0..LISTS {
        world.run(messages.iter().map(|message| Command::Send { message: message.clone() }));
    }
    assert_eq!(world.outlet.0.load(Ordering::Relaxed), LIST * LISTS);
}
