//! `peeklock policy`, `connection-string`

use serde_json::Value;

use super::broker::Broker;
use super::program::{Ended, Program};

const ROOT: &str = "RootManageSharedAccessKey";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs the program with only a connection string.
fn with_string(string: &str, arguments: &[&str]) -> Ended {
    Program::new(arguments).variable("PEEKLOCK_CONNECTION_STRING", string.trim()).run()
}

/// SEC-25: the key of a directory on this machine is never printed for a broker that is named by
/// its address. When an anonymous client creates the first policy, the command warns that anonymous
/// access ends (SEC-17).
#[test]
fn a_connection_string_belongs_to_the_named_broker() {
    let broker = Broker::with_queue(&[]);
    let (out, log) = broker.ends(2, &["connection-string", "--url", "ws://127.0.0.1:1"]);
    assert!(out.is_empty() && log.contains("--policy RootManageSharedAccessKey"), "{log}");
    let create = ["policy", "create", "shop", "--entity", "orders", "--right", "send"];
    let ended = broker.program(&create).run();
    assert!(ended.code == 0 && ended.log.contains("every client needs a token"), "{}", ended.log);
}

/// SEC-01, SEC-02, SEC-09, SEC-17: policies are created, listed, shown and deleted; keys are shown
/// and regenerated; and a client that signs with a key has exactly the rights of its policy while
/// the key is valid.
#[test]
fn policies_are_managed_and_their_connection_strings_give_access() {
    let broker = Broker::with_queue(&[]);
    // Up to here no credential is needed, and the answer still arrives.
    let ended = broker.program(&["connection-string", "--policy", ROOT, "--for", "peeklock"]).run();
    let (first, log) = (ended.out, ended.log);
    assert!(ended.code == 0 && log.contains("every client needs a token"), "{log}");
    assert!(
        first.starts_with(&format!(
            "Endpoint=sb://{};SharedAccessKeyName={ROOT};",
            broker.address()
        )) && first.ends_with(";UseDevelopmentEmulator=true\n"),
        "{first}"
    );
    let of_sdk = |arguments: &[&str]| {
        let asked = [&["connection-string", "--policy", ROOT], arguments].concat();
        let ended = with_string(&first, &asked);
        assert_eq!(ended.code, 0, "{}", ended.log);
        ended.out
    };
    let key = first.split_once(';').unwrap().1;
    assert_eq!(of_sdk(&["--port", "7"]), format!("Endpoint=sb://127.0.0.1:7;{key}"));
    let named = of_sdk(&["--host", "bus.example.com", "--port", "5672", "--plain"]);
    assert_eq!(named, format!("Endpoint=sb://bus.example.com:5672;{key}"));
    let secure = of_sdk(&["--host", "bus.example.com", "--port", "443", "--tls"]);
    let without = key.replace(";UseDevelopmentEmulator=true", "");
    assert_eq!(secure, format!("Endpoint=sb://bus.example.com:443;{without}"));
    let both = with_string(&first, &["connection-string", "--tls", "--plain"]);
    assert!(both.code == 2 && both.log.contains("--plain"), "{}", both.log);
    let refused = with_string(&first, &["connection-string", "--host", "bus.example.com:80"]);
    assert!(refused.code == 2 && refused.log.contains("--port"), "{}", refused.log);
    let (_, log) = broker.ends(1, &["policy", "list"]);
    assert!(log.contains("--data-dir"), "{log}");
    let root = |code: i32, arguments: &[&str]| {
        let ended = with_string(&first, arguments);
        assert_eq!(ended.code, code, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        ended
    };
    let ok = |arguments: &[&str]| root(0, arguments).out;

    let shop = ["policy", "create", "shop", "--entity", "orders", "--right", "send"];
    assert_eq!(ok(&shop), "policy `shop` of `orders` created\n");
    assert!(root(5, &shop).log.contains("policy delete"));
    let boss = json(&ok(&["policy", "create", "boss", "--right", "manage", "-o", "json"]));
    assert_eq!(boss["rights"], serde_json::json!(["Send", "Listen", "Manage"]));
    root(2, &["policy", "create", "none"]);

    let list = ok(&["policy", "list"]);
    let lines: Vec<_> = list.lines().map(words).collect();
    assert_eq!(lines[0], ["POLICY", "RIGHTS", "CREATED", "UPDATED"]);
    assert_eq!(lines[1][0], "boss");
    assert_eq!(lines[2][..4], [ROOT, "Send,", "Listen,", "Manage"]);
    let column = |line: &str, word: &str| line.find(word).unwrap();
    let all: Vec<&str> = list.lines().collect();
    assert_eq!(column(all[0], "RIGHTS"), column(all[1], "Send"), "{list}");
    assert_eq!(column(all[1], "Send"), column(all[2], "Send"), "{list}");
    let of_orders = json(&ok(&["policy", "ls", "--entity", "orders", "-o", "json"]));
    assert_eq!((&of_orders[0]["name"], of_orders.as_array().unwrap().len()), (&"shop".into(), 1));
    let shown = ok(&["policy", "show", "shop", "--entity", "orders"]);
    assert!(shown.lines().any(|line| words(line) == ["rights", "Send"]), "{shown}");

    let keys = || json(&ok(&["policy", "keys", "shop", "--entity", "orders", "-o", "ndjson"]));
    let before = keys();
    let string = |key: &str| {
        let of_shop = ["connection-string", "--entity", "orders", "--policy", "shop"];
        ok(&[&of_shop[..], &["--key", key, "--for", "peeklock"]].concat())
    };
    let (primary, secondary) = (string("primary"), string("secondary"));
    let key = before["primaryKey"].as_str().unwrap();
    assert!(primary.contains(&format!("SharedAccessKey={key};EntityPath=orders;")), "{primary}");
    for text in [&list, &shown] {
        assert!(!text.contains(key), "keys are told by `keys` alone");
    }
    for client in [&primary, &secondary] {
        assert_eq!(with_string(client, &["send", "orders", "one"]).code, 0);
        let ended = with_string(client, &["receive", "orders"]);
        assert!(ended.code == 1 && ended.log.contains("Unauthorized"), "{}", ended.log);
    }
    ok(&["policy", "regenerate", "shop", "--entity", "orders", "--key", "primary"]);
    let after = keys();
    assert_ne!(after["primaryKey"], before["primaryKey"]);
    assert_eq!(after["secondaryKey"], before["secondaryKey"]);
    assert_eq!(with_string(&primary, &["send", "orders", "two"]).code, 1);
    assert_eq!(with_string(&secondary, &["send", "orders", "two"]).code, 0);

    let delete = ["policy", "delete", "shop", "--entity", "orders"];
    assert!(root(2, &delete).log.contains("--yes"));
    assert_eq!(ok(&[&delete[..], &["--yes"]].concat()), "policy `shop` of `orders` deleted\n");
    root(4, &[&delete[..], &["--yes"]].concat());
    ok(&[&delete[..], &["--yes", "--if-exists"]].concat());
    assert_eq!(with_string(&secondary, &["send", "orders", "three"]).code, 1);
    root(4, &["policy", "list", "--entity", "absent"]);
}

/// SEC-25, LIS-05: on the broker's machine the first key is available, also if access requires a
/// key. One connection string serves every client.
#[test]
fn the_first_key_is_taken_from_the_data_directory() {
    let closed = [("PEEKLOCK__SECURITY__ALLOW_ANONYMOUS", "false")];
    let directory = concat!(env!("CARGO_TARGET_TMPDIR"), "/client-cli-first-key");
    if std::path::Path::new(directory).exists() {
        std::fs::remove_dir_all(directory).unwrap();
    }
    let broker = Broker::start_in(directory, &closed);
    let at = |code: i32, arguments: &[&str]| {
        let ended = Program::new(&[arguments, &["--data-dir", directory]].concat()).run();
        assert_eq!(ended.code, code, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        ended.out
    };
    let file = std::fs::read_to_string(format!("{directory}/root.connection-string")).unwrap();
    assert_eq!(file.lines().count(), 1, "{file}");
    assert!(file.starts_with("Endpoint=sb://localhost:"), "{file}");
    let told = json(&at(0, &["connection-string", "--entity", "/orders/", "-o", "json"]));
    assert_eq!(told["policy"], ROOT);
    assert!(told["connectionString"].as_str().unwrap().contains(";EntityPath=orders;"), "{told}");
    // The connection string of a policy has the same endpoint as the first one, for either kind of
    // client.
    for client in ["sdk", "peeklock"] {
        assert_eq!(at(0, &["connection-string", "--for", client]), file);
        assert_eq!(at(0, &["connection-string", "--policy", ROOT, "--for", client]), file);
        let secure = at(0, &["connection-string", "--for", client, "--tls"]);
        assert_eq!(format!("{};UseDevelopmentEmulator=true", secure.trim()), file.trim());
    }
    let keys = json(&at(0, &["policy", "keys", ROOT, "-o", "json"]));
    assert!(file.contains(keys["primaryKey"].as_str().unwrap()));
    at(0, &["queue", "create", "orders"]);
    let made = at(0, &["policy", "create", "shop", "--entity", "orders", "--right", "listen"]);
    assert!(made.contains("created"), "{made}");
    let elsewhere = Program::new(&["policy", "list", "--data-dir", "/absent"]).run();
    assert!(elsewhere.code == 4 && elsewhere.log.contains("/absent"), "{}", elsewhere.log);
    let both = ["queue", "list", "--url", "ws://a:1", "--data-dir", directory];
    assert_eq!(Program::new(&both).run().code, 2);
    drop(broker);
}

/// LIS-05, LIS-07: the connection string of a data directory is printed with a note on its source,
/// with a warning if no broker runs there, and never if something else names a broker. Commands in
/// the folder of a running broker need no flags.
#[test]
fn the_key_of_a_data_directory_is_not_used_for_another_broker() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/client-cli-own-key");
    if std::path::Path::new(folder).exists() {
        std::fs::remove_dir_all(folder).unwrap();
    }
    let directory = format!("{folder}/data");
    std::fs::create_dir_all(&directory).unwrap();
    let here = |code: i32, arguments: &[&str], variables: &[(&str, &str)]| {
        let program = Program::new(arguments).within(folder);
        let program = variables.iter().fold(program, |it, (name, value)| it.variable(name, value));
        let ended = program.run();
        assert_eq!(ended.code, code, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        ended
    };
    let string = ["connection-string"];
    for settings in [&[][..], &[("PEEKLOCK__TLS__ENABLED", "true")]] {
        let broker = Broker::start_in(&directory, settings);
        let told = here(0, &string, &[]);
        assert!(told.out.starts_with("Endpoint=sb://localhost:"), "{}", told.out);
        let source = "./data/root.connection-string";
        assert!(told.log.contains(source) && !told.log.contains("warning"), "{}", told.log);
        let named = here(0, &["connection-string", "--data-dir", &directory], &[]);
        assert_eq!((named.out, named.log.as_str()), (told.out.clone(), ""));
        // If anything names a broker, even this one, a key is required or nothing is printed.
        let key = told.out.split("SharedAccessKey=").nth(1).unwrap().split(';').next().unwrap();
        let url = &*broker.url;
        let other = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b";
        for (arguments, variables) in [
            (&["connection-string", "--url", url][..], &[][..]),
            (&["connection-string", "--url", "ws://127.0.0.1:1"], &[]),
            (&["connection-string", "--connection-string", other], &[]),
            (&string, &[("PEEKLOCK_URL", url)]),
            (&string, &[("PEEKLOCK_CONNECTION_STRING", other)]),
        ] {
            let refused = here(2, arguments, variables);
            assert!(refused.log.contains("--policy RootManageSharedAccessKey"), "{}", refused.log);
            assert!(refused.out.is_empty() && !refused.log.contains(key.trim()), "{}", refused.out);
        }
        // A command finds this broker, its key and its TLS settings, also after anonymous access
        // has ended.
        here(0, &["queue", "create", "orders", "--if-not-exists"], &[]);
        here(0, &["policy", "keys", ROOT], &[]);
        here(0, &["queue", "list"], &[]);
        drop(broker);
        let stale = here(0, &string, &[]);
        assert_eq!(stale.out, told.out);
        assert!(stale.log.contains("warning: no broker runs"), "{}", stale.log);
    }
    // Without a broker there, the default address is tried, with TLS if an authority is given.
    let authority = format!("{directory}/tls/authority.pem");
    for (more, url) in
        [(&[][..], "ws://127.0.0.1:5301"), (&["--ca", &*authority], "wss://127.0.0.1:5301")]
    {
        let program = Program::new(&[&["queue", "list"][..], more].concat()).within(folder);
        let ended = program.run();
        if ended.code != 0 {
            assert!(ended.log.contains(&format!("{url} (the default)")), "{}", ended.log);
        }
    }
}
