//! A transaction at a topic that publishes messages and settles messages of its transfer
//! dead-letter queue.

use peeklock_model::transfer::Departure;
use peeklock_words::message::{Overlay, Value};

use super::*;

/// Number of messages in the transfer dead-letter queue.
const COUNT: u32 = 30;
/// Number of overlays on each.
const TIMES: usize = 20;

fn part(sub_queue: SubQueue, operation: Operation) -> Part {
    Part { member: None, sub_queue, operation, numbers: Vec::new() }
}

impl World<'_, Topic> {
    /// Sends messages via the topic to an entity that refuses them, until [`COUNT`] are in the
    /// transfer dead-letter queue.
    fn fill(&mut self, random: &mut Random) {
        let resting = |world: &Self| world.machine.counts().transfer_dead_letter;
        for _ in 0..500 {
            if resting(self) >= u64::from(COUNT) {
                return;
            }
            let Some((list, count)) = self.lists.pop() else {
                let messages = random.messages();
                self.ask(Command::SendVia { destination: Arc::from("elsewhere"), messages });
                continue;
            };
            let refused = |_| Departure::Refused { reason: "r".into(), description: "d".into() };
            let departures = (0..count).map(refused).collect();
            self.ask(Command::EndTransfer { list, departures });
        }
        panic!("{} messages rest", resting(self));
    }

    /// Locks all messages of the transfer dead-letter queue.
    fn lock_all(&mut self) -> Vec<LockToken> {
        self.locks.clear();
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: COUNT,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        self.ask_in(SubQueue::TransferDeadLetter, receive);
        self.locks.clone()
    }
}

/// DESIGN D6, TXN-14, SET-41, VIA-05: the overlays of settled messages in a topic's transfer
/// dead-letter queue are part of the predicted steps of a transaction.
#[test]
fn transaction_at_a_topic_stays_within_predicted_steps() {
    let limits = Limits::default();
    let mut random = Random(0x0fed_cba9_8765_4321);
    let mut world = World::new(a_topic(&limits), &limits);
    for _ in 0..4 {
        let command = topic_command(&mut random, 0, &limits);
        world.ask(command);
    }
    world.fill(&mut random);
    let properties = || Some(Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap());
    let abandon = || Settlement::Abandon { properties: properties(), delay: None };
    for _ in 0..TIMES {
        for token in world.lock_all() {
            let settle = Command::Settle { token, settlement: abandon() };
            world.ask_in(SubQueue::TransferDeadLetter, settle);
        }
    }
    let locks = world.lock_all();
    assert_eq!(locks.len(), COUNT as usize);
    for (number, some) in locks.chunks(5).enumerate() {
        let settle = |token: &LockToken| {
            let settlement = match number % 3 {
                0 => Settlement::Complete,
                1 => abandon(),
                _ => Settlement::Defer { properties: properties() },
            };
            part(SubQueue::TransferDeadLetter, Operation::Settle { token: *token, settlement })
        };
        let mut parts: Vec<Part> = some.iter().map(settle).collect();
        parts.push(part(SubQueue::Main, Operation::Send { message: random.message() }));
        world.ask(Command::Commit { parts });
    }
    assert_eq!(world.done.get("Commit"), Some(&6), "{:?}", world.refused.get("Commit"));
    assert!(world.most_steps > 5 * TIMES as u64, "{} steps at most", world.most_steps);
}
