//! Tests of the copies that a published message becomes.

use super::*;

/// The rules that made the copies; `-` is the copy without changes, `!` a dead letter.
fn labels(selection: &Selection) -> Vec<String> {
    let labels = |copy: &Copy| match (&copy.changed, &copy.refusal) {
        (None, None) => "-".to_owned(),
        (Some(changed), None) => changed.rule.to_string(),
        (_, Some(refusal)) => format!("!{}", refusal.reason()),
    };
    selection.copies.iter().map(labels).collect()
}

fn check(rules: Vec<RuleDescription>, message: &Message, expected: &[&str]) {
    assert_eq!(labels(&publish(&topic(rules), message)), expected);
}

/// TOP-01, TOP-02, TOP-03, TOP-04, TOP-05
#[test]
fn three_rules_without_action_and_two_with_make_three_copies() {
    let rules = vec![
        sql("Zulu", "1 = 1").with_action("SET a = 1"),
        sql("one", "TRUE"),
        RuleDescription::new("two", Filter::True, NOW),
        correlated(
            "three",
            CorrelationFilter { message_id: Some("m".into()), ..Default::default() },
        ),
        sql("alpha", "1 = 1").with_action("SET a = 2"),
    ];
    let selection = publish(&topic(rules), &message());
    assert_eq!(labels(&selection), ["-", "alpha", "Zulu"]);
    let names: Vec<_> = selection
        .copies
        .iter()
        .map(|copy| copy_of(&message(), copy).application_property("RuleName").cloned())
        .collect();
    assert_eq!(names, [None, Some("alpha".into()), Some("Zulu".into())]);
}

/// TOP-06, SND-27
#[test]
fn subscription_without_a_matching_rule_gets_no_copy() {
    let mut matcher = topic(vec![]);
    matcher.remove_rule(SUBSCRIPTION, "$default").unwrap();
    assert_eq!(publish(&matcher, &message()), Selection::default());
    check(vec![sql("no", "1 = 2"), sql("unknown", "absent = 1")], &message(), &[]);
    check(vec![RuleDescription::new("never", Filter::False, NOW)], &message(), &[]);
}

/// TOP-12
#[test]
fn a_subscription_has_the_default_rule_or_the_one_given() {
    let names = |matcher: &Matcher| -> Vec<String> {
        matcher.rules(SUBSCRIPTION).map(|rule| rule.name().to_owned()).collect()
    };
    let matcher = topic(vec![]);
    assert_eq!(names(&matcher), ["$Default"]);
    let default = matcher.rule(SUBSCRIPTION, "$DEFAULT").unwrap();
    assert_eq!(default.description(), &RuleDescription::default_rule(NOW));
    assert_eq!(labels(&publish(&matcher, &message())), ["-"]);
    assert_eq!(names(&topic(vec![sql("mine", "1 = 2")])), ["mine"]);
}

/// TOP-13, ENT-13, ENT-30
#[test]
fn rules_are_unique_by_name_ignoring_case() {
    let mut matcher = topic(vec![sql("Big", "a > 1")]);
    let condition = |result: Result<(), Rejection>| result.unwrap_err().condition();
    let again = matcher.create_rule(SUBSCRIPTION, sql("bIG", "1 = 1"), &limits());
    assert_eq!(condition(again), Condition::EntityAlreadyExists);
    matcher.create_rule(SUBSCRIPTION, sql("alpha", "1 = 1"), &limits()).unwrap();
    let names: Vec<_> = matcher.rules(SUBSCRIPTION).map(Rule::name).collect();
    assert_eq!(names, ["alpha", "Big"]);
    matcher.remove_rule(SUBSCRIPTION, "BIG").unwrap();
    assert_eq!(condition(matcher.remove_rule(SUBSCRIPTION, "big")), Condition::EntityNotFound);
    let absent = matcher.update_rule(SUBSCRIPTION, sql("big", "1 = 1"), &limits());
    assert_eq!(condition(absent), Condition::EntityNotFound);
    for (name, code) in [
        ("", Condition::ArgumentOutOfRange),
        ("a/b", Condition::ArgumentError),
        ("$other", Condition::ArgumentError),
    ] {
        let result = matcher.create_rule(SUBSCRIPTION, sql(name, "1 = 1"), &limits());
        assert_eq!(condition(result), code, "{name}");
    }
    let long = "x".repeat(51);
    let result = matcher.create_rule(SUBSCRIPTION, sql(&long, "1 = 1"), &limits());
    assert_eq!(condition(result), Condition::ArgumentOutOfRange);
}

/// TOP-15
#[test]
fn the_texts_of_true_and_false_act_alike() {
    check(vec![sql("yes", "1=1")], &message(), &["-"]);
    check(vec![sql("no", "1=0")], &message(), &[]);
    check(vec![sql("no", "1>1")], &message(), &[]);
}

/// TOP-16, TOP-17, ADM-43
#[test]
fn malformed_rule_changes_no_state() {
    let mut matcher = Matcher::new();
    let rules = vec![sql("good", "1 = 1"), sql("bad", "color = = 'red'")];
    let rejection = create(&mut matcher, SUBSCRIPTION, rules).unwrap_err();
    assert_eq!(rejection.condition(), Condition::ArgumentError);
    assert_eq!(
        rejection.detail(),
        "filter of rule `bad`, line 1, column 9: expected a value to compare with, found `=`"
    );
    assert_eq!(publish(&matcher, &message()), Selection::default());
    assert_eq!(matcher.rules(SUBSCRIPTION).count(), 0);

    let mut matcher = topic(vec![]);
    let rule = sql("r", "1 = 1").with_action("SET a = ");
    let rejection = matcher.create_rule(SUBSCRIPTION, rule, &limits()).unwrap_err();
    assert_eq!(rejection.condition(), Condition::ArgumentError);
    assert!(rejection.detail().starts_with("action of rule `r`, line 1, column 9: "));
    assert!(matcher.rule(SUBSCRIPTION, "r").is_none());
}

/// SQL-02, QUO-01: each limit is accepted and one more is refused.
#[test]
fn texts_and_statements_are_bounded() {
    let condition = |rule| Rule::create(rule, &limits()).err().map(|error| error.condition());
    let of_length = |length: usize| format!("a = '{}'", "ä".repeat(length - 6));
    assert_eq!(condition(sql("r", &of_length(1_024))), None);
    assert_eq!(condition(sql("r", &of_length(1_025))), Some(Condition::ArgumentOutOfRange));
    let act = |text: &str| sql("r", "1 = 1").with_action(text);
    let of_length = |length: usize| format!("SET a = '{}'", "ä".repeat(length - 10));
    assert_eq!(condition(act(&of_length(1_024))), None);
    assert_eq!(condition(act(&of_length(1_025))), Some(Condition::ArgumentOutOfRange));
    assert_eq!(condition(act(&"SET a = 1;".repeat(32))), None);
    assert_eq!(condition(act(&"SET a = 1;".repeat(33))), Some(Condition::ArgumentOutOfRange));
    assert_eq!(condition(act(&"REMOVE a ".repeat(33))), Some(Condition::ArgumentOutOfRange));
    let large = Value::from("x".repeat(70_000));
    let text = SqlText {
        text: "a = @p".into(),
        parameters: sql::Parameters::new().with("p", large.clone()),
    };
    let rule = RuleDescription::new("r", Filter::Sql(text), NOW);
    assert_eq!(condition(rule), Some(Condition::ArgumentOutOfRange));
    let rule = correlated("r", CorrelationFilter::property("a", large));
    assert_eq!(condition(rule), Some(Condition::ArgumentOutOfRange));
    let text = SqlText {
        text: "a = @p".into(),
        parameters: sql::Parameters::new().with("p", 1).with("@P", 2),
    };
    let rule = RuleDescription::new("r", Filter::Sql(text), NOW);
    assert_eq!(condition(rule), Some(Condition::ArgumentError));
}

/// QUO-01: SQL rules and others of a topic, over its subscriptions.
#[test]
fn rules_of_a_topic_are_counted_by_kind() {
    let mut limits = limits();
    limits.rule_sql_count_max = 2;
    limits.rule_correlation_count_max = 3;
    let mut matcher = topic(vec![]);
    create(&mut matcher, EntityId(2), vec![]).unwrap();
    let mut add = |id, rule| {
        let result = matcher.create_rule(EntityId(id), rule, &limits);
        result.map_err(|rejection| rejection.condition())
    };
    assert_eq!(add(1, sql("a", "1 = 1")), Ok(()));
    assert_eq!(add(2, sql("a", "1 = 1")), Ok(()));
    assert_eq!(add(1, sql("b", "1 = 1")), Err(Condition::QuotaExceeded));
    let one = || CorrelationFilter::property("a", 1);
    assert_eq!(add(1, correlated("b", one())), Ok(()));
    assert_eq!(add(2, correlated("b", one())), Err(Condition::QuotaExceeded));
    // An update needs no room for its current kind, and frees that for others.
    matcher.update_rule(SUBSCRIPTION, sql("a", "2 = 2"), &limits).unwrap();
    let other = matcher.update_rule(SUBSCRIPTION, correlated("a", one()), &limits);
    assert_eq!(other.unwrap_err().condition(), Condition::QuotaExceeded);
    matcher.remove_subscription(EntityId(2));
    matcher.update_rule(SUBSCRIPTION, correlated("a", one()), &limits).unwrap();
    matcher.create_rule(SUBSCRIPTION, sql("c", "1 = 1"), &limits).unwrap();
    matcher.create_rule(SUBSCRIPTION, sql("d", "1 = 1"), &limits).unwrap();
    let full = matcher.create_rule(SUBSCRIPTION, sql("e", "1 = 1"), &limits).unwrap_err();
    assert_eq!(full.condition(), Condition::QuotaExceeded);
}

/// TOP-09, TOP-24
#[test]
fn rule_update_replaces_filter_and_action_or_fails() {
    let mut matcher = topic(vec![sql("Rule", "a = 1").with_action("SET x = 1")]);
    let (one, two) = (with(&[("a", Value::I32(1))]), with(&[("a", Value::I32(2))]));
    assert_eq!(labels(&publish(&matcher, &one)), ["Rule"]);
    let bad = matcher.update_rule(SUBSCRIPTION, sql("rule", "a ="), &limits());
    assert_eq!(bad.unwrap_err().condition(), Condition::ArgumentError);
    assert_eq!(labels(&publish(&matcher, &one)), ["Rule"]);
    let mut replacement = sql("RULE", "a = 2");
    replacement.created_at = Timestamp::from_unix_ms(5);
    matcher.update_rule(SUBSCRIPTION, replacement, &limits()).unwrap();
    assert_eq!(labels(&publish(&matcher, &one)), [""; 0]);
    assert_eq!(labels(&publish(&matcher, &two)), ["-"]);
    let description = matcher.rule(SUBSCRIPTION, "rule").unwrap().description();
    assert_eq!((&*description.name, description.created_at), ("Rule", NOW));
}

/// TOP-08, ACT-01: every subscription has separate copies, in a fixed order.
#[test]
fn subscriptions_are_independent() {
    let mut matcher = Matcher::new();
    for id in [5, 3, 9, 1] {
        let rule = sql("r", "a = 1").with_action("SET a = a + 1");
        create(&mut matcher, EntityId(id), vec![rule, sql("plain", "a = 1")]).unwrap();
    }
    create(&mut matcher, EntityId(4), vec![]).unwrap();
    let message = with(&[("a", Value::I32(1))]);
    let selection = publish(&matcher, &message);
    let ids: Vec<_> = selection.copies.iter().map(|copy| copy.subscription.0).collect();
    assert_eq!(ids, [1, 1, 3, 3, 4, 5, 5, 9, 9]);
    for copy in &selection.copies {
        let expected = if copy.changed.is_some() { 2 } else { 1 };
        let copied = copy_of(&message, copy);
        assert_eq!(copied.application_property("a"), Some(&Value::I32(expected)));
        assert_eq!(copied.body, message.body);
    }
}

/// DLQ-23, DLQ-25, SQL-40
#[test]
fn the_first_failing_rule_makes_one_dead_letter() {
    let rules = vec![
        sql("c", "a > 'x'"),
        sql("B", "a LIKE 'x'"),
        sql("d", "a = 1"),
        sql("e", "a = 1").with_action("SET sys.Size = 1"),
        sql("f", "a = 1").with_action("SET b = 1"),
    ];
    let message = with(&[("a", Value::I32(1))]);
    let selection = publish(&topic(rules), &message);
    assert_eq!(labels(&selection), ["-", "f", "!FilterException"]);
    let copy = selection.copies.last().unwrap();
    let refusal = copy.refusal.as_deref().unwrap();
    assert_eq!(refusal.cause, Cause::Filter);
    assert_eq!(
        &*refusal.description,
        "rule `B`: `LIKE` cannot be applied to a number, line 1, column 1: `a LIKE 'x'`"
    );
    // The unchanged message is dead-lettered, with two properties that explain it.
    assert_eq!(copy.changed, None);
    let mut dead = message.clone();
    dead.apply_overlay(&refusal.overlay().unwrap());
    assert_eq!(dead.application_property("a"), Some(&Value::I32(1)));
    assert_eq!(dead.application_property("DeadLetterReason"), Some(&"FilterException".into()));
    let description = dead.application_property("DeadLetterErrorDescription");
    assert_eq!(description, Some(&Value::from(&*refusal.description)));
}

/// DLQ-23, ACT-10
#[test]
fn a_failing_action_dead_letters_the_unmodified_message() {
    let rules = vec![sql("r", "1 = 1").with_action("SET a = 2; SET b = 1 / 0")];
    let selection = publish(&topic(rules), &with(&[("a", Value::I32(1))]));
    assert_eq!(labels(&selection), ["!RuleActionException"]);
    let [copy] = selection.copies.as_slice() else { panic!("one copy") };
    assert_eq!(copy.changed, None);
    assert_eq!(
        &*copy.refusal.as_ref().unwrap().description,
        "rule `r`: division by zero in `/`, line 1, column 20: `1 / 0`"
    );
}

/// DLQ-24, DLQ-27
#[test]
fn without_the_switch_a_failing_rule_does_not_match() {
    let mut matcher = topic(vec![sql("bad", "a > 'x'"), sql("good", "a = 1")]);
    create(&mut matcher, EntityId(2), vec![sql("bad", "a > 'x'")]).unwrap();
    let off = SubscriptionSettings {
        dead_lettering_on_filter_errors: false,
        requires_session: false,
        catch_all: false,
    };
    matcher.restore_subscription(SUBSCRIPTION, off);
    let selection = publish(&matcher, &with(&[("a", Value::I32(1))]));
    assert_eq!(labels(&selection), ["-", "!FilterException"]);
    assert_eq!(selection.copies[1].subscription, EntityId(2));
    matcher.restore_subscription(EntityId(2), off);
    assert_eq!(labels(&publish(&matcher, &with(&[("a", Value::I32(1))]))), ["-"]);
}

/// DLQ-21, ACT-09
#[test]
fn copy_without_required_session_is_dead_lettered() {
    let on = SubscriptionSettings {
        dead_lettering_on_filter_errors: false,
        requires_session: true,
        catch_all: false,
    };
    let mut matcher = topic(vec![
        RuleDescription::new("plain", Filter::True, NOW),
        sql("removed", "1 = 1").with_action("REMOVE sys.SessionId"),
        sql("set", "1 = 1").with_action("SET sys.SessionId = 'other'"),
        sql("void", "1 = 1").with_action("SET sys.SessionId = ''"),
    ]);
    matcher.restore_subscription(SUBSCRIPTION, on);
    let none = "!Session ID is null.";
    // The empty id is a session like any other (SES-03).
    assert_eq!(labels(&publish(&matcher, &message())), [none, none, "set", "void"]);
    let empty = message().with_session_id("");
    assert_eq!(labels(&publish(&matcher, &empty)), ["-", none, "set", "void"]);
    let selection = publish(&matcher, &message().with_session_id("s"));
    assert_eq!(labels(&selection), ["-", none, "set", "void"]);
    let changed = selection.copies[2].changed.as_ref().unwrap();
    assert_eq!(changed.session_id.as_deref(), Some("other"));
    assert_eq!(selection.copies[1].refusal.as_ref().unwrap().cause, Cause::NoSession);
}

/// DLQ-20, ACT-11: a copy exactly at the quota is stored. A copy one byte over it is dead-lettered
/// with all its properties.
#[test]
fn a_copy_with_too_large_a_header_is_dead_lettered_whole() {
    let matcher = topic(vec![sql("r", "1 = 1").with_action("SET b = a + 'x'")]);
    let of_length = |length: usize| {
        with(&[("a", Value::from("y".repeat(30_000))), ("c", Value::from("z".repeat(length)))])
    };
    let header = |message: &Message| {
        let selection = publish(&matcher, message);
        let mut copied = copy_of(message, &selection.copies[0]);
        assert_eq!(copied.application_properties.len(), 4);
        copied.body = crate::message::Body::default();
        (copied.encode().header_size(), labels(&selection))
    };
    let (size, _) = header(&of_length(5_000));
    let fits = 5_000 + (65_536 - size) as usize;
    assert_eq!(header(&of_length(fits)), (65_536, vec!["r".to_owned()]));
    let beyond = header(&of_length(fits + 1));
    assert_eq!(beyond, (65_537, vec!["!HeaderSizeExceeded".to_owned()]));
}

/// Removed and replaced rules leave no entry in the index.
#[test]
fn the_index_follows_its_rules() {
    let mut matcher = topic(vec![sql("s", "a = 1")]);
    let one = || CorrelationFilter::property("a", 1);
    for round in 0..3 {
        for number in 0..10 {
            let name = format!("c{number}");
            matcher.create_rule(SUBSCRIPTION, correlated(&name, one()), &limits()).unwrap();
        }
        let selection = publish(&matcher, &with(&[("a", Value::I64(1))]));
        assert_eq!(selection.counted, WorkCounts { lookups: 1, comparisons: 10, evaluations: 1 });
        for number in 0..10 {
            let selection = publish(&matcher, &with(&[("a", Value::I64(1))]));
            assert_eq!(selection.counted.comparisons, 10 - number);
            matcher.remove_rule(SUBSCRIPTION, &format!("c{number}")).unwrap();
        }
        let selection = publish(&matcher, &with(&[("a", Value::I64(1))]));
        let expected = WorkCounts { lookups: 0, comparisons: 0, evaluations: 1 };
        assert_eq!(selection.counted, expected, "{round}");
    }
    matcher.remove_subscription(SUBSCRIPTION);
    assert_eq!(publish(&matcher, &with(&[("a", Value::I64(1))])), Selection::default());
}

const CATCH_ALL: EntityId = EntityId(0);

/// A topic like [`topic`], with a catch-all before its subscription.
fn with_catch_all(rules: Vec<RuleDescription>, caught: Vec<RuleDescription>) -> Matcher {
    let mut matcher = topic(rules);
    create(&mut matcher, CATCH_ALL, caught).unwrap();
    mark(&mut matcher, CATCH_ALL, true);
    matcher
}

fn mark(matcher: &mut Matcher, subscription: EntityId, catch_all: bool) {
    let settings = matcher.settings(subscription).unwrap();
    matcher.restore_subscription(subscription, SubscriptionSettings { catch_all, ..settings });
}

/// The copies with their subscriptions.
fn placed(selection: &Selection) -> Vec<(u64, String)> {
    let ids = selection.copies.iter().map(|copy| copy.subscription.0);
    ids.zip(labels(selection)).collect()
}

fn of(id: u64, labels: &str) -> (u64, String) {
    (id, labels.to_owned())
}

/// TOP-25, TOP-26: the rules of a catch-all apply to messages that no other subscription selects.
#[test]
fn catch_all_gets_otherwise_unselected_messages() {
    let caught = vec![
        RuleDescription::new("$Default", Filter::True, NOW),
        sql("marked", "a > 5").with_action("SET b = 1"),
        correlated("three", CorrelationFilter::property("a", 3)),
    ];
    let matcher = with_catch_all(vec![sql("r", "a = 1")], caught);
    let one = publish(&matcher, &with(&[("a", Value::I64(1))]));
    assert_eq!((placed(&one), one.selected_by), (vec![of(1, "-")], Some(SUBSCRIPTION)));
    let two = publish(&matcher, &with(&[("a", Value::I64(2))]));
    assert_eq!((placed(&two), two.selected_by), (vec![of(0, "-")], None));
    let seven = publish(&matcher, &with(&[("a", Value::I64(7))]));
    assert_eq!(placed(&seven), [of(0, "-"), of(0, "marked")]);
}

/// TOP-06, TOP-26: a message that no rule selects is dropped, as if there were no catch-all.
#[test]
fn message_unselected_by_the_catch_all_is_dropped() {
    let matcher = with_catch_all(vec![sql("r", "a = 1")], vec![sql("c", "a = 2")]);
    assert_eq!(placed(&publish(&matcher, &with(&[("a", Value::I64(2))]))), [of(0, "-")]);
    assert_eq!(placed(&publish(&matcher, &with(&[("a", Value::I64(3))]))), []);
}

/// TOP-25: no rule of a catch-all is evaluated for a message that another subscription selects.
#[test]
fn catch_all_is_not_evaluated_for_selected_messages() {
    let caught = vec![sql("s", "a = 1"), correlated("c", CorrelationFilter::property("a", 1))];
    let matcher = with_catch_all(vec![sql("r", "a = 1")], caught);
    let asked = |value| publish(&matcher, &with(&[("a", Value::I64(value))])).counted;
    assert_eq!(asked(1), WorkCounts { lookups: 0, comparisons: 0, evaluations: 1 });
    assert_eq!(asked(2), WorkCounts { lookups: 1, comparisons: 0, evaluations: 2 });
}

/// TOP-27
#[test]
fn catch_alls_do_not_count_for_each_other() {
    let mut matcher = with_catch_all(vec![sql("r", "a = 1")], vec![sql("c", "a > 1")]);
    let default = RuleDescription::default_rule(NOW);
    create(&mut matcher, EntityId(7), vec![default]).unwrap();
    mark(&mut matcher, EntityId(7), true);
    let published = |value| placed(&publish(&matcher, &with(&[("a", Value::I64(value))])));
    assert_eq!(published(1), [of(1, "-")]);
    assert_eq!(published(2), [of(0, "-"), of(7, "-")]);
    assert_eq!(published(0), [of(7, "-")]);
}

/// TOP-28, DLQ-20, DLQ-21: a refused copy counts as selected.
#[test]
fn refused_copy_counts_as_selected() {
    let mut matcher = with_catch_all(vec![sql("r", "a = 1")], vec![]);
    let settings = matcher.settings(SUBSCRIPTION).unwrap();
    let in_sessions = SubscriptionSettings { requires_session: true, ..settings };
    matcher.restore_subscription(SUBSCRIPTION, in_sessions);
    let selection = publish(&matcher, &with(&[("a", Value::I64(1))]));
    assert_eq!(placed(&selection), [of(1, "!Session ID is null.")]);
    let large = vec![sql("r", "1 = 1").with_action("SET b = a + 'x'")];
    let matcher = with_catch_all(large, vec![]);
    let value = |length: usize| Value::from("y".repeat(length));
    let selection = publish(&matcher, &with(&[("a", value(30_000)), ("c", value(10_000))]));
    assert_eq!(placed(&selection), [of(1, "!HeaderSizeExceeded")]);
}

/// TOP-28, DLQ-23, DLQ-24, ACT-10: a rule that fails selects no message, even if its message is
/// dead-lettered. Copies stay in the order of subscriptions.
#[test]
fn failed_rule_does_not_select_for_the_catch_all() {
    let failing = [sql("f", "a > 'x'"), sql("f", "1 = 1").with_action("SET b = 1 / 0")];
    for (rule, reason) in failing.into_iter().zip(["!FilterException", "!RuleActionException"]) {
        let mut matcher = with_catch_all(vec![rule.clone()], vec![]);
        let message = with(&[("a", Value::I64(1))]);
        let selection = publish(&matcher, &message);
        assert_eq!(
            (placed(&selection), selection.selected_by),
            (vec![of(0, "-"), of(1, reason)], None)
        );
        let settings = matcher.settings(SUBSCRIPTION).unwrap();
        let off = SubscriptionSettings { dead_lettering_on_filter_errors: false, ..settings };
        matcher.restore_subscription(SUBSCRIPTION, off);
        assert_eq!(placed(&publish(&matcher, &message)), [of(0, "-")]);
        matcher.create_rule(SUBSCRIPTION, sql("works", "a = 1"), &limits()).unwrap();
        assert_eq!(placed(&publish(&matcher, &message)), [of(1, "-")]);
    }
}

/// TOP-25, QUO-01: the rules of a subscription move with it when it becomes a catch-all or an
/// ordinary one.
#[test]
fn the_mark_can_be_changed() {
    let rules = vec![
        RuleDescription::default_rule(NOW),
        sql("s", "a = 1").with_action("SET b = 1"),
        correlated("c", CorrelationFilter::property("a", 1)).with_action("SET b = 2"),
    ];
    let mut matcher = with_catch_all(rules, vec![]);
    let message = with(&[("a", Value::I64(1))]);
    let all = [of(1, "-"), of(1, "c"), of(1, "s")];
    assert_eq!(placed(&publish(&matcher, &message)), all);
    mark(&mut matcher, SUBSCRIPTION, true);
    assert_eq!(placed(&publish(&matcher, &message)), [&[of(0, "-")], &all[..]].concat());
    assert_eq!((matcher.rule_count(), matcher.sql_rule_count()), (4, 1));
    mark(&mut matcher, CATCH_ALL, false);
    assert_eq!(placed(&publish(&matcher, &message)), [of(0, "-")]);
    mark(&mut matcher, SUBSCRIPTION, false);
    matcher.remove_subscription(CATCH_ALL);
    assert_eq!(placed(&publish(&matcher, &message)), all);
    mark(&mut matcher, SUBSCRIPTION, true);
    for name in ["$default", "s", "c"] {
        matcher.remove_rule(SUBSCRIPTION, name).unwrap();
    }
    assert_eq!(publish(&matcher, &message), Selection::default());
}

/// TOP-05, TOP-25: slices of a step have the same result.
#[test]
fn a_catch_all_is_found_in_slices_too() {
    let caught =
        vec![RuleDescription::default_rule(NOW), sql("s", "a > 1").with_action("SET b = 1")];
    let matcher = with_catch_all(vec![sql("r", "a = 1"), sql("f", "a > 'x'")], caught);
    for value in 0..3 {
        let message = with(&[("a", Value::I64(value))]);
        let content = message.encode();
        let published = PublishedMessage::new(content.property_view(), facts(&content));
        let judged =
            EvaluatedMessage { content: &content, published: &published, limits: &limits() };
        let mut judging = RuleEvaluation::default();
        let slices = (0..).find(|_| matcher.advance(&mut judging, &judged, 1, &mut || 0));
        assert!(slices.is_some_and(|slices| slices > 1));
        assert_eq!(judging.into_selection(), publish(&matcher, &message));
    }
}
