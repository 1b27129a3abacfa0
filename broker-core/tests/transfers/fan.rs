//! What the topic does that is published to, said as simply as possible: of its subscriptions two have a rule each, for
//! messages of their lane, or none at the moment, and the third is a catch-all that selects everything. So behind the
//! topic, too, every message is in exactly one place, and in which is known when it is published (TOP-25, TOP-26,
//! TOP-28).

use std::collections::BTreeMap;

use peeklock_core::message::Message;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::Timestamp;

/// The subscriptions, the catch-all last.
pub const SUBSCRIPTIONS: usize = 3;
/// The catch-all.
pub const CATCH_ALL: usize = SUBSCRIPTIONS - 1;
/// The name of the rule of a lane.
pub const RULE: &str = "lane";

const LANES: u64 = 3;
const WEIGHTS: u64 = 5;

/// Why a message comes to the subscription that it comes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    /// The rule of its lane selects it.
    Selected,
    /// There is no subscription for its lane.
    NoLane,
    /// The subscription of its lane has no rule.
    NoRule,
    /// The rule of its lane fails on it.
    Failing,
}

/// What is known of the topic.
#[derive(Default)]
pub struct Fan {
    /// The ids of the subscriptions.
    pub ids: [u64; SUBSCRIPTIONS],
    /// Whether those of a lane have their rule, as the topic has carried out what it was asked.
    pub has_rule: [bool; CATCH_ALL],
    /// Where messages go that were published and have not been seen there.
    destined: BTreeMap<u64, (usize, Why)>,
    /// How many have come, and why.
    pub reached: BTreeMap<Why, u64>,
}

impl Fan {
    /// A message is published, unless it is refused.
    pub fn publish(&mut self, marker: u64) {
        let destined = self.destination(marker);
        self.destined.insert(marker, destined);
    }

    /// Where a message goes by the rules that are there now.
    pub fn destination(&self, marker: u64) -> (usize, Why) {
        let lane = usize::try_from(marker % LANES).unwrap();
        match self.has_rule.get(lane) {
            None => (CATCH_ALL, Why::NoLane),
            Some(false) => (CATCH_ALL, Why::NoRule),
            Some(true) if lane == 0 && marker.is_multiple_of(WEIGHTS) => (CATCH_ALL, Why::Failing),
            Some(true) => (lane, Why::Selected),
        }
    }

    /// A message has come to an entity; if that is one of the subscriptions, it is the right one.
    pub fn came(&mut self, marker: u64, entity: u64) {
        let Some(found) = self.ids.iter().position(|id| *id == entity) else { return };
        let destined = self.destined.remove(&marker);
        let Some((subscription, why)) = destined else {
            panic!("{marker} is in subscription {found}, and was not published");
        };
        assert_eq!(found, subscription, "{marker} has come there, being {why:?} (TOP-25, TOP-28)");
        *self.reached.entry(why).or_default() += 1;
    }
}

/// The rule of a lane: one by lookup, one that is evaluated, and fails where there is no weight.
pub fn rule(lane: usize) -> RuleDescription {
    let filter = match lane {
        0 => Filter::sql("lane = 0 AND 10 / weight > 0"),
        lane => {
            let lane = i64::try_from(lane).unwrap();
            Filter::Correlation(CorrelationFilter::default().and_property(RULE, lane))
        }
    };
    RuleDescription::new(RULE, filter, Timestamp::NONE)
}

/// The message, with what rules look at.
pub fn in_its_lane(message: Message, marker: u64) -> Message {
    let number = |number: u64| i64::try_from(number).unwrap();
    message
        .with_application_property(RULE, number(marker % LANES))
        .with_application_property("weight", number(marker % WEIGHTS))
}
