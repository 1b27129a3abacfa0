//! Draws of the seed.

use peeklock_core::description::{EntityStatus, RetryKind};
use peeklock_core::message::{Message, MessageId, Value};
use peeklock_core::time::TimeSpan;

use super::World;
use crate::image::Bare;
use crate::oracle::{Kind, Mutable, Retry};
use crate::rules::{Act, Rule, Select};

impl World {
    pub(super) fn draw_rule(&mut self) -> Rule {
        let select = match self.random.below(8) {
            0 | 1 => Select::All,
            2 => Select::None,
            3 | 4 => Select::Subject(self.random.below(3)),
            5 | 6 => Select::Greater(i32::try_from(self.random.below(5)).unwrap()),
            _ => Select::Divides,
        };
        let act = match self.random.below(6) {
            0 | 1 => Some(Act::Mark(self.random.below(9))),
            2 => Some(Act::Divide),
            3 => Some(Act::RemoveSession),
            _ => None,
        };
        Rule { select, act }
    }

    pub(super) fn draw_mutable(&mut self, id: u64, kind: Kind) -> Mutable {
        let status = match self.random.below(20) {
            0 => EntityStatus::Disabled,
            1 if kind != Kind::Subscription => EntityStatus::SendDisabled,
            2 if kind != Kind::Topic => EntityStatus::ReceiveDisabled,
            _ => EntityStatus::Active,
        };
        let odds = match id {
            1 => 15,
            3 => 50,
            4 | 8 => 75,
            6 => 20,
            _ => 0,
        };
        let forward_to = self.draw_destination(id, odds);
        let forward_dead = if kind == Kind::Topic { None } else { self.draw_destination(id, 30) };
        let catch_all = kind == Kind::Subscription && self.random.one_in(4);
        let retry = (kind != Kind::Topic && self.random.one_in(3)).then(|| self.draw_retry());
        let passes = kind != Kind::Topic && self.random.one_in(2);
        Mutable { status, forward_to, forward_dead, catch_all, retry, passes }
    }

    fn draw_retry(&mut self) -> Retry {
        let kind = *self.random.pick(&RetryKind::ALL).unwrap();
        let delay = i64::try_from(self.random.between(1, 4)).unwrap() * 1_000;
        let most =
            self.random.one_in(2).then(|| delay + i64::try_from(self.random.below(4_000)).unwrap());
        Retry { kind, delay, most }
    }

    /// Another queue or the topic, or an entity that was deleted meanwhile.
    fn draw_destination(&mut self, id: u64, odds: u64) -> Option<String> {
        if self.random.below(100) >= odds {
            return None;
        }
        let own = format!("q{}", id - 1);
        let all = ["q0", "q1", "q2", "q3", "t", "t", "nowhere"];
        let can_be = |one: &&&str| **one != own && (id < super::TOPIC || **one != "t");
        let all: Vec<&str> = all.iter().filter(can_be).copied().collect();
        self.random.pick(&all).map(|one| (*one).to_owned())
    }

    pub(super) fn draw_message(&mut self, with_session: bool) -> Bare {
        let marker = self.next_marker;
        self.next_marker += 1;
        let schedule = self.random.one_in(6).then(|| {
            let ms = i64::try_from(self.random.between(1, 8)).unwrap() * 1_000;
            self.oracle.now.plus(TimeSpan::from_ms(ms))
        });
        let time_to_live = self
            .random
            .one_in(4)
            .then(|| TimeSpan::from_seconds(i64::try_from(self.random.between(2, 25)).unwrap()));
        Bare {
            marker,
            number: i32::try_from(self.random.below(6)).unwrap(),
            subject: self.random.below(3),
            session: (with_session || self.random.one_in(2)).then(|| self.random.below(3)),
            id: if self.random.one_in(3) {
                format!("id{}", self.random.below(12))
            } else {
                String::new()
            },
            time_to_live,
            schedule,
            rule: None,
            mark: None,
            reason: None,
            source: None,
        }
    }

    /// The same message in the type of the broker.
    pub(super) fn inbound(&self, bare: &Bare) -> peeklock_core::command::InboundMessage {
        self.inbound_of(bare, usize::try_from(bare.marker % 7 * 40).unwrap())
    }

    pub(super) fn inbound_of(
        &self,
        bare: &Bare,
        filling: usize,
    ) -> peeklock_core::command::InboundMessage {
        let filling = "x".repeat(filling);
        let message = Message {
            message_id: bare.own_id().map(|id| MessageId::String(id.to_owned())),
            session_id: bare.session.map(|session| session.to_string()),
            subject: Some(bare.subject.to_string()),
            time_to_live: bare.time_to_live,
            scheduled_enqueue_time: bare.schedule,
            ..Message::new(format!("{}{filling}", bare.marker))
        };
        self.edge.take(message.with_application_property("number", Value::I32(bare.number)))
    }
}
