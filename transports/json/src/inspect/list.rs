//! Entities of the namespace, and connected clients.

use std::borrow::Cow;
use std::net::SocketAddr;

use peeklock_core::command::Counts;
use peeklock_core::description::EntityStatus;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    ClientFacts, ClientId, ClientPage, EntityCondition, EntityPage, EntityRow, EntityTotals,
    LinkFacts, Rates, Readings,
};
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    ConditionName, EntityKindName, JsonName as _, LinkRoleName, Paged, ReceiveModeName, is_false,
};
use crate::text::Instant;

/// A page of entities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EntityPageView {
    entities: Vec<EntityRowView>,
    /// Number of all selected entities.
    total: u64,
    totals: EntityTotalsView,
    /// Instant at which the counts were read, at most 1 s ago.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    counted_at_utc: Instant,
    /// Position of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// Sums over all selected entities. A copy of a message counts in each entity that has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct EntityTotalsView {
    /// Includes locked messages.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    delayed_message_count: u64,
    total_message_count: u64,
    locked_message_count: u64,
    size_in_bytes: u64,
    receiver_count: u64,
    /// Left out until the counts were read twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_per_second: Option<f64>,
    /// Left out until the counts were read twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed_per_second: Option<f64>,
}

/// An entity in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct EntityRowView {
    path: String,
    kind: EntityKindName,
    status: String,
    /// Includes locked messages.
    active_message_count: u64,
    deferred_message_count: u64,
    scheduled_message_count: u64,
    dead_letter_message_count: u64,
    transfer_message_count: u64,
    transfer_dead_letter_message_count: u64,
    delayed_message_count: u64,
    /// The sum of all counts.
    total_message_count: u64,
    locked_message_count: u64,
    /// For a topic, with its subscriptions.
    size_in_bytes: u64,
    /// 0 for a subscription, whose topic has a maximum.
    max_size_in_bytes: u64,
    receiver_count: u64,
    last_sequence_number: u64,
    /// Instant at which the oldest available message was enqueued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    oldest_enqueued_at_utc: Option<Instant>,
    /// Left out until the counts were read twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted_per_second: Option<f64>,
    /// Left out until the counts were read twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    removed_per_second: Option<f64>,
    /// The conditions that hold.
    conditions: Vec<ConditionName>,
}

/// A page of connected clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClientPageView {
    clients: Vec<ClientView>,
    /// Number of all selected clients.
    total: u64,
    /// Position of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Instant of the answer by the clock of the broker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    now_utc: Instant,
}

/// A connected client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct ClientView {
    client_id: u64,
    transport: String,
    /// Name that the client gave when it connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    address: Option<SocketAddr>,
    /// Whether a proxy forwards its requests, so that the address is the address of the proxy.
    #[serde(default, skip_serializing_if = "is_false")]
    is_by_proxy: bool,
    /// Policy whose rights it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    connected_at_utc: Instant,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    last_activity_utc: Instant,
    /// Links to entities that you may read; fewer than `linkCount` if they are too many.
    links: Vec<LinkView>,
    link_count: u64,
}

/// A link of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct LinkView {
    path: String,
    role: LinkRoleName,
    /// Left out unless the link receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<ReceiveModeName>,
    /// Session that the link holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// Number of messages that the client can still receive.
    credit: u64,
    delivered_count: u64,
    unsettled_count: u32,
}

impl EntityPageView {
    pub(super) fn new(page: EntityPage, at: Timestamp) -> Self {
        Self {
            entities: page.entities.iter().map(EntityRowView::from).collect(),
            total: page.total,
            totals: page.totals.into(),
            counted_at_utc: Instant(page.counted_at),
            next: page.next.as_ref().map(|key| Paged::Entities.key_text(key)),
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<EntityPage, Rejection> {
        let entities = self.entities.into_iter().map(EntityRow::try_from);
        let next = self.next.as_deref().map(|text| Paged::Entities.parse_key(text));
        Ok(EntityPage {
            entities: entities.collect::<Result<_, _>>()?,
            total: self.total,
            totals: self.totals.into(),
            counted_at: self.counted_at_utc.0,
            next: next.transpose()?,
        })
    }
}

impl From<EntityTotals> for EntityTotalsView {
    fn from(totals: EntityTotals) -> Self {
        let EntityTotals { counts, locks, size_bytes, receivers, rates } = totals;
        Self {
            active_message_count: counts.active,
            deferred_message_count: counts.deferred,
            scheduled_message_count: counts.scheduled,
            dead_letter_message_count: counts.dead_letter,
            transfer_message_count: counts.transfer,
            transfer_dead_letter_message_count: counts.transfer_dead_letter,
            delayed_message_count: counts.delayed,
            total_message_count: counts.total(),
            locked_message_count: locks,
            size_in_bytes: size_bytes,
            receiver_count: receivers,
            accepted_per_second: rates.map(|rates| rates.accepted),
            removed_per_second: rates.map(|rates| rates.removed),
        }
    }
}

impl From<EntityTotalsView> for EntityTotals {
    fn from(view: EntityTotalsView) -> Self {
        let rates = view.accepted_per_second.zip(view.removed_per_second);
        Self {
            counts: Counts {
                active: view.active_message_count,
                deferred: view.deferred_message_count,
                scheduled: view.scheduled_message_count,
                dead_letter: view.dead_letter_message_count,
                transfer: view.transfer_message_count,
                transfer_dead_letter: view.transfer_dead_letter_message_count,
                delayed: view.delayed_message_count,
            },
            locks: view.locked_message_count,
            size_bytes: view.size_in_bytes,
            receivers: view.receiver_count,
            rates: rates.map(|(accepted, removed)| Rates { accepted, removed }),
        }
    }
}

impl From<&EntityRow> for EntityRowView {
    fn from(row: &EntityRow) -> Self {
        let Readings { counts, .. } = &row.readings;
        let holds = |name: &ConditionName| row.meets(EntityCondition::from(*name));
        Self {
            path: (*row.path).to_owned(),
            kind: row.kind.into(),
            status: row.readings.status.name().to_owned(),
            active_message_count: counts.active,
            deferred_message_count: counts.deferred,
            scheduled_message_count: counts.scheduled,
            dead_letter_message_count: counts.dead_letter,
            transfer_message_count: counts.transfer,
            transfer_dead_letter_message_count: counts.transfer_dead_letter,
            delayed_message_count: counts.delayed,
            total_message_count: counts.total(),
            locked_message_count: row.readings.locks,
            size_in_bytes: row.total_size,
            max_size_in_bytes: row.readings.size_bytes_max,
            receiver_count: row.readings.receivers,
            last_sequence_number: row.readings.last_sequence.0,
            oldest_enqueued_at_utc: row.readings.oldest_at.map(Instant),
            accepted_per_second: row.rates.map(|rates| rates.accepted),
            removed_per_second: row.rates.map(|rates| rates.removed),
            conditions: ConditionName::ALL.iter().copied().filter(holds).collect(),
        }
    }
}

impl TryFrom<EntityRowView> for EntityRow {
    type Error = Rejection;

    fn try_from(view: EntityRowView) -> Result<Self, Rejection> {
        let status = EntityStatus::parse(&view.status)
            .ok_or_else(|| Rejection::argument("status must be the status of an entity"))?;
        let rates = view.accepted_per_second.zip(view.removed_per_second);
        Ok(Self {
            path: view.path.into(),
            kind: view.kind.into(),
            readings: Readings {
                counts: Counts {
                    active: view.active_message_count,
                    deferred: view.deferred_message_count,
                    scheduled: view.scheduled_message_count,
                    dead_letter: view.dead_letter_message_count,
                    transfer: view.transfer_message_count,
                    transfer_dead_letter: view.transfer_dead_letter_message_count,
                    delayed: view.delayed_message_count,
                },
                size_bytes: view.size_in_bytes,
                oldest_at: view.oldest_enqueued_at_utc.map(|Instant(at)| at),
                last_sequence: SequenceNumber(view.last_sequence_number),
                receivers: view.receiver_count,
                locks: view.locked_message_count,
                size_bytes_max: view.max_size_in_bytes,
                status,
            },
            total_size: view.size_in_bytes,
            rates: rates.map(|(accepted, removed)| Rates { accepted, removed }),
        })
    }
}

impl ClientPageView {
    pub(super) fn new(page: ClientPage, at: Timestamp) -> Self {
        let next = page.next.map(|ClientId(id)| Paged::Clients.text(id.cast_signed(), &[]));
        Self {
            clients: page.clients.into_iter().map(ClientView::from).collect(),
            total: page.total,
            next,
            now_utc: Instant(at),
        }
    }

    pub(super) const fn at(&self) -> Timestamp {
        self.now_utc.0
    }

    pub(super) fn page(self) -> Result<ClientPage, Rejection> {
        let next = self.next.as_deref().map(|text| Paged::Clients.parse(text)).transpose()?;
        Ok(ClientPage {
            clients: self.clients.into_iter().map(ClientFacts::from).collect(),
            total: self.total,
            next: next.map(|(id, _)| ClientId(id.cast_unsigned())),
        })
    }
}

impl From<ClientFacts> for ClientView {
    fn from(client: ClientFacts) -> Self {
        let links = client.links.into_iter().map(|link| LinkView {
            path: (*link.path).to_owned(),
            role: link.role.into(),
            mode: link.mode.map(Into::into),
            session_id: link.session.as_deref().map(str::to_owned),
            credit: link.credit,
            delivered_count: link.delivered,
            unsettled_count: link.unsettled,
        });
        Self {
            client_id: client.id.0,
            transport: client.transport.into_owned(),
            name: client.name.as_deref().map(str::to_owned),
            address: client.peer,
            is_by_proxy: client.is_by_proxy,
            policy: client.policy.as_deref().map(str::to_owned),
            connected_at_utc: Instant(client.connected_at),
            last_activity_utc: Instant(client.active_at),
            links: links.collect(),
            link_count: client.link_count,
        }
    }
}

impl From<ClientView> for ClientFacts {
    fn from(view: ClientView) -> Self {
        let links = view.links.into_iter().map(|link| LinkFacts {
            path: link.path.into(),
            role: link.role.into(),
            mode: link.mode.map(Into::into),
            session: link.session_id.map(Into::into),
            credit: link.credit,
            delivered: link.delivered_count,
            unsettled: link.unsettled_count,
        });
        Self {
            id: ClientId(view.client_id),
            transport: Cow::Owned(view.transport),
            name: view.name.map(Into::into),
            peer: view.address,
            is_by_proxy: view.is_by_proxy,
            policy: view.policy.map(Into::into),
            connected_at: view.connected_at_utc.0,
            active_at: view.last_activity_utc.0,
            links: links.collect(),
            link_count: view.link_count,
        }
    }
}
