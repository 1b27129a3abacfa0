//! Progress bar with count, total, rate and remaining time, on standard error of a terminal only.
//! Commands with long loops update it.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Layouts for 80 columns.
const KNOWN: &str = "{msg:14} [{bar:20}] {human_pos:>12} of {human_len:12} {rate:>12} {eta:>4}";
const UNKNOWN: &str = "{msg:14} {spinner} {human_pos:>12} {rate:>14}";

/// Progress bar of a command.
pub struct Bar(ProgressBar);

impl Bar {
    /// Creates a bar for `total` items, or for an unknown number.
    pub fn new(label: &'static str, total: Option<u64>) -> Self {
        // A bar for less than two items would only flicker.
        let is_short = total.is_some_and(|total| total < 2);
        if is_short || !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let template = if total.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        bar.set_message(label);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Creates a bar for a command that writes to standard output. It is shown only if the output
    /// is a file; a terminal would mix both, and so might the reader of a pipe.
    pub fn for_file_output(label: &'static str) -> Self {
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let is_file = file.and_then(|file| file.metadata()).is_ok_and(|meta| meta.is_file());
        if is_file { Self::new(label, None) } else { Self::hidden() }
    }

    /// Creates a bar that is never shown.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    pub fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    /// Prints a note above the bar.
    pub fn note(&self, text: &str) {
        self.0.suspend(|| super::note(text));
    }
}

/// Rate in whole items per second.
fn rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // Writing to memory cannot fail.
    write!(out, "{:.0}/s", state.per_sec()).unwrap_or_default();
}

impl Drop for Bar {
    /// Removes the bar when the work ends in any way.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
