//! Every operation that handles of this process have, against everything that a host can wrap them with: by what the
//! specification says, written down anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod hands;
mod lists;
mod matrix;
mod needs;
mod world;
