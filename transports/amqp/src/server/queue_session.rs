//! Receivers of sessions: for a named session, and for the next available one (AMQP-70 to AMQP-76).
//! `attach.rs` calls it. A session has one receiver at a time.

use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_words::amqp::{Scalar, code, write};

use super::error::not_offered;
use crate::codec::value::{Map, Raw};
use crate::error::{AmqpError, condition};
use crate::link::Answer;
use crate::performative::Attach;

/// Filter that names a session.
const FILTER: &str = "com.microsoft:session-filter";
/// Descriptor of its value, if the value is described.
const DESCRIPTOR: u64 = 0x13_7000_000c;
/// Filter for a session with several receivers, which is not supported (AMQP-76).
const SHARED_FILTER: &str = "com.microsoft:non-exclusive-session-filter";
const SHARED_DESCRIPTOR: u64 = 0x13_7000_000e;
/// Property with the client's wait for the next session, in milliseconds.
const TIMEOUT: &str = "com.microsoft:timeout";
/// Default of that wait (AMQP-73).
const WAIT: TimeSpan = TimeSpan::from_seconds(60);
/// Property with the end of the session lock, in ticks of .NET.
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";
/// Ticks of .NET at the beginning of 1970.
const TICKS_OF_1970: i64 = 621_355_968_000_000_000;
const TICKS_OF_MS: i64 = 10_000;

/// Session that a client requests.
pub(super) struct SessionRequest {
    /// Named session; `None` for the next available one.
    session: Option<Box<str>>,
    /// Maximum wait for the next session.
    wait: TimeSpan,
    /// Descriptor of the filter's value; the answer has the same form (AMQP-71).
    descriptor: Option<Raw>,
}

impl SessionRequest {
    /// Reads the request of an `attach`; `None` if it does not ask for a session.
    pub(super) fn of(attach: &Attach) -> Result<Option<Self>, AmqpError> {
        let filters = attach.source.as_ref().and_then(|source| source.filter.as_ref());
        let Some(filters) = filters else { return Ok(None) };
        if filters.get(SHARED_FILTER).is_some() {
            return Err(not_offered("sessions with several receivers are"));
        }
        let Some(value) = filters.get(FILTER) else {
            // Without its filter, the client would get unwanted messages (AMQP-99).
            return match filters.entries().next() {
                Some(_) => Err(not_offered("link filters other than the session filter are")),
                None => Ok(None),
            };
        };
        if filters.entries().nth(1).is_some() {
            return Err(not_offered("link filters other than the session filter are"));
        }
        let (descriptor, value) = match value.described() {
            Some((descriptor, value)) => (Some(descriptor), value),
            None => (None, value),
        };
        match descriptor.as_ref().map(Raw::scalar) {
            None | Some(Ok(Scalar::U64(DESCRIPTOR) | Scalar::Symbol(FILTER))) => {}
            Some(Ok(Scalar::U64(SHARED_DESCRIPTOR))) => {
                return Err(not_offered("sessions with several receivers are"));
            }
            Some(_) => {
                let text = format!("{FILTER} has an unknown descriptor");
                return Err(AmqpError::new(condition::INVALID_FIELD, text));
            }
        }
        let session = match value.scalar() {
            Ok(Scalar::Null) => None,
            Ok(Scalar::Text(session) | Scalar::Symbol(session)) => Some(session.into()),
            _ => {
                let text = format!("{FILTER} must be text or null");
                return Err(AmqpError::new(condition::INVALID_FIELD, text));
            }
        };
        Ok(Some(Self { session, wait: wait(attach), descriptor }))
    }

    /// Returns the session and the maximum wait. A named session is available now or not at all
    /// (SES-06).
    pub(super) fn session_and_wait(&self) -> (Option<Box<str>>, TimeSpan) {
        match &self.session {
            Some(session) => (Some(session.clone()), TimeSpan::ZERO),
            None => (None, self.wait),
        }
    }

    /// Completes the answer of a link that holds a session: its name in the form of the request,
    /// and the end of its lock (AMQP-71).
    pub(super) fn complete_answer(
        &self,
        answer: Answer,
        session: &str,
        until: Timestamp,
    ) -> Answer {
        let name = Raw::encoded(|bytes| {
            if let Some(descriptor) = &self.descriptor {
                bytes.push(code::DESCRIBED);
                bytes.extend_from_slice(descriptor.as_bytes());
            }
            write::text(bytes, session);
        });
        let source = answer.source.map(|source| crate::terminus::Source {
            filter: Some(Map::of_symbols([(FILTER, name)])),
            ..source
        });
        let ticks = until.unix_ms().saturating_mul(TICKS_OF_MS).saturating_add(TICKS_OF_1970);
        let ticks = Raw::encoded(|bytes| write::fixed(bytes, code::LONG, ticks.to_be_bytes()));
        let properties = Some(Map::of_symbols([(LOCKED_UNTIL, ticks)]));
        Answer { source, properties, ..answer }
    }
}

/// Reads the client's wait for the next session. Receivers without a session also send the
/// property, without effect (AMQP-37).
fn wait(attach: &Attach) -> TimeSpan {
    let value = attach.properties.as_ref().and_then(|properties| properties.get(TIMEOUT));
    let milliseconds = match value.as_ref().map(Raw::scalar) {
        Some(Ok(Scalar::U32(ms))) => Some(i64::from(ms)),
        Some(Ok(Scalar::I32(ms))) => Some(i64::from(ms)),
        Some(Ok(Scalar::I64(ms))) => Some(ms),
        Some(Ok(Scalar::U64(ms))) => i64::try_from(ms).ok(),
        _ => None,
    };
    milliseconds.map_or(WAIT, |ms| TimeSpan::from_ms(ms.max(0)))
}
