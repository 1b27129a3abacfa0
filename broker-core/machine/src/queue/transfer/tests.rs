//! Order and timing of messages that leave a queue, as its machine decides without a broker.

use super::*;
use crate::command::{Command, InboundMessage};
use crate::config::{ForwardingConfig, QueueConfig};
use crate::description::QueueDescription;
use crate::effect::Effect;
use crate::ids::{EntityId, Ticket};
use crate::limits::Limits;
use crate::message::{Message, PropertyLimits};
use crate::record::Reserved;
use crate::time::TimeSpan;
use crate::transfer::Departure;
use crate::{Ctx, Machine, StepOutput};

const KEY: [u8; 16] = [7; 16];

/// A queue. Each turn is a stage, which the test makes durable.
struct Stand {
    queue: Queue,
    limits: Limits,
    now: Timestamp,
    stage: u64,
    /// The list that was handed over last.
    list: ListNumber,
}

impl Stand {
    fn new(forward_to: Option<&str>) -> Self {
        let limits = Limits::default();
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: ForwardingConfig::default(),
        };
        let mut description = QueueDescription::new("a", &limits);
        description.forward_to = forward_to.map(Into::into);
        description.max_delivery_count = 2;
        let queue = Queue::new(EntityId(1), description, config, now);
        Self { queue, limits, now, stage: 0, list: ListNumber(0) }
    }

    /// Runs one turn, a second after the previous one, so that all delays have passed. Returns the
    /// numbers of the messages handed over.
    fn turn(&mut self, command: Option<Command>) -> Vec<u64> {
        self.stage += 1;
        self.now = self.now.plus(TimeSpan::from_seconds(1));
        let mut step = StepOutput::default();
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(self.stage),
            stored_bytes: 0,
            room: Reserved::Granted,
            remaining: crate::RemainingCapacity::ALL,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        self.queue.advance(&mut ctx, &mut step);
        if let Some(command) = command {
            self.queue.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step).unwrap();
        }
        self.queue.serve(&mut ctx, &mut step);
        self.queue.check_invariants().unwrap();
        let mut left = Vec::new();
        for effect in step.effects {
            if let Effect::HandOver(list) = effect {
                assert!(left.is_empty(), "one list for each exit");
                self.list = list.list;
                left = list.messages.iter().map(|one| one.facts.sequence.0).collect();
            }
        }
        left
    }

    /// Makes all stages durable; returns the numbers of the messages handed over then.
    fn land(&mut self) -> Vec<u64> {
        self.queue.committed(StageNumber(self.stage));
        self.turn(None)
    }

    fn send(&mut self, count: usize) {
        let messages = self.messages(count);
        self.turn(Some(Command::SendBatch { messages }));
    }

    fn send_via(&mut self, count: usize) {
        let messages = self.messages(count);
        self.turn(Some(Command::SendVia { destination: "b".into(), messages }));
    }

    fn messages(&self, count: usize) -> Vec<InboundMessage> {
        let message = || {
            let content = Message::new("").encode();
            let envelope = content.envelope(&PropertyLimits::default(), &KEY);
            InboundMessage { content, envelope }
        };
        (0..count).map(|_| message()).collect()
    }

    /// Reports results for the last list.
    fn ended(&mut self, departures: Vec<Departure>) -> Vec<u64> {
        self.turn(Some(Command::EndTransfer { list: self.list, departures }))
    }
}

fn refused() -> Departure {
    Departure::Refused { reason: "Unwanted".into(), description: "by it".into() }
}

fn failed() -> Departure {
    Departure::Failed { why: "no".into(), retry_after: Some(TimeSpan::ZERO) }
}

/// FWD-10, FWD-32: no message leaves before the results of the previous list are stored: refused,
/// delivered, failed, or dead-lettered after failures. A failed message leaves first.
#[test]
fn queue_hands_nothing_over_before_list_results_are_durable() {
    for (departure, next) in
        [(refused(), vec![2]), (Departure::Delivered, vec![2]), (failed(), vec![1, 2])]
    {
        let mut stand = Stand::new(Some("b"));
        stand.send(2);
        assert_eq!(stand.land(), [1, 2]);
        let name = format!("{departure:?}");
        assert_eq!(stand.ended(vec![departure]), [0; 0], "{name}");
        assert_eq!(stand.turn(None), [0; 0], "{name}");
        assert_eq!(stand.land(), next, "{name}");
        if next == [1, 2] {
            assert_eq!(stand.ended(vec![failed()]), [0; 0], "given up");
            assert_eq!(stand.land(), [2]);
        }
    }
}

/// FWD-10, VIA-01: the same for messages with a named destination, even if the list had the last
/// waiting message and another message comes while the result is in flight.
#[test]
fn named_exit_exists_until_its_results_are_durable() {
    for departure in [refused(), Departure::Delivered] {
        let mut stand = Stand::new(None);
        stand.send_via(1);
        assert_eq!(stand.land(), [1]);
        stand.send_via(1);
        let earlier = StageNumber(stand.stage);
        let name = format!("{departure:?}");
        assert_eq!(stand.ended(vec![departure]), [0; 0], "{name}");
        stand.queue.committed(earlier);
        assert_eq!(stand.turn(None), [0; 0], "{name}");
        assert_eq!(stand.land(), [2], "{name}");
        stand.ended(vec![Departure::Taken]);
        assert!(stand.queue.transfers.pending.is_empty(), "{name}");
    }
}

/// VIA-01: a destination is forgotten with its last message and created again by the next one. A
/// failed message is offered before new ones.
#[test]
fn idle_named_exit_is_created_again_on_demand() {
    let mut stand = Stand::new(None);
    for number in [1, 2] {
        stand.send_via(1);
        assert!(stand.queue.transfers.pending.is_empty(), "it is not durable");
        assert_eq!(stand.land(), [number]);
        assert_eq!(stand.ended(vec![Departure::Taken]), [0; 0]);
        assert!(stand.queue.transfers.pending.is_empty());
    }
    stand.send_via(1);
    assert_eq!(stand.land(), [3]);
    stand.send_via(1);
    assert_eq!(stand.ended(vec![failed()]), [0; 0]);
    assert_eq!(stand.land(), [3, 4]);
}

/// FWD-10: a destination examines a list up to the first message that could only be taken after a
/// refused one. So the next list is short, and lists grow while none is cut short.
#[test]
fn lists_are_short_after_a_list_was_cut_short() {
    let mut stand = Stand::new(Some("b"));
    stand.send(300);
    assert_eq!(stand.land().len(), 256);
    assert_eq!(stand.ended(vec![Departure::Taken, refused()]), [0; 0]);
    assert_eq!(stand.land(), Vec::from_iter(3..=18));
    for (taken, next) in [(16, 32), (32, 64), (64, 128), (128, 58)] {
        assert_eq!(stand.ended(vec![Departure::Taken; taken]).len(), next);
    }
}

/// FWD-10: a list in transit keeps its exit, even if the exit was forgotten when the last waiting
/// message was dead-lettered.
#[test]
fn list_in_transit_keeps_its_exit_after_destination_was_forgotten() {
    let mut transfers = Transfers::default();
    let exit = Exit::Pending("b".into());
    let list = List { number: ListNumber(1), sequences: vec![SequenceNumber(7)] };
    assert!(transfers.backlog(&exit).is_none());
    transfers.begin_list(&exit, list);
    assert_eq!(transfers.under_way().collect::<Vec<_>>(), [SequenceNumber(7)]);
    transfers.forget_idle("b");
    assert!(transfers.backlog(&exit).is_some_and(|backlog| backlog.list.is_some()));
}
