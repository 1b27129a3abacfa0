//! Bounded tables of names, so that a station needs only a number.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::entry::Noted;
use super::hash::ByNumber;
use super::query::StationKind;
use crate::clients::Clients as Registry;
use crate::findings::{Holder, HolderFacts};
use crate::ids::JobId;

/// Maximum number of names of rules. A further one makes all others be forgotten.
pub(super) const RULE_COUNT_MAX: usize = 16_384;
/// Maximum number of jobs; the earliest is forgotten first.
const JOB_COUNT_MAX: usize = 4_096;
/// Maximum number and size of clients; the earliest is forgotten first.
const CLIENT_COUNT_MAX: usize = 8_192;
const CLIENT_BYTES_MAX: usize = 2 << 20;
/// Memory for a client without its texts.
const CLIENT_BYTES: usize = 256;

/// Names of rules, by a number from 1 on.
#[derive(Default)]
pub(super) struct Rules {
    numbers: HashMap<Arc<str>, u16>,
    names: Vec<Arc<str>>,
    round: RuleRound,
    /// Instant of the latest station of earlier rounds.
    earlier_until: Option<i64>,
}

/// Number of times that all names of rules were forgotten. The numbers of names begin again then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct RuleRound(u32);

/// Jobs, by a number from 1 on.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: VecDeque<JobId>,
    /// Number of forgotten jobs.
    forgotten: u32,
}

/// Clients by their receivers.
#[derive(Default)]
pub(super) struct Clients {
    /// None for a receiver without a client.
    by_receiver: ByNumber<u32, Option<Holder>>,
    order: VecDeque<u32>,
    bytes: usize,
    /// The receiver that was noted last.
    latest: u32,
}

impl Rules {
    /// Returns the number of a name, and its round. `latest_at` is the instant of the latest
    /// station.
    pub(super) fn number(&mut self, name: &str, latest_at: i64) -> (u16, RuleRound) {
        if let Some(number) = self.numbers.get(name) {
            return (*number, self.round);
        }
        if self.names.len() >= RULE_COUNT_MAX {
            self.numbers.clear();
            self.names.clear();
            self.round = RuleRound(self.round.0.wrapping_add(1));
            self.earlier_until = Some(latest_at);
        }
        let number = u16::try_from(self.names.len() + 1).unwrap_or(0);
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        (number, self.round)
    }

    pub(super) const fn round(&self) -> RuleRound {
        self.round
    }

    /// Returns the name of a number in a station; none if it is forgotten.
    pub(super) fn name(&self, number: u16, at: i64) -> Option<Arc<str>> {
        if self.earlier_until.is_some_and(|until| at <= until) {
            return None;
        }
        self.names.get(usize::from(number).checked_sub(1)?).cloned()
    }
}

impl Jobs {
    /// Returns the number of a job.
    pub(super) fn number(&mut self, job: JobId) -> u32 {
        // The steps of a job are close to each other.
        let place = self.jobs.iter().rposition(|known| *known == job).unwrap_or_else(|| {
            if self.jobs.len() >= JOB_COUNT_MAX {
                self.jobs.pop_front();
                self.forgotten = self.forgotten.wrapping_add(1);
            }
            self.jobs.push_back(job);
            self.jobs.len() - 1
        });
        let place = u32::try_from(place).unwrap_or(0);
        self.forgotten.wrapping_add(place).wrapping_add(1)
    }

    /// Returns the job of a number.
    pub(super) fn job(&self, number: u32) -> Option<JobId> {
        let place = number.checked_sub(1)?.checked_sub(self.forgotten)?;
        self.jobs.get(usize::try_from(place).ok()?).copied()
    }
}

impl Clients {
    /// Returns the receivers of deliveries that are not in the table.
    pub(super) fn unknown_in(&mut self, noted: &[Noted]) -> Vec<u32> {
        let mut unknown = Vec::new();
        for Noted { entry, .. } in noted {
            let receiver = entry.actor;
            if entry.kind != StationKind::Delivered || receiver == 0 || receiver == self.latest {
                continue;
            }
            self.latest = receiver;
            if !self.by_receiver.contains_key(&receiver) && !unknown.contains(&receiver) {
                unknown.push(receiver);
            }
        }
        unknown
    }

    /// Remembers the client of a receiver, or that it has none.
    pub(super) fn note(&mut self, receiver: u32, facts: Option<HolderFacts>) {
        self.bytes += bytes_of(facts.as_ref());
        let before = self.by_receiver.insert(receiver, facts.map(Arc::new));
        match before {
            Some(before) => {
                self.bytes = self.bytes.saturating_sub(bytes_of(before.as_deref()));
            }
            None => self.order.push_back(receiver),
        }
        while self.order.len() > CLIENT_COUNT_MAX || self.bytes > CLIENT_BYTES_MAX {
            let Some(first) = self.order.pop_front() else { return };
            if let Some(facts) = self.by_receiver.remove(&first) {
                self.bytes = self.bytes.saturating_sub(bytes_of(facts.as_deref()));
            }
        }
    }

    /// Returns the client of a receiver. The registry knows whether it is still connected.
    pub(super) fn client(&self, receiver: u32, registry: &Registry) -> Option<Holder> {
        let known = registry.holder(registry.latest_receiver(receiver)).map(Arc::new);
        known.or_else(|| {
            let facts = HolderFacts::clone(self.by_receiver.get(&receiver)?.as_ref()?);
            Some(Arc::new(HolderFacts { is_connected: false, ..facts }))
        })
    }
}

/// Memory of a client. Its texts may be shared, but outlive the client here.
fn bytes_of(facts: Option<&HolderFacts>) -> usize {
    let text = |text: &Option<Arc<str>>| text.as_deref().map_or(0, str::len);
    CLIENT_BYTES + facts.map_or(0, |facts| text(&facts.name) + text(&facts.policy))
}
