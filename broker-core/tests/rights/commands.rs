//! One command of each kind that a handle can send.

use std::sync::Arc;

use peeklock_core::Broker;
use peeklock_core::command::{
    Act, Command, Deed, Drain, LinkEnd, OperatorCommand, ReceiveMode, RuleCommand, SessionCommand,
    SessionFilter, Settlement, TopicCommand,
};
use peeklock_core::ids::{EntityId, JobId, LockToken, SequenceNumber, Ticket};
use peeklock_core::inspect::{HeadQuery, Inquiry};
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{Operation, Part};

/// Every command that a client can send, with a name. Commands that change descriptions are sent by
/// the management of [`peeklock_core::Access`], and are in its matrix.
pub fn all(broker: &Broker) -> Vec<(&'static str, Command)> {
    let message = || broker.inbound(Message::new("a"));
    let token = LockToken::new(SequenceNumber(1), 1);
    let receiver = broker.receiver_id();
    let (mode, from) = (ReceiveMode::PeekLock, SequenceNumber(1));
    let in_session = |command| Command::InSession { receiver, command };
    let part = |operation| Part {
        member: None,
        sub_queue: SubQueue::Main,
        operation,
        numbers: Vec::new(),
    };
    let rules = |command| {
        Command::OfTopic(TopicCommand::InSubscription { subscription: EntityId(9), command })
    };
    let peer = PeerSource { broker: 1, entity: EntityId(1), sub_queue: SubQueue::Main };
    let (count_max, bytes_max, wait) = (1, 1_000, TimeSpan::ZERO);
    let source_of_locks = vec![from];
    let later = Settlement::Abandon { properties: None, delay: Some(TimeSpan::from_minutes(1)) };
    vec![
        ("send", Command::Send { message: message() }),
        ("send batch", Command::SendBatch { messages: vec![message()] }),
        (
            "send via",
            Command::SendVia { destination: Arc::from("other"), messages: vec![message()] },
        ),
        ("forward", Command::TransferFromPeer { source: peer, messages: Vec::new() }),
        ("cancel scheduled", Command::CancelScheduled { sequences: vec![from] }),
        ("receive", Command::Receive { mode, count_max, bytes_max, wait, holder: None }),
        ("cancel receive", Command::CancelReceive { call: Ticket(u64::MAX) }),
        (
            "receive deferred",
            Command::ReceiveDeferred { mode, sequences: source_of_locks, holder: None },
        ),
        ("attach", Command::Attach { receiver, mode }),
        (
            "grant",
            Command::SetCredit { receiver, delivery_limit: 1, byte_limit: 1, drain: Drain::No },
        ),
        (
            "grant nothing",
            Command::SetCredit { receiver, delivery_limit: 0, byte_limit: 0, drain: Drain::No },
        ),
        ("detach", Command::Detach { receiver, end: LinkEnd::Orderly }),
        ("settle", Command::Settle { token, settlement: Settlement::Complete }),
        ("release", Command::Settle { token, settlement: Settlement::Release }),
        ("abandon for later", Command::Settle { token, settlement: later }),
        ("renew lock", Command::RenewLock { token }),
        ("peek", Command::Peek { from, count_max }),
        ("inspect", Command::Inspect(Inquiry::Heads(HeadQuery::default()))),
        ("peek session", Command::PeekSession { session: "s".into(), from, count_max }),
        (
            "accept session",
            Command::AcceptSession { session: Some("s".into()), receiver, mode, wait },
        ),
        ("attach in session", in_session(SessionCommand::Attach)),
        ("receive in session", in_session(SessionCommand::Receive { count_max, bytes_max, wait })),
        (
            "receive deferred in session",
            in_session(SessionCommand::ReceiveDeferred { sequences: vec![from] }),
        ),
        ("renew session", in_session(SessionCommand::Renew)),
        ("get state", in_session(SessionCommand::GetState)),
        ("set state", in_session(SessionCommand::SetState { state: None })),
        (
            "delete batch in session",
            in_session(SessionCommand::DeleteBatch { count_max, enqueued_before: None }),
        ),
        (
            "list sessions",
            Command::ListSessions { which: SessionFilter::All, after: None, skip: 0, top: 1 },
        ),
        ("delete batch", Command::DeleteBatch { count_max, enqueued_before: None }),
        ("delete unlocked", Command::DeleteBatchUnlocked { count_max, enqueued_before: None }),
        ("delete deferred", Command::DeleteDeferred { sequence: from }),
        (
            "break locks",
            Command::OfOperator(OperatorCommand::BreakLocks {
                sequences: vec![from],
                counts: false,
            }),
        ),
        (
            "act on messages",
            Command::OfOperator(OperatorCommand::Act(Box::new(Act {
                step: None,
                sequences: vec![from],
                deed: Deed::Undefer,
                breaks_locks: false,
                kept: None,
            }))),
        ),
        ("forget job", Command::OfOperator(OperatorCommand::ForgetJob(JobId(1)))),
        (
            "break session",
            Command::OfOperator(OperatorCommand::BreakSession {
                session: "s".into(),
                counts: true,
            }),
        ),
        (
            "set state of session",
            Command::OfOperator(OperatorCommand::SetSessionState {
                session: "s".into(),
                state: None,
            }),
        ),
        ("describe", Command::Describe),
        ("check send", Command::Check { operation: Operation::Send { message: message() } }),
        ("check renew", Command::Check { operation: Operation::RenewLock { token } }),
        (
            "commit send",
            Command::Commit { parts: vec![part(Operation::Send { message: message() })] },
        ),
        (
            "commit settle",
            Command::Commit {
                parts: vec![part(Operation::Settle { token, settlement: Settlement::Complete })],
            },
        ),
        ("create rule", rules(RuleCommand::Delete("r".into()))),
        ("list rules", rules(RuleCommand::List { skip: 0, top: 1 })),
        ("get rule", rules(RuleCommand::Get("r".into()))),
        ("explain", rules(RuleCommand::Explain(Box::new(message())))),
    ]
}
