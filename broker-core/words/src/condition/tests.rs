//! Tests of the catalogue of errors against spec file 19.

use super::*;

const CATALOGUE: &str = include_str!("../../19-errors.md");

/// One line of the catalogue's table; a line may name several conditions.
struct Line {
    names: Vec<(String, Option<String>)>,
    retryable: bool,
    amqp: Option<String>,
    http: String,
}

fn lines_of_the_catalogue() -> Vec<Line> {
    CATALOGUE
        .lines()
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [names, _when, retryable, amqp, http] = cells[..] else {
                panic!("five cells expected: {line}");
            };
            Line {
                names: names.split(", ").map(name_and_reason_code).collect(),
                retryable: match retryable {
                    "yes" => true,
                    "no" => false,
                    other => panic!("neither yes nor no: {other}"),
                },
                amqp: (amqp != "none").then(|| amqp.to_owned()),
                http: http.to_owned(),
            }
        })
        .collect()
}

fn name_and_reason_code(text: &str) -> (String, Option<String>) {
    let Some((name, reason)) = text.split_once(" (reason code ") else {
        return (text.to_owned(), None);
    };
    (name.to_owned(), Some(reason.trim_end_matches(')').to_owned()))
}

fn statuses(http: &str) -> (Option<u16>, Option<u16>) {
    match http {
        "none" => (None, None),
        "404 management, 410 messages" => (Some(404), Some(410)),
        // The HTTP transport knows whether the token is in the path; see `Condition::http_status`.
        "404 with token in the path, else 410" => (Some(410), Some(410)),
        number => (Some(number.parse().unwrap()), Some(number.parse().unwrap())),
    }
}

/// ERR-01, ERR-07
#[test]
fn every_line_of_the_catalogue_is_a_condition_with_these_forms() {
    let mut named = Vec::new();
    for line in lines_of_the_catalogue() {
        for (name, reason_code) in line.names {
            let condition = Condition::parse(&name).unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(condition.name(), name);
            assert_eq!(condition.retryable(), line.retryable, "{name}");
            assert_eq!(condition.amqp(), line.amqp.as_deref(), "{name}");
            assert_eq!(condition.reason_code(), reason_code.as_deref().unwrap_or(&name));
            let (management, messages) = statuses(&line.http);
            assert_eq!(condition.http_status(Surface::Management), management, "{name}");
            assert_eq!(condition.http_status(Surface::Messages), messages, "{name}");
            named.push(condition);
        }
    }
    assert_eq!(named, Condition::all().collect::<Vec<_>>());
}

#[test]
fn every_row_stands_at_the_place_of_its_condition() {
    for (place, condition) in Condition::all().enumerate() {
        assert_eq!(condition as usize, place);
        assert_eq!(format!("{condition:?}"), condition.name());
        assert_eq!(condition.to_string(), condition.name());
    }
}

#[test]
fn a_name_is_parsed_in_exactly_its_case() {
    assert_eq!(Condition::parse("ServerBusy"), Some(Condition::ServerBusy));
    assert_eq!(Condition::parse("serverbusy"), None);
    assert_eq!(Condition::parse(""), None);
}

/// ERR-08
#[test]
fn a_full_entity_is_not_marked_retryable() {
    assert!(!Condition::QuotaExceeded.retryable());
}
