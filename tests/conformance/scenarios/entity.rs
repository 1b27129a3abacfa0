//! Queues, their properties and updates (file 03).

use super::*;

/// ENT-03, ENT-04, ENT-05, ENT-08, ENT-12, ENT-31, DLQ-22, FND-08
pub async fn a_queue_with_only_a_name_has_exactly_the_defaults(s: &Stage) {
    let created = s.create(ORDERS, QueueUpdate::default()).await.unwrap();
    for described in [created, s.describe(ORDERS).await.unwrap()] {
        let description = described.description;
        assert_eq!(&*description.path, ORDERS);
        assert_eq!(description.lock_duration, seconds(60));
        assert_eq!(description.max_size_in_megabytes, 1_024);
        assert!(!description.requires_duplicate_detection);
        assert_eq!(description.duplicate_detection_history_time_window, minutes(10));
        assert!(!description.requires_session);
        assert_eq!(description.default_message_time_to_live, TimeSpan::MAX);
        assert!(!description.dead_lettering_on_message_expiration);
        assert_eq!(description.max_delivery_count, 10);
        assert!(description.enable_batched_operations);
        assert_eq!(description.status, EntityStatus::Active);
        assert_eq!(description.forward_to, None);
        assert_eq!(description.forward_dead_lettered_messages_to, None);
        assert_eq!(description.auto_delete_on_idle, TimeSpan::MAX);
        assert!(!description.enable_partitioning);
        assert!(!description.enable_express);
        assert_eq!(description.max_message_size_in_kilobytes, 1_024);
        assert_eq!(description.user_metadata, None);
    }
}

fn unusual() -> QueueUpdate {
    QueueUpdate {
        lock_duration: Some(seconds(7)),
        max_size_in_megabytes: Some(3),
        requires_duplicate_detection: Some(true),
        duplicate_detection_history_time_window: Some(seconds(21)),
        requires_session: Some(false),
        default_message_time_to_live: Some(days(3)),
        dead_lettering_on_message_expiration: Some(true),
        max_delivery_count: Some(3),
        enable_batched_operations: Some(false),
        status: Some(EntityStatus::SendDisabled),
        auto_delete_on_idle: Some(days(30)),
        enable_partitioning: Some(true),
        enable_express: Some(true),
        max_message_size_in_kilobytes: Some(2_048),
        user_metadata: Some("who owns it: ☃".into()),
        ..QueueUpdate::default()
    }
}

/// ENT-31, ENT-07, ENT-10, TMP-06, EXP-24
pub async fn the_description_has_the_properties_of_the_creation(s: &Stage) {
    s.open_queue_with(ORDERS, unusual()).await;
    let description = s.describe(ORDERS).await.unwrap().description;
    assert_eq!(description.lock_duration, seconds(7));
    assert_eq!(description.max_size_in_megabytes, 3);
    assert!(description.requires_duplicate_detection);
    assert_eq!(description.duplicate_detection_history_time_window, seconds(21));
    assert_eq!(description.default_message_time_to_live, days(3));
    assert!(description.dead_lettering_on_message_expiration);
    assert_eq!(description.max_delivery_count, 3);
    assert!(!description.enable_batched_operations);
    assert_eq!(description.status, EntityStatus::SendDisabled);
    assert_eq!(description.auto_delete_on_idle, days(30));
    assert!(description.enable_partitioning);
    assert!(description.enable_express);
    assert_eq!(description.max_message_size_in_kilobytes, 2_048);
    assert_eq!(description.user_metadata.as_deref(), Some("who owns it: ☃"));
}

/// A function that sets one property.
type Set = Box<dyn Fn(&mut QueueUpdate)>;

/// Name, values inside the bounds, values outside.
fn bounds() -> Vec<(&'static str, Vec<Set>, Vec<Set>)> {
    fn set<T: Clone + 'static>(
        field: fn(&mut QueueUpdate) -> &mut Option<T>,
        values: &[T],
    ) -> Vec<Set> {
        values
            .iter()
            .cloned()
            .map(|value| {
                Box::new(move |update: &mut QueueUpdate| *field(update) = Some(value.clone()))
                    as Set
            })
            .collect()
    }
    let text = |chars: usize| -> Box<str> { "ä".repeat(chars).into() };
    let lock: fn(&mut QueueUpdate) -> &mut Option<TimeSpan> = |update| &mut update.lock_duration;
    let window: fn(&mut QueueUpdate) -> &mut Option<TimeSpan> =
        |update| &mut update.duplicate_detection_history_time_window;
    let ttl: fn(&mut QueueUpdate) -> &mut Option<TimeSpan> =
        |update| &mut update.default_message_time_to_live;
    let idle: fn(&mut QueueUpdate) -> &mut Option<TimeSpan> =
        |update| &mut update.auto_delete_on_idle;
    let megabytes: fn(&mut QueueUpdate) -> &mut Option<u64> =
        |update| &mut update.max_size_in_megabytes;
    let kilobytes: fn(&mut QueueUpdate) -> &mut Option<u64> =
        |update| &mut update.max_message_size_in_kilobytes;
    let deliveries: fn(&mut QueueUpdate) -> &mut Option<u32> =
        |update| &mut update.max_delivery_count;
    let metadata: fn(&mut QueueUpdate) -> &mut Option<Box<str>> =
        |update| &mut update.user_metadata;
    vec![
        (
            "LockDuration",
            set(lock, &[seconds(5), seconds(300)]),
            set(lock, &[before(seconds(5)), seconds(300).plus(TICK)]),
        ),
        ("MaxSizeInMegabytes", set(megabytes, &[1, 77, 81_920]), set(megabytes, &[0, 81_921])),
        (
            "DuplicateDetectionHistoryTimeWindow",
            set(window, &[seconds(20), days(7)]),
            set(window, &[before(seconds(20)), days(7).plus(TICK)]),
        ),
        (
            "DefaultMessageTimeToLive",
            set(ttl, &[seconds(1), TimeSpan::MAX]),
            set(ttl, &[TimeSpan::ZERO, before(seconds(1))]),
        ),
        (
            "MaxDeliveryCount",
            set(deliveries, &[1, 2_147_483_647]),
            set(deliveries, &[0, 2_147_483_648]),
        ),
        (
            "AutoDeleteOnIdle",
            set(idle, &[minutes(5), TimeSpan::MAX]),
            set(idle, &[TimeSpan::ZERO, before(minutes(5))]),
        ),
        (
            "MaxMessageSizeInKilobytes",
            set(kilobytes, &[1_024, 102_400]),
            set(kilobytes, &[1_023, 102_401]),
        ),
        ("UserMetadata", set(metadata, &[text(1_024)]), set(metadata, &[text(1_025)])),
    ]
}

/// ENT-09, ENT-10, ENT-11, QUO-01, TMP-03, TMP-04, DUP-04, EXP-09
pub async fn values_are_accepted_at_their_limits_and_refused_beyond(s: &Stage) {
    for (name, inside, outside) in bounds() {
        let update = |set: &Set| {
            let mut update = QueueUpdate::default();
            set(&mut update);
            update
        };
        for set in &inside {
            s.create(ORDERS, update(set)).await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            s.delete(ORDERS).await.unwrap();
        }
        for set in &outside {
            let refusal = refused(s.create(ORDERS, update(set)).await, "ArgumentOutOfRange");
            assert!(refusal.text.contains(name), "{}", refusal.text);
            refused(s.describe(ORDERS).await, "EntityNotFound");
        }
        s.open_queue(ORDERS).await;
        for set in &outside {
            let also = QueueUpdate { enable_batched_operations: Some(false), ..update(set) };
            refused(s.update(ORDERS, also).await, "ArgumentOutOfRange");
        }
        let kept = s.describe(ORDERS).await.unwrap();
        assert_eq!(
            kept.description,
            peeklock_core::description::QueueDescription::new(ORDERS, s.limits())
        );
        assert_eq!(kept.updated_at, kept.created_at);
        s.delete(ORDERS).await.unwrap();
    }
}

/// ENT-13, ADR-06, ADR-14
pub async fn a_path_is_taken_once_and_absent_ones_are_not_found(s: &Stage) {
    s.open_queue("Orders").await;
    refused(s.create("orders", QueueUpdate::default()).await, "EntityAlreadyExists");
    refused(s.describe("absent").await, "EntityNotFound");
    refused(s.update("absent", QueueUpdate::default()).await, "EntityNotFound");
    refused(s.delete("absent").await, "EntityNotFound");
    s.delete("ORDERS").await.unwrap();
    refused(s.describe("Orders").await, "EntityNotFound");
    refused(s.delete("Orders").await, "EntityNotFound");
}

/// ENT-14
pub async fn a_deleted_queue_deletes_its_contents(s: &Stage) {
    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let send = |id: &str| s.send(ORDERS, message("x").with_message_id(id));
    send("a").await.unwrap();
    let dead = s.take(ORDERS).await;
    s.dead_letter(ORDERS, &dead).await;
    s.put_deferred(ORDERS, "deferred").await;
    s.schedule(ORDERS, message("scheduled"), s.now().plus(days(1))).await.unwrap();
    send("b").await.unwrap();
    let locked = s.take(ORDERS).await;
    s.delete(ORDERS).await.unwrap();
    refused(s.settle(ORDERS, locked.token(), Decision::Complete).await, "EntityNotFound");
    refused(s.peek(DLQ, 0, 1).await, "EntityNotFound");

    s.open_queue_with(ORDERS, detects_duplicates()).await;
    let described = s.describe(ORDERS).await.unwrap();
    assert_eq!((described.counts.total(), described.size_bytes), (0, 0));
    assert!(s.look(DLQ).await.is_empty());
    refused(s.settle(ORDERS, locked.token(), Decision::Complete).await, "MessageLockLost");
    assert_eq!(send("a").await.unwrap(), 1);
    s.advance(days(2)).await;
    assert_eq!(s.drain(ORDERS).await, ["x"]);
}

/// ENT-15
pub async fn a_waiting_receive_is_refused_when_its_queue_is_deleted(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.advance(seconds(1)).await;
    let mode = ReceiveMode::PeekLock;
    let (received, ()) = tokio::join!(s.receive(ORDERS, mode, 1, minutes(1)), async {
        s.until_used(ORDERS).await;
        s.delete(ORDERS).await.unwrap();
    });
    refused(received, "EntityNotFound");
}

/// ENT-16
pub async fn fixed_properties_cannot_be_changed(s: &Stage) {
    s.open_queue(ORDERS).await;
    let changes = [
        QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() },
        detects_duplicates(),
        QueueUpdate { enable_partitioning: Some(true), ..QueueUpdate::default() },
    ];
    let before = s.describe(ORDERS).await.unwrap().description;
    for change in changes {
        let change = QueueUpdate { max_delivery_count: Some(3), ..change };
        refused(s.update(ORDERS, change).await, "ArgumentError");
    }
    assert_eq!(s.describe(ORDERS).await.unwrap().description, before);
    let repeated = QueueUpdate {
        requires_session: Some(false),
        requires_duplicate_detection: Some(false),
        enable_partitioning: Some(false),
        // This property can change, although it has no effect.
        enable_express: Some(true),
        ..QueueUpdate::default()
    };
    assert!(s.update(ORDERS, repeated).await.unwrap().description.enable_express);
}

/// ENT-17
pub async fn an_update_keeps_omitted_properties_except_user_metadata(s: &Stage) {
    s.open_queue_with(ORDERS, unusual()).await;
    let before = s.describe(ORDERS).await.unwrap().description;
    let change = QueueUpdate { max_delivery_count: Some(99), ..QueueUpdate::default() };
    let updated = s.update(ORDERS, change).await.unwrap().description;
    let expected = peeklock_core::description::QueueDescription {
        max_delivery_count: 99,
        user_metadata: None,
        ..before
    };
    assert_eq!(updated, expected);
    assert_eq!(s.describe(ORDERS).await.unwrap().description, expected);
}

/// ENT-17
pub async fn an_update_of_an_old_version_is_a_conflict(s: &Stage) {
    if !s.offers(Extra::VersionedUpdate) {
        return;
    }
    s.open_queue(ORDERS).await;
    let read_at = s.describe(ORDERS).await.unwrap().updated_at;
    s.advance(seconds(1)).await;
    s.update_of(ORDERS, max_delivery_count(5), read_at).await.unwrap();
    s.advance(seconds(1)).await;
    let refusal =
        refused(s.update_of(ORDERS, max_delivery_count(6), read_at).await, "UpdateConflict");
    assert!(refusal.retryable);
    assert_eq!(s.describe(ORDERS).await.unwrap().description.max_delivery_count, 5);
}

/// ENT-19, SND-24
pub async fn a_lowered_size_removes_nothing_but_blocks_sends(s: &Stage) {
    s.open_queue(ORDERS).await;
    for id in ["a", "b"] {
        s.send(ORDERS, sized(MIB, id)).await.unwrap();
    }
    let lowered = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
    s.update(ORDERS, lowered).await.unwrap();
    refused(s.send(ORDERS, message("x")).await, "QuotaExceeded");
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    refused(s.send(ORDERS, message("x")).await, "QuotaExceeded");
    let seen = s.take(ORDERS).await;
    s.complete(ORDERS, &seen).await;
    s.put(ORDERS, "x").await;
}

/// ENT-30
pub async fn queues_are_listed_in_order_of_name_in_pages(s: &Stage) {
    for path in ["b", "C", "a", "D/x", "d/a"] {
        s.open_queue(path).await;
    }
    assert_eq!(s.list(0, 100).await.unwrap(), ["a", "b", "C", "d/a", "D/x"]);
    assert_eq!(s.list(1, 2).await.unwrap(), ["b", "C"]);
    assert_eq!(s.list(4, 10).await.unwrap(), ["D/x"]);
    assert!(s.list(5, 10).await.unwrap().is_empty());
}

/// QUO-01, QUO-03: the limit of entities is three here.
pub async fn queues_are_limited_in_number(s: &Stage) {
    for path in ["a", "b", "c"] {
        s.open_queue(path).await;
    }
    refused(s.create("d", QueueUpdate::default()).await, "QuotaExceeded");
    s.delete("b").await.unwrap();
    s.open_queue("d").await;
}

/// A broker for three queues.
pub fn three_queues() -> Setup {
    let mut setup = Setup::default();
    setup.settings.limits.entity_count_max = 3;
    setup
}

/// ENT-01, ENT-02, ENT-08, EXP-08, QUO-01
pub async fn a_basic_namespace_lacks_features_and_bounds_the_time_to_live(s: &Stage) {
    let features = [
        detects_duplicates(),
        QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() },
        QueueUpdate { forward_to: Some("other".into()), ..QueueUpdate::default() },
        QueueUpdate { auto_delete_on_idle: Some(minutes(5)), ..QueueUpdate::default() },
    ];
    for feature in features {
        refused(s.create(ORDERS, feature).await, "ArgumentError");
    }
    let ttl = |span: TimeSpan| QueueUpdate {
        default_message_time_to_live: Some(span),
        ..QueueUpdate::default()
    };
    refused(s.create(ORDERS, ttl(days(14).plus(TICK))).await, "ArgumentOutOfRange");
    let created = s.create(ORDERS, QueueUpdate::default()).await.unwrap().description;
    assert_eq!(created.default_message_time_to_live, days(14));
    assert_eq!(created.max_message_size_in_kilobytes, 256);
    s.send(ORDERS, sized(MIB / 4, "a")).await.unwrap();
    refused(s.send(ORDERS, sized(MIB / 4 + 1, "b")).await, "MessageSizeExceeded");
    s.send(ORDERS, message("long").with_time_to_live(days(100))).await.unwrap();
    assert_eq!(s.look(ORDERS).await[1].message.time_to_live, Some(days(14)));
}

pub fn basic() -> Setup {
    let tier = peeklock_core::limits::Tier::Basic;
    Setup { settings: peeklock_core::description::Settings::new("basic", tier), ..Setup::default() }
}
