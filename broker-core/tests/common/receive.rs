//! What receivers ask for.

use peeklock_core::command::{Command, ReceiveMode};
use peeklock_core::time::TimeSpan;

/// So many messages under locks, of any size, for nobody's link.
pub const fn under_lock(count_max: u32, wait: TimeSpan) -> Command {
    Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max,
        bytes_max: u64::MAX,
        wait,
        holder: None,
    }
}
