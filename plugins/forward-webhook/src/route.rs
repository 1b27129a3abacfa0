//! The route to a webhook. The broker core calls it with lists of messages. It posts the next
//! message only after the answer to the previous one, which keeps the order.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::error::Rejection;
use tokio::time::{Instant, timeout};

use crate::config::WebhookConfig;
use crate::connection::{Answer, Connection, SendError};
use crate::event::Event;
use crate::signature::{Secret, webhook_id};
use crate::target::{PLAIN, SECURE, Target};
use crate::verdict::{REFUSED, judge};

/// Time after which a call posts no further message, so that verdicts are stored soon and the last
/// request ends within the broker's limit for a call.
const CALL_TIME: Duration = Duration::from_secs(1);
/// The `User-Agent`.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("peeklock/", env!("CARGO_PKG_VERSION")));

/// Posts messages to webhooks, for the schemes `webhook+https` and `webhook+http`.
pub struct WebhookForwarder {
    config: WebhookConfig,
}

impl WebhookForwarder {
    /// Creates a forwarder with these settings.
    #[must_use]
    pub const fn new(config: WebhookConfig) -> Self {
        Self { config }
    }
}

impl Forwarder for WebhookForwarder {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &[SECURE, PLAIN]
    }

    fn check(&self, destination: &str) -> Result<(), Rejection> {
        Target::parse(destination, &self.config).map(|_| ())
    }

    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection> {
        let target = Target::parse(destination, &self.config)?;
        let secret = self.config.secrets.iter().find_map(|(pattern, secret)| {
            pattern.fits(target.place.host(), target.place.port()).then(|| secret.clone())
        });
        Ok(Box::new(WebhookRoute {
            target,
            source,
            secret,
            config: self.config.clone(),
            connection: None,
        }))
    }
}

/// Route from one entity to one receiver: at most one connection with at most one request.
struct WebhookRoute {
    target: Target,
    source: Source,
    secret: Option<Secret>,
    config: WebhookConfig,
    connection: Option<Connection>,
}

#[async_trait]
impl Route for WebhookRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        let started = Instant::now();
        let mut verdicts = Vec::new();
        for message in messages {
            let verdict = self.post(message).await;
            let has_failed = matches!(verdict, Verdict::Failed { .. });
            verdicts.push(verdict);
            if has_failed || started.elapsed() >= CALL_TIME {
                break;
            }
        }
        verdicts
    }
}

impl WebhookRoute {
    async fn post(&mut self, outgoing: &Outgoing) -> Verdict {
        let refused = |description: String| Verdict::Refused {
            reason: REFUSED.into(),
            description: description.into(),
        };
        let request = match self.request(outgoing) {
            Ok(request) => request,
            Err(detail) => return refused(detail),
        };
        let time = self.target.timeout;
        let answer =
            timeout(time, self.exchange(&request)).await.unwrap_or(Err(SendError::Time(time)));
        match answer {
            Ok(Answer { status, headers }) => {
                judge(status, &headers, &self.target.authority, &*self.config.clock)
            }
            Err(error) => Verdict::Failed {
                why: format!("webhook {} {error}", self.target.authority).into(),
                retry_after: None,
            },
        }
    }

    /// Posts over the kept connection, or over a new one if that fails. A receiver may close an
    /// idle connection, so this is not a failure: the request is posted again over a new
    /// connection.
    async fn exchange(&mut self, request: &Prepared) -> Result<Answer, SendError> {
        if let Some(connection) = self.connection.take().filter(Connection::is_fresh)
            && let Ok((answer, connection)) = connection.exchange(request.build()).await
        {
            self.connection = connection;
            return Ok(answer);
        }
        let reach = &self.config.reach;
        let stream = reach.connect(&self.target.place, self.target.connect_timeout).await?;
        let connection = Connection::over(stream).await?;
        let (answer, connection) = connection.exchange(request.build()).await?;
        self.connection = connection;
        Ok(answer)
    }

    fn request(&self, outgoing: &Outgoing) -> Result<Prepared, String> {
        let message = outgoing.message().map_err(|error| error.to_string())?;
        let event = Event::of(outgoing, &message, &self.source, &self.target);
        let text = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| "a property cannot be written as a header".to_owned())
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, text(&self.target.authority)?);
        headers.insert(USER_AGENT, AGENT);
        if let Some(content_type) = &event.content_type {
            headers.insert(CONTENT_TYPE, text(content_type)?);
        }
        for (name, value) in &event.headers {
            let name =
                HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            headers.insert(name, text(value)?);
        }
        let id = webhook_id(&self.source, outgoing.facts.sequence);
        let timestamp = self.config.clock.now().unix_ms().div_euclid(1_000).to_string();
        if let Some(secret) = &self.secret {
            let signature = secret.sign(&id, &timestamp, &event.body);
            headers.insert(HeaderName::from_static("webhook-signature"), text(&signature)?);
        }
        headers.insert(HeaderName::from_static("webhook-id"), text(&id)?);
        headers.insert(HeaderName::from_static("webhook-timestamp"), text(&timestamp)?);
        let uri = Uri::try_from(self.target.path.as_str()).map_err(|error| error.to_string())?;
        Ok(Prepared { uri, headers, body: event.body })
    }
}

/// A request that can be sent repeatedly.
struct Prepared {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Prepared {
    fn build(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
