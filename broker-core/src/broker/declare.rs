//! Declarations for embedding programs: the same as on [`Access`](crate::Access), without checks of
//! rights. `server/declare.rs` and embedding programs call it.

use super::Broker;
use crate::declaration::{Declaration, Digest, Plan, PlanResult};
use crate::error::BrokerError;

impl Broker {
    /// Returns the steps that make the namespace as declared (DEC-06). Changes nothing.
    ///
    /// # Errors
    /// The error of the operation that a declared entity would cause, with its place in the
    /// declaration (DEC-04, DEC-05, DEC-08).
    pub async fn plan(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        self.full_access().plan(declaration).await
    }

    /// Carries out the first `steps_max` steps of a plan, in order. Steps before a failed one stay
    /// done (DEC-10, DEC-11). The answer reports the failure of a step.
    ///
    /// # Errors
    /// `UpdateConflict`, with nothing done, if the steps no longer match the digest (DEC-09); as
    /// for [`Broker::plan`].
    pub async fn carry_out(
        &self,
        declaration: &Declaration,
        digest: Digest,
        steps_max: usize,
    ) -> Result<PlanResult, BrokerError> {
        self.full_access().carry_out(declaration, digest, steps_max).await
    }

    /// Makes the namespace as declared, and returns the plan that was carried out (DEC-01).
    /// Entities that are not named stay unchanged, unless they are to be deleted (DEC-18).
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
    /// // The namespace already matches: no steps are left.
    /// assert!(broker.plan(&declaration).await?.is_empty());
    /// # broker.stop(std::time::Duration::ZERO).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Broker::plan`]; the error of a failed step, with the number of steps done before
    /// it. Declaring again does the rest.
    pub async fn declare(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        self.full_access().declare(declaration).await
    }
}
