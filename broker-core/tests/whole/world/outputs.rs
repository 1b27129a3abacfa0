//! Answers to clients, compared with the predicted ones.

use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::machine::slot::SlotState;
use peeklock_core::message::Overlay;
use peeklock_core::request::Released;
use peeklock_core::transaction::PartOutcome;

use super::{Delivery, World};
use crate::image::bare;
use crate::oracle::{Done, Reply};

impl World {
    pub(super) fn process_outputs(&mut self) {
        for item in self.outlet.take() {
            let Released::Answer { correlation, result } = item else { continue };
            let Some(id) = self.asked.remove(&correlation) else { continue };
            let expected = self.oracle.replies.remove(&correlation);
            let is_lost = matches!(&result, Err(error)
                if error.condition() == Condition::InternalError);
            if is_lost && self.has_failed(id) {
                self.note(|| format!("  {correlation}: unknown"));
                continue;
            }
            let expected = expected
                .unwrap_or_else(|| panic!("{correlation} is answered {result:?}, nothing is due"));
            let found = self.reply(id, result);
            self.note(|| format!("  {correlation}: {found:?}"));
            assert_eq!(found, expected, "command {correlation} of {id}");
            let last = match &found {
                Reply::Numbers(all) => all.iter().copied().max().unwrap_or(0),
                _ => 0,
            };
            // An answer with a lock is immediate and does not prove that anything is durable.
            let is_gated =
                !matches!(found, Reply::Messages(_) | Reply::Accepted(_) | Reply::Until(_));
            if is_gated {
                self.oracle.settled(id, correlation, last);
            }
        }
    }

    fn reply(&mut self, id: u64, result: Result<Outcome, Rejection>) -> Reply {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(error) => return Reply::Refused(error.condition()),
        };
        match outcome {
            Outcome::Done => Reply::Done,
            Outcome::Accepted(number) => Reply::Numbers(vec![number.0]),
            Outcome::AcceptedBatch(numbers) => {
                Reply::Numbers(numbers.into_iter().map(|number| number.0).collect())
            }
            Outcome::Renewed(until) => Reply::Until(until),
            Outcome::SessionAccepted { session, locked_until, .. } => {
                let session = session.parse().unwrap();
                let until = self.oracle.entities[&id].holds[&session].until;
                assert_eq!(locked_until, until, "a session lock lasts LockDuration (SES-12)");
                Reply::Accepted(session)
            }
            Outcome::SessionState(state) => {
                Reply::State(state.map(|state| state.loaded().unwrap()[0]))
            }
            Outcome::Received(all) => {
                Reply::Messages(all.iter().map(|one| self.received(id, one)).collect())
            }
            Outcome::Peeked(all) => {
                let seen = |one: &ReceivedMessage| {
                    use peeklock_core::command::MessageState;
                    let state = match one.facts.state {
                        MessageState::Active | MessageState::Delayed => SlotState::Active,
                        MessageState::Deferred => SlotState::Deferred,
                        MessageState::Scheduled => SlotState::Scheduled,
                    };
                    let until = one.facts.delayed_until;
                    let is_delayed = one.facts.state == MessageState::Delayed;
                    assert_eq!(is_delayed, until.is_some(), "{one:?} (RTY-12)");
                    (one.facts.sequence.0, one.facts.delivery_count, state, until)
                };
                Reply::Peeked(all.iter().map(seen).collect())
            }
            Outcome::Committed(parts) => {
                let done = |part| match part {
                    PartOutcome::Done => Done::Settled,
                    PartOutcome::Accepted(number) => Done::Numbers(vec![number.0]),
                    PartOutcome::AcceptedBatch(all) | PartOutcome::Pending(all) => {
                        Done::Numbers(all.into_iter().map(|number| number.0).collect())
                    }
                    PartOutcome::Renewed(until) => Done::Until(until),
                };
                Reply::Committed(parts.into_iter().map(done).collect())
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// A delivered message is the stored one, and its lock is new (SET-15, TOP-08).
    fn received(&mut self, id: u64, one: &ReceivedMessage) -> (u64, u32) {
        let (sequence, sub_queue) = (one.facts.sequence.0, one.facts.sub_queue);
        let content = one.content.loaded().unwrap().clone();
        let overlays: Vec<Overlay> = one
            .overlays
            .iter()
            .map(|overlay| Overlay::from_bytes(overlay.loaded().unwrap().clone()))
            .collect();
        let shown = (sequence, one.facts.shown_delivery_count());
        let Some(grant) = one.facts.lock else { return shown };
        assert!(self.tokens.insert(grant.token.0), "a token is given twice (SET-15)");
        let entity = self.oracle.entities.get_mut(&id).unwrap();
        let Some(card) = entity.cards.get_mut(&sequence) else {
            panic!("{id}/{sequence} is delivered and is not there (LIF-01)");
        };
        assert_eq!(
            card.record.bare,
            bare(content, &overlays),
            "{id}/{sequence} is as it was stored"
        );
        let Some(lock) = &mut card.lock else {
            panic!("{id}/{sequence} is delivered under a lock that nobody has");
        };
        assert_eq!(lock.token, None, "{id}/{sequence} is locked twice (RCV-05)");
        lock.token = Some(grant.token.0);
        let until = match lock.hold {
            Some(name) => {
                let hold = entity.holds.values().find(|hold| hold.name == name).unwrap();
                self.oracle.token_holds.insert(grant.token.0, name);
                hold.until
            }
            None => lock.until,
        };
        assert_eq!(grant.until, until, "a lock lasts LockDuration (RCV-06)");
        self.deliveries.push(Delivery { id, sub_queue, token: grant.token.0 });
        shown
    }
}
