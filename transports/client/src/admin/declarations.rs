//! Declarations of a namespace: the desired entities and rules (file 27 of the specification). All
//! operations need the right Manage on the declared entities.

use peeklock_core::declaration::{Declaration, Digest, Plan, PlanResult, Step};
use peeklock_core::error::{BrokerError, Rejection};

use super::Admin;
use crate::port::{Managed, Management};

impl Admin {
    /// Returns the steps that lead to the declared state (DEC-06). Changes nothing.
    ///
    /// # Errors
    /// `Unauthorized`; for an impossible declaration the error of the corresponding operation, with
    /// the place in the declaration.
    pub async fn plan(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        match self.ask("", Management::Plan(Box::new(declaration.clone()))).await? {
            Managed::Plan(plan) => Ok(*plan),
            other => Err(self.unexpected("", &other)),
        }
    }

    /// Creates missing entities and updates entities that differ, and returns the plan that was
    /// carried out (DEC-01). Entities that are not named, or that already match, stay unchanged;
    /// with [`Unnamed::Delete`](peeklock_core::declaration::Unnamed), others are deleted.
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client_testing as testing; }
    /// use peeklock::declaration::{
    ///     Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic,
    /// };
    /// use peeklock::description::QueueProperties;
    /// use peeklock::rule::Filter;
    /// # use peeklock::testing::TestBroker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let test = TestBroker::start().await?;
    /// # let client = test.client();
    /// let five = QueueProperties::new().with_max_delivery_count(5);
    /// let orders = DeclaredQueue::new("orders").with(five);
    /// let eu = DeclaredSubscription::new("eu")
    ///     .with_rules([Filter::sql("region = 'eu'").named("region")]);
    /// let events = DeclaredTopic::new("events").with_subscription(eu);
    /// let shop = Declaration::new().with_queue(orders.clone()).with_topic(events);
    ///
    /// let admin = client.admin();
    /// assert_eq!(admin.declare(&shop).await?.steps.len(), 3);
    /// assert!(admin.declare(orders).await?.is_empty(), "one queue is a declaration, too");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Admin::plan`]. If a step fails, the error states the number of completed steps.
    /// Repeat the declaration to do the rest.
    pub async fn declare(&self, declaration: impl Into<Declaration>) -> Result<Plan, BrokerError> {
        let declaration = declaration.into();
        let plan = self.plan(&declaration).await?;
        let (mut done, mut digest) = (0, plan.digest());
        while done < plan.steps.len() {
            let part = self.carry_out(&declaration, digest).await?;
            done += part.done;
            digest = part.rest.digest();
            let next = part.rest.steps.first();
            if let Some(failure) = part.failure {
                return Err(stopped(done, plan.steps.len(), next, &failure));
            }
            if part.done == 0 {
                let detail = "the broker cannot carry out any step";
                return Err(self.port.refuse(Rejection::internal(detail), ""));
            }
        }
        Ok(plan)
    }

    /// Carries out the first steps of a plan, as many as the broker does in one call (DEC-10).
    /// Carry out the remaining steps with the digest in the result.
    ///
    /// # Errors
    /// `UpdateConflict`, with nothing done, if the digest does not match the current steps
    /// (DEC-09); as for [`Admin::plan`]. The result contains the failure of a step.
    pub async fn carry_out(
        &self,
        declaration: &Declaration,
        digest: Digest,
    ) -> Result<PlanResult, BrokerError> {
        let declaration = Box::new(declaration.clone());
        let carry_out = Management::CarryOut { declaration, digest, steps_max: None };
        match self.ask("", carry_out).await? {
            Managed::CarriedOut(carried_out) => Ok(*carried_out),
            other => Err(self.unexpected("", &other)),
        }
    }
}

/// Returns the error for a failed step, with the number of completed steps.
fn stopped(done: usize, count: usize, step: Option<&Step>, failure: &BrokerError) -> BrokerError {
    let step = step.map_or_else(String::new, Step::to_string);
    let detail = format!(
        "{done} of {count} steps are done; {step} failed: {}; repeat the declaration to do the \
         rest",
        failure.detail()
    );
    let rejection = Rejection::new(failure.condition(), detail);
    BrokerError::new(rejection, failure.tracking_id(), failure.entity(), failure.timestamp())
}
