//! `TopicDescription`.

use peeklock_core::command::{Counts, DescribedTopic};
use peeklock_core::description::{Settings, TopicDescription, TopicUpdate};

use super::super::entry::{Addresses, Entry};
use super::super::path::AtomRoute;
use super::super::xml::{Element, Xml};
use super::kept::Kept;
use super::policies::Told;
use super::{Fields, counts, flag_text, size_of_new};
use crate::error::Refusal;

/// Its element.
pub(in crate::atom) const ELEMENT: &str = "TopicDescription";
/// What means nothing here and has its place nevertheless.
const PLACED: [&str; 3] = [
    "FilteringMessagesBeforePublishing",
    "IsAnonymousAccessible",
    "EnableSubscriptionPartitioning",
];
/// What is read, or told by the broker alone.
const KNOWN: [&str; 22] = [
    "DefaultMessageTimeToLive",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "DuplicateDetectionHistoryTimeWindow",
    "EnableBatchedOperations",
    "SizeInBytes",
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
    "EnableExpress",
    "UserMetadata",
    "MaxMessageSizeInKilobytes",
];

/// Reads the properties that a client has named; `kept` is what was stored beside them.
pub(in crate::atom) fn read(
    description: &Element,
    kept: Option<&str>,
) -> Result<TopicUpdate, Refusal> {
    let fields = Fields(description);
    let kept = Kept::stored(kept);
    let own = kept.own_of_entity(description);
    Ok(TopicUpdate {
        max_size_in_megabytes: fields.number("MaxSizeInMegabytes")?,
        requires_duplicate_detection: fields.flag("RequiresDuplicateDetection")?,
        duplicate_detection_history_time_window: fields
            .span("DuplicateDetectionHistoryTimeWindow")?,
        default_message_time_to_live: fields.span("DefaultMessageTimeToLive")?,
        enable_batched_operations: fields.flag("EnableBatchedOperations")?,
        status: fields.status()?,
        auto_delete_on_idle: fields.span("AutoDeleteOnIdle")?,
        enable_partitioning: fields.flag("EnablePartitioning")?,
        enable_express: fields.flag("EnableExpress")?,
        support_ordering: fields.flag("SupportOrdering")?,
        max_message_size_in_kilobytes: fields.kilobytes()?,
        user_metadata: fields.text("UserMetadata").map(Box::from),
        extensions: kept.with(description, &KNOWN, &own),
    })
}

/// Reads the properties of a new topic.
pub(in crate::atom) fn new(
    description: &Element,
    settings: &Settings,
) -> Result<TopicUpdate, Refusal> {
    let said = read(description, None)?;
    let default = settings.new_topic("").max_size_in_megabytes;
    let megabytes = said.max_size_in_megabytes.unwrap_or(default);
    let is_partitioned = said.enable_partitioning == Some(true);
    let size = size_of_new(megabytes, is_partitioned, settings);
    Ok(TopicUpdate { max_size_in_megabytes: Some(size), ..said })
}

/// What an update says in full: what it does not name gets its default (ADM-31). What is fixed at creation stays, and so does
/// what some versions of this form do not have.
pub(in crate::atom) fn complete(
    said: TopicUpdate,
    current: &TopicDescription,
    settings: &Settings,
) -> TopicUpdate {
    let default = settings.new_topic("");
    let size = size_of_new(default.max_size_in_megabytes, current.enable_partitioning, settings);
    TopicUpdate {
        max_size_in_megabytes: said.max_size_in_megabytes.or(Some(size)),
        duplicate_detection_history_time_window: said
            .duplicate_detection_history_time_window
            .or(Some(default.duplicate_detection_history_time_window)),
        default_message_time_to_live: said
            .default_message_time_to_live
            .or(Some(default.default_message_time_to_live)),
        enable_batched_operations: said
            .enable_batched_operations
            .or(Some(default.enable_batched_operations)),
        status: said.status.or(Some(default.status)),
        auto_delete_on_idle: said.auto_delete_on_idle.or(Some(default.auto_delete_on_idle)),
        enable_express: said.enable_express.or(Some(default.enable_express)),
        support_ordering: said.support_ordering.or(Some(default.support_ordering)),
        ..said
    }
}

/// A topic as its client is told of it.
pub(in crate::atom) fn entry(
    described: DescribedTopic,
    policies: Told,
    addresses: &Addresses,
) -> Entry<impl Fn(&mut Xml)> {
    let path = described.description.path.to_string();
    Entry {
        route: AtomRoute::Entity { path: path.clone() },
        title: path,
        published: described.created_at,
        updated: described.updated_at,
        element: ELEMENT,
        write: move |xml: &mut Xml| write(xml, &described, &policies, addresses),
    }
}

fn write(xml: &mut Xml, described: &DescribedTopic, policies: &Told, addresses: &Addresses) {
    let topic = &described.description;
    let kept = Kept::stored(topic.extensions.as_deref());
    let flag = |xml: &mut Xml, name: &str, value: bool| xml.leaf(name, flag_text(value));
    xml.leaf("DefaultMessageTimeToLive", &topic.default_message_time_to_live.to_string());
    xml.leaf("MaxSizeInMegabytes", &topic.max_size_in_megabytes.to_string());
    flag(xml, "RequiresDuplicateDetection", topic.requires_duplicate_detection);
    let window = topic.duplicate_detection_history_time_window;
    xml.leaf("DuplicateDetectionHistoryTimeWindow", &window.to_string());
    flag(xml, "EnableBatchedOperations", topic.enable_batched_operations);
    xml.leaf("SizeInBytes", &described.size_bytes.to_string());
    kept.write_flag(xml, "FilteringMessagesBeforePublishing", "false");
    kept.write_flag(xml, "IsAnonymousAccessible", "false");
    policies.write(xml, &kept);
    xml.leaf("Status", topic.status.name());
    xml.leaf("CreatedAt", &described.created_at.to_string());
    xml.leaf("UpdatedAt", &described.updated_at.to_string());
    xml.leaf("AccessedAt", &described.accessed_at.to_string());
    flag(xml, "SupportOrdering", topic.support_ordering);
    // A topic holds messages of these kinds alone (CNT-04).
    let DescribedTopic { scheduled, transfer, transfer_dead_letter, .. } = *described;
    counts::write(xml, &Counts { scheduled, transfer, transfer_dead_letter, ..Counts::default() });
    xml.leaf("SubscriptionCount", &described.subscription_count.to_string());
    xml.leaf("SqlFilterCount", &described.sql_rule_count.to_string());
    xml.leaf("CorrelationFilterCount", &described.correlation_rule_count.to_string());
    xml.leaf("AutoDeleteOnIdle", &topic.auto_delete_on_idle.to_string());
    flag(xml, "EnablePartitioning", topic.enable_partitioning);
    xml.leaf("EntityAvailabilityStatus", "Available");
    kept.write_flag(xml, "EnableSubscriptionPartitioning", "false");
    flag(xml, "EnableExpress", topic.enable_express);
    if let Some(text) = &topic.user_metadata {
        xml.leaf("UserMetadata", text);
    }
    if addresses.have_message_size() {
        xml.leaf("MaxMessageSizeInKilobytes", &topic.max_message_size_in_kilobytes.to_string());
    }
    kept.write_rest(xml, &PLACED);
}
