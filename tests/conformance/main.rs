//! All transports give the same answers. One list of scenarios runs over many subjects (FND-05).
//!
//! Each pair of a transport and a scenario is a test, named `transport::topic::scenario` below its
//! list. It has its own broker, whose clock only the scenario moves. To add a rule, add a function
//! under `scenarios` and its name to the list in `everywhere.rs`, or to a list in `somewhere.rs` if
//! some transports cannot have it. To add a transport, implement [`subject::Subject`] under
//! `subjects`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a scenario that meets what it does not expect ends there"
)]

mod faces;
mod matrix;
mod scenarios;
mod stage;
mod subject;
mod subjects;
#[path = "../support/mod.rs"]
mod support;

/// Defines one test for each transport and scenario. `with` names the setup of the broker.
macro_rules! scenarios {
    ($($topic:ident: [$($scenario:ident $(with $setup:ident)?),* $(,)?]),* $(,)?) => {
        /// The scenarios that run over every transport.
        pub const SCENARIOS: &[&str] =
            &[$($(concat!(stringify!($topic), "::", stringify!($scenario)),)*)*];

        mod inproc {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Inproc, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod http {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Http, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod websocket {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run WebSocket, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod websocket_json {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run WebSocketJson, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod amqp {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Amqp, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
    };
    (@run $transport:ident, $topic:ident, $scenario:ident) => {
        crate::stage::run(
            concat!(stringify!($topic), "::", stringify!($scenario)),
            crate::subjects::Transport::$transport,
            crate::scenarios::$topic::$scenario,
        )
    };
    (@run $transport:ident, $topic:ident, $scenario:ident, $setup:ident) => {
        crate::stage::run_with(
            concat!(stringify!($topic), "::", stringify!($scenario)),
            crate::subjects::Transport::$transport,
            crate::scenarios::$topic::$setup(),
            crate::scenarios::$topic::$scenario,
        )
    };
}

/// Defines tests of scenarios for one transport.
macro_rules! scenarios_of {
    ($module:ident, $transport:ident, $topic:ident:
        [$($scenario:ident $(with $setup:ident)?),* $(,)?]) => {
        pub mod $module {
            /// The transport and scenarios of this module.
            pub const LIST: (crate::subjects::Transport, &[&str]) = (
                crate::subjects::Transport::$transport,
                &[$(concat!(stringify!($topic), "::", stringify!($scenario)),)*],
            );

            $(#[test]
            fn $scenario() {
                scenarios!(@run $transport, $topic, $scenario $(, $setup)?);
            })*
        }
    };
}

mod everywhere;
mod somewhere;
