//! Counts the words that make prose hard to read, area by area, and holds each count at or below the recorded one.
//!
//! An area is a crate, a folder of documents, or all text literals of the product (errors, logs, help). The counts in
//! `prose.toml` may only fall. Run with `PEEKLOCK_PROSE=write` to record lower counts, and with `PEEKLOCK_PROSE=list` to
//! print each place that is counted.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::source::{Texts, without_comments};
use crate::{code, files, place, read, root};

/// A group of phrases that the style rules replace by plainer ones.
struct Rule {
    name: &'static str,
    phrases: &'static [&'static str],
}

const RULES: [Rule; 6] = [
    Rule { name: "noun_clauses", phrases: &["what", "who", "whoever", "whatever", "whom"] },
    Rule { name: "tell", phrases: &["tell", "tells", "told", "telling"] },
    Rule {
        name: "so_many",
        phrases: &["so many", "so much", "so long", "so large", "so few", "so far"],
    },
    Rule {
        name: "stand_ins",
        phrases: &[
            "of one",
            "the one",
            "that of",
            "those that",
            "those of",
            "of whom",
            "of them",
            "of it",
        ],
    },
    Rule {
        name: "beside",
        phrases: &[
            "beside",
            "besides",
            "anew",
            "likewise",
            "for good",
            "at hand",
            "of late",
            "for want of",
            "for ever",
        ],
    },
    Rule { name: "persons", phrases: &["he", "his", "him"] },
];

const RECORD: &str = "tests/tidy/prose.toml";

type Counts = BTreeMap<String, BTreeMap<String, usize>>;

#[test]
fn prose_counts_never_rise() {
    let task = env::var("PEEKLOCK_PROSE").unwrap_or_default();
    let mut counts = Counts::new();
    for (area, path, text) in texts() {
        let words = words(&text);
        for rule in &RULES {
            let places = occurrences(&words, rule);
            if task == "list" {
                for (line, phrase) in &places {
                    println!("{path}:{line}: {}: {phrase}", rule.name);
                }
            }
            let area = counts.entry(area.clone()).or_default();
            *area.entry(rule.name.to_owned()).or_default() += places.len();
        }
    }
    assert!(counts.len() > 20, "areas are found in another way: {:?}", counts.keys());
    let recorded: Counts = toml::from_str(&read(RECORD)).expect("prose.toml is a table of counts");
    let mut risen = String::new();
    for (area, now) in &counts {
        for (rule, count) in now {
            let bound = recorded.get(area).and_then(|area| area.get(rule)).copied().unwrap_or(0);
            if *count > bound {
                writeln!(risen, "  {area}: {rule} {bound} -> {count}").expect("a string grows");
            }
        }
    }
    if task == "write" && (risen.is_empty() || recorded.is_empty()) {
        let text = toml::to_string(&counts).expect("counts are written as TOML");
        fs::write(root().join(RECORD), text).expect("prose.toml can be written");
        return;
    }
    assert!(
        risen.is_empty(),
        "prose became harder to read:\n{risen}CONTRIBUTING.md has the rules; \
         PEEKLOCK_PROSE=list prints each place that is counted"
    );
}

/// Every prose text of the tree: its area, its file, and its text with the line breaks of the file.
fn texts() -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for extension in ["md", "rs", "js", "ts"] {
        for path in files(".", extension).into_iter().filter(|path| !path.is_symlink()) {
            let text = read(&path);
            let prose = if extension == "md" { without_code(&text) } else { comments(&text) };
            found.push((area(&place(&path)), place(&path), prose));
            if extension == "rs" {
                found.push(("texts of the product".to_owned(), place(&path), literals(&path)));
            }
        }
    }
    found
}

/// The crate, the folder of documents, or the file at the root that a file belongs to.
fn area(place: &str) -> String {
    let place = place.trim_start_matches("./");
    let parts: Vec<&str> = place.split('/').collect();
    let is_deep =
        matches!(parts[0], "broker-core" | "transports" | "plugins" | "docs") && parts.len() > 2;
    parts[..if is_deep { 2 } else { 1 }].join("/")
}

/// Markdown without blocks and spans of code; lines keep their numbers.
fn without_code(text: &str) -> String {
    let mut prose = String::new();
    let mut is_block = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_block ^= is_fence;
        if !is_block && !is_fence {
            prose.extend(line.split('`').step_by(2).flat_map(|part| [part, " "]));
        }
        prose.push('\n');
    }
    prose
}

/// The lines of a source that are comments and nothing else.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start().strip_prefix("//")?;
        Some(line.trim_start_matches(['/', '!']).to_owned())
    };
    let lines: Vec<String> = text.lines().map(|line| comment(line).unwrap_or_default()).collect();
    without_code(&lines.join("\n"))
}

/// The text literals of a source that run in the product; all else is blank.
fn literals(path: &Path) -> String {
    let code = code(path);
    let blanked = without_comments(&code, Texts::Blanked);
    let bytes = code.bytes().zip(blanked.bytes());
    let kept = bytes.map(|(byte, blank)| if byte != blank || byte == b'\n' { byte } else { b' ' });
    String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
}

/// The words of a text in lower case, each with the number of its line.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for (line, text) in text.lines().enumerate() {
        // The name of a command.
        let text = text.replace("what-if", "");
        let parts = text.split(|char: char| !char.is_alphanumeric() && char != '_');
        words.extend(
            parts.filter(|word| !word.is_empty()).map(|word| (line + 1, word.to_lowercase())),
        );
    }
    words
}

fn occurrences(words: &[(usize, String)], rule: &Rule) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for phrase in rule.phrases {
        let parts: Vec<&str> = phrase.split(' ').collect();
        let here = words
            .windows(parts.len())
            .filter(|window| window.iter().zip(&parts).all(|((_, word), part)| word == part));
        found.extend(here.map(|window| (window[0].0, *phrase)));
    }
    found
}

#[test]
fn prose_counts_see_comments_documents_and_texts() {
    let rule = &RULES[0];
    let count = |text: &str| occurrences(&words(text), rule).len();
    assert_eq!(count(&comments("/// What is kept.\nlet what = 1;\n// `what` in code\n")), 1);
    assert_eq!(count(&without_code("Who asks\n```sh\nwho\n```\nand `who` not, whatever\n")), 2);
    assert_eq!(area("transports/amqp/src/lib.rs"), "transports/amqp");
    assert_eq!(area("docs/spec/amqp.md"), "docs/spec");
    assert_eq!(area("README.md"), "README.md");
}
