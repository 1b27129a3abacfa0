//! Files of the console for operators, which a plugin provides. They are public: every value that the
//! page shows comes from the JSON API, which checks rights.

use actix_web::HttpResponse;
use actix_web::http::header;

use crate::error::{Answer, Refusal};
use crate::exchange::Exchange;

/// Value of `Cache-Control` of a file whose address contains the hash of its content.
const FOREVER: &str = "public, max-age=31536000, immutable";
/// Destination of a request without the slash at the end. It is relative, because a proxy may put a
/// prefix before the path.
const WITH_SLASH: &str = "$console/";

/// Answers with the file at a path below `/$console/` (CON-67, CON-77).
pub(crate) fn answer(exchange: &Exchange, path: &str) -> Answer {
    let Some(console) = &exchange.site.config.console else { return Err(Refusal::no_resource()) };
    let ends_with_slash = exchange.request.path().ends_with('/');
    if path.is_empty() && !ends_with_slash {
        let mut answer = HttpResponse::PermanentRedirect();
        answer.insert_header((header::CACHE_CONTROL, "no-store"));
        return Ok(answer.insert_header((header::LOCATION, WITH_SLASH)).finish());
    }
    let Some(file) = console(path) else { return Err(Refusal::no_resource()) };
    let mut answer = HttpResponse::Ok();
    for header in file.headers {
        answer.insert_header(*header);
    }
    let kept = if file.is_immutable { FOREVER } else { "no-store" };
    answer.insert_header((header::CACHE_CONTROL, kept));
    Ok(answer.content_type(file.content_type).body(file.content))
}
