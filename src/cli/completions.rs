//! `peeklock completions`: prints a script that completes the command line in a shell. `cli.rs`
//! dispatches to it.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{CommandLine, Failure, print};

pub const HELP: &str = "\
Examples:
  peeklock completions bash > ~/.local/share/bash-completion/completions/peeklock
  peeklock completions zsh > ~/.zfunc/_peeklock      with ~/.zfunc in fpath
  peeklock completions fish > ~/.config/fish/completions/peeklock.fish";

#[derive(Args)]
pub struct CompletionsFlags {
    /// Shell to write the script for
    shell: Shell,
}

pub fn run(flags: &CompletionsFlags) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut CommandLine::command(), "peeklock", &mut script);
    print(&String::from_utf8_lossy(&script))
}
