//! `peeklock apply` and `peeklock export`

use std::fmt::Write as _;
use std::path::PathBuf;

use super::broker::Broker;

const TOPOLOGY: &str = r#"
[[queues]]
name = "orders"
max_delivery_count = 5
forward_dead_lettered_messages_to = "failed"
retry_policy = { kind = "exponential", delay = "1s", delay_max = "5m", jitter = 0.2 }

[[queues]]
name = "failed"

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "eu"
forward_to = "orders"

[[topics.subscriptions.rules]]
name = "region"
sql = "region = 'eu'"
action = "SET priority = 'high'"
"#;

/// A file that is deleted with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("declaring-{name}.toml"));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // If the test failed before writing it, there is no file.
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// DEC-13, DEC-16: a dry run shows the changes and makes none; applying makes them; applying again
/// changes nothing; then differing properties are updated, with the values before and after.
#[test]
fn a_file_applied_again_changes_nothing() {
    let broker = Broker::start();
    let file = File::new("once", TOPOLOGY);
    let apply = ["apply", "-f", file.path()];
    let dry = [&apply[..], &["--dry-run"]].concat();
    let shown = broker.ok(&dry);
    let lines = words(&shown);
    assert_eq!(lines[0], ["KIND", "PATH", "PROPERTY", "VALUE"], "{shown}");
    assert_eq!(lines[1], ["+", "topic", "events"], "{shown}");
    assert_eq!(lines[2], ["+", "queue", "failed"], "{shown}");
    assert_eq!(lines[3], ["+", "queue", "orders", "max_delivery_count", "5"], "{shown}");
    assert_eq!(lines[4], ["forward_dead_lettered_messages_to", "failed"], "{shown}");
    assert!(shown.contains("retry_policy"), "{shown}");
    assert!(shown.contains("sql: region = 'eu'; action: SET priority = 'high'"), "{shown}");
    assert!(shown.ends_with("\n4 to create, 0 to update, 0 unchanged\n"), "{shown}");
    broker.ends(4, &["queue", "show", "orders"]);

    let done = broker.ok(&apply);
    assert!(done.ends_with("\n4 to create, 0 to update, 0 unchanged\ndone: 4 steps\n"), "{done}");
    let queue = broker.ok(&["queue", "show", "orders"]);
    assert!(queue.contains("exponential from 1s up to 5m, jitter 0.2"), "{queue}");
    let rules = broker.ok(&["rule", "list", "events", "eu"]);
    assert!(rules.contains("region") && !rules.contains("$Default"), "{rules}");
    for again in [&apply[..], &dry] {
        assert_eq!(broker.ok(again), "nothing to do: everything is as declared (4 unchanged)\n");
    }

    let changed = TOPOLOGY.replace("= 5", "= 7").replace("'eu'", "'us'");
    let changed = File::new("changed", &changed);
    let shown = broker.ok(&["apply", "-f", changed.path()]);
    let lines = words(&shown);
    assert_eq!(lines[1], ["~", "queue", "orders", "max_delivery_count", "5", "→", "7"], "{shown}");
    assert_eq!(lines[2][..5], ["~", "subscription", "events/Subscriptions/eu", "rule", "region"]);
    assert!(lines[2].contains(&"→"), "{shown}");
    assert!(shown.ends_with("0 to create, 2 to update, 2 unchanged\ndone: 2 steps\n"), "{shown}");

    let told = broker.program(&["apply", "-f", "-", "-o", "json"]).input(TOPOLOGY.as_bytes()).run();
    let told: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((told["done"].as_u64(), told["unchangedCount"].as_u64()), (Some(2), Some(2)));
    let change = &told["steps"][0]["changes"][0];
    assert_eq!((&change["before"], &change["after"]), (&"7".into(), &"5".into()));
}

/// CON-40, DEC-18: with `--delete`, entities that the file does not name are listed and deleted;
/// without, they stay.
#[test]
fn unnamed_entities_are_deleted_with_a_flag() {
    let broker = Broker::start();
    broker.ok(&["queue", "create", "other"]);
    let file = File::new("delete", "[[queues]]\nname = \"orders\"\n");
    let apply = ["apply", "-f", file.path()];
    let done = broker.ok(&apply);
    assert!(done.ends_with("1 to create, 0 to update, 0 unchanged\ndone: 1 step\n"), "{done}");
    let delete = [&apply[..], &["--delete"]].concat();
    let shown = broker.ok(&[&delete[..], &["--dry-run"]].concat());
    assert_eq!(words(&shown)[1][..4], ["-", "queue", "other", "created_at"], "{shown}");
    assert!(shown.ends_with("0 to create, 0 to update, 1 to delete, 1 unchanged\n"), "{shown}");
    broker.ok(&["queue", "show", "other"]);
    assert!(broker.ok(&delete).ends_with("1 to delete, 1 unchanged\ndone: 1 step\n"));
    broker.ends(4, &["queue", "show", "other"]);
    assert_eq!(broker.ok(&delete), "nothing to do: everything is as declared (1 unchanged)\n");
    let empty = File::new("delete-all", "");
    let (_, log) = broker.ends(2, &["apply", "--delete", "-f", empty.path()]);
    assert!(log.contains("names no entity, so all would be deleted"), "{log}");
    broker.ok(&["queue", "show", "orders"]);
}

/// CON-40, DEC-20: the file of the emulator is applied with its meaning, with notes, and its errors
/// name the member.
#[test]
fn emulator_file_is_applied() {
    let broker = Broker::start();
    let config = |properties: &str| {
        let queue = format!(r#"{{"Name": "orders", "Properties": {{{properties}}}}}"#);
        format!(r#"{{"UserConfig": {{"Namespaces": [{{"Name": "n", "Queues": [{queue}]}}]}}}}"#)
    };
    let file = File::new("emulator", &config(r#""LockDuration": "PT30S", "Colour": "red""#));
    let ended = broker.program(&["apply", "-f", file.path()]).run();
    assert!(ended.out.ends_with("done: 1 step\n"), "{}", ended.out);
    assert!(ended.log.contains("Properties.Colour is unknown and ignored"), "{}", ended.log);
    let queue = broker.ok(&["queue", "show", "orders"]);
    assert!(queue.contains("30s"), "{queue}");
    let file = File::new("emulator-wrong", &config(r#""LockDuration": "PT6M""#));
    let (_, log) = broker.ends(2, &["apply", "-f", file.path()]);
    assert!(log.contains("UserConfig.Namespaces[0].Queues[0]: "), "{log}");
}

/// DEC-19, DEC-20: an unknown member next to entities may be a misspelt list. Such a file
/// deletes nothing.
#[test]
fn misspelt_lists_delete_nothing() {
    let broker = Broker::start();
    broker.ok(&["topic", "create", "events"]);
    let namespace =
        r#"{"Name": "n", "Queues": [{"Name": "orders"}], "Topic": [{"Name": "events"}]}"#;
    let config = format!(r#"{{"UserConfig": {{"Namespaces": [{namespace}]}}}}"#);
    let file = File::new("misspelt", &config);
    let (_, log) = broker.ends(2, &["apply", "--delete", "-f", file.path()]);
    assert!(log.contains("UserConfig.Namespaces[0].Topic is unknown, so entities"), "{log}");
    broker.ok(&["topic", "show", "events"]);
    broker.ends(4, &["queue", "show", "orders"]);
    broker.ok(&["apply", "-f", file.path()]);
    broker.ok(&["queue", "show", "orders"]);
}

/// DEC-17: applying an export changes nothing at its source, and makes an empty namespace equal to
/// the source.
#[test]
fn an_export_can_be_applied() {
    let broker = Broker::start();
    let file = File::new("exported", "");
    for command in [
        "queue create failed --max-delivery-count 3 --user-metadata it's+\"ours\" --auto-delete-on-idle 2h",
        "queue create Orders --forward-dead-lettered-messages-to failed --retry linear --retry-delay 90s \
         --retry-jitter 0.5 --session-retry-order pass --requires-session=true",
        "topic create events --requires-duplicate-detection=true",
        "subscription create events all",
        "subscription create events none",
        "rule delete events none $Default",
        "subscription create events eu --forward-to failed --retry fixed --retry-delay 1s",
        "rule add events eu typed --correlation size:i32=7 --correlation sys.Label=order",
        "rule add events eu texts --sql a=@b --parameter @b:uuid=9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11 --action SET+c=1",
    ] {
        let words: Vec<String> =
            command.split_whitespace().map(|word| word.replace('+', " ")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        broker.ok(&words);
    }
    let ended = broker.program(&["export", "--to", file.path()]).run();
    assert_eq!(ended.log, format!("{}: 2 queues, 1 topic\n", file.path()));
    let exported = file.text();
    assert_eq!(broker.ok(&["export"]), exported);
    assert!(exported.contains("[[topics.subscriptions.rules]]"), "{exported}");
    let nothing = "nothing to do: everything is as declared (6 unchanged)\n";
    assert_eq!(broker.ok(&["apply", "--dry-run", "-f", file.path()]), nothing, "{exported}");
    let other = Broker::start();
    let done = other.ok(&["apply", "-f", file.path()]);
    assert!(done.ends_with("done: 6 steps\n"), "{done}");
    assert_eq!(other.ok(&["export"]), exported);
    other.ends(2, &["export", "-o", "json"]);
}

/// DEC-04, DEC-05, DEC-08, DEC-16: an invalid file is reported with file, line, key and remedy, and
/// nothing is changed.
#[test]
fn an_error_in_a_file_is_reported_with_its_place() {
    let broker = Broker::with_queue(&[]);
    let apply = |text: &str| {
        let file = File::new("wrong", text);
        let (out, log) = broker.ends(2, &["apply", "-f", file.path()]);
        assert_eq!(out, "");
        log.replace(file.path(), "FILE")
    };
    for (text, place, said) in [
        ("[[queues]]\nname = \"a\"\nlock_durtion = \"1m\"\n", "FILE:3:1: ", "`lock_duration`?"),
        ("[[queues]]\nname = \"a\"\nlock_duration = \"soon\"\n", "FILE:3:17: ", "\"30s\""),
        ("[[queues]]\nname = \"a\"\nlock_duration = \"6m\"\n", "FILE:2: ", "PT5S to PT5M"),
        ("[[queues]]\nname = \"a\"\n[[queues]]\nname = \"A\"\n", "FILE:4: ", "keep one"),
        (
            "[[queues]]\nname = \"a\"\n[[queues]]\nname = \"orders\"\nrequires_session = true\n",
            "FILE:4: ",
            "requires_session of queue `orders` is false and cannot become true: it is fixed at creation; declare the existing",
        ),
        ("[1]", "FILE:1:", ""),
        ("{ \"queues\": [] }", "FILE: ", "has no UserConfig"),
    ] {
        let log = apply(text);
        assert!(log.starts_with(&format!("error: {place}")), "{text}: {log}");
        assert!(log.contains(said), "{text}: {log}");
    }
    let log = apply(&"#".repeat((16 << 20) + 1));
    assert!(log.contains("more than 16777216 bytes; split the declaration"), "{log}");
    let file = File::new("refused", "[[queues]]\nname = \"a\"\nforward_to = \"absent\"\n");
    let (_, log) = broker.ends(4, &["apply", "-f", file.path()]);
    assert!(
        log.contains("refused.toml:2: EntityNotFound: queues[0]: forward_to of queue `a` names"),
        "{log}"
    );
    let file = File::new("taken", "[[topics]]\nname = \"orders\"\n");
    let (_, log) = broker.ends(5, &["apply", "-f", file.path()]);
    assert!(log.contains("declared as a topic but exists as a queue"), "{log}");
    let (_, log) = broker.ends(2, &["apply", "-f", "/absent/file.toml"]);
    assert!(log.contains("`/absent/file.toml` cannot be read"), "{log}");
    assert_eq!(words(&broker.ok(&["queue", "list"])).len(), 2);
}

/// DEC-10, DEC-11, DEC-16: after a failure in the middle the command reports the completed steps,
/// and repeating it does the rest. This many steps need several requests.
#[test]
fn a_failure_reports_completed_steps() {
    let settings = [("PEEKLOCK__LIMITS__ENTITY_COUNT_MAX", "150")];
    let broker = Broker::start_with("127.0.0.1:0", &settings);
    broker.ok(&["queue", "create", "old"]);
    let mut text = String::new();
    for index in 0..150 {
        writeln!(text, "[[queues]]\nname = \"q{index}\"").unwrap();
    }
    let file = File::new("middle", &text);
    let (_, log) = broker.ends(8, &["apply", "-f", file.path()]);
    assert!(
        log.starts_with("error: 149 of 150 steps are done; create queue `q149` failed: "),
        "{log}"
    );
    assert!(log.contains("QuotaExceeded") && log.contains("the same command again"), "{log}");
    broker.ok(&["queue", "delete", "old", "--yes"]);
    let done = broker.ok(&["apply", "-f", file.path()]);
    assert!(done.ends_with("1 to create, 0 to update, 149 unchanged\ndone: 1 step\n"), "{done}");
}

/// DEC-16: a file that exceeds one request is planned in parts, and an error in one part is
/// reported with its line.
#[test]
fn a_large_file_is_applied() {
    let broker = Broker::start();
    let mut text = String::new();
    for index in 0..8_000 {
        let metadata = "m".repeat(600);
        writeln!(text, "[[queues]]\nname = \"q{index}\"\nuser_metadata = \"{metadata}\"").unwrap();
    }
    assert!(text.len() > 4 << 20, "{}", text.len());
    let file = File::new("large", &text);
    let shown = broker.ok(&["apply", "--dry-run", "-f", file.path()]);
    assert!(shown.ends_with("\n8000 to create, 0 to update, 0 unchanged\n"), "{}", shown.len());
    let wrong = format!("{text}[[queues]]\nname = \"last\"\nlock_duration = \"6m\"\n");
    let file = File::new("large-wrong", &wrong);
    let (out, log) = broker.ends(2, &["apply", "-f", file.path()]);
    assert_eq!(out, "");
    assert!(log.contains("large-wrong.toml:24002: ") && log.contains("queues[8000]: "), "{log}");
}

/// DEC-16: entities that exceed one request and depend on each other are refused with the limit and
/// the remedy.
#[test]
fn a_declaration_over_the_request_limit_is_refused() {
    let broker = Broker::start();
    let mut text = "[[queues]]\nname = \"all\"\n".to_owned();
    for index in 0..2_000 {
        let metadata = "m".repeat(600);
        let to = "forward_dead_lettered_messages_to = \"all\"";
        writeln!(text, "[[queues]]\nname = \"q{index}\"\n{to}\nuser_metadata = \"{metadata}\"")
            .unwrap();
    }
    let file = File::new("together", &text);
    let (_, log) = broker.ends(2, &["apply", "-f", file.path()]);
    assert!(log.contains("`all`, with its parts"), "{log}");
    assert!(
        log.contains("1000000 bytes; split the file: put forwarding destinations first"),
        "{log}"
    );
    broker.ends(4, &["queue", "show", "all"]);
}

/// DEC-17: an export of thousands of entities can be applied and is small: default values are left
/// out, and applying restores a default that has been changed since.
#[test]
fn thousands_of_entities_are_exported_and_applied() {
    let broker = Broker::start();
    let mut text = String::new();
    for index in 0..2_500 {
        writeln!(text, "[[queues]]\nname = \"queue-of-orders-{index}\"").unwrap();
    }
    let file = File::new("thousands", &text);
    let done = broker.ok(&["apply", "-f", file.path()]);
    assert!(done.ends_with("done: 2500 steps\n"), "{}", done.len());
    let exported = File::new("thousands-exported", "");
    broker.ok(&["export", "--to", exported.path()]);
    let text = exported.text();
    assert!(text.contains("\nunnamed_is_default = true\n") && !text.contains("requires_session"));
    let apply = ["apply", "-f", exported.path()];
    assert_eq!(broker.ok(&apply), "nothing to do: everything is as declared (2500 unchanged)\n");
    broker.ok(&["queue", "update", "queue-of-orders-7", "--status", "Disabled"]);
    let shown = broker.ok(&apply);
    let lines = words(&shown);
    assert_eq!(lines[1], ["~", "queue", "queue-of-orders-7", "status", "Disabled", "→", "Active"]);
    assert!(shown.ends_with("0 to create, 1 to update, 2499 unchanged\ndone: 1 step\n"));
}
