//! Records the stations of messages (CON-29): notes them after each call of the machine, and hands
//! them over once a turn.

use std::sync::Arc;

use super::Shell;
use crate::change::Change;
use crate::ids::EntityId;
use crate::journeys::translate::{Step, changes_rules};
use crate::journeys::{Journeys, Noted, RuleRound};
use crate::machine::Machine;
use crate::machine::event::MessageEvent;
use crate::rule::RulePlace;
use crate::time::Timestamp;

/// Number of stations that are handed over before the end of a turn.
const NOTED_MAX: usize = 256;
/// Number of stations for which an entity keeps memory between turns.
const NOTED_KEPT: usize = 128;

/// Stations of the current turn.
pub(super) struct JourneyRecorder {
    entity: EntityId,
    path: Arc<str>,
    journeys: Arc<Journeys>,
    noted: Vec<Noted>,
    rules: RuleNumbers,
}

/// Numbers of the names of rules.
struct RuleNumbers {
    by_place: Vec<Option<u16>>,
    /// The round to which they belong.
    round: RuleRound,
}

impl JourneyRecorder {
    /// Notes a call of the machine.
    pub(super) fn note(
        &mut self,
        machine: &impl Machine,
        changes: &[Change],
        events: &[MessageEvent],
        now: Timestamp,
    ) {
        if changes.is_empty() && events.is_empty() {
            return;
        }
        let Self { entity, journeys, noted, rules, .. } = self;
        let before = noted.len();
        let step = Step { entity: *entity, now, changes, events, id_key: journeys.id_key() };
        step.translate(&mut |receipt| journeys.job_number(receipt.step.job), noted);
        let round = rules.round;
        for noted in noted.iter_mut().skip(before) {
            noted.name_rule(|rule| rules.number_of(machine, journeys, rule));
        }
        if rules.round != round {
            // Some of these have numbers of the round before.
            noted.iter_mut().for_each(Noted::forget_rule);
        }
        if changes.iter().any(changes_rules) {
            rules.by_place.clear();
        }
        if self.noted.len() >= NOTED_MAX {
            self.hand_over();
        }
    }

    /// Hands the stations over.
    pub(super) fn hand_over(&mut self) {
        if !self.noted.is_empty() {
            let own = (self.entity, &self.path);
            let round = self.journeys.add(own, &mut self.noted, self.rules.round);
            self.rules.begin(round);
            self.noted.clear();
            self.noted.shrink_to(NOTED_KEPT);
        }
    }
}

impl RuleNumbers {
    /// Returns the number of the name of a rule.
    fn number_of(&mut self, machine: &impl Machine, journeys: &Journeys, rule: RulePlace) -> u16 {
        let Ok(place) = usize::try_from(rule) else { return 0 };
        if let Some(Some(number)) = self.by_place.get(place) {
            return *number;
        }
        let Some(name) = machine.rule_name(rule) else { return 0 };
        let (number, round) = journeys.rule_number(name);
        self.begin(round);
        if self.by_place.len() <= place {
            self.by_place.resize(place + 1, None);
        }
        if let Some(known) = self.by_place.get_mut(place) {
            *known = Some(number);
        }
        number
    }

    /// Begins a round, in which the known numbers have other names.
    fn begin(&mut self, round: RuleRound) {
        if round != self.round {
            self.by_place.clear();
            self.round = round;
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Records the stations of messages.
    pub(crate) fn with_journeys(
        mut self,
        (entity, path): (EntityId, Arc<str>),
        journeys: Option<Arc<Journeys>>,
    ) -> Self {
        self.step.notes_events = journeys.is_some();
        self.journey = journeys.map(|journeys| {
            let rules = RuleNumbers { by_place: Vec::new(), round: journeys.rule_round() };
            let noted = Vec::new();
            Box::new(JourneyRecorder { entity, path, journeys, noted, rules })
        });
        self
    }
}
