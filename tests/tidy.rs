//! Is the tree as we say? Rules of style that a compiler does not see.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder, without what is built.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|is| is == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What stands in a source file before its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

#[test]
fn the_machines_are_pure() {
    for path in files("broker-core/src/entity", "rs") {
        for word in [
            "std::time",
            "std::fs",
            "std::thread",
            "std::net",
            "tokio",
            "actix",
            "getrandom",
            "HashMap",
            "async ",
        ] {
            assert!(!code(&path).contains(word), "{} uses `{word}`", path.display());
        }
    }
}

#[test]
fn the_shell_knows_no_actix_no_threads_and_no_clock() {
    for path in files("broker-core/src/shell", "rs") {
        for word in ["actix", "tokio", "std::thread", "clock::", "Instant"] {
            let used = code(&path).lines().any(|line| {
                let line = line.trim_start();
                !line.starts_with("//") && line.contains(word)
            });
            assert!(!used, "{} uses `{word}`", path.display());
        }
    }
}

#[test]
fn no_transport_knows_another() {
    let transports = ["inproc", "http", "websocket"];
    for one in transports {
        for path in files(&format!("transports/{one}/src"), "rs") {
            for other in transports.iter().filter(|other| **other != one) {
                let name = format!("peeklock_{other}");
                assert!(!code(&path).contains(&name), "{} uses {name}", path.display());
            }
        }
    }
}

#[test]
fn handles_know_the_broker_by_their_port_alone() {
    for path in files("transports/client/src", "rs") {
        if path
            .components()
            .any(|part| part.as_os_str().to_string_lossy().starts_with("in_process"))
        {
            continue;
        }
        for word in ["peeklock_core::Broker", "peeklock_core::Entity", "::request::", "tungstenite"]
        {
            assert!(!code(&path).contains(word), "{} uses `{word}`", path.display());
        }
    }
}

#[test]
fn metric_names_stand_in_telemetry_only() {
    for path in files(".", "rs") {
        let place = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let allowed = ["telemetry", "metrics-prometheus", "tests", "benches"];
        if allowed.iter().any(|word| place.contains(word)) {
            continue;
        }
        for call in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            assert!(!code(&path).contains(call), "{place} names a metric");
        }
    }
}

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

#[test]
fn examples_are_short_and_say_what_one_will_see() {
    let examples = files("examples", "rs");
    assert!(!examples.is_empty());
    for path in examples {
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.starts_with("//! "), "{} does not begin with what it shows", path.display());
        assert!(text.contains("cargo run --example"), "{} does not say how to run", path.display());
        assert!(text.lines().count() <= 120, "{} is longer than 120 lines", path.display());
    }
}

#[test]
fn the_changelog_has_its_form() {
    let text = read("CHANGELOG.md");
    assert!(text.contains("## [Unreleased]") || text.contains("## [0.1.0]"));
    for line in text.lines().filter(|line| line.starts_with("### ")) {
        let kinds = ["### Added", "### Changed", "### Fixed", "### Breaking"];
        assert!(kinds.contains(&line), "CHANGELOG.md has a section `{line}`");
    }
}

/// The ids at the head of requirements, by file of the specification.
fn requirements() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in files("docs/spec", "md") {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for line in fs::read_to_string(&path).unwrap_or_default().lines() {
            let Some(rest) = line.trim_start().strip_prefix("- **") else { continue };
            let Some((id, _)) = rest.split_once("**") else { continue };
            if is_id(id) {
                let again = found.insert(id.to_owned(), file.clone());
                assert!(again.is_none(), "{id} is given twice in docs/spec");
            }
        }
    }
    found
}

fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(prefix, number)| {
        (2..=4).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| is_id(word))
}

/// Ids that test code names: files under a `tests` folder, `tests.rs`, and what follows `#[cfg(test)]`.
fn named_by_tests() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for path in files(".", "rs") {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let place = path.strip_prefix(root()).unwrap_or(&path);
        let whole = place.components().any(|part| part.as_os_str() == "tests")
            || place.file_name().is_some_and(|name| name == "tests.rs");
        let tests =
            if whole { &text } else { text.split_once("#[cfg(test)]").map_or("", |it| it.1) };
        named.extend(ids_in(tests).map(str::to_owned));
    }
    named
}

/// Every requirement is named by a test, or docs/testing.md says why not. Ranges such as
/// `EXP-40 to EXP-47` and whole prefixes such as `SES-*` are understood there.
#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let excused = read("docs/testing.md");
    let excused = excused.split_once("## Requirements without a test").map_or("", |it| it.1);
    let mut without_reason = Vec::new();
    let named = named_by_tests();
    for id in requirements().into_keys() {
        if !named.contains(&id) && !is_excused(&id, excused) {
            without_reason.push(id);
        }
    }
    assert!(without_reason.is_empty(), "neither tested nor excused: {}", without_reason.join(" "));
}

fn is_excused(id: &str, text: &str) -> bool {
    let Some((prefix, number)) = id.split_once('-') else { return false };
    let Ok(number) = number.parse::<u32>() else { return false };
    if text.contains(&format!("{prefix}-*")) {
        return true;
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| !word.is_empty())
        .collect();
    let number_of =
        |word: &str| -> Option<u32> { word.strip_prefix(prefix)?.strip_prefix('-')?.parse().ok() };
    words.iter().enumerate().any(|(place, word)| {
        let Some(first) = number_of(word) else { return false };
        let last = match (words.get(place + 1), words.get(place + 2)) {
            (Some(&"to"), Some(word)) => number_of(word).unwrap_or(first),
            _ => first,
        };
        (first..=last).contains(&number)
    })
}

/// Names of ids in tests are names of requirements that exist.
#[test]
fn tests_name_requirements_that_exist() {
    let known: BTreeSet<String> = requirements().into_keys().collect();
    let prefixes: BTreeSet<&str> = known.iter().filter_map(|id| id.split('-').next()).collect();
    let unknown: Vec<String> = named_by_tests()
        .into_iter()
        .filter(|id| id.split('-').next().is_some_and(|prefix| prefixes.contains(prefix)))
        .filter(|id| !known.contains(id))
        .collect();
    assert!(unknown.is_empty(), "no such requirements: {}", unknown.join(" "));
}
