//! Descriptions of topics and subscriptions.

use crate::condition::Condition;
use crate::description::{
    EntityStatus, Settings, SubscriptionDescription, SubscriptionUpdate, TopicDescription,
    TopicUpdate,
};
use crate::limits::{Limits, Tier};
use crate::time::TimeSpan;

fn limits() -> Limits {
    Limits::of(Tier::Premium)
}

fn topic() -> TopicDescription {
    TopicDescription::new("events", &limits())
}

fn subscription() -> SubscriptionDescription {
    SubscriptionDescription::new("events", "audit", &limits())
}

fn refused(result: Result<impl std::fmt::Debug, crate::error::Rejection>) -> Condition {
    result.unwrap_err().condition()
}

/// ENT-03, ENT-04, ENT-05, ENT-08
#[test]
fn a_name_alone_gives_the_defaults() {
    let settings = Settings::default();
    let expected = TopicDescription {
        path: "events".into(),
        max_size_in_megabytes: 1_024,
        requires_duplicate_detection: false,
        duplicate_detection_history_time_window: TimeSpan::from_minutes(10),
        default_message_time_to_live: TimeSpan::MAX,
        enable_batched_operations: true,
        status: EntityStatus::Active,
        auto_delete_on_idle: TimeSpan::MAX,
        enable_partitioning: false,
        enable_express: false,
        support_ordering: true,
        max_message_size_in_kilobytes: 1_024,
        user_metadata: None,
        extensions: None,
    };
    assert_eq!(TopicUpdate::default().create("events", &settings), Ok(expected));
    let expected = SubscriptionDescription {
        topic: "events".into(),
        name: "audit".into(),
        lock_duration: TimeSpan::from_seconds(60),
        requires_session: false,
        default_message_time_to_live: TimeSpan::MAX,
        dead_lettering_on_message_expiration: false,
        enable_dead_lettering_on_filter_evaluation_exceptions: true,
        max_delivery_count: 10,
        enable_batched_operations: true,
        status: EntityStatus::Active,
        forward_to: None,
        forward_dead_lettered_messages_to: None,
        auto_delete_on_idle: TimeSpan::MAX,
        user_metadata: None,
        retry_policy: None,
        session_retry_order: crate::description::SessionRetryOrder::Hold,
        catch_all: false,
        extensions: None,
    };
    assert_eq!(SubscriptionUpdate::default().create("events", "audit", &settings), Ok(expected));
}

/// ENT-02
#[test]
fn the_tier_basic_has_neither() {
    let basic = Settings::new("test", Tier::Basic);
    let created = TopicUpdate::default().create("events", &basic);
    assert_eq!(refused(created), Condition::ArgumentError);
    let created = SubscriptionUpdate::default().create("events", "audit", &basic);
    assert_eq!(refused(created), Condition::ArgumentError);
}

/// ENT-21, ENT-22, ENT-28
#[test]
fn each_kind_has_its_own_statuses() {
    use EntityStatus::{Active, Disabled, ReceiveDisabled, SendDisabled};
    for status in EntityStatus::ALL {
        let on_topic = TopicDescription { status, ..topic() }.validate(&limits());
        let settable = matches!(status, Active | Disabled | SendDisabled);
        assert_eq!(on_topic.is_ok(), settable, "{status} on a topic");
        let on_subscription = SubscriptionDescription { status, ..subscription() };
        let settable = matches!(status, Active | Disabled | ReceiveDisabled);
        assert_eq!(on_subscription.validate(&limits()).is_ok(), settable, "{status}");
    }
}

/// ENT-09
#[test]
fn values_out_of_bounds_are_refused() {
    let wrong = [
        TopicDescription { max_size_in_megabytes: 0, ..topic() },
        TopicDescription { max_size_in_megabytes: 81_921, ..topic() },
        TopicDescription {
            duplicate_detection_history_time_window: TimeSpan::from_seconds(19),
            ..topic()
        },
        TopicDescription { default_message_time_to_live: TimeSpan::from_ms(999), ..topic() },
        TopicDescription { auto_delete_on_idle: TimeSpan::from_seconds(299), ..topic() },
        TopicDescription { max_message_size_in_kilobytes: 102_401, ..topic() },
        TopicDescription { user_metadata: Some("x".repeat(1_025).into()), ..topic() },
    ];
    for description in wrong {
        assert_eq!(refused(description.validate(&limits())), Condition::ArgumentOutOfRange);
    }
    let wrong = [
        SubscriptionDescription { lock_duration: TimeSpan::from_seconds(301), ..subscription() },
        SubscriptionDescription { lock_duration: TimeSpan::from_seconds(4), ..subscription() },
        SubscriptionDescription {
            default_message_time_to_live: TimeSpan::from_ms(999),
            ..subscription()
        },
        SubscriptionDescription { max_delivery_count: 0, ..subscription() },
        SubscriptionDescription { auto_delete_on_idle: TimeSpan::ZERO, ..subscription() },
        SubscriptionDescription { user_metadata: Some("x".repeat(1_025).into()), ..subscription() },
    ];
    for description in wrong {
        assert_eq!(refused(description.validate(&limits())), Condition::ArgumentOutOfRange);
    }
}

/// TOP-25, ENT-17
#[test]
fn a_subscription_becomes_a_catch_all_and_one_no_more() {
    let settings = Settings::default();
    let with = |catch_all| SubscriptionUpdate { catch_all, ..SubscriptionUpdate::default() };
    let created = with(Some(true)).create("events", "rest", &settings).unwrap();
    assert!(created.catch_all);
    assert!(with(None).apply_to(&created, &limits()).unwrap().catch_all);
    assert!(!with(Some(false)).apply_to(&created, &limits()).unwrap().catch_all);
    assert!(with(Some(true)).apply_to(&subscription(), &limits()).unwrap().catch_all);
}

/// ENT-16
#[test]
fn topic_update_cannot_change_properties_fixed_at_creation() {
    let updates = [
        TopicUpdate { requires_duplicate_detection: Some(true), ..TopicUpdate::default() },
        TopicUpdate { enable_partitioning: Some(true), ..TopicUpdate::default() },
    ];
    for update in updates {
        assert_eq!(refused(update.apply_to(&topic(), &limits())), Condition::ArgumentError);
    }
    let update =
        SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
    assert_eq!(refused(update.apply_to(&subscription(), &limits())), Condition::ArgumentError);
    let update = TopicUpdate { enable_express: Some(true), ..TopicUpdate::default() };
    assert!(update.apply_to(&topic(), &limits()).unwrap().enable_express);
}

/// ENT-17
#[test]
fn update_keeps_unnamed_properties() {
    let current = TopicDescription {
        max_size_in_megabytes: 5,
        support_ordering: false,
        user_metadata: Some("old".into()),
        ..topic()
    };
    let update = TopicUpdate { status: Some(EntityStatus::Disabled), ..TopicUpdate::default() };
    let expected =
        TopicDescription { status: EntityStatus::Disabled, user_metadata: None, ..current.clone() };
    assert_eq!(update.apply_to(&current, &limits()), Ok(expected));
    let current = SubscriptionDescription {
        max_delivery_count: 3,
        forward_to: Some("orders".into()),
        user_metadata: Some("old".into()),
        ..subscription()
    };
    let update = SubscriptionUpdate {
        enable_dead_lettering_on_filter_evaluation_exceptions: Some(false),
        ..SubscriptionUpdate::default()
    };
    let expected = SubscriptionDescription {
        enable_dead_lettering_on_filter_evaluation_exceptions: false,
        forward_to: None,
        user_metadata: None,
        ..current.clone()
    };
    assert_eq!(update.apply_to(&current, &limits()), Ok(expected));
}

/// EXP-06, EXP-07, TOP-10, DUP-09
#[test]
fn a_subscription_is_a_queue_within_the_bounds_of_its_topic() {
    let topic = TopicDescription {
        default_message_time_to_live: TimeSpan::from_seconds(10),
        max_size_in_megabytes: 7,
        requires_duplicate_detection: true,
        ..topic()
    };
    let longer = subscription().as_queue(&topic);
    assert_eq!(&*longer.path, "events/Subscriptions/audit");
    assert_eq!(longer.default_message_time_to_live, TimeSpan::from_seconds(10));
    assert_eq!((longer.max_size_in_megabytes, longer.requires_duplicate_detection), (7, false));
    let shorter = SubscriptionDescription {
        default_message_time_to_live: TimeSpan::from_seconds(2),
        ..subscription()
    };
    let shorter = shorter.as_queue(&topic);
    assert_eq!(shorter.default_message_time_to_live, TimeSpan::from_seconds(2));
}
