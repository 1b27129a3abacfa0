//! The emulator's configuration file and environment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use super::environment::{self, Environment};
use super::file::{self, read};

fn refused(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn queue(properties: &str) -> String {
    format!(
        r#"{{"UserConfig": {{"Namespaces": [{{"Name": "n", "Queues": [{{"Name": "q", "Properties": {properties}}}]}}]}}}}"#
    )
}

/// ADM-60, ADM-61, ADM-62: all properties, all kinds of rules, and the defaults of the format are
/// converted.
#[test]
fn everything_of_the_format_is_taken() {
    let imported = read(include_str!("../../tests/data/emulator.json")).unwrap();
    assert_eq!(imported.notes, Vec::<String>::new());
    let config = toml::to_string(&imported.config).unwrap();
    let expected: toml::Table =
        toml::from_str(include_str!("../../tests/data/emulator.toml")).unwrap();
    assert_eq!(imported.config, expected, "{config}");
}

/// ADM-61, ADM-62: unknown properties are noted and ignored; a window below the minimum is raised
/// with a note.
#[test]
fn unknown_properties_are_noted() {
    let text = queue(
        r#"{"Colour": "red", "duplicatedetectionhistorytimewindow": "PT5S", "RequiresSession": "True"}"#,
    );
    let imported = read(&text).unwrap();
    let place = "UserConfig.Namespaces[0].Queues[0].Properties";
    assert_eq!(
        imported.notes,
        [
            format!("{place}.Colour is unknown and ignored"),
            format!(
                "{place}.duplicatedetectionhistorytimewindow is less than PT20S; PT20S is used instead"
            ),
        ]
    );
    let queue = imported.config["queues"][0].as_table().unwrap();
    assert_eq!(queue["duplicate_detection_history_time_window"].as_str(), Some("PT20S"));
    assert_eq!(queue["requires_session"].as_bool(), Some(true));
    assert_eq!(queue["max_delivery_count"].as_integer(), Some(3));
}

/// ADM-62: the default time to live of each entity is one hour; the file can set another.
#[test]
fn messages_live_an_hour_where_the_file_does_not_say() {
    let text = r#"{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q"}],
        "Topics": [{"Name": "t", "Subscriptions": [{"Name": "s"}]}]}]}}"#;
    let config = read(text).unwrap().config;
    let topic = &config["topics"][0];
    for entity in [&config["queues"][0], topic, &topic["subscriptions"][0]] {
        assert_eq!(entity["default_message_time_to_live"].as_str(), Some("PT1H"), "{entity}");
    }
    let config = read(&queue(r#"{"DefaultMessageTimeToLive": "P7D"}"#)).unwrap().config;
    assert_eq!(config["queues"][0]["default_message_time_to_live"].as_str(), Some("P7D"));
}

fn rule(properties: &str) -> String {
    format!(
        r#"{{"UserConfig": {{"Namespaces": [{{"Topics": [{{"Name": "t", "Subscriptions": [{{"Name": "s",
           "Properties": {{"EnableDeadLetteringOnFilterEvaluationExceptions": true}},
           "Rules": [{{"Name": "r", "Properties": {properties}}}]}}]}}]}}]}}}}"#
    )
}

/// ADM-61: names that .NET and Aspire write are accepted; a filter without a condition matches
/// every message, with a note.
#[test]
fn filters_are_taken_as_tools_write_them() {
    for (properties, expected, note_count) in [
        (
            r#"{"FilterType": "Correlation", "CorrelationFilter": {"Subject": "x", "RequiresPreprocessing": true,
               "ApplicationProperties": {"n": 1}, "Properties": {}}}"#,
            r#"correlation = { subject = "x", properties = { n = 1 } }"#,
            0,
        ),
        (r#"{"FilterType": "Correlation", "CorrelationFilter": {}}"#, "filter = true", 1),
        (
            r#"{"FilterType": "Correlation", "CorrelationFilter": {"To": null, "Properties": null}}"#,
            "filter = true",
            1,
        ),
        (r#"{"FilterType": "Correlation"}"#, "filter = true", 1),
        (r#"{"FilterType": "Sql", "CorrelationFilter": {}}"#, "filter = true", 1),
        (r#"{"FilterType": "Sql", "SqlFilter": {"SqlExpression": ""}}"#, "filter = true", 1),
        (
            r#"{"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1", "RequiresPreprocessing": true},
               "RequiresPreprocessing": true}"#,
            r#"sql = "a = 1""#,
            0,
        ),
    ] {
        let imported = read(&rule(properties)).unwrap();
        assert_eq!(imported.notes.len(), note_count, "{properties}: {:?}", imported.notes);
        let subscription = &imported.config["topics"][0]["subscriptions"][0];
        let dead_letters = "enable_dead_lettering_on_filter_evaluation_exceptions";
        assert_eq!(subscription[dead_letters].as_bool(), Some(true));
        let mut expected: toml::Table = toml::from_str(expected).unwrap();
        expected.insert("name".to_owned(), "r".into());
        assert_eq!(subscription["rules"][0].as_table(), Some(&expected), "{properties}");
    }
    let both =
        r#"{"FilterType": "Correlation", "CorrelationFilter": {"Label": "a", "Subject": "b"}}"#;
    let refused = refused(&rule(both));
    assert!(
        refused.contains("CorrelationFilter.Subject: is a second, different value"),
        "{refused}"
    );
}

/// ADM-67: the built-in file corresponds to Microsoft's image.
#[test]
fn the_built_in_file_is_the_first_part_of_the_sample() {
    let built_in = read(super::BUILT_IN).unwrap();
    assert_eq!(built_in.notes, Vec::<String>::new());
    let sample = include_str!("../../tests/data/emulator-installer/Config.json");
    let mut sample = read(sample).unwrap().config;
    // The built-in file sets no namespace name.
    sample.remove("namespace");
    let subscriptions = sample["topics"][0]["subscriptions"].as_array_mut().unwrap();
    subscriptions.truncate(3);
    assert_eq!(built_in.config, sample);
}

/// ADM-63: invalid values are refused with their place in the file.
#[test]
fn invalid_values_are_refused_with_their_place() {
    for (text, said) in [
        ("{", "line 1, column 1: the file is not JSON"),
        ("[]", "the file: must be an object"),
        ("{}", "the file: has no UserConfig"),
        (r#"{"UserConfig": {}}"#, "UserConfig: has 0 Namespaces; exactly one is expected"),
        (
            &queue(r#"{"LockDuration": "1m"}"#),
            "Queues[0].Properties.LockDuration: must be an ISO 8601",
        ),
        (
            &queue(r#"{"LockDuration": 60}"#),
            "Queues[0].Properties.LockDuration: must be an ISO 8601",
        ),
        (&queue(r#"{"MaxDeliveryCount": "many"}"#), "MaxDeliveryCount: must be a whole number"),
        (&queue(r#"{"RequiresSession": 7}"#), "RequiresSession: must be true or false"),
        (&queue(r#"{"ForwardTo": 7}"#), "ForwardTo: must be a text"),
        (
            r#"{"UserConfig": {"Namespaces": [{"Queues": [{}]}]}}"#,
            "UserConfig.Namespaces[0].Queues[0]: has no Name",
        ),
        (
            r#"{"UserConfig": {"Namespaces": [{"Queues": {}}]}}"#,
            "UserConfig.Namespaces[0].Queues: must be a list",
        ),
        (
            r#"{"UserConfig": {"Namespaces": [{"Topics": [{"Name": "t", "Subscriptions": [{"Name": "s",
               "Rules": [{"Name": "r", "Properties": {"FilterType": "Regex"}}]}]}]}]}}"#,
            "Topics[0].Subscriptions[0].Rules[0].Properties.FilterType: must have a FilterType of Sql",
        ),
    ] {
        let refused = refused(text);
        assert!(refused.contains(said), "{refused}");
    }
}

/// ADM-63: places in this broker's configuration map to places in the emulator's file.
#[test]
fn places_of_our_configuration_are_those_of_the_file() {
    for (ours, theirs) in [
        ("queues[2]", "UserConfig.Namespaces[0].Queues[2]"),
        ("queues[2].lock_duration", "UserConfig.Namespaces[0].Queues[2].Properties.LockDuration"),
        (
            "topics[0].subscriptions[1].rules[3]",
            "UserConfig.Namespaces[0].Topics[0].Subscriptions[1].Rules[3]",
        ),
    ] {
        assert_eq!(file::place_of(ours).as_deref(), Some(theirs));
    }
    assert_eq!(file::place_of("http.address"), None);
}

/// SEC-24: variables are used, or answered without their values. An invalid port is refused, and a
/// path need not be UTF-8.
#[test]
fn the_environment_is_taken_or_answered() {
    let set = |name: &str| {
        Some(OsString::from(match name {
            "CONFIG_PATH" => "/c.json",
            "EMULATOR_HTTP_PORT" => "5301",
            "ACCEPT_EULA" => "Y",
            "MSSQL_SA_PASSWORD" => "s3cret",
            _ => return None,
        }))
    };
    let read = environment::read(set).unwrap();
    assert_eq!(read.config.as_deref(), Some(Path::new("/c.json")));
    assert_eq!(read.http_port, Some(5301));
    assert_eq!(read.answers.len(), 2);
    assert!(read.answers[0].starts_with("ACCEPT_EULA is ignored"), "{:?}", read.answers);
    assert!(read.answers.iter().all(|line| !line.contains("s3cret")));
    assert_eq!(environment::read(|_| None), Ok(Environment::default()));
    for wrong in [&b"x"[..], b"0", b"65536", b"53\xff"] {
        let value = OsString::from_vec(wrong.to_vec());
        let set = |name: &str| (name == "EMULATOR_HTTP_PORT").then(|| value.clone());
        let refused = environment::read(set).unwrap_err();
        assert!(refused.contains("EMULATOR_HTTP_PORT is `"), "{refused}");
    }
    let path = OsString::from_vec(b"/\xff.json".to_vec());
    let read = environment::read(|name| (name == "CONFIG_PATH").then(|| path.clone())).unwrap();
    assert_eq!(read.config.as_deref(), Some(Path::new(&path)));
}
