//! Computes the work that makes a namespace as declared (DEC-06 to DEC-08). Pure: a [`Snapshot`] is
//! the input, a [`PlanWithWork`] the output. It waits for nothing, but yields to other tasks of the
//! thread.

use std::collections::{BTreeMap, BTreeSet};

use super::judge::{place_of_queue, place_of_subscription, place_of_topic};
use super::order::{OrderedEntity, order};
use super::plan::{Change, Plan, Step, StepKind};
use super::property_text::{self, change, changes};
use super::rules::{RuleChanges, RuleWork, property};
use super::yielder::Yielder;
use super::{Declaration, DeclarationError, DeclaredSubscription, Existing, Unnamed};
use crate::broker::Update;
use crate::description::{
    Cleared, Description, Destination, EntityKind, FieldKind, FieldValue, QueueDescription,
    QueueUpdate, Settings, SubscriptionDescription, SubscriptionUpdate, TopicDescription,
    TopicUpdate,
};
use crate::error::{Quoted, Rejection};
use crate::path::{PathKey, subscription_path, validate_entity_path};
use crate::rule::RuleDescription;
use crate::time::Timestamp;

/// Properties that cannot change (ENT-16).
const FIXED: [&str; 3] =
    ["requires_session", "requires_duplicate_detection", "enable_partitioning"];
/// Names of the destinations of messages and of dead letters.
const DESTINATION_NAMES: [&str; 2] = ["forward_to", "forward_dead_lettered_messages_to"];
/// Text for no value.
const NONE: &str = "none";

/// Existing entities that a declaration names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The declared entities that exist.
    pub(crate) entities: BTreeMap<PathKey, ExistingEntity>,
    /// The existing queues and topics among forwarding destinations.
    pub(crate) destinations: BTreeSet<PathKey>,
    /// Existing entities that the declaration deletes, in the order of their deletion.
    pub(crate) unnamed: Vec<UnnamedEntity>,
}

/// An existing entity that a declaration deletes. Its step identifies it, so that no other entity
/// with its path is deleted (DEC-18).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct UnnamedEntity {
    pub(crate) kind: EntityKind,
    pub(crate) path: Box<str>,
    pub(crate) created_at: Timestamp,
    /// Number of subscriptions that a topic has, which are deleted with it.
    pub(crate) subscription_count: Option<u64>,
}

impl UnnamedEntity {
    /// Whether the entity that is present is this one, without further subscriptions.
    pub(crate) fn covers(&self, present: &Self) -> bool {
        present.created_at == self.created_at
            && present.subscription_count <= self.subscription_count
    }
}

/// An existing entity; a subscription with the differences of its rules.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ExistingEntity {
    Queue(QueueDescription),
    Topic(TopicDescription),
    Subscription(SubscriptionDescription, RuleChanges),
}

/// A plan, with the work of each step.
#[derive(Clone, Debug)]
pub(crate) struct PlanWithWork {
    pub(crate) plan: Plan,
    pub(crate) work: Vec<StepWork>,
}

/// Work of a step for the broker.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StepWork {
    CreateQueue(QueueUpdate),
    UpdateQueue(QueueUpdate, Cleared),
    CreateTopic(TopicUpdate),
    UpdateTopic(TopicUpdate, Cleared),
    CreateSubscription(NewSubscription),
    UpdateSubscription(SubscriptionUpdate, Cleared, Vec<RuleWork>),
    Delete(UnnamedEntity),
}

/// A subscription to create.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NewSubscription {
    pub(crate) topic: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) properties: SubscriptionUpdate,
    pub(crate) rules: Option<Vec<RuleDescription>>,
}

/// A step with its work.
type Task = (Step, StepWork);

/// A missing queue or subscription.
struct MissingEntity {
    /// Position among all declared entities.
    place: usize,
    path: Box<str>,
    new: NewEntity,
    /// Its destinations that are also missing: messages, dead letters.
    needs: [Option<PathKey>; 2],
}

enum NewEntity {
    Queue(QueueUpdate),
    Subscription(NewSubscription),
}

struct Planner<'a> {
    /// Each entity is removed when it is planned, since none is declared twice.
    snapshot: Snapshot,
    settings: &'a Settings,
    existing: Existing,
    unnamed: Unnamed,
    /// Declared queues and topics, which can be forwarding destinations.
    declared: BTreeSet<PathKey>,
    /// Number of declared entities planned until now.
    place: usize,
    topics: Vec<Task>,
    missing: Vec<MissingEntity>,
    /// By position, so that a plan made after some steps are done has the same order.
    updates: BTreeMap<usize, Task>,
    kept: Vec<Step>,
    unchanged_count: usize,
}

/// Returns the steps for a declaration that was judged.
///
/// # Errors
/// A conflict between the declaration and existing entities.
pub(crate) async fn plan(
    declaration: &Declaration,
    snapshot: Snapshot,
    settings: &Settings,
    yielder: &mut Yielder,
) -> Result<PlanWithWork, DeclarationError> {
    let mut planner = Planner {
        snapshot,
        settings,
        existing: declaration.existing,
        unnamed: declaration.unnamed,
        declared: declared(declaration, settings),
        place: 0,
        topics: Vec::new(),
        missing: Vec::new(),
        updates: BTreeMap::new(),
        kept: Vec::new(),
        unchanged_count: 0,
    };
    for (index, topic) in declaration.topics.iter().enumerate() {
        let planned = planner.topic(&topic.path, &topic.properties, topic.cleared);
        planned.map_err(DeclarationError::at(place_of_topic(index)))?;
        yielder.part().await;
    }
    for (index, queue) in declaration.queues.iter().enumerate() {
        let planned = planner.queue(&queue.path, &queue.properties, queue.cleared);
        planned.map_err(DeclarationError::at(place_of_queue(index)))?;
        yielder.part().await;
    }
    for (index, topic) in declaration.topics.iter().enumerate() {
        for (below, subscription) in topic.subscriptions.iter().enumerate() {
            let planned = planner.subscription(&topic.path, subscription, yielder).await;
            planned.map_err(DeclarationError::at(place_of_subscription(index, below)))?;
            yielder.part().await;
        }
    }
    planner.finish(yielder).await.map_err(DeclarationError::at(""))
}

/// Returns the declared queues and topics, which can be forwarding destinations.
fn declared(declaration: &Declaration, settings: &Settings) -> BTreeSet<PathKey> {
    let roots = declaration.queues.iter().map(|queue| &queue.path);
    let roots = roots.chain(declaration.topics.iter().map(|topic| &topic.path));
    // Invalid paths were refused before.
    roots
        .filter_map(|path| Some(validate_entity_path(path, &settings.limits).ok()?.key()))
        .collect()
}

impl Planner<'_> {
    fn topic(
        &mut self,
        path: &str,
        properties: &TopicUpdate,
        cleared: Cleared,
    ) -> Result<(), Rejection> {
        self.place += 1;
        let name = validate_entity_path(path, &self.settings.limits)?;
        let found = self.snapshot.entities.remove(&name.key());
        match found {
            None => {
                let created = properties.clone().create(name.path(), self.settings)?;
                let changes = changes(&self.settings.new_topic(name.path()), &created);
                let step = creation(EntityKind::Topic, &name.path(), changes);
                self.topics.push((step, StepWork::CreateTopic(properties.clone())));
                Ok(())
            }
            Some(ExistingEntity::Topic(current)) => {
                let changes = self.update(&current.path, properties, cleared, &current)?;
                let work = || StepWork::UpdateTopic(properties.clone(), cleared);
                self.updated(EntityKind::Topic, &current.path, changes, work);
                Ok(())
            }
            Some(found) => Err(wrong_kind_error(EntityKind::Topic, path, &found)),
        }
    }

    fn queue(
        &mut self,
        path: &str,
        properties: &QueueUpdate,
        cleared: Cleared,
    ) -> Result<(), Rejection> {
        self.place += 1;
        let name = validate_entity_path(path, &self.settings.limits)?;
        let found = self.snapshot.entities.remove(&name.key());
        match found {
            None => {
                let path = name.path();
                let created = properties.clone().create(&*path, self.settings)?;
                let needs = self.needs(EntityKind::Queue, &path, destinations(&created))?;
                let new = NewEntity::Queue(properties.clone());
                self.missing.push(MissingEntity {
                    place: self.place,
                    path: path.into(),
                    new,
                    needs,
                });
                Ok(())
            }
            Some(ExistingEntity::Queue(current)) => {
                let changes = self.update(&current.path, properties, cleared, &current)?;
                let work = || StepWork::UpdateQueue(properties.clone(), cleared);
                self.updated(EntityKind::Queue, &current.path, changes, work);
                Ok(())
            }
            Some(found) => Err(wrong_kind_error(EntityKind::Queue, path, &found)),
        }
    }

    async fn subscription(
        &mut self,
        topic: &str,
        declared: &DeclaredSubscription,
        yielder: &mut Yielder,
    ) -> Result<(), Rejection> {
        self.place += 1;
        let topic = validate_entity_path(topic, &self.settings.limits)?.path().to_string();
        let DeclaredSubscription { name, properties, cleared, rules, .. } = declared;
        let path = subscription_path(&topic, name);
        let found = self.snapshot.entities.remove(&PathKey::fold(&path));
        match found {
            None => {
                let rules = copy_rules(rules.as_deref(), yielder).await;
                let (topic, name, properties) = (topic.into(), name.clone(), properties.clone());
                let new = NewSubscription { topic, name, properties, rules };
                let created = new.described(self.settings)?;
                let to = [&created.forward_to, &created.forward_dead_lettered_messages_to];
                let needs =
                    self.needs(EntityKind::Subscription, &path, to.map(Option::as_deref))?;
                let new = NewEntity::Subscription(new);
                self.missing.push(MissingEntity {
                    place: self.place,
                    path: path.into(),
                    new,
                    needs,
                });
                Ok(())
            }
            Some(ExistingEntity::Subscription(current, of_rules)) => {
                let path = current.path();
                let mut changes = self.update(&path, properties, *cleared, &current)?;
                changes.extend(of_rules.changes);
                let rules = of_rules.work;
                let work = || StepWork::UpdateSubscription(properties.clone(), *cleared, rules);
                self.updated(EntityKind::Subscription, &path, changes, work);
                Ok(())
            }
            Some(found) => Err(wrong_kind_error(EntityKind::Subscription, &path, &found)),
        }
    }

    /// Returns the changes of an update, if it is possible.
    fn update<U: Update>(
        &self,
        path: &str,
        properties: &U,
        cleared: Cleared,
        current: &U::Description,
    ) -> Result<Vec<Change>, Rejection> {
        let mut properties = properties.clone();
        properties.keep(cleared, current);
        let after = properties.clone().over(current);
        let changes = changes(current, &after);
        let is_kept = changes.is_empty() || self.existing == Existing::Keep;
        let left = if is_kept { current } else { &after };
        self.refuse_deleted(U::KIND, path, U::destinations(left))?;
        if is_kept {
            return Ok(changes);
        }
        if let Some(fixed) = changes.iter().find(|change| FIXED.contains(&&*change.property)) {
            return Err(fixed_property_error(U::KIND, path, fixed));
        }
        properties.apply_to(current, &self.settings.limits)?;
        self.needs(U::KIND, path, U::destinations(&after))?;
        Ok(changes)
    }

    fn updated(
        &mut self,
        entity: EntityKind,
        path: &str,
        changes: Vec<Change>,
        work: impl FnOnce() -> StepWork,
    ) {
        if changes.is_empty() {
            self.unchanged_count += 1;
            return;
        }
        let step = Step { kind: StepKind::Update, entity, path: path.into(), changes };
        match self.existing {
            Existing::Update => {
                self.updates.insert(self.place, (step, work()));
            }
            Existing::Keep => self.kept.push(step),
        }
    }

    /// Refuses destinations that the declaration deletes (DEC-19).
    fn refuse_deleted(
        &self,
        kind: EntityKind,
        path: &str,
        destinations: [Option<&str>; 2],
    ) -> Result<(), Rejection> {
        if self.unnamed == Unnamed::Keep {
            return Ok(());
        }
        for (text, name) in destinations.into_iter().zip(DESTINATION_NAMES) {
            if let Some(text) = text
                && let Ok(Destination::Entity(key)) = Destination::parse(text)
                && self.snapshot.destinations.contains(&key)
                && !self.declared.contains(&key)
            {
                return Err(Rejection::invalid_operation(format!(
                    "{name} of {kind} {} names {}, which would be deleted because it is not \
                     declared; declare it, or remove the destination",
                    Quoted(path),
                    Quoted(text)
                )));
            }
        }
        Ok(())
    }

    /// Returns the destinations that do not exist yet (DEC-08).
    fn needs(
        &self,
        kind: EntityKind,
        path: &str,
        destinations: [Option<&str>; 2],
    ) -> Result<[Option<PathKey>; 2], Rejection> {
        self.refuse_deleted(kind, path, destinations)?;
        let mut needs = [None, None];
        for ((text, need), name) in destinations.into_iter().zip(&mut needs).zip(DESTINATION_NAMES)
        {
            let Some(text) = text else { continue };
            let Destination::Entity(key) = Destination::parse(text)? else { continue };
            if self.snapshot.destinations.contains(&key) {
                continue;
            }
            if !self.declared.contains(&key) {
                return Err(Rejection::new(
                    crate::condition::Condition::EntityNotFound,
                    format!(
                        "{name} of {kind} {} names {}, which neither exists nor is declared; \
                         declare it, or create it first",
                        Quoted(path),
                        Quoted(text)
                    ),
                ));
            }
            *need = Some(key);
        }
        Ok(needs)
    }

    /// Returns all steps in order.
    async fn finish(self, yielder: &mut Yielder) -> Result<PlanWithWork, Rejection> {
        let Self {
            snapshot, settings, topics, missing, mut updates, kept, unchanged_count, ..
        } = self;
        let mut steps = topics;
        // Topics come before all missing entities, and need none.
        let places: BTreeMap<PathKey, usize> = missing
            .iter()
            .enumerate()
            .map(|(index, one)| (PathKey::fold(&one.path), index))
            .collect();
        let ordered = order(&needs_of(&missing, &places), yielder).await;
        let mut missing: Vec<Option<MissingEntity>> = missing.into_iter().map(Some).collect();
        for OrderedEntity { index, later } in ordered {
            let Some(one) = missing.get_mut(index).and_then(Option::take) else { continue };
            let comes_later = one.needs.clone().map(|need| {
                need.and_then(|key| places.get(&key)).is_some_and(|place| later.contains(place))
            });
            let place = one.place;
            let (now, then) = one.into_steps(comes_later, settings, yielder).await?;
            steps.push(now);
            updates.extend(then.map(|update| (place, update)));
            yielder.part().await;
        }
        steps.extend(updates.into_values());
        for unnamed in snapshot.unnamed {
            steps.push((deletion(&unnamed), StepWork::Delete(unnamed)));
            yielder.part().await;
        }
        let (steps, work) = steps.into_iter().unzip();
        Ok(PlanWithWork { plan: Plan::new(steps, kept, unchanged_count, yielder).await, work })
    }
}

/// Returns for each missing entity the places of its needs.
fn needs_of(missing: &[MissingEntity], places: &BTreeMap<PathKey, usize>) -> Vec<Vec<usize>> {
    let needs = |one: &MissingEntity| {
        one.needs.iter().flatten().filter_map(|key| places.get(key).copied()).collect()
    };
    missing.iter().map(needs).collect()
}

/// Copies declared rules for the work that creates them.
async fn copy_rules(
    rules: Option<&[RuleDescription]>,
    yielder: &mut Yielder,
) -> Option<Vec<RuleDescription>> {
    let rules = rules?;
    let mut copies = Vec::with_capacity(rules.len());
    for rule in rules {
        copies.push(rule.clone());
        yielder.part().await;
    }
    Some(copies)
}

impl MissingEntity {
    /// Returns the step that creates the entity, and a step for destinations that come later, if
    /// there are any.
    async fn into_steps(
        self,
        comes_later: [bool; 2],
        settings: &Settings,
        yielder: &mut Yielder,
    ) -> Result<(Task, Option<Task>), Rejection> {
        let Self { path, new, .. } = self;
        match new {
            NewEntity::Queue(whole) => {
                let described =
                    |properties: &QueueUpdate| properties.clone().create(&*path, settings);
                let (mut now, mut then) = (whole.clone(), QueueUpdate::default());
                move_later_destinations(&mut now, &mut then, comes_later);
                let (begun, finished) = (described(&now)?, described(&whole)?);
                let created = changes(&settings.new_queue(&*path), &begun);
                let updated = changes(&begun, &finished);
                let create =
                    (creation(EntityKind::Queue, &path, created), StepWork::CreateQueue(now));
                let update = StepWork::UpdateQueue(then, Cleared::default());
                Ok((create, later(EntityKind::Queue, &path, updated, update)))
            }
            NewEntity::Subscription(mut now) => {
                let (finished, mut then) =
                    (now.described(settings)?, SubscriptionUpdate::default());
                move_later_destinations(&mut now.properties, &mut then, comes_later);
                let begun = now.described(settings)?;
                let default = settings.new_subscription(&*now.topic, &*now.name);
                let mut created = changes(&default, &begun);
                match now.rules.as_deref() {
                    Some([]) => created.push(change("rules", None, Some(NONE.into()))),
                    rules => {
                        for rule in rules.unwrap_or_default() {
                            let text = Some(property_text::rule_text(rule));
                            created.push(change(property(&rule.name), None, text));
                            yielder.part().await;
                        }
                    }
                }
                let updated = changes(&begun, &finished);
                let kind = EntityKind::Subscription;
                let create = (creation(kind, &path, created), StepWork::CreateSubscription(now));
                let update = StepWork::UpdateSubscription(then, Cleared::default(), Vec::new());
                Ok((create, later(kind, &path, updated, update)))
            }
        }
    }
}

impl NewSubscription {
    fn described(&self, settings: &Settings) -> Result<SubscriptionDescription, Rejection> {
        self.properties.clone().create(&*self.topic, &*self.name, settings)
    }
}

/// Moves destinations from `now` to `then`.
fn move_later_destinations<U: Update>(now: &mut U, then: &mut U, comes_later: [bool; 2]) {
    let fields = U::Description::FIELDS.iter();
    let destinations = fields.filter(|field| field.kind == FieldKind::Destination);
    for (field, is_later) in destinations.zip(comes_later) {
        if is_later && let Some(destination) = field.named(now) {
            field.put(then, destination);
            field.put(now, FieldValue::Text(None));
        }
    }
}

fn creation(entity: EntityKind, path: &str, mut changes: Vec<Change>) -> Step {
    for change in &mut changes {
        // The entity did not exist, so its defaults were not in force.
        change.before = None;
    }
    Step { kind: StepKind::Create, entity, path: path.into(), changes }
}

/// Returns the step of a deletion, with the facts that identify its entity.
fn deletion(unnamed: &UnnamedEntity) -> Step {
    let UnnamedEntity { kind, path, created_at, subscription_count } = unnamed;
    let mut changes = vec![change("created_at", Some(created_at.to_string().into()), None)];
    if let Some(count) = subscription_count {
        changes.push(change("subscription_count", Some(count.to_string().into()), None));
    }
    Step { kind: StepKind::Delete, entity: *kind, path: path.clone(), changes }
}

fn later(entity: EntityKind, path: &str, changes: Vec<Change>, work: StepWork) -> Option<Task> {
    let step = Step { kind: StepKind::Update, entity, path: path.into(), changes };
    (!step.changes.is_empty()).then_some((step, work))
}

fn destinations(description: &QueueDescription) -> [Option<&str>; 2] {
    QueueUpdate::destinations(description)
}

/// Refuses a change of a property that is fixed at creation (DEC-05).
fn fixed_property_error(kind: EntityKind, path: &str, fixed: &Change) -> Rejection {
    let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or(NONE).to_owned();
    Rejection::argument(format!(
        "{} of {kind} {} is {} and cannot become {}: it is fixed at creation; declare the existing \
         value, or delete the {kind} so that it is created again",
        fixed.property,
        Quoted(path),
        text(&fixed.before),
        text(&fixed.after),
    ))
}

/// Refuses a declaration with the path of an entity of another kind (DEC-05).
fn wrong_kind_error(wanted: EntityKind, path: &str, found: &ExistingEntity) -> Rejection {
    let found = match found {
        ExistingEntity::Queue(_) => EntityKind::Queue,
        ExistingEntity::Topic(_) => EntityKind::Topic,
        ExistingEntity::Subscription(..) => EntityKind::Subscription,
    };
    Rejection::new(
        crate::condition::Condition::EntityAlreadyExists,
        format!(
            "{} is declared as a {wanted} but exists as a {found}; declare another path, or delete \
             the {found}",
            Quoted(path)
        ),
    )
}
