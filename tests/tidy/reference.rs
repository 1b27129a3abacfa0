//! Reference pages that repeat tables of the code: errors, settings, limits, REST, AMQP.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use peeklock_core::condition::{Condition, Surface};
use peeklock_core::contract::AuditedAction;

use crate::{files, read};

/// Rows of the tables in a text, as cells. Heads and rulers are rows, too.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    lines.map(cells).collect()
}

/// The text between a heading and the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let heading = format!("\n{heading}\n");
    let (_, rest) = page.split_once(&heading).unwrap_or_else(|| panic!("no heading {heading:?}"));
    rest.split("\n#").next().unwrap_or_default()
}

/// A cell that is one span of code, without its quotes.
fn code_span(cell: &str) -> Option<&str> {
    let text = cell.strip_prefix('`')?.strip_suffix('`')?;
    (!text.contains('`')).then_some(text)
}

#[test]
fn errors_page_lists_every_condition() {
    let page = read("docs/reference/errors.md");
    let expected: Vec<Vec<String>> = Condition::all()
        .map(|condition| {
            let retryable = if condition.retryable() { "yes" } else { "no" };
            let amqp = condition.amqp().map_or_else(|| "-".to_owned(), |name| format!("`{name}`"));
            let management = condition.http_status(Surface::Management);
            let messages = condition.http_status(Surface::Messages);
            let http = match (management, messages) {
                (Some(one), Some(other)) if one != other => {
                    format!("{one} management, {other} messages")
                }
                (Some(status), _) => status.to_string(),
                (None, _) => "-".to_owned(),
            };
            vec![format!("`{condition}`"), retryable.to_owned(), amqp, http]
        })
        .collect();
    let mut listed = rows(section(&page, "## Conditions"));
    listed.retain(|row| code_span(&row[0]).is_some());
    assert_eq!(listed, expected);

    // Clients never get a condition that is only a dead-letter reason.
    let is_received = |condition: &Condition| {
        condition.amqp().is_some() || *condition == Condition::CommunicationProblem
    };
    let received: Vec<&str> = Condition::all().filter(is_received).map(Condition::name).collect();
    let remedies = rows(section(&page, "## Causes and remedies"));
    let remedied: Vec<&str> = remedies.iter().filter_map(|row| code_span(&row[0])).collect();
    assert_eq!(remedied, received);
}

#[test]
fn errors_page_lists_every_close_code() {
    let source = read("transports/websocket/src/error.rs");
    let codes: Vec<u16> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub(crate) const ")?.split_once(": u16 = "))
        .filter_map(|(_, code)| code.trim_end_matches(';').replace('_', "").parse().ok())
        // A client that closes normally gets its own code back.
        .filter(|code| *code != 1_000)
        .collect();
    assert!(codes.len() > 8, "close codes are declared in another way: {codes:?}");
    let page = read("docs/reference/errors.md");
    let rows = rows(section(&page, "## WebSocket close codes"));
    let listed: Vec<u16> = rows.iter().filter_map(|row| row[0].parse().ok()).collect();
    assert_eq!(listed, codes);
}

/// Every key that `peeklock config default` prints, with its default; limits have their own table.
fn defaults() -> BTreeMap<String, String> {
    let printed = Command::new(env!("CARGO_BIN_EXE_peeklock")).args(["config", "default"]).output();
    let text = String::from_utf8(printed.unwrap().stdout).unwrap();
    let mut found = BTreeMap::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            continue;
        }
        let Some((key, value)) = line.split_once(" = ") else { continue };
        if key.chars().all(|char| char.is_ascii_lowercase() || char == '_') {
            let last = found.insert(format!("{section}.{key}"), value.to_owned());
            assert_eq!(last, None, "{section}.{key} is printed twice");
        }
    }
    found
}

#[test]
fn settings_page_lists_every_key_with_its_default() {
    let defaults = defaults();
    assert!(defaults.len() > 80, "settings are written in another way: {defaults:#?}");
    let rows = rows(&read("docs/reference/settings.md"));
    let mut listed = BTreeMap::new();
    for row in &rows {
        let Some(key) = code_span(&row[0]).filter(|key| key.contains('.')) else { continue };
        let default = row[2].split('`').nth(1).unwrap_or_default().to_owned();
        assert_eq!(listed.insert(key.to_owned(), default), None, "the page lists {key} twice");
    }
    assert_eq!(listed, defaults, "the page differs from `peeklock config default`");
}

#[test]
fn amqp_page_lists_every_management_operation() {
    let source = read("transports/amqp/src/server/node/management/operation.rs");
    let names: BTreeSet<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", ManagementOperation::"))
        .map(|(name, _)| name)
        .collect();
    assert!(names.len() > 10, "operations are found in another way: {names:?}");
    let page = read("docs/reference/amqp.md");
    let table =
        page.split("| Operation (`com.microsoft:` …) |").nth(1).expect("the table is there");
    let table = table.split("\n\n").next().unwrap_or_default();
    let table = rows(table);
    let listed: BTreeSet<&str> = table.iter().filter_map(|row| code_span(&row[0])).collect();
    assert_eq!(listed, names);
}

#[test]
fn rest_page_lists_every_request_of_the_json_api() {
    // On the page, `{path}` stands for a queue, a topic or a subscription, and policies of entities are prose.
    let shortened = |path: &str| {
        let longest_first =
            ["/topics/{topic}/subscriptions/{subscription}", "/queues/{queue}", "/topics/{topic}"];
        longest_first
            .into_iter()
            .find_map(|entity| Some(format!("{{path}}{}", path.strip_prefix(entity)?)))
            .unwrap_or_else(|| path.to_owned())
    };
    let mut requests = BTreeSet::new();
    for file in files("transports/http/src/api", "rs") {
        let code = read(&file);
        for attribute in code.split("#[utoipa::path(").skip(1) {
            let method = attribute.split(',').next().unwrap_or_default().trim().to_uppercase();
            let path = attribute.split("path = \"").nth(1).expect("an operation has a path");
            let path = path.split('"').next().unwrap_or_default();
            let path = match path {
                "/topics/{topic}/subscriptions" => path.to_owned(),
                path => shortened(path),
            };
            requests.insert(format!("{method} {path}"));
        }
    }
    assert!(requests.len() > 30, "operations are found in another way: {requests:?}");
    let page = read("docs/reference/rest.md");
    let api = page.split("\n## JSON API\n").nth(1).expect("the section is there");
    let api = api.split("\n## ").next().unwrap_or_default();
    let mut listed = BTreeSet::new();
    for row in rows(api) {
        for span in row[0].split('`').skip(1).step_by(2) {
            listed.insert(span.split('?').next().unwrap_or_default().to_owned());
        }
    }
    assert_eq!(listed, requests);
}

/// CON-55: the audit page offers every action of the trail.
#[test]
fn audit_page_offers_every_action() {
    let source = read("plugins/console/page/audit.js");
    let list = source.split("const OPERATIONS = [").nth(1).and_then(|rest| rest.split(']').next());
    let offered: BTreeSet<&str> = list.unwrap_or_default().split('"').skip(1).step_by(2).collect();
    let actions = AuditedAction::ALL.iter().map(|action| action.name());
    let expected: BTreeSet<&str> = actions.chain(["trimTrail", "mendTrail"]).collect();
    assert_eq!(offered, expected);
}
