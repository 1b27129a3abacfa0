//! Waiting until nothing is left to be done, for tests.

use super::Broker;
use crate::activity::AtWork;
use crate::actor::messages::{Counts, Look, Round};

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
        let activity = &self.shared.activity;
        let mut quiet_before = None;
        loop {
            activity.none_at_work().await;
            let quiet = self.quiet_round(Counts::All).await.filter(|_| activity.is_none_at_work());
            // A turn that had begun before they were counted may have sent something behind a question. It is over now, and
            // the next round comes behind that.
            if quiet.is_some() && quiet == quiet_before {
                return;
            }
            quiet_before = quiet;
            tokio::task::yield_now().await;
        }
    }

    /// As [`Broker::idle`], but what is on its way to the store is not waited for, nor who waits for it: for a test whose
    /// store holds it back.
    pub async fn idle_but_for_store(&self) {
        let mut quiet_rounds = 0;
        while quiet_rounds < QUIET_ROUNDS {
            let quiet = self.quiet_round(Counts::AllButStore).await;
            quiet_rounds = if quiet.is_some() { quiet_rounds + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    }

    /// Asks everybody; if nobody has something to do, how many turns there have been.
    async fn quiet_round(&self, counts: Counts) -> Option<u64> {
        let turns = self.shared.pulses.turns();
        let (round, told) = Round::begin(counts);
        self.namespace.do_send(Look(round));
        // A namespace that is gone has nothing to do.
        let is_quiet = told.await.unwrap_or(true);
        // Whoever was asked early may have got something by who was asked later: that was a turn.
        (is_quiet && self.shared.pulses.turns() == turns).then_some(turns)
    }

    /// Somebody has something to do for this broker, until what is returned is dropped; none if nobody wants to know.
    #[must_use]
    pub fn at_work(&self) -> Option<AtWork> {
        self.shared.activity.begin_of_client()
    }
}
