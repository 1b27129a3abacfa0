//! Benchmark of the pure machine: send, receive under lock and complete, in lists of 64, without a
//! store. One message is encoded in advance and sent repeatedly, so that no codec is measured.
//!
//! `cargo bench --bench apply`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

mod measure;

use peeklock_core::command::{Command, MachineOutcome, ReceiveMode, Settlement};
use peeklock_core::description::{QueueDescription, Settings};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::effect::{Answer, Effect};
use peeklock_core::ids::{EntityId, Ticket};
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::{Ctx, Machine, RemainingCapacity, StageNumber, StepOutput};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::store::Reserved;
use peeklock_core::time::{TimeSpan, Timestamp};

const LIST: usize = 64;
const LISTS: usize = 16_000;

fn main() {
    let settings = Settings::default();
    let limits = &settings.limits;
    let edge = Edge::new(Entropy::with_key([1; 16]), limits, [2; 16]);
    let inbound = edge.take(Message::new(vec![0; 1_024]).with_message_id("id-of-the-message"));
    measure::rate(
        "machine: send + receive + complete, lists of 64, one encoded message",
        LIST * LISTS,
        || {
            let config = QueueConfig {
                release_on_detach: false,
                release_on_connection_loss: false,
                expire_whole_sessions: true,
                duplicate_key: [3; 16],
                forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
            };
            let description = QueueDescription::new("orders", limits);
            let now = Timestamp::from_unix_ms(1_800_000_000_000);
            let mut queue = Queue::new(EntityId(1), description, config, now);
            let mut step = StepOutput::default();
            let mut random = 0u64;
            let mut tokens = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                random
            };
            let mut ctx = Ctx {
                now,
                stage: StageNumber(1),
                stored_bytes: 0,
                room: Reserved::Granted,
                remaining: RemainingCapacity::ALL,
                limits,
                tokens: &mut tokens,
            };
            for _ in 0..LISTS {
                for _ in 0..LIST {
                    let command = Command::Send { message: inbound.clone() };
                    let answer =
                        queue.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step);
                    assert!(matches!(answer, Ok(Answer::Now(MachineOutcome::Accepted(_), _))));
                }
                queue.committed(ctx.stage);
                step.changes.clear();
                let receive = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 64,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                let answer = queue.apply(Ticket(2), SubQueue::Main, receive, &mut ctx, &mut step);
                assert!(matches!(answer, Ok(Answer::Later)));
                queue.serve(&mut ctx, &mut step);
                let Some(Effect::Answer { result: Ok(MachineOutcome::Received(messages)), .. }) =
                    step.effects.pop()
                else {
                    panic!("nothing received")
                };
                assert_eq!(messages.len(), LIST);
                for message in messages {
                    let token =
                        message.lock.map(|lock| lock.token).unwrap_or_else(|| panic!("no lock"));
                    let command = Command::Settle { token, settlement: Settlement::Complete };
                    let answer =
                        queue.apply(Ticket(3), SubQueue::Main, command, &mut ctx, &mut step);
                    // A rejected command is cheaper, so it would distort the figure.
                    assert!(matches!(answer, Ok(Answer::Now(MachineOutcome::Done, _))));
                }
                step.changes.clear();
            }
            let described =
                queue.apply(Ticket(4), SubQueue::Main, Command::Describe, &mut ctx, &mut step);
            let Ok(Answer::Now(MachineOutcome::Described(described), _)) = described else {
                panic!("not described")
            };
            assert_eq!(described.counts.total(), 0, "something was left");
        },
    );
}
