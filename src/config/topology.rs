//! A file of `[[queues]]` and `[[topics]]` alone: what `peeklock apply` reads and `peeklock export` writes (DEC-16,
//! DEC-17).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use peeklock::declaration::Declaration;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::declared;
use super::queue::QueueDeclaration;
use super::source::unknown_field;
use super::topic::TopicDeclaration;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What stands above what was exported.
const HEAD: &str = "\
# Queues, topics, subscriptions and rules of a namespace, for `peeklock apply -f`. What is not named stays as it is; an empty
# text takes a value away; a subscription has exactly the rules that are listed.
";

/// The entities of a namespace, as a file declares them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with [[queues]] and [[topics]]")]
pub struct Topology {
    /// `[[queues]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueDeclaration>,
    /// `[[topics]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicDeclaration>,
}

/// A file that was read.
#[derive(Debug)]
pub struct TopologyFile {
    /// What it declares.
    pub declaration: Declaration,
    path: PathBuf,
    /// The lines of what is declared, by its key.
    lines: BTreeMap<String, usize>,
}

/// Why a file cannot be used: where, what, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is too large.
    #[error(
        "`{}` has more than {FILE_BYTES_MAX} bytes; declare less at once, in several files", path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It means nothing.
    #[error("{0}")]
    Wrong(String),
}

/// Where names stand.
#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    queues: Vec<Named>,
    #[serde(default)]
    topics: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: Spanned<String>,
    #[serde(default)]
    subscriptions: Vec<Self>,
    #[serde(default)]
    rules: Vec<Self>,
}

impl Topology {
    /// The text of a file that declares it.
    ///
    /// # Errors
    /// With the value that TOML cannot hold.
    pub fn text(&self) -> Result<String, String> {
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        Ok(format!("{HEAD}\n{text}"))
    }
}

impl TopologyFile {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// With file, line and key of what is wrong.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
        let source: Box<dyn std::io::Read> = if path == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            Box::new(std::fs::File::open(path).map_err(unreadable)?)
        };
        let mut text = String::new();
        source.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { path: path.to_owned() });
        }
        Self::of_text(path, &text)
    }

    fn of_text(path: &Path, text: &str) -> Result<Self, FileError> {
        let topology: Topology =
            toml::from_str(text).map_err(|error| explain(path, text, &error))?;
        // What was read once is read again.
        let names: Names = toml::from_str(text).map_err(|error| explain(path, text, &error))?;
        let mut lines = BTreeMap::new();
        add("queues", &names.queues, text, &mut lines);
        add("topics", &names.topics, text, &mut lines);
        let mut file = Self { declaration: Declaration::new(), path: path.to_owned(), lines };
        file.declaration = declared::declaration(&topology.queues, &topology.topics).map_err(
            |(key, detail)| {
                let place = file.place_of(&key);
                FileError::Wrong(format!("{place}: {key}: {detail}"))
            },
        )?;
        Ok(file)
    }

    /// The file, with the line if what was said of the declaration begins with a key.
    pub fn place_of(&self, said: &str) -> String {
        let path = self.path.display();
        let key = said.split(": ").next().unwrap_or_default();
        match self.lines.get(key) {
            Some(line) => format!("{path}:{line}"),
            None => path.to_string(),
        }
    }
}

/// Notes the lines of a list, and of what is below.
fn add(list: &str, names: &[Named], text: &str, lines: &mut BTreeMap<String, usize>) {
    for (index, named) in names.iter().enumerate() {
        let key = format!("{list}[{index}]");
        let (line, _) = place_of(text, named.name.span().start);
        add(&format!("{key}.subscriptions"), &named.subscriptions, text, lines);
        add(&format!("{key}.rules"), &named.rules, text, lines);
        lines.insert(key, line);
    }
}

/// Line and column of a byte, from 1.
fn place_of(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_begin = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(line_begin..).map_or(0, |line| line.chars().count());
    (before.matches('\n').count() + 1, column + 1)
}

/// Place, line and reason; the line has the key.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> FileError {
    let (line, column) = place_of(text, error.span().map_or(0, |span| span.start));
    let said = error.message().trim_end();
    let said = match unknown_field(said) {
        Some((name, Some(meant))) => format!("unknown key `{name}`; did you mean `{meant}`?"),
        Some((name, None)) => {
            format!("unknown key `{name}`; `peeklock export` shows those there are")
        }
        None => said.to_owned(),
    };
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
    FileError::Wrong(format!("{}:{line}:{column}: {said}\n  in: {shown}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        TopologyFile::of_text(Path::new("t.toml"), text).unwrap_err().to_string()
    }

    /// DEC-16: file, line and key of what is wrong, and the way out.
    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let rule = "[[topics]]\nname = \"t\"\n[[topics.subscriptions]]\nname = \"s\"\n\
                    [[topics.subscriptions.rules]]\nname = \"r\"\nfilter = true\nsql = \"a = 1\"\n";
        for (text, said) in [
            ("[[queues]]\n", "t.toml:1:1: missing field `name`"),
            (
                "[[queues]]\nname = \"a\"\nlock_durtion = \"1m\"\n",
                "t.toml:3:1: unknown key `lock_durtion`; did you mean `lock_duration`?\n  in: lock_durtion = \"1m\"",
            ),
            ("[http]\n", "t.toml:1:2: unknown key `http`; `peeklock export`"),
            (
                "[[queues]]\nname = \"a\"\nlock_duration = \"soon\"\n",
                "t.toml:3:17: `soon` is not a duration, such as \"30s\"",
            ),
            ("[[queues]]\nname = \n", "t.toml:2:"),
            (
                rule,
                "t.toml:6: topics[0].subscriptions[0].rules[0]: the rule `r` has more than one of",
            ),
        ] {
            let text = refused(text);
            assert!(text.starts_with(said), "{text}");
        }
    }

    /// DEC-16: what the broker says begins with a key, which has a line.
    #[test]
    fn what_the_broker_refuses_has_its_line() {
        let text = "[[queues]]\nname = \"a\"\n\n[[queues]]\nname = \"A\"\n";
        let file = TopologyFile::of_text(Path::new("t.toml"), text).unwrap();
        assert_eq!(file.place_of("queues[1]: twice"), "t.toml:5");
        assert_eq!(file.place_of("nobody: may"), "t.toml");
    }
}
