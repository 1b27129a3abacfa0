//! `peeklock context`, and the choice of the broker for a command

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::broker::Broker;
use super::program::{Ended, Program};

/// A separate configuration directory.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("client-cli").join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Self(folder)
    }

    fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).variable("XDG_CONFIG_HOME", self.0.to_str().unwrap())
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.program(arguments).run()
    }

    fn file(&self) -> PathBuf {
        self.0.join("peeklock").join("contexts.toml")
    }
}

#[test]
fn contexts_are_added_used_listed_shown_and_removed() {
    let broker = Broker::with_queue(&[]);
    let home = Home::new("life");
    let list = home.run(&["context", "list"]).out;
    assert!(list.contains("default  ws://127.0.0.1:5301  -      yes"), "{list}");
    assert!(!home.file().exists());

    assert_eq!(home.run(&["context", "add", "prod", &broker.url]).code, 0);
    let mode = std::fs::metadata(home.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let folder = home.file().parent().unwrap().to_owned();
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");

    let ended = home.run(&["context", "add", "prod", "ws://a:1"]);
    assert_eq!(ended.code, 5);
    assert!(ended.log.contains("--force"), "{}", ended.log);
    assert_eq!(home.run(&["context", "use", "prod"]).code, 0);
    let listed = home.run(&["queue", "list"]);
    assert_eq!(listed.code, 0, "{}", listed.log);
    assert!(listed.out.contains("orders"), "{}", listed.out);
    let shown = home.run(&["context", "show", "-o", "json"]).out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["name"], &shown["inUse"]), (&"prod".into(), &true.into()));

    let ended = home.run(&["context", "use", "prd"]);
    assert_eq!(ended.code, 4);
    assert!(ended.log.contains("did you mean `prod`?"), "{}", ended.log);
    assert_eq!(home.run(&["context", "use", "default"]).code, 0);
    assert_eq!(home.run(&["context", "use", "prod"]).code, 0);
    let ended = home.run(&["context", "remove", "prod"]);
    assert!(ended.log.contains("commands now connect to ws://127.0.0.1:5301"), "{}", ended.log);
    assert_eq!(home.run(&["context", "remove", "prod"]).code, 4);
}

/// The options for the broker and the output format may precede the command.
#[test]
fn connection_options_may_precede_the_command() {
    let broker = Broker::with_queue(&[]);
    let home = Home::new("before");
    for arguments in [
        &["--url", &broker.url, "-o", "json", "queue", "list"][..],
        &["queue", "--url", &broker.url, "list", "--output=json"],
    ] {
        let ended = home.run(arguments);
        assert_eq!(ended.code, 0, "{}", ended.log);
        assert!(ended.out.starts_with('[') && ended.out.contains("\"orders\""), "{}", ended.out);
    }
    let ended = home.run(&["--context", "none", "queue", "list"]);
    assert!(ended.log.contains("there is no context `none`"), "{}", ended.log);
    let ended = home.run(&["--url", &broker.url, "verify"]);
    assert_eq!(ended.code, 2);
    assert!(ended.log.contains("unexpected argument '--url'"), "{}", ended.log);
}

/// Precedence from highest to lowest: flag, PEEKLOCK_URL, PEEKLOCK_CONTEXT, the context in use.
#[test]
fn flags_and_variables_select_the_broker_by_precedence() {
    let broker = Broker::with_queue(&[]);
    let home = Home::new("nearest");
    for (name, url) in [("one", "ws://127.0.0.1:1"), ("two", "ws://127.0.0.1:2")] {
        home.run(&["context", "add", name, url]);
    }
    let tells = |program: Program, expected: &str| {
        let ended = program.run();
        assert_eq!(ended.code, 7, "{}", ended.log);
        let expected = format!("error: cannot connect to {expected}: ");
        assert!(ended.log.starts_with(&expected), "{expected}\n{}", ended.log);
        assert!(ended.log.contains("start a broker there with `peeklock serve`"), "{}", ended.log);
    };
    home.run(&["context", "use", "one"]);
    let list = ["queue", "list"];
    tells(home.program(&list), "ws://127.0.0.1:1 (context `one`)");
    let by_name = || home.program(&list).variable("PEEKLOCK_CONTEXT", "two");
    tells(by_name(), "ws://127.0.0.1:2 (context `two` of PEEKLOCK_CONTEXT)");
    let by_url = || by_name().variable("PEEKLOCK_URL", "ws://127.0.0.1:3");
    tells(by_url(), "ws://127.0.0.1:3 (PEEKLOCK_URL)");
    let flagged = |flag: &str, value: &str| {
        home.program(&["queue", "list", flag, value])
            .variable("PEEKLOCK_CONTEXT", "two")
            .variable("PEEKLOCK_URL", "ws://127.0.0.1:3")
    };
    tells(flagged("--context", "one"), "ws://127.0.0.1:1 (context `one`)");
    tells(flagged("--url", "ws://127.0.0.1:4"), "ws://127.0.0.1:4 (--url)");
    assert_eq!(flagged("--url", &broker.url).run().code, 0);
    let ended = home.run(&["queue", "list", "--url", "ws://a:1", "--context", "one"]);
    assert_eq!(ended.code, 2);
}

#[test]
fn an_invalid_context_is_named() {
    let home = Home::new("wrong");
    assert_eq!(home.run(&["context", "add", "a b", "ws://a:1"]).code, 2);
    assert_eq!(home.run(&["context", "add", "a", "http://a:1"]).code, 2);
    assert_eq!(home.run(&["context", "add", "default", "ws://a:1"]).code, 2);
    assert_eq!(home.run(&["queue", "list", "--context", "absent"]).code, 4);
    home.run(&["context", "add", "a", "ws://a:1"]);
    std::fs::write(home.file(), "curent = \"a\"\n").unwrap();
    let ended = home.run(&["context", "list"]);
    assert_eq!(ended.code, 2);
    assert!(ended.log.contains("contexts.toml") && ended.log.contains("curent"), "{}", ended.log);
    let ended = home.program(&["queue", "list"]).variable("PEEKLOCK_URL", "nonsense").run();
    assert_eq!(ended.code, 2);
    assert!(ended.log.contains("PEEKLOCK_URL: `nonsense`"), "{}", ended.log);
    // A variable that is not UTF-8 is an error. If it were ignored, the command would connect to
    // another broker.
    for name in ["PEEKLOCK_TOKEN", "PEEKLOCK_CONNECTION_STRING", "PEEKLOCK_URL", "PEEKLOCK_CONTEXT"]
    {
        let ended =
            home.program(&["queue", "list"]).variable(name, OsStr::from_bytes(b"ws://\xff")).run();
        assert_eq!(ended.code, 2, "{name}: {}", ended.log);
        assert!(ended.log.contains(&format!("{name} is not UTF-8")), "{}", ended.log);
    }
}

#[test]
fn a_token_is_kept_and_never_shown() {
    let home = Home::new("token");
    let add = ["context", "add", "a", "ws://127.0.0.1:1", "--token-file", "-", "--use"];
    let ended = home.program(&add).input(b"s3cret\n").run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    assert!(std::fs::read_to_string(home.file()).unwrap().contains("token = \"s3cret\""));
    for arguments in [
        &["context", "list"][..],
        &["context", "list", "-o", "json"],
        &["context", "show"],
        &["context", "show", "-o", "json"],
        &["queue", "list"],
    ] {
        let ended = home.run(arguments);
        assert!(!ended.out.contains("s3cret") && !ended.log.contains("s3cret"), "{arguments:?}");
    }
    assert_eq!(home.program(&[&add[..6], &["--force"]].concat()).input(b"\n").run().code, 2);
}

/// SEC-17
#[test]
fn a_broker_requiring_a_token_is_reported() {
    let closed = [("PEEKLOCK__SECURITY__ALLOW_ANONYMOUS", "false")];
    let broker = Broker::start_with("127.0.0.1:0", &closed);
    let (_, log) = broker.ends(1, &["queue", "list"]);
    assert!(log.contains("PEEKLOCK_TOKEN") && log.contains(&broker.url), "{log}");
    let ended = broker.program(&["queue", "list"]).variable("PEEKLOCK_TOKEN", "s3cret").run();
    assert_eq!(ended.code, 1);
    assert!(ended.log.contains("Unauthorized") && !ended.log.contains("s3cret"), "{}", ended.log);
}
