//! Admission: every bound that the clients of a broker share, and the order in which they get their parts. (DESIGN D6.)
//!
//! # Words
//!
//! | Word | Bounds | Types |
//! |---|---|---|
//! | budget | bytes and number of commands between arrival and answer | [`Budget`], [`Permit`] |
//! | pool | bytes of anything else that connections share: frames and bodies as they arrive, answers until they are read | [`Pool`]; [`Share`], [`PacedShare`], [`Account`]; [`Room`] |
//! | pace | time for which a read or write may make no progress | [`Pace`], [`ClientPace`], [`Timer`] |
//! | place | number of connections at a listener | [`Places`], [`Place`]; [`Openings`], [`Opening`] before a place |
//! | turn | number of long works at once | [`Turns`], [`HeldTurn`] for large answers; [`LongTurns`], [`LongTurn`] of a thread |
//!
//! [`Loads`] is a pool without clients: the broker loads contents for itself, and the longest waiter goes first.
//!
//! # Verbs
//!
//! | Verb | Effect | Names |
//! |---|---|---|
//! | try | takes a part now or not at all | `try_take`, `try_take_list`, `try_keep` |
//! | wait | takes a part when it is free; dropping the future ends the wait | `wait`, `wait_list`, `poll_wait`, `end_wait` |
//! | release | returns a part: in full when its value is dropped | `release`, `release_beyond` |
//! | evict | makes a holder release its part for a waiter | `is_evicted`, `poll_evicted`, `take_or_evict`, `evict_*` |
//!
//! # Order
//!
//! | Part | Goes to | Evicted for a waiter |
//! |---|---|---|
//! | budget, pool | the smallest share, then the smallest request | the share that has been slow for longest; in a [pool of parts](Pool::of_parts) also one that waits for the rest of something while it holds more than the waiter |
//! | place | the first that asks when one is free | an idle connection; for a known client one of the network with most connections; for a client with a key one without; where connections carry [requests](Places::of_requests), also one that waits for a message |
//! | opening | each newcomer at once | the oldest |
//! | turn at a large answer | the network with fewest turns | none: a late answer ends its turn |
//! | long turn | the next requester in turn; every other one to work without a requester | none: one ends with its slice |
//! | loads | the longest waiter | none: half stays for messages that leave for no forwarder |
//!
//! A holder is slow when it passes less than its [`Pace`] allows: by default it may stand still for [`GRACE`], and must
//! then pass 64 KiB per second, and all bytes that it holds in 8 seconds. A slow holder keeps its part while no request
//! waits.
//!
//! # Callers
//!
//! | Caller | Parts |
//! |---|---|
//! | the broker | one budget for commands, half as much for parked ones; a pool for answers; loads; turns; long turns for each arbiter |
//! | WebSocket, AMQP | a place for each connection, after its opening; a budget and an account for each connection; a paced share for frames that arrive; the pace of the client for everything that it is sent |
//! | HTTP | a place for each connection, before its first request; a paced share for each head, body and answer |
//! | TLS, proxies, the shared port | openings |
//!
//! Each transport has its own places and sockets: a number that transports shared would let idle connections at one
//! keep clients from another. Absent on purpose: sockets, bytes of protocols, and the meaning of a command.

mod account;
mod budget;
mod client_pace;
mod loads;
mod long_turns;
mod openings;
mod pace;
mod places;
mod pool;
mod turns;

pub use account::Account;
pub use budget::{Budget, COMMAND_BYTES, Permit};
pub use client_pace::ClientPace;
pub use loads::{LoadRoom, LoadedFor, Loads, loaded_bytes};
pub use long_turns::{LongTurn, LongTurns};
pub use openings::{Opening, Openings};
pub use pace::{GRACE, Pace, Timer, arriving_step};
pub use places::{
    ConnectionPlace, Idling, Member, Newcomer, Occupant, Place, Places, network, sockets,
    spare_sockets,
};
pub use pool::{Evicted, NotGranted, PacedShare, Pool, Room, Share};
pub use turns::{HeldTurn, Large, Turns};
