//! Floors: the permitted dependencies of each part of the core, the library and the client handles.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::{code, code_of, files, place, read, root};

/// Permitted dependencies of each crate of the core: machines and words have no impure dependency,
/// and the store does not know the meaning of its records.
#[test]
fn the_floors_of_the_core_agree_with_the_map() {
    let floors: [(&str, &[&str]); 7] = [
        ("admission", &["peeklock-words", "tokio"]),
        ("record", &["bytes"]),
        ("words", &["bytes", "siphasher", "smallvec", "thiserror", "time"]),
        ("model", &["bytes", "peeklock-record", "peeklock-words"]),
        (
            "machine",
            &[
                "bytes",
                "peeklock-model",
                "peeklock-record",
                "peeklock-words",
                "siphasher",
                "thiserror",
            ],
        ),
        ("store-log", &["bytes", "crc32c", "peeklock-record", "smallvec", "thiserror"]),
        (
            "store",
            &[
                "async-trait",
                "bytes",
                "crc32c",
                "getrandom",
                "peeklock-record",
                "peeklock-store-log",
                "rustix",
                "siphasher",
                "smallvec",
                "thiserror",
                "tokio",
                "tracing",
            ],
        ),
    ];
    for (name, below) in floors {
        let manifest = read(format!("broker-core/{name}/Cargo.toml"));
        let manifest: toml::Table = manifest.parse().unwrap();
        let needs: Vec<&str> =
            manifest["dependencies"].as_table().unwrap().keys().map(String::as_str).collect();
        assert_eq!(needs, below, "{name}");
        let elsewhere = ["target", "build-dependencies"].map(|key| manifest.contains_key(key));
        assert_eq!(elsewhere, [false; 2], "{name} depends on something elsewhere");
    }
}

/// An embedding program builds only the broker: by default the library consists of the core and
/// in-process clients, and the core has only the listed dependencies, which contain no server and
/// no network client.
#[test]
fn the_library_builds_nothing_of_the_program() {
    let manifest =
        |path: &str| -> toml::Table { read(format!("{path}/Cargo.toml")).parse().unwrap() };
    let core = [
        "actix",
        "actix-rt",
        "async-trait",
        "base64",
        "bytes",
        "dashmap",
        "getrandom",
        "metrics",
        "peeklock-admission",
        "peeklock-machine",
        "peeklock-model",
        "peeklock-store",
        "peeklock-words",
        "rustix",
        "sha2",
        "siphasher",
        "smallvec",
        "thiserror",
        "tokio",
        "tracing",
    ];
    let library = ["peeklock-client", "peeklock-core"];
    for (path, needs) in [("broker-core", &core[..]), ("broker-core/peeklock", &library)] {
        let manifest = manifest(path);
        let always: Vec<&str> = manifest["dependencies"]
            .as_table()
            .unwrap()
            .iter()
            .filter(|(_, how)| how.get("optional").and_then(toml::Value::as_bool) != Some(true))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(always, needs, "{path}");
        let features = manifest.get("features").and_then(toml::Value::as_table);
        let default = features.and_then(|it| it.get("default")?.as_array());
        assert!(default.is_none_or(Vec::is_empty), "{path}: {default:?}");
        let elsewhere = ["target", "build-dependencies"].map(|key| manifest.contains_key(key));
        assert_eq!(elsewhere, [false; 2], "{path} depends on something elsewhere");
    }
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "peeklock"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{lib}"])
        // Built together with all other packages, it would have their features too.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let tree: BTreeSet<&str> =
        tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(tree.contains("peeklock_core") && tree.contains("actix_rt"), "{tree:?}");
    for word in [
        "actix_http",
        "actix_web",
        "clap",
        "config",
        "h2",
        "hyper",
        "indicatif",
        "opentelemetry",
        "prost",
        "quick_xml",
        "reqwest",
        "ring",
        "rustls",
        "tokio_rustls",
        "tokio_tungstenite",
        "toml",
        "tracing_subscriber",
        "tungstenite",
        "utoipa",
        "peeklock_http",
        "peeklock_listen",
        "peeklock_websocket",
        "peeklock_amqp",
        "peeklock_tls",
    ] {
        assert!(!tree.contains(word), "the library brings {word}");
    }
}

#[test]
fn the_machines_are_pure() {
    let machines = code_of("src", "broker-core/machine");
    assert!(
        machines
            .iter()
            .any(|(place, code)| place.ends_with("topic/mod.rs") && code.lines().count() > 300)
    );
    for (place, code) in machines {
        for word in [
            "std::time",
            "std::fs",
            "std::thread",
            "std::net",
            "tokio",
            "actix",
            "getrandom",
            "HashMap",
            "HashSet",
            "async ",
            ".await",
        ] {
            assert!(!code.contains(word), "{place} uses `{word}`");
        }
    }
}

#[test]
fn the_shell_uses_no_actix_no_threads_and_no_clock() {
    let shells = code_of("shell", "broker-core");
    assert!(shells.iter().any(|(place, _)| place.ends_with("shell/mod.rs")));
    for (place, code) in shells {
        for word in ["actix", "tokio", "std::thread", "clock::", "Instant"] {
            assert!(!code.contains(word), "{place} uses `{word}`");
        }
    }
}

#[test]
fn handles_reach_the_broker_only_through_their_port() {
    let is_port = |path: &Path| {
        place(path).split('/').any(|part| part == "in_process" || part == "in_process.rs")
    };
    let (port, handles): (Vec<_>, Vec<_>) =
        files("transports/client/src", "rs").into_iter().partition(|path| is_port(path));
    assert!(!port.is_empty() && handles.len() > 10);
    for path in handles {
        for word in ["Broker,", "Broker;", "Entity,", "Entity;", "Access", "peeklock_core::request"]
        {
            assert!(!code(&path).contains(word), "{} uses `{word}`", place(&path));
        }
    }
    for path in files("transports/client/src", "rs") {
        assert!(!code(&path).contains("tungstenite"), "{} knows a transport", place(&path));
    }
}
