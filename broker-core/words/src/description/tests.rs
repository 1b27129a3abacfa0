//! Tests of the descriptions of queues: defaults, bounds, updates, statuses, and the table of
//! properties.

mod topic;

use std::collections::BTreeMap;

use super::*;
use crate::condition::Condition;

const TIERS: [Tier; 3] = [Tier::Basic, Tier::Standard, Tier::Premium];

fn limits() -> Limits {
    Limits::of(Tier::Premium)
}

fn queue() -> QueueDescription {
    QueueDescription::new("orders", &limits())
}

/// Sets a property of a default queue of the tier and checks the condition; `None` is success.
fn check(
    tier: Tier,
    expected: Option<Condition>,
    change: impl FnOnce(&mut QueueDescription),
) -> Option<Rejection> {
    let limits = Limits::of(tier);
    let mut description = QueueDescription::new("orders", &limits);
    change(&mut description);
    let rejection = description.validate(&limits).err();
    assert_eq!(rejection.as_ref().map(Rejection::condition), expected, "{description:?}");
    rejection
}

/// Checks that both bounds are accepted and that the values just outside are refused.
fn check_bounds<T: Copy>(
    tier: Tier,
    [below, min, max]: [T; 3],
    above: Option<T>,
    set: impl Fn(&mut QueueDescription, T),
) {
    let outside = Some(Condition::ArgumentOutOfRange);
    check(tier, outside, |queue| set(queue, below));
    check(tier, None, |queue| set(queue, min));
    check(tier, None, |queue| set(queue, max));
    if let Some(above) = above {
        check(tier, outside, |queue| set(queue, above));
    }
}

/// The span and its neighbours: one tick below the minimum, one above the maximum.
fn spans(min: TimeSpan, max: TimeSpan) -> ([TimeSpan; 3], Option<TimeSpan>) {
    let above = (!max.is_unlimited()).then(|| TimeSpan::from_ticks(max.ticks() + 1));
    ([TimeSpan::from_ticks(min.ticks() - 1), min, max], above)
}

/// ENT-03, ENT-12
#[test]
fn a_queue_with_only_a_path_has_exactly_the_defaults() {
    for tier in TIERS {
        let limits = Limits::of(tier);
        let expected = QueueDescription {
            path: "orders".into(),
            lock_duration: TimeSpan::from_seconds(60),
            max_size_in_megabytes: 1_024,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: TimeSpan::from_minutes(10),
            requires_session: false,
            default_message_time_to_live: match tier {
                Tier::Basic => TimeSpan::from_days(14),
                Tier::Standard | Tier::Premium => TimeSpan::MAX,
            },
            dead_lettering_on_message_expiration: false,
            max_delivery_count: 10,
            enable_batched_operations: true,
            status: EntityStatus::Active,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            auto_delete_on_idle: TimeSpan::MAX,
            enable_partitioning: false,
            enable_express: false,
            max_message_size_in_kilobytes: match tier {
                Tier::Basic | Tier::Standard => 256,
                Tier::Premium => 1_024,
            },
            user_metadata: None,
            retry_policy: None,
            session_retry_order: SessionRetryOrder::Hold,
            extensions: None,
        };
        assert_eq!(QueueDescription::new("orders", &limits), expected, "{tier}");
        assert_eq!(Settings::new("test", tier).new_queue("orders"), expected, "{tier}");
        assert_eq!(expected.validate(&limits), Ok(()), "{tier}");
        let created = QueueUpdate::default().create("orders", &Settings::new("test", tier));
        assert_eq!(created, Ok(expected), "{tier}");
    }
}

/// ENT-09, ENT-11, QUO-01
#[test]
fn the_lock_duration_is_5_seconds_to_5_minutes() {
    for tier in TIERS {
        let (bounds, above) = spans(TimeSpan::from_seconds(5), TimeSpan::from_minutes(5));
        check_bounds(tier, bounds, above, |queue, span| queue.lock_duration = span);
    }
}

/// ENT-09, ENT-10, ADM-68: in every tier, 16 partitions of the largest size add up to the largest
/// size in Premium.
#[test]
fn any_whole_size_within_the_bounds_is_accepted() {
    let set = |queue: &mut QueueDescription, size| queue.max_size_in_megabytes = size;
    check_bounds(Tier::Premium, [0, 1, 81_920], Some(81_921), set);
    check_bounds(Tier::Standard, [0, 1, 5_120], Some(5_121), set);
    check(Tier::Premium, None, |queue| queue.max_size_in_megabytes = 1_337);
    let set_partitioned = |queue: &mut QueueDescription, size| {
        set(queue, size);
        queue.enable_partitioning = true;
    };
    for tier in TIERS {
        check_bounds(tier, [0, 1, 81_920], Some(81_921), set_partitioned);
    }
}

/// ENT-09, QUO-01
#[test]
fn the_duplicate_window_is_20_seconds_to_7_days() {
    let (bounds, above) = spans(TimeSpan::from_seconds(20), TimeSpan::from_days(7));
    check_bounds(Tier::Standard, bounds, above, |queue, span| {
        queue.duplicate_detection_history_time_window = span;
    });
}

/// ENT-09, QUO-01
#[test]
fn the_default_time_to_live_is_1_second_to_unlimited_and_14_days_in_basic() {
    for (tier, max) in [
        (Tier::Basic, TimeSpan::from_days(14)),
        (Tier::Standard, TimeSpan::MAX),
        (Tier::Premium, TimeSpan::MAX),
    ] {
        let (bounds, above) = spans(TimeSpan::from_seconds(1), max);
        check_bounds(tier, bounds, above, |queue, span| queue.default_message_time_to_live = span);
    }
}

/// ENT-09
#[test]
fn the_delivery_count_is_1_to_the_largest_signed_number() {
    check_bounds(Tier::Standard, [0, 1, 2_147_483_647], Some(2_147_483_648), |queue, count| {
        queue.max_delivery_count = count;
    });
}

/// TMP-03
#[test]
fn the_idle_time_is_at_least_5_minutes() {
    let (bounds, above) = spans(TimeSpan::from_minutes(5), TimeSpan::MAX);
    check_bounds(Tier::Standard, bounds, above, |queue, span| queue.auto_delete_on_idle = span);
}

/// ENT-09, QUO-01
#[test]
fn the_message_size_can_be_chosen_in_premium_only() {
    let set = |queue: &mut QueueDescription, size| queue.max_message_size_in_kilobytes = size;
    check_bounds(Tier::Premium, [1_023, 1_024, 102_400], Some(102_401), set);
    check_bounds(Tier::Standard, [255, 256, 256], Some(257), set);
    check_bounds(Tier::Basic, [255, 256, 256], Some(257), set);
}

/// ENT-09, QUO-01
#[test]
fn user_metadata_has_at_most_1024_characters() {
    let set = |chars| {
        move |queue: &mut QueueDescription| {
            queue.user_metadata = Some("é".repeat(chars).into());
        }
    };
    check(Tier::Premium, None, set(1_024));
    let rejection = check(Tier::Premium, Some(Condition::ArgumentOutOfRange), set(1_025)).unwrap();
    assert_eq!(
        rejection.detail(),
        "UserMetadata of queue `orders` has 1025 characters, the limit is 1024"
    );
}

#[test]
fn a_value_out_of_bounds_is_named_with_them() {
    let rejection = check(Tier::Premium, Some(Condition::ArgumentOutOfRange), |queue| {
        queue.lock_duration = TimeSpan::from_minutes(6);
    });
    let expected = "LockDuration of queue `orders` is PT6M; it must be PT5S to PT5M";
    assert_eq!(rejection.unwrap().detail(), expected);
}

/// FND-12
#[test]
fn a_host_may_lower_the_minimums() {
    let mut limits = limits();
    let short = TimeSpan::from_ms(10);
    limits.lock_duration_min = short;
    limits.duplicate_window_min = short;
    limits.time_to_live_min = short;
    limits.auto_delete_on_idle_min = short;
    let mut description = queue();
    description.lock_duration = short;
    description.duplicate_detection_history_time_window = short;
    description.default_message_time_to_live = short;
    description.auto_delete_on_idle = short;
    assert_eq!(description.validate(&limits), Ok(()));
}

#[test]
fn basic_refuses_the_features_it_lacks() {
    let changes: [fn(&mut QueueDescription); 5] = [
        |queue| queue.requires_session = true,
        |queue| queue.requires_duplicate_detection = true,
        |queue| queue.forward_to = Some("other".into()),
        |queue| queue.forward_dead_lettered_messages_to = Some("other".into()),
        |queue| queue.auto_delete_on_idle = TimeSpan::from_minutes(5),
    ];
    for change in changes {
        check(Tier::Basic, Some(Condition::ArgumentError), change);
        check(Tier::Standard, None, change);
    }
}

/// ENT-28
#[test]
fn a_client_sets_only_the_four_statuses_of_a_queue() {
    for status in EntityStatus::ALL {
        let settable = matches!(
            status,
            EntityStatus::Active
                | EntityStatus::Disabled
                | EntityStatus::SendDisabled
                | EntityStatus::ReceiveDisabled
        );
        let expected = (!settable).then_some(Condition::ArgumentError);
        check(Tier::Premium, expected, |queue| queue.status = status);
        assert_eq!(EntityStatus::parse(&status.name().to_lowercase()), Some(status));
    }
    assert_eq!(EntityStatus::parse("Broken"), None);
}

#[test]
fn topics_and_subscriptions_have_three_statuses_each() {
    let settable = |kind| EntityStatus::ALL.into_iter().filter(move |it| it.is_settable(kind));
    assert!(settable(EntityKind::Topic).eq([
        EntityStatus::Active,
        EntityStatus::Disabled,
        EntityStatus::SendDisabled
    ]));
    assert!(settable(EntityKind::Subscription).eq([
        EntityStatus::Active,
        EntityStatus::Disabled,
        EntityStatus::ReceiveDisabled
    ]));
}

#[test]
fn each_status_of_a_queue_blocks_its_operations() {
    for (status, send, receive) in [
        (EntityStatus::Active, true, true),
        (EntityStatus::SendDisabled, false, true),
        (EntityStatus::ReceiveDisabled, true, false),
        (EntityStatus::Disabled, false, false),
    ] {
        assert_eq!((status.allows_send(), status.allows_receive()), (send, receive), "{status}");
    }
}

/// ENT-16
#[test]
fn update_cannot_change_properties_fixed_at_creation() {
    let changes: [fn(&mut QueueUpdate, bool); 3] = [
        |update, value| update.requires_session = Some(value),
        |update, value| update.requires_duplicate_detection = Some(value),
        |update, value| update.enable_partitioning = Some(value),
    ];
    for change in changes {
        for kept in [false, true] {
            let current = QueueDescription {
                requires_session: kept,
                requires_duplicate_detection: kept,
                enable_partitioning: kept,
                ..queue()
            };
            let mut same = QueueUpdate::default();
            change(&mut same, kept);
            assert_eq!(same.apply_to(&current, &limits()), Ok(current.clone()));
            let mut other = QueueUpdate::default();
            change(&mut other, !kept);
            let rejection = other.apply_to(&current, &limits()).unwrap_err();
            assert_eq!(rejection.condition(), Condition::ArgumentError);
        }
    }
}

fn unusual_queue() -> QueueDescription {
    QueueDescription {
        path: "orders".into(),
        lock_duration: TimeSpan::from_seconds(7),
        max_size_in_megabytes: 7,
        requires_duplicate_detection: true,
        duplicate_detection_history_time_window: TimeSpan::from_minutes(7),
        requires_session: true,
        default_message_time_to_live: TimeSpan::from_days(7),
        dead_lettering_on_message_expiration: true,
        max_delivery_count: 7,
        enable_batched_operations: false,
        status: EntityStatus::SendDisabled,
        forward_to: Some("next".into()),
        forward_dead_lettered_messages_to: Some("dead".into()),
        auto_delete_on_idle: TimeSpan::from_minutes(7),
        enable_partitioning: true,
        enable_express: true,
        max_message_size_in_kilobytes: 7_000,
        user_metadata: Some("mine".into()),
        retry_policy: Some(RetryPolicy {
            kind: RetryKind::Linear,
            delay: TimeSpan::from_seconds(7),
            delay_max: Some(TimeSpan::from_minutes(7)),
            jitter: Jitter::of(0.7).unwrap(),
        }),
        session_retry_order: SessionRetryOrder::Pass,
        extensions: Some("more".into()),
    }
}

/// ENT-17
#[test]
fn an_empty_update_keeps_all_but_forwarding_and_user_metadata() {
    let expected = QueueDescription {
        forward_to: None,
        forward_dead_lettered_messages_to: None,
        user_metadata: None,
        ..unusual_queue()
    };
    let updated = QueueUpdate::default().apply_to(&unusual_queue(), &limits());
    assert_eq!(updated, Ok(expected));
}

/// RTY-16, RTY-23: an update that does not name a policy or a session order keeps them; both can be
/// removed.
#[test]
fn a_retry_policy_stays_until_it_is_taken_away() {
    let with = unusual_queue();
    let limits = limits();
    let kept = QueueUpdate { max_delivery_count: Some(3), ..QueueUpdate::default() };
    let kept = kept.apply_to(&with, &limits).unwrap();
    assert_eq!(kept.retry_policy, with.retry_policy);
    assert_eq!(kept.session_retry_order, SessionRetryOrder::Pass);
    let gone = QueueUpdate {
        retry_policy: Some(None),
        session_retry_order: Some(SessionRetryOrder::Hold),
        ..QueueUpdate::default()
    };
    let gone = gone.apply_to(&with, &limits).unwrap();
    assert_eq!((gone.retry_policy, gone.session_retry_order), (None, SessionRetryOrder::Hold));
}

/// RTY-16: a policy out of range is refused for queues and for subscriptions.
#[test]
fn a_retry_policy_out_of_range_is_refused() {
    let wrong = RetryPolicy {
        kind: RetryKind::Fixed,
        delay: TimeSpan::ZERO,
        delay_max: None,
        jitter: Jitter::NONE,
    };
    check(Tier::Basic, Some(Condition::ArgumentOutOfRange), |queue| {
        queue.retry_policy = Some(wrong);
    });
    let subscription = SubscriptionUpdate { retry_policy: Some(Some(wrong)), ..Default::default() };
    let refused = subscription.create("events", "audit", &Settings::default()).unwrap_err();
    assert_eq!(refused.condition(), Condition::ArgumentOutOfRange);
}

/// HTP-17: unknown properties are kept by an update that does not name them, and have a bound.
#[test]
fn extensions_are_kept_up_to_their_limit() {
    let update =
        |text: String| QueueUpdate { extensions: Some(text.into()), ..QueueUpdate::default() };
    let limits = limits();
    let updated = update(String::new()).apply_to(&unusual_queue(), &limits).unwrap();
    assert_eq!(updated.extensions, None);
    assert!(update("x".repeat(8_192)).apply_to(&unusual_queue(), &limits).is_ok());
    let rejection = update("x".repeat(8_193)).apply_to(&unusual_queue(), &limits).unwrap_err();
    assert!(rejection.detail().contains("8193 bytes, the limit is 8192"), "{}", rejection.detail());
}

/// ENT-17
#[test]
fn an_update_replaces_every_property_it_names() {
    // It requires sessions, which excludes ForwardTo (FWD-04); another test covers ForwardTo.
    let wanted = QueueDescription { forward_to: None, ..unusual_queue() };
    let update = QueueUpdate {
        lock_duration: Some(wanted.lock_duration),
        max_size_in_megabytes: Some(wanted.max_size_in_megabytes),
        requires_duplicate_detection: Some(wanted.requires_duplicate_detection),
        duplicate_detection_history_time_window: Some(
            wanted.duplicate_detection_history_time_window,
        ),
        requires_session: Some(wanted.requires_session),
        default_message_time_to_live: Some(wanted.default_message_time_to_live),
        dead_lettering_on_message_expiration: Some(wanted.dead_lettering_on_message_expiration),
        max_delivery_count: Some(wanted.max_delivery_count),
        enable_batched_operations: Some(wanted.enable_batched_operations),
        status: Some(wanted.status),
        forward_to: wanted.forward_to.clone(),
        forward_dead_lettered_messages_to: wanted.forward_dead_lettered_messages_to.clone(),
        auto_delete_on_idle: Some(wanted.auto_delete_on_idle),
        enable_partitioning: Some(wanted.enable_partitioning),
        enable_express: Some(wanted.enable_express),
        max_message_size_in_kilobytes: Some(wanted.max_message_size_in_kilobytes),
        user_metadata: wanted.user_metadata.clone(),
        retry_policy: Some(wanted.retry_policy),
        session_retry_order: Some(wanted.session_retry_order),
        extensions: wanted.extensions.clone(),
    };
    let fixed_alike = QueueDescription {
        requires_duplicate_detection: true,
        requires_session: true,
        enable_partitioning: true,
        ..queue()
    };
    assert_eq!(update.clone().apply_to(&fixed_alike, &limits()), Ok(wanted.clone()));
    assert_eq!(update.create("orders", &Settings::default()), Ok(wanted));
}

#[test]
fn an_update_out_of_bounds_is_refused() {
    let update = QueueUpdate { max_delivery_count: Some(0), ..QueueUpdate::default() };
    let rejection = update.apply_to(&queue(), &limits()).unwrap_err();
    assert_eq!(rejection.condition(), Condition::ArgumentOutOfRange);
}

fn judged(change: impl FnOnce(&mut QueueDescription)) -> Result<(), Condition> {
    let mut description = queue();
    change(&mut description);
    description.validate(&limits()).map_err(|rejection| rejection.condition())
}

/// FWD-02, FWD-03, FWD-04, FWD-27, FWD-30: invalid destinations are refused, even if the entity
/// exists.
#[test]
fn impossible_destinations_are_refused() {
    let to = |text: &'static str| Some(text.into());
    for text in ["orders", "ORDERS", "/orders/", "sb://host/orders"] {
        assert_eq!(judged(|q| q.forward_to = to(text)), Ok(()));
        assert_eq!(judged(|q| q.forward_dead_lettered_messages_to = to(text)), Ok(()));
    }
    for text in ["other/$deadletterqueue", "topic/Subscriptions/one", "other/$management"] {
        assert_eq!(judged(|q| q.forward_to = to(text)), Err(Condition::ArgumentError));
    }
    assert_eq!(judged(|q| q.forward_to = to("other")), Ok(()));
    assert_eq!(judged(|q| q.forward_to = to("webhook+https://host/orders")), Ok(()));
    let in_sessions = |q: &mut QueueDescription| q.requires_session = true;
    let refused = judged(|q| {
        in_sessions(q);
        q.forward_to = to("other");
    });
    assert_eq!(refused, Err(Condition::InvalidOperation));
    let allowed = judged(|q| {
        in_sessions(q);
        q.forward_dead_lettered_messages_to = to("other");
    });
    assert_eq!(allowed, Ok(()));
    let long = format!("webhook://{}", "x".repeat(2_048));
    let refused = judged(|q| q.forward_to = Some(long.into()));
    assert_eq!(refused, Err(Condition::ArgumentOutOfRange));
}

/// TMP-12
#[test]
fn a_queue_that_forwards_keeps_its_idle_time() {
    let update = QueueUpdate {
        forward_to: Some("other".into()),
        auto_delete_on_idle: Some(TimeSpan::from_minutes(30)),
        ..QueueUpdate::default()
    };
    let created = update.clone().create("orders", &Settings::default()).unwrap();
    assert_eq!(created.auto_delete_on_idle, TimeSpan::from_minutes(30));
    let idle = QueueDescription { auto_delete_on_idle: TimeSpan::from_minutes(5), ..queue() };
    let updated = update.apply_to(&idle, &limits()).unwrap();
    assert_eq!(updated.auto_delete_on_idle, TimeSpan::from_minutes(30));
    let forwards = QueueUpdate { forward_to: Some("other".into()), ..QueueUpdate::default() };
    let updated = forwards.apply_to(&idle, &limits()).unwrap();
    assert_eq!(updated.auto_delete_on_idle, TimeSpan::from_minutes(5));
    let dead_letters = QueueUpdate {
        forward_dead_lettered_messages_to: Some("other".into()),
        ..QueueUpdate::default()
    };
    let updated = dead_letters.apply_to(&idle, &limits()).unwrap();
    assert_eq!(updated.auto_delete_on_idle, TimeSpan::from_minutes(5));
}

/// TMP-02
#[test]
fn the_namespace_gives_a_default_idle_time_to_queues_that_name_none() {
    let settings =
        Settings { auto_delete_on_idle_default: TimeSpan::from_minutes(30), ..Settings::default() };
    let created = QueueUpdate::default().create("reply", &settings).unwrap();
    assert_eq!(created.auto_delete_on_idle, TimeSpan::from_minutes(30));

    let named = QueueUpdate { auto_delete_on_idle: Some(TimeSpan::MAX), ..QueueUpdate::default() };
    let created = named.create("reply", &settings).unwrap();
    assert!(created.auto_delete_on_idle.is_unlimited());
}

/// ENT-01
#[test]
fn namespace_is_premium_by_default() {
    assert_eq!(Settings::default().tier(), Tier::Premium);
    assert_eq!(Settings::default().validate(), Ok(()));
    assert!(!Settings::default().locks_release_on_detach);
    assert!(!Settings::default().locks_release_on_connection_loss);
    let contradictory = Settings {
        auto_delete_on_idle_default: TimeSpan::from_minutes(30),
        ..Settings::new("test", Tier::Basic)
    };
    assert_eq!(contradictory.validate().unwrap_err().condition(), Condition::ArgumentError);
}

#[test]
fn sizes_are_available_in_bytes() {
    assert_eq!(queue().size_bytes_max(), 1_073_741_824);
    assert_eq!(queue().message_bytes_max(), 1_048_576);
}

/// ENT-03: the builder methods set exactly the properties that they name.
#[test]
fn properties_are_named_one_by_one() {
    let minute = std::time::Duration::from_secs(60);
    let named = QueueProperties::new()
        .with_max_delivery_count(3)
        .with_lock_duration(minute)
        .with_duplicate_detection(minute)
        .with_sessions()
        .with_forward_dead_letters_to("bad");
    let written = QueueUpdate {
        max_delivery_count: Some(3),
        lock_duration: Some(TimeSpan::from_minutes(1)),
        requires_duplicate_detection: Some(true),
        duplicate_detection_history_time_window: Some(TimeSpan::from_minutes(1)),
        requires_session: Some(true),
        forward_dead_lettered_messages_to: Some("bad".into()),
        ..QueueUpdate::default()
    };
    assert_eq!(named, written);
    let named = SubscriptionProperties::new().with_catch_all(true).with_forward_to("orders");
    let written = SubscriptionUpdate {
        catch_all: Some(true),
        forward_to: Some("orders".into()),
        ..SubscriptionUpdate::default()
    };
    assert_eq!(named, written);
    let named = TopicProperties::new().with_user_metadata("ours");
    assert_eq!(named.user_metadata.as_deref(), Some("ours"));
}

/// ENT-31, DESIGN D11: each property has a unique tag and a unique place, the same for all entities,
/// and its value passes through its field unchanged.
#[test]
fn fields_carry_values_and_have_tags_of_their_own() {
    type Names = BTreeMap<u8, &'static str>;
    fn check<D: Description>(new: &D, tags: &mut Names, places: &mut Names) {
        for field in D::FIELDS {
            for (numbers, number) in [(&mut *tags, field.tag), (&mut *places, field.place)] {
                assert_eq!(*numbers.entry(number).or_insert(field.name), field.name, "{number}");
            }
            let (value, mut update, mut copy) = (field.get(new), D::Update::default(), new.clone());
            assert_eq!(field.named(&update), None);
            assert_eq!(value, (field.default)(&limits()), "{}", field.name);
            field.put(&mut update, value.clone());
            let named = field.named(&update);
            assert!(named == Some(value.clone()) || value == FieldValue::Text(None));
            field.set(&mut copy, value);
            assert_eq!(copy, *new);
        }
    }
    let (mut tags, mut places) = (BTreeMap::new(), BTreeMap::new());
    check(&queue(), &mut tags, &mut places);
    check(&TopicDescription::new("t", &limits()), &mut tags, &mut places);
    check(&SubscriptionDescription::new("t", "s", &limits()), &mut tags, &mut places);
    assert_eq!(tags.len(), places.len());
    assert!(tags.keys().copied().eq((1..).take(tags.len())), "tags have a gap: {tags:?}");
    let names =
        QueueDescription::FIELDS.iter().find(|field| field.name == "lock_duration").unwrap();
    assert_eq!(
        (names.title, names.json, names.flag),
        ("LockDuration", "lockDuration", "lock-duration")
    );
    assert_eq!(names.element(), "LockDuration");
}

/// ENT-17: every text of the table of properties can be cleared, and nothing else.
#[test]
fn cleared_has_every_text_of_the_table() {
    fn check<D: Description>() {
        for field in D::FIELDS {
            assert_eq!(Cleared::ALL.contains(field.name), field.kind.is_text(), "{}", field.name);
            assert!(!Cleared::default().contains(field.name), "{}", field.name);
        }
    }
    check::<QueueDescription>();
    check::<TopicDescription>();
    check::<SubscriptionDescription>();
}
