//! Replacement of this process by a new run of its program, with the same arguments, environment
//! and process id. All threads, locks and sockets end; standard streams stay.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The running program by the system's name, also if its file was replaced by another version.
const RUNNING: &str = "/proc/self/exe";

/// The program with the arguments of this process; `exec` replaces the process by it. None if the
/// process does not know its own name.
pub fn this_program() -> Option<Command> {
    let mut arguments = env::args_os();
    let name = arguments.next()?;
    // The path gives the process its name in the lists of the system.
    let path = env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(path.unwrap_or_else(|| PathBuf::from(RUNNING)));
    command.arg0(name).args(arguments);
    Some(command)
}
