//! Declarations as text (CON-40): plans and carries out a TOML document or the emulator's file, and
//! exports the namespace. A hook of the program knows these forms. `namespace.rs` takes JSON.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Bytes};
use futures_util::stream;
use peeklock_core::Access;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Action;
use peeklock_core::declaration::Unnamed;
use peeklock_core::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::management::{Managed, Management, Page};
use peeklock_json::{PlanResultView, PlanView};
use serde::{Deserialize, Serialize};
use utoipa::{OpenApi, ToSchema};

use super::namespace::asked;
use super::number;
use crate::body;
use crate::config::{DeclarationHook, DeclaredPart, ReadDeclaration};
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::site::Site;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(declare, export))]
pub(super) struct Operations;

/// Maximum bytes of a text: a declaration of this size fits into the request that plans it.
const TEXT_BYTES_MAX: usize = 1_000_000;
/// Maximum bytes of the JSON around a text: escapes may double it.
const TEXT_JSON_BYTES_MAX: u64 = 2 * TEXT_BYTES_MAX as u64 + 1_000;
/// Memory of the entities that are read, in lengths of the text.
const READ_COPIES: u64 = 32;
/// Entries in a page of a list.
const PAGE_COUNT: usize = 100;
/// Memory of an export: a page of each level, and its text in the socket's buffer.
const STREAM_BYTES: usize = 6 << 20;
/// Bytes of text after which an export hands a piece to the socket.
const PIECE_BYTES: usize = 64 << 10;

/// A declaration as text.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeclarationTextForm {
    /// TOML as in the configuration file, or the `Config.json` of the Service Bus emulator; at most
    /// 1,000,000 bytes.
    text: String,
    /// Whether existing queues, topics, and subscriptions of declared topics that are not named are
    /// deleted with their messages, after all other steps.
    #[serde(default)]
    delete_unnamed: bool,
}

/// The plan of a declaration as text.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TextPlanView {
    #[serde(flatten)]
    plan: PlanView,
    /// Values of the text that were ignored or changed, each with its place.
    notes: Vec<String>,
}

/// Plan a declaration that is written as text, or carry out the plan of a digest.
///
/// As the operation `declare`, with the right Manage of the namespace. An error names the line, or
/// the place in the emulator's file. With a digest the answer is `PlanResultView`.
#[utoipa::path(post, operation_id = "declare_text", path = "/declaration/text",
    tag = "namespace",
    params(("dryRun" = Option<bool>, Query, description = "true only returns the steps"),
        ("digest" = Option<String>, Query, description = "digest of the plan to carry out"),
        ("stepsMax" = Option<usize>, Query, description = "maximum number of steps to carry out; \
            at most 100, the default; a plan has all steps")),
    request_body = DeclarationTextForm,
    responses((status = 200, body = TextPlanView), (status = "default", body = Problem)))]
pub(super) async fn declare(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    exchange.allow(Action::Plan, "").await?;
    let asked = asked(exchange)?;
    let steps_max = number(exchange, "stepsMax")?;
    let hook = hook(&exchange.site)?;
    let bytes_max = TEXT_JSON_BYTES_MAX.max(body::json_bytes_max(&exchange.site));
    let (form, mut memory): (DeclarationTextForm, _) =
        body::read_json_within(exchange, payload, bytes_max).await?;
    let DeclarationTextForm { text, delete_unnamed } = form;
    let length = text.len();
    if length > TEXT_BYTES_MAX {
        return Err(Refusal::argument(format!(
            "the text has {length} bytes, more than {TEXT_BYTES_MAX}; split it, or use `peeklock \
             apply`"
        )));
    }
    memory.have_room_for(&exchange.site, READ_COPIES * length as u64).await?;
    // A large text takes long; other connections use this thread.
    let reading = tokio::task::spawn_blocking(move || hook.read(&text));
    let Ok(read) = reading.await else {
        return Err(Rejection::internal("the text could not be read").into());
    };
    let ReadDeclaration { mut declaration, notes, reason_to_keep, place_of } =
        read.map_err(Refusal::argument)?;
    if delete_unnamed {
        if let Some(reason) = reason_to_keep {
            return Err(Refusal::argument(reason));
        }
        declaration.unnamed = Unnamed::Delete;
    }
    let request = asked.request(exchange, declaration, steps_max);
    let located = |error: BrokerError| match place_of(error.detail()) {
        Some(place) => {
            let detail = format!("{place}: {}", error.detail());
            let rejection = Rejection::new(error.condition(), detail);
            BrokerError::new(rejection, error.tracking_id(), error.entity(), error.timestamp())
        }
        None => error,
    };
    let turn = exchange.access.turn_at("", request).await.map_err(located)?;
    let room = exchange.reserve_answer().await?;
    let (managed, _turn) = turn.carry_out().await.map_err(located)?;
    match managed {
        Managed::Plan(plan) => {
            let view = TextPlanView { plan: PlanView::from(&*plan), notes };
            super::large(exchange, Some(room), &view).await
        }
        Managed::CarriedOut(done) => {
            super::large(exchange, Some(room), &PlanResultView::from(&*done)).await
        }
        _ => Err(Refusal::unexpected()),
    }
}

fn hook(site: &Site) -> Result<DeclarationHook, Refusal> {
    match &site.config.declarations {
        Some(hook) => Ok(Arc::clone(hook)),
        None => Err(Refusal::no_resource()),
    }
}

/// Export the namespace as a declaration.
///
/// The answer is TOML with queues, topics, subscriptions and rules, without messages and policies,
/// as `peeklock export` prints it. Needs the right Manage of the namespace.
#[utoipa::path(get, operation_id = "export_declaration", path = "/declaration/export",
    tag = "namespace",
    responses((status = 200, body = String, content_type = "application/toml"),
        (status = "default", body = Problem)))]
pub(super) async fn export(exchange: &Exchange) -> Answer {
    exchange.allow(Action::Plan, "").await?;
    let mut export = Export {
        access: exchange.access.clone(),
        hook: hook(&exchange.site)?,
        ahead: vec![Ahead::Topics { skip: 0 }, Ahead::Queues { skip: 0 }, Ahead::Head],
    };
    // The first piece is made before the answer begins, so that its error has a status.
    let first = export.piece().await?;
    if let Some(room) = exchange.room_of(STREAM_BYTES).await? {
        exchange.hand_over(room, STREAM_BYTES, None);
    }
    let pieces = stream::try_unfold((first, export), |(first, mut export)| async move {
        let piece = match first {
            Some(piece) => Some(piece),
            None => export.piece().await.inspect_err(|error| {
                tracing::warn!(%error, "an export of the namespace is cut");
            })?,
        };
        Ok::<_, BrokerError>(piece.map(|piece| (piece, (None, export))))
    });
    Ok(HttpResponse::build(StatusCode::OK)
        .insert_header((header::CONTENT_TYPE, "application/toml"))
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"topology.toml\""))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(Box::pin(pieces)))
}

/// An export. It reads the next page when the socket has taken the text before it.
struct Export {
    access: Access,
    hook: DeclarationHook,
    /// The parts that follow; the last one is next.
    ahead: Vec<Ahead>,
}

/// A part of an export that follows.
enum Ahead {
    Head,
    Queues { skip: usize },
    Queue(Box<QueueDescription>),
    Topics { skip: usize },
    Topic(Box<TopicDescription>),
    Subscriptions { topic: Box<str>, skip: usize },
    Subscription(Box<SubscriptionDescription>),
    Rules { subscription: String, skip: usize },
}

impl Export {
    /// Returns the next text; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, BrokerError> {
        let mut text = String::new();
        while text.len() < PIECE_BYTES
            && let Some(next) = self.ahead.pop()
        {
            self.write(next, &mut text).await?;
        }
        Ok((!text.is_empty()).then(|| text.into()))
    }

    async fn write(&mut self, next: Ahead, text: &mut String) -> Result<(), BrokerError> {
        match next {
            Ahead::Head => self.add(&DeclaredPart::Head, text),
            Ahead::Queue(queue) => self.add(&DeclaredPart::Queue(&queue), text),
            Ahead::Queues { skip } => {
                let list = self.list("", Management::Queues(page(skip))).await?;
                let Managed::Queues(queues) = list else { return Ok(()) };
                let next = Ahead::Queues { skip: skip + queues.len() };
                let queues = queues.into_iter().map(|queue| Box::new(queue.description));
                self.follow(next, queues.map(Ahead::Queue).collect());
                Ok(())
            }
            Ahead::Topics { skip } => {
                let list = self.list("", Management::Topics(page(skip))).await?;
                let Managed::Topics(topics) = list else { return Ok(()) };
                let next = Ahead::Topics { skip: skip + topics.len() };
                let topics = topics.into_iter().map(|topic| Box::new(topic.description));
                self.follow(next, topics.map(Ahead::Topic).collect());
                Ok(())
            }
            Ahead::Topic(topic) => {
                self.add(&DeclaredPart::Topic(&topic), text)?;
                self.ahead.push(Ahead::Subscriptions { topic: (&*topic.path).into(), skip: 0 });
                Ok(())
            }
            Ahead::Subscriptions { topic, skip } => {
                let list = self.list(&topic, Management::Subscriptions(page(skip))).await?;
                let Managed::Subscriptions(found) = list else { return Ok(()) };
                let next = Ahead::Subscriptions { topic, skip: skip + found.len() };
                let found = found.into_iter().map(|one| Box::new(one.description));
                self.follow(next, found.map(Ahead::Subscription).collect());
                Ok(())
            }
            Ahead::Subscription(subscription) => {
                let path = subscription.path();
                let list = self.list(&path, Management::Rules(page(0))).await?;
                let Managed::Rules(rules) = list else { return Ok(()) };
                let has_rules = !rules.is_empty();
                let part = DeclaredPart::Subscription { subscription: &subscription, has_rules };
                self.add(&part, text)?;
                for rule in &rules {
                    self.add(&DeclaredPart::Rule(rule), text)?;
                }
                if has_rules {
                    self.ahead.push(Ahead::Rules { subscription: path, skip: rules.len() });
                }
                Ok(())
            }
            Ahead::Rules { subscription, skip } => {
                let list = self.list(&subscription, Management::Rules(page(skip))).await?;
                let Managed::Rules(rules) = list else { return Ok(()) };
                for rule in &rules {
                    self.add(&DeclaredPart::Rule(rule), text)?;
                }
                if !rules.is_empty() {
                    self.ahead.push(Ahead::Rules { subscription, skip: skip + rules.len() });
                }
                Ok(())
            }
        }
    }

    /// Reads a page; one of a topic or subscription that was deleted meanwhile has nothing.
    async fn list(&self, path: &str, request: Management) -> Result<Managed, BrokerError> {
        let listed = match self.access.turn_at(path, request).await {
            Ok(turn) => turn.carry_out().await.map(|(managed, _turn)| managed),
            Err(error) => Err(error),
        };
        match listed {
            Err(error) if !path.is_empty() && error.condition() == Condition::EntityNotFound => {
                Ok(Managed::Done)
            }
            listed => listed,
        }
    }

    /// Puts the entries of a page before the next page. An empty page is the last.
    fn follow(&mut self, next: Ahead, entries: Vec<Ahead>) {
        if !entries.is_empty() {
            self.ahead.push(next);
            self.ahead.extend(entries.into_iter().rev());
        }
    }

    fn add(&self, part: &DeclaredPart<'_>, text: &mut String) -> Result<(), BrokerError> {
        let written = self.hook.write(part).map_err(|detail| {
            let detail = format!("a value of the namespace cannot be written as TOML: {detail}");
            self.access.broker().refuse(Rejection::internal(detail), "")
        })?;
        text.push_str(&written);
        Ok(())
    }
}

const fn page(skip: usize) -> Page {
    Page { skip, top: Some(PAGE_COUNT) }
}
