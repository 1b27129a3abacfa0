//! The namespace, and declarations for it: planning and carrying out (file 27 of the
//! specification). `api/mod.rs` routes requests to it; `declaration_text.rs` takes text.

use actix_web::web;
use peeklock_core::Namespace;
use peeklock_core::declaration::{Declaration, Digest};
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
    /// Creation of its first entity
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    /// Last change of name or tier
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

/// Mode of a declaration request.
pub(super) enum DeclarationMode {
    Plan,
    CarryOut(Digest),
}

/// Plan a declaration, or carry out the plan of a digest.
///
/// With `dryRun=true`, returns the steps that make the namespace as declared, and changes nothing.
/// With the `digest` of such a plan, carries out its first steps, at most 100. The answer is then
/// `PlanResultView`: the number of steps done, the error of the next step if it failed, and the
/// plan of the remaining steps with its own digest. If the plan has changed since, fails with
/// UpdateConflict and changes nothing.
#[utoipa::path(post, operation_id = "declare", path = "/declaration", tag = "namespace",
    params(("dryRun" = Option<bool>, Query, description = "true only returns the steps"),
        ("digest" = Option<String>, Query, description = "digest of the plan to carry out"),
        ("stepsMax" = Option<usize>, Query, description = "maximum number of steps to carry out; \
            at most 100, the default; a plan has all steps")),
    request_body = DeclarationForm,
    responses((status = 200, body = PlanView), (status = "default", body = Problem)))]
pub(super) async fn declare(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    // The rights of a token are checked later, when the named entities are known (DEC-12). A client
    // without a token has the same rights everywhere, so it is identified now.
    if exchange.access.principal().is_some_and(|principal| principal.token.is_none()) {
        exchange.access.require_valid_credentials().await?;
    }
    let asked = asked(exchange)?;
    let steps_max = number(exchange, "stepsMax")?;
    let (form, _room): (DeclarationForm, _) = body::read_json(exchange, payload).await?;
    let request = asked.request(exchange, form.to_declaration()?, steps_max);
    manage(exchange, "", request).await
}

impl DeclarationMode {
    /// Returns the request for a declaration, which spares protected entities (CON-64).
    pub(super) fn request(
        self,
        exchange: &Exchange,
        mut declaration: Declaration,
        steps_max: Option<usize>,
    ) -> Management {
        let protected = &exchange.site.config.protected;
        declaration.protected = protected.iter().map(|path| path.as_str().into()).collect();
        let declaration = Box::new(declaration);
        match self {
            Self::Plan => Management::Plan(declaration),
            Self::CarryOut(digest) => Management::CarryOut { declaration, digest, steps_max },
        }
    }
}

/// Returns the mode that the query asks for.
pub(super) fn asked(exchange: &Exchange) -> Result<DeclarationMode, Refusal> {
    let dry_run = parameter(exchange.query(), "dryrun");
    let digest = parameter(exchange.query(), "digest");
    match (dry_run.as_deref(), digest) {
        (Some("true"), None) => Ok(DeclarationMode::Plan),
        (None | Some("false"), Some(text)) => match Digest::parse(&text) {
            Some(digest) => Ok(DeclarationMode::CarryOut(digest)),
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
