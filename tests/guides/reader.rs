//! Follows a page by the rules of its blocks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::machine::{Machine, Shell};
use crate::markdown::{Block, blocks};
use crate::pattern::{contains, fits, lines};
use crate::{docs, example, read, word};

/// Output to which the next `console` is compared.
enum Output {
    /// Everything that the block before printed.
    Whole(String),
    /// A part of the text in this terminal.
    OfTerminal(String),
}

/// The state of a page that is followed.
struct Reader {
    page: &'static str,
    text: String,
    /// Languages that this machine lacks.
    lacking: Vec<String>,
    first: Shell,
    others: BTreeMap<String, Shell>,
    last: Option<Output>,
    // Last, since its terminals close before it ends.
    machine: Machine,
}

/// Follows a page from its top.
pub fn follow(page: &'static str) {
    let text = read(page);
    let blocks = blocks(&text);
    for block in &blocks {
        has_a_rule(page, block);
    }
    let is_run = |block: &Block| ["sh", "toml"].contains(&block.language());
    if blocks.iter().any(is_run)
        && let Some(mut reader) = Reader::start(page, text, &blocks)
    {
        for block in &blocks {
            reader.follow(block);
        }
    }
    example::check(page, &blocks);
}

impl Reader {
    fn start(page: &'static str, text: String, blocks: &[Block]) -> Option<Self> {
        let mut machine = Machine::start(page)?;
        // Programs that the page installs are there from the beginning.
        let mut needed: Vec<&str> =
            blocks.iter().filter_map(|block| word(block, "needs")).collect();
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|language| !machine.has(language));
        let lacking = needed.into_iter().map(str::to_owned).collect();
        let first = machine.shell();
        Some(Self { page, text, lacking, first, others: BTreeMap::new(), last: None, machine })
    }

    fn follow(&mut self, block: &Block) {
        let place = format!("{}:{}", self.page, block.line);
        let is_lacking = word(block, "needs")
            .is_some_and(|language| self.lacking.iter().any(|it| it == language));
        if word(block, "by-hand").is_some() || is_lacking {
            self.last = None;
            return;
        }
        if let Some(file) = word(block, "file") {
            self.save(&place, file, block);
        }
        match block.language() {
            "sh" => match word(block, "terminal") {
                Some(terminal) => self.use_terminal(terminal, &block.text),
                None => self.last = Some(Output::Whole(self.paste(&place, &block.text))),
            },
            "console" => self.compare(&place, &block.text),
            "toml" if word(block, "cargo").is_none() => {
                let file = word(block, "file").unwrap_or("checked.toml");
                std::fs::write(self.machine.folder.join(file), &block.text).unwrap();
                self.paste(&place, &format!("peeklock config check --config {file}"));
            }
            "rust" => self.last = None,
            _ => {
                if let Some(url) = word(block, "browser") {
                    self.look(&place, url, &block.text);
                }
            }
        }
    }

    /// Saves a block as a file.
    fn save(&self, place: &str, file: &str, block: &Block) {
        let before: Vec<&str> = self.text.lines().take(block.line - 1).collect();
        let is_named = before.iter().rev().take(6).any(|line| line.contains(file));
        assert!(is_named, "{place}: the text before the block does not name {file}");
        let path = self.machine.folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &block.text).unwrap();
    }

    /// Pastes commands into the first terminal; they must succeed.
    fn paste(&mut self, place: &str, commands: &str) -> String {
        self.first.paste(commands).unwrap_or_else(|printed| {
            panic!("{place}: failed:\n{commands}\nprinted\n{printed}");
        })
    }

    /// Presses Ctrl-C in a further terminal if it is open, and types commands there if the block has any.
    fn use_terminal(&mut self, terminal: &str, commands: &str) {
        self.last = None;
        if let Some(shell) = self.others.remove(terminal) {
            shell.interrupt();
        }
        if commands.trim() != "# Ctrl-C" {
            self.open(terminal, commands);
            self.last = Some(Output::OfTerminal(terminal.to_owned()));
        }
    }

    fn open(&mut self, terminal: &str, commands: &str) {
        let mut shell = self.machine.shell();
        shell.type_all(commands);
        self.others.insert(terminal.to_owned(), shell);
    }

    /// Compares output with the text of a `console`.
    fn compare(&mut self, place: &str, text: &str) {
        match &self.last {
            Some(Output::Whole(printed)) => {
                let is_shown = fits(&lines(text), &lines(printed));
                assert!(is_shown, "{place}: expected\n{text}\nprinted\n{printed}");
            }
            Some(Output::OfTerminal(terminal)) => self.wait_for(place, terminal, text),
            None => {}
        }
    }

    /// Waits until a further terminal shows a text.
    fn wait_for(&self, place: &str, terminal: &str, text: &str) {
        let wanted = lines(text);
        let (printed, is_there) =
            self.others[terminal].shows(|printed| contains(&wanted, &lines(printed)));
        assert!(is_there, "{place}: expected\n{text}\nprinted\n{printed}");
    }

    /// Waits until a page in Chromium, which stays open, shows a text.
    fn look(&mut self, place: &str, url: &str, text: &str) {
        const BROWSER: &str = "browser";
        if !self.others.contains_key(BROWSER) {
            let look = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/look.mjs");
            self.open(BROWSER, &format!("exec node '{}' {url}\n", look.display()));
        }
        self.wait_for(place, BROWSER, text);
    }
}

/// Panics for a block that no rule covers.
fn has_a_rule(page: &str, block: &Block) {
    let place = format!("{page}:{}", block.line);
    let words: &[&str] = match block.language() {
        "sh" => &["terminal", "needs", "by-hand"],
        "console" => &[],
        "toml" => &["file", "cargo", "by-hand"],
        "rust" if word(block, "ignore").is_some() == word(block, "example").is_some() => {
            &["ignore", "example"]
        }
        "rust" => panic!("{place}: an ignored block names its example"),
        _ => &["file", "browser", "by-hand"],
    };
    for info in block.info.iter().skip(1) {
        let key = info.split(':').next().unwrap();
        assert!(words.contains(&key), "{place}: no rule for `{info}`");
    }
    let is_known = ["sh", "console", "toml", "rust", "text"].contains(&block.language());
    if block.language() == "rust" && word(block, "ignore").is_none() {
        let name = Path::new(page).file_name().unwrap().to_string_lossy().into_owned();
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("broker-core/peeklock");
        let source = std::fs::read_to_string(library.join("src/lib.rs")).unwrap();
        let include = format!("include_str!(\"../guides/{name}\")");
        assert!(source.contains(&include), "{place}: the library does not test {name}");
        let link = library.join("guides").join(name).canonicalize().unwrap();
        assert_eq!(link, docs().join(page).canonicalize().unwrap());
    }
    if block.language() == "toml" {
        assert!(block.text.parse::<toml::Table>().is_ok(), "{place}: not TOML");
    }
    let is_covered = is_known || block.info.len() > 1;
    assert!(is_covered, "{place}: no rule for a block of `{}`", block.language());
}
