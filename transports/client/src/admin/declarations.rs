//! Declarations: the entities and rules of a namespace as they shall be (file 27 of the specification). All of it takes
//! the right Manage on what is named.

use peeklock_core::declaration::{CarriedOut, Declaration, Digest, Plan, Step};
use peeklock_core::error::{BrokerError, Rejection};

use super::Admin;
use crate::port::{Managed, Management};

impl Admin {
    /// The steps that make the namespace as declared (DEC-06). Changes nothing.
    ///
    /// # Errors
    /// `Unauthorized`; with what cannot be, and its place in the declaration, as the operations would refuse it.
    pub async fn plan(&self, declaration: &Declaration) -> Result<Plan, BrokerError> {
        match self.ask("", Management::Plan(Box::new(declaration.clone()))).await? {
            Managed::Plan(plan) => Ok(*plan),
            other => Err(self.unexpected("", &other)),
        }
    }

    /// Makes the namespace as declared, and tells what was done (DEC-01): what is missing is created, what differs updated.
    /// What is not named stays as it is, and so does what is so already.
    ///
    /// ```
    /// # mod peeklock { pub use peeklock_client::*; pub use peeklock_core::*; pub use peeklock_client::testing; }
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
    /// As for [`Admin::plan`]; when a step fails, with how many are done before it. Declared again, the rest is done.
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

    /// Carries out the first steps of a plan, as many as the broker does at once (DEC-10). What it says to be left is
    /// carried out likewise, by its own digest.
    ///
    /// # Errors
    /// `UpdateConflict`, with nothing done, if the steps are no longer those of the digest (DEC-09); as for
    /// [`Admin::plan`]. The failure of a step is told in the answer.
    pub async fn carry_out(
        &self,
        declaration: &Declaration,
        digest: Digest,
    ) -> Result<CarriedOut, BrokerError> {
        let declaration = Box::new(declaration.clone());
        let carry_out = Management::CarryOut { declaration, digest, steps_max: None };
        match self.ask("", carry_out).await? {
            Managed::CarriedOut(carried_out) => Ok(*carried_out),
            other => Err(self.unexpected("", &other)),
        }
    }
}

/// That a step has failed, and how many are done before it.
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
