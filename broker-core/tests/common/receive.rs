//! Receive commands.

use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::time::TimeSpan;

/// A receive of up to `count_max` messages of any size under locks, without a link.
pub const fn under_lock(count_max: u32, wait: TimeSpan) -> Command {
    Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max,
        bytes_max: u64::MAX,
        wait,
        holder: None,
    }
}
