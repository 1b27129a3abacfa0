//! The predicted steps are an upper bound: random rules over random messages, many as
//! expensive as possible.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A text that is expensive for patterns.
    fn text(&mut self, bytes_max: usize) -> String {
        let bytes = if self.one_in(2) { bytes_max } else { self.below(bytes_max + 1) };
        (0..bytes).map(|_| if self.one_in(50) { 'b' } else { 'a' }).collect()
    }

    /// Many short properties, or few long ones.
    fn message(&mut self) -> Message {
        let mut message = message().with_subject(self.text(200));
        let count = [0, 3, 40, 4_000][self.below(4)];
        for number in 0..count {
            let value = if self.one_in(20) { "other".into() } else { Value::Bool(true) };
            message = message.with_application_property(format!("p{number}"), value);
        }
        for name in ["p", "q"].into_iter().take(self.below(3)) {
            message = message.with_application_property(name, self.text(15_000));
        }
        message
    }

    fn filter(&mut self) -> Filter {
        let pattern = |random: &mut Self| {
            let characters = ["a", "_", "%", "b"];
            let count = 1 + random.below(800);
            let of = if random.one_in(2) { 2 } else { 4 };
            (0..count).map(|_| characters[random.below(of)]).collect::<String>()
        };
        match self.below(9) {
            0 => Filter::True,
            1 => Filter::sql(format!("p LIKE '%{}%'", pattern(self))),
            2 => Filter::sql("p LIKE q"),
            3 => Filter::sql(vec!["p = q"; 1 + self.below(80)].join(" OR ")),
            4 => Filter::sql(vec!["p + q <> q"; 1 + self.below(50)].join(" AND ")),
            5 => Filter::sql(format!("p IN ({})", vec!["'aaaaa'"; 1 + self.below(90)].join(", "))),
            6 => Filter::sql(vec!["EXISTS(absent)"; 1 + self.below(40)].join(" OR ")),
            _ => {
                let count = 1 + if self.one_in(2) { self.below(256) } else { self.below(4) };
                let from = if self.one_in(2) { 0 } else { self.below(3_000) };
                let of = |filter: CorrelationFilter, number: usize| {
                    filter.and_property(format!("p{}", from + number), Value::Bool(true))
                };
                Filter::Correlation((0..count).fold(CorrelationFilter::default(), of))
            }
        }
    }

    fn rule(&mut self, number: usize) -> RuleDescription {
        let rule = RuleDescription::new(format!("r{number}"), self.filter(), NOW);
        let action = match self.below(6) {
            0 => "SET x = p",
            1 => "SET x = p + q; SET y = x; REMOVE q",
            2 => "SET p = p + p + p; SET q = p; SET x = q",
            3 => "SET sys.Label = 'x'; SET x = sys.Label + p",
            _ => return rule,
        };
        rule.with_action(action)
    }
}

/// QUO-09, SQL-41: no message takes more steps than predicted from its rules and the bytes of its
/// properties. The prediction is not too loose: some messages take over 40 % of the predicted
/// steps.
#[test]
fn publish_never_exceeds_predicted_steps() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut nearest, mut expensive) = (0.0_f64, 0);
    for round in 0..400 {
        let mut matcher = topic(Vec::new());
        let most = if random.one_in(3) { 30 } else { 3 };
        let count = 1 + random.below(most);
        for number in 0..count {
            let rule = random.rule(number);
            matcher.create_rule(SUBSCRIPTION, rule.clone(), &limits()).unwrap_or_else(|error| {
                panic!("{error}: {rule:?}");
            });
        }
        let content = random.message().encode();
        let published = PublishedMessage::new(content.property_view(), facts(&content));
        let limits = Limits { atomic_bytes_max: u64::MAX, ..limits() };
        let judged = EvaluatedMessage { content: &content, published: &published, limits: &limits };
        let mut judging = RuleEvaluation::default();
        assert!(matcher.advance(&mut judging, &judged, u64::MAX, &mut || 0));
        let (taken, predicted) =
            (judging.steps(), matcher.predicted_steps(u64::from(content.header_size())));
        assert!(
            taken <= predicted,
            "round {round}: {taken} steps, {predicted} were predicted: {matcher:?}"
        );
        nearest = nearest.max(taken as f64 / predicted as f64);
        expensive += usize::from(taken > 1 << 20);
    }
    assert!(expensive > 40, "only {expensive} took more than a slice");
    assert!(nearest > 0.4, "the prediction is too high: {nearest} at most is taken");
}

/// QUO-09, SQL-41: refused steps are not taken, and the steps before them are within the
/// prediction.
#[test]
fn refused_steps_are_not_counted() {
    let pattern = format!("%{}%", "a_".repeat(30_000));
    let read_at_least = 16 * pattern.len() as u64;
    let matcher = topic(vec![sql("r", "p LIKE p")]);
    let content = with(&[("p", pattern.into())]).encode();
    let published = PublishedMessage::new(content.property_view(), facts(&content));
    let limits = limits();
    let judged = EvaluatedMessage { content: &content, published: &published, limits: &limits };
    let mut judging = RuleEvaluation::default();
    assert!(matcher.advance(&mut judging, &judged, u64::MAX, &mut || 0));
    let (taken, predicted) =
        (judging.steps(), matcher.predicted_steps(u64::from(content.header_size())));
    assert!(
        read_at_least <= taken && taken <= predicted,
        "{taken} steps, {predicted} were predicted"
    );
    let [copy] = &judging.into_selection().copies[..] else { panic!("it is a dead letter") };
    let cause = copy.refusal.as_ref().map(|refusal| refusal.cause);
    assert_eq!(cause, Some(Cause::Filter));
}
