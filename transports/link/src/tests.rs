//! Tests of the link machine from scripts, without a socket or a broker; time is a number.

mod arrivals;
mod links;
mod mailbox;
mod stand;
mod unsettled;
