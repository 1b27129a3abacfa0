//! Exit codes, which let scripts distinguish results. A code keeps its meaning.

/// Help text with the exit codes, for every command that connects to a broker.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0    done
  1    failure
  2    usage or configuration
  4    no such queue, topic, subscription, rule, policy, message or context
  5    already exists
  6    nothing found: no message to receive or to show
  7    no connection to the broker
  8    partly done; the output lists the results and failures
  9    the broker is busy; try again later
  130  interrupted"
    };
}

/// A wrong command line or configuration.
pub const USAGE: u8 = 2;
/// No such queue, topic, subscription, rule, policy, message or context.
pub const NOT_FOUND: u8 = 4;
/// The entity or context already exists.
pub const EXISTS: u8 = 5;
/// No message was found.
pub const NOTHING: u8 = 6;
/// The broker cannot be reached.
pub const NO_CONNECTION: u8 = 7;
/// Only a part of the work was done.
pub const IN_PART: u8 = 8;
/// The broker is busy; the same command can succeed later.
pub const BUSY: u8 = 9;
/// Ctrl-C or SIGTERM, as shells report it.
pub const INTERRUPTED: u8 = 130;
