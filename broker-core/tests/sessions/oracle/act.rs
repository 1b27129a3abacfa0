//! Steps of an operator's job on messages of sessions.

use peeklock_core::command::{ActResult, Deed};

use super::{Oracle, Reply, State};

impl Oracle {
    /// CON-12, CON-26: a held session changes nothing. Only the lock of the session is ever broken.
    pub fn act(&mut self, numbers: &[u64], deed: &Deed) -> Reply {
        let results = numbers.iter().map(|number| self.act_on(*number, deed));
        Reply::Acted(results.collect())
    }

    fn act_on(&mut self, number: u64, deed: &Deed) -> ActResult {
        let found = self.messages.iter().position(|one| {
            one.sequence == number && !matches!(one.state, State::DeadLettered | State::Gone)
        });
        let Some(index) = found else { return ActResult::NotFound };
        let is_expired = self.is_expired(&self.messages[index]);
        let message = &mut self.messages[index];
        if matches!(message.state, State::Locked | State::LockedDeferred) {
            self.reach("CON-12 locked");
            return ActResult::Locked;
        }
        if message.in_flight {
            return ActResult::Busy;
        }
        match (deed, message.state) {
            (Deed::Delete, _) => message.state = State::Gone,
            (Deed::DeadLetter { .. }, state) if state != State::Scheduled => {
                message.state = State::DeadLettered;
            }
            (Deed::Undefer, State::Deferred | State::LockedDeferred) => {
                if is_expired {
                    return ActResult::Expired;
                }
                message.state = State::Available;
                message.in_flight = true;
                self.reach("CON-12 undefer");
            }
            _ => return ActResult::WrongState,
        }
        self.reach("CON-12");
        ActResult::Done
    }
}
