//! Sources of messages for `peeklock send`: the command line, or lines and records of standard
//! input. `send.rs` takes one message at a time, so the input may be endless.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Read};

use peeklock::message::Message;
use peeklock::websocket::client::message_from_json;
use tokio::sync::mpsc;

use super::super::Failure;
use super::super::terminal::note;
use super::SendFlags;

/// Maximum bytes of a line or a file: the largest message that can be configured, in Base64.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum lines that are read ahead.
const LINES_AHEAD: usize = 64;

/// Source of messages.
pub enum Feed {
    /// The same message, `left` more times.
    Same { message: Box<Message>, left: u64, total: u64 },
    /// Lines of standard input, read by a thread.
    Lines { lines: mpsc::Receiver<Line>, is_text: bool },
}

/// Next item of the source.
pub enum FeedItem {
    /// A message and its line.
    Message(u64, Box<Message>),
    /// A line that is not a message.
    Unreadable(u64, String),
    /// An error of the source.
    Failed(io::Error),
    /// The end of the source.
    End,
}

/// Item of the reading thread.
pub enum Line {
    Read(u64, Vec<u8>),
    TooLong(u64),
    Failed(io::Error),
}

impl Feed {
    /// Opens the source that the flags select.
    pub fn open(flags: &SendFlags) -> Result<Self, Failure> {
        let same = |message: Message| Self::Same {
            message: Box::new(message),
            left: flags.repeat,
            total: flags.repeat,
        };
        if let Some(body) = &flags.body {
            return Ok(same(Message::new(body.clone())));
        }
        if let Some(file) = &flags.file {
            return Ok(same(Message::new(read_file(file)?)));
        }
        if flags.repeat > 1 {
            return Err(Failure::usage(
                "--repeat needs one message: give a body or --file, because standard input is read \
                 once",
            ));
        }
        if io::stdin().is_terminal() {
            let form = if flags.lines { "the body of a message" } else { "a message as JSON" };
            note(&format!("reading from the terminal, each line {form}; end with Ctrl-D"));
        }
        let (found, lines) = mpsc::channel(LINES_AHEAD);
        std::thread::spawn(move || read_lines(io::stdin().lock(), &found));
        Ok(Self::Lines { lines, is_text: flags.lines })
    }

    /// Total number of messages, if it is known.
    pub const fn total(&self) -> Option<u64> {
        match self {
            Self::Same { total, .. } => Some(*total),
            Self::Lines { .. } => None,
        }
    }

    /// Whether the input is typed at a terminal.
    pub fn is_typed(&self) -> bool {
        self.names_lines() && io::stdin().is_terminal()
    }

    /// Whether places are lines of the input.
    pub const fn names_lines(&self) -> bool {
        matches!(self, Self::Lines { .. })
    }

    /// Returns the next item. Dropping the future takes none.
    pub async fn next(&mut self) -> FeedItem {
        match self {
            Self::Same { left: 0, .. } => FeedItem::End,
            Self::Same { message, left, total } => {
                *left -= 1;
                FeedItem::Message(*total - *left, message.clone())
            }
            Self::Lines { lines, is_text } => loop {
                match lines.recv().await {
                    None => return FeedItem::End,
                    Some(Line::Failed(error)) => return FeedItem::Failed(error),
                    Some(Line::TooLong(number)) => {
                        let error =
                            format!("it has more than {BYTES_MAX} bytes; send a smaller message");
                        return FeedItem::Unreadable(number, error);
                    }
                    Some(Line::Read(number, line)) if *is_text => {
                        return FeedItem::Message(number, Box::new(Message::new(line)));
                    }
                    // Empty lines between messages are skipped.
                    Some(Line::Read(_, line)) if line.trim_ascii().is_empty() => {}
                    Some(Line::Read(number, line)) => return parse(number, &line),
                }
            },
        }
    }
}

fn parse(number: u64, line: &[u8]) -> FeedItem {
    let Ok(text) = std::str::from_utf8(line) else {
        return FeedItem::Unreadable(number, "it must be UTF-8".to_owned());
    };
    match message_from_json(text) {
        Ok(message) => FeedItem::Message(number, Box::new(message)),
        Err(error) => FeedItem::Unreadable(
            number,
            format!(
                "expected a message as JSON, such as {{\"body\": \"a\"}}: {error}{}",
                hint(text)
            ),
        ),
    }
}

/// Advice for a line that is not a message.
fn hint(text: &str) -> &'static str {
    let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    match text.trim_start().as_bytes().first() {
        // Valid JSON: the error names the unknown property.
        Some(b'{') if is_whole => "",
        Some(b'[' | b'{') => {
            "; this looks like a JSON array: write it with -o ndjson, or pipe it through `jq -c \
             '.[]'`"
        }
        _ => "; give --lines to send lines as bodies",
    }
}

/// Bytes of a file, or of standard input for `-`.
pub fn read_file(name: &str) -> Result<Vec<u8>, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("`{name}` cannot be read: {error}"));
    let mut bytes = Vec::new();
    let read = if name == "-" {
        io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        File::open(name).map_err(failed)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)
    };
    if read.map_err(failed)? as u64 > BYTES_MAX {
        return Err(Failure::usage(format!(
            "`{name}` has more than {BYTES_MAX} bytes; send a smaller body"
        )));
    }
    Ok(bytes)
}

/// Reads lines until the end of the input or until the receiver is dropped.
fn read_lines(input: impl Read, found: &mpsc::Sender<Line>) {
    let mut input = BufReader::new(input);
    for number in 1.. {
        let mut line = Vec::new();
        match input.by_ref().take(BYTES_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Err(error) => {
                found.blocking_send(Line::Failed(error)).ok();
                return;
            }
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() as u64 > BYTES_MAX {
            found.blocking_send(Line::TooLong(number)).ok();
            return;
        }
        if found.blocking_send(Line::Read(number, line)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_carriage_return_and_the_last_one_with_neither() {
        let (found, mut lines) = mpsc::channel(8);
        read_lines(&b"one\ntwo\r\n\nfour"[..], &found);
        drop(found);
        let mut read = Vec::new();
        while let Ok(Line::Read(number, line)) = lines.try_recv() {
            read.push((number, String::from_utf8(line).unwrap()));
        }
        let expected = [(1, "one"), (2, "two"), (3, ""), (4, "four")];
        assert_eq!(read, expected.map(|(number, line)| (number, line.to_owned())));
    }
}
