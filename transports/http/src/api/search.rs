//! Searches through messages, and counts of messages by a property, as a stream (CON-05 to CON-11).
//!
//! The stream is pulled: the search works only while the socket has room for its next page.

use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::{StatusCode, Version, header};
use actix_web::web::{self, Bytes};
use futures_util::stream;
use peeklock_core::Search;
use peeklock_core::error::Rejection;
use peeklock_core::inspect::{SearchPage, Where};
use peeklock_json::{ClauseForm, Instant, SearchForm, SearchPageView};
use serde::Serialize;
use serde_json::json;
use utoipa::{OpenApi, ToSchema};

use super::watch::event;
use crate::body;
use crate::error::{Answer, Problem};
use crate::exchange::Exchange;
use crate::site::Site;
use crate::socket::Connection;

/// The operations of this file, for the OpenAPI document.
#[derive(OpenApi)]
#[openapi(paths(search), components(schemas(SearchBegin, SearchPageView)))]
pub(super) struct Operations;

/// Maximum bytes that the stream hands to the socket at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Memory of a stream: a page of hits, or all groups, and a piece in the socket's buffer.
const STREAM_BYTES: usize = 3 << 20;

/// First event of a search: its conditions as a line and as clauses.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct SearchBegin {
    /// Line of the conditions.
    r#where: String,
    /// The same conditions.
    clauses: Vec<ClauseForm>,
    /// Instant by the clock of the broker.
    #[schema(value_type = String)]
    now_utc: Instant,
}

/// Search messages, or count them by a property.
///
/// The answer is `text/event-stream`. `begin` (`SearchBegin`) comes first, then `page`
/// (`SearchPageView`) at least twice a second with new hits and the progress; the last page has the
/// `end`. `error` has `code` and `trackingId` and ends the stream. A search ends at the first bound
/// that it meets: 60 s, 2 GiB read, 1,000 hits; then `end` has the `bound`, and `next` to go on from
/// with `after`. Of each body it looks at the first 4 MiB. Closing the connection ends the search.
/// At most two searches are open at a time.
#[utoipa::path(post, path = "/search", tag = "inspect", request_body = SearchForm,
    responses((status = 200, body = String, content_type = "text/event-stream"),
        (status = "default", body = Problem)))]
pub(super) async fn search(exchange: &Exchange, payload: &mut web::Payload) -> Answer {
    if exchange.request.version() < Version::HTTP_11 {
        let detail = "a stream needs HTTP/1.1";
        return Err(Rejection::invalid_operation(detail).into());
    }
    exchange.access.require_valid_credentials().await?;
    let (form, _room): (SearchForm, _) = body::read_json(exchange, payload).await?;
    let query = form.to_query(exchange.site.broker.now())?;
    let begin = begin(&query.conditions, Instant(exchange.site.broker.now()));
    let search = exchange.access.search(query).await?;
    if let Some(room) = exchange.room_of(STREAM_BYTES).await? {
        exchange.hand_over(room, STREAM_BYTES, None);
    }
    let searching = Searching {
        site: Arc::clone(&exchange.site),
        connection: exchange.request.conn_data::<Rc<Connection>>().map(Rc::clone),
        search: Some(search),
        pending: begin.into(),
    };
    let pieces = stream::unfold(searching, |mut searching| async move {
        let piece = searching.piece().await?;
        Some((Ok::<_, Infallible>(piece), searching))
    });
    Ok(HttpResponse::build(StatusCode::OK)
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .streaming(Box::pin(pieces)))
}

fn begin(conditions: &Where, now_utc: Instant) -> String {
    let clauses = conditions.clauses().iter().map(ClauseForm::from).collect();
    event("begin", &json!(SearchBegin { r#where: conditions.to_string(), clauses, now_utc }))
}

/// An open stream.
struct Searching {
    site: Arc<Site>,
    connection: Option<Rc<Connection>>,
    /// None after the last page.
    search: Option<Search>,
    /// Bytes of an event that the socket has not taken.
    pending: Bytes,
}

impl Searching {
    /// Returns the next bytes; none at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.pending.is_empty() {
            self.pending = self.page().await?.into();
        }
        Some(self.pending.split_to(self.pending.len().min(PIECE_BYTES_MAX)))
    }

    /// Returns the next page; none after the last one, or if the stream must end.
    async fn page(&mut self) -> Option<String> {
        let waiting = self.connection.as_ref().map(|connection| connection.wait_for_message());
        let evicted = poll_fn(|context| match &waiting {
            Some(waiting) => waiting.poll_evicted(context),
            None => std::task::Poll::Pending,
        });
        let search = self.search.as_mut()?;
        let page: Result<SearchPage, _> = tokio::select! {
            biased;
            _ = self.site.requests.stop_begun() => return None,
            () = evicted => return None,
            page = search.next() => page,
        };
        match page {
            Ok(page) => {
                let view = SearchPageView::new(page, self.site.broker.now());
                if view.is_last() {
                    self.search = None;
                }
                Some(event("page", &json!(view)))
            }
            Err(error) => {
                self.search = None;
                let code = error.condition().name();
                let tracking_id = error.tracking_id().to_string();
                Some(event("error", &json!({ "code": code, "trackingId": tracking_id })))
            }
        }
    }
}
