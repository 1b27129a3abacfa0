//! The progress of long work: how many of how many, how fast, how long still. On a terminal only, on
//! standard error.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Out;

/// Fit into 80 columns.
const KNOWN: &str = "{msg:14} [{bar:20}] {human_pos:>12} of {human_len:12} {per_sec:>12} {eta:>4}";
const UNKNOWN: &str = "{msg:14} {spinner} {human_pos:>12} {per_sec:>14}";

/// The bar.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for so many of something, or for nobody knows how many.
    pub fn new(what: &'static str, total: Option<u64>) -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let template = if total.is_some() { KNOWN } else { UNKNOWN };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// The same for what is written to standard output: where that is the terminal, it is enough.
    pub fn beside(out: &Out, what: &'static str) -> Self {
        if out.is_terminal { Self(ProgressBar::hidden()) } else { Self::new(what, None) }
    }

    pub fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    /// Says something without tearing the bar.
    pub fn note(&self, text: &str) {
        self.0.suspend(|| super::note(text));
    }
}

impl Drop for Bar {
    /// Takes it away, however the work ends.
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
