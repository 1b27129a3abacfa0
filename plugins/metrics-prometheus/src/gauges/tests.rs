use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Counts};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::telemetry::Gauges;

use super::{EntityGauges, escaped, render};
use crate::recorder;

fn entity(path: &str, active: u64, dead_letter: u64) -> Gauges {
    let counts = Counts { active, dead_letter, delayed: active / 2, ..Counts::default() };
    Gauges { path: path.into(), counts, size_bytes: active * 10 }
}

fn page(entities: Vec<Gauges>, which: EntityGauges) -> String {
    let mut page = String::new();
    render(&mut page, true, entities, which);
    page
}

#[test]
fn the_largest_entities_are_shown_and_no_others() {
    let entities = vec![entity("small", 1, 0), entity("large", 5, 7), entity("middle", 3, 3)];
    let page = page(entities, EntityGauges::Top(2));
    assert!(page.contains("peeklock_entity_messages{entity=\"large\",state=\"active\"} 5\n"));
    assert!(page.contains("peeklock_entity_messages{entity=\"large\",state=\"dead_letter\"} 7\n"));
    assert!(page.contains("peeklock_entity_messages_delayed{entity=\"large\"} 2\n"));
    assert!(page.contains("peeklock_entity_size_bytes{entity=\"middle\"} 30\n"));
    assert!(!page.contains("small"));
    assert!(page.find("large") < page.find("middle"));
}

#[test]
fn entities_of_one_size_stay_in_the_order_of_their_paths() {
    let page = page(vec![entity("a", 1, 0), entity("b", 1, 0)], EntityGauges::Top(1));
    assert!(page.contains("\"a\"") && !page.contains("\"b\""));
}

#[test]
fn all_and_none_mean_what_they_say() {
    let entities = || vec![entity("a", 0, 0), entity("b", 0, 0)];
    let all = page(entities(), EntityGauges::All);
    assert!(all.contains("\"a\"") && all.contains("\"b\""));
    let none = page(entities(), EntityGauges::None);
    assert_eq!(
        none,
        "# HELP peeklock_ready Whether the broker can do its work\n\
         # TYPE peeklock_ready gauge\npeeklock_ready 1\n"
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
    // The counters of a turn are counted after its answers have left; a second turn waits for them.
    broker.describe_queue("eu/orders").await.unwrap();
    let page = metrics.render(&broker, EntityGauges::default());
    assert!(page.contains("peeklock_messages_accepted_total 1"), "{page}");
    assert!(page.contains("peeklock_store_commit_seconds_bucket{le=\"0.0001\"}"), "{page}");
    assert!(page.contains("peeklock_entity_messages{entity=\"eu/orders\",state=\"active\"} 1"));
    assert!(page.contains("peeklock_ready 1"));
    broker.stop(Duration::ZERO).await.unwrap();
}
