//! Management with rights (SEC-05, SEC-06, FWD-05): every transport and the clients of this process
//! make their requests here. The methods of [`Broker`](crate::Broker) describe the operations.

use super::audit::{end_of_management, of_management};
use super::list::EntityListing;
use super::{Access, declare};
use crate::call::BoxFuture;
use crate::command::{Command, OperatorCommand, Outcome};
use crate::contract::action::Action;
use crate::description::{Destination, EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::{BrokerError, Rejection};
use crate::findings::Question;
use crate::management::{Managed, Management, Page, SampleMessage};
use crate::path::{EntityAddress, subscription_path};
use crate::search::SearchStep;
use crate::survey::ReadableKeys;

/// A management request that its principal may make.
pub(super) struct AllowedRequest {
    pub(super) access: Access,
    /// The canonical path.
    pub(super) path: String,
    pub(super) request: Management,
    /// Entities that a list may contain; empty for other requests.
    pub(super) listing: EntityListing,
    /// Entities that the answer to a question about the namespace may contain; none for other
    /// requests.
    pub(super) readable: ReadableKeys,
}

impl Access {
    /// Carries out a management request about the entity of a path. The path is empty for a request
    /// about the namespace. For a request about subscriptions or rules, it is the path of their
    /// topic or subscription.
    ///
    /// # Errors
    /// `Unauthorized`, before the entity is looked up (SEC-08); as for the method of
    /// [`Broker`](crate::Broker) for the operation.
    pub fn manage<'a>(
        &'a self,
        path: &'a str,
        request: Management,
    ) -> BoxFuture<'a, Result<Managed, BrokerError>> {
        Box::pin(async move { self.judge(path, request).await?.carry_out().await })
    }

    /// Refuses a request that its principal may not make, including destinations to forward to.
    pub(super) async fn judge(
        &self,
        path: &str,
        request: Management,
    ) -> Result<AllowedRequest, BrokerError> {
        let (mut listing, mut readable) = (EntityListing::empty(), ReadableKeys::none());
        let path = match &request {
            Management::CreateQueue(properties) => {
                self.allow(Action::Create, path).await?;
                let named = [&properties.forward_to, &properties.forward_dead_lettered_messages_to];
                self.allow_forwarding_to(named.map(Option::as_deref)).await?;
                path.to_owned()
            }
            Management::CreateTopic(_) => {
                self.allow(Action::Create, path).await?;
                path.to_owned()
            }
            Management::CreateSubscription { name, properties, .. } => {
                self.allow(Action::Create, &subscription_path(path, name)).await?;
                let named = [&properties.forward_to, &properties.forward_dead_lettered_messages_to];
                self.allow_forwarding_to(named.map(Option::as_deref)).await?;
                path.to_owned()
            }
            Management::Queues(_) | Management::Paths(EntityKind::Queue, _) => {
                listing = self.listing(EntityKind::Queue).await?;
                String::new()
            }
            Management::Topics(_) | Management::Paths(EntityKind::Topic, _) => {
                listing = self.listing(EntityKind::Topic).await?;
                String::new()
            }
            Management::Subscriptions(_) | Management::Paths(EntityKind::Subscription, _) => {
                listing = self.subscription_listing(path).await?;
                path.to_owned()
            }
            Management::Plan(declaration) | Management::CarryOut { declaration, .. } => {
                self.judge_declaration(declaration).await?;
                String::new()
            }
            Management::Inspect(question) if question.is_of_namespace(path) => {
                readable = self.readable(question.action()).await?;
                String::new()
            }
            Management::Inspect(question) if question.leads_to_others() => {
                let path = self.allow(request.action(), path).await?;
                readable = self.readable(question.action()).await?;
                path
            }
            Management::Inspect(question) if path.is_empty() && question.is_search() => {
                if let Question::Search(SearchStep::Begin(query)) = &**question {
                    readable = self.judge_search(query).await?;
                }
                String::new()
            }
            // The trail has entries of every entity.
            Management::Inspect(question) if matches!(**question, Question::Audit(_)) => {
                self.allow(request.action(), "").await?
            }
            Management::ControlJob(job, _) => self.allow_job(request.action(), *job).await?,
            Management::Inspect(question) if let Some(job) = question.job() => {
                self.allow_job(request.action(), job).await?
            }
            // A client may have links to any entity.
            Management::CloseClient(_) => self.allow(request.action(), "").await?,
            Management::Namespace
            | Management::Queue
            | Management::UpdateQueue(..)
            | Management::Topic
            | Management::UpdateTopic(..)
            | Management::Subscription
            | Management::UpdateSubscription(..)
            | Management::Delete(_)
            | Management::CreateRule(_)
            | Management::UpdateRule(_)
            | Management::DeleteRule(_)
            | Management::CreateOwnRule(_)
            | Management::DeleteOwnRule(_)
            | Management::Rule(_)
            | Management::Rules(_)
            | Management::Explain(_)
            | Management::Sessions(..)
            | Management::DeleteDeferred(_)
            | Management::DeleteUnlocked { .. }
            | Management::Operate(_)
            | Management::CreateJob(_)
            | Management::Mute(_)
            | Management::Policies
            | Management::Policy(_)
            | Management::CreatePolicy(..)
            | Management::UpdatePolicy(..)
            | Management::ReplacePolicies(_)
            | Management::DeletePolicy(_)
            | Management::PolicyKeys(_)
            | Management::RegenerateKey(..)
            | Management::Inspect(_) => self.allow(request.action(), path).await?,
        };
        Ok(AllowedRequest { access: self.clone(), path, request, listing, readable })
    }

    /// Maximum number of entries of a page of a list (ENT-30).
    fn top(&self, page: Page) -> usize {
        let most = self.broker.settings().limits.list_count_max.max(1);
        page.top.unwrap_or(most).min(most)
    }

    async fn ask_entity(&self, path: &str, command: Command) -> Result<Outcome, BrokerError> {
        self.entity(path, Action::of(&command)).await?.call(command).await
    }

    fn unexpected(&self, path: &str, outcome: &Outcome) -> BrokerError {
        self.broker.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")), path)
    }
}

/// Whether the answer to a request rests on the memory of the broker. Answers about changes, which
/// the audit trail records, rest on an append that was confirmed.
const fn is_question(request: &Management) -> bool {
    of_management(request).is_none() || matches!(request, Management::PolicyKeys(_))
}

impl AllowedRequest {
    /// Carries the request out, with entries in the audit trail.
    pub(super) async fn carry_out(self) -> Result<Managed, BrokerError> {
        self.access.wait_for_tenure(&self.path).await?;
        let mut audited = self.access.audit_management(&self.path, &self.request).await?;
        let asked = is_question(&self.request).then(|| (self.access.clone(), self.path.clone()));
        let outcome = Box::pin(self.carry_out_unaudited()).await;
        let end = end_of_management(&mut audited, &outcome);
        audited.end_with(end).await;
        // The lease may have ended, or the process been stopped, while the answer was made.
        if let Some((access, path)) = asked {
            access.wait_for_tenure(&path).await?;
        }
        outcome
    }

    async fn carry_out_unaudited(self) -> Result<Managed, BrokerError> {
        let (access, broker, path) = (&self.access, &self.access.broker, &*self.path);
        Ok(match self.request {
            Management::Namespace => Managed::Namespace(Box::new(broker.namespace().clone())),
            Management::CreateQueue(properties) => {
                Managed::Queue(Box::new(broker.create_queue(path, *properties).await?))
            }
            Management::Queue => Managed::Queue(Box::new(broker.describe_queue(path).await?)),
            Management::UpdateQueue(properties, patch) => {
                Managed::Queue(Box::new(access.patch(path, &*properties, patch).await?))
            }
            Management::CreateTopic(properties) => {
                Managed::Topic(Box::new(broker.create_topic(path, *properties).await?))
            }
            Management::Topic => Managed::Topic(Box::new(broker.describe_topic(path).await?)),
            Management::UpdateTopic(properties, patch) => {
                Managed::Topic(Box::new(access.patch(path, &*properties, patch).await?))
            }
            Management::CreateSubscription { name, properties, rules } => {
                let created = broker.create_subscription(path, &name, *properties, rules);
                Managed::Subscription(Box::new(created.await?))
            }
            Management::Subscription => {
                Managed::Subscription(Box::new(broker.describe_subscription(path).await?))
            }
            Management::UpdateSubscription(properties, patch) => {
                Managed::Subscription(Box::new(access.patch(path, &*properties, patch).await?))
            }
            Management::Delete(kind) => {
                broker.delete(path, kind).await?;
                Managed::Done
            }
            Management::Queues(page)
            | Management::Topics(page)
            | Management::Subscriptions(page)
            | Management::Paths(_, page)
            | Management::Rules(page) => self.page(page.skip, access.top(page)).await?,
            Management::CreateRule(rule) | Management::CreateOwnRule(rule) => {
                Managed::Rule(Box::new(broker.create_rule(path, *rule).await?))
            }
            Management::UpdateRule(rule) => {
                Managed::Rule(Box::new(broker.update_rule(path, *rule).await?))
            }
            Management::DeleteRule(name) | Management::DeleteOwnRule(name) => {
                broker.delete_rule(path, &name).await?;
                Managed::Done
            }
            Management::Rule(name) => Managed::Rule(Box::new(broker.rule(path, &name).await?)),
            Management::Explain(sample) => {
                let message = match *sample {
                    SampleMessage::Plain(message) => broker.inbound(message),
                    SampleMessage::Inbound(message) => message,
                };
                Managed::Explained(broker.explain(path, message).await?)
            }
            Management::Sessions(which, page) => {
                let top = u32::try_from(access.top(page)).unwrap_or(u32::MAX);
                let skip = page.skip as u64;
                let list = Command::ListSessions { which, after: None, skip, top };
                match access.ask_entity(path, list).await? {
                    Outcome::Sessions(sessions) => Managed::Sessions(sessions),
                    other => return Err(access.unexpected(path, &other)),
                }
            }
            Management::DeleteDeferred(sequence) => {
                access.ask_entity(path, Command::DeleteDeferred { sequence }).await?;
                Managed::Done
            }
            Management::DeleteUnlocked { count_max, enqueued_before } => {
                let most = broker.settings().limits.batch_delete_count_max;
                let count_max =
                    count_max.unwrap_or_else(|| u32::try_from(most).unwrap_or(u32::MAX));
                let delete = Command::DeleteBatchUnlocked { count_max, enqueued_before };
                match access.ask_entity(path, delete).await? {
                    Outcome::Deleted(count) => Managed::Deleted(count),
                    other => return Err(access.unexpected(path, &other)),
                }
            }
            Management::Operate(command) => {
                match &command {
                    OperatorCommand::ForgetJob(job) => access.refuse_to_forget(path, *job)?,
                    OperatorCommand::Act(act) if act.deed.is_of_jobs() => {
                        let detail =
                            "only a job sends messages, puts them back or exports them; make one";
                        return Err(broker.refuse(Rejection::invalid_operation(detail), path));
                    }
                    _ => {}
                }
                match access.ask_entity(path, Command::OfOperator(command)).await? {
                    Outcome::Done => Managed::Done,
                    Outcome::LocksBroken(count) => Managed::LocksBroken(count),
                    Outcome::Acted(messages) => Managed::Acted(messages),
                    other => return Err(access.unexpected(path, &other)),
                }
            }
            Management::CreateJob(draft) => access.create_job(path, *draft).await?,
            Management::ControlJob(job, control) => access.control_job(path, job, control).await?,
            Management::CloseClient(client) => {
                broker.close_client(client)?;
                Managed::Done
            }
            Management::Mute(mute) => access.mute(path, mute).await?,
            Management::Policies => {
                broker.wait_for_creation(path).await;
                Managed::Policies(broker.policies(path)?)
            }
            Management::Policy(name) => {
                broker.wait_for_creation(path).await;
                Managed::Policy(Box::new(broker.policy(path, &name)?))
            }
            Management::CreatePolicy(name, properties) => {
                let created = broker.create_policy(path, &name, properties);
                Managed::Policy(Box::new(created.await?))
            }
            Management::UpdatePolicy(name, properties) => {
                let updated = broker.update_policy(path, &name, properties);
                Managed::Policy(Box::new(updated.await?))
            }
            Management::ReplacePolicies(policies) => {
                Managed::KeysOfPolicies(broker.replace_policies(path, policies).await?)
            }
            Management::DeletePolicy(name) => {
                broker.delete_policy(path, &name).await?;
                Managed::Done
            }
            Management::PolicyKeys(name) => {
                broker.wait_for_creation(path).await;
                Managed::PolicyKeys(Box::new(broker.policy_keys(path, &name).await?))
            }
            Management::RegenerateKey(name, which, key) => {
                let keys = broker.regenerate_key(path, &name, which, key).await?;
                Managed::PolicyKeys(Box::new(keys))
            }
            Management::Inspect(question) => {
                Managed::Findings(Box::new(access.find(path, *question, &self.readable).await?))
            }
            Management::Plan(declaration) => {
                Managed::Plan(Box::new(declare::planned(broker, &declaration).await?.plan))
            }
            Management::CarryOut { declaration, digest, steps_max } => {
                let mut turn = access.carrying_out_turn(&declaration).await?;
                let steps_max = declare::step_count(steps_max);
                let carried_out = access.carry_out_in(&mut turn, &declaration, digest, steps_max);
                Managed::CarriedOut(Box::new(carried_out.await?))
            }
        })
    }

    /// A page of a list; the request names the list.
    pub(super) async fn page(&self, skip: usize, top: usize) -> Result<Managed, BrokerError> {
        let (broker, listing) = (&self.access.broker, &self.listing);
        Ok(match self.request {
            Management::Queues(_) => {
                Managed::Queues(listing.page::<QueueUpdate>(broker, skip, top).await?)
            }
            Management::Topics(_) => {
                Managed::Topics(listing.page::<TopicUpdate>(broker, skip, top).await?)
            }
            Management::Subscriptions(_) => {
                let page = listing.page::<SubscriptionUpdate>(broker, skip, top);
                Managed::Subscriptions(page.await?)
            }
            Management::Paths(..) => Managed::Paths(listing.paths(broker, skip, top)),
            Management::Rules(_) => {
                Managed::Rules(broker.page_of_rules(&self.path, skip, top).await?)
            }
            // `carry_out` and turns ask for pages of the lists above only.
            _ => {
                let rejection = Rejection::internal("the request has no pages");
                return Err(broker.refuse(rejection, &self.path));
            }
        })
    }
}

impl Access {
    /// Checks the right on every entity of this broker that will be forwarded to, in addition to
    /// the right on the forwarding entity (FWD-05, SEC-07). A text that cannot be the path of an
    /// entity is checked later.
    pub(crate) async fn allow_forwarding_to(
        &self,
        destinations: [Option<&str>; 2],
    ) -> Result<(), BrokerError> {
        for (place, text) in destinations.into_iter().enumerate() {
            if let Some(text) = text
                && let Ok(Destination::Entity(_)) = Destination::parse(text)
                && EntityAddress::parse(text).is_ok()
            {
                self.allow_destination(place, text).await?;
            }
        }
        Ok(())
    }

    /// Checks that a destination exists, before a management request creates an entity that
    /// forwards there. `place` is 0 for the destination of messages, 1 for the destination of
    /// dead-lettered messages. A principal without the right to forward to it does not learn
    /// whether it exists. The creation or update checks again, against the remembered grants.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound`.
    pub async fn find_destination(&self, place: usize, path: &str) -> Result<(), BrokerError> {
        self.allow_destination(place, path).await?;
        let found = self.broker.check_destinations(match place {
            0 => [Some(path), None],
            _ => [None, Some(path)],
        });
        found.await.map_err(|rejection| self.broker.refuse(rejection, path))
    }

    /// Checks the right to forward to an entity: with the main credentials of the principal, then
    /// with those presented for this destination. If either set of credentials
    /// suffices, a refusal of the other one delays nothing (SEC-26).
    async fn allow_destination(&self, place: usize, path: &str) -> Result<(), BrokerError> {
        let shown =
            self.check.as_ref().and_then(|check| check.destination_accesses.get(place)?.as_ref());
        let Some(shown) = shown else {
            return self.allow(Action::BeForwardedTo, path).await.map(|_| ());
        };
        if self.is_allowed_without_delay(Action::BeForwardedTo, path).await {
            return Ok(());
        }
        shown.allow(Action::BeForwardedTo, path).await.map(|_| ())
    }
}
