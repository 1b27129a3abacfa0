//! `SubscriptionDescription`.

use peeklock_core::command::DescribedSubscription;
use peeklock_core::description::{SubscriptionDescription, SubscriptionUpdate};

use super::super::entry::{Addresses, Entry};
use super::super::path::AtomRoute;
use super::super::xml::{Element, Xml};
use super::kept::Kept;
use super::{Fields, counts, flag_text};
use crate::error::Refusal;

/// Its element.
pub(in crate::atom) const ELEMENT: &str = "SubscriptionDescription";
/// The rule that it is created with, in a request (ADM-42).
pub(in crate::atom) const DEFAULT_RULE: &str = "DefaultRuleDescription";
/// The element of a property that the broker knows by a longer name.
const ON_FILTER_ERRORS: &str = "DeadLetteringOnFilterEvaluationExceptions";
/// What is read, or told by the broker alone.
const KNOWN: [&str; 19] = [
    "LockDuration",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    ON_FILTER_ERRORS,
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

/// Reads the properties that a client has named; `kept` is what was stored beside them.
pub(in crate::atom) fn read(
    description: &Element,
    kept: Option<&str>,
) -> Result<SubscriptionUpdate, Refusal> {
    let fields = Fields(description);
    let kept = Kept::stored(kept);
    let own = kept.own_of_entity(description);
    Ok(SubscriptionUpdate {
        lock_duration: fields.span("LockDuration")?,
        requires_session: fields.flag("RequiresSession")?,
        default_message_time_to_live: fields.span("DefaultMessageTimeToLive")?,
        dead_lettering_on_message_expiration: fields.flag("DeadLetteringOnMessageExpiration")?,
        enable_dead_lettering_on_filter_evaluation_exceptions: fields.flag(ON_FILTER_ERRORS)?,
        max_delivery_count: fields.number("MaxDeliveryCount")?,
        enable_batched_operations: fields.flag("EnableBatchedOperations")?,
        status: fields.status()?,
        forward_to: fields.destination("ForwardTo"),
        forward_dead_lettered_messages_to: fields.destination("ForwardDeadLetteredMessagesTo"),
        auto_delete_on_idle: fields.span("AutoDeleteOnIdle")?,
        user_metadata: fields.text("UserMetadata").map(Box::from),
        // Clients of this form know nothing of these; absence keeps what is there.
        retry_policy: None,
        session_retry_order: None,
        catch_all: None,
        extensions: kept.with(description, &KNOWN, &own),
    })
}

/// What an update says in full: what it does not name gets its default (ADM-31). What is fixed at creation stays, and so does
/// what some versions of this form do not have.
pub(in crate::atom) fn complete(
    said: SubscriptionUpdate,
    default: &SubscriptionDescription,
) -> SubscriptionUpdate {
    SubscriptionUpdate {
        lock_duration: said.lock_duration.or(Some(default.lock_duration)),
        default_message_time_to_live: said
            .default_message_time_to_live
            .or(Some(default.default_message_time_to_live)),
        dead_lettering_on_message_expiration: said
            .dead_lettering_on_message_expiration
            .or(Some(default.dead_lettering_on_message_expiration)),
        enable_dead_lettering_on_filter_evaluation_exceptions: said
            .enable_dead_lettering_on_filter_evaluation_exceptions
            .or(Some(default.enable_dead_lettering_on_filter_evaluation_exceptions)),
        max_delivery_count: said.max_delivery_count.or(Some(default.max_delivery_count)),
        enable_batched_operations: said
            .enable_batched_operations
            .or(Some(default.enable_batched_operations)),
        status: said.status.or(Some(default.status)),
        auto_delete_on_idle: said.auto_delete_on_idle.or(Some(default.auto_delete_on_idle)),
        ..said
    }
}

/// A subscription as its client is told of it.
pub(in crate::atom) fn entry(
    described: DescribedSubscription,
    addresses: &Addresses,
) -> Entry<impl Fn(&mut Xml)> {
    let description = &described.description;
    let (topic, name) = (description.topic.to_string(), description.name.to_string());
    Entry {
        title: name.clone(),
        route: AtomRoute::Subscription { topic, name },
        published: described.created_at,
        updated: described.updated_at,
        element: ELEMENT,
        write: move |xml: &mut Xml| write(xml, &described, addresses),
    }
}

fn write(xml: &mut Xml, described: &DescribedSubscription, addresses: &Addresses) {
    let subscription = &described.description;
    let kept = Kept::stored(subscription.extensions.as_deref());
    let flag = |xml: &mut Xml, name: &str, value: bool| xml.leaf(name, flag_text(value));
    xml.leaf("LockDuration", &subscription.lock_duration.to_string());
    flag(xml, "RequiresSession", subscription.requires_session);
    xml.leaf("DefaultMessageTimeToLive", &subscription.default_message_time_to_live.to_string());
    let on_expiration = subscription.dead_lettering_on_message_expiration;
    flag(xml, "DeadLetteringOnMessageExpiration", on_expiration);
    let on_errors = subscription.enable_dead_lettering_on_filter_evaluation_exceptions;
    flag(xml, ON_FILTER_ERRORS, on_errors);
    xml.leaf("MessageCount", &described.counts.total().to_string());
    xml.leaf("MaxDeliveryCount", &subscription.max_delivery_count.to_string());
    flag(xml, "EnableBatchedOperations", subscription.enable_batched_operations);
    xml.leaf("Status", subscription.status.name());
    if let Some(path) = &subscription.forward_to {
        xml.leaf("ForwardTo", &kept.destination("ForwardTo", path, addresses));
    }
    xml.leaf("CreatedAt", &described.created_at.to_string());
    xml.leaf("UpdatedAt", &described.updated_at.to_string());
    xml.leaf("AccessedAt", &described.accessed_at.to_string());
    counts::write(xml, &described.counts);
    if let Some(path) = &subscription.forward_dead_lettered_messages_to {
        let name = "ForwardDeadLetteredMessagesTo";
        xml.leaf(name, &kept.destination(name, path, addresses));
    }
    xml.leaf("AutoDeleteOnIdle", &subscription.auto_delete_on_idle.to_string());
    xml.leaf("EntityAvailabilityStatus", "Available");
    if let Some(text) = &subscription.user_metadata {
        xml.leaf("UserMetadata", text);
    }
    kept.write_rest(xml, &[]);
}
