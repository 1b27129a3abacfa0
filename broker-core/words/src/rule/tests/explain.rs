//! Tests of explanations for people, and of stored rules.

use super::*;

/// A rule is restored under limits that no new one would pass.
#[test]
fn limits_are_for_new_rules_only() {
    let rule =
        sql("r", &format!("a = '{}'", "x".repeat(5_000))).with_action(&*"REMOVE a;".repeat(50));
    assert!(Rule::create(rule.clone(), &limits()).is_err());
    assert!(Rule::restore(rule).is_ok());
    assert!(Rule::restore(sql("r", "a = ")).is_err());
}

fn explained(rule: RuleDescription, message: &Message) -> Explanation {
    let content = message.encode();
    let published = PublishedMessage::new(content.property_view(), facts(&content));
    Rule::create(rule, &limits()).unwrap().explain(&published, &limits(), &mut || 0)
}

/// The text for people about a rule that matches or does not.
#[test]
fn explanation_shows_each_test_with_its_operands() {
    let message = with(&[("color", "red".into()), ("size", 5.into())]).with_subject("x");
    let rule = sql("r", "Color = 'red' AND (size > 7 OR sys.Label LIKE 'y%') AND absent = 1");
    let explanation = explained(rule, &message);
    assert_eq!(explanation.verdict, Verdict::DoesNotMatch);
    assert_eq!(
        explanation.to_string(),
        "rule r does not match\n  \
         true    Color = 'red'   saw 'red' and 'red'\n  \
         false   size > 7   saw 5 and 7\n  \
         false   sys.Label LIKE 'y%'   saw 'x'\n  \
         Color is 'red'\n  size is 5\n  sys.Subject is 'x'"
    );
    let unknown = explained(sql("r", "absent = 1"), &message);
    assert_eq!(unknown.verdict, Verdict::Unknown);
    assert_eq!(unknown.reads, [Read { name: "absent".into(), value: None }]);
    assert_eq!(unknown.tests[0].result, None);
    let failed = explained(sql("r", "size > 'x'"), &message);
    assert!(matches!(&failed.verdict, Verdict::FilterFailed(error) if error.contains("column 1")));
    let action = sql("r", "size IN (1, 5)").with_action("SET size = size + 1; REMOVE color");
    let explanation = explained(action, &message);
    assert_eq!(explanation.verdict, Verdict::Matches);
    assert_eq!(explanation.changes, ["SET size = 6", "REMOVE color", "SET RuleName = 'r'"]);
    let action = explained(sql("r", "1 = 1").with_action("SET size = 1 / 0"), &message);
    assert!(matches!(action.verdict, Verdict::ActionFailed(_)));
    let filter = CorrelationFilter::property("size", 5).and_property("absent", 1);
    let explanation = explained(correlated("c", filter), &message);
    assert_eq!(explanation.verdict, Verdict::DoesNotMatch);
    assert_eq!(explanation.tests[0].text, "absent = 1");
    assert_eq!(explanation.tests[0].result, None);
    assert_eq!(explanation.tests[1].result, Some(true));
}
