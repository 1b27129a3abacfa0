use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Counts};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::telemetry::{ConnectionCount, Gauges};
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{BrokerState, EntityGauges, Ownership, escaped, render, standby_page};
use crate::recorder;

const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

fn entity(path: &str, active: u64, dead_letter: u64) -> Gauges {
    let counts = Counts { active, dead_letter, delayed: active / 2, ..Counts::default() };
    let oldest_at =
        (active > 0).then(|| NOW.minus(TimeSpan::from_seconds(i64::try_from(active).unwrap())));
    Gauges { path: path.into(), counts, size_bytes: active * 10, oldest_at }
}

fn page(entities: Vec<Gauges>, which: EntityGauges) -> String {
    let mut page = String::new();
    render(&mut page, state(entities), which);
    page
}

fn state(entities: Vec<Gauges>) -> BrokerState {
    BrokerState {
        is_ready: true,
        ownership: None,
        is_full: true,
        store_bytes: Some(4_096),
        entities,
        now: NOW,
    }
}

/// CLU-52: a broker reports its lease, its shards and its clock, and a standby its state.
#[test]
fn page_shows_ownership_and_standby() {
    let page = |is_suspended| {
        let ownership = Some(Ownership {
            lease_left: TimeSpan::from_ms(2_250),
            is_suspended,
            shard_count: 32,
            clock_offset: TimeSpan::from_ms(20),
        });
        let mut page = String::new();
        render(&mut page, BrokerState { ownership, ..state(Vec::new()) }, EntityGauges::None);
        page
    };
    let serving = page(false);
    for line in [
        "peeklock_ready 1\n",
        "peeklock_standby 0\n",
        "peeklock_lease_seconds 2.25\n",
        "peeklock_shards{state=\"serving\"} 32\n",
        "peeklock_shards{state=\"suspended\"} 0\n",
        "peeklock_clock_offset_seconds 0.02\n",
    ] {
        assert!(serving.contains(line), "{serving}");
    }
    let suspended = page(true);
    assert!(suspended.contains("peeklock_shards{state=\"serving\"} 0\n"), "{suspended}");
    assert!(suspended.contains("peeklock_shards{state=\"suspended\"} 32\n"), "{suspended}");
    let page = standby_page();
    assert!(page.contains("peeklock_ready 0\n") && page.contains("peeklock_standby 1\n"), "{page}");
}

#[test]
fn the_largest_entities_are_shown_and_no_others() {
    let entities = vec![entity("small", 1, 0), entity("large", 5, 7), entity("middle", 3, 3)];
    let page = page(entities, EntityGauges::Top(2));
    assert!(page.contains("peeklock_entity_messages{entity=\"large\",state=\"active\"} 5\n"));
    assert!(page.contains("peeklock_entity_messages{entity=\"large\",state=\"dead_letter\"} 7\n"));
    assert!(page.contains("peeklock_entity_messages_delayed{entity=\"large\"} 2\n"));
    assert!(page.contains("peeklock_entity_size_bytes{entity=\"middle\"} 30\n"));
    let oldest = "peeklock_entity_oldest_available_age_seconds";
    assert!(page.contains(&format!("{oldest}{{entity=\"middle\"}} 3\n")), "{page}");
    assert!(!page.contains("small"));
    assert!(page.find("large") < page.find("middle"));
}

#[test]
fn entities_of_one_size_stay_in_the_order_of_their_paths() {
    let page = page(vec![entity("a", 1, 0), entity("b", 1, 0)], EntityGauges::Top(1));
    assert!(page.contains("\"a\"") && !page.contains("\"b\""));
}

#[test]
fn all_and_none_select_all_and_no_entities() {
    let entities = || vec![entity("a", 0, 0), entity("b", 0, 0)];
    let all = page(entities(), EntityGauges::All);
    assert!(all.contains("\"a\"") && all.contains("\"b\""));
    let none = page(entities(), EntityGauges::None);
    assert_eq!(
        none,
        "# HELP peeklock_ready Whether the broker is ready\n# TYPE peeklock_ready \
         gauge\npeeklock_ready 1\n# HELP peeklock_store_full Whether the store is full and refuses \
         new messages\n# TYPE peeklock_store_full gauge\npeeklock_store_full 1\n# HELP \
         peeklock_store_bytes Bytes that the store uses on its medium\n# TYPE peeklock_store_bytes \
         gauge\npeeklock_store_bytes 4096\n"
    );
}

#[test]
fn label_values_cannot_break_out_of_their_quotes() {
    assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    let page = page(vec![entity("x\"} 1\nfake 2", 1, 0)], EntityGauges::All);
    assert!(page.lines().all(|line| !line.starts_with("fake")));
}

#[test]
fn the_setting_is_read_and_written() {
    let check = |text: &str, expected: EntityGauges| {
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!(expected.to_string(), text);
    };
    check("none", EntityGauges::None);
    check("all", EntityGauges::All);
    check("top:7", EntityGauges::Top(7));
    for wrong in ["", "top", "top:", "top:-1", "top:x", "ALL", "some"] {
        assert!(wrong.parse::<EntityGauges>().is_err(), "{wrong}");
    }
    assert_eq!(EntityGauges::default(), EntityGauges::Top(100));
}

#[tokio::test]
async fn a_scrape_shows_counters_buckets_and_entities_of_a_broker() {
    let metrics = recorder::install().unwrap();
    assert!(matches!(recorder::install(), Err(recorder::InstallError::Taken)));
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    broker.create_queue("eu/orders", QueueUpdate::default()).await.unwrap();
    let queue = broker.entity("eu/orders").unwrap();
    let message = broker.inbound(Message::new("x"));
    queue.call(Command::Send { message }).await.unwrap();
    // A turn updates its counters after sending its answers; a second turn waits for that.
    broker.describe_queue("eu/orders").await.unwrap();
    let page = metrics.render(&broker, EntityGauges::default());
    assert!(page.contains("peeklock_messages_accepted_total 1"), "{page}");
    assert!(page.contains("peeklock_store_commit_seconds_bucket{le=\"0.0001\"}"), "{page}");
    assert!(page.contains("peeklock_entity_messages{entity=\"eu/orders\",state=\"active\"} 1"));
    assert!(page.contains("peeklock_ready 1"));
    let bytes = page.lines().find_map(|line| line.strip_prefix("peeklock_store_bytes "));
    assert!(bytes.unwrap().parse::<u64>().unwrap() > 100, "{page}");
    // A connection is counted while it exists.
    let connections = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("peeklock_connections"));
        line.map(str::to_owned)
    };
    assert_eq!(connections(&page), None);
    let one = ConnectionCount::by("amqp");
    let page = metrics.render(&broker, EntityGauges::None);
    assert_eq!(connections(&page).unwrap(), "peeklock_connections{transport=\"amqp\"} 1");
    drop(one);
    let page = metrics.render(&broker, EntityGauges::None);
    assert_eq!(connections(&page).unwrap(), "peeklock_connections{transport=\"amqp\"} 0");
    broker.stop(Duration::ZERO).await.unwrap();
}
