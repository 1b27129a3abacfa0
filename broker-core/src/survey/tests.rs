use peeklock_model::inspect::RowKey;

use super::*;
use crate::command::Counts;
use crate::declaration::yielder::run_counting_yields;
use crate::description::EntityStatus;
use crate::findings::{EntityCondition, EntityOrder};
use crate::ids::SequenceNumber;

const ALL: EntityQuery = EntityQuery {
    path: None,
    kind: None,
    conditions: Vec::new(),
    order: EntityOrder::Path,
    is_descending: false,
    after: None,
    count_max: ROW_COUNT_MAX,
};

fn readings(last_sequence: u64, active: u64) -> Readings {
    Readings {
        counts: Counts { active, ..Counts::default() },
        last_sequence: SequenceNumber(last_sequence),
        ..Readings::default()
    }
}

/// Survey of `count` queues whose values repeat, so that many rows are equal.
fn survey(count: u64) -> Survey {
    let entities = (0..count).map(|number| {
        let path: Arc<str> = format!("Queue-{number:05}").into();
        let kind = match number % 3 {
            0 => EntityKind::Queue,
            1 => EntityKind::Topic,
            _ => EntityKind::Subscription,
        };
        let mut readings = readings(number, number % 7);
        readings.counts.dead_letter = number % 2;
        readings.receivers = number % 4;
        readings.size_bytes_max = 100;
        readings.status =
            if number % 5 == 0 { EntityStatus::Disabled } else { EntityStatus::Active };
        let rates = (number % 11 != 0).then_some(Rates {
            accepted: f64::from(u32::try_from(number % 13).unwrap()),
            removed: f64::from(u32::try_from(number % 6).unwrap()),
        });
        let row = EntityRow { path: path.clone(), kind, readings, total_size: number % 101, rates };
        SurveyedEntity::of(EntityId(number), row)
    });
    Survey { taken_at: Timestamp::from_ticks(1), entities: entities.collect() }
}

fn page(survey: &Survey, query: &EntityQuery, readable: &ReadableKeys) -> EntityPage {
    run_counting_yields(survey.page(query, readable)).0
}

/// CNT-13, CON-04
#[test]
fn rates_follow_from_two_readings() {
    let two_seconds = TimeSpan::from_seconds(2);
    let between = |before, after| Rates::between(&before, &after, two_seconds);
    let rates = |accepted, removed| Some(Rates { accepted, removed });
    assert_eq!(between(readings(10, 5), readings(30, 25)), rates(10.0, 0.0));
    assert_eq!(between(readings(10, 5), readings(30, 5)), rates(10.0, 10.0));
    assert_eq!(between(readings(10, 5), readings(10, 1)), rates(0.0, 2.0));
    // A reader may see a part of the values of a turn.
    assert_eq!(between(readings(10, 5), readings(9, 7)), rates(0.0, 0.0));
    assert_eq!(Rates::between(&readings(1, 1), &readings(2, 1), TimeSpan::ZERO), None);
}

/// CON-04
#[test]
fn entity_that_was_created_again_has_no_rates() {
    let earlier = survey(3);
    let mut later = survey(3);
    later.taken_at = earlier.taken_at.plus(TimeSpan::from_seconds(1));
    later.entities[1].id = EntityId(99);
    for entity in &mut later.entities {
        entity.row.rates = None;
    }
    run_counting_yields(later.set_rates(&earlier));
    let known: Vec<bool> = later.entities.iter().map(|it| it.row.rates.is_some()).collect();
    assert_eq!(known, [true, false, true]);
}

/// CON-04
#[test]
fn size_of_a_topic_includes_its_subscriptions() {
    let entity = |path: &str, kind, total_size| {
        let (path, readings) = (path.into(), Readings::default());
        let row = EntityRow { path, kind, readings, total_size, rates: None };
        SurveyedEntity::of(EntityId(1), row)
    };
    let entities = vec![
        entity("Events", EntityKind::Topic, 1),
        entity("Events-2", EntityKind::Topic, 2),
        entity("Events/Subscriptions/a", EntityKind::Subscription, 10),
        entity("Events/Subscriptions/b", EntityKind::Subscription, 20),
    ];
    let mut survey = Survey { taken_at: Timestamp::from_ticks(1), entities };
    survey.add_subscription_sizes();
    let sizes: Vec<u64> = survey.entities.iter().map(|it| it.row.total_size).collect();
    assert_eq!(sizes, [31, 2, 10, 20]);
}

/// CON-04
#[test]
fn pages_equal_a_plain_filter_and_sort() {
    let survey = survey(2_000);
    let orders = [
        EntityOrder::Path,
        EntityOrder::Kind,
        EntityOrder::Active,
        EntityOrder::Size,
        EntityOrder::Accepted,
        EntityOrder::Oldest,
    ];
    let conditions = [
        vec![],
        vec![EntityCondition::HasDeadLetters],
        vec![EntityCondition::Grows, EntityCondition::HasNoReceiver],
        vec![EntityCondition::IsDisabled, EntityCondition::IsNearlyFull],
    ];
    let keys = survey.entities.iter().map(|entity| entity.key.clone());
    let readable = ReadableKeys(Some(keys.filter(|key| !key.as_str().ends_with('9')).collect()));
    for (order, conditions) in
        orders.into_iter().flat_map(|order| conditions.clone().map(|some| (order, some)))
    {
        for is_descending in [false, true] {
            let mut query = EntityQuery {
                path: Some("QUEUE-00".into()),
                conditions: conditions.clone(),
                order,
                is_descending,
                count_max: 37,
                ..ALL
            };
            let selected = survey.entities.iter().filter(|entity| {
                entity.key.as_str().contains("queue-00")
                    && !entity.key.as_str().ends_with('9')
                    && conditions.iter().all(|it| entity.row.meets(*it))
            });
            let mut expected: Vec<RowKey> = selected.map(|it| it.row.key(order)).collect();
            expected.sort();
            if is_descending {
                expected.reverse();
            }
            let mut found = Vec::new();
            loop {
                let page = page(&survey, &query, &readable);
                assert_eq!(page.total, expected.len() as u64);
                assert!(page.entities.len() <= 37);
                found.extend(page.entities.iter().map(|row| row.key(order)));
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{order:?} {is_descending} {conditions:?}");
        }
    }
}

/// CON-04
#[test]
fn page_has_at_most_the_limit_of_rows() {
    let survey = survey(502);
    for (wanted, shown) in [(1, 1), (500, 500), (501, 500), (0, 1)] {
        let query = EntityQuery { count_max: wanted, ..ALL };
        let page = page(&survey, &query, &ReadableKeys::ALL);
        assert_eq!((page.entities.len(), page.total), (shown, 502));
        assert!(page.next.is_some());
    }
    let all_but_one = EntityQuery { after: Some(survey.entities[1].row.key(ALL.order)), ..ALL };
    let last = page(&survey, &all_but_one, &ReadableKeys::ALL);
    assert_eq!((last.entities.len(), last.next), (500, None));
}

/// CON-33: totals are the sums over the selected entities that the reader may read, on every page.
#[test]
fn totals_are_sums_over_all_selected_entities() {
    let survey = survey(100);
    let readable: HashSet<PathKey> =
        survey.entities.iter().step_by(2).map(|entity| entity.key.clone()).collect();
    let readable = ReadableKeys(Some(readable));
    let query = EntityQuery { kind: Some(EntityKind::Queue), count_max: 3, ..ALL };
    let found = page(&survey, &query, &readable);
    let mut expected = EntityTotals::default();
    let (mut accepted, mut removed) = (0.0, 0.0);
    for (place, entity) in survey.entities.iter().enumerate() {
        if place % 2 == 0 && entity.row.kind == EntityKind::Queue {
            expected.counts.active += entity.row.readings.counts.active;
            expected.counts.dead_letter += entity.row.readings.counts.dead_letter;
            expected.receivers += entity.row.readings.receivers;
            accepted += entity.row.rates.map_or(0.0, |rates| rates.accepted);
            removed += entity.row.rates.map_or(0.0, |rates| rates.removed);
        }
    }
    expected.rates = Some(Rates { accepted, removed });
    assert!(expected.counts.active > 0 && accepted > 0.0);
    assert_eq!((found.totals, found.entities.len()), (expected, 3));
    let after = EntityQuery { after: found.next, ..query };
    assert_eq!(page(&survey, &after, &readable).totals, expected);
    let none = EntityQuery { path: Some("absent".into()), ..ALL };
    assert_eq!(page(&survey, &none, &ReadableKeys::ALL).totals, EntityTotals::default());
}

/// CON-04: a survey that shows a new entity at once has the rates of the shared one.
#[test]
fn survey_of_one_caller_keeps_rates() {
    let (shared, mut own) = (survey(20), survey(21));
    for entity in &mut own.entities {
        entity.row.rates = None;
    }
    run_counting_yields(own.keep_rates(&shared));
    let rates = |survey: &Survey| -> Vec<_> {
        survey.entities.iter().map(|entity| entity.row.rates).collect()
    };
    assert_eq!(rates(&own)[..20], rates(&shared));
    assert_eq!(own.entities[20].row.rates, None);
}
