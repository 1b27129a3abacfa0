//! Reads and writes `QueueDescription`, `TopicDescription` and `SubscriptionDescription` by the
//! table of their properties. `create.rs`, `update.rs` and `list.rs` use it. Elements without a
//! property are kept by `kept.rs`.

use peeklock_core::command::{Counts, Described, DescribedSubscription, DescribedTopic};
use peeklock_core::description::{
    Description, FieldKind, FieldValue, QueueDescription, Settings, SubscriptionDescription,
    TopicDescription,
};
use peeklock_core::time::Timestamp;

use super::super::entry::{Addresses, Entry};
use super::super::path::AtomRoute;
use super::super::xml::{COUNTS, Element, Xml};
use super::kept::StoredElements;
use super::policies::PolicyViews;
use super::{Fields, flag_text};
use crate::error::Refusal;

/// The first rule of a subscription in a request that creates it (ADM-42).
pub(in crate::atom) const DEFAULT_RULE: &str = "DefaultRuleDescription";
/// A property that clients of older versions do not know and may send as zero (ADM-46).
const MESSAGE_SIZE: &str = "MaxMessageSizeInKilobytes";
/// The property that makes the size of an entity the size of a partition.
const PARTITIONING: &str = "enable_partitioning";

/// A kind of entity in Atom.
pub(in crate::atom) trait AtomEntity: Description {
    /// Name of its element.
    const ELEMENT: &'static str;
    /// The elements in it, in the order of ADM-34. A property that is not listed follows them.
    const ORDER: &'static [&'static str];
    /// Listed elements that are not properties of the broker, with their defaults.
    const PLACED: &'static [(&'static str, &'static str)];

    /// Returns an entity with the defaults of the namespace.
    fn with_defaults(settings: &Settings) -> Self;
}

impl AtomEntity for QueueDescription {
    const ELEMENT: &'static str = "QueueDescription";
    const ORDER: &'static [&'static str] = &[
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableExpress",
        "ForwardTo",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        MESSAGE_SIZE,
    ];
    const PLACED: &'static [(&'static str, &'static str)] =
        &[("IsAnonymousAccessible", "false"), ("SupportOrdering", "true")];

    fn with_defaults(settings: &Settings) -> Self {
        settings.new_queue("")
    }
}

impl AtomEntity for TopicDescription {
    const ELEMENT: &'static str = "TopicDescription";
    const ORDER: &'static [&'static str] = &[
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "SizeInBytes",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableSubscriptionPartitioning",
        "EnableExpress",
        "UserMetadata",
        MESSAGE_SIZE,
    ];
    const PLACED: &'static [(&'static str, &'static str)] = &[
        ("FilteringMessagesBeforePublishing", "false"),
        ("IsAnonymousAccessible", "false"),
        ("EnableSubscriptionPartitioning", "false"),
    ];

    fn with_defaults(settings: &Settings) -> Self {
        settings.new_topic("")
    }
}

impl AtomEntity for SubscriptionDescription {
    const ELEMENT: &'static str = "SubscriptionDescription";
    const ORDER: &'static [&'static str] = &[
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions",
        DEFAULT_RULE,
        "MessageCount",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "ForwardDeadLetteredMessagesTo",
        "AutoDeleteOnIdle",
        "EntityAvailabilityStatus",
        "UserMetadata",
    ];
    const PLACED: &'static [(&'static str, &'static str)] = &[];

    fn with_defaults(settings: &Settings) -> Self {
        settings.new_subscription("", "")
    }
}

/// Reads the properties in a request; `kept` is the text that was stored with the entity.
fn read<D: AtomEntity>(description: &Element, kept: Option<&str>) -> Result<D::Update, Refusal> {
    let fields = Fields(description);
    let kept = StoredElements::stored(kept);
    let own = kept.own_of_entity(description);
    let mut update = D::Update::default();
    // Clients of this form do not know the properties that only Peeklock has; when absent, these
    // keep their value.
    for field in D::FIELDS.iter().filter(|field| field.is_in_azure) {
        let name = field.element();
        let value = match field.kind {
            FieldKind::Flag => fields.flag(name)?.map(FieldValue::Flag),
            FieldKind::Count => fields.number(name)?.map(FieldValue::Count),
            FieldKind::Megabytes | FieldKind::Kilobytes => {
                let size = fields.number(name)?.filter(|size| name != MESSAGE_SIZE || *size != 0);
                size.map(FieldValue::Size)
            }
            FieldKind::Span => fields.span(name)?.map(FieldValue::Span),
            FieldKind::Status => fields.status(name)?.map(FieldValue::Status),
            FieldKind::Destination => fields.destination(name).map(|it| FieldValue::Text(Some(it))),
            FieldKind::Text => fields.text(name).map(|text| FieldValue::Text(Some(text.into()))),
            FieldKind::Retry | FieldKind::Order => None,
        };
        if let Some(value) = value {
            field.put(&mut update, value);
        }
    }
    let is_placed = |name: &str| D::PLACED.iter().any(|(placed, _)| *placed == name);
    let known = D::ORDER.iter().copied().filter(|name| !is_placed(name));
    let known: Vec<&str> = known.chain(further::<D>()).collect();
    D::put_extensions(&mut update, kept.with(description, &known, &own));
    Ok(update)
}

/// Reads the properties of a new entity. Its client gives the size of each partition (ADM-68).
pub(in crate::atom) fn read_new<D: AtomEntity>(
    description: &Element,
    settings: &Settings,
) -> Result<D::Update, Refusal> {
    let mut update = read::<D>(description, None)?;
    let mut partitioning = D::FIELDS.iter().filter(|field| field.name == PARTITIONING);
    let is_partitioned =
        partitioning.any(|field| field.named(&update) == Some(FieldValue::Flag(true)));
    let default = D::with_defaults(settings);
    for field in D::FIELDS.iter().filter(|field| field.kind == FieldKind::Megabytes) {
        let size = field.named(&update).unwrap_or_else(|| field.get(&default));
        field.put(&mut update, in_all_partitions(size, is_partitioned, settings));
    }
    Ok(update)
}

/// Reads an update, with defaults for the properties that it does not name (ADM-31). Properties
/// that are fixed at creation keep their value, and so do properties that some versions of this
/// form do not have.
pub(in crate::atom) fn read_update<D: AtomEntity>(
    description: &Element,
    current: &D,
    settings: &Settings,
) -> Result<D::Update, Refusal> {
    let mut update = read::<D>(description, current.extensions())?;
    let mut partitioning = D::FIELDS.iter().filter(|field| field.name == PARTITIONING);
    let is_partitioned = partitioning.any(|field| field.get(current) == FieldValue::Flag(true));
    let default = D::with_defaults(settings);
    for field in D::FIELDS {
        let keeps = field.is_fixed || field.is_kept_if_absent || !field.is_in_azure;
        if keeps || field.kind.is_text() || field.named(&update).is_some() {
            continue;
        }
        let value = match field.kind {
            FieldKind::Megabytes => {
                in_all_partitions(field.get(&default), is_partitioned, settings)
            }
            _ => field.get(&default),
        };
        field.put(&mut update, value);
    }
    Ok(update)
}

/// Returns the size of a queue or topic with all its partitions.
fn in_all_partitions(size: FieldValue, is_partitioned: bool, settings: &Settings) -> FieldValue {
    match size {
        FieldValue::Size(megabytes) => FieldValue::Size(
            megabytes.saturating_mul(settings.tier().partition_count(is_partitioned)),
        ),
        other => other,
    }
}

/// Returns the elements of properties that `ORDER` does not list.
fn further<D: AtomEntity>() -> impl Iterator<Item = &'static str> {
    let elements = D::FIELDS.iter().filter(|field| field.is_in_azure).map(|field| field.element());
    elements.filter(|element| !D::ORDER.contains(element))
}

/// An entity with its counts and instants.
pub(in crate::atom) struct EntityView<D> {
    description: D,
    counts: Counts,
    size_bytes: u64,
    /// Number of subscriptions, SQL rules and correlation rules of a topic.
    topic_counts: [u64; 3],
    /// Instants of creation, last update and last access.
    instants: [Timestamp; 3],
    policies: Option<PolicyViews>,
}

/// Makes the entry of a queue.
pub(in crate::atom) fn queue(
    described: Described,
    policies: PolicyViews,
    addresses: &Addresses,
) -> Entry<impl Fn(&mut Xml)> {
    let Described { description, counts, size_bytes, created_at, updated_at, accessed_at, .. } =
        described;
    let path = description.path.to_string();
    let shown = EntityView {
        description,
        counts,
        size_bytes,
        topic_counts: [0; 3],
        instants: [created_at, updated_at, accessed_at],
        policies: Some(policies),
    };
    shown.entry(AtomRoute::Entity { path: path.clone() }, path, addresses)
}

/// Makes the entry of a topic.
pub(in crate::atom) fn topic(
    described: DescribedTopic,
    policies: PolicyViews,
    addresses: &Addresses,
) -> Entry<impl Fn(&mut Xml)> {
    let DescribedTopic { scheduled, transfer, transfer_dead_letter, .. } = described;
    let path = described.description.path.to_string();
    let shown = EntityView {
        description: described.description,
        // A topic holds only messages in these states (CNT-04).
        counts: Counts { scheduled, transfer, transfer_dead_letter, ..Counts::default() },
        size_bytes: described.size_bytes,
        topic_counts: [
            described.subscription_count,
            described.sql_rule_count,
            described.correlation_rule_count,
        ],
        instants: [described.created_at, described.updated_at, described.accessed_at],
        policies: Some(policies),
    };
    shown.entry(AtomRoute::Entity { path: path.clone() }, path, addresses)
}

/// Makes the entry of a subscription.
pub(in crate::atom) fn subscription(
    described: DescribedSubscription,
    addresses: &Addresses,
) -> Entry<impl Fn(&mut Xml)> {
    let description = described.description;
    let (topic, name) = (description.topic.to_string(), description.name.to_string());
    let shown = EntityView {
        description,
        counts: described.counts,
        size_bytes: described.size_bytes,
        topic_counts: [0; 3],
        instants: [described.created_at, described.updated_at, described.accessed_at],
        policies: None,
    };
    shown.entry(AtomRoute::Subscription { topic, name: name.clone() }, name, addresses)
}

impl<D: AtomEntity> EntityView<D> {
    fn entry(
        self,
        route: AtomRoute,
        title: String,
        addresses: &Addresses,
    ) -> Entry<impl Fn(&mut Xml)> {
        let [published, updated, _] = self.instants;
        let write = move |xml: &mut Xml| self.write(xml, addresses);
        Entry { route, title, published, updated, element: D::ELEMENT, write }
    }

    fn write(&self, xml: &mut Xml, addresses: &Addresses) {
        let kept = StoredElements::stored(self.description.extensions());
        for name in D::ORDER.iter().copied().chain(further::<D>()) {
            let field = D::FIELDS.iter().find(|field| field.is_in_azure && field.element() == name);
            match field {
                None => self.write_fact(xml, name, &kept),
                Some(_) if name == MESSAGE_SIZE && !addresses.has_message_size() => {}
                Some(field) => match field.get(&self.description) {
                    FieldValue::Flag(flag) => xml.leaf(name, flag_text(flag)),
                    FieldValue::Text(None) => {}
                    FieldValue::Text(Some(path)) if field.kind == FieldKind::Destination => {
                        xml.leaf(name, &kept.destination(name, &path, addresses));
                    }
                    FieldValue::Text(Some(text)) => xml.leaf(name, &text),
                    value => xml.leaf(name, &value.to_string()),
                },
            }
        }
        let placed: Vec<&str> = D::PLACED.iter().map(|(name, _)| *name).collect();
        kept.write_rest(xml, &placed);
    }

    /// Writes an element that is not a property.
    fn write_fact(&self, xml: &mut Xml, name: &str, kept: &StoredElements) {
        let [subscription_count, sql_count, correlation_count] = self.topic_counts;
        let [created_at, updated_at, accessed_at] = self.instants;
        let text = match name {
            "SizeInBytes" => self.size_bytes.to_string(),
            "MessageCount" => self.counts.total().to_string(),
            "SubscriptionCount" => subscription_count.to_string(),
            "SqlFilterCount" => sql_count.to_string(),
            "CorrelationFilterCount" => correlation_count.to_string(),
            "CreatedAt" => created_at.to_string(),
            "UpdatedAt" => updated_at.to_string(),
            "AccessedAt" => accessed_at.to_string(),
            "EntityAvailabilityStatus" => "Available".to_owned(),
            "CountDetails" => return write_counts(xml, &self.counts),
            _ => {
                if let (Some(policies), "AuthorizationRules") = (&self.policies, name) {
                    policies.write(xml, kept);
                }
                if let Some((_, default)) = D::PLACED.iter().find(|(placed, _)| *placed == name) {
                    kept.write_flag(xml, name, default);
                }
                return;
            }
        };
        xml.leaf(name, &text);
    }
}

/// Writes message counts by state (ADM-35). Some clients find them by the prefix that the attribute
/// declares.
fn write_counts(xml: &mut Xml, counts: &Counts) {
    xml.element("CountDetails", &[("xmlns:d2p1", COUNTS)], |xml| {
        for (name, count) in [
            // Includes deferred messages, as in the cloud (CNT-02).
            ("ActiveMessageCount", counts.active + counts.deferred),
            ("DeadLetterMessageCount", counts.dead_letter),
            ("ScheduledMessageCount", counts.scheduled),
            ("TransferDeadLetterMessageCount", counts.transfer_dead_letter),
            ("TransferMessageCount", counts.transfer),
        ] {
            xml.leaf(&format!("d2p1:{name}"), &count.to_string());
        }
    });
}
