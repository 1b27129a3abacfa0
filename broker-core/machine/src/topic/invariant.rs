//! Invariants of a topic after every step. The model test checks them.

use super::{Topic, sessions_of};
use crate::path::SubQueue;
use crate::queue::BrokenInvariant;
use crate::slot::SlotState;

impl Topic {
    /// Checks the whole state against itself, in time linear in its size.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        let broken = |detail: String| Err(BrokenInvariant(detail));
        let mut bytes = 0;
        for (sequence, slot) in self.slots.iter() {
            bytes += u64::from(slot.size);
            if sequence > self.last_sequence {
                return broken(format!("{sequence} is above the last number"));
            }
            if slot.state != SlotState::Scheduled || slot.sub_queue != SubQueue::Main {
                return broken(format!("{sequence} is held by a topic and not scheduled (DLQ-32)"));
            }
        }
        if bytes != self.scheduled_bytes {
            return broken(format!(
                "{} bytes are counted, {bytes} are stored",
                self.scheduled_bytes
            ));
        }
        if let Some(sequence) = self.sources.keys().find(|one| self.slots.get(**one).is_none()) {
            return broken(format!("{sequence} is listed as a dead letter but does not exist"));
        }
        if let Some(outbox) = &self.outbox {
            outbox.check_invariants()?;
            if outbox.last_sequence() > self.last_sequence {
                return broken("the outbox has used a number that the topic does not know".into());
            }
            if let Some((sequence, _)) = self.slots.iter().find(|(one, _)| outbox.holds(*one)) {
                return broken(format!("{sequence} is scheduled and in the outbox (LIF-02)"));
            }
            let counts = outbox.counts();
            if counts.total() != counts.transfer + counts.transfer_dead_letter {
                return broken(format!("the outbox has messages for receivers: {counts:?}"));
            }
        }
        for (stage, sequence) in &self.in_flight {
            let held_back = self.slots.get(*sequence).is_none_or(|slot| slot.is_in_flight());
            if !held_back {
                return broken(format!("{sequence} is in flight in {stage:?} and offered"));
            }
        }
        for id in self.subscriptions.keys() {
            if self.matcher.settings(*id)
                != self.subscriptions.get(id).map(|one| one.settings.rules)
            {
                return broken(format!("the rules of subscription {id:?} have other settings"));
            }
        }
        if self.matcher.subscription_count() != self.subscriptions.len() {
            return broken("the rules have other subscriptions than the topic".to_owned());
        }
        let with_sessions: usize =
            self.subscriptions.values().map(|subscription| sessions_of(Some(subscription))).sum();
        if self.session_subscription_count != with_sessions {
            return broken(format!(
                "{} subscriptions with sessions are counted, {with_sessions} exist",
                self.session_subscription_count
            ));
        }
        Ok(())
    }
}
