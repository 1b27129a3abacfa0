//! Progress bar with bytes, rate and remaining time, on standard error of a terminal only.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peeklock::store::journal::verify::{Progress, Stage};

/// Layout for 80 columns.
const TEMPLATE: &str =
    "{msg:16} [{bar:14}] {bytes:>10} of {total_bytes:10} {bytes_per_sec:>12} {eta:>4}";

/// Progress bar of a scrub.
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

    /// Removes the bar.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
