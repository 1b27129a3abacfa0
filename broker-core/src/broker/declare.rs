//! Declarations, as embedding code has them carried out: as [`Access`](crate::Access) does, without a question.

use super::Broker;
use crate::declaration::{CarriedOut, Declaration, Digest, Plan};
use crate::error::BrokerError;

impl Broker {
    /// The steps that make the namespace as declared (DEC-06). Changes nothing.
    ///
    /// # Errors
    /// With what cannot be, and its place in the declaration, as the operations would refuse it (DEC-04, DEC-05,
    /// DEC-08).
    pub async fn plan(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        self.full_access().plan(declaration).await
    }

    /// Carries out the first steps of a plan, at most so many, in their order. What is done before a step fails stays
    /// done (DEC-10, DEC-11).
    ///
    /// # Errors
    /// `UpdateConflict`, with nothing done, if the steps are no longer those of the digest (DEC-09); as for
    /// [`Broker::plan`]. The failure of a step is told in the answer.
    pub async fn carry_out(
        &self,
        declaration: &Declaration,
        digest: Digest,
        steps_max: usize,
    ) -> Result<CarriedOut, BrokerError> {
        self.full_access().carry_out(declaration, digest, steps_max).await
    }

    /// Makes the namespace as declared, and tells what was done (DEC-01). What is not named stays as it is.
    ///
    /// ```
    /// # use peeklock_core as peeklock;
    /// use peeklock::Broker;
    /// use peeklock::declaration::{
    ///     Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic,
    /// };
    /// use peeklock::description::QueueUpdate;
    /// use peeklock::rule::{Filter, RuleDescription};
    /// use peeklock::time::Timestamp;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let broker = Broker::builder().start().await?;
    /// let eu = RuleDescription::new("region", Filter::sql("region = 'eu'"), Timestamp::NONE);
    /// let declaration = Declaration::new()
    ///     .with_queue(
    ///         DeclaredQueue::new("orders")
    ///             .with(QueueUpdate { max_delivery_count: Some(5), ..QueueUpdate::default() }),
    ///     )
    ///     .with_topic(
    ///         DeclaredTopic::new("events")
    ///             .with_subscription(DeclaredSubscription::new("eu").with_rules([eu])),
    ///     );
    ///
    /// let plan = broker.declare(&declaration).await?;
    /// assert_eq!(plan.steps.len(), 3);
    ///
    /// // It is so already: nothing is left to do.
    /// assert!(broker.plan(&declaration).await?.is_empty());
    /// # broker.stop(std::time::Duration::ZERO).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Broker::plan`]; when a step fails, with how many are done before it. Declared again, the rest is done.
    pub async fn declare(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        self.full_access().declare(declaration).await
    }
}
