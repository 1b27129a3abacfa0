//! Statements of documents about the tree: the map, the paths of messages, examples, the changelog.

use std::collections::{BTreeMap, BTreeSet};
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

/// Each file in the tables of ways in ARCHITECTURE.md exists, and no table cell of the page has more
/// than 20 words. A letter before a file stands for a folder, which the text above names.
#[test]
fn message_paths_name_existing_files() {
    let map = read("ARCHITECTURE.md");
    for row in map.lines().filter(|line| line.starts_with("| ")) {
        for cell in row.trim_matches('|').split('|') {
            let count = cell.split_whitespace().count();
            assert!(count <= 20, "a cell of ARCHITECTURE.md has {count} words: {cell}");
        }
    }
    let ways = map.split_once("### Files of each way").unwrap().1;
    let ways = ways.split("\n## ").next().unwrap();
    let mut folders = BTreeMap::new();
    for (at, _) in ways.match_indices('`') {
        let Some((folder, _)) = ways[at + 1..].split_once('`') else { continue };
        let letter = ways[..at].split_whitespace().next_back().unwrap_or_default();
        if folder.ends_with('/') && letter.len() == 1 {
            assert!(root().join(folder).is_dir(), "{folder}");
            folders.insert(letter.to_owned(), folder.to_owned());
        }
    }
    assert!(folders.len() > 7, "{folders:?}");
    let mut found = BTreeSet::new();
    for row in ways.lines().filter(|line| line.starts_with("| ")) {
        let mut folder = None;
        for (place, part) in row.split('`').enumerate() {
            if place % 2 == 0 {
                let last = part.split_whitespace().next_back().unwrap_or_default();
                folder = folders.get(last).or(folder);
            } else if part.ends_with(".rs") {
                let folder = folder.unwrap_or_else(|| panic!("{part} of which folder? {row}"));
                let path = root().join(folder).join(part);
                assert!(path.exists(), "ARCHITECTURE.md names {folder}{part}, which is not there");
                found.insert(path);
            }
        }
    }
    assert!(found.len() > 120, "{} files", found.len());
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
