//! Declarations: the entities and rules of a namespace as they shall be (file 27 of the specification). All of it takes
//! the right Manage on what is named.

use peeklock_core::declaration::{CarriedOut, Declaration, Digest, Plan};
use peeklock_core::error::BrokerError;

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
        match self.ask("", Management::CarryOut(Box::new(declaration.clone()), digest)).await? {
            Managed::CarriedOut(carried_out) => Ok(*carried_out),
            other => Err(self.unexpected("", &other)),
        }
    }
}
