//! The listener over TCP, with a client of the crate's own frames: what is sent is stored, what is received is
//! settled, tokens count where they were put.

mod client;
mod receiving;
mod sending;
mod server;
mod tokens;
