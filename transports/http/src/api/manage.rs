//! Carries out management requests with memory for their answers, and formats the answers as JSON.
//! The files of the resources call it.

use actix_web::http::StatusCode;
use peeklock_core::inspect::Found;
use peeklock_core::management::{Managed, Management};
use peeklock_core::path::{EntityAddress, EntityName};
use peeklock_json::{
    ExplanationView, FindingsView, PlanResultView, PlanView, PolicyKeysView, PolicyList,
    PolicyView, QueueView, RuleForm, SubscriptionView, TopicView, size_in_json,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::namespace::NamespaceView;
use super::{json, json_in, large, no_content};
use crate::error::{Answer, Refusal};
use crate::exchange::{Exchange, located, versioned};
use crate::room::AnswerRoom;
use crate::route::encode_segment;

/// Size of an instant of creation in an answer, in bytes.
const CREATED_AT_BYTES: usize = 64;

/// A page of queues in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuePage {
    queues: Vec<QueueView>,
    skip: usize,
    top: usize,
}

/// A page of topics in case-insensitive order of their paths.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicPage {
    topics: Vec<TopicView>,
    skip: usize,
    top: usize,
}

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubscriptionPage {
    subscriptions: Vec<SubscriptionView>,
    skip: usize,
    top: usize,
}

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulePage {
    rules: Vec<RuleForm>,
    skip: usize,
    top: usize,
}

/// Effect of each rule of a subscription on a message, in the order of the rule names.
#[derive(Serialize, ToSchema)]
pub(crate) struct Explained {
    rules: Vec<ExplanationView>,
}

/// Carries out a request and answers it. Memory for the answer is reserved before the request runs.
/// A large answer waits for its turn before that, and keeps it until the answer has all its memory.
pub(super) async fn manage(exchange: &Exchange, path: &str, request: Management) -> Answer {
    let (is_new, (skip, top)) = match &request {
        Management::Queues(page)
        | Management::Topics(page)
        | Management::Subscriptions(page)
        | Management::Rules(page) => (false, (page.skip, page.top.unwrap_or_default())),
        Management::CreateQueue(_)
        | Management::CreateTopic(_)
        | Management::CreateSubscription { .. }
        | Management::CreateRule(_)
        | Management::CreatePolicy(..)
        | Management::CreateJob(_) => (true, (0, 0)),
        Management::Namespace
        | Management::Queue
        | Management::UpdateQueue(..)
        | Management::Topic
        | Management::UpdateTopic(..)
        | Management::Subscription
        | Management::UpdateSubscription(..)
        | Management::Delete(_)
        | Management::UpdateRule(_)
        | Management::DeleteRule(_)
        | Management::Rule(_)
        | Management::Explain(_)
        | Management::DeleteDeferred(_)
        | Management::Policies
        | Management::Policy(_)
        | Management::UpdatePolicy(..)
        | Management::DeletePolicy(_)
        | Management::PolicyKeys(_)
        | Management::RegenerateKey(..)
        | Management::Plan(_)
        | Management::CarryOut { .. }
        | Management::Inspect(_)
        | Management::Paths(..)
        | Management::CreateOwnRule(_)
        | Management::DeleteOwnRule(_)
        | Management::Sessions(..)
        | Management::DeleteUnlocked { .. }
        | Management::Operate(_)
        | Management::ControlJob(..)
        | Management::CloseClient(_)
        | Management::Mute(_)
        | Management::ReplacePolicies(_) => (false, (0, 0)),
    };
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let (managed, room, _turn) = if request.is_large() {
        let turn = exchange.access.turn_at(path, request).await?;
        let room = exchange.reserve_answer().await?;
        let (managed, turn) = turn.carry_out().await?;
        (managed, Some(room), Some(turn))
    } else {
        let bytes = match &request {
            Management::CreateRule(rule) | Management::UpdateRule(rule) => {
                size_in_json(&RuleForm::from(&**rule)) + CREATED_AT_BYTES
            }
            _ => 0,
        };
        let room = exchange.room_of(bytes).await?;
        (exchange.access.manage(path, request).await?, room, None)
    };
    let location = if is_new { location(exchange, path, &managed) } else { None };
    let response = Box::pin(respond(exchange, managed, status, room, (skip, top))).await?;
    Ok(match location {
        Some(location) => located(response, &location),
        None => response,
    })
}

/// Formats the answer as JSON. `skip` and `top` are the page of a list.
async fn respond(
    exchange: &Exchange,
    managed: Managed,
    status: StatusCode,
    room: Option<AnswerRoom>,
    (skip, top): (usize, usize),
) -> Answer {
    Ok(match managed {
        Managed::Done => no_content(),
        Managed::Namespace(namespace) => json(status, &NamespaceView::from(*namespace)),
        Managed::Queue(queue) => {
            let updated_at = queue.updated_at;
            versioned(json(status, &QueueView::from(*queue)), updated_at)
        }
        Managed::Topic(topic) => {
            let updated_at = topic.updated_at;
            versioned(json(status, &TopicView::from(*topic)), updated_at)
        }
        Managed::Subscription(subscription) => {
            let updated_at = subscription.updated_at;
            versioned(json(status, &SubscriptionView::from(*subscription)), updated_at)
        }
        Managed::Rule(rule) => {
            let form = RuleForm::from(&*rule);
            let room = match room {
                Some(room) => Some(room),
                None => exchange.room_of(size_in_json(&form)).await?,
            };
            json_in(exchange, room, status, &form)
        }
        Managed::Policy(policy) => json(status, &PolicyView::from(&*policy)),
        Managed::Policies(policies) => json(status, &PolicyList::from(&*policies)),
        Managed::PolicyKeys(keys) => json(status, &PolicyKeysView::from(&*keys)),
        Managed::Queues(queues) => {
            let queues = queues.into_iter().map(QueueView::from).collect();
            large(exchange, room, &QueuePage { queues, skip, top }).await?
        }
        Managed::Topics(topics) => {
            let topics = topics.into_iter().map(TopicView::from).collect();
            large(exchange, room, &TopicPage { topics, skip, top }).await?
        }
        Managed::Subscriptions(subscriptions) => {
            let subscriptions = subscriptions.into_iter().map(SubscriptionView::from).collect();
            large(exchange, room, &SubscriptionPage { subscriptions, skip, top }).await?
        }
        Managed::Rules(rules) => {
            let rules = rules.iter().map(RuleForm::from).collect();
            large(exchange, room, &RulePage { rules, skip, top }).await?
        }
        Managed::Explained(explained) => {
            let rules = explained.iter().map(ExplanationView::from).collect();
            large(exchange, room, &Explained { rules }).await?
        }
        Managed::Plan(plan) => large(exchange, room, &PlanView::from(&*plan)).await?,
        Managed::CarriedOut(done) => large(exchange, room, &PlanResultView::from(&*done)).await?,
        Managed::Findings(findings) => match FindingsView::from(*findings) {
            FindingsView::Heads(page) => large(exchange, room, &page).await?,
            FindingsView::Locks(page) => large(exchange, room, &page).await?,
            FindingsView::Sessions(page) => large(exchange, room, &page).await?,
            FindingsView::Timeline(timeline) => large(exchange, room, &timeline).await?,
            FindingsView::Series(series) => large(exchange, room, &series).await?,
            FindingsView::Entities(page) => large(exchange, room, &page).await?,
            FindingsView::Clients(page) => large(exchange, room, &page).await?,
            FindingsView::Jobs(page) => large(exchange, room, &page.without_bodies()).await?,
            FindingsView::Job(job) => match room {
                Some(room) => large(exchange, Some(room), &job).await?,
                // The answer to a request that makes or changes the job.
                None => {
                    let job = job.without_body();
                    let room = exchange.room_of(size_in_json(&job)).await?;
                    json_in(exchange, room, status, &job)
                }
            },
            FindingsView::JobSamples(page) => large(exchange, room, &page).await?,
            FindingsView::JobFailures(page) => large(exchange, room, &page).await?,
            FindingsView::Topology(topology) => large(exchange, room, &topology).await?,
            FindingsView::Checks(page) => large(exchange, room, &page).await?,
            FindingsView::Journey(journey) => large(exchange, room, &journey).await?,
            FindingsView::Samples(page) => large(exchange, room, &page).await?,
            FindingsView::Explanation(explained) => large(exchange, room, &*explained).await?,
            FindingsView::WhatIf(found) => large(exchange, room, &found).await?,
            FindingsView::Audit(page) => super::audit::list(exchange, room, page).await?,
            FindingsView::SessionState(_)
            | FindingsView::Body(_)
            | FindingsView::JobExport(_)
            | FindingsView::Tap(_)
            | FindingsView::Search(_) => {
                return Err(Refusal::unexpected());
            }
        },
        Managed::Paths(_)
        | Managed::Sessions(_)
        | Managed::Deleted(_)
        | Managed::LocksBroken(_)
        | Managed::Acted(_)
        | Managed::KeysOfPolicies(_) => return Err(Refusal::unexpected()),
    })
}

/// Returns the location of a new resource; for a rule, `path` is the path of the subscription.
fn location(exchange: &Exchange, path: &str, managed: &Managed) -> Option<String> {
    let resource = match managed {
        Managed::Queue(queue) => format!("queues/{}", encode_segment(&queue.description.path)),
        Managed::Topic(topic) => format!("topics/{}", encode_segment(&topic.description.path)),
        Managed::Subscription(created) => {
            subscription_resource(&created.description.topic, &created.description.name)
        }
        Managed::Rule(rule) => {
            let EntityName::Subscription { topic, name } = EntityAddress::parse(path).ok()?.entity
            else {
                return None;
            };
            let subscription = subscription_resource(&topic, &name);
            format!("{subscription}/rules/{}", encode_segment(&rule.name))
        }
        Managed::Policy(policy) => {
            // The path of the request is the path of the policy.
            let path = exchange.request.uri().path().trim_end_matches('/');
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let name = encode_segment(&policy.name);
            return Some(format!("{}{parent}/{name}", exchange.base_url()));
        }
        Managed::Findings(findings) if let Found::Job(job) = &findings.found => {
            format!("jobs/{}", job.id)
        }
        _ => return None,
    };
    Some(format!("{}/$api/v1/{resource}", exchange.base_url()))
}

fn subscription_resource(topic: &str, name: &str) -> String {
    format!("topics/{}/subscriptions/{}", encode_segment(topic), encode_segment(name))
}
