//! Is the tree as we say? Rules of style that a compiler does not see.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod lean;
mod requirements;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use source::Source;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path as the tree knows it.
fn place(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files below a folder, without what is built.
fn files(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    below(&root().join(folder))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|is| is == extension))
        .collect()
}

/// Every file and folder below a folder, without what is built or installed.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name == "target" || name == "node_modules" || name == "venv" || name.starts_with('.')
            {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every file that holds tests only: below a folder `tests`, or declared as a module of tests.
static TEST_FILES: LazyLock<BTreeSet<PathBuf>> = LazyLock::new(|| {
    let (mut declared, all) = (Vec::new(), files(".", "rs"));
    for path in &all {
        declared.extend(Source::of(path, &read(path)).test_files);
    }
    let is_test = |path: &&PathBuf| {
        Path::new(&place(path)).components().any(|part| part.as_os_str() == "tests")
            || declared.iter().any(|module| path.starts_with(module))
    };
    all.iter().filter(is_test).cloned().collect()
});

/// What of a file runs in the product; nothing of a file of tests.
fn code(path: &Path) -> String {
    if TEST_FILES.contains(path) {
        return String::new();
    }
    Source::of(path, &read(path)).code
}

/// The code of every folder of this name below another.
fn code_of(name: &str, folder: &str) -> Vec<(String, String)> {
    let folders = below(&root().join(folder)).into_iter().filter(|path| path.is_dir());
    let named = folders.filter(|path| path.file_name().is_some_and(|is| is == name));
    let sources = named.flat_map(|folder| files(folder, "rs"));
    sources
        .filter(|path| !TEST_FILES.contains(path))
        .map(|path| (place(&path), code(&path)))
        .collect()
}

/// Each metric that the broker has stands in docs/metrics.md, and no other.
#[test]
fn the_metrics_are_documented() {
    let names = |text: &str, before: char| -> BTreeSet<String> {
        let parts = text.split(before).filter(|part| part.starts_with("peeklock_"));
        let name = |part: &str| {
            part.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().map(str::to_owned)
        };
        parts.filter_map(name).collect()
    };
    let sources = ["broker-core/src/telemetry.rs", "plugins/metrics-prometheus/src/gauges.rs"];
    let there: BTreeSet<String> = sources.iter().flat_map(|path| names(&read(path), '"')).collect();
    let page = read("docs/metrics.md");
    let rows: String = page.lines().filter(|line| line.starts_with("| `peeklock_")).collect();
    assert_eq!(names(&rows, '`'), there);
    for row in page.lines().filter(|line| line.starts_with("| `peeklock_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let is_counter = cells[1].ends_with("_total`");
        assert_eq!(cells[2] == "counter", is_counter, "the kind of {}", cells[1]);
    }
}

/// Each crate that is published says what it is, under which licence, and has the text of both.
#[test]
fn each_crate_can_be_published() {
    let manifests = below(root()).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let mut published = 0;
    for manifest in manifests {
        let text = read(&manifest);
        let is_published = text.contains("version.workspace") && !text.contains("publish = false");
        if !is_published {
            continue;
        }
        published += 1;
        for key in ["readme", "keywords", "categories", "license", "repository"] {
            assert!(
                text.contains(&format!("\n{key}.workspace = true")),
                "{}: {key}",
                place(&manifest)
            );
        }
        assert!(text.contains("\ndescription = \""), "{}", place(&manifest));
        assert!(text.contains("[package.metadata.docs.rs]"), "{}", place(&manifest));
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let copy = manifest.with_file_name(licence);
            assert_eq!(read(copy), read(licence), "{}", place(&manifest));
        }
    }
    assert!(published > 20, "{published}");
}

/// What a crate includes, or has as a module by its path, lies in its package, so that its tests compile where it is
/// published: a file of another, or of a package below it, by a link, of which the package has a copy.
#[test]
fn no_crate_includes_a_file_of_another() {
    let mut included = 0;
    for path in files(".", "rs") {
        let (own, text) = (package_of(&path), read(&path));
        let mut names = Vec::new();
        for include in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
            let parts = text.split(include).skip(1);
            names.extend(parts.filter_map(|part| Some(part.split_once('"')?.0)));
        }
        if text.contains(concat!("#[path", " = $")) {
            // Which it is, whoever calls the macro says.
            names.extend(text.split('"').filter(|name| name.ends_with(".rs")));
        }
        for name in names {
            let mut found = path.parent().unwrap().to_owned();
            for step in Path::new(name).components() {
                match step {
                    Component::ParentDir => assert!(found.pop()),
                    step => found.push(step),
                }
            }
            let from = place(&path);
            assert!(found.is_file(), "{from} includes {name}, which is not there");
            assert_eq!(package_of(&found), own, "{from} includes {name}, of another package");
            let excluded = excluded_from(own);
            let is_packed = |path: &Path| !excluded.iter().any(|one| path.starts_with(one));
            assert!(
                is_packed(&found) || !is_packed(&path),
                "{from} includes {name}, which is not packed"
            );
            included += 1;
        }
    }
    assert!(included > 60, "{included}");
}

/// The folder of the package that a file belongs to, which is the nearest one above it.
fn package_of(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file()).unwrap()
}

/// What the manifest of a package leaves out.
fn excluded_from(package: &Path) -> Vec<PathBuf> {
    let manifest = read(package.join("Cargo.toml"));
    let own =
        manifest.split("\n[").find(|part| part.trim_start_matches('[').starts_with("package]"));
    let Some((_, list)) = own.and_then(|own| own.split_once("\nexclude = [")) else {
        return Vec::new();
    };
    let list = list.split_once(']').unwrap().0;
    let names = list.split('"').skip(1).step_by(2);
    names.map(|name| package.join(name.trim_start_matches('/'))).collect()
}

/// What each crate of the core has seen, of the others and of the world: of a machine or a word nothing that is impure, of
/// the store no meaning.
#[test]
fn the_floors_of_the_core_are_as_the_map_shows_them() {
    let floors: [(&str, &[&str]); 5] = [
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
        (
            "store",
            &[
                "async-trait",
                "bytes",
                "crc32c",
                "getrandom",
                "peeklock-record",
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

/// Who embeds the broker pays for the broker: by default the library is the core and clients in the process, and the core
/// has what is named here. Of what serves and connects neither brings anything.
#[test]
fn the_library_pays_for_nothing_of_the_program() {
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
    let library = ["peeklock-core", "peeklock-inproc"];
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
        let features = manifest["features"].as_table().unwrap();
        let default = features.get("default").and_then(toml::Value::as_array);
        assert!(default.is_none_or(Vec::is_empty), "{path}: {default:?}");
        let elsewhere = ["target", "build-dependencies"].map(|key| manifest.contains_key(key));
        assert_eq!(elsewhere, [false; 2], "{path} depends on something elsewhere");
    }
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "peeklock"])
        .args(["--edges", "normal", "--prefix", "none", "--format", "{lib}"])
        // Together with all others it has their features too.
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
fn the_shell_knows_no_actix_no_threads_and_no_clock() {
    let shells = code_of("shell", "broker-core");
    assert!(shells.iter().any(|(place, _)| place.ends_with("shell/mod.rs")));
    for (place, code) in shells {
        for word in ["actix", "tokio", "std::thread", "clock::", "Instant"] {
            assert!(!code.contains(word), "{place} uses `{word}`");
        }
    }
}

/// Where a program that has the broker in it gets its client.
const CLIENT_OF_THE_PROCESS: &str = "transports/client/src/in_process.rs";

/// Where a transport has the broker itself ask an entity, and why that goes round nothing: each hands out what was
/// checked before.
const ENTITIES_OF_THE_BROKER: [&str; 2] =
    ["transports/amqp/src/server/attach.rs", "transports/amqp/src/server/transaction.rs"];

/// What below `transports` is no transport, but a part that several of them share.
const SHARED_BY_TRANSPORTS: [&str; 5] = ["client", "json", "link", "listen", "tls"];

#[test]
fn no_transport_knows_another() {
    let folders = fs::read_dir(root().join("transports")).unwrap().flatten();
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let transports: Vec<String> =
        names.filter(|name| !SHARED_BY_TRANSPORTS.contains(&name.as_str())).collect();
    assert!(transports.len() >= 3, "{transports:?}");
    for one in &transports {
        let manifest = read(format!("transports/{one}/Cargo.toml"));
        let needs = manifest.split("[dev-dependencies]").next().unwrap();
        for other in transports.iter().filter(|other| *other != one) {
            assert!(!needs.contains(&format!("peeklock-{other}")), "{one} depends on {other}");
            for path in files(format!("transports/{one}/src"), "rs") {
                let name = format!("peeklock_{other}");
                assert!(!code(&path).contains(&name), "{} uses {name}", place(&path));
            }
        }
    }
}

/// What a broker does for whoever holds it, and `Access` for who may: to transports only the second is open.
#[test]
fn no_transport_goes_round_the_door() {
    let mut unchecked: Vec<String> =
        ["entity", "managed_at", "full_access", "delete_entity"].map(str::to_owned).into();
    for file in ["manage", "list", "policies", "declare"] {
        let code = code(&root().join(format!("broker-core/src/access/{file}.rs")));
        let names = code.split("pub async fn ").skip(1).filter_map(|text| text.split_once('('));
        unchecked.extend(names.map(|(name, _)| name.to_owned()));
    }
    assert!(unchecked.len() > 20, "{unchecked:?}");
    let paths = files("transports", "rs");
    let sources = paths.iter().filter(|path| place(path).split('/').nth(2) == Some("src"));
    let mut clients_of_the_process = 0;
    for path in sources {
        let code: String = code(path).split_whitespace().collect();
        let is_of_the_broker = code.contains(".as_the_broker(");
        let may_be = ENTITIES_OF_THE_BROKER.contains(&place(path).as_str());
        assert_eq!(is_of_the_broker, may_be, "{} goes round the check of an entity", place(path));
        // By another name what is asked of it would not be seen.
        let mut kept: Vec<&str> = code.split(".broker();").collect();
        kept.pop();
        let is_named =
            |code: &&str| code.rsplit([';', '{']).next().unwrap().starts_with("letbroker=");
        assert!(kept.iter().all(is_named), "{} gives the broker another name", place(path));
        for name in &unchecked {
            let ways =
                ["broker.", "broker().", "Broker::"].map(|holder| format!("{holder}{name}("));
            if !ways.iter().any(|way| code.contains(way)) {
                continue;
            }
            // A program that has the broker in it may do everything (SEC-17).
            let is_its_own = name == "full_access" && place(path) == CLIENT_OF_THE_PROCESS;
            assert!(is_its_own, "{} asks the broker for `{name}`, past `Access`", place(path));
            clients_of_the_process += 1;
        }
    }
    assert_eq!(clients_of_the_process, 1);
    // The engine below the broker is named by no transport at all; its words are, where no broker is needed.
    for manifest in fs::read_dir(root().join("transports")).unwrap().flatten() {
        let manifest = manifest.path().join("Cargo.toml");
        for engine in ["machine", "model", "record", "store"] {
            let needs = read(&manifest);
            let needs = needs.split("[dev-dependencies]").next().unwrap();
            assert!(
                !needs.contains(&format!("peeklock-{engine}")),
                "{} knows it",
                place(&manifest)
            );
        }
    }
    for path in &paths {
        for module in ["actor", "shell", "access", "change"] {
            let name = format!("peeklock_core::{module}::");
            assert!(!code(path).contains(&name), "{} uses {name}", place(path));
        }
    }
}

#[test]
fn handles_know_the_broker_by_their_port_alone() {
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

#[test]
fn metric_names_stand_in_telemetry_only() {
    let mut named = 0;
    for path in files(".", "rs") {
        let place = place(&path);
        let code = code(&path);
        for call in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            named += code.matches(call).count();
            let allowed = ["telemetry", "metrics-prometheus", "benches"];
            let allowed = allowed.iter().any(|word| place.contains(word));
            assert!(allowed || !code.contains(call), "{place} names a metric");
        }
    }
    assert!(named == 0 || named > 10, "metrics are named in another way, which this does not see");
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

/// The ways of ARCHITECTURE.md: each file of them is there, and each way has as many as it says. A letter before a file
/// stands for a folder, which the text above tells.
#[test]
fn the_ways_lead_over_files_that_are_there() {
    let map = read("ARCHITECTURE.md");
    let ways = map.split_once("## The way of a message").unwrap().1;
    let ways = ways.split("\n## ").next().unwrap();
    let mut folders = BTreeMap::new();
    for (at, _) in ways.match_indices('`') {
        let Some((folder, _)) = ways[at + 1..].split_once('`') else { continue };
        let letter = ways[..at].split_whitespace().next_back().unwrap_or_default();
        let letter = if letter == "is" {
            ways[..at].split_whitespace().rev().nth(1).unwrap_or_default()
        } else {
            letter
        };
        if folder.ends_with('/') && letter.len() == 1 {
            assert!(root().join(folder).is_dir(), "{folder}");
            folders.insert(letter.to_owned(), folder.to_owned());
        }
    }
    assert!(folders.len() > 7, "{folders:?}");
    let files_of = |row: &str| -> BTreeSet<PathBuf> {
        let mut folder = None;
        let mut found = BTreeSet::new();
        for (place, part) in row.split('`').enumerate() {
            if place % 2 == 0 {
                let last = part.split_whitespace().next_back().unwrap_or_default();
                folder = folders.get(last).or(folder);
            } else if part.ends_with(".rs") {
                let folder = folder.unwrap_or_else(|| panic!("{part} of which folder? {row}"));
                let path = root().join(folder).join(part);
                let path = path.canonicalize();
                found.insert(path.unwrap_or_else(|_| panic!("{folder}{part} is not there")));
            }
        }
        found
    };
    let (first, others) = ways.split_once("| Way | Files in their order |").unwrap();
    let rows = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("| ")).map(str::to_owned).collect()
    };
    let first: BTreeSet<PathBuf> = rows(first).iter().flat_map(|row| files_of(row)).collect();
    let said = ways.split_once("These are ").unwrap().1.split_once(" files").unwrap().0;
    assert_eq!(first.len().to_string(), said);
    let others = rows(others);
    assert_eq!(others.len(), 8);
    for row in others {
        let said = row.trim_end_matches('|').rsplit('|').next().unwrap().trim();
        assert_eq!(files_of(&row).len().to_string(), said, "{row}");
    }
}

#[test]
fn examples_are_short_and_say_what_one_will_see() {
    let examples = files("examples", "rs");
    assert!(!examples.is_empty());
    for path in examples {
        let text = read(&path);
        assert!(text.starts_with("//! "), "{} does not begin with what it shows", path.display());
        assert!(text.contains("cargo run --example"), "{} does not say how to run", path.display());
        assert!(text.lines().count() <= 120, "{} is longer than 120 lines", path.display());
    }
}

#[test]
fn the_changelog_has_its_form() {
    let text = read("CHANGELOG.md");
    let first = text.lines().find_map(|line| line.strip_prefix("## [")).unwrap();
    let version = concat!(env!("CARGO_PKG_VERSION"), "]");
    assert!(
        first == "Unreleased]" || first.starts_with(version),
        "CHANGELOG.md begins with {first}"
    );
    for line in text.lines().filter(|line| line.starts_with("### ")) {
        let kinds = ["### Added", "### Changed", "### Fixed", "### Breaking"];
        assert!(kinds.contains(&line), "CHANGELOG.md has a section `{line}`");
    }
}

/// Each mutation finds the text that it replaces, once, and has its row among the results.
#[test]
fn each_mutation_can_be_applied() {
    let run = |argument: &str| {
        let told = Command::new("python3")
            .args(["tests/mutations/run.py", argument])
            .current_dir(root())
            .output()
            .expect("python3 is there");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.status.success(), "{text}{}", String::from_utf8_lossy(&told.stderr));
        text
    };
    run("--check");
    let results = read("docs/testing.md");
    for line in run("--list").lines() {
        let number = line.split_whitespace().next().unwrap();
        let row = format!("\n| {number} | ");
        assert!(results.contains(&row), "docs/testing.md has no row for mutation {line}");
    }
}

/// Relative links of the documents lead somewhere.
#[test]
fn links_of_the_documents_lead_somewhere() {
    // What a package has of `docs/` is judged there.
    for path in files(".", "md").into_iter().filter(|path| !path.is_symlink()) {
        let text = read(&path);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.contains(char::is_whitespace) {
                continue;
            }
            let target = path.parent().unwrap_or(&path).join(file);
            assert!(target.exists(), "{} links to {link}, which is not there", place(&path));
        }
    }
}
