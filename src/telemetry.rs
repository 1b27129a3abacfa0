//! The log of the process: lines for people or for programs, on standard error.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;

use crate::config::{LogFormat, LogSection};

/// Writes the log from now on. The filter was judged with the configuration.
pub fn start(log: &LogSection) {
    let filter = EnvFilter::new(&log.filter.0);
    let subscriber = Subscriber::builder().with_env_filter(filter).with_writer(io::stderr);
    match log.format.0 {
        LogFormat::Text => {
            let colours = colours(&io::stderr());
            subscriber.with_ansi(colours).with_target(false).init();
        }
        LogFormat::Json => subscriber.json().flatten_event(true).init(),
    }
}

/// Whether colours are shown there: on terminals, unless the user wants none (<https://no-color.org>).
pub fn colours(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
