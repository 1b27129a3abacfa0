//! The REST data plane (HTP-01 to HTP-09): one file per operation.

mod batch;
mod receive;
mod send;
mod settle;

pub(crate) use receive::receive;
pub(crate) use send::send;
pub(crate) use settle::settle;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};

/// The Content-Type of a batch (HTP-09).
const BATCH: &str = "application/vnd.microsoft.servicebus.json";

/// An answer that no cache may keep.
fn answer(status: StatusCode) -> HttpResponseBuilder {
    let mut answer = HttpResponse::build(status);
    answer.insert_header((header::CACHE_CONTROL, "no-store"));
    answer
}
