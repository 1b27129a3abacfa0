//! Lists of rules.

use super::*;
use crate::rule::CorrelationFilter;

/// ENT-30, DESIGN D6: a list of rules ends at its limit of bytes, for any requested number. A
/// larger rule is listed by itself.
#[test]
fn a_list_of_rules_ends_with_its_bytes() {
    let mut stand = Stand::new(1);
    stand.limits.rule_bytes_max = 2 << 20;
    let subscription = EntityId(2);
    let mut ask = |command| {
        let command = TopicCommand::InSubscription { subscription, command };
        match stand.apply(Command::OfTopic(command)).unwrap().0 {
            Answer::Now(answer, _) => answer,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..12 {
        // 180 KB each, and 1.2 MB for the last.
        let count = if number == 11 { 40 } else { 6 };
        let filter = (0..count).fold(CorrelationFilter::default(), |filter, place| {
            filter.and_property(format!("p{place}"), "v".repeat(30_000))
        });
        let filter = Filter::Correlation(filter);
        let rule = RuleDescription::new(format!("r{number:02}"), filter, Timestamp::NONE);
        ask(RuleCommand::Create(Box::new(rule)));
    }
    let mut pages = Vec::new();
    let mut skip = 0;
    loop {
        let Outcome::Rules(rules) = ask(RuleCommand::List { skip, top: usize::MAX }) else {
            panic!("a list of rules")
        };
        pages.push(rules.len());
        skip += rules.len();
        if rules.is_empty() {
            break;
        }
        let bytes: u64 = rules.iter().map(RuleDescription::bytes).sum();
        assert!(bytes <= RuleCommand::LISTED_BYTES_MAX || rules.len() == 1, "{bytes}");
    }
    // `$Default` is listed first.
    assert_eq!(pages, [6, 5, 1, 1, 0]);
}

/// DESIGN D6: the steps of a list count its skipped and its listed rules, so that a distant page
/// needs a long turn. A page after the last rule counts only the existing rules.
#[test]
fn page_of_rules_counts_skipped_rules_as_steps() {
    let mut stand = Stand::new(1);
    let subscription = EntityId(2);
    let of_rules =
        |command| Command::OfTopic(TopicCommand::InSubscription { subscription, command });
    // In addition to `$Default`.
    for number in 1..800 {
        let filter = CorrelationFilter { subject: Some("x".into()), ..Default::default() };
        let filter = Filter::Correlation(filter);
        let rule = RuleDescription::new(format!("r{number}"), filter, Timestamp::NONE);
        stand.apply(of_rules(RuleCommand::Create(Box::new(rule)))).unwrap();
    }
    let steps = |skip, top| {
        stand.topic.work_of(&of_rules(RuleCommand::List { skip, top }), stand.now, &stand.limits)
    };
    assert_eq!(steps(0, 100), 26);
    assert_eq!(steps(320, 100), 46);
    assert_eq!(steps(780, 100), 54);
    for (skip, top) in [(800, 1), (usize::MAX, usize::MAX)] {
        assert_eq!(steps(skip, top), 51);
    }
    assert_eq!(steps(0, usize::MAX), 201);
}
