//! `QueueDescription`.

use peeklock_core::command::Described;
use peeklock_core::description::{QueueDescription, QueueUpdate, Settings};

use super::super::entry::{Addresses, Entry};
use super::super::path::AtomRoute;
use super::super::xml::{Element, Xml};
use super::kept::Kept;
use super::policies::Told;
use super::{Fields, counts, flag_text, size_of_new};
use crate::error::Refusal;

/// Its element.
pub(in crate::atom) const ELEMENT: &str = "QueueDescription";
/// What means nothing here and has its place nevertheless.
const PLACED: [&str; 2] = ["IsAnonymousAccessible", "SupportOrdering"];
/// What is read, or told by the broker alone.
const KNOWN: [&str; 25] = [
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
    "AuthorizationRules",
    "Status",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "EntityAvailabilityStatus",
    "EnableExpress",
    "ForwardTo",
    "UserMetadata",
    "ForwardDeadLetteredMessagesTo",
    "MaxMessageSizeInKilobytes",
];

/// Reads the properties that a client has named; `kept` is what was stored beside them.
pub(in crate::atom) fn read(
    description: &Element,
    kept: Option<&str>,
) -> Result<QueueUpdate, Refusal> {
    let fields = Fields(description);
    let kept = Kept::stored(kept);
    let own = kept.own_of_entity(description);
    Ok(QueueUpdate {
        lock_duration: fields.span("LockDuration")?,
        max_size_in_megabytes: fields.number("MaxSizeInMegabytes")?,
        requires_duplicate_detection: fields.flag("RequiresDuplicateDetection")?,
        duplicate_detection_history_time_window: fields
            .span("DuplicateDetectionHistoryTimeWindow")?,
        requires_session: fields.flag("RequiresSession")?,
        default_message_time_to_live: fields.span("DefaultMessageTimeToLive")?,
        dead_lettering_on_message_expiration: fields.flag("DeadLetteringOnMessageExpiration")?,
        max_delivery_count: fields.number("MaxDeliveryCount")?,
        enable_batched_operations: fields.flag("EnableBatchedOperations")?,
        status: fields.status()?,
        forward_to: fields.destination("ForwardTo"),
        forward_dead_lettered_messages_to: fields.destination("ForwardDeadLetteredMessagesTo"),
        auto_delete_on_idle: fields.span("AutoDeleteOnIdle")?,
        enable_partitioning: fields.flag("EnablePartitioning")?,
        enable_express: fields.flag("EnableExpress")?,
        max_message_size_in_kilobytes: fields.kilobytes()?,
        user_metadata: fields.text("UserMetadata").map(Box::from),
        // Clients of this form know nothing of retries; absence keeps what is there.
        retry_policy: None,
        session_retry_order: None,
        extensions: kept.with(description, &KNOWN, &own),
    })
}

/// Reads the properties of a new queue.
pub(in crate::atom) fn new(
    description: &Element,
    settings: &Settings,
) -> Result<QueueUpdate, Refusal> {
    let said = read(description, None)?;
    let default = settings.new_queue("").max_size_in_megabytes;
    let megabytes = said.max_size_in_megabytes.unwrap_or(default);
    let is_partitioned = said.enable_partitioning == Some(true);
    let size = size_of_new(megabytes, is_partitioned, settings);
    Ok(QueueUpdate { max_size_in_megabytes: Some(size), ..said })
}

/// What an update says in full: what it does not name gets its default (ADM-31). What is fixed at creation stays, and so does
/// what some versions of this form do not have.
pub(in crate::atom) fn complete(
    said: QueueUpdate,
    current: &QueueDescription,
    settings: &Settings,
) -> QueueUpdate {
    let default = settings.new_queue("");
    let size = size_of_new(default.max_size_in_megabytes, current.enable_partitioning, settings);
    QueueUpdate {
        lock_duration: said.lock_duration.or(Some(default.lock_duration)),
        max_size_in_megabytes: said.max_size_in_megabytes.or(Some(size)),
        duplicate_detection_history_time_window: said
            .duplicate_detection_history_time_window
            .or(Some(default.duplicate_detection_history_time_window)),
        default_message_time_to_live: said
            .default_message_time_to_live
            .or(Some(default.default_message_time_to_live)),
        dead_lettering_on_message_expiration: said
            .dead_lettering_on_message_expiration
            .or(Some(default.dead_lettering_on_message_expiration)),
        max_delivery_count: said.max_delivery_count.or(Some(default.max_delivery_count)),
        enable_batched_operations: said
            .enable_batched_operations
            .or(Some(default.enable_batched_operations)),
        status: said.status.or(Some(default.status)),
        auto_delete_on_idle: said.auto_delete_on_idle.or(Some(default.auto_delete_on_idle)),
        enable_express: said.enable_express.or(Some(default.enable_express)),
        ..said
    }
}

/// A queue as its client is told of it.
pub(in crate::atom) fn entry(
    described: Described,
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

fn write(xml: &mut Xml, described: &Described, policies: &Told, addresses: &Addresses) {
    let queue = &described.description;
    let kept = Kept::stored(queue.extensions.as_deref());
    let flag = |xml: &mut Xml, name: &str, value: bool| xml.leaf(name, flag_text(value));
    xml.leaf("LockDuration", &queue.lock_duration.to_string());
    xml.leaf("MaxSizeInMegabytes", &queue.max_size_in_megabytes.to_string());
    flag(xml, "RequiresDuplicateDetection", queue.requires_duplicate_detection);
    flag(xml, "RequiresSession", queue.requires_session);
    xml.leaf("DefaultMessageTimeToLive", &queue.default_message_time_to_live.to_string());
    flag(xml, "DeadLetteringOnMessageExpiration", queue.dead_lettering_on_message_expiration);
    let window = queue.duplicate_detection_history_time_window;
    xml.leaf("DuplicateDetectionHistoryTimeWindow", &window.to_string());
    xml.leaf("MaxDeliveryCount", &queue.max_delivery_count.to_string());
    flag(xml, "EnableBatchedOperations", queue.enable_batched_operations);
    xml.leaf("SizeInBytes", &described.size_bytes.to_string());
    xml.leaf("MessageCount", &described.counts.total().to_string());
    kept.write_flag(xml, "IsAnonymousAccessible", "false");
    policies.write(xml, &kept);
    xml.leaf("Status", queue.status.name());
    xml.leaf("CreatedAt", &described.created_at.to_string());
    xml.leaf("UpdatedAt", &described.updated_at.to_string());
    xml.leaf("AccessedAt", &described.accessed_at.to_string());
    kept.write_flag(xml, "SupportOrdering", "true");
    counts::write(xml, &described.counts);
    xml.leaf("AutoDeleteOnIdle", &queue.auto_delete_on_idle.to_string());
    flag(xml, "EnablePartitioning", queue.enable_partitioning);
    xml.leaf("EntityAvailabilityStatus", "Available");
    flag(xml, "EnableExpress", queue.enable_express);
    if let Some(path) = &queue.forward_to {
        xml.leaf("ForwardTo", &kept.destination("ForwardTo", path, addresses));
    }
    if let Some(text) = &queue.user_metadata {
        xml.leaf("UserMetadata", text);
    }
    if let Some(path) = &queue.forward_dead_lettered_messages_to {
        let name = "ForwardDeadLetteredMessagesTo";
        xml.leaf(name, &kept.destination(name, path, addresses));
    }
    if addresses.have_message_size() {
        xml.leaf("MaxMessageSizeInKilobytes", &queue.max_message_size_in_kilobytes.to_string());
    }
    kept.write_rest(xml, &PLACED);
}
