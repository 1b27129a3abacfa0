//! One transaction that exceeds the size of a stage.

use peeklock_core::command::{Command, ReceiveMode, RuleCommand, Settlement, TopicCommand};
use peeklock_core::description::EntityStatus;
use peeklock_core::ids::LockToken;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{Operation, Part};

use super::{TOPIC, World};
use crate::image::Bare;
use crate::oracle::{Call, Lane, Mutable, Piece, Settled, Undertaking};
use crate::rules::{Rule, Select, rule};

/// The subscription that takes part.
const MEMBER: u64 = 6;
/// More than a stage holds (8 MiB), in messages of nearly a MiB.
const COUNT: usize = 10;
const FILLING: usize = 1_000_000;

impl World {
    /// In one transaction a topic publishes more than a stage holds and a subscription settles: the
    /// store has all of it after one batch, or nothing (TXN-01, TXN-15).
    pub fn commit_more_than_a_stage_holds() {
        let mut world = Self::new(1, false);
        world.odds = peeklock_store_testing::Odds::default();
        // Nothing is forwarded, because transfers are also bounded by bytes, which the oracle does
        // not model.
        for id in [TOPIC, MEMBER, 7, 8] {
            let to = Mutable {
                status: EntityStatus::Active,
                forward_to: None,
                forward_dead: None,
                catch_all: false,
                retry: None,
                passes: false,
            };
            world.update_to(id, to);
        }
        let all = Rule { select: Select::All, act: None };
        let command = Command::OfTopic(TopicCommand::InSubscription {
            subscription: Self::id(MEMBER),
            command: RuleCommand::Create(Box::new(rule("zulu", all))),
        });
        let main = SubQueue::Main;
        world.both(TOPIC, main, command, |oracle, _| {
            Some(oracle.set_rule(MEMBER, "zulu", Some(all), true))
        });
        let (first, message) = world.filled(0);
        world.both(TOPIC, main, Command::Send { message }, |oracle, _| {
            Some(oracle.send(TOPIC, &[first]))
        });
        world.come_to_rest();
        let wait = TimeSpan::ZERO;
        let mode = ReceiveMode::PeekLock;
        let command =
            Command::Receive { mode, count_max: 1, bytes_max: u64::MAX, wait, holder: None };
        world.both(MEMBER, main, command, |oracle, ticket| {
            let (lane, deadline) = (Lane::Of(main), oracle.now);
            let call = Call { ticket, lane, count_max: 1, deadline, holder: None, takes: false };
            oracle.receive(MEMBER, call)
        });
        let token = world.deliveries.last().expect("the message is there").token;
        let mut parts = Vec::new();
        let mut pieces = Vec::new();
        for _ in 0..COUNT {
            let (bare, message) = world.filled(FILLING);
            let operation = Operation::Send { message };
            parts.push(Part { member: None, sub_queue: main, operation, numbers: Vec::new() });
            let piece = Piece::Send(vec![bare]);
            pieces.push(Undertaking { id: TOPIC, sub_queue: main, piece });
        }
        let operation =
            Operation::Settle { token: LockToken(token), settlement: Settlement::Complete };
        parts.push(Part {
            member: Some(Self::id(MEMBER)),
            sub_queue: main,
            operation,
            numbers: Vec::new(),
        });
        let piece = Piece::Settle(token, Settled::Complete);
        pieces.push(Undertaking { id: MEMBER, sub_queue: main, piece });
        world.both_of(TOPIC, Some(MEMBER), main, Command::Commit { parts }, |oracle, _| {
            Some(oracle.commit(&pieces, Some(MEMBER)))
        });
        // Every batch is compared, and contains all or none of a command.
        world.come_to_rest();
    }

    fn filled(&mut self, filling: usize) -> (Bare, peeklock_core::command::InboundMessage) {
        let mut bare = self.draw_message(true);
        bare.schedule = None;
        bare.time_to_live = None;
        bare.id = String::new();
        let inbound = self.inbound_of(&bare, filling);
        bare.id = inbound.content.message_id().unwrap().into_owned();
        (bare, inbound)
    }
}
