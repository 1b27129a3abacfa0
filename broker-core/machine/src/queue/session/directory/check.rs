//! Invariants of the directory, which hold after any operation. `queue/invariant.rs` calls it in
//! tests.

use super::Sessions;
use crate::ids::SequenceNumber;

impl Sessions {
    /// Checks the directory against its sessions.
    pub(in crate::queue) fn check(&self) -> Result<(), String> {
        let mut messages = 0;
        let (mut open, mut held_count, mut states) = (0, 0, 0);
        let (mut links, mut calls, mut waits, mut endings) = (0, 0, 0, 0);
        let (mut rests, mut open_rests) = (0, 0);
        for (name, index) in &self.by_name {
            let Some(session) = self.get(*index) else {
                return Err(format!("session {name} has no place"));
            };
            messages += session.members.len();
            if let Some(delayed) = self.delayed.get(index) {
                rests += 1;
                let is_rest = |sequence| {
                    session.members.contains(sequence) && !session.available.contains(sequence)
                };
                let all = &delayed.all;
                if all.is_empty() || !all.iter_from(SequenceNumber(0)).all(is_rest) {
                    return Err(format!(
                        "a Delayed message of session {name} is not in it, or available"
                    ));
                }
                let mut holding = delayed.holding.iter_from(SequenceNumber(0));
                if !holding.all(|sequence| all.contains(sequence)) {
                    return Err(format!(
                        "session {name} waits for a message that does not rest (RTY-22)"
                    ));
                }
                let first = all.first().filter(|_| session.hold.is_none());
                let found = first.and_then(|first| self.open_delayed.get(&first));
                if delayed.found_by != first || found != first.and(Some(index)) {
                    return Err(format!(
                        "a Delayed message of session {name} is not found (RTY-13)"
                    ));
                }
                open_rests += u64::from(first.is_some());
            }
            states += u64::from(session.state.is_some());
            if !session.exists() || session.name != *name {
                return Err(format!(
                    "session {name} is in the directory without a reason (SES-04)"
                ));
            }
            let offered = self.next_message(*index).filter(|_| session.hold.is_none());
            if session.offered != offered {
                return Err(format!("session {name} is offered as {:?}", session.offered));
            }
            if let Some(number) = offered {
                open += 1;
                if self.open.get(&number) != Some(index) {
                    return Err(format!("session {name} cannot be accepted (SES-07)"));
                }
            }
            if let Some(hold) = &session.hold {
                held_count += 1;
                endings += u64::from(hold.ended.is_some());
                links += u64::from(hold.link.is_some());
                calls += hold.calls.len() as u64;
                let first = hold.calls.first_deadline();
                waits += u64::from(first.is_some());
                let is_known = first.is_none_or(|(at, _)| self.waits.contains(&(at, *index)));
                if !is_known || !hold.calls.is_whole() {
                    return Err(format!("a waiting call for session {name} has no deadline"));
                }
                if self.by_receiver.get(&hold.receiver) != Some(index)
                    || self.by_epoch.get(&hold.epoch) != Some(index)
                    || !self.ends.contains(&(hold.until, *index))
                {
                    return Err(format!("the lock of session {name} is not known (SES-11)"));
                }
            }
        }
        let counts = [
            (messages, self.by_message.len() as u64, "messages"),
            (open, self.open.len() as u64, "open sessions"),
            (rests, self.delayed.len() as u64, "sessions with delayed messages"),
            (open_rests, self.open_delayed.len() as u64, "open sessions with delayed messages"),
            (states, self.state_count as u64, "states"),
            (held_count, self.by_receiver.len() as u64, "holders"),
            (held_count, self.by_epoch.len() as u64, "locks"),
            (held_count, self.ends.len() as u64, "ends of locks"),
            (endings, self.ending.len() as u64, "holds that end"),
            (links, self.link_count as u64, "links"),
            (calls, self.by_call.len() as u64, "calls"),
            (waits, self.waits.len() as u64, "ends of calls"),
            (
                (self.places.len() - self.free.len()) as u64,
                self.by_name.len() as u64,
                "places of sessions",
            ),
        ];
        for (counted, listed, kind) in counts {
            if counted != listed {
                return Err(format!("{counted} {kind}, {listed} in the directory"));
            }
        }
        self.waiting.check()
    }
}
