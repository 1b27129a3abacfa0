//! Waiting until nothing is left to be done, for tests.

use super::Broker;
use crate::activity::AtWork;
use crate::actor::look::{Counts, Look, Round};

/// A courier who waits for the store is counted as at work, so it is not asked whether somebody is: what he has left to
/// do otherwise is done within a round.
const QUIET_ROUNDS: u32 = 3;

impl Broker {
    /// Waits until nothing is left to be done before time passes or somebody asks something: nothing is in a mailbox, on
    /// its way to the store or to another entity, and no handler of a consumer has a message. Receives that wait are
    /// nothing to be done, nor are messages that wait for a receiver, for an instant or for room.
    ///
    /// For tests, of a broker that was built with [`crate::BrokerBuilder::watched`]; of any other what its consumers and
    /// couriers are at is not known. It counts consumers of this process, not those that are connected to it.
    pub async fn idle(&self) {
        let shared = &self.shared;
        let mut quiet_before = None;
        loop {
            shared.activity.none_at_work().await;
            let turns = shared.pulses.turns();
            let (round, told) = Round::begin(Counts::All);
            self.namespace.do_send(Look(round));
            // A namespace that is gone has nothing to do.
            let is_quiet = told.await.unwrap_or(true);
            // Whoever was asked early may have got something by who was asked later: that was a turn.
            let is_quiet =
                is_quiet && shared.activity.is_none_at_work() && shared.pulses.turns() == turns;
            // Or by one whose turn had begun before they were counted: it is over now, and the next round comes behind
            // whatever it has sent.
            if is_quiet && quiet_before == Some(turns) {
                return;
            }
            quiet_before = is_quiet.then_some(turns);
            tokio::task::yield_now().await;
        }
    }

    /// As [`Broker::idle`], but what is on its way to the store is not waited for, nor who waits for it: for a test whose
    /// store holds it back.
    pub async fn idle_but_for_store(&self) {
        let mut quiet_rounds = 0;
        while quiet_rounds < QUIET_ROUNDS {
            let turns = self.shared.pulses.turns();
            let (round, told) = Round::begin(Counts::AllButStore);
            self.namespace.do_send(Look(round));
            let is_quiet = told.await.unwrap_or(true) && self.shared.pulses.turns() == turns;
            quiet_rounds = if is_quiet { quiet_rounds + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    }

    /// Somebody has something to do for this broker, until what is returned is dropped; none if nobody wants to know.
    #[must_use]
    pub fn at_work(&self) -> Option<AtWork> {
        self.shared.activity.begin_of_client()
    }
}
