//! Statements of documents about the tree: the map, the paths of messages, examples, the changelog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use crate::source::{functions, tests};
use crate::{files, read, root};

#[test]
fn the_map_of_the_tree_is_right() {
    let map = read("ARCHITECTURE.md");
    let mut named = BTreeSet::new();
    for line in map.lines().filter(|line| line.starts_with("| `")) {
        let first = line.split('|').nth(1).unwrap_or_default();
        for place in first.split('`').skip(1).step_by(2).filter(|place| place.contains('/')) {
            assert!(
                root().join(place).exists(),
                "ARCHITECTURE.md names `{place}`, which is not there"
            );
            named.insert(place.split('/').next().unwrap_or_default().to_owned());
        }
    }
    for folder in ["src", "broker-core", "transports", "plugins", "examples", "tests", "benches"] {
        assert!(named.contains(folder), "ARCHITECTURE.md does not name `{folder}/`");
    }
}

/// Each file in the tables of ARCHITECTURE.md exists, and each row has as many files as it states,
/// there and in decision 31. A letter before a file stands for a folder, which the text above
/// names.
#[test]
fn message_paths_name_existing_files() {
    let map = read("ARCHITECTURE.md");
    let ways = map.split_once("## The way of a message").unwrap().1;
    let ways = ways.split("\n## ").next().unwrap();
    let mut folders = BTreeMap::new();
    for (at, _) in ways.match_indices('`') {
        let Some((folder, _)) = ways[at + 1..].split_once('`') else { continue };
        let letter = ways[..at].split_whitespace().next_back().unwrap_or_default();
        let letter = if letter == "is" {
            ways[..at].split_whitespace().rev().nth(1).unwrap_or_default()
        } else {
            letter
        };
        if folder.ends_with('/') && letter.len() == 1 {
            assert!(root().join(folder).is_dir(), "{folder}");
            folders.insert(letter.to_owned(), folder.to_owned());
        }
    }
    assert!(folders.len() > 7, "{folders:?}");
    let files_of = |row: &str| -> BTreeSet<PathBuf> {
        let mut folder = None;
        let mut found = BTreeSet::new();
        for (place, part) in row.split('`').enumerate() {
            if place % 2 == 0 {
                let last = part.split_whitespace().next_back().unwrap_or_default();
                folder = folders.get(last).or(folder);
            } else if part.ends_with(".rs") {
                let folder = folder.unwrap_or_else(|| panic!("{part} of which folder? {row}"));
                let path = root().join(folder).join(part);
                let path = path.canonicalize();
                found.insert(path.unwrap_or_else(|_| panic!("{folder}{part} is not there")));
            }
        }
        found
    };
    let (first, others) = ways.split_once("| Way | Files in their order |").unwrap();
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect()
    };
    let first: BTreeSet<PathBuf> = rows(first).iter().flat_map(|row| files_of(row)).collect();
    let said = ways.split_once("These are ").unwrap().1.split_once(" files").unwrap().0;
    assert_eq!(first.len().to_string(), said);
    let cell = |row: &str, place| row.split('|').nth(place).unwrap().trim().to_owned();
    let decision = rows(&read("docs/decisions/0031-a-send-passes-37-files.md"));
    let mut decided: BTreeMap<String, String> =
        decision.iter().skip(1).map(|row| (cell(row, 1), cell(row, 4))).collect();
    assert_eq!(decided.remove("a binary send over WebSocket").unwrap(), said);
    let others = rows(others);
    assert_eq!(others.len(), 12);
    for row in others {
        let said = cell(&row, 3);
        assert_eq!(files_of(&row).len().to_string(), said, "{row}");
        let decided = decided.remove(&cell(&row, 1));
        assert!(decided.is_none_or(|decided| decided == said), "decision 31 has another: {row}");
    }
    assert!(decided.is_empty(), "decision 31 has other ways: {decided:?}");
}

/// Each mutation finds the text that it replaces exactly once, and has a row in the results.
#[test]
fn each_mutation_can_be_applied() {
    let run = |argument: &str| {
        let told = Command::new("python3")
            .args(["tests/mutations/run.py", argument])
            .current_dir(root())
            .output()
            .expect("python3 is there");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.status.success(), "{text}{}", String::from_utf8_lossy(&told.stderr));
        text
    };
    run("--check");
    let results = read("tests/mutations/README.md");
    for line in run("--list").lines() {
        let number = line.split_whitespace().next().unwrap();
        let row = format!("\n| {number} | ");
        assert!(results.contains(&row), "tests/mutations/README.md has no row for mutation {line}");
    }
}

/// The tests and listed scenarios that FINDINGS.md names exist.
#[test]
fn findings_name_existing_tests() {
    let page = read("tests/FINDINGS.md");
    let mut count = 0;
    for shown in page.split('`').skip(1).step_by(2) {
        let Some((file, name)) = shown.split_once("::") else { continue };
        let text = read(file);
        let is_scenario = file.starts_with("tests/conformance/scenarios/");
        let found = if is_scenario { functions(&text, |_| true) } else { tests(&text) };
        assert!(found.iter().any(|it| it.name == name), "tests/FINDINGS.md names {shown}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}

#[test]
fn the_changelog_has_its_form() {
    let text = read("CHANGELOG.md");
    let first = text.lines().find_map(|line| line.strip_prefix("## [")).unwrap();
    let version = concat!(env!("CARGO_PKG_VERSION"), "]");
    assert!(
        first == "Unreleased]" || first.starts_with(version),
        "CHANGELOG.md begins with {first}"
    );
    for line in text.lines().filter(|line| line.starts_with("### ")) {
        let kinds = ["### Added", "### Changed", "### Fixed", "### Breaking"];
        assert!(kinds.contains(&line), "CHANGELOG.md has a section `{line}`");
    }
}

#[test]
fn examples_are_short_and_state_their_output() {
    let examples = files("examples", "rs");
    assert!(!examples.is_empty());
    for path in examples {
        let text = read(&path);
        assert!(text.starts_with("//! "), "{} does not begin with what it shows", path.display());
        assert!(text.contains("cargo run --example"), "{} does not say how to run", path.display());
        assert!(text.lines().count() <= 120, "{} is longer than 120 lines", path.display());
    }
}
