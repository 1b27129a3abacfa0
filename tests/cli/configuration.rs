//! The configuration: errors name their source; `config`, and the help.

use crate::{peeklock, run};

#[test]
fn unknown_keys_are_refused_by_name() {
    let command = peeklock("unknown-key", "[http]\nadress = \"127.0.0.1:0\"\n", &["serve"]);
    let (code, _, log) = run(command);
    assert_eq!(code, 2);
    assert_eq!(
        log,
        "error: unknown key `http.adress` (set by peeklock.toml); did you mean `http.address`?\n"
    );
}

#[test]
fn wrong_values_are_refused_with_their_source() {
    let (code, _, log) = run(peeklock("wrong-flag", "", &["serve", "--http", "nowhere"]));
    assert_eq!(code, 2);
    assert!(log.starts_with("error: `http.address`: `nowhere` is not an IP address"), "{log}");
    assert!(log.ends_with("(set by --http)\n"), "{log}");

    let mut command = peeklock("wrong-variable", "", &["config", "check"]);
    command.env("PEEKLOCK__LIMITS__LOCK_DURATION_MAX", "soon");
    let (code, _, log) = run(command);
    assert_eq!(code, 2);
    assert!(log.contains("`limits.lock_duration_max`: `soon` is not a duration"), "{log}");
    assert!(log.contains("PEEKLOCK__LIMITS__LOCK_DURATION_MAX"), "{log}");
}

/// Errors name a variable completely, also if another source sets a value of the same section, and
/// in an unknown section.
#[test]
fn wrong_variables_are_named_whole() {
    let config = "[limits]\nconnection_inbound_count_max = 7\n";
    for (variable, key) in [
        ("PEEKLOCK__LIMITS__CONNECTION_COUNT_MAX", "`limits.connection_count_max`"),
        ("PEEKLOCK__LIMITSX__CONNECTION_COUNT_MAX", "`limitsx`"),
    ] {
        let mut command = peeklock("wrong-limit", config, &["config", "check"]);
        command.env(variable, "0");
        let (code, _, log) = run(command);
        assert_eq!(code, 2);
        let named = log.contains(key) && log.contains(&format!("(set by {variable})"));
        assert!(named, "{log}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let (code, _, log) =
        run(peeklock("no-file", "", &["config", "check", "--config", "none.toml"]));
    assert_eq!(code, 2);
    assert!(log.contains("`none.toml` cannot be read"), "{log}");
}

#[test]
fn config_check_shows_settings_with_their_sources() {
    let config =
        "[http]\nworkers = 3\n[limits]\nhop_count_max = 2\n[[queues]]\nname = \"orders\"\n";
    let mut command = peeklock("check", config, &["config", "check"]);
    command.env("PEEKLOCK__NAMESPACE__TIER", "Standard");
    let (code, out, log) = run(command);
    assert_eq!(code, 0, "{log}");
    assert!(out.starts_with("configuration is valid (file peeklock.toml); 4 values are"), "{out}");
    let row = |key: &str| -> Vec<String> {
        let line = out.lines().find(|line| line.split(' ').next() == Some(key));
        let line = line.unwrap_or_else(|| panic!("no row {key} in\n{out}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!(row("KEY"), ["VALUE", "SOURCE"]);
    assert_eq!(row("http.address"), ["127.0.0.1:5300", "default"]);
    assert_eq!(row("http.workers"), ["3", "peeklock.toml"]);
    assert_eq!(row("namespace.tier"), ["Standard", "PEEKLOCK__NAMESPACE__TIER"]);
    assert_eq!(row("limits.hop_count_max"), ["2", "peeklock.toml"]);
    assert_eq!(row("limits.message_bytes_max"), ["262144", "default"]);
    assert_eq!(row("queues[0].name"), ["orders", "peeklock.toml"]);
}

#[test]
fn config_default_is_a_valid_file_that_changes_nothing() {
    let (code, file, _) = run(peeklock("default", "", &["config", "default"]));
    assert_eq!(code, 0);
    let (code, out, log) = run(peeklock("default-check", &file, &["config", "check"]));
    assert_eq!(code, 0, "{log}");
    let (_, plain, _) = run(peeklock("plain-check", "", &["config", "check"]));
    let values = |text: &str| -> Vec<String> {
        let rows = text.lines().skip(2);
        rows.map(|row| row.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(values(&out), values(&plain));
}

#[test]
fn help_has_examples_and_exit_codes() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["config", "check", "--help"]] {
        let (code, out, _) = run(peeklock("help", "", arguments));
        assert_eq!(code, 0);
        assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
    }
    let (code, _, log) = run(peeklock("usage", "", &["serve", "--port", "1"]));
    assert_eq!(code, 2);
    assert!(log.contains("--port"), "{log}");
}
