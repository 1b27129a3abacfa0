//! The rules of a topic apart from it, to try them on messages that are not published (CON-35 to
//! CON-37). Management makes such a trial from the stored rules; a topic never does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::properties::{Acceptance, PublishedMessage};
use super::sql::Random;
use super::{
    Copy, EvaluatedMessage, Matcher, Rule, RuleDescription, RuleEvaluation, RulePlace, Selection,
    SubscriptionSettings,
};
use crate::error::{Quoted, Rejection};
use crate::ids::EntityId;
use crate::limits::Limits;
use crate::message::{Content, ContentError, Message, Overlay};

/// A published message as the rules of its topic saw it (CON-36).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledMessage {
    /// Its content. Rules do not read the body.
    pub content: Content,
    /// Properties that were set on its way to the topic.
    pub changes: Option<Overlay>,
    /// Facts from the topic.
    pub acceptance: Acceptance,
    /// Number of its copies.
    pub copy_count: u32,
}

/// A change of the rules of a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct RuleChange {
    /// Name of the subscription.
    pub subscription: Box<str>,
    /// The change.
    pub edit: RuleEdit,
}

/// A change of a rule.
#[derive(Clone, PartialEq, Debug)]
pub enum RuleEdit {
    /// Adds the rule, or replaces the rule of that name.
    Set(Box<RuleDescription>),
    /// Removes the rule of that name.
    Remove(Box<str>),
}

/// Difference between the copies of a message in a subscription before and after changes of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelectionChange {
    /// It gets the message only after the changes.
    Gained,
    /// It gets the message only before the changes.
    Lost,
    /// It gets other copies of the message.
    Changed,
}

/// The rules of a topic, apart from it.
#[derive(Clone, Debug, Default)]
pub struct TopicTrial {
    matcher: Matcher,
    /// Names of the subscriptions, at the places of their ids here.
    names: Vec<Arc<str>>,
}

impl SampledMessage {
    /// Returns a copy without body, which keeps no other memory.
    #[must_use]
    pub fn without_body(&self) -> Self {
        let copied = |overlay: &Overlay| {
            Overlay::from_bytes(bytes::Bytes::copy_from_slice(overlay.as_bytes()))
        };
        Self {
            content: self.content.without_body(),
            changes: self.changes.as_ref().map(copied),
            ..*self
        }
    }

    /// Bytes of its content and changes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let changes = self.changes.as_ref().map_or(0, |changes| changes.as_bytes().len());
        self.content.as_bytes().len().saturating_add(changes)
    }

    /// Bytes of its copy without body, as [`Self::bytes`].
    #[must_use]
    pub fn bytes_without_body(&self) -> usize {
        let changes = self.changes.as_ref().map_or(0, |changes| changes.as_bytes().len());
        self.content.bytes_without_body().saturating_add(changes)
    }

    /// The properties that rules can read.
    #[must_use]
    pub fn published(&self) -> PublishedMessage<'_> {
        PublishedMessage::accepted(&self.content, self.changes.as_ref(), self.acceptance)
    }

    /// The typed view, with the changes.
    ///
    /// # Errors
    /// As for [`Content::decode`].
    pub fn message(&self) -> Result<Message, ContentError> {
        self.content.message(&self.changes)
    }
}

impl TopicTrial {
    /// Adds a subscription, and returns its id here.
    pub fn add_subscription(&mut self, name: Arc<str>, settings: SubscriptionSettings) -> EntityId {
        let id = EntityId(self.names.len() as u64);
        self.names.push(name);
        self.matcher.restore_subscription(id, settings);
        id
    }

    /// Adds a stored rule.
    ///
    /// # Errors
    /// `InternalError` if this version cannot read the rule.
    pub fn add_rule(
        &mut self,
        subscription: EntityId,
        rule: RuleDescription,
    ) -> Result<(), Rejection> {
        let name = rule.name.clone();
        let rule = Rule::restore(rule).map_err(|error| {
            Rejection::internal(format!("the stored rule {} is malformed: {error}", Quoted(&name)))
        })?;
        self.matcher.restore_rule(subscription, rule);
        Ok(())
    }

    /// Changes a rule, as the topic would.
    ///
    /// # Errors
    /// `EntityNotFound` without the subscription, or without the rule to remove; as
    /// [`Matcher::check_rule`] and [`Matcher::check_update`] for a rule.
    pub fn change(&mut self, change: &RuleChange, limits: &Limits) -> Result<(), Rejection> {
        let wanted = &*change.subscription;
        let Some(id) = self.subscription(wanted) else {
            return Err(Rejection::entity_not_found(wanted));
        };
        match &change.edit {
            RuleEdit::Remove(name) => self.matcher.remove_rule(id, name),
            RuleEdit::Set(rule) if self.matcher.rule(id, &rule.name).is_some() => {
                self.matcher.update_rule(id, (**rule).clone(), limits)
            }
            RuleEdit::Set(rule) => self.matcher.create_rule(id, (**rule).clone(), limits),
        }
    }

    /// The subscriptions, in the order in which they were added.
    pub fn subscriptions(&self) -> impl Iterator<Item = (EntityId, &Arc<str>)> {
        (0..).map(EntityId).zip(&self.names)
    }

    /// The subscription of a name, in any case.
    #[must_use]
    pub fn subscription(&self, wanted: &str) -> Option<EntityId> {
        let found = self.subscriptions().find(|(_, name)| name.eq_ignore_ascii_case(wanted));
        found.map(|(id, _)| id)
    }

    /// The name of a subscription.
    #[must_use]
    pub fn name(&self, subscription: EntityId) -> Option<&Arc<str>> {
        self.names.get(usize::try_from(subscription.0).ok()?)
    }

    /// The rules of a subscription in the order of their names.
    pub fn rules(&self, subscription: EntityId) -> impl Iterator<Item = &Rule> {
        self.matcher.rules(subscription)
    }

    /// Whether a subscription gets only messages that no other one selects (TOP-25).
    #[must_use]
    pub fn is_catch_all(&self, subscription: EntityId) -> bool {
        self.matcher.settings(subscription).is_some_and(|settings| settings.catch_all)
    }

    /// The name of the rule at a place.
    #[must_use]
    pub fn rule_name(&self, place: RulePlace) -> Option<&str> {
        self.matcher.name_at(place)
    }

    /// Bytes of memory of all rules.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.matcher.memory_bytes()
    }

    /// Continues to judge a message for about `steps` steps, and returns whether that is complete.
    pub fn advance(
        &self,
        judging: &mut RuleEvaluation,
        message: &SampledMessage,
        (limits, steps): (&Limits, u64),
        random: &mut Random<'_>,
    ) -> bool {
        let published = &message.published();
        let evaluated = EvaluatedMessage { content: &message.content, published, limits };
        self.matcher.advance(judging, &evaluated, steps, random)
    }
}

impl Selection {
    /// The copies that would be stored: none if the topic would refuse the message.
    #[must_use]
    pub fn stored(&self) -> &[Copy] {
        if self.excess.is_some() { &[] } else { &self.copies }
    }

    /// The subscriptions that get a copy, each once.
    pub fn subscriptions(&self) -> impl Iterator<Item = EntityId> {
        let copies = self.stored();
        let mut last = None;
        copies.iter().filter_map(move |copy| {
            let is_new = last != Some(copy.subscription);
            last = Some(copy.subscription);
            is_new.then_some(copy.subscription)
        })
    }

    /// The subscriptions whose copies differ in another selection, which is made by changed rules.
    #[must_use]
    pub fn changes_to(&self, after: &Self) -> Vec<(EntityId, SelectionChange)> {
        let mut copies: BTreeMap<EntityId, [Vec<_>; 2]> = BTreeMap::new();
        for (side, selection) in [self, after].into_iter().enumerate() {
            for copy in selection.stored() {
                let sides = copies.entry(copy.subscription).or_default();
                if let Some(list) = sides.get_mut(side) {
                    list.push((&copy.changed, &copy.refusal));
                }
            }
        }
        let changed = copies.into_iter().filter_map(|(subscription, [before, after])| {
            let change = match (before.is_empty(), after.is_empty()) {
                (true, _) => SelectionChange::Gained,
                (_, true) => SelectionChange::Lost,
                _ if before == after => return None,
                _ => SelectionChange::Changed,
            };
            Some((subscription, change))
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::SelectionChange::{Changed, Gained, Lost};
    use super::*;
    use crate::condition::Condition;
    use crate::ids::SequenceNumber;
    use crate::limits::Tier;
    use crate::time::{TimeSpan, Timestamp};

    const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);
    const SETTINGS: SubscriptionSettings = SubscriptionSettings {
        dead_lettering_on_filter_errors: false,
        requires_session: false,
        catch_all: false,
    };

    fn limits() -> Limits {
        Limits::of(Tier::Premium)
    }

    fn sql(name: &str, text: &str) -> RuleDescription {
        RuleDescription::new(name, Filter::sql(text), NOW)
    }

    fn trial() -> TopicTrial {
        let mut trial = TopicTrial::default();
        let eu = trial.add_subscription("eu".into(), SETTINGS);
        trial.add_rule(eu, sql("r", "region = 'eu'")).unwrap();
        let dear = trial.add_subscription("dear".into(), SETTINGS);
        trial.add_rule(dear, sql("r", "price > 5")).unwrap();
        let rest = SubscriptionSettings { catch_all: true, ..SETTINGS };
        let rest = trial.add_subscription("rest".into(), rest);
        trial.add_rule(rest, RuleDescription::default_rule(NOW)).unwrap();
        trial
    }

    fn sample(region: &str, price: i32) -> SampledMessage {
        let mut message = Message::new("two coffees");
        message.application_properties =
            vec![("region".to_owned(), region.into()), ("price".to_owned(), price.into())];
        let content = message.encode();
        let acceptance = Acceptance {
            sequence: SequenceNumber(1),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: NOW,
            time_to_live_max: TimeSpan::from_minutes(1),
            size: content.size(),
        };
        SampledMessage { content, changes: None, acceptance, copy_count: 0 }
    }

    fn select(trial: &TopicTrial, message: &SampledMessage) -> Selection {
        select_within(trial, message, &limits())
    }

    fn select_within(trial: &TopicTrial, message: &SampledMessage, limits: &Limits) -> Selection {
        let mut judging = RuleEvaluation::default();
        while !trial.advance(&mut judging, message, (limits, 1), &mut || 4) {}
        judging.into_selection()
    }

    fn change(subscription: &str, edit: RuleEdit) -> RuleChange {
        RuleChange { subscription: subscription.into(), edit }
    }

    /// CON-36: a sample without body selects the same, and keeps its properties.
    #[test]
    fn a_sample_without_body_selects_the_same() {
        let whole = sample("eu", 7);
        let head = whole.without_body();
        assert!(head.bytes() < whole.bytes());
        assert_eq!(select(&trial(), &head), select(&trial(), &whole));
        let message = head.message().unwrap();
        assert!(message.body.as_bytes().is_empty());
        assert_eq!(message.application_properties.len(), 2);
        assert_eq!(head.published().facts().size, u64::from(whole.content.size()));
    }

    /// CON-37, TOP-25: changed, added and removed rules change the subscriptions of messages, also
    /// of a catch-all.
    #[test]
    fn changes_of_rules_name_the_subscriptions_that_differ() {
        let before = trial();
        let mut after = before.clone();
        let limits = limits();
        let set = |rule| RuleEdit::Set(Box::new(rule));
        after.change(&change("EU", set(sql("R", "region = 'us'"))), &limits).unwrap();
        after.change(&change("dear", RuleEdit::Remove("r".into())), &limits).unwrap();
        let acting = sql("s", "price > 5").with_action("SET x = 1");
        after.change(&change("dear", set(acting)), &limits).unwrap();
        let differing = |message: &SampledMessage| {
            let changes = select(&before, message).changes_to(&select(&after, message));
            let named =
                changes.into_iter().map(|(id, change)| (&**before.name(id).unwrap(), change));
            named.collect::<Vec<_>>()
        };
        assert_eq!(differing(&sample("eu", 7)), [("eu", Lost), ("dear", Changed)]);
        assert_eq!(differing(&sample("us", 1)), [("eu", Gained), ("rest", Lost)]);
        assert_eq!(differing(&sample("eu", 1)), [("eu", Lost), ("rest", Gained)]);
        assert_eq!(differing(&sample("ch", 1)), []);
        let named = select(&before, &sample("eu", 7)).subscriptions().collect::<Vec<_>>();
        assert_eq!(named, [EntityId(0), EntityId(1)]);
    }

    /// CON-37: a message that the topic would refuse, since it had too many copies, has none.
    #[test]
    fn a_message_with_too_many_copies_has_none() {
        let limits = Limits { publish_copy_count_max: 1, ..limits() };
        let selection = select_within(&trial(), &sample("eu", 7), &limits);
        assert!(selection.stored().is_empty() && selection.subscriptions().next().is_none());
        assert_eq!(select_within(&trial(), &sample("eu", 1), &limits).stored().len(), 1);
    }

    /// CON-37: a change that the topic would refuse is refused.
    #[test]
    fn a_change_that_the_topic_would_refuse_is_refused() {
        let mut trial = trial();
        let mut refused = |subscription, edit| {
            trial.change(&change(subscription, edit), &limits()).unwrap_err().condition()
        };
        let set = |text| RuleEdit::Set(Box::new(sql("r", text)));
        assert_eq!(refused("none", set("1 = 1")), Condition::EntityNotFound);
        assert_eq!(refused("eu", RuleEdit::Remove("s".into())), Condition::EntityNotFound);
        assert_eq!(refused("eu", set("price >")), Condition::ArgumentError);
    }
}
