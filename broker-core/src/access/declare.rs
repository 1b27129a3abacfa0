//! Plans and carries out declarations: finds the declared entities that exist, computes the missing
//! steps, and checks the rights for them (DEC-06 to DEC-12). Each step is an ordinary management
//! operation with the usual checks.

use std::borrow::Cow;

use super::Access;
use super::unnamed::{present_entity, unnamed_entities};
use crate::broker::Broker;
use crate::call::BoxFuture;
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::declaration::planner::{
    ExistingEntity, NewSubscription, PlanWithWork, Snapshot, StepWork, UnnamedEntity, plan,
};
use crate::declaration::rules::{RuleChanges, RuleDifference, RuleTextBudget, RuleWork};
use crate::declaration::yielder::Yielder;
use crate::declaration::{
    Declaration, Digest, OtherRules, Plan, PlanResult, STEP_COUNT_MAX, Step, Unnamed,
};
use crate::description::{Destination, EntityKind, Patch, QueueUpdate, SubscriptionUpdate};
use crate::error::{BrokerError, Quoted, Rejection};
use crate::management::Management;
use crate::path::{EntityAddress, PathKey, subscription_path, validate_entity_path};
use crate::rule::{DEFAULT_RULE, Filter, RuleDescription};
use crate::time::Timestamp;

impl Access {
    /// Returns the steps that make the namespace as declared, for a principal that may manage all
    /// named entities (DEC-06). Changes nothing.
    ///
    /// # Errors
    /// `Unauthorized`; the error of the operation that a declared entity would cause, with its
    /// place in the declaration (DEC-04, DEC-05, DEC-08).
    pub fn plan<'a>(
        &'a self,
        declaration: &'a Declaration,
    ) -> BoxFuture<'a, Result<Plan, BrokerError>> {
        Box::pin(async move { self.planned(declaration).await.map(|planned| planned.plan) })
    }

    /// Carries out the first `steps_max` steps of a plan, in order. Steps before a failed one stay
    /// done (DEC-10, DEC-11). The answer reports the failure of a step.
    ///
    /// # Errors
    /// `UpdateConflict`, with nothing done, if the steps no longer match the digest (DEC-09); as
    /// for [`Access::plan`]; `ServerBusy`, with nothing done, if too many callers wait or an entity
    /// is busy for long.
    pub fn carry_out<'a>(
        &'a self,
        declaration: &'a Declaration,
        digest: Digest,
        steps_max: usize,
    ) -> BoxFuture<'a, Result<PlanResult, BrokerError>> {
        Box::pin(async move {
            self.judge_declaration(declaration).await?;
            let mut turn = self.carrying_out_turn(declaration).await?;
            self.carry_out_in(&mut turn, declaration, digest, steps_max).await
        })
    }

    /// Carries out a plan if it has the given digest.
    pub(super) async fn carry_out_if(
        &self,
        planned: PlanWithWork,
        digest: Digest,
        steps_max: usize,
    ) -> Result<PlanResult, BrokerError> {
        if planned.plan.digest() != digest {
            let detail = "the namespace has changed since this plan was made, so the steps would \
                differ; plan again";
            return Err(self.broker.refuse(Rejection::new(Condition::UpdateConflict, detail), ""));
        }
        Ok(self.carry_out_planned(planned, steps_max).await)
    }

    /// Makes the namespace as declared, and returns the plan that was carried out.
    ///
    /// # Errors
    /// As for [`Access::plan`]; the error of a failed step, with the number of steps done before
    /// it. Declaring again does the rest.
    pub fn declare<'a>(
        &'a self,
        declaration: &'a Declaration,
    ) -> BoxFuture<'a, Result<Plan, BrokerError>> {
        Box::pin(async move {
            let planned = self.planned(declaration).await?;
            let (plan, count) = (planned.plan.clone(), planned.plan.steps.len());
            let PlanResult { done, rest, failure } =
                self.carry_out_planned(planned, usize::MAX).await;
            let Some(failure) = failure else { return Ok(plan) };
            let failed = rest.steps.first().map_or_else(String::new, Step::to_string);
            let detail = format!(
                "{done} of {count} steps are done; {failed} failed: {}; repeat the declaration to do \
                 the rest",
                failure.detail()
            );
            let rejection = Rejection::new(failure.condition(), detail);
            let entity = failure.entity().to_owned();
            Err(BrokerError::new(rejection, failure.tracking_id(), &entity, failure.timestamp()))
        })
    }

    async fn planned(&self, declaration: &Declaration) -> Result<PlanWithWork, BrokerError> {
        self.judge_declaration(declaration).await?;
        planned(&self.broker, declaration).await
    }

    /// Refuses a declaration that no namespace can satisfy, and a principal that may not plan every
    /// named entity (DEC-12).
    pub(super) async fn judge_declaration(
        &self,
        declaration: &Declaration,
    ) -> Result<(), BrokerError> {
        let mut yielder = Yielder::default();
        let named = declared_entities(&self.broker, declaration)?;
        // Unknown principals are refused before more work for the declaration; an invalid
        // declaration causes no further questions to the authorizer.
        if declaration.unnamed == Unnamed::Delete {
            // A plan names every entity that it deletes (DEC-18).
            self.allow(Action::Plan, "").await?;
        } else if let Some(DeclaredEntity { path, .. }) = named.first() {
            self.allow(Action::Plan, path).await?;
        }
        let judged = declaration.judge_in_parts(self.broker.settings(), &mut yielder).await;
        judged.map_err(|refused| self.broker.refuse(refused.into_rejection(), ""))?;
        for DeclaredEntity { path, destinations, .. } in named {
            let path = self.allow(Action::Plan, &path).await?;
            self.allow_forwarding_to(destinations).await?;
            if self.broker.find_created(&path).await.is_err() {
                self.allow(Action::Create, &path).await?;
            }
            yielder.part().await;
        }
        Ok(())
    }

    async fn carry_out_planned(&self, planned: PlanWithWork, steps_max: usize) -> PlanResult {
        let PlanWithWork { plan, work } = planned;
        let (mut done, mut failure) = (0, None);
        for (step, work) in plan.steps.iter().zip(work).take(steps_max) {
            if let Err(error) = self.carry_out_step(&step.path, work).await {
                failure = Some(error);
                break;
            }
            done += 1;
            tracing::info!(entity = &*step.path, kind = step.kind.name(), "made as declared");
        }
        PlanResult { done, rest: plan.after(done).await, failure }
    }

    async fn carry_out_step(&self, path: &str, work: StepWork) -> Result<(), BrokerError> {
        let (request, rules) = match work {
            StepWork::CreateQueue(properties) => {
                (Management::CreateQueue(Box::new(properties)), Vec::new())
            }
            StepWork::CreateTopic(properties) => {
                (Management::CreateTopic(Box::new(properties)), Vec::new())
            }
            StepWork::CreateSubscription(new) => return self.create_declared(path, new).await,
            // Changes the properties named and keeps all others.
            StepWork::UpdateQueue(properties, cleared) => {
                let patch = Patch { cleared, expected_created_at: None };
                (Management::UpdateQueue(Box::new(properties), patch), Vec::new())
            }
            StepWork::UpdateTopic(properties, cleared) => {
                let patch = Patch { cleared, expected_created_at: None };
                (Management::UpdateTopic(Box::new(properties), patch), Vec::new())
            }
            StepWork::UpdateSubscription(properties, cleared, rules) => {
                let patch = Patch { cleared, expected_created_at: None };
                (Management::UpdateSubscription(Box::new(properties), patch), rules)
            }
            StepWork::Delete(unnamed) => return self.delete_unnamed(&unnamed).await,
        };
        self.manage_step(path, request).await?;
        for rule in rules {
            let request = match rule {
                RuleWork::Create(rule) => Management::CreateRule(Box::new(rule)),
                RuleWork::Update(rule) => Management::UpdateRule(Box::new(rule)),
                RuleWork::Delete(name) => Management::DeleteRule(name),
            };
            self.manage_step(path, request).await?;
        }
        Ok(())
    }

    async fn create_declared(&self, path: &str, new: NewSubscription) -> Result<(), BrokerError> {
        let NewSubscription { topic, name, properties, rules } = new;
        let create = |rules| {
            let properties = Box::new(properties);
            Management::CreateSubscription { name, properties, rules }
        };
        let Some([]) = rules.as_deref() else {
            return self.manage_step(&topic, create(rules.unwrap_or_default())).await;
        };
        // A new subscription has at least one rule; this one selects no messages until it is
        // deleted.
        let nothing = RuleDescription::new(DEFAULT_RULE, Filter::False, Timestamp::NONE);
        self.manage_step(&topic, create(vec![nothing])).await?;
        self.manage_step(path, Management::DeleteRule(DEFAULT_RULE.into())).await
    }

    /// Deletes an entity that is not declared, if it is still as in the plan. An entity that is
    /// already gone is done.
    async fn delete_unnamed(&self, planned: &UnnamedEntity) -> Result<(), BrokerError> {
        let UnnamedEntity { kind, path, .. } = planned;
        let Some(present) = present_entity(&self.broker, *kind, path).await? else {
            return Ok(());
        };
        if !planned.covers(&present) {
            let detail = format!(
                "{kind} {} was created again or has got subscriptions since this plan was made; \
                 plan again",
                Quoted(path)
            );
            let rejection = Rejection::new(Condition::UpdateConflict, detail);
            return Err(self.broker.refuse(rejection, path));
        }
        match self.manage_step(path, Management::Delete(*kind)).await {
            Err(error) if error.condition() == Condition::EntityNotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Carries out a management request of a declaration. Boxed, since a declaration is itself a
    /// management request.
    async fn manage_step(&self, path: &str, request: Management) -> Result<(), BrokerError> {
        Box::pin(self.manage(path, request)).await.map(drop)
    }
}

/// Number of steps for one request: at most [`STEP_COUNT_MAX`] (DEC-10).
pub(super) fn step_count(steps_max: Option<usize>) -> usize {
    steps_max.unwrap_or(STEP_COUNT_MAX).min(STEP_COUNT_MAX)
}

/// Returns the steps that make the namespace as declared. The caller has checked the rights.
pub(super) async fn planned(
    broker: &Broker,
    declaration: &Declaration,
) -> Result<PlanWithWork, BrokerError> {
    let mut yielder = Yielder::default();
    let snapshot = snapshot(broker, declaration, &mut yielder).await?;
    let planned = plan(declaration, snapshot, broker.settings(), &mut yielder).await;
    planned.map_err(|refused| broker.refuse(refused.into_rejection(), ""))
}

/// A declared entity.
struct DeclaredEntity<'a> {
    path: Cow<'a, str>,
    /// The declared destinations.
    destinations: [Option<&'a str>; 2],
    /// The complete declared rules, and the treatment of other rules; none if the entity declares
    /// no rules.
    rules: Option<(&'a [RuleDescription], OtherRules)>,
}

/// Returns all declared entities.
fn declared_entities<'a>(
    broker: &Broker,
    declaration: &'a Declaration,
) -> Result<Vec<DeclaredEntity<'a>>, BrokerError> {
    let mut named = Vec::new();
    for queue in &declaration.queues {
        let QueueUpdate { forward_to, forward_dead_lettered_messages_to, .. } = &queue.properties;
        let destinations = [forward_to.as_deref(), forward_dead_lettered_messages_to.as_deref()];
        named.push(DeclaredEntity { path: Cow::from(&*queue.path), destinations, rules: None });
    }
    for topic in &declaration.topics {
        let path = Cow::from(&*topic.path);
        named.push(DeclaredEntity { path, destinations: [None, None], rules: None });
        let limits = &broker.settings().limits;
        let name = validate_entity_path(&topic.path, limits);
        let name = name.map_err(|rejection| broker.refuse(rejection, &topic.path))?;
        for subscription in &topic.subscriptions {
            let SubscriptionUpdate { forward_to, forward_dead_lettered_messages_to, .. } =
                &subscription.properties;
            let destinations =
                [forward_to.as_deref(), forward_dead_lettered_messages_to.as_deref()];
            let path = subscription_path(&name.path(), &subscription.name).into();
            let rules =
                subscription.rules.as_deref().map(|rules| (rules, subscription.other_rules));
            named.push(DeclaredEntity { path, destinations, rules });
        }
    }
    Ok(named)
}

/// Returns the declared entities as they currently are.
async fn snapshot(
    broker: &Broker,
    declaration: &Declaration,
    yielder: &mut Yielder,
) -> Result<Snapshot, BrokerError> {
    let (mut snapshot, mut telling) = (Snapshot::default(), RuleTextBudget::default());
    for one in declared_entities(broker, declaration)? {
        find(broker, &mut snapshot, &one, &mut telling, yielder).await?;
        yielder.part().await;
    }
    if declaration.unnamed == Unnamed::Delete {
        let unnamed = unnamed_entities(broker, declaration, yielder).await;
        for (kind, path) in unnamed.map_err(|rejection| broker.refuse(rejection, ""))? {
            snapshot.unnamed.extend(present_entity(broker, kind, &path).await?);
            yielder.part().await;
        }
    }
    Ok(snapshot)
}

/// Adds an entity, if it exists, and its current and declared destinations.
async fn find(
    broker: &Broker,
    snapshot: &mut Snapshot,
    DeclaredEntity { path, destinations, rules }: &DeclaredEntity<'_>,
    telling: &mut RuleTextBudget,
    yielder: &mut Yielder,
) -> Result<(), BrokerError> {
    let path = super::canonical(path);
    let path = path.as_str();
    for text in destinations.iter().flatten() {
        find_destination_of(broker, snapshot, text)
            .await
            .map_err(|rejection| broker.refuse(rejection, path))?;
    }
    let Some(found) = existing_entity(broker, path, *rules, telling, yielder).await? else {
        return Ok(());
    };
    let kept = match &found {
        ExistingEntity::Queue(queue) => {
            [&queue.forward_to, &queue.forward_dead_lettered_messages_to].map(Option::as_deref)
        }
        ExistingEntity::Subscription(subscription, _) => {
            [&subscription.forward_to, &subscription.forward_dead_lettered_messages_to]
                .map(Option::as_deref)
        }
        ExistingEntity::Topic(_) => [None, None],
    };
    for text in kept.into_iter().flatten() {
        // An existing destination is judged only if it is to be changed.
        let _unserved = find_destination_of(broker, snapshot, text).await;
    }
    let key = EntityAddress::parse(path).map(|address| address.entity.key());
    snapshot.entities.insert(key.unwrap_or_else(|_| PathKey::fold(path)), found);
    Ok(())
}

async fn find_destination_of(
    broker: &Broker,
    snapshot: &mut Snapshot,
    text: &str,
) -> Result<(), Rejection> {
    match Destination::parse(text)? {
        Destination::Entity(key) => {
            if broker.shared.directory.get(&key).is_none() {
                broker.shared.directory.wait_for_creation(&key).await;
            }
            if broker.shared.directory.get(&key).is_some() {
                snapshot.destinations.insert(key);
            }
            Ok(())
        }
        Destination::Foreign(scheme) => broker.shared.forwarders.check(&scheme, text),
    }
}

/// Returns an entity as it currently is; none if it does not exist.
async fn existing_entity(
    broker: &Broker,
    path: &str,
    rules: Option<(&[RuleDescription], OtherRules)>,
    telling: &mut RuleTextBudget,
    yielder: &mut Yielder,
) -> Result<Option<ExistingEntity>, BrokerError> {
    let Ok(entity) = broker.find_created(path).await else { return Ok(None) };
    let found = match entity.kind() {
        EntityKind::Queue => broker
            .describe_queue(path)
            .await
            .map(|described| ExistingEntity::Queue(described.description)),
        EntityKind::Topic => broker
            .describe_topic(path)
            .await
            .map(|described| ExistingEntity::Topic(described.description)),
        EntityKind::Subscription => {
            existing_subscription(broker, path, rules, telling, yielder).await
        }
    };
    match found {
        Ok(found) => Ok(Some(found)),
        // It was deleted meanwhile.
        Err(error) if error.condition() == Condition::EntityNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn existing_subscription(
    broker: &Broker,
    path: &str,
    rules: Option<(&[RuleDescription], OtherRules)>,
    telling: &mut RuleTextBudget,
    yielder: &mut Yielder,
) -> Result<ExistingEntity, BrokerError> {
    let description = broker.describe_subscription(path).await?.description;
    let Some((declared, others)) = rules else {
        // Its rules are not declared, so they are not read.
        return Ok(ExistingEntity::Subscription(description, RuleChanges::default()));
    };
    let mut difference = RuleDifference::new(declared, others, yielder).await;
    let mut met = 0;
    loop {
        let page = broker.page_of_rules(path, met, usize::MAX).await?;
        if page.is_empty() {
            let changes = difference.into_changes(yielder).await;
            return Ok(ExistingEntity::Subscription(description, changes));
        }
        met += page.len();
        for rule in &page {
            let compared = difference.compare(rule, telling);
            compared.map_err(|rejection| broker.refuse(rejection, path))?;
            yielder.part().await;
        }
    }
}
