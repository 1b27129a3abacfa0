//! Rules of a topic, understood before they are saved: samples, explanations and trials (CON-35 to
//! CON-37).

use actix_web::web;
use peeklock_core::contract::Action;
use peeklock_json::{
    ExplainForm, QuestionForm, SamplesForm, TopicExplanationView, TopicSamplesView, WhatIfForm,
    WhatIfView,
};
use utoipa::OpenApi;

use super::inspect::ask;
use super::number;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::Exchange;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(samples, explain, what_if))]
pub(super) struct Operations;

pub(super) const SAMPLES: &[&str] = &["top"];

/// Read the last messages that a topic published, without their bodies.
///
/// Includes messages that no subscription selected. A topic keeps at most 256; a restart begins
/// without them.
#[utoipa::path(get, operation_id = "samples", path = "/topics/{topic}/samples", tag = "rules",
    params(("topic" = String, Path),
        ("top" = Option<u32>, Query, description = "maximum number of messages, the newest first, 1 \
            to 500; by default 100")),
    responses((status = 200, body = TopicSamplesView), (status = "default", body = Problem)))]
pub(super) async fn samples(exchange: &Exchange, path: &str) -> Answer {
    let form = SamplesForm { top: number(exchange, "top")? };
    ask(exchange, path, &QuestionForm::Samples(form)).await
}

/// Explain all rules of a topic for a message: one that would be sent now, or one that is stored.
///
/// The answer has only subscriptions that you may read. Nothing is stored.
#[utoipa::path(post, operation_id = "explain_topic", path = "/topics/{topic}/explain", tag = "rules",
    params(("topic" = String, Path)), request_body = ExplainForm,
    responses((status = 200, body = TopicExplanationView), (status = "default", body = Problem)))]
pub(super) async fn explain(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Inspect, path).await?;
    // The memory of the request is kept until the answer has its own.
    let (form, _room): (ExplainForm, _) = body::read_json(exchange, payload).await?;
    ask(exchange, &path, &QuestionForm::Explain(Box::new(form))).await
}

/// Try changes of the rules of a topic on its samples and on messages of its subscriptions.
///
/// Answers with the messages that each subscription would get, as counts and as the messages that
/// differ. Nothing changes.
#[utoipa::path(post, operation_id = "what_if", path = "/topics/{topic}/what-if", tag = "rules",
    params(("topic" = String, Path)), request_body = WhatIfForm,
    responses((status = 200, body = WhatIfView), (status = "default", body = Problem)))]
pub(super) async fn what_if(exchange: &Exchange, payload: &mut web::Payload, path: &str) -> Answer {
    let path = exchange.allow(Action::Inspect, path).await?;
    // The memory of the request is kept until the answer has its own.
    let (form, _room): (WhatIfForm, _) = body::read_json(exchange, payload).await?;
    ask(exchange, &path, &QuestionForm::WhatIf(Box::new(form))).await
}
