//! The progress bar: bytes, rate, time left. On a terminal only, on standard error.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peeklock::store::journal::verify::{Progress, Stage};

/// Fits into 80 columns.
const TEMPLATE: &str =
    "{msg:16} [{bar:14}] {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";

/// The bar.
pub struct Bar {
    bar: ProgressBar,
    stage: Option<Stage>,
}

impl Bar {
    pub fn new() -> Self {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template(TEMPLATE);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Self { bar, stage: None }
    }

    pub fn show(&mut self, progress: Progress) {
        if self.stage != Some(progress.stage) {
            self.stage = Some(progress.stage);
            self.bar.reset();
            self.bar.set_message(match progress.stage {
                Stage::Log => "reading the log",
                Stage::Records => "reading messages",
                Stage::Copy => "copying",
            });
        }
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done.min(progress.total));
    }

    /// Takes the bar away.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
