//! Compares the rows of the sum with the table in docs/reference/security.md.

use std::collections::BTreeSet;

use super::*;
use crate::config::Loaded;
use crate::config::tests::load;

/// Content of entities, which has its own sum.
const KEPT: [&str; 18] = [
    "queues and topics",
    "subscriptions",
    "rules",
    "rules and description texts together",
    "policies",
    "sessions",
    "duplicate detection ids",
    "scheduled, deferred and delayed messages",
    "stored messages (each copy counts)",
    "message locks",
    // Each belongs to a message and is smaller than a locked message.
    "properties added by settlement and rules",
    "messages of `--ephemeral`",
    // Part of the memory of each entity.
    "counts of entities for operators",
    // Part of the checks of entities.
    "muted findings",
    // Part of the unread HTTP answers.
    "streams of the JSON API",
    // On disk.
    "files of the audit trail",
    "files of jobs",
    "files of exports",
];

/// The rows of a broker with all optional parts; `name` is the name of its configuration file.
fn budget_of_all(name: &str) -> Vec<Row> {
    let text = "[gateway]\naddress = \"127.0.0.1:0\"\n[tls]\nenabled = true\n\
                [otlp]\nendpoint = \"http://127.0.0.1:4318\"\n";
    let Loaded { config, .. } = load(name, text).unwrap();
    config.budget()
}

/// DESIGN D6: each row of the table in docs/reference/security.md is in one of the two sums, and each row of work in
/// progress is a row there.
#[test]
fn each_row_of_the_table_is_in_a_sum() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("\n## Memory\n").nth(1).unwrap().split("\nAt start").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows: BTreeSet<&str> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    let budget = budget_of_all("budget-table");
    let summed: BTreeSet<&str> = budget.iter().map(|row| row.name).chain(KEPT).collect();
    assert_eq!(rows, summed);
}

/// DESIGN D6: the name of each row, with the memory that clients share and the memory of
/// connections, in KiB.
#[test]
fn each_row_of_the_sum_has_its_size() {
    let budget = budget_of_all("budget-size");
    let kibibytes = |row: &Row| (row.name, row.shared_bytes >> 10, row.connection_bytes >> 10);
    let found: Vec<_> = budget.iter().map(kibibytes).collect();
    let expected = [
        ("incoming commands", 262_144, 0),
        ("management requests", 131_072, 0),
        ("open transactions", 131_072, 78_125),
        ("messages during rule evaluation", 262_144, 0),
        ("messages in transfer to an entity or a forwarder", 131_072, 0),
        ("lists and declaration plans", 655_360, 0),
        ("explanations of rules", 524_288, 0),
        ("open taps", 16_384, 0),
        ("open searches", 8_192, 0),
        ("series of entities", 131_072, 0),
        ("journeys of messages", 71_680, 0),
        ("samples of topics", 16_384, 0),
        ("checks of entities", 32_768, 0),
        ("entries that wait for the audit trail", 141_312, 0),
        ("audit trail of an ephemeral broker", 0, 0),
        ("jobs of operators", 114_688, 0),
        ("messages of jobs that can be undone, of an ephemeral broker", 0, 0),
        ("files of exports, of an ephemeral broker", 0, 0),
        ("names of clients whose links have ended", 6_144, 0),
        ("data waiting for the disk", 262_144, 0),
        ("content cache", 65_536, 0),
        ("spans waiting for a collector", 75_584, 0),
        ("entity gauges for a collector", 1_562, 0),
        ("metrics page", 97, 0),
        ("incoming HTTP requests", 65_536, 480_000),
        ("unread HTTP answers", 131_072, 80_000),
        ("incoming WebSocket frames", 65_536, 120_000),
        ("incoming AMQP messages", 65_536, 0),
        ("one AMQP message over 16 MiB", 172_032, 0),
        ("unread AMQP and WebSocket output", 65_536, 640_000),
        ("PROXY protocol headers", 4_096, 0),
        ("connections with an unknown protocol", 8_192, 0),
        ("TLS handshakes", 16_384, 0),
        ("HTTP connections", 0, 320_000),
        ("WebSocket connections", 0, 640_000),
        ("AMQP connections", 0, 1_009_152),
        ("WebSocket links", 0, 2_560_000),
        ("AMQP links", 0, 2_880_000),
        ("AMQP links after the first 256 of a connection", 262_144, 0),
        ("tokens", 0, 800_000),
        ("cached rights", 0, 240_000),
        ("TLS connections", 0, 1_500_000),
        ("list of clients for operators", 0, 399_414),
        ("outgoing connections to brokers and webhooks", 0, 786_432),
    ];
    assert_eq!(found, expected);
    let off = load("budget-off", "").unwrap();
    let off = off.config.budget();
    let without = [
        "audit trail of an ephemeral broker",
        "messages of jobs that can be undone, of an ephemeral broker",
        "files of exports, of an ephemeral broker",
        "spans waiting for a collector",
        "entity gauges for a collector",
        "TLS handshakes",
        "TLS connections",
    ];
    let nothing = off.iter().filter(|row| row.bytes() == 0).map(|row| row.name);
    assert_eq!(nothing.collect::<Vec<_>>(), without, "what is off takes nothing");
}

/// DESIGN D6: the largest rows are listed with the settings that lower them.
#[test]
fn largest_rows_are_listed_with_their_settings() {
    let budget = budget_of_all("budget-largest");
    assert_eq!(
        largest(&budget, 2, |row| row.shared_bytes),
        "limits.broker_description_bytes_max: 512 MiB for explanations of rules; \
         limits.broker_inbound_bytes_max: 256 MiB for incoming commands"
    );
    assert_eq!(
        largest(&budget, 2, Row::bytes),
        "amqp.link_count_max: 2812 MiB for AMQP links; websocket.link_count_max: 2500 MiB for WebSocket links"
    );
    assert_eq!(sum(&budget, |row| row.shared_bytes) >> 20, 3_805);
    assert_eq!(sum(&budget, Row::bytes) >> 20, 16_044);
}

/// The memory of messages is in the content of entities if the broker is ephemeral; otherwise the
/// data that waits for the disk is in the work in progress.
#[test]
fn the_memory_of_either_store_is_in_the_sum() {
    let of = |ephemeral: bool| {
        let text = format!("[server]\nephemeral = {ephemeral}\nephemeral_bytes_max = 1048576\n");
        let Loaded { config, .. } = load(&format!("sum-{ephemeral}"), &text).unwrap();
        (sum(&config.budget(), Row::bytes), config.kept_bytes())
    };
    let (on_disk, in_memory) = (of(false), of(true));
    assert_eq!(in_memory.1, on_disk.1 + (1 << 20));
    let of_disk = (64 << 20) + JournalConfig::UNSTORED_BYTES_MAX;
    let of_jobs = Operations::UNDO_MEMORY_MAX + Operations::EXPORT_MEMORY_MAX;
    let of_memory = MemoryTrail::BYTES_MAX as u64 + of_jobs;
    assert_eq!(on_disk.0 + of_memory, in_memory.0 + of_disk);
}

/// DESIGN D6: the store in PostgreSQL has the data that waits for the database twice, and a cache of
/// its own.
#[test]
fn the_memory_of_a_store_in_postgres_is_in_the_sum() {
    let of = |name: &str, text: &str| {
        let Loaded { config, .. } = load(name, text).unwrap();
        (sum(&config.budget(), Row::bytes), config)
    };
    let text = "[store]\nkind = \"postgres\"\n[store.postgres]\n\
                url = \"postgres://peeklock@localhost/peeklock\"\ncache_bytes = 1048576\n";
    let ((journal, _), (postgres, config)) = (of("sum-journal", ""), of("sum-postgres", text));
    let of_journal = (64 << 20) + JournalConfig::UNSTORED_BYTES_MAX;
    let of_postgres = (1 << 20) + 2 * PostgresConfig::UNSTORED_BYTES_MAX;
    assert_eq!(postgres + of_journal, journal + of_postgres);
    let budget = config.budget();
    let cache = budget.iter().find(|row| row.name == "content cache").unwrap();
    assert_eq!(cache.setting, Some("store.postgres.cache_bytes"));
}

/// DESIGN D6: the documented sizes of entity content and of locked messages are correct.
#[test]
fn documented_entity_memory_is_correct() {
    let Loaded { mut config, .. } = load("sum-kept", "").unwrap();
    let gibibytes = |bytes: u64| (bytes + (1 << 29)) >> 30;
    let kept_bytes = config.kept_bytes();
    config.settings.limits.broker_message_count_max = 0;
    let message_bytes = kept_bytes - config.kept_bytes();
    let (kept, messages) = (gibibytes(kept_bytes), gibibytes(message_bytes));
    for (page, expected) in [
        (
            "reference/security",
            format!(
                "{kept} GiB by default, of which {messages} GiB are 50 million locked messages"
            ),
        ),
        ("reference/operation", format!("| {kept} GiB more |")),
    ] {
        let path = format!("{}/docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&expected), "docs/{page}.md: {expected}");
    }
}

/// DESIGN D6: the messages that the broker loads for itself are in the sum. At least one message of
/// the largest size always passes.
#[test]
fn loaded_messages_are_in_the_sum() {
    let Loaded { mut config, .. } = load("sum-loaded", "").unwrap();
    let sums = [1, 100, 200].map(|mib: u64| {
        config.settings.limits.broker_loaded_bytes_max = mib << 20;
        sum(&config.budget(), Row::bytes) >> 20
    });
    assert_eq!([sums[1] - sums[0], sums[2] - sums[1]], [0, 100]);
}

/// DESIGN D6: the example for a small machine in docs/reference/operation.md is valid, and its sums
/// are as documented.
#[test]
fn the_example_for_a_small_machine_fits() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/operation.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## Memory\n").nth(1).unwrap().split("\n## ").next().unwrap();
    assert!(section.contains("2.6 GiB for all clients together and 0.7 GiB for their connections"));
    let example = section.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let Loaded { config, .. } = load("budget-example", example).unwrap();
    let budget = config.budget();
    assert_eq!(sum(&budget, |row| row.shared_bytes) >> 20, 2_685);
    assert_eq!(sum(&budget, |row| row.connection_bytes) >> 20, 751);
}
