//! Requirements, the tests that prove them, and the reasons for those without a test.
//!
//! A requirement is proven only by a test that names it: in the comment above a test function or a
//! scenario, or in its name; in JavaScript and Python in the comment above a test or in its title.
//! Comments at the head of a file or next to an assertion are for readers and prove nothing. Each
//! id is written out, because a range could name unchecked ids.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::source::{Function, functions, tests};
use crate::{files, place, read};

/// The ids at the head of requirements, by file of the specification.
fn requirements() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in files("docs/spec", "md") {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for line in read(&path).lines() {
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

/// Whether a text is an id such as `SET-01`. An id that was inserted between two others ends with a
/// letter.
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(prefix, number)| {
        let number = without_letter(number);
        (2..=4).contains(&prefix.len())
            && prefix.bytes().all(|byte| byte.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn without_letter(number: &str) -> &str {
    number.strip_suffix(|last: char| last.is_ascii_lowercase()).unwrap_or(number)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
}

fn ids_in(text: &str) -> impl Iterator<Item = &str> {
    words(text).filter(|word| is_id(word))
}

/// Ids in the name of a function, which are written like `exp_18` there.
fn ids_in_name(name: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = name.split('_').collect();
    let pairs: Vec<String> =
        words.windows(2).map(|pair| format!("{}-{}", pair[0].to_uppercase(), pair[1])).collect();
    pairs.into_iter().filter(|id| is_id(id))
}

/// Each proven id, with the places of its tests.
fn proven() -> BTreeMap<String, BTreeSet<String>> {
    let mut proven: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut prove = |id: String, path: &Path, name: &str| {
        proven.entry(id).or_default().insert(format!("{}: {name}", place(path)));
    };
    let listed = listed(&scenario_lists());
    for path in files(".", "rs") {
        let text = read(&path);
        let mut found = tests(&text);
        if place(&path).starts_with("tests/conformance/") {
            let scenarios = functions(&text, |_| true);
            let topic = topic_of(&place(&path));
            found.extend(scenarios.into_iter().filter(|it| match &topic {
                Some(topic) => listed.contains(&(topic.clone(), it.name.clone())),
                None => JUDGES.contains(&it.name.as_str()),
            }));
        }
        for test in found {
            let words: Vec<&str> = test.doc.split([' ', ',', '\n']).collect();
            let is_range = words
                .windows(3)
                .any(|three| is_id(three[0]) && three[1] == "to" && is_id(three[2]));
            assert!(!is_range, "{}: {} names a range", place(&path), test.name);
            let ids = ids_in(&test.doc).map(str::to_owned).chain(ids_in_name(&test.name));
            ids.for_each(|id| prove(id, &path, &test.name));
        }
    }
    for path in files(".", "js").into_iter().chain(files(".", "py")) {
        for test in scripted_tests(&read(&path)) {
            ids_in(&test.doc).for_each(|id| prove(id.to_owned(), &path, &test.name));
        }
    }
    proven
}

/// Functions that the tests of the conformance matrix call, each for one column or several.
const JUDGES: [&str; 4] = ["column", "columns", "column_of_topics", "rules_of_a_queue"];

/// The topic of the scenarios in a file: `scenarios/topics/rules.rs` belongs to `topics`.
fn topic_of(place: &str) -> Option<String> {
    let below = place.strip_prefix("tests/conformance/scenarios/")?;
    Some(below.split('/').next()?.trim_end_matches(".rs").to_owned())
}

/// The files that list the conformance scenarios.
fn scenario_lists() -> String {
    ["everywhere", "somewhere"].map(|name| read(format!("tests/conformance/{name}.rs"))).concat()
}

/// The listed scenarios, by topic and name: in lists `topic: [name, name with setup]`, and in lists
/// that begin with `module on Transport: [`, where the macro has the name of the topic.
fn listed(text: &str) -> BTreeSet<(String, String)> {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut listed = BTreeSet::new();
    for (at, _) in text.match_indices('[') {
        let Some(label) = text[..at].trim_end().strip_suffix(':') else { continue };
        let mut words = label.rsplit(|c: char| c.is_whitespace() || c == '{');
        let (last, before) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let topic = match before {
            "on" => label.rsplit_once("! {\n").map_or("", |it| it.0),
            _ => last,
        };
        let topic = topic.rsplit(char::is_whitespace).next().unwrap_or_default();
        let list = text[at + 1..].split(']').next().unwrap_or_default();
        let names = list.split(',').filter_map(|item| item.split_whitespace().next());
        let names = names.filter(|name| is_word(topic) && is_word(name));
        listed.extend(names.map(|name| (topic.to_owned(), name.to_owned())));
    }
    listed
}

/// A scenario is identified by its topic and name: a scenario with the same name that no list
/// contains does not count.
#[test]
fn scenarios_are_listed_by_topic_and_name() {
    let listed = listed(&scenario_lists());
    let has = |topic: &str, name: &str| listed.contains(&(topic.to_owned(), name.to_owned()));
    assert!(has("send", "an_empty_batch_succeeds_and_stores_nothing"));
    assert!(has("transactions", "a_basic_namespace_has_no_transactions"));
    assert!(has("via", "a_failure_of_one_part_undoes_all"));
    assert!(has("sessions", "sessions_are_listed_by_id"));
    assert!(has("receive", "a_receive_for_no_message_is_refused"));
    assert!(!has("receive", "an_empty_batch_succeeds_and_stores_nothing"));
    assert!(listed.len() > 200, "{}", listed.len());
    let mut there = BTreeSet::new();
    for path in files("tests/conformance/scenarios", "rs") {
        let topic = topic_of(&place(&path)).unwrap();
        let names = functions(&read(&path), |_| true).into_iter().map(|it| it.name);
        there.extend(names.map(|name| (topic.clone(), name)));
    }
    let absent: Vec<_> = listed.difference(&there).collect();
    assert!(absent.is_empty(), "listed, and seen nowhere: {absent:?}");
}

/// The tests of a file in JavaScript or Python: their titles, with the comment above.
fn scripted_tests(text: &str) -> Vec<Function> {
    let begins = ["test(", "await test(", "def test_", "async def test_", "scenario("];
    let mut found = Vec::new();
    let mut above = String::new();
    for line in text.lines().map(str::trim) {
        let is_decorated = line.starts_with("async def ") && above.contains("@scenario(");
        if is_decorated || begins.iter().any(|begin| line.starts_with(begin)) {
            found.push(Function { name: line.to_owned(), doc: format!("{above}{line}") });
        }
        if !["//", "#", "@scenario("].iter().any(|begin| line.starts_with(begin)) {
            above.clear();
            continue;
        }
        above.push_str(line);
        above.push('\n');
    }
    found
}

/// Excused ids in tests/README.md: in its last section each item begins with ids, ranges such as
/// `EXP-40 to EXP-47`, and whole prefixes such as `CLU-*`; the reason follows the colon. Returns
/// each with its kind of excuse.
fn excused(known: &BTreeMap<String, String>) -> BTreeMap<String, Excuse> {
    let text = read("tests/README.md");
    let section = text.split_once("## Requirements without a test").map_or("", |it| it.1);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut excused = BTreeMap::new();
    for item in section.split("\n- ").skip(1) {
        let (ids, reason) = item.split_once(':').unwrap_or_else(|| panic!("no reason: {item}"));
        assert!(reason.trim().len() > 10, "no reason: {item}");
        for (id, excuse) in named_in(ids, known) {
            assert!(excused.insert(id.clone(), excuse).is_none(), "{id} is excused twice");
        }
    }
    excused
}

/// Whether a requirement is excused by itself, or with a whole part, some of which may be tested
/// already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Excuse {
    Itself,
    WithItsPart,
}

fn named_in(ids: &str, known: &BTreeMap<String, String>) -> Vec<(String, Excuse)> {
    let mut named = Vec::new();
    let mut words = ids.split([' ', ',', '\n']).filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        if let Some(prefix) = word.strip_suffix('*') {
            let of_it = known.keys().filter(|id| id.starts_with(prefix));
            named.extend(of_it.map(|id| (id.clone(), Excuse::WithItsPart)));
            assert!(named.last().is_some_and(|last| last.0.starts_with(prefix)), "no {word}");
            continue;
        }
        if word == "and" {
            continue;
        }
        assert!(
            known.contains_key(word),
            "tests/README.md excuses {word}, which is no requirement"
        );
        let mut last = word;
        if words.next_if_eq(&"to").is_some() {
            last = words.next().unwrap_or_default();
            assert!(known.contains_key(last), "{word} to what? {last}");
        }
        let (prefix, from) = numbered(word);
        let (_, to) = numbered(last);
        let between = known.keys().filter(|id| {
            let (of, number) = numbered(id);
            of == prefix && (from..=to).contains(&number)
        });
        named.extend(between.map(|id| (id.clone(), Excuse::Itself)));
    }
    named
}

/// Sort key of an id: prefix, number and letter, so that `ADM-34b` follows `ADM-34`.
fn numbered(id: &str) -> (&str, (u32, &str)) {
    let (prefix, number) = id.split_once('-').unwrap_or((id, ""));
    let digits = without_letter(number);
    (prefix, (digits.parse().unwrap_or_default(), &number[digits.len()..]))
}

/// A letter at the end makes a separate requirement.
#[test]
fn a_requirement_may_have_a_letter_after_its_number() {
    let found: Vec<&str> = ids_in("(ADM-34b, SET-01) HTTP-2xx UTF-8Bit X-1a").collect();
    assert_eq!(found, ["ADM-34b", "SET-01"]);
    assert!(numbered("ADM-34") < numbered("ADM-34b") && numbered("ADM-34b") < numbered("ADM-35"));
    assert!(requirements().contains_key("ADM-34b"));
}

/// Every requirement either has a test that names it, or a reason in tests/README.md.
#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let known = requirements();
    let (proven, excused) = (proven(), excused(&known));
    let mut complaints = String::new();
    for (id, file) in &known {
        match (proven.get(id), excused.get(id)) {
            (None, None) => {
                _ = writeln!(complaints, "{id} of {file} is neither tested nor excused")
            }
            (Some(tests), Some(Excuse::Itself)) => {
                _ = writeln!(complaints, "{id} is excused, and tested by {tests:?}");
            }
            (Some(_), None | Some(Excuse::WithItsPart)) | (None, Some(_)) => {}
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");
}

/// The comment of the model names exactly the rules that its sequences must cover.
#[test]
fn the_model_names_its_covered_rules() {
    let text = read("broker-core/tests/model.rs");
    let named = ids_between(&text, "/// The rules that sequences must cover, each", "#[test]");
    assert_eq!(named, ids_between(&text, "const RULES", "];"));
    assert!(named.len() > 50, "{named:?}");
}

fn ids_between<'a>(text: &'a str, from: &str, to: &str) -> BTreeSet<&'a str> {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no `{from}`"));
    let (between, _) = rest.split_once(to).unwrap_or_else(|| panic!("no `{to}` after `{from}`"));
    ids_in(between).collect()
}

/// Every id that a file names belongs to an existing requirement.
#[test]
fn requirements_that_are_named_exist() {
    let known = requirements();
    let prefixes: BTreeSet<&str> = known.keys().map(|id| numbered(id).0).collect();
    let mut complaints = String::new();
    for path in ["rs", "js", "py", "md"].into_iter().flat_map(|extension| files(".", extension)) {
        for id in ids_in(&read(&path)) {
            if prefixes.contains(numbered(id).0) && !known.contains_key(id) {
                _ = writeln!(complaints, "{} names {id}", place(&path));
            }
        }
    }
    assert!(complaints.is_empty(), "no such requirements:\n{complaints}");
}

/// The index of the specification has every file with the number of its requirements.
#[test]
fn the_index_of_the_specification_counts_right() {
    let known = requirements();
    let index = read("docs/spec/README.md");
    let row = |begin: &str| {
        let line = index.lines().find(|line| line.starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("docs/spec/README.md has no row {begin}"));
        line.split('|')
            .rfind(|cell| !cell.trim().is_empty())
            .unwrap_or_default()
            .replace("**", "")
            .trim()
            .parse::<usize>()
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in known.values() {
        *counts.entry(file).or_default() += 1;
    }
    for (file, count) in counts {
        assert_eq!(row(&format!("| [{file}]")), Ok(count), "{file}");
    }
    assert_eq!(row("| **Total**"), Ok(known.len()));
}
