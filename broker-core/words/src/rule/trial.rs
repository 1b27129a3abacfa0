//! Rules tried on a message that is not published. Tools and tests use it.

use super::explain::Explanation;
use super::properties::{Facts, PublishedMessage};
use super::sql::Random;
use super::{Rule, RuleDescription};
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::limits::Limits;
use crate::message::Message;
use crate::time::Timestamp;

/// Returns for each of these rules whether it selects the message, and why, as for a topic that
/// accepts it now as its first message. All rules are checked first, like new ones (TOP-16).
///
/// # Errors
/// As [`Rule::create`], for the first rule that is refused.
pub fn try_rules(
    rules: impl IntoIterator<Item = RuleDescription>,
    message: &Message,
    now: Timestamp,
    limits: &Limits,
    random: &mut Random<'_>,
) -> Result<Vec<Explanation>, Rejection> {
    let rules = rules.into_iter().map(|rule| Rule::create(rule, limits));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    let content = message.encode();
    let time_to_live = content.time_to_live();
    let facts = Facts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: now,
        expires_at: time_to_live.map(|own| now.plus(own)),
        time_to_live,
        size: u64::from(content.size()),
        dead_letter_source: None,
    };
    let published = PublishedMessage::new(content.property_view(), facts);
    Ok(rules.iter().map(|rule| rule.explain(&published, limits, &mut *random)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Filter, Verdict};
    use super::*;
    use crate::limits::Tier;

    const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

    fn tried(rules: Vec<RuleDescription>) -> Result<Vec<Verdict>, Rejection> {
        let mut message = Message::new("two coffees").with_message_id("m");
        message.application_properties = vec![("price".to_owned(), 7.into())];
        let tried = try_rules(rules, &message, NOW, &Limits::of(Tier::Premium), &mut || 4)?;
        Ok(tried.into_iter().map(|one| one.verdict).collect())
    }

    fn sql(name: &str, text: &str) -> RuleDescription {
        RuleDescription::new(name, Filter::sql(text), NOW)
    }

    /// SQL-15, TOP-14
    #[test]
    fn try_rules_returns_a_verdict_for_each_rule() {
        let rules =
            vec![sql("dear", "price > 5"), sql("cheap", "price < 5"), sql("eu", "region=1")];
        let verdicts = tried(rules).unwrap();
        assert_eq!(verdicts, [Verdict::Matches, Verdict::DoesNotMatch, Verdict::Unknown]);
    }

    /// TOP-16
    #[test]
    fn a_malformed_rule_is_refused_before_any_is_tried() {
        assert!(tried(vec![sql("dear", "price > 5"), sql("broken", "price >")]).is_err());
    }
}
