//! Topics with many subscriptions and rules that are created, changed and deleted: the copies of a
//! message, judged rule by rule.

use std::collections::BTreeMap;

use peeklock_core::ids::EntityId;
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::Value;
use peeklock_core::rule::sql::Parameters;
use peeklock_core::rule::{
    Cause, CorrelationFilter, Filter, Matcher, PublishedMessage, RuleDescription, SqlText,
    SubscriptionSettings,
};
use peeklock_core::time::Timestamp;
use peeklock_store_testing::Random;

use crate::generator::Generator;
use crate::oracle::{Expr, Pred, Val, World};
use crate::{facts, message, number, value};

/// A rule in the form of the oracle.
#[derive(Clone, Debug)]
struct Judged {
    /// The given name; names differ in case only by accident.
    name: &'static str,
    filter: Judge,
    action: Option<Action>,
}

#[derive(Clone, Debug)]
enum Judge {
    True,
    False,
    /// Properties and their required values; `sys.` precedes names of broker properties.
    Correlation(Vec<(String, Val)>),
    Sql(Box<Pred>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Action {
    Works,
    Fails,
}

/// A copy in a short form.
#[derive(Clone, PartialEq, Debug)]
enum Made {
    Plain,
    By(String),
    Dead(Cause, String),
    /// Refused because it has no session.
    Refused(Option<String>),
}

struct Subscription {
    settings: SubscriptionSettings,
    /// By name in lower case.
    rules: BTreeMap<String, Judged>,
}

impl Subscription {
    /// TOP-02 to TOP-06, DLQ-21, DLQ-23 to DLQ-25
    fn copies(&self, world: &World) -> Vec<Made> {
        let mut plain = false;
        let mut made = Vec::new();
        let mut failed = None;
        for rule in self.rules.values() {
            let truth = match &rule.filter {
                Judge::True => Ok(Some(true)),
                Judge::False => Ok(Some(false)),
                Judge::Correlation(wanted) => Ok(Some(correlates(wanted, world))),
                Judge::Sql(pred) => world.truth(pred),
            };
            let cause = match (truth, rule.action) {
                (Ok(Some(true)), None) => {
                    plain = true;
                    continue;
                }
                (Ok(Some(true)), Some(Action::Works)) => {
                    let name = rule.name.to_owned();
                    made.push(match self.settings.requires_session {
                        true => Made::Refused(Some(name)),
                        false => Made::By(name),
                    });
                    continue;
                }
                (Ok(Some(true)), Some(Action::Fails)) => Cause::Action,
                (Ok(_), _) => continue,
                (Err(_), _) => Cause::Filter,
            };
            failed.get_or_insert((cause, rule.name.to_owned()));
        }
        if plain {
            made.insert(
                0,
                match self.settings.requires_session {
                    true => Made::Refused(None),
                    false => Made::Plain,
                },
            );
        }
        if let Some((cause, name)) =
            failed.filter(|_| self.settings.dead_lettering_on_filter_errors)
        {
            made.push(Made::Dead(cause, name));
        }
        made
    }
}

/// TOP-22, without the one error that SQL has (SQL-37).
fn correlates(wanted: &[(String, Val)], world: &World) -> bool {
    wanted.iter().all(|(name, val)| {
        let property = match name.strip_prefix("sys.") {
            Some(name) => Expr::Sys(name.to_owned()),
            None => Expr::User(name.clone()),
        };
        let constant = Expr::Constant(String::new(), val.clone());
        world.truth(&Pred::Compare("=", property, constant)) == Ok(Some(true))
    })
}

const RULE_NAMES: &[&str] = &["alpha", "Beta", "GAMMA", "$Default", "z"];

fn draw(generator: &mut Generator, name: &'static str) -> (Judged, RuleDescription) {
    let (filter, description) = match generator.random.below(10) {
        0 => (Judge::True, Filter::True),
        1 => (Judge::False, Filter::False),
        2..=6 => {
            let mut filter = CorrelationFilter::default();
            let mut wanted = Vec::new();
            if generator.random.one_in(4) {
                filter.subject = Some("a".into());
                wanted.push(("sys.Label".to_owned(), Val::Text("a".to_owned())));
            }
            for property in ["a", "b", "BB", "Größe"] {
                let val = generator.value();
                let asked =
                    generator.random.one_in(3) || (property == "Größe" && wanted.is_empty());
                if !asked || val == Val::Null {
                    continue;
                }
                filter = filter.and_property(property, value(&val));
                wanted.push((property.to_owned(), val));
            }
            if wanted.is_empty() {
                filter = filter.and_property("a", 1);
                wanted.push(("a".to_owned(), Val::Int(1, "i32")));
            }
            (Judge::Correlation(wanted), Filter::Correlation(filter))
        }
        _ => {
            let mut parameters = Vec::new();
            let pred = generator.pred(1, &mut parameters);
            let text = generator.write_pred(&pred, 1).into();
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, val)| all.with(name, value(val)));
            (Judge::Sql(Box::new(pred)), Filter::Sql(SqlText { text, parameters }))
        }
    };
    let mut description = RuleDescription::new(name, description, Timestamp::NONE);
    let action = match generator.random.below(8) {
        0 => Some(Action::Fails),
        1 | 2 => Some(Action::Works),
        _ => None,
    };
    match action {
        Some(Action::Works) => description = description.with_action("SET made = 1; REMOVE a"),
        Some(Action::Fails) => description = description.with_action("SET made = 1 / 0"),
        None => {}
    }
    (Judged { name, filter, action }, description)
}

struct Topic {
    limits: Limits,
    matcher: Matcher,
    subscriptions: BTreeMap<u64, Subscription>,
}

impl Topic {
    /// Changes a random rule, in the matcher and in the book.
    fn change(&mut self, generator: &mut Generator) {
        let id = generator.random.below(6);
        let entity = EntityId(id);
        let name = RULE_NAMES[generator.random.index(RULE_NAMES.len())];
        let (judged, description) = draw(generator, name);
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            let settings = SubscriptionSettings {
                dead_lettering_on_filter_errors: generator.random.one_in(2),
                requires_session: generator.random.one_in(6),
                catch_all: generator.random.one_in(4),
            };
            let rules = vec![description];
            let default = RuleDescription::default_rule(Timestamp::NONE);
            let made =
                self.matcher.create_subscription(entity, settings, rules, default, &self.limits);
            made.unwrap_or_else(|rejection| panic!("{rejection}"));
            let rules = BTreeMap::from([(name.to_lowercase(), judged)]);
            self.subscriptions.insert(id, Subscription { settings, rules });
            return;
        };
        let key = name.to_lowercase();
        let known = subscription.rules.contains_key(&key);
        match generator.random.below(12) {
            0 => {
                self.subscriptions.remove(&id);
                self.matcher.remove_subscription(entity);
            }
            1 => {
                let settings = &mut subscription.settings;
                match generator.random.one_in(2) {
                    true => settings.dead_lettering_on_filter_errors ^= true,
                    false => settings.catch_all ^= true,
                }
                self.matcher.restore_subscription(entity, *settings);
            }
            2 | 3 => {
                let removed = self.matcher.remove_rule(entity, &name.to_uppercase()).is_ok();
                assert_eq!(removed, subscription.rules.remove(&key).is_some());
            }
            _ if known => {
                let updated = self.matcher.update_rule(entity, description, &self.limits);
                updated.unwrap_or_else(|rejection| panic!("{rejection}"));
                subscription.rules.insert(key, judged);
            }
            _ => {
                let created = self.matcher.create_rule(entity, description, &self.limits);
                created.unwrap_or_else(|rejection| panic!("{rejection}"));
                subscription.rules.insert(key, judged);
            }
        }
    }

    /// TOP-25 to TOP-28: a catch-all gets copies of messages that no other subscription selects.
    fn expected(&self, world: &World) -> Vec<(u64, Made)> {
        let made = |one: &Subscription| one.copies(world);
        let selects = |one: &Subscription| {
            made(one).iter().any(|made| !matches!(made, Made::Dead(..))) && !one.settings.catch_all
        };
        let is_selected = self.subscriptions.values().any(selects);
        let asked = self
            .subscriptions
            .iter()
            .filter(|(_, subscription)| !subscription.settings.catch_all || !is_selected);
        asked.flat_map(|(id, one)| made(one).into_iter().map(|made| (*id, made))).collect()
    }

    /// The matcher's copies of a message, in the form of the book.
    fn made(&self, world: &World) -> Vec<(u64, Made)> {
        let content = message(world);
        let published = PublishedMessage::new(content.property_view(), facts(world));
        let selection = self.matcher.publish(&content, &published, &self.limits, &mut || 0);
        let mut made = Vec::new();
        for copy in selection.copies {
            let rule = copy.changed.as_ref().map(|changed| changed.rule.to_string());
            if let Some(changed) = &copy.changed {
                let properties: Vec<_> = changed.overlay.properties().collect();
                assert!(properties.contains(&("made", Value::I64(1))));
                assert!(properties.contains(&("RuleName", Value::from(&*changed.rule))));
            }
            let what = match (copy.refusal, rule) {
                (None, None) => Made::Plain,
                (None, Some(rule)) => Made::By(rule),
                (Some(refusal), rule) if refusal.cause == Cause::NoSession => Made::Refused(rule),
                (Some(refusal), _) => {
                    let name = refusal.description.split('`').nth(1).unwrap_or_default().to_owned();
                    Made::Dead(refusal.cause, name)
                }
            };
            made.push((copy.subscription.0, what));
        }
        made
    }
}

/// TOP-01, TOP-02, TOP-03, TOP-04, TOP-05, TOP-06, TOP-13, TOP-19, TOP-20, TOP-21, TOP-22, TOP-23, TOP-24,
/// TOP-25, TOP-26, TOP-27, TOP-28, DLQ-21, DLQ-23, DLQ-24, DLQ-25, DLQ-27
#[test]
fn a_topic_makes_the_copies_of_its_rules() {
    let first = number("PEEKLOCK_RULES_SEED", 1);
    let mut seen = [0usize; 6];
    let mut caught = 0;
    let count = number("PEEKLOCK_RULES_COUNT", 400);
    for seed in first..first + count {
        let mut generator = Generator { random: Random::new(seed) };
        let mut topic = Topic {
            limits: Limits::of(Tier::Premium),
            matcher: Matcher::new(),
            subscriptions: BTreeMap::new(),
        };
        for step in 0..60 {
            topic.change(&mut generator);
            let world = generator.world();
            let expected = topic.expected(&world);
            assert_eq!(topic.made(&world), expected, "seed {seed}, step {step}: {world:?}");
            for (id, made) in &expected {
                caught += usize::from(topic.subscriptions[id].settings.catch_all);
                let place = match made {
                    Made::Plain => 0,
                    Made::By(_) => 1,
                    Made::Dead(Cause::Filter, _) => 2,
                    Made::Dead(..) => 3,
                    Made::Refused(None) => 4,
                    Made::Refused(Some(_)) => 5,
                };
                seen[place] += 1;
            }
        }
    }
    assert!(count < 100 || caught > 300, "catch-alls have got {caught} copies");
    assert!(count < 100 || seen.iter().all(|one| *one > 300), "hardly seen: {seen:?}");
}
