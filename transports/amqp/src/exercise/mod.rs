//! Anything at all, given to each part that takes bytes of clients, and what must hold then. Tests and
//! fuzzing share it.

mod connection;
mod frames;
mod sections;

pub use self::connection::{Run, config, connection, login};
pub use self::frames::frames;
pub use self::sections::sections;
