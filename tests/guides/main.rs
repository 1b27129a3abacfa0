//! Runs the README and the pages of `docs/tutorial`, `docs/how-to` and `docs/explanation`. Each test pastes the blocks of one page from the top, on
//! a machine of its own (a network namespace), so that every port is as printed.
//!
//! | Fence | Rule |
//! |---|---|
//! | `sh` | Pasted into the first terminal; must succeed |
//! | `sh terminal:NAME` | Typed into a further terminal, which stays open; another block for it presses Ctrl-C first |
//! | `sh needs:LANGUAGE` | As `sh`, skipped where `tests/sdk` reports that the machine lacks the language |
//! | `sh needs:postgresql` | As `sh`, on a machine with a PostgreSQL server; `sudo -u postgres` runs its programs |
//! | `console` | Output of the block before it; `…` stands for any text, on a line by itself for any lines |
//! | any language with `file:NAME` | Saved under this name, which the text before the block mentions |
//! | `text browser:URL` | Text of this page in Chromium, at once or after a change |
//! | `text` | A picture; not run |
//! | `toml` | A configuration that `peeklock config check` accepts |
//! | `toml cargo` | Part of a `Cargo.toml` |
//! | `rust` | A documentation test of the package `peeklock` |
//! | `rust,ignore example:NAME` | Part of `examples/NAME.rs`; a `console` after it shows its output |
//! | any language with `by-hand` | Not run; listed in `BY_HAND` |

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/postgres.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod database;
mod example;
mod machine;
#[path = "../support/markdown.rs"]
mod markdown;
mod pattern;
mod reader;
#[path = "../support/set_up.rs"]
mod set_up;

use std::path::{Path, PathBuf};

use markdown::{Block, blocks};

/// Blocks that no test runs: they change the machine, install something, or need a daemon.
const BY_HAND: &[(&str, &str)] = &[
    (README, "cargo install --path .   # installs the program `peeklock`"),
    (README, "python3 -m venv .venv && . .venv/bin/activate"),
    (README, "cargo new orders && cd orders"),
    (
        "how-to/back-up-and-restore.md",
        "sudo lvcreate --snapshot --name peeklock-backup --size 1G /dev/vg0/peeklock",
    ),
    (
        "how-to/back-up-and-restore.md",
        "sudo btrfs subvolume snapshot -r /var/lib/peeklock /var/lib/peeklock-backup",
    ),
    ("how-to/back-up-and-restore.md", "sudo zfs snapshot tank/peeklock@backup"),
    ("how-to/high-availability.md", "sudo apt-get install postgresql curl"),
    ("how-to/high-availability.md", "# compose.yaml"),
    ("how-to/high-availability.md", "# haproxy.cfg"),
    (
        "how-to/observe-with-opentelemetry.md",
        "docker run --rm -p 16686:16686 -p 4318:4318 jaegertracing/jaeger",
    ),
    (
        "how-to/observe-with-prometheus.md",
        "sudo -u peeklock peeklock token --for 24h --data-dir /var/lib/peeklock |",
    ),
    ("how-to/observe-with-prometheus.md", "scrape_configs:"),
    ("how-to/repair-a-data-directory.md", "peeklock verify --data-dir /var/lib/peeklock"),
    ("how-to/repair-a-data-directory.md", "peeklock repair --data-dir /var/lib/peeklock"),
    (
        "how-to/repair-a-data-directory.md",
        "peeklock repair --drop-segment 7 --data-dir /var/lib/peeklock",
    ),
    (
        "how-to/replace-the-emulator-in-a-test-suite.md",
        "docker build --target emulator -t peeklock-emulator .",
    ),
    ("how-to/replace-the-emulator-in-a-test-suite.md", "services:"),
    ("how-to/run-as-a-service.md", "cargo deb --profile dist"),
    ("how-to/run-as-a-service.md", "systemctl status peeklock"),
    (
        "how-to/run-as-a-service.md",
        "sudo -u peeklock peeklock connection-string --data-dir /var/lib/peeklock",
    ),
    ("how-to/run-as-a-service.md", "[tls]"),
    (
        "how-to/run-as-a-service.md",
        "sudo -u peeklock peeklock config check --config /etc/peeklock/peeklock.toml",
    ),
    (
        "how-to/run-as-a-service.md",
        "sudo -u peeklock peeklock connection-string --host bus.example.com --data-dir /var/lib/peeklock",
    ),
    ("how-to/run-as-a-service.md", "journalctl -u peeklock -f"),
    ("how-to/run-as-a-service.md", "sudo -u peeklock peeklock health --data-dir /var/lib/peeklock"),
    ("how-to/run-in-a-container.md", "docker build -t peeklock ."),
    ("how-to/run-in-a-container.md", "podman build --format docker -t peeklock ."),
    (
        "how-to/run-in-a-container.md",
        "docker run -d --name peeklock -p 127.0.0.1:5672:5672 -v peeklock:/var/lib/peeklock peeklock",
    ),
    ("how-to/run-in-a-container.md", "docker inspect --format '{{.State.Health.Status}}' peeklock"),
    (
        "how-to/run-in-a-container.md",
        "docker exec peeklock peeklock connection-string --host localhost --data-dir /var/lib/peeklock",
    ),
    (
        "how-to/run-in-a-container.md",
        "docker exec peeklock peeklock queue create orders --data-dir /var/lib/peeklock",
    ),
    (
        "how-to/run-in-a-container.md",
        "docker run -d --name peeklock -p 127.0.0.1:5672:5672 -v peeklock:/var/lib/peeklock \\",
    ),
    (
        "how-to/run-in-a-container.md",
        "docker run -d --name peeklock -p 127.0.0.1:5672:5672 -v peeklock:/var/lib/peeklock \\",
    ),
    ("how-to/run-in-a-container.md", "services:"),
    ("how-to/store-messages-in-postgresql.md", "sudo apt-get install postgresql"),
    ("how-to/store-messages-in-postgresql.md", "[store.postgres]"),
    (
        "how-to/store-messages-in-postgresql.md",
        "peeklock migrate --from ./data --to postgres://peeklock@localhost/peeklock",
    ),
    ("how-to/store-messages-in-postgresql.md", "sudo systemctl restart postgresql"),
    ("how-to/use-tls.md", "[tls]"),
    ("how-to/use-tls.md", "peeklock config check --config /etc/peeklock/peeklock.toml"),
    ("how-to/use-tls.md", "sudo systemctl restart peeklock"),
    (
        "how-to/use-tls.md",
        "sudo -u peeklock peeklock connection-string --host bus.example.com --data-dir /var/lib/peeklock",
    ),
    (
        "how-to/use-tls.md",
        "sudo -u peeklock peeklock tls init --name bus.lan --data-dir /var/lib/peeklock",
    ),
    ("how-to/use-tls.md", "[tls]"),
    (
        "how-to/when-it-does-not-work.md",
        "peeklock health                # is the broker running, and can it work?",
    ),
    ("how-to/write-an-authorizer.md", "cargo run --example authorizer"),
    ("tutorial/azure-service-bus-application.md", "mkdir parcels && cd parcels"),
    ("tutorial/azure-service-bus-application.md", "python3 -m venv .venv && . .venv/bin/activate"),
    ("tutorial/azure-service-bus-application.md", "dotnet new console -o parcels-dotnet"),
    ("tutorial/azure-service-bus-application.md", "dotnet run --project parcels-dotnet"),
    ("tutorial/azure-service-bus-application.md", "mvn dependency:copy-dependencies"),
    ("tutorial/azure-service-bus-application.md", "npm install @azure/service-bus"),
    ("tutorial/azure-service-bus-application.md", "go mod init parcels"),
    ("tutorial/browser-consumer.md", "export REPOSITORY=~/peeklock"),
    ("tutorial/embedded-worker.md", "cargo new cafe"),
    ("tutorial/embedded-worker.md", "cargo run"),
    ("tutorial/embedded-worker.md", "cargo run"),
    ("tutorial/embedded-worker.md", "cargo run"),
    ("tutorial/embedded-worker.md", "cargo test"),
    ("tutorial/first-forwarder.md", "cargo new regions"),
    ("tutorial/first-forwarder.md", "cargo run"),
];

/// The only page outside `docs`.
const README: &str = "README.md";

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        /// Every page, each with a test of its own.
        const PAGES: &[&str] = &[$($page),*];

        $(
            #[test]
            fn $name() {
                reader::follow($page);
            }
        )*
    };
}

pages! {
    the_readme_works_from_the_top: "README.md",
    curl_sends_and_receives: "how-to/send-and-receive-with-curl.md",
    messages_are_searched: "how-to/find-a-message.md",
    many_messages_are_changed: "how-to/act-on-many-messages.md",
    the_audit_trail_is_read: "how-to/read-the-audit-trail.md",
    a_worker_is_embedded: "tutorial/embedded-worker.md",
    an_application_uses_an_azure_sdk: "tutorial/azure-service-bus-application.md",
    a_browser_consumes_messages: "tutorial/browser-consumer.md",
    a_first_forwarder_is_written: "tutorial/first-forwarder.md",
    tutorials_are_listed: "tutorial/README.md",
    a_broker_runs_as_a_service: "how-to/run-as-a-service.md",
    a_broker_runs_in_a_container: "how-to/run-in-a-container.md",
    the_emulator_is_replaced: "how-to/replace-the-emulator-in-a-test-suite.md",
    tls_is_used: "how-to/use-tls.md",
    policies_and_tokens_are_used: "how-to/use-policies-and-tokens.md",
    a_broker_is_backed_up_and_restored: "how-to/back-up-and-restore.md",
    messages_are_stored_in_postgresql: "how-to/store-messages-in-postgresql.md",
    a_standby_takes_over: "how-to/high-availability.md",
    a_damaged_directory_is_repaired: "how-to/repair-a-data-directory.md",
    an_application_moves_from_rabbitmq_or_redis: "how-to/move-from-rabbitmq-or-redis.md",
    the_console_is_opened: "how-to/use-the-console.md",
    a_missing_message_is_found: "how-to/find-why-a-message-did-not-arrive.md",
    findings_are_seen_and_muted: "how-to/check-entities-for-faults.md",
    filters_are_tried: "how-to/try-a-filter-before-you-save-it.md",
    prometheus_observes_a_broker: "how-to/observe-with-prometheus.md",
    opentelemetry_observes_a_broker: "how-to/observe-with-opentelemetry.md",
    dead_letters_are_drained: "how-to/drain-dead-letters.md",
    a_handler_is_debugged: "how-to/debug-a-handler.md",
    symptoms_have_remedies: "how-to/when-it-does-not-work.md",
    a_forwarder_is_written: "how-to/write-a-forwarder.md",
    a_transport_is_written: "how-to/write-a-transport.md",
    an_authorizer_is_written: "how-to/write-an-authorizer.md",
    a_store_is_written: "how-to/write-a-store.md",
    how_to_pages_are_listed: "how-to/README.md",
    explanations_are_listed: "explanation/README.md",
    durability_is_explained: "explanation/durability.md",
    locks_and_sessions_are_explained: "explanation/locks-and-sessions.md",
    bounds_are_explained: "explanation/bounds.md",
    the_design_is_explained: "explanation/design.md",
    the_console_is_explained: "explanation/console.md",
    scale_out_is_explained: "explanation/scale-out.md",
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn docs() -> PathBuf {
    repository().join("docs")
}

fn read(page: &str) -> String {
    let path = if page == README { repository().join(page) } else { docs().join(page) };
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The README, and pages of the three folders that a test follows, by their paths below `docs`.
fn pages_there() -> Vec<String> {
    let mut found = vec![README.to_owned()];
    for folder in ["explanation", "how-to", "tutorial"] {
        for entry in std::fs::read_dir(docs().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let page = format!("{folder}/{name}");
            if name.ends_with(".md") {
                found.push(page);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_page_has_a_test() {
    let mut tested = PAGES.to_vec();
    tested.sort_unstable();
    assert_eq!(tested, pages_there());
}

#[test]
fn blocks_that_no_test_runs_are_listed() {
    let mut found = Vec::new();
    for page in pages_there() {
        for block in blocks(&read(&page)) {
            if word(&block, "by-hand").is_some() {
                let first = block.text.lines().next().unwrap_or_default().to_owned();
                found.push((page.clone(), first));
            }
        }
    }
    let listed: Vec<(String, String)> =
        BY_HAND.iter().map(|(page, line)| ((*page).to_owned(), (*line).to_owned())).collect();
    assert_eq!(found, listed);
}

/// Pages are read in narrow windows, too.
#[test]
fn lines_and_cells_of_pages_are_short() {
    let mut long = Vec::new();
    for page in pages_there() {
        for (at, line) in read(&page).lines().enumerate() {
            let is_long = if line.starts_with('|') {
                line.split('|').any(|cell| cell.split_whitespace().count() > 20)
            } else {
                line.chars().count() > 120
            };
            if is_long {
                long.push(format!("{page}:{}", at + 1));
            }
        }
    }
    assert!(long.is_empty(), "over 120 characters, or a cell of over 20 words: {long:#?}");
}

/// Value of an info word: `file:a.toml` has the value `a.toml` for `file`; a bare word has an empty one.
fn word<'a>(block: &'a Block, name: &str) -> Option<&'a str> {
    block.info.iter().find_map(|word| {
        let (key, value) = word.split_once(':').unwrap_or((word, ""));
        (key == name).then_some(value)
    })
}
