//! The namespace itself, and declarations of all in it: their plan, and carrying it out (file 27 of the specification).

use actix_web::web;
use peeklock_core::Namespace;
use peeklock_core::declaration::Digest;
use peeklock_core::management::Management;
use peeklock_json::{DeclarationForm, Instant, PlanView};
use serde::Serialize;
use utoipa::ToSchema;

use super::manage::manage;
use super::number;
use crate::body;
use crate::error::{Answer, Problem, Refusal};
use crate::exchange::Exchange;
use crate::route::parameter;

/// The namespace (CNT-10).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamespaceView {
    name: String,
    /// `Basic`, `Standard` or `Premium`
    tier: String,
    /// When its first entity was created
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    /// When name or tier were last changed
    #[schema(value_type = String, format = DateTime)]
    modified_at: Instant,
}

impl From<Namespace> for NamespaceView {
    fn from(namespace: Namespace) -> Self {
        Self {
            name: namespace.name.into(),
            tier: namespace.tier.to_string(),
            created_at: Instant(namespace.created_at),
            modified_at: Instant(namespace.modified_at),
        }
    }
}

/// Read name, tier and instants of the namespace.
#[utoipa::path(get, operation_id = "get_namespace",
    path = "/namespace", tag = "namespace",
    responses((status = 200, body = NamespaceView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange) -> Answer {
    manage(exchange, "", Management::Namespace).await
}

/// What is asked for.
enum Asked {
    Plan,
    CarryOut(Digest),
}

/// Plan a declaration, or carry out the plan of a digest.
///
/// With `dryRun=true` the steps are told that make the namespace as declared, and nothing is changed. With the `digest` of
/// such a plan its first steps are done, at most 100, and the answer is `CarriedOutView`: how many were done, why the next
/// failed if it did, and the plan of what is left with its own digest. Steps that are others by now give UpdateConflict,
/// with nothing done.
#[utoipa::path(post, operation_id = "declare", path = "/declaration", tag = "namespace",
    params(("dryRun" = Option<bool>, Query, description = "true only returns the steps"),
        ("digest" = Option<String>, Query, description = "digest of the plan to carry out"),
        ("stepsMax" = Option<usize>, Query, description = "maximum number of steps to return; at \
            most 100, the default")),
    request_body = DeclarationForm,
    responses((status = 200, body = PlanView), (status = "default", body = Problem)))]
pub(super) async fn declare(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    // What a token is worth is known when what is named is (DEC-12); who shows none is the same everywhere.
    if exchange.access.principal().is_some_and(|principal| principal.token.is_none()) {
        exchange.access.identify().await?;
    }
    let asked = asked(exchange)?;
    let steps_max = number(exchange, "stepsMax")?;
    let (form, _room): (DeclarationForm, _) = body::read_json(exchange, payload).await?;
    let declaration = Box::new(form.to_declaration()?);
    let request = match asked {
        Asked::Plan => Management::Plan(declaration),
        Asked::CarryOut(digest) => Management::CarryOut { declaration, digest, steps_max },
    };
    manage(exchange, "", request).await
}

fn asked(exchange: &Exchange) -> Result<Asked, Refusal> {
    let dry_run = parameter(exchange.query(), "dryrun");
    let digest = parameter(exchange.query(), "digest");
    match (dry_run.as_deref(), digest) {
        (Some("true"), None) => Ok(Asked::Plan),
        (None | Some("false"), Some(text)) => match Digest::parse(&text) {
            Some(digest) => Ok(Asked::CarryOut(digest)),
            None => {
                Err(Refusal::argument("the query parameter digest must be 16 hexadecimal digits"))
            }
        },
        _ => Err(Refusal::argument(
            "a declaration needs the query parameter dryRun=true, or the digest from the response \
             to a dry run",
        )),
    }
}
