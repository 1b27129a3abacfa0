//! Explains to users how a rule evaluates a message: the verdict, then each test with the values
//! that it read.

use std::fmt::Write as _;

use peeklock::inspect::{CopyPreview, SubscriptionExplanation};
use peeklock::rule::{Explanation, FilterTest, Read, Verdict};

use super::super::terminal::{Out, line};

/// Whether the message is selected; a rule whose action fails has selected it too.
pub const fn selects(explanation: &Explanation) -> bool {
    matches!(explanation.verdict, Verdict::Matches | Verdict::ActionFailed(_))
}

/// One rule.
pub fn shown(explanation: &Explanation, out: &Out) -> String {
    let paint = |colour: &str, text: &str| {
        if out.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    };
    let (mark, verdict) = match &explanation.verdict {
        Verdict::Matches => (paint("32", "selects it"), String::new()),
        Verdict::DoesNotMatch => (paint("31", "does not select it"), String::new()),
        Verdict::Unknown => (
            paint("33", "does not select it"),
            ": unknown, because a property in it is missing".to_owned(),
        ),
        Verdict::FilterFailed(error) => (paint("31", "fails"), format!(": {}", line(error))),
        Verdict::ActionFailed(error) => {
            (paint("31", "selects it, and its action fails"), format!(": {}", line(error)))
        }
        Verdict::NotEvaluated(by) => {
            let detail = format!(": the subscription {} selects the message", line(by));
            (paint("33", "is not evaluated"), detail)
        }
    };
    let name = paint("1", &line(&explanation.rule));
    let mut text = format!("rule {name} {mark}{verdict}\n");
    let width = explanation.tests.iter().map(|test| line(&test.text).chars().count()).max();
    let width = width.unwrap_or_default().min(40);
    for FilterTest { text: test, operands, result } in &explanation.tests {
        let result = match result {
            Some(true) => paint("32", "true   "),
            Some(false) => paint("31", "false  "),
            None => paint("33", "unknown"),
        };
        let saw = operands.iter().map(|operand| line(operand)).collect::<Vec<_>>().join(" and ");
        let saw = if saw.is_empty() { saw } else { format!("   saw {saw}") };
        // Writing into a string cannot fail.
        let row = format!("  {result}  {:<width$}{saw}", line(test));
        writeln!(text, "{}", row.trim_end()).unwrap_or_default();
    }
    for Read { name, value } in &explanation.reads {
        let value = value
            .as_deref()
            .map_or_else(|| paint("33", "is not there"), |value| format!("is {}", line(value)));
        writeln!(text, "  {} {value}", line(name)).unwrap_or_default();
    }
    for change in &explanation.changes {
        writeln!(text, "  {}", paint("36", &line(change))).unwrap_or_default();
    }
    text
}

/// All rules of a subscription, and the copies that it gets.
pub fn subscription(explanation: &SubscriptionExplanation, out: &Out) -> String {
    let mut text = format!("subscription {}\n", line(&explanation.name));
    for rule in &explanation.rules {
        text.push_str(&shown(rule, out));
    }
    for CopyPreview { rule, dead_letter, .. } in &explanation.copies {
        let rule = rule.as_deref().map(|rule| format!(" by rule {}", line(rule)));
        let rule = rule.unwrap_or_default();
        // Writing into a string cannot fail.
        match dead_letter {
            Some((reason, description)) => {
                let (reason, description) = (line(reason), line(description));
                writeln!(text, "dead letter{rule}: {reason}: {description}").unwrap_or_default();
            }
            None => writeln!(text, "copy{rule}").unwrap_or_default(),
        }
    }
    text.push('\n');
    text
}

/// The number of copies that the subscription gets (TOP-02, TOP-03), with remarks.
pub fn summary(explained: &[Explanation], has_action: impl Fn(&Explanation) -> bool) -> String {
    let selecting: Vec<_> = explained.iter().filter(|one| selects(one)).collect();
    let with_action = selecting.iter().filter(|one| has_action(one)).count();
    let plain = usize::from(selecting.len() > with_action);
    let copies = plain + with_action;
    let is_passed_over =
        explained.iter().any(|one| matches!(one.verdict, Verdict::NotEvaluated(_)));
    match copies {
        0 if is_passed_over => {
            "a catch-all gets only messages that no other subscription selects: no copy\n"
                .to_owned()
        }
        0 => "no rule selects it: no copy\n".to_owned(),
        1 => "1 copy\n".to_owned(),
        _ => format!("{copies} copies\n"),
    }
}
