//! Costs of commands, one for each kind whose cost depends on its data.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::command::{PeerArrival, TopicCommand};
use crate::ids::{EntityId, LockToken, SequenceNumber};
use crate::message::{Message, Overlay, PropertyLimits, Value};
use crate::path::SubQueue;
use crate::rule::sql::Parameters;
use crate::rule::{Filter, SqlText};
use crate::time::Timestamp;
use crate::transaction::Part;
use crate::transfer::peer::PeerSource;

fn message(bytes: usize) -> InboundMessage {
    let content = Message::new("x".repeat(bytes)).with_message_id("m").encode();
    let envelope = content.envelope(&PropertyLimits::default(), &[0; 16]);
    InboundMessage { content, envelope }
}

fn arrival(bytes: usize) -> PeerArrival {
    PeerArrival {
        message: message(bytes),
        sequence: SequenceNumber(1),
        enqueued_at: Timestamp::NONE,
        enqueued_sequence: SequenceNumber(1),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
    }
}

fn part(member: Option<EntityId>, operation: Operation) -> Part {
    Part { member, sub_queue: SubQueue::Main, operation, numbers: Vec::new() }
}

fn rule() -> RuleDescription {
    let parameters = Parameters::new().with("@p", "x".repeat(1_000));
    let filter = Filter::Sql(SqlText { text: "p = @p".into(), parameters });
    RuleDescription::new("large", filter, Timestamp::NONE)
}

fn overlay() -> Overlay {
    Overlay::encode(&[("cause".to_owned(), Value::from("broken"))]).unwrap()
}

fn peek(count_max: u32) -> Command {
    Command::Peek { from: SequenceNumber(0), count_max }
}

/// A command, its expected count and bytes, and its expected storage: bytes and number of published
/// messages.
type Case = (Command, u64, u64, Option<(u64, u64)>);

/// DESIGN D6, D11: cost of each kind of command; `None` where nothing of variable size is stored.
#[test]
fn command_cost_counts_its_data() {
    let one = u64::from(message(100).envelope.size);
    let set = u64::from(overlay().size_bytes());
    let token = LockToken(1);
    let abandon = || Settlement::Abandon { properties: Some(overlay()), delay: None };
    let holder = crate::ids::ReceiverId(1);
    let rule_bytes = rule().memory_bytes() as u64;
    // Name, text, name and value of the parameter, and an allocation for each.
    assert!(rule_bytes > 5 + 6 + 2 + 1_000 + 4 * 16, "{rule_bytes}");
    let cases: Vec<Case> = vec![
        (Command::Send { message: message(100) }, 1, one, Some((one + 256, 1))),
        (Command::SendBatch { messages: Vec::new() }, 1, 0, Some((0, 0))),
        (
            Command::SendBatch { messages: vec![message(100); 3] },
            3,
            3 * one,
            Some((3 * (one + 256), 3)),
        ),
        // The message is stored in the outbox and published elsewhere.
        (
            Command::SendVia { destination: Arc::from("b"), messages: vec![message(100); 2] },
            2,
            2 * one,
            Some((2 * (one + 256 + 1), 0)),
        ),
        // A topic publishes messages of another broker, and remembers them.
        (
            Command::TransferFromPeer {
                source: PeerSource { broker: 1, entity: EntityId(1), sub_queue: SubQueue::Main },
                messages: vec![arrival(100), arrival(100)],
            },
            2,
            2 * one,
            Some((2 * (one + 512), 2)),
        ),
        (Command::Settle { token, settlement: Settlement::Complete }, 1, 0, None),
        (Command::Settle { token, settlement: abandon() }, 1, set, None),
        (Command::CancelScheduled { sequences: vec![SequenceNumber(1); 7] }, 7, 0, None),
        (
            Command::InSession {
                receiver: holder,
                command: SessionCommand::SetState { state: Some(Bytes::from_static(b"state")) },
            },
            1,
            5,
            Some((5 + 512 + 256, 0)),
        ),
        (
            Command::InSession {
                receiver: holder,
                command: SessionCommand::SetState { state: None },
            },
            1,
            0,
            None,
        ),
        (
            Command::OfTopic(TopicCommand::InSubscription {
                subscription: EntityId(2),
                command: RuleCommand::Explain(Box::new(message(100))),
            }),
            1,
            one,
            None,
        ),
        // A waiting rule counts with its texts and their memory.
        (
            Command::OfTopic(TopicCommand::InSubscription {
                subscription: EntityId(2),
                command: RuleCommand::Create(Box::new(rule())),
            }),
            1,
            rule_bytes,
            None,
        ),
        // A commit counts all its operations, and stores only sent messages.
        (
            Command::Commit {
                parts: vec![
                    part(None, Operation::SendBatch { messages: vec![message(100); 2] }),
                    part(None, Operation::Settle { token, settlement: abandon() }),
                    part(Some(EntityId(2)), Operation::RenewLock { token }),
                ],
            },
            4,
            2 * one + set,
            Some((2 * (one + 256), 2)),
        ),
        (Command::Commit { parts: vec![part(None, Operation::RenewLock { token })] }, 1, 0, None),
        (Command::Commit { parts: Vec::new() }, 1, 0, None),
        // A member stores the states of its sessions in the batch of the coordinator.
        (
            Command::Commit {
                parts: vec![part(
                    Some(EntityId(2)),
                    Operation::SetSessionState {
                        receiver: holder,
                        state: Some(Bytes::from_static(b"state")),
                    },
                )],
            },
            1,
            5,
            Some((5 + 512 + 256, 0)),
        ),
        (Command::Describe, 1, 0, None),
        // The answer of a peek exists before it has room: at most the maximum of messages per peek
        // counts (PEK-08).
        (peek(0), 1, 0, None),
        (peek(1), 1, PEEKED_BYTES, None),
        (peek(250), 1, 250 * PEEKED_BYTES, None),
        (peek(u32::MAX), 1, 250 * PEEKED_BYTES, None),
        (
            Command::PeekSession { session: "s".into(), from: SequenceNumber(1), count_max: 100 },
            1,
            100 * PEEKED_BYTES,
            None,
        ),
    ];
    for (command, count, bytes, stored) in cases {
        let stored = stored.map(|(bytes, published)| Stored { bytes, published });
        assert_eq!(command.cost(), Cost { count, bytes, stored }, "{command:?}");
    }
}
