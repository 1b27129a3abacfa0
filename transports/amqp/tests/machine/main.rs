//! The machines of a connection, its sessions and links, from scripts of frames: what happens, and which
//! frames are answered. Time is a number.

mod client;
mod credit;
mod greeting;
mod limits;
mod links;
mod mutations;
mod receiving;
mod sending;
mod sessions;
