//! Waits until a broker has no work left, for tests. It returns only after two quiet rounds of all
//! actors, so that mail in transit is seen.

use super::Broker;
use crate::activity::PendingWork;
use crate::actor::messages::{Round, RoundQuestion, RoundScope};

/// Number of consecutive quiet rounds. A courier that waits for the store counts as at work, so the
/// activity counter is not checked here: other work of a courier ends within a round.
const QUIET_ROUNDS: u32 = 3;

impl Broker {
    /// Waits until no work is left that proceeds without the passage of time or a new request: no
    /// mail is in a mailbox, no data is on its way to the store or to another entity, and no
    /// handler of a consumer has a message. Waiting receives are not work. Neither are messages
    /// that wait for a receiver, an instant or room.
    ///
    /// For tests, with a broker built with [`crate::BrokerBuilder::count_work`]; in other brokers the
    /// work of consumers and couriers is unknown. Counts consumers of this process, not those
    /// connected over a network.
    pub async fn idle(&self) {
        let activity = &self.shared.activity;
        let mut quiet_before = None;
        loop {
            activity.wait_until_idle().await;
            let quiet = self.quiet_round(RoundScope::All).await.filter(|_| activity.is_idle());
            // A turn that began before the turns were counted may have sent mail after a question
            // passed. It is over now, and the next round follows that mail.
            if quiet.is_some() && quiet == quiet_before {
                return;
            }
            quiet_before = quiet;
            tokio::task::yield_now().await;
        }
    }

    /// As [`Broker::idle`], but does not wait for the store or for callers that wait for it: for a
    /// test whose store holds data back.
    pub async fn idle_except_store(&self) {
        let mut quiet_rounds = 0;
        while quiet_rounds < QUIET_ROUNDS {
            let quiet = self.quiet_round(RoundScope::AllButStore).await;
            quiet_rounds = if quiet.is_some() { quiet_rounds + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
    }

    /// Asks all actors whether they have work. Returns the number of turns until now if none has.
    async fn quiet_round(&self, counts: RoundScope) -> Option<u64> {
        let turns = self.shared.pulses.turns();
        let (round, result) = Round::begin(counts);
        self.namespace.do_send(RoundQuestion(round));
        // A namespace that has ended has no work.
        let is_quiet = result.await.unwrap_or(true);
        // An actor asked early may have received mail from one asked later: that counts as a turn.
        (is_quiet && self.shared.pulses.turns() == turns).then_some(turns)
    }

    /// Marks this broker as busy until the returned value is dropped; none if the broker is not
    /// watched.
    #[must_use]
    pub fn pending_work(&self) -> Option<PendingWork> {
        self.shared.activity.begin_client_work()
    }
}
