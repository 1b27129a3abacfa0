//! Anything at all, given to each part that takes bytes of clients, and what must hold then. Tests and
//! fuzzing share it.

mod connection;
mod frames;
#[cfg(feature = "server")]
mod requests;
mod sections;

pub use self::connection::{Run, config, connection, login};
pub use self::frames::frames;
#[cfg(feature = "server")]
pub use self::requests::{operations, requests};
pub use self::sections::sections;
