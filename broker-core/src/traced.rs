//! Operations in progress, for a tracer: recorded when the command is submitted, reported when its
//! answer leaves.
//!
//! ```text
//!  Entity::submit ──► Witness::begin ──► Reply ──► Release ──► Traced::end ──► Tracer::record
//!                                        └──► Link ──► Witness::delivery ──┘
//! ```

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use peeklock_model::transaction::{Operation as Part, PartOutcome};

use crate::command::{
    Command, InboundMessage, Outcome, ReceivedMessage, SessionCommand, Settlement,
};
use crate::contract::{Operation, OperationKind, TRACED_MESSAGES_MAX, TracedMessage, Tracer};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::request::Released;

/// The tracer and the path of an entity.
#[derive(Clone)]
pub(crate) struct TraceRecorder {
    tracer: Arc<dyn Tracer>,
    path: Arc<str>,
}

/// A recorded command.
pub(crate) struct CommandTrace {
    witness: TraceRecorder,
    /// None for a command that only opens a link.
    operation: Option<OperationInProgress>,
}

struct OperationInProgress {
    kind: OperationKind,
    began_at: SystemTime,
    /// Start on a monotonic clock.
    began: Instant,
    message_count: u64,
    messages: Vec<TracedMessage>,
}

impl TraceRecorder {
    pub(crate) fn new(tracer: &Arc<dyn Tracer>, path: &Arc<str>) -> Self {
        Self { tracer: Arc::clone(tracer), path: Arc::clone(path) }
    }

    /// Records a command, if its kind is reported to tracers.
    pub(crate) fn begin(&self, command: &Command) -> Option<Box<CommandTrace>> {
        let operation = OperationInProgress::of(command);
        if operation.is_none() && command.opens().link.is_none() {
            return None;
        }
        Some(Box::new(CommandTrace { witness: self.clone(), operation }))
    }

    /// Records a message that will leave over a link.
    pub(crate) fn delivery(&self, message: &ReceivedMessage) -> Box<CommandTrace> {
        let mut operation = OperationInProgress::begin(OperationKind::Deliver);
        operation.message_count = 1;
        operation.messages.push(TracedMessage::received(&message.facts, &message.content));
        Box::new(CommandTrace { witness: self.clone(), operation: Some(operation) })
    }
}

impl CommandTrace {
    pub(crate) const fn witness(&self) -> &TraceRecorder {
        &self.witness
    }

    /// Reports the end of the operation.
    pub(crate) fn end(self, item: &Released) {
        let Self { witness, operation } = self;
        let Some(mut operation) = operation else { return };
        let result = match item {
            Released::Answer { result: Ok(outcome), .. } => {
                operation.note(outcome);
                Ok(())
            }
            Released::Answer { result: Err(rejection), .. } => Err(rejection),
            Released::Delivery { .. } => Ok(()),
            Released::Detached { reason, .. } | Released::Closed { reason, .. } => Err(reason),
        };
        witness.record(&operation, result);
    }
}

impl TraceRecorder {
    fn record(&self, operation: &OperationInProgress, result: Result<(), &Rejection>) {
        let OperationInProgress { kind, began_at, began, message_count, messages } = operation;
        self.tracer.record(&Operation {
            kind: *kind,
            path: &self.path,
            began_at: *began_at,
            ended_at: began_at.checked_add(began.elapsed()).unwrap_or(*began_at),
            message_count: *message_count,
            messages,
            result,
        });
    }
}

impl OperationInProgress {
    fn begin(kind: OperationKind) -> Self {
        Self {
            kind,
            began_at: SystemTime::now(),
            began: Instant::now(),
            message_count: 0,
            messages: Vec::new(),
        }
    }

    /// Records a command that sends, receives or settles messages.
    fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Send { message } => Some(Self::send([message])),
            Command::SendBatch { messages } | Command::SendVia { messages, .. } => {
                Some(Self::send(messages))
            }
            Command::TransferFromPeer { messages, .. } => {
                let messages = messages.iter().map(|arrival| &arrival.message);
                Some(Self::begin(OperationKind::Forward).about(messages))
            }
            Command::Receive { .. }
            | Command::InSession { command: SessionCommand::Receive { .. }, .. } => {
                Some(Self::begin(OperationKind::Receive))
            }
            Command::ReceiveDeferred { .. }
            | Command::InSession { command: SessionCommand::ReceiveDeferred { .. }, .. } => {
                Some(Self::begin(OperationKind::ReceiveDeferred))
            }
            Command::Settle { token, settlement } => {
                let mut operation = Self::begin(kind_of(settlement));
                operation.message_count = 1;
                operation.messages.push(TracedMessage::numbered(token.sequence()));
                Some(operation)
            }
            Command::Commit { parts } => {
                let operations = parts.iter().map(|part| &part.operation);
                let mut commit = Self::begin(OperationKind::Commit)
                    .about(operations.clone().flat_map(Part::messages));
                commit.message_count = operations.map(Part::count).sum();
                Some(commit)
            }
            Command::TransferIn { .. }
            | Command::EndTransfer { .. }
            | Command::CancelScheduled { .. }
            | Command::CancelReceive { .. }
            | Command::Attach { .. }
            | Command::SetCredit { .. }
            | Command::Detach { .. }
            | Command::RenewLock { .. }
            | Command::Peek { .. }
            | Command::AcceptSession { .. }
            | Command::InSession {
                command:
                    SessionCommand::Attach
                    | SessionCommand::Renew
                    | SessionCommand::GetState
                    | SessionCommand::SetState { .. }
                    | SessionCommand::DeleteBatch { .. },
                ..
            }
            | Command::PeekSession { .. }
            | Command::ListSessions { .. }
            | Command::DeleteBatchUnlocked { .. }
            | Command::DeleteBatch { .. }
            | Command::DeleteDeferred { .. }
            | Command::Update { .. }
            | Command::Check { .. }
            | Command::UpdateSubscription { .. }
            | Command::OfTopic(_)
            | Command::OfOperator(_)
            | Command::Inspect(_)
            | Command::Describe => None,
        }
    }

    fn send<'m>(messages: impl IntoIterator<Item = &'m InboundMessage>) -> Self {
        let mut messages = messages.into_iter().peekable();
        let is_for_later = messages
            .peek()
            .is_some_and(|message| message.envelope.scheduled_enqueue_time.is_some());
        let kind = if is_for_later { OperationKind::Schedule } else { OperationKind::Send };
        Self::begin(kind).about(messages)
    }

    fn about<'m>(mut self, messages: impl IntoIterator<Item = &'m InboundMessage>) -> Self {
        for message in messages {
            self.message_count += 1;
            if self.messages.len() < TRACED_MESSAGES_MAX {
                self.messages.push(TracedMessage::sent(&message.content));
            }
        }
        self
    }

    /// Adds the message details of the answer.
    fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Accepted(sequence) => self.number(std::slice::from_ref(sequence)),
            Outcome::AcceptedBatch(sequences) => self.number(sequences),
            Outcome::Received(received) => {
                self.message_count = received.len() as u64;
                let known = received.iter().take(TRACED_MESSAGES_MAX);
                self.messages = known
                    .map(|message| TracedMessage::received(&message.facts, &message.content))
                    .collect();
            }
            Outcome::Committed(parts) => {
                let sequences = parts.iter().flat_map(|part| match part {
                    PartOutcome::Accepted(sequence) => std::slice::from_ref(sequence),
                    PartOutcome::AcceptedBatch(sequences) | PartOutcome::Pending(sequences) => {
                        sequences
                    }
                    PartOutcome::Done | PartOutcome::Renewed(_) => &[],
                });
                self.number(sequences);
            }
            _ => {}
        }
    }

    /// Sets the sequence numbers of sent messages, in order; 0 means none (DUP-02).
    fn number<'s>(&mut self, sequences: impl IntoIterator<Item = &'s SequenceNumber>) {
        for (message, sequence) in self.messages.iter_mut().zip(sequences) {
            message.sequence = Some(*sequence).filter(|sequence| sequence.0 > 0);
        }
    }
}

const fn kind_of(settlement: &Settlement) -> OperationKind {
    match settlement {
        Settlement::Complete => OperationKind::Complete,
        Settlement::Abandon { .. } => OperationKind::Abandon,
        Settlement::Defer { .. } => OperationKind::Defer,
        Settlement::DeadLetter { .. } => OperationKind::DeadLetter,
        Settlement::Release => OperationKind::Release,
    }
}
