//! Log of the process: lines for people or for programs, on standard error.
//!
//! The log contains texts of clients, so characters that act on a terminal or begin a line are
//! escaped.

use std::fmt;
use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::Subscriber;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::config::{LogFormat, LogSection};
use crate::visible;

/// Name of the field with the text of an event.
const MESSAGE: &str = "message";
/// Prefix of fields that the crate `log` adds to its events to name their origin.
const LOG_FIELD_PREFIX: &str = "log.";

/// Starts the log. The filter was validated with the configuration.
pub fn start(log: &LogSection) {
    let filter = EnvFilter::new(&log.filter);
    let subscriber = Subscriber::builder().with_env_filter(filter);
    match log.format {
        LogFormat::Text => {
            let fields = debug_fn(|writer, field, value| write_field(writer, field.name(), value));
            let subscriber = subscriber.with_writer(io::stderr).with_target(false);
            let colours = colours(&io::stderr());
            subscriber.with_ansi(colours).fmt_fields(fields.delimited(" ")).init();
        }
        LogFormat::Json => {
            subscriber.with_writer(|| JsonLines(io::stderr())).json().flatten_event(true).init();
        }
    }
}

/// Writes a field of an event in the text format.
fn write_field(writer: &mut Writer<'_>, name: &str, value: &dyn fmt::Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = visible::line(&value);
    if name == MESSAGE {
        return writer.write_str(&value);
    }
    if name.starts_with(LOG_FIELD_PREFIX) {
        return Ok(());
    }
    match writer.has_ansi_escapes() {
        true => write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m{value}"),
        false => write!(writer, "{name}={value}"),
    }
}

/// Escapes events in JSON; each arrives in a single write.
struct JsonLines<W>(W);

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(visible::json(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether to use colours on a stream: on terminals, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub fn colours(stream: &impl io::IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Plain(String);

    impl fmt::Debug for Plain {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    #[test]
    fn text_of_clients_stays_in_its_line_of_the_log() {
        let shown = |name: &str, value: &str| {
            let mut text = String::new();
            let value = Plain(value.to_owned());
            write_field(&mut Writer::new(&mut text), name, &value).unwrap();
            text
        };
        assert_eq!(shown("error", "a\n2026 WARN b\u{1b}[2J"), "error=a\\n2026 WARN b\\x1b[2J");
        assert_eq!(shown("message", "a\u{202e}b\u{2028}"), "a\\u{202e}b\\u{2028}");
        assert_eq!(shown("log.target", "x"), "");
        let mut lines = JsonLines(Vec::new());
        lines.write_all("{\"error\":\"a\u{202e}b\"}\n".as_bytes()).unwrap();
        assert_eq!(lines.0, b"{\"error\":\"a\\u202eb\"}\n");
    }
}
