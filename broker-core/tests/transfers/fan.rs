//! A simple model of the published topic: two subscriptions have a rule each, for messages of their
//! lane, or temporarily none, and the third is a catch-all that selects everything. So every
//! message after the topic is in exactly one place, too, which is known when it is published
//! (TOP-25, TOP-26, TOP-28).

use std::collections::BTreeMap;

use peeklock_core::message::Message;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::Timestamp;

/// The number of subscriptions, with the catch-all last.
pub const SUBSCRIPTIONS: usize = 3;
/// The catch-all.
pub const CATCH_ALL: usize = SUBSCRIPTIONS - 1;
/// The name of the rule of a lane.
pub const RULE: &str = "lane";

const LANES: u64 = 3;
const WEIGHTS: u64 = 5;

/// Reason for which a message reaches its subscription.
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

/// Knowledge about the topic.
#[derive(Default)]
pub struct Fan {
    /// The ids of the subscriptions.
    pub ids: [u64; SUBSCRIPTIONS],
    /// Whether each lane has its rule, after the carried-out commands.
    pub has_rule: [bool; CATCH_ALL],
    /// Destinations of published messages that have not been seen there.
    destined: BTreeMap<u64, (usize, Why)>,
    /// Number of arrivals, by reason.
    pub reached: BTreeMap<Why, u64>,
}

impl Fan {
    /// Records the publish of a message that was not refused.
    pub fn publish(&mut self, marker: u64) {
        let destined = self.destination(marker);
        self.destined.insert(marker, destined);
    }

    /// Destination of a message by the current rules.
    pub fn destination(&self, marker: u64) -> (usize, Why) {
        let lane = usize::try_from(marker % LANES).unwrap();
        match self.has_rule.get(lane) {
            None => (CATCH_ALL, Why::NoLane),
            Some(false) => (CATCH_ALL, Why::NoRule),
            Some(true) if lane == 0 && marker.is_multiple_of(WEIGHTS) => (CATCH_ALL, Why::Failing),
            Some(true) => (lane, Why::Selected),
        }
    }

    /// Checks the arrival of a message at an entity; if it is a subscription, it must be the right
    /// one.
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

/// The rule of a lane: one is found by lookup, the other is evaluated and fails without a weight.
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

/// The message with the properties that rules read.
pub fn in_its_lane(message: Message, marker: u64) -> Message {
    let number = |number: u64| i64::try_from(number).unwrap();
    message
        .with_application_property(RULE, number(marker % LANES))
        .with_application_property("weight", number(marker % WEIGHTS))
}
