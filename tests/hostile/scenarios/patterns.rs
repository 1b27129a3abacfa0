//! Messages that are slow to judge for each of many rules.

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::busy_topic;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    busy_topic(broker, 150, 2 * weight.min(8))
}
