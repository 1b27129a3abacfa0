use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;

use super::names::RULE_COUNT_MAX;
use super::ring::{CHUNK_BYTES, CHUNK_ENTRIES};
use super::*;
use crate::actor::directory::Directory;
use crate::clock::{Clock, ManualClock};
use crate::ids::SequenceNumber;
use crate::inspect::{Journey, STATION_COUNT_MAX};
use crate::path::PathKey;
use crate::survey::ReadableKeys;
use crate::time::TimeSpan;

/// Number of chunks of the small rings: an entity has at most 2.
const CHUNKS: u64 = 16;
/// Number of stations in the share of an entity.
const SHARE: u64 = 2 * CHUNK_ENTRIES as u64;

fn small() -> Journeys {
    let bytes = CHUNKS * CHUNK_BYTES;
    // A sixth of the second ring is for the set of its messages.
    let config = JourneysConfig { common_bytes_max: bytes, kept_bytes_max: bytes * 6 / 5 };
    Journeys::new(&config, Arc::default(), [7; 16], Timestamp::NONE)
}

fn at(tick: u64) -> Timestamp {
    Timestamp::from_ticks(i64::try_from(tick).unwrap())
}

fn noted(entity: u64, sequence: u64, tick: u64, kind: StationKind) -> Noted {
    let entry = Entry::new(SequenceNumber(sequence), at(tick), kind);
    Noted { entity: EntityId(entity), entry, rule: None }
}

impl Journeys {
    fn put(&self, noted: Noted) {
        let path = format!("q{}", noted.entity.0).into();
        self.add((noted.entity, &path), &mut [noted], RuleRound::default());
    }

    async fn read(&self, entity: u64, sequence: u64) -> Journey {
        let start = Start::Message((EntityId(entity), SequenceNumber(sequence)));
        self.walk_from(start, &ReadableKeys::ALL).await
    }

    async fn walk_from(&self, start: Start<'_>, readable: &ReadableKeys) -> Journey {
        let (directory, clock) = (Directory::default(), ManualClock::at(Timestamp::NONE));
        self.walk(start, &Reach { directory: &directory, readable, own: None, clock: &clock }).await
    }
}

fn kinds(journey: &Journey) -> Vec<StationKind> {
    journey.stations.iter().map(|station| station.kind).collect()
}

/// CON-30: an entity has an eighth of the first ring, and one station more costs its oldest chunk.
/// Other entities keep theirs.
#[tokio::test]
async fn entity_has_an_eighth_of_a_ring() {
    let journeys = small();
    journeys.put(noted(2, 1, 1, StationKind::Accepted));
    for number in 1..=SHARE {
        journeys.put(noted(1, number, number, StationKind::Accepted));
    }
    let first = journeys.read(1, 1).await;
    assert_eq!((first.stations.len(), first.complete_since), (1, Timestamp::NONE));
    journeys.put(noted(1, SHARE + 1, SHARE + 1, StationKind::Accepted));
    let dropped = CHUNK_ENTRIES as u64;
    let last = journeys.read(1, dropped).await;
    assert_eq!((last.stations.len(), last.complete_since), (0, at(dropped)));
    for (entity, number) in [(1, dropped + 1), (1, SHARE + 1), (2, 1)] {
        assert_eq!(kinds(&journeys.read(entity, number).await), [StationKind::Accepted]);
    }
    assert_eq!(journeys.read(2, 1).await.complete_since, Timestamp::NONE);
}

/// CON-30: a full ring drops the chunk that was written longest ago.
#[tokio::test]
async fn full_ring_drops_the_chunk_written_longest_ago() {
    let journeys = small();
    for entity in 1..=CHUNKS {
        journeys.put(noted(entity, 1, entity, StationKind::Accepted));
    }
    journeys.put(noted(1, 2, 50, StationKind::Accepted));
    for entity in 1..=CHUNKS {
        assert_eq!(journeys.read(entity, 1).await.stations.len(), 1, "{entity}");
    }
    journeys.put(noted(99, 1, 60, StationKind::Accepted));
    assert_eq!(journeys.read(2, 1).await.stations.len(), 0);
    for entity in [1, 3, CHUNKS, 99] {
        assert_eq!(journeys.read(entity, 1).await.stations.len(), 1, "{entity}");
    }
    let at_path = |path| journeys.entity_at(&PathKey::fold(path));
    assert_eq!([at_path("q2"), at_path("q1")], [None, Some(EntityId(1))]);
    // A forgotten entity may have had stations until the latest forgotten station: the station of
    // entity 3, which makes room now.
    journeys.put(noted(2, 3, 70, StationKind::Delivered));
    assert_eq!(journeys.read(2, 3).await.complete_since, at(3));
}

/// CON-30: a message that failed keeps its stations from before and after its failure while others
/// make room, until the second ring is full too.
#[tokio::test]
async fn notable_message_keeps_its_stations() {
    let journeys = small();
    let way = [StationKind::Accepted, StationKind::Abandoned, StationKind::Completed];
    for (place, kind) in (1..).zip(way) {
        journeys.put(noted(1, 1, place, kind));
    }
    for number in 2..10 * SHARE {
        journeys.put(noted(1, number, 100 + number, StationKind::Accepted));
    }
    let shown = journeys.read(1, 1).await;
    assert_eq!((kinds(&shown), shown.complete_since), (way.to_vec(), Timestamp::NONE));
    assert!(journeys.read(1, 2).await.complete_since > at(100));
    // These fill the share of the entity in the second ring, and one more.
    for number in 0..2 * SHARE {
        let kind = StationKind::DeadLettered;
        journeys.put(noted(1, 10_000 + number, 10_000 + number, kind));
    }
    let shown = journeys.read(1, 1).await;
    assert_eq!(shown.stations.len(), 0);
    let last = journeys.read(1, 10_000 + 2 * SHARE - 1).await;
    assert!(last.stations.len() == 1 && last.complete_since > at(100));
}

/// Puts the arrival of a message over two hops, which makes it notable, and its delivery.
fn put_far_travelled(journeys: &Journeys, entity: u64, number: u64) {
    let mut came = noted(entity, number, number, StationKind::ForwardedFrom);
    came.entry = came.entry.with_detail(2);
    journeys.put(came);
    journeys.put(noted(entity, number, number, StationKind::Delivered));
}

/// CON-30: an entity has an eighth of the set of notable messages. One message more costs the first
/// one its later stations, which its answer reports.
#[tokio::test]
async fn entity_has_an_eighth_of_the_notable_messages() {
    let journeys = small();
    let share = journeys.state().notable().1 / 8;
    let count = || journeys.state().notable_of(EntityId(1));
    let last = share as u64 + 1;
    for number in 1..last {
        put_far_travelled(&journeys, 1, number);
    }
    assert_eq!(count(), share);
    put_far_travelled(&journeys, 1, last);
    assert_eq!(count(), share);
    put_far_travelled(&journeys, 2, 1);
    assert_eq!(journeys.state().notable(), (share + 1, share * 8 + 1));
    let whole = [StationKind::ForwardedFrom, StationKind::Delivered];
    assert_eq!(journeys.read(1, 1).await.complete_since, Timestamp::NONE);
    for number in 1..=2 * SHARE {
        journeys.put(noted(1, 1_000 + number, 1_000 + number, StationKind::Accepted));
    }
    let first = journeys.read(1, 1).await;
    assert_eq!(kinds(&first), whole[..1]);
    assert!(first.complete_since >= at(1));
    for number in [2, last] {
        let shown = journeys.read(1, number).await;
        assert_eq!((kinds(&shown), shown.complete_since), (whole.to_vec(), Timestamp::NONE));
    }
}

/// CON-30: a message that never has a last station, such as one in a topic, leaves the set with its
/// stations. A last station that moves ends its place in the set, too.
#[tokio::test]
async fn messages_without_stations_leave_the_notable_set() {
    let journeys = small();
    for number in 1..=10 {
        put_far_travelled(&journeys, 1, number);
    }
    journeys.put(noted(2, 1, 50, StationKind::DeadLettered));
    journeys.put(noted(2, 1, 50, StationKind::Completed));
    let of = |entity| journeys.state().notable_of(EntityId(entity));
    let fill = |entities: std::ops::Range<u64>| {
        for entity in entities {
            for number in 0..CHUNK_ENTRIES as u64 {
                journeys.put(noted(entity, number, 100 + entity, StationKind::Job));
            }
        }
    };
    fill(100..100 + CHUNKS);
    assert_eq!((of(1), of(2)), (10, 0));
    assert_eq!(journeys.read(1, 1).await.stations.len(), 2);
    fill(200..200 + 2 * CHUNKS);
    assert_eq!(of(1), 0);
    assert_eq!(journeys.read(1, 1).await.stations.len(), 0);
    let (count, max) = journeys.state().notable();
    assert!(count <= max);
}

/// CON-30: a notable message stays notable under another number and in another entity.
#[tokio::test]
async fn notable_message_stays_notable_after_a_hop() {
    let journeys = small();
    journeys.put(noted(1, 1, 1, StationKind::Job));
    let mut came = noted(2, 5, 2, StationKind::ForwardedFrom);
    came.entry = came.entry.with_other((EntityId(1), SequenceNumber(1)), 1);
    journeys.put(came);
    let mut active = noted(2, 6, 3, StationKind::MaterialisedFrom);
    active.entry = active.entry.with_link(5);
    journeys.put(active);
    assert_eq!(journeys.state().notable_of(EntityId(2)), 2);
}

/// A clock that shows one second more each time.
struct FastClock(AtomicI64);

#[async_trait]
impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        Timestamp::NONE.plus(TimeSpan::from_seconds(self.0.fetch_add(1, Ordering::Relaxed)))
    }

    async fn sleep_until(&self, _: Timestamp) {}
}

/// CON-29: an answer has the messages with an id even if many duplicates were dropped or the search
/// took too long, and reports that it is not whole.
#[tokio::test]
async fn messages_with_an_id_are_shown_in_any_case() {
    let config = JourneysConfig::default();
    let journeys = Journeys::new(&config, Arc::default(), [7; 16], Timestamp::NONE);
    let with_id = |sequence, tick, kind| {
        let mut noted = noted(1, sequence, tick, kind);
        noted.entry = noted.entry.with_link(journeys.hash_of("id"));
        journeys.put(noted);
    };
    with_id(1, 1, StationKind::Accepted);
    for tick in 2..=101 {
        with_id(0, tick, StationKind::Duplicate);
    }
    let starts = || {
        let by_number = Start::Message((EntityId(1), SequenceNumber(1)));
        [Start::Id { id: "id", only: None }, by_number]
    };
    for start in starts() {
        let shown = journeys.walk_from(start, &ReadableKeys::ALL).await;
        assert_eq!((shown.stations.len(), shown.is_cut), (101, false));
    }
    for tick in 102..=700 {
        with_id(0, tick, StationKind::Duplicate);
    }
    for start in starts() {
        let shown = journeys.walk_from(start, &ReadableKeys::ALL).await;
        assert_eq!((shown.stations.len(), shown.is_cut), (101, true));
        assert_eq!(kinds(&shown)[..2], [StationKind::Accepted, StationKind::Duplicate]);
    }
    let (directory, clock) = (Directory::default(), FastClock(AtomicI64::new(0)));
    let readable = &ReadableKeys::ALL;
    let reach = Reach { directory: &directory, readable, own: None, clock: &clock };
    let shown = journeys.walk(Start::Id { id: "id", only: None }, &reach).await;
    assert_eq!((kinds(&shown)[0], shown.is_cut), (StationKind::Accepted, true));
}

/// CON-30: a rule too many makes the broker forget the names of all rules. A station of an earlier
/// round has no name then, rather than another one; neither has one that is added with its number.
#[tokio::test]
async fn names_of_rules_are_forgotten_together() {
    let journeys = small();
    let copied = |sequence, tick, number| {
        let mut noted = noted(1, sequence, tick, StationKind::CopiedFrom);
        noted.entry = noted.entry.with_other((EntityId(2), SequenceNumber(1)), 0);
        (noted.entry.count, noted.rule) = (number, Some(0));
        noted
    };
    let path: Arc<str> = "q1".into();
    let add = |noted, round| journeys.add((EntityId(1), &path), &mut [noted], round);
    let (first, round) = journeys.rule_number("first");
    add(copied(1, 1, first), round);
    for number in 2..=RULE_COUNT_MAX {
        assert_eq!(journeys.rule_number(&number.to_string()).1, round);
    }
    assert_eq!(journeys.rule_number("first"), (first, round));
    let rule = async |sequence| journeys.read(1, sequence).await.stations[0].rule.clone();
    assert_eq!(rule(1).await.as_deref(), Some("first"));
    let (another, next) = journeys.rule_number("another");
    assert!(another == first && next != round);
    assert_eq!(add(copied(2, 2, first), round), next);
    add(copied(3, 2, another), next);
    assert_eq!([rule(1).await, rule(2).await], [None, None]);
    assert_eq!(rule(3).await.as_deref(), Some("another"));
}

/// CON-29: a job that is noted twice in one instant, since its results changed, is one station. The
/// stations of an id begin with the first message, wherever its memory is.
#[tokio::test]
async fn stations_of_an_instant_stay_in_order() {
    let journeys = small();
    let with_id = |entity, tick, kind| {
        let mut noted = noted(entity, 1, tick, kind);
        noted.entry = noted.entry.with_link(journeys.hash_of("id"));
        noted
    };
    let hop = |entity, kind, other| {
        let mut noted = noted(entity, 1, 2, kind);
        noted.entry = noted.entry.with_other((EntityId(other), SequenceNumber(1)), 1);
        noted
    };
    // The topic has its memory first.
    journeys.put(noted(2, 9, 0, StationKind::Published));
    for noted in [
        with_id(1, 1, StationKind::Accepted),
        noted(1, 1, 2, StationKind::Job),
        noted(1, 1, 2, StationKind::Job),
        hop(1, StationKind::ForwardedTo, 2),
        hop(2, StationKind::ForwardedFrom, 1),
        with_id(2, 2, StationKind::Scheduled),
    ] {
        journeys.put(noted);
    }
    let by_id = Start::Id { id: "id", only: None };
    for start in [by_id, Start::Message((EntityId(2), SequenceNumber(1)))] {
        let shown = journeys.walk_from(start, &ReadableKeys::ALL).await;
        let expected = [
            StationKind::Accepted,
            StationKind::Job,
            StationKind::ForwardedTo,
            StationKind::ForwardedFrom,
            StationKind::Scheduled,
        ];
        assert_eq!(kinds(&shown), expected);
    }
}

/// CON-30: an answer is not complete while a dropped duplicate is missing from it.
#[tokio::test]
async fn missing_duplicate_is_reported() {
    let journeys = small();
    let with_id = |sequence, tick, kind| {
        let mut noted = noted(1, sequence, tick, kind);
        noted.entry = noted.entry.with_link(journeys.hash_of("id"));
        journeys.put(noted);
    };
    with_id(1, 1, StationKind::Accepted);
    with_id(0, 2, StationKind::Duplicate);
    journeys.put(noted(1, 1, 3, StationKind::DeadLettered));
    assert_eq!(journeys.read(1, 1).await.complete_since, Timestamp::NONE);
    for number in 1..=SHARE {
        journeys.put(noted(1, 10 + number, 10 + number, StationKind::Delivered));
    }
    let shown = journeys.read(1, 1).await;
    assert_eq!(kinds(&shown), [StationKind::Accepted, StationKind::DeadLettered]);
    assert_eq!(shown.complete_since, at(2));
}

/// CON-29: renewals of a lock are one station with their number, also over two chunks.
#[tokio::test]
async fn renewals_are_merged() {
    let journeys = small();
    for number in 1..CHUNK_ENTRIES as u64 {
        journeys.put(noted(1, number + 1, 1, StationKind::Accepted));
    }
    for tick in 1..=3 {
        let mut renewed = noted(1, 1, tick, StationKind::Renewed);
        renewed.entry = renewed.entry.with_count(1);
        journeys.put(renewed);
    }
    journeys.put(noted(1, 50, 4, StationKind::Accepted));
    let mut renewed = noted(1, 1, 5, StationKind::Renewed);
    renewed.entry = renewed.entry.with_count(1);
    journeys.put(renewed);
    let shown = journeys.read(1, 1).await;
    let [station] = &shown.stations[..] else { panic!("{shown:?}") };
    assert_eq!((station.count, station.at), (Some(4), at(5)));
}

/// CON-29: an answer has at most 500 stations. Of a message with more, it leaves out the middle.
#[tokio::test]
async fn answer_has_at_most_500_stations() {
    let config = JourneysConfig::default();
    let journeys = Journeys::new(&config, Arc::default(), [7; 16], Timestamp::NONE);
    for tick in 1..=STATION_COUNT_MAX as u64 {
        journeys.put(noted(1, 1, tick, StationKind::Delivered));
    }
    let shown = journeys.read(1, 1).await;
    assert_eq!((shown.stations.len(), shown.is_cut), (STATION_COUNT_MAX, false));
    journeys.put(noted(1, 1, 1_000, StationKind::Completed));
    let shown = journeys.read(1, 1).await;
    assert_eq!((shown.stations.len(), shown.is_cut), (STATION_COUNT_MAX, true));
    let [.., before, first_after] = &shown.stations[..=50] else { panic!("{shown:?}") };
    assert_eq!((before.at, first_after.at), (at(50), at(52)));
    assert_eq!(shown.stations.last().map(|it| it.kind), Some(StationKind::Completed));
}

/// CON-29, CON-73: a message is followed in both directions, and by its id, but only into entities
/// that the reader may read.
#[tokio::test]
async fn message_is_followed_as_far_as_the_reader_may_read() {
    let journeys = small();
    let hop = |entity, sequence, tick, kind, other: u64| {
        let mut noted = noted(entity, sequence, tick, kind);
        noted.entry = noted.entry.with_other((EntityId(other), SequenceNumber(1)), 1);
        noted
    };
    let mut sent = noted(1, 1, 1, StationKind::Accepted);
    sent.entry = sent.entry.with_link(journeys.hash_of("id"));
    let mut duplicate = noted(1, 0, 5, StationKind::Duplicate);
    duplicate.entry = duplicate.entry.with_link(journeys.hash_of("id"));
    for noted in [
        sent,
        hop(1, 1, 2, StationKind::ForwardedTo, 2),
        hop(2, 1, 2, StationKind::ForwardedFrom, 1),
        hop(2, 1, 3, StationKind::ForwardedTo, 3),
        hop(3, 1, 3, StationKind::ForwardedFrom, 2),
        noted(3, 1, 4, StationKind::Completed),
        duplicate,
    ] {
        journeys.put(noted);
    }
    let all = [
        StationKind::Accepted,
        StationKind::ForwardedTo,
        StationKind::ForwardedFrom,
        StationKind::ForwardedTo,
        StationKind::ForwardedFrom,
        StationKind::Completed,
    ];
    assert_eq!(kinds(&journeys.read(3, 1).await), all);
    assert_eq!(kinds(&journeys.read(2, 1).await), all);
    let with_duplicate = [&all[..], &[StationKind::Duplicate]].concat();
    assert_eq!(kinds(&journeys.read(1, 1).await), with_duplicate);
    let by_id = |only| Start::Id { id: "id", only };
    for only in [None, Some(EntityId(1))] {
        let shown = journeys.walk_from(by_id(only), &ReadableKeys::ALL).await;
        assert_eq!(kinds(&shown), with_duplicate);
    }
    let shown = journeys.walk_from(by_id(Some(EntityId(2))), &ReadableKeys::ALL).await;
    assert_eq!(shown.stations.len(), 0);
    let readable = ReadableKeys(Some(HashSet::from([PathKey::fold("q3")])));
    let start = Start::Message((EntityId(3), SequenceNumber(1)));
    let shown = journeys.walk_from(start, &readable).await;
    assert_eq!(kinds(&shown), [StationKind::ForwardedFrom, StationKind::Completed]);
    assert_eq!((&shown.stations[0].other, shown.stations[0].hop), (&None, Some(1)));
    assert_eq!(shown.hidden_count, 1);
    let shown = journeys.walk_from(by_id(None), &ReadableKeys::none()).await;
    assert_eq!((shown.stations.len(), shown.hidden_count), (0, 0));
}

/// CON-73: a reader of the topic sees neither the rule of a copy in a subscription that it may not
/// read nor, by an id, that a message exists there. A link from the topic counts.
#[tokio::test]
async fn subscription_without_listen_stays_hidden() {
    let journeys = small();
    let (topic, subscription) = (1, 2);
    let copied = |entity, tick, kind, other: u64| {
        let mut noted = noted(entity, 1, tick, kind);
        noted.entry = noted.entry.with_other((EntityId(other), SequenceNumber(1)), 0);
        noted.entry.count = journeys.rule_number("eu").0;
        noted
    };
    let with_id = |entity, sequence, kind| {
        let mut noted = noted(entity, sequence, 1, kind);
        noted.entry = noted.entry.with_link(journeys.hash_of("id"));
        noted
    };
    journeys.put(with_id(topic, 1, StationKind::Published));
    journeys.put(copied(topic, 2, StationKind::CopiedTo, subscription));
    journeys.put(copied(subscription, 2, StationKind::CopiedFrom, topic));
    journeys.put(with_id(3, 1, StationKind::Accepted));
    journeys.put(with_id(3, 0, StationKind::Duplicate));
    let reader = |path: &str| ReadableKeys(Some(HashSet::from([PathKey::fold(path)])));
    let rules = |shown: &Journey| {
        shown.stations.iter().filter_map(|it| it.rule.clone()).collect::<Vec<_>>()
    };
    for start in
        [Start::Id { id: "id", only: None }, Start::Message((EntityId(topic), SequenceNumber(1)))]
    {
        let shown = journeys.walk_from(start, &reader("q1")).await;
        assert_eq!(kinds(&shown), [StationKind::Published, StationKind::CopiedTo]);
        assert_eq!((rules(&shown).len(), shown.hidden_count), (0, 1));
    }
    let start = Start::Message((EntityId(subscription), SequenceNumber(1)));
    let shown = journeys.walk_from(start, &reader("q2")).await;
    assert_eq!(kinds(&shown), [StationKind::CopiedFrom]);
    assert_eq!((rules(&shown), shown.hidden_count), (vec!["eu".into()], 1));
    let by_id = Start::Id { id: "id", only: None };
    let shown = journeys.walk_from(by_id, &reader("q4")).await;
    assert_eq!((shown.stations.len(), shown.hidden_count), (0, 0));
    let all = journeys.read(topic, 1).await;
    assert_eq!((rules(&all).len(), all.hidden_count), (2, 0));
}
