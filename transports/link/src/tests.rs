//! The link machine from scripts: no socket, no broker, no clock but a number.

mod account;
mod arrivals;
mod links;
mod mailbox;
mod stand;
mod unsettled;
