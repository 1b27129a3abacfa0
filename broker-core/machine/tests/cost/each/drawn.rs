//! Random commands about existing data, and sometimes about missing data.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_machine::Machine as _;
use peeklock_machine::queue::Queue;
use peeklock_model::command::{
    Act, BodyEdit, Command, Deed, Drain, Edit, JobStep, LinkEnd, NewInstant, OperatorCommand,
    ReceiveMode, RuleCommand, SessionCommand, SessionFilter, Settlement, TopicCommand,
};
use peeklock_model::inspect::{
    HeadOrder, HeadQuery, HeadStart, HeadStates, Inquiry, LockOrder, LockQuery, SessionOrder,
    SessionQuery, TimelineOf, TimelineQuery,
};
use peeklock_model::transaction::{Operation, Part};
use peeklock_model::transfer::peer::PeerSource;
use peeklock_model::transfer::{Arrival, Departure, ListNumber, Origin, WhenFull};
use peeklock_words::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_words::ids::{EntityId, JobId, LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_words::limits::Limits;
use peeklock_words::message::{Overlay, Value};
use peeklock_words::path::SubQueue;
use peeklock_words::rule::{Filter, RuleDescription};
use peeklock_words::time::TimeSpan;

use super::World;
use crate::{Random, config, now};

/// Number of kinds of commands for a queue.
pub(super) const QUEUE_KINDS: u64 = 38;

impl Random {
    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let last = u64::try_from(all.len()).unwrap().checked_sub(1)?;
        Some(all[usize::try_from(self.below(last + 1)).unwrap()])
    }

    fn some<T: Copy>(&mut self, all: &[T]) -> Vec<T> {
        (0..self.below(4)).filter_map(|_| self.of(all)).collect()
    }

    fn settlement(&mut self) -> Settlement {
        let text = self.text(500);
        let overlay = Overlay::encode(&[("p".to_owned(), Value::from(text.as_str()))]).unwrap();
        let properties = self.one_in(2).then_some(overlay);
        match self.below(5) {
            0 => Settlement::Complete,
            1 => Settlement::Abandon {
                properties,
                delay: self.one_in(4).then(|| TimeSpan::from_minutes(1)),
            },
            2 => Settlement::Defer { properties },
            3 => Settlement::DeadLetter { properties },
            _ => Settlement::Release,
        }
    }

    fn operation(&mut self, locks: &[LockToken]) -> Operation {
        let token = self.of(locks).unwrap_or(LockToken(1));
        match self.below(7) {
            0 => Operation::Send { message: self.message() },
            1 => Operation::SendBatch { messages: self.messages() },
            2 => Operation::SendVia {
                destination: Arc::from(self.text(260)),
                messages: self.messages(),
            },
            3 => Operation::Settle { token, settlement: self.settlement() },
            4 => Operation::RenewLock { token },
            5 => Operation::CancelScheduled { sequences: vec![SequenceNumber(1 + self.below(20))] },
            _ => Operation::SetSessionState {
                receiver: ReceiverId(1),
                state: self.one_in(2).then(|| self.text(200).into()),
            },
        }
    }

    fn parts(&mut self, locks: &[LockToken]) -> Vec<Part> {
        (0..1 + self.below(4))
            .map(|_| {
                let operation = self.operation(locks);
                // Only the coordinator sends messages; a member may settle.
                let is_sent = !operation.messages().is_empty();
                let member = (!is_sent && self.one_in(2)).then_some(EntityId(1));
                Part { member, sub_queue: SubQueue::Main, operation, numbers: Vec::new() }
            })
            .collect()
    }

    fn transfer(&mut self) -> Vec<Arrival> {
        let description = QueueDescription::new("source", &Limits::default());
        let source = Queue::new(EntityId(9), description, config(), now());
        let messages = self.messages();
        let arrival = |(message, number)| {
            let sequence = SequenceNumber(number);
            let set = u16::try_from(self.below(4)).unwrap();
            let overlay = || Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap();
            Arrival {
                message,
                overlays: (0..set).map(|_| overlay()).collect(),
                lowered_time_to_live: self.one_in(2).then(|| TimeSpan::from_seconds(10)),
                enqueued_sequence: sequence,
                hops: 1,
                copies_spent: 0,
                dead_letter_source: None,
                origin: Origin {
                    shard: 0,
                    key: source.content_key(sequence),
                    overlays: (0..set).map(|index| source.overlay_key(sequence, index)).collect(),
                    contents: None,
                },
                resent: None,
            }
        };
        messages.into_iter().zip(1..).map(arrival).collect()
    }

    fn inquiry(&mut self, count_max: u32) -> Inquiry {
        let (from, after) = (0, None);
        match self.below(6) {
            0 => Inquiry::Locks(LockQuery { order: LockOrder::Age, from, after, count_max }),
            1 => Inquiry::SessionState { session: "s".into() },
            2 => Inquiry::Sessions(SessionQuery {
                order: SessionOrder::Oldest,
                is_descending: self.one_in(2),
                filter: SessionFilter::All,
                from: None,
                beyond: None,
                count_max,
            }),
            3 => Inquiry::Timeline(TimelineQuery {
                of: TimelineOf::Scheduled,
                from: now(),
                slot: TimeSpan::from_seconds(10),
                slot_count: 240,
                after: None,
            }),
            _ => Inquiry::Heads(HeadQuery {
                session: None,
                states: HeadStates::ALL,
                order: HeadOrder::Number,
                is_descending: self.one_in(2),
                start: HeadStart::End,
                count_max,
            }),
        }
    }

    /// Returns a command for a queue; `kind` is below [`QUEUE_KINDS`].
    pub(super) fn asked<M>(&mut self, world: &World<'_, M>, kind: u64) -> Command {
        let receiver = ReceiverId(1 + self.below(3));
        let link = ReceiverId(100 + self.below(3));
        let mode = match self.below(4) {
            0 => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let count_max = 1 + u32::try_from(self.below(5)).unwrap();
        let wait = TimeSpan::from_seconds(i64::try_from(self.below(2)).unwrap());
        let token = self.of(&world.locks).unwrap_or(LockToken(1));
        let known = if self.one_in(2) { &world.numbers } else { &world.deferred };
        let sequences = self.some(known);
        let (bytes_max, enqueued_before) = (u64::MAX, None);
        let in_session = |command| Command::InSession { receiver, command };
        match kind {
            0 => Command::Send { message: self.message() },
            1 => Command::SendBatch { messages: self.messages() },
            2 => Command::SendVia {
                destination: Arc::from(self.text(260)),
                messages: self.messages(),
            },
            3 => Command::TransferIn { messages: self.transfer(), when_full: WhenFull::Refuse },
            4 => {
                let (list, count) = self.of(&world.lists).unwrap_or((ListNumber(1), 1));
                let departures = vec![Departure::Taken; count];
                Command::EndTransfer { list, departures }
            }
            5 => Command::TransferFromPeer {
                source: PeerSource { broker: 7, entity: EntityId(9), sub_queue: SubQueue::Main },
                messages: self.arrivals(),
            },
            6 => Command::CancelScheduled { sequences },
            7 => Command::Receive { mode, count_max, bytes_max, wait, holder: Some(receiver) },
            8 => Command::CancelReceive { call: Ticket(world.tickets.saturating_sub(1)) },
            9 => Command::ReceiveDeferred { mode, sequences, holder: None },
            10 => Command::Attach { receiver: link, mode },
            11 => Command::SetCredit {
                receiver: link,
                delivery_limit: 3,
                byte_limit: 10_000,
                drain: Drain::No,
            },
            12 => Command::Detach {
                receiver: if self.one_in(2) { receiver } else { link },
                end: LinkEnd::Broken,
            },
            13 => Command::Settle { token, settlement: self.settlement() },
            14 => Command::RenewLock { token },
            15 => Command::Peek { from: SequenceNumber(0), count_max },
            16 => Command::AcceptSession { session: None, receiver, mode, wait },
            17 => in_session(SessionCommand::Attach),
            18 => in_session(SessionCommand::Receive { count_max, bytes_max, wait }),
            19 => in_session(SessionCommand::ReceiveDeferred { sequences }),
            20 => in_session(SessionCommand::Renew),
            21 => in_session(SessionCommand::GetState),
            22 => {
                let bytes = vec![1; usize::try_from(self.below(3_000)).unwrap()];
                let state = self.one_in(4).then(|| Bytes::from(bytes));
                in_session(SessionCommand::SetState { state })
            }
            23 => in_session(SessionCommand::DeleteBatch { count_max, enqueued_before }),
            24 => Command::PeekSession { session: "s".into(), from: SequenceNumber(0), count_max },
            25 => {
                Command::ListSessions { which: SessionFilter::All, after: None, skip: 0, top: 10 }
            }
            26 => Command::DeleteBatchUnlocked { count_max, enqueued_before },
            27 => Command::DeleteBatch { count_max, enqueued_before },
            28 => Command::DeleteDeferred { sequence: self.of(known).unwrap_or(SequenceNumber(1)) },
            29 => Command::Check { operation: self.operation(&world.locks) },
            30 => Command::Commit { parts: self.parts(&world.locks) },
            31 => Command::Inspect(self.inquiry(count_max)),
            32 => {
                let counts = self.one_in(2);
                Command::OfOperator(OperatorCommand::BreakLocks { sequences, counts })
            }
            33 => {
                let counts = self.one_in(2);
                let session = "s".into();
                Command::OfOperator(OperatorCommand::BreakSession { session, counts })
            }
            34 => {
                let bytes = vec![1; usize::try_from(self.below(3_000)).unwrap()];
                let state = self.one_in(2).then(|| Bytes::from(bytes));
                let session = "other".into();
                Command::OfOperator(OperatorCommand::SetSessionState { session, state })
            }
            35 => Command::OfOperator(OperatorCommand::Act(Box::new(self.act(sequences)))),
            36 => Command::OfOperator(OperatorCommand::ForgetJob(JobId(1))),
            _ => Command::Describe,
        }
    }

    fn act(&mut self, mut sequences: Vec<SequenceNumber>) -> Act {
        sequences.sort_unstable();
        sequences.dedup();
        let job = JobId(u128::from(self.below(10)));
        let deed = match self.below(6) {
            0 => Deed::Delete,
            4 => Deed::Resubmit { to: None, edit: None },
            5 => Deed::Move {
                to: "elsewhere".into(),
                edit: self.one_in(2).then(|| {
                    let changes = Overlay::encode(&[("p".to_owned(), self.text(500).into())]);
                    let body = self.one_in(2).then(|| BodyEdit::MergePatch(self.text(500).into()));
                    Arc::new(Edit { changes: changes.unwrap(), new_id: true, body })
                }),
            },
            1 => Deed::DeadLetter {
                reason: self.one_in(2).then(|| self.text(500).into()),
                description: self.one_in(2).then(|| self.text(500).into()),
            },
            2 => Deed::Undefer,
            _ => Deed::Reschedule(NewInstant::Later(TimeSpan::from_minutes(1))),
        };
        let number = self.below(1_000_000);
        let step = self.one_in(2).then_some(JobStep { job, number });
        let kept = self.one_in(4).then(|| {
            let record = |sequence: &SequenceNumber| (*sequence, Bytes::from_static(b"record"));
            sequences.iter().map(record).collect()
        });
        Act { step, sequences, deed, breaks_locks: self.one_in(2), kept }
    }
}

/// Returns a command for a topic, by number.
pub(super) fn topic_command(random: &mut Random, number: u64, limits: &Limits) -> Command {
    let id = EntityId(2 + random.below(4));
    let rule = RuleDescription::new(format!("r{}", random.below(5)), Filter::True, now());
    let in_subscription = |command| TopicCommand::InSubscription { subscription: id, command };
    Command::OfTopic(match number % 9 {
        0 => TopicCommand::CreateSubscription {
            id,
            description: Box::new(SubscriptionDescription::new("events", id.0.to_string(), limits)),
            rules: vec![rule; usize::try_from(random.below(2)).unwrap()],
        },
        1 if random.one_in(4) => TopicCommand::RemoveSubscription { id },
        2 => TopicCommand::Update {
            description: Box::new(TopicDescription {
                max_size_in_megabytes: 1_024,
                ..TopicDescription::new("events", limits)
            }),
            read_at: None,
        },
        3 => in_subscription(RuleCommand::Create(Box::new(rule))),
        4 => in_subscription(RuleCommand::Update(Box::new(rule))),
        5 => in_subscription(RuleCommand::Delete(rule.name)),
        6 => in_subscription(RuleCommand::Get(rule.name)),
        7 => in_subscription(RuleCommand::List { skip: 0, top: 10 }),
        _ => in_subscription(RuleCommand::Explain(Box::new(random.message()))),
    })
}
