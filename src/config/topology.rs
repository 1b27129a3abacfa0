//! A file with only `[[queues]]` and `[[topics]]`, which `peeklock apply` reads and `peeklock
//! export` writes (DEC-16, DEC-17). Each error names the file, the line and the key. The file of
//! the emulator is read too (DEC-20). `topology_text.rs` offers both forms to the JSON API.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use peeklock::declaration::Declaration;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::entity::{self, QueueDeclaration, TopicDeclaration, Usual};
use super::source::unknown_field;
use crate::emulator;
use crate::emulator::declared::with_emulator_meaning;

/// Maximum size of a file: room for the largest declaration (DEC-04) with every property and texts
/// of usual length.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The comment at the top of an exported file.
pub(super) const HEAD: &str = "\
# Queues, topics, subscriptions and rules of a namespace, for `peeklock apply -f`. Entities and properties that are not
# named stay unchanged; an empty text removes a value; a subscription gets exactly the rules that are listed. With
# unnamed_is_default = true, properties that are not named are reset to the default that all new entities share (no
# sessions, no duplicate detection, status Active and so on).
";

/// The entities of a namespace, as a file declares them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with [[queues]] and [[topics]]")]
pub struct Topology {
    /// Resets properties that are not named and that have the same default in all entities.
    #[serde(default, skip_serializing_if = "is_false")]
    unnamed_is_default: bool,
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
    /// The declared entities.
    pub declaration: Declaration,
    /// Values of the emulator's file that were ignored or changed, each with its place.
    pub notes: Vec<String>,
    /// Place of a member of the emulator's file that may be a misspelt list of entities.
    unknown_list: Option<String>,
    path: PathBuf,
    /// The place of each declared entity.
    places: Places,
}

/// Places of declared entities in a file.
#[derive(Debug)]
enum Places {
    /// The line of each entity of a TOML file, by its key.
    Lines(BTreeMap<String, usize>),
    /// Members of the emulator's file.
    Emulator,
}

/// Reason why a file cannot be used, with its place and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file is too large.
    #[error(
        "`{}` has more than {FILE_BYTES_MAX} bytes; split the declaration into several files", path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The content is invalid.
    #[error("{0}")]
    Wrong(String),
}

/// Names in a file, with their positions.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Topology {
    /// The text of a file that declares these entities, without properties that have their usual
    /// value.
    ///
    /// # Errors
    /// With the value that TOML cannot hold.
    pub fn text(&mut self) -> Result<String, String> {
        self.unnamed_is_default = true;
        self.with_usual(Usual::IsLeftOut);
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        Ok(format!("{HEAD}\n{text}"))
    }

    /// The text of these entities as a part of a file whose head states that unnamed properties
    /// have their usual value.
    pub(super) fn part_text(&mut self) -> Result<String, toml::ser::Error> {
        self.with_usual(Usual::IsLeftOut);
        toml::to_string(self)
    }

    fn with_usual(&mut self, usual: Usual) {
        for queue in &mut self.queues {
            queue.with_usual(usual);
        }
        for topic in &mut self.topics {
            topic.with_usual(usual);
        }
    }
}

/// The positions at which the lines of a text begin.
struct Lines<'t> {
    text: &'t str,
    begins: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, begins: std::iter::once(0).chain(ends).collect() }
    }

    /// Line and column of a byte, from 1.
    fn place_of(&self, byte: usize) -> (usize, usize) {
        let line = self.begins.partition_point(|begin| *begin <= byte);
        let begin = self.begins.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let before = self.text.get(begin..byte).or_else(|| self.text.get(begin..));
        (line, before.map_or(0, |before| before.chars().count()) + 1)
    }
}

impl TopologyFile {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// Returns the file, line and key of a fault.
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

    /// Reads a text; `path` names it in errors.
    ///
    /// # Errors
    /// As for [`TopologyFile::read`].
    pub(super) fn of_text(path: &Path, text: &str) -> Result<Self, FileError> {
        if is_of_emulator(text) {
            return Self::of_emulator(path, text);
        }
        let mut topology: Topology =
            toml::from_str(text).map_err(|error| explain(path, text, &error))?;
        if topology.unnamed_is_default {
            topology.with_usual(Usual::IsNamed);
        }
        // The text is parsed again for the positions of names.
        let names: Names = toml::from_str(text).map_err(|error| explain(path, text, &error))?;
        let (mut lines, begins) = (BTreeMap::new(), Lines::of(text));
        add("queues", &names.queues, &begins, &mut lines);
        add("topics", &names.topics, &begins, &mut lines);
        Self::of_topology(path, &topology, Places::Lines(lines))
    }

    /// Reads the emulator's file with the meaning of the emulator (DEC-15).
    fn of_emulator(path: &Path, text: &str) -> Result<Self, FileError> {
        let wrong = |fault: String| FileError::Wrong(format!("{}: {fault}", path.display()));
        let emulator::file::Imported { mut config, notes, unknown_list } =
            emulator::file::read(text).map_err(|fault| wrong(fault.to_string()))?;
        // The name of a namespace is not declared.
        config.remove("namespace");
        let topology: Topology =
            config.try_into().map_err(|error| wrong(error.message().to_owned()))?;
        let file = Self::of_topology(path, &topology, Places::Emulator)?;
        let declaration = with_emulator_meaning(file.declaration);
        Ok(Self { declaration, notes, unknown_list, ..file })
    }

    fn of_topology(path: &Path, topology: &Topology, places: Places) -> Result<Self, FileError> {
        let mut file = Self {
            declaration: Declaration::new(),
            notes: Vec::new(),
            unknown_list: None,
            path: path.to_owned(),
            places,
        };
        file.declaration =
            entity::declaration(&topology.queues, &topology.topics).map_err(|(key, detail)| {
                let place = file.place_of(&key);
                FileError::Wrong(format!("{place}: {key}: {detail}"))
            })?;
        Ok(file)
    }

    /// The reason why entities that the file does not name must not be deleted, if there is one
    /// (DEC-19).
    pub fn reason_to_keep(&self) -> Option<String> {
        let place = self.unknown_list.as_ref()?;
        let path = self.path.display();
        Some(format!(
            "{path}: {place} is unknown, so entities in it would be deleted; correct or remove \
             it, or keep the entities that are not named"
        ))
    }

    /// The file, with the line or member if `said` begins with a key.
    pub fn place_of(&self, said: &str) -> String {
        self.found_place(said).unwrap_or_else(|| self.path.display().to_string())
    }

    /// The file with the line or member; none if `said` begins with no key.
    pub(super) fn found_place(&self, said: &str) -> Option<String> {
        let path = self.path.display();
        let key = said.split(": ").next().unwrap_or_default();
        match &self.places {
            Places::Lines(lines) => lines.get(key).map(|line| format!("{path}:{line}")),
            Places::Emulator => {
                emulator::file::place_of(key).map(|place| format!("{path}: {place}"))
            }
        }
    }
}

/// Whether a text is the emulator's file: JSON, which may begin with a comment. No TOML document
/// begins so.
fn is_of_emulator(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with(['{', '/'])
}

/// Records the line of each entity of a list and of its children.
fn add(list: &str, names: &[Named], text: &Lines<'_>, lines: &mut BTreeMap<String, usize>) {
    for (index, named) in names.iter().enumerate() {
        let key = format!("{list}[{index}]");
        let (line, _) = text.place_of(named.name.span().start);
        add(&format!("{key}.subscriptions"), &named.subscriptions, text, lines);
        add(&format!("{key}.rules"), &named.rules, text, lines);
        lines.insert(key, line);
    }
}

/// An error with place and reason; the text of the line includes the key.
fn explain(path: &Path, text: &str, error: &toml::de::Error) -> FileError {
    let (line, column) = Lines::of(text).place_of(error.span().map_or(0, |span| span.start));
    let said = error.message().trim_end();
    let said = match unknown_field(said) {
        Some((name, Some(meant))) => format!("unknown key `{name}`; did you mean `{meant}`?"),
        Some((name, None)) => {
            format!("unknown key `{name}`; `peeklock export` shows all keys")
        }
        None => said.to_owned(),
    };
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
    FileError::Wrong(format!("{}:{line}:{column}: {said}\n  in: {shown}", path.display()))
}

#[cfg(test)]
mod tests {
    use peeklock::description::{
        EntityStatus, QueueDescription, QueueUpdate, SessionRetryOrder, Settings,
    };

    use super::*;
    use crate::config::SubscriptionDeclaration;

    fn refused(text: &str) -> String {
        TopologyFile::of_text(Path::new("t.toml"), text).unwrap_err().to_string()
    }

    /// DEC-16: an error names the file, line, key and remedy.
    #[test]
    fn errors_have_file_line_and_key() {
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

    /// DEC-17: a property with the default of all new entities is left out. A file with
    /// `unnamed_is_default` names it when it is read, so that an entity with another value is
    /// reset.
    #[test]
    fn omitted_properties_have_usual_values() {
        let settings = Settings::default();
        let unusual = QueueDescription {
            requires_duplicate_detection: true,
            requires_session: true,
            dead_lettering_on_message_expiration: true,
            enable_batched_operations: false,
            status: EntityStatus::Disabled,
            session_retry_order: SessionRetryOrder::Pass,
            ..settings.new_queue("b")
        };
        let queues = || [&settings.new_queue("a"), &unusual].map(QueueDeclaration::from);
        let topic = || {
            let below = SubscriptionDeclaration::of(&settings.new_subscription("t", "s"), &[]);
            TopicDeclaration::of(&settings.new_topic("t"), vec![below])
        };
        let mut topology = Topology::default();
        topology.queues.extend(queues());
        topology.topics.push(topic());
        let text = topology.text().unwrap();
        for named_once in ["requires_session", "status =", "session_retry_order", "= false"] {
            assert_eq!(text.matches(named_once).count(), 1, "{named_once} in {text}");
        }
        let file = TopologyFile::of_text(Path::new("t.toml"), &text).unwrap();
        assert_eq!(file.declaration.queues, queues().map(|queue| queue.declared()));
        assert_eq!(file.declaration.topics, [topic().declared().unwrap()]);
        let other = "[[queues]]\nname = \"a\"\n";
        let file = TopologyFile::of_text(Path::new("t.toml"), other).unwrap();
        assert_eq!(file.declaration.queues[0].properties, QueueUpdate::default());
    }

    /// DEC-04, DEC-16: a file with the maximum number of queues is read, and each queue has its
    /// line.
    #[test]
    fn a_file_of_all_that_may_be_declared_is_read() {
        let settings = Settings::default();
        let mut topology = Topology::default();
        let queues = (0..10_000).map(|index| settings.new_queue(format!("q{index}")));
        topology.queues.extend(queues.map(|queue| QueueDeclaration::from(&queue)));
        let text = topology.text().unwrap();
        assert!(((1 << 20)..FILE_BYTES_MAX).contains(&(text.len() as u64)), "{}", text.len());
        let file = TopologyFile::of_text(Path::new("t.toml"), &text).unwrap();
        assert_eq!(file.declaration.queues.len(), 10_000);
        let above = text.lines().take_while(|line| *line != "name = \"q9999\"").count();
        assert_eq!(file.place_of("queues[9999]: twice"), format!("t.toml:{}", above + 1));
    }

    /// DEC-16: an error of the broker begins with a key, whose line is known.
    #[test]
    fn rejections_of_the_broker_have_a_line() {
        let text = "[[queues]]\nname = \"a\"\n\n[[queues]]\nname = \"A\"\n";
        let file = TopologyFile::of_text(Path::new("t.toml"), text).unwrap();
        assert_eq!(file.place_of("queues[1]: twice"), "t.toml:5");
        assert_eq!(file.place_of("nobody: may"), "t.toml");
    }
}
