//! The progress of long work: how many of how many, how fast, how long still. On a terminal only, on
//! standard error.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Fit into 80 columns.
const KNOWN: &str = "{msg:14} [{bar:20}] {human_pos:>12} of {human_len:12} {rate:>12} {eta:>4}";
const UNKNOWN: &str = "{msg:14} {spinner} {human_pos:>12} {rate:>14}";

/// The bar.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for so many of something, or for nobody knows how many.
    pub fn new(what: &'static str, total: Option<u64>) -> Self {
        // What is done in a moment would only flicker.
        let is_short = total.is_some_and(|total| total < 2);
        if is_short || !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let template = if total.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("rate", rate).progress_chars("=> "));
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// The same for what is written to standard output: into a file only. A terminal shows it, and so
    /// may what reads a pipe.
    pub fn beside_output(what: &'static str) -> Self {
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let is_file = file.and_then(|file| file.metadata()).is_ok_and(|meta| meta.is_file());
        if is_file { Self::new(what, None) } else { Self::hidden() }
    }

    /// No bar.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    pub fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    /// Says something without tearing the bar.
    pub fn note(&self, text: &str) {
        self.0.suspend(|| super::note(text));
    }
}

/// How fast it goes, in whole ones.
fn rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    // Into text in memory: this cannot fail.
    write!(out, "{:.0}/s", state.per_sec()).unwrap_or_default();
}

impl Drop for Bar {
    /// Takes it away, however the work ends.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
