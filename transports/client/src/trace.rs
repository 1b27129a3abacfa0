//! Trace context in messages (W3C Trace Context): a sent message carries its trace, and the span of
//! its delivery continues it. Senders and consumers call this module.
//!
//! ```text
//!  span of the sender ──(Traces::current)──► traceparent of the message ──(Traces::go_on)──► span of the delivery
//! ```
//!
//! This library uses no tracing system itself. Without one, messages that a handler sends continue
//! the trace of the message that it processes.

use std::sync::Arc;

use peeklock_core::message::{Message, Value};
use tracing::Span;

/// Property with the trace context of the sender.
const TRACEPARENT: &str = "traceparent";
/// The same property under the name that all Azure SDKs use.
const DIAGNOSTIC_ID: &str = "Diagnostic-Id";
/// Property with additional data of tracing systems.
const TRACESTATE: &str = "tracestate";
/// Maximum length of a forwarded `tracestate`; W3C requires at least this length to be supported.
const TRACESTATE_CHARS_MAX: usize = 512;
/// Indexes of the dashes in `00-<32 hex>-<16 hex>-<2 hex>`.
const DASHES: [usize; 3] = [2, 35, 52];
const TRACEPARENT_CHARS: usize = 55;

tokio::task_local! {
    /// Trace context of the message that the current handler processes.
    static IN_HAND: TraceContext;
}

/// A trace context: a trace and the causing span in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    traceparent: Arc<str>,
    tracestate: Option<Arc<str>>,
}

/// Connection to a tracing system, such as OpenTelemetry: see
/// [`Client::with_traces`](crate::Client::with_traces).
pub trait Traces: Send + Sync {
    /// Returns the current trace context; called at each send, in the sending task.
    fn current(&self) -> Option<TraceContext>;

    /// Makes `span`, the span of a delivery, continue the trace `from` of its message.
    fn continue_trace(&self, span: &Span, from: &TraceContext);
}

impl TraceContext {
    /// Parses a `traceparent`. Returns `None` unless it is valid, has version 00 and names a trace
    /// and a span.
    ///
    /// ```
    /// # use peeklock_client as peeklock;
    /// use peeklock::TraceContext;
    ///
    /// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// assert_eq!(TraceContext::new(parent).unwrap().traceparent(), parent);
    /// assert_eq!(TraceContext::new("order-7"), None);
    /// ```
    #[must_use]
    pub fn new(traceparent: &str) -> Option<Self> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let fits = |(index, byte): (usize, u8)| match DASHES.contains(&index) {
            true => byte == b'-',
            false => is_hex(byte),
        };
        let is_well_formed =
            traceparent.len() == TRACEPARENT_CHARS && traceparent.bytes().enumerate().all(fits);
        let names = |from: usize, to: usize| {
            traceparent.get(from..to).is_some_and(|id| id.bytes().any(|byte| byte != b'0'))
        };
        (is_well_formed && traceparent.starts_with("00-") && names(3, 35) && names(36, 52))
            .then(|| Self { traceparent: traceparent.into(), tracestate: None })
    }

    /// Sets the `tracestate`, unless it is longer than 512 characters.
    #[must_use]
    pub fn with_tracestate(mut self, tracestate: &str) -> Self {
        let fits = !tracestate.is_empty() && tracestate.len() <= TRACESTATE_CHARS_MAX;
        self.tracestate = fits.then(|| tracestate.into());
        self
    }

    /// Returns the `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// Returns the `tracestate`, if any.
    #[must_use]
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns the trace context of a message, from `traceparent` or else from `Diagnostic-Id`.
    #[must_use]
    pub fn of(message: &Message) -> Option<Self> {
        let named = |name| match message.application_property(name) {
            Some(Value::String(text)) => Some(&**text),
            _ => None,
        };
        let parent = named(TRACEPARENT).or_else(|| named(DIAGNOSTIC_ID));
        let context = Self::new(parent?)?;
        Some(match named(TRACESTATE) {
            Some(state) => context.with_tracestate(state),
            None => context,
        })
    }

    /// Returns the trace context of the message that the calling handler processes; `None` in
    /// separate tasks and in actors.
    #[must_use]
    pub fn current() -> Option<Self> {
        IN_HAND.try_with(Clone::clone).ok()
    }

    /// Sets the trace context on a message without one, with the same properties as the Azure SDKs:
    /// `traceparent`, `Diagnostic-Id` with the same text, and `tracestate`.
    pub fn apply_to(&self, message: &mut Message) {
        if has_context(message) {
            return;
        }
        let mut set = |name: &str, text: &str| {
            message.application_properties.push((name.to_owned(), Value::from(text)));
        };
        set(TRACEPARENT, &self.traceparent);
        set(DIAGNOSTIC_ID, &self.traceparent);
        if let Some(state) = &self.tracestate {
            set(TRACESTATE, state);
        }
    }

    /// Runs `work` with this trace context as the current one.
    pub(crate) async fn within<T>(context: Option<Self>, work: impl Future<Output = T>) -> T {
        match context {
            Some(context) => IN_HAND.scope(context, work).await,
            None => work.await,
        }
    }
}

/// Returns whether a message has a trace context, valid or not.
fn has_context(message: &Message) -> bool {
    [TRACEPARENT, DIAGNOSTIC_ID].iter().any(|name| message.application_property(name).is_some())
}

/// Trace propagation of a client.
#[derive(Clone, Default)]
pub(crate) struct Tracing(pub(crate) Option<Arc<dyn Traces>>);

impl Tracing {
    /// Sets the current trace context on messages before they are sent.
    pub(crate) fn add_context<'m>(&self, messages: impl IntoIterator<Item = &'m mut Message>) {
        let current = self.0.as_ref().and_then(|traces| traces.current());
        let Some(context) = current.or_else(TraceContext::current) else { return };
        for message in messages {
            context.apply_to(message);
        }
    }

    /// Makes the span of a delivery continue the trace of its message.
    pub(crate) fn go_on(&self, span: &Span, from: Option<&TraceContext>) {
        if let (Some(traces), Some(from)) = (&self.0, from) {
            traces.continue_trace(span, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// Values that W3C declares invalid are not forwarded.
    #[test]
    fn invalid_traceparents_are_refused() {
        let zeros = |range: std::ops::Range<usize>| {
            let mut text = PARENT.to_owned();
            text.replace_range(range.clone(), &"0".repeat(range.len()));
            text
        };
        let bad = [
            String::new(),
            PARENT.to_uppercase(),
            PARENT.replace("00-", "ff-"),
            PARENT.replace('-', "_"),
            format!("{PARENT}-x"),
            zeros(3..35),
            zeros(36..52),
            "é".repeat(27) + "x",
        ];
        for text in bad {
            assert_eq!(TraceContext::new(&text), None, "{text}");
        }
    }

    /// Both properties are set to the same text. A message's own trace context stays, and is read
    /// from either property.
    #[test]
    fn a_message_keeps_its_own_trace() {
        let context = TraceContext::new(PARENT).unwrap().with_tracestate("a=1");
        let mut message = Message::new("two coffees");
        context.apply_to(&mut message);
        assert_eq!(TraceContext::of(&message), Some(context.clone()));
        let names: Vec<&str> =
            message.application_properties.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["traceparent", "Diagnostic-Id", "tracestate"]);
        let other = PARENT.replace("0af7", "1bf7");
        let mut own = Message::new("one").with_application_property(DIAGNOSTIC_ID, &other[..]);
        context.apply_to(&mut own);
        assert_eq!(TraceContext::of(&own).unwrap().traceparent(), other);
        assert_eq!(own.application_properties.len(), 1);
        assert_eq!(context.with_tracestate(&"x".repeat(513)).tracestate(), None);
    }
}
