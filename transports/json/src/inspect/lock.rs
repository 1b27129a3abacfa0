//! Locks with their holders, and sessions.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BodyKind, BodyPart, ClientId, Holder, HolderFacts, LockFacts, LockPage, LockRow, SessionPage,
    SessionRow, StateSummary,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::message::decode;
use super::{Paged, is_false};
use crate::text::Instant;

/// A lock, without its token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct LockView {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    taken_at_utc: Instant,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    locked_until_utc: Instant,
    renewal_count: u32,
    /// Whether it is the lock of a session.
    #[serde(default, skip_serializing_if = "is_false")]
    is_of_session: bool,
    /// Its holder, if the broker knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<HolderView>,
}

/// Holder of a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct HolderView {
    client_id: u64,
    transport: String,
    /// Name that the client gave when it connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    address: Option<SocketAddr>,
    /// Policy whose rights it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Whether it is still connected; a lock may outlive the connection.
    is_connected: bool,
}

/// A page of locks. An entity with sessions lists the locks of its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockPageView {
    locks: Vec<LockRowView>,
    /// Number of all locks.
    total: u64,
    /// Position of the next page. A page with it may be short or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A lock in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct LockRowView {
    /// The message; for a session, the lowest number under its lock, or 0.
    sequence_number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// Number of messages under the lock.
    message_count: u64,
    delivery_count: u32,
    lock: LockView,
}

/// A page of sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schema", schema(as = SessionDetailPage))]
#[serde(rename_all = "camelCase")]
pub struct SessionPageView {
    sessions: Vec<SessionRowView>,
    /// Number of all sessions of the entity.
    total: u64,
    /// Position of the next page. A page with it may be short or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct SessionRowView {
    session_id: String,
    /// Includes locked messages.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    /// Instant at which its oldest message was enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    oldest_enqueued_at_utc: Option<Instant>,
    /// Whether the oldest message waits longer than ten lock durations.
    is_stuck: bool,
    /// Bytes of the state, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    state_set_at_utc: Option<Instant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock: Option<LockView>,
}

/// A part of the state of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStateView {
    /// Bytes of the whole state; left out if the session has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state_size: Option<u64>,
    /// Place of the first byte.
    from: u64,
    /// The bytes.
    state_base64: String,
    /// Instant of the answer by the clock of the broker.
    now_utc: Instant,
}

impl From<LockFacts<Holder>> for LockView {
    fn from(lock: LockFacts<Holder>) -> Self {
        let LockFacts { taken_at, until, renewals, holder, is_of_session } = lock;
        Self {
            taken_at_utc: Instant(taken_at),
            locked_until_utc: Instant(until),
            renewal_count: renewals,
            is_of_session,
            holder: holder.map(|holder| HolderView::from(&*holder)),
        }
    }
}

impl From<LockView> for LockFacts<Holder> {
    fn from(view: LockView) -> Self {
        Self {
            taken_at: view.taken_at_utc.0,
            until: view.locked_until_utc.0,
            renewals: view.renewal_count,
            holder: view.holder.map(|holder| Arc::new(holder.into())),
            is_of_session: view.is_of_session,
        }
    }
}

impl From<&HolderFacts> for HolderView {
    fn from(holder: &HolderFacts) -> Self {
        Self {
            client_id: holder.client.0,
            transport: holder.transport.clone().into_owned(),
            name: holder.name.as_deref().map(str::to_owned),
            address: holder.peer,
            policy: holder.policy.as_deref().map(str::to_owned),
            is_connected: holder.is_connected,
        }
    }
}

impl From<HolderView> for HolderFacts {
    fn from(view: HolderView) -> Self {
        Self {
            client: ClientId(view.client_id),
            transport: Cow::Owned(view.transport),
            name: view.name.map(Into::into),
            peer: view.address,
            policy: view.policy.map(Into::into),
            is_connected: view.is_connected,
        }
    }
}

impl LockPageView {
    pub(super) fn new(page: LockPage, at: Timestamp) -> Self {
        let locks = page.locks.into_iter().map(|row| LockRowView {
            sequence_number: row.sequence.0,
            session_id: row.session.as_deref().map(str::to_owned),
            message_count: row.message_count,
            delivery_count: row.delivery_count,
            lock: row.lock.into(),
        });
        Self {
            locks: locks.collect(),
            total: page.total,
            next: page.next.map(|cursor| Paged::Locks.cursor_text(cursor)),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<LockPage, Rejection> {
        let locks = self.locks.into_iter().map(|view| LockRow {
            sequence: SequenceNumber(view.sequence_number),
            session: view.session_id.map(Into::into),
            message_count: view.message_count,
            delivery_count: view.delivery_count,
            lock: view.lock.into(),
        });
        let next = self.next.as_deref().map(|text| Paged::Locks.parse_cursor(text));
        Ok(LockPage { locks: locks.collect(), total: self.total, next: next.transpose()? })
    }
}

impl SessionPageView {
    pub(super) fn new(page: SessionPage, at: Timestamp) -> Self {
        let sessions = page.sessions.into_iter().map(|row| SessionRowView {
            session_id: (*row.name).to_owned(),
            active_message_count: row.active,
            deferred_message_count: row.deferred,
            scheduled_message_count: row.scheduled,
            oldest_enqueued_at_utc: row.oldest_at.map(Instant),
            is_stuck: row.is_stuck,
            state_size: row.state.map(|state| state.size),
            state_set_at_utc: row.state.map(|state| Instant(state.set_at)),
            lock: row.lock.map(LockView::from),
        });
        Self {
            sessions: sessions.collect(),
            total: page.total,
            next: page.next.as_ref().map(|key| Paged::Sessions.key_text(key)),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<SessionPage, Rejection> {
        let sessions = self.sessions.into_iter().map(|view| SessionRow {
            name: view.session_id.into(),
            active: view.active_message_count,
            deferred: view.deferred_message_count,
            scheduled: view.scheduled_message_count,
            oldest_at: view.oldest_enqueued_at_utc.map(|Instant(at)| at),
            is_stuck: view.is_stuck,
            state: view
                .state_size
                .zip(view.state_set_at_utc)
                .map(|(size, Instant(set_at))| StateSummary { size, set_at }),
            lock: view.lock.map(Into::into),
        });
        let next = self.next.as_deref().map(|text| Paged::Sessions.parse_key(text));
        let next = next.transpose()?;
        Ok(SessionPage { sessions: sessions.collect(), total: self.total, next })
    }
}

impl SessionStateView {
    pub(super) fn new(part: Option<&BodyPart>, at: Timestamp) -> Self {
        Self {
            state_size: part.map(|part| part.length),
            from: part.map_or(0, |part| part.from),
            state_base64: part.map_or_else(String::new, |part| STANDARD.encode(&part.bytes)),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn part(self) -> Result<Option<BodyPart>, Rejection> {
        let Some(length) = self.state_size else { return Ok(None) };
        let bytes = decode("stateBase64", &self.state_base64)?.into();
        Ok(Some(BodyPart { kind: BodyKind::Data, length, from: self.from, bytes }))
    }
}
