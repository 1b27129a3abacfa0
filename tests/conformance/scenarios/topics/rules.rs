//! Rules of subscriptions, and the copies that they make of messages.

use super::*;

/// TOP-02, TOP-03, TOP-04, TOP-05: three rules without action and two with one, all matching, give three copies.
pub async fn rules_without_action_give_one_copy_and_each_action_one_more(s: &Stage) {
    let rules = vec![
        all("plain1"),
        sql("B", "1=1").with_action("SET kind = 'b'"),
        by_subject("plain2", "news"),
        sql("a", "TRUE").with_action("SET kind = 'a'"),
        sql("plain3", "price > 3"),
    ];
    open_with(s, SubscriptionUpdate::default(), rules).await;
    s.send(EVENTS, priced("x", 4).with_subject("news")).await.unwrap();
    let seen = s.take_all(AUDIT).await;
    assert_eq!(sequences(&seen), [1, 2, 3]);
    let made: Vec<_> =
        seen.iter().map(|one| (one.text_of("RuleName"), one.text_of("kind"))).collect();
    assert_eq!(made, [(None, None), (Some("a"), Some("a")), (Some("B"), Some("b"))]);
    assert!(seen.iter().all(|one| one.enqueued_sequence == 1 && one.text() == "x"));
}

/// TOP-13, TOP-24, ENT-13, ENT-30
pub async fn rules_are_created_listed_replaced_and_deleted_by_name(s: &Stage) {
    let admin = open(s).await;
    assert_eq!(names(&admin.rules(AUDIT, 0, 10).await.unwrap()), ["$Default"]);
    for name in ["zeta", "Alpha"] {
        admin.create_rule(AUDIT, sql(name, "price > 10")).await.unwrap();
    }
    fails(admin.create_rule(AUDIT, all("ALPHA")).await, "EntityAlreadyExists");
    assert_eq!(names(&admin.rules(AUDIT, 0, 10).await.unwrap()), ["$Default", "Alpha", "zeta"]);
    assert_eq!(names(&admin.rules(AUDIT, 1, 1).await.unwrap()), ["Alpha"]);
    let updated = admin.update_rule(AUDIT, sql("ALPHA", "price < 3")).await.unwrap();
    assert_eq!((&*updated.name, updated.filter), ("Alpha", Filter::sql("price < 3")));
    fails(admin.update_rule(AUDIT, sql("alpha", "price <")).await, "ArgumentError");
    assert_eq!(admin.rule(AUDIT, "alpha").await.unwrap().filter, Filter::sql("price < 3"));
    admin.delete_rule(AUDIT, "$DEFAULT").await.unwrap();
    fails(admin.delete_rule(AUDIT, "$Default").await, "EntityNotFound");
    fails(admin.rule(AUDIT, "none").await, "EntityNotFound");
    fails(admin.update_rule(AUDIT, all("none")).await, "EntityNotFound");
    for price in [1, 5, 11] {
        s.send(EVENTS, priced(&price.to_string(), price)).await.unwrap();
    }
    assert_eq!(s.drain(AUDIT).await, ["1", "11"]);
    assert_eq!(s.drain(BILLING).await, ["1", "5", "11"]);
    let s = s.restart().await;
    let rules = s.rules(AUDIT, 0, 10).await.unwrap();
    assert_eq!(names(&rules), ["Alpha", "zeta"]);
    assert_eq!(rules[0], s.rule(AUDIT, "ALPHA").await.unwrap());
    s.stop().await;
}

/// TOP-16, TOP-17, TOP-18, SQL-02
pub async fn a_subscription_with_an_invalid_rule_is_not_created(s: &Stage) {
    let admin = admin(s);
    admin.create_topic(EVENTS).await.unwrap();
    let long = "x".repeat(1_025);
    let empty = RuleDescription::new(
        "empty",
        Filter::Correlation(CorrelationFilter::default()),
        Timestamp::NONE,
    );
    for (rule, condition) in [
        (sql("r", "price >"), "ArgumentError"),
        (sql("r", &long), "ArgumentOutOfRange"),
        (sql("a/b", "1=1"), "ArgumentError"),
        (all("r").with_action("SET"), "ArgumentError"),
        (empty, "ArgumentError"),
    ] {
        let rules = vec![all("valid"), rule];
        let created =
            admin.create_subscription_with(EVENTS, "audit", SubscriptionUpdate::default(), rules);
        fails(created.await, condition);
        fails(admin.subscription(AUDIT).await, "EntityNotFound");
    }
    let refusal = fails(
        admin
            .create_subscription_with(
                EVENTS,
                "audit",
                SubscriptionUpdate::default(),
                vec![sql("r", "price > ")],
            )
            .await,
        "ArgumentError",
    );
    assert!(refusal.text.contains('8') || refusal.text.contains("end"), "{}", refusal.text);
    assert_eq!(events(s).await.subscription_count, 0);
    s.put(EVENTS, "dropped").await;
    let s = s.restart().await;
    assert!(s.subscription_paths(EVENTS, 0, 10).await.unwrap().is_empty());
    s.create_subscription(EVENTS, "audit").await.unwrap();
    s.stop().await;
}

/// TOP-12: rules given at creation replace the default rule.
pub async fn initial_rules_replace_the_default_one(s: &Stage) {
    let admin =
        open_with(s, SubscriptionUpdate::default(), vec![by_subject("mine", "wanted")]).await;
    assert_eq!(names(&admin.rules(AUDIT, 0, 10).await.unwrap()), ["mine"]);
    for subject in ["wanted", "other"] {
        s.send(EVENTS, message(subject).with_subject(subject)).await.unwrap();
    }
    assert_eq!(s.drain(AUDIT).await, ["wanted"]);
}

/// DLQ-23, DLQ-24, DLQ-25, DLQ-27, SQL-40, ACT-10
pub async fn a_failing_rule_makes_a_dead_letter_if_the_switch_is_on(s: &Stage) {
    let rules = || {
        vec![
            sql("b", "price / 0 = 1"),
            sql("a", "1=1").with_action("SET price = price / 0"),
            all("fine").with_action("SET fine = 1"),
        ]
    };
    let admin = open_with(s, SubscriptionUpdate::default(), rules()).await;
    admin.create_subscription(EVENTS, "billing").await.unwrap();
    assert_eq!(s.send(EVENTS, priced("x", 1)).await.unwrap(), 1);
    let dead = s.take_all(AUDIT_DLQ).await;
    assert_eq!((texts(&dead), dead[0].reason()), (vec!["x".into()], Some("RuleActionException")));
    assert!(dead[0].description().unwrap().contains("`a`"), "{:?}", dead[0].description());
    assert_eq!(dead[0].property("price"), Some(&Value::I32(1)));
    assert_eq!(s.take(AUDIT).await.text_of("RuleName"), Some("fine"));
    assert_eq!(s.drain(BILLING).await, ["x"]);
    admin.delete_rule(AUDIT, "a").await.unwrap();
    s.send(EVENTS, priced("y", 1)).await.unwrap();
    let dead = s.take(AUDIT_DLQ).await;
    assert_eq!((dead.text(), dead.reason()), ("y", Some("FilterException")));
    let off = SubscriptionUpdate {
        enable_dead_lettering_on_filter_evaluation_exceptions: Some(false),
        ..SubscriptionUpdate::default()
    };
    admin.update_subscription(AUDIT, off).await.unwrap();
    s.send(EVENTS, priced("z", 1)).await.unwrap();
    s.assert_empty(AUDIT_DLQ).await;
    assert_eq!(s.drain(AUDIT).await, ["y", "z"]);
    let s = s.restart().await;
    s.send(EVENTS, priced("again", 1)).await.unwrap();
    assert_eq!(s.drain(AUDIT_DLQ).await, ["x", "y"]);
    s.stop().await;
}

/// DLQ-20, ACT-11
pub async fn a_copy_with_an_oversized_header_goes_to_the_dead_letter_queue(s: &Stage) {
    let rules = vec![all("grow").with_action("SET b = a; SET c = a; SET d = a")];
    open_with(s, SubscriptionUpdate::default(), rules).await;
    let large = message("x").with_application_property("a", "v".repeat(20_000));
    s.send(EVENTS, large).await.unwrap();
    s.assert_empty(AUDIT).await;
    let dead = s.take(AUDIT_DLQ).await;
    assert_eq!(dead.reason(), Some("HeaderSizeExceeded"));
    assert_eq!(dead.text_of("d").map(str::len), Some(20_000));
    // The limit applies to the final header, not to the sum of the old header and the set
    // properties.
    let fits = ["a", "b", "c", "d"].into_iter().fold(message("y"), |message, key| {
        message.with_application_property(key, "v".repeat(12_000))
    });
    s.send(EVENTS, fits).await.unwrap();
    assert_eq!(s.drain(AUDIT).await, ["y"]);
    s.assert_empty(AUDIT_DLQ).await;
}

/// TOP-01: the explanation has the result of each rule and its reason, and stores nothing.
pub async fn rules_explain_their_result_for_a_message(s: &Stage) {
    let admin = open(s).await;
    admin.create_rule(AUDIT, sql("cheap", "price < 3 AND kind = 'x'")).await.unwrap();
    let explained = admin.explain(AUDIT, priced("x", 2)).await.unwrap();
    let verdicts: Vec<_> = explained.iter().map(|one| (one.rule.as_str(), &one.verdict)).collect();
    assert_eq!(verdicts, [("$Default", &Verdict::Matches), ("cheap", &Verdict::Unknown)]);
    s.assert_empty(AUDIT).await;
    assert_eq!(events(s).await.last_sequence.0, 0);
}

/// TOP-25, TOP-26, TOP-27, TOP-28, TOP-29, TOP-30, SND-27
pub async fn a_catch_all_gets_messages_unselected_by_others(s: &Stage) {
    let rest = "events/Subscriptions/rest";
    let catching = |catch_all| SubscriptionUpdate {
        catch_all: Some(catch_all),
        ..SubscriptionUpdate::default()
    };
    let admin = open_with(s, SubscriptionUpdate::default(), vec![sql("dear", "price > 5")]).await;
    admin.create_subscription_with(EVENTS, "rest", catching(true), vec![]).await.unwrap();
    assert!(admin.subscription(rest).await.unwrap().description.catch_all);
    assert!(!audit(s).await.description.catch_all);
    s.send(EVENTS, priced("dear", 7)).await.unwrap();
    s.send(EVENTS, priced("cheap", 2)).await.unwrap();
    s.put(EVENTS, "without a price").await;
    assert_eq!(s.drain(AUDIT).await, ["dear"]);
    let verdicts = async |price| {
        let explained = admin.explain(rest, priced("x", price)).await.unwrap();
        explained.into_iter().map(|one| one.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(7).await, [Verdict::NotEvaluated("audit".to_owned())]);
    assert_eq!(verdicts(2).await, [Verdict::Matches]);
    admin.create_rule(rest, sql("cheap", "price < 3").with_action("SET mark = 1")).await.unwrap();
    assert_eq!(s.drain(rest).await, ["cheap", "without a price"], "rules are for what comes");
    s.send(EVENTS, priced("cheap", 1)).await.unwrap();
    assert_eq!(s.drain(rest).await, ["cheap", "cheap"]);
    // A subscription counts as selecting even if it is disabled for receivers or forwards.
    let closed = SubscriptionUpdate {
        status: Some(EntityStatus::ReceiveDisabled),
        ..SubscriptionUpdate::default()
    };
    admin.update_subscription(AUDIT, closed).await.unwrap();
    s.send(EVENTS, priced("closed", 8)).await.unwrap();
    s.assert_empty(rest).await;
    s.open_queue("elsewhere").await;
    let forwards = |to: &str| SubscriptionUpdate {
        forward_to: Some(to.into()),
        ..SubscriptionUpdate::default()
    };
    admin
        .create_subscription_with(
            EVENTS,
            "forwards",
            forwards("elsewhere"),
            vec![sql("free", "price = 0")],
        )
        .await
        .unwrap();
    s.send(EVENTS, priced("free", 0)).await.unwrap();
    s.until("elsewhere", |counts| counts.active == 1).await;
    assert_eq!(s.drain("elsewhere").await, ["free"]);
    s.assert_empty(rest).await;
    // A second catch-all does not count as selecting.
    admin.create_subscription_with(EVENTS, "other", catching(true), vec![]).await.unwrap();
    s.put(EVENTS, "nobody's").await;
    assert_eq!(s.drain(rest).await, ["nobody's"]);
    let s = s.restart().await;
    let admin = self::admin(&s);
    assert_eq!(s.drain("events/Subscriptions/other").await, ["nobody's"]);
    s.send(EVENTS, priced("closed", 9)).await.unwrap();
    s.assert_empty(rest).await;
    admin.update_subscription(rest, catching(false)).await.unwrap();
    s.send(EVENTS, priced("closed", 6)).await.unwrap();
    assert_eq!(s.drain(rest).await, ["closed"]);
    s.stop().await;
}

/// TOP-11
pub async fn rules_never_see_the_body(s: &Stage) {
    let rules = vec![sql("r", "body = 'wanted'")];
    open_with(s, SubscriptionUpdate::default(), rules).await;
    s.put(EVENTS, "wanted").await;
    let told = message("told").with_application_property("body", "wanted");
    s.send(EVENTS, told).await.unwrap();
    assert_eq!(s.drain(AUDIT).await, ["told"]);
}

/// SCH-12, ACT-08
pub async fn a_schedule_set_by_an_action_has_no_effect_in_the_subscription(s: &Stage) {
    let rules = vec![all("r").with_action("SET sys.ScheduledEnqueueTimeUtc = later")];
    open_with(s, SubscriptionUpdate::default(), rules).await;
    let later = s.now().plus(minutes(5));
    let instant = Value::Timestamp(later.unix_ms());
    s.send(EVENTS, message("x").with_application_property("later", instant)).await.unwrap();
    let seen = s.take(AUDIT).await;
    assert_eq!((seen.state, seen.enqueued_at), (MessageState::Active, s.now()));
    assert_eq!(seen.message.scheduled_enqueue_time, Some(later));
}
