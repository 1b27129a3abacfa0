//! Start of a keeper of jobs. It is a separate trait, since a broker refers to its keeper, and the
//! start to the broker.

use std::io;

use super::JobKeeper;
use crate::broker::Broker;

/// Keeper of jobs that is set in [`Broker::builder`].
pub trait JobRunner: JobKeeper {
    /// Begins to carry jobs out. The broker calls it once, when all entities are open. Must not
    /// block.
    ///
    /// # Errors
    /// The keeper cannot begin, for example without a thread.
    fn begin(&self, broker: Broker) -> io::Result<()>;
}
