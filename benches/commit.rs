//! Benchmark of a shell with the memory store: machine, stage, records, store and replies, on one
//! thread without an actor. One message is encoded in advance and sent repeatedly.
//!
//! `cargo bench --bench commit`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

mod measure;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use peeklock_core::admission::Budget;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::{QueueDescription, Settings};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::ids::{EntityId, LockToken, Ticket};
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::store::{MemoryStore, Shard, Store};
use peeklock_core::time::{TimeSpan, Timestamp};

const LIST: usize = 64;
const LISTS: usize = 8_000;

#[derive(Default)]
struct Collect {
    answers: Mutex<Answers>,
}

/// Answers received up to now.
#[derive(Default)]
struct Answers {
    tokens: Vec<LockToken>,
    accepted: usize,
    settled: usize,
    left: Option<u64>,
}

impl Outlet for Collect {
    fn release(&self, group: Vec<Released>) {
        let Ok(mut answers) = self.answers.lock() else { return };
        for item in group {
            let Released::Answer { result, .. } = item else { continue };
            // A rejected command is cheaper, so it would distort the figure.
            match result.unwrap_or_else(|error| panic!("{error}")) {
                Outcome::Accepted(_) => answers.accepted += 1,
                Outcome::Done => answers.settled += 1,
                Outcome::Described(described) => answers.left = Some(described.counts.total()),
                Outcome::Received(messages) => {
                    let tokens = messages.iter().filter_map(|one| Some(one.facts.lock?.token));
                    answers.tokens.extend(tokens);
                }
                _ => panic!("answered with something else"),
            }
        }
    }
}

fn main() {
    let settings = Settings::default();
    let edge = Edge::new(Entropy::with_key([1; 16]), &settings.limits, [2; 16]);
    let inbound = edge.take(Message::new(vec![0; 1_024]).with_message_id("id-of-the-message"));
    measure::rate(
        "shell, memory store: whole cycle, lists of 64, one message",
        LIST * LISTS,
        || {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(16, u64::MAX));
            let acquiring = ShardWriter::acquire(Arc::clone(&store), Shard(0), Box::new(|_| {}));
            let writer = measure::block_on(acquiring).unwrap_or_else(|error| panic!("{error}"));
            let now = Timestamp::from_unix_ms(1_800_000_000_000);
            let config = QueueConfig {
                release_on_detach: false,
                release_on_connection_loss: false,
                expire_whole_sessions: true,
                duplicate_key: [3; 16],
                forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
            };
            let description = QueueDescription::new("orders", &settings.limits);
            let queue = Queue::new(EntityId(1), description, config, now);
            let tree = Rc::new(RefCell::new(Tree::new(writer, 0)));
            let entropy = Entropy::with_key([4; 16]);
            let mut shell = Shell::new(
                queue,
                Rc::clone(&tree),
                store,
                Arc::new(settings.limits.clone()),
                Box::new(move || entropy.next_u64()),
                Budget::new(0),
                Box::new(|| Box::new(|| {})),
            );
            let done = Arc::new(Mutex::new(Vec::new()));
            let outlet = Arc::new(Collect::default());
            let mut out: Vec<Release> = Vec::new();
            let run = |shell: &mut Shell<Queue>, out: &mut Vec<Release>, commands: Vec<Command>| {
                let requests = commands.into_iter().map(|command| Request {
                    ticket: Ticket(1),
                    sub_queue: SubQueue::Main,
                    command,
                    reply: Reply::new(Arc::clone(&outlet) as Arc<dyn Outlet>, 0, None),
                });
                shell.run(requests, now, out).unwrap_or_else(|error| panic!("{error}"));
                release_all(out);
                let completion = || {
                    let done = Arc::clone(&done);
                    Box::new(move |stage, _| {
                        if let Ok(mut done) = done.lock() {
                            done.push(stage);
                        }
                    }) as StageCompletion
                };
                tree.borrow_mut().submit(now, &completion);
                let stages =
                    done.lock().map(|mut done| std::mem::take(&mut *done)).unwrap_or_default();
                for stage in stages {
                    let mut held = tree.borrow_mut().complete(stage);
                    shell.committed(stage, now, out).unwrap_or_else(|error| panic!("{error}"));
                    release_all(out);
                    release_all(&mut held);
                }
            };
            for _ in 0..LISTS {
                let sends = (0..LIST).map(|_| Command::Send { message: inbound.clone() }).collect();
                run(&mut shell, &mut out, sends);
                let receive = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 64,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                run(&mut shell, &mut out, vec![receive]);
                let tokens = outlet
                    .answers
                    .lock()
                    .map(|mut answers| std::mem::take(&mut answers.tokens))
                    .unwrap_or_default();
                assert_eq!(tokens.len(), LIST);
                let completes = tokens
                    .into_iter()
                    .map(|token| Command::Settle { token, settlement: Settlement::Complete })
                    .collect();
                run(&mut shell, &mut out, completes);
            }
            run(&mut shell, &mut out, vec![Command::Describe]);
            let answers = outlet.answers.lock().unwrap_or_else(|_| panic!("poisoned"));
            assert_eq!((answers.accepted, answers.settled), (LIST * LISTS, LIST * LISTS));
            assert_eq!(answers.left, Some(0), "something was left");
        },
    );
}
