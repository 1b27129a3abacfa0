//! Descriptions of queues, topics and subscriptions.

use super::VERSION;
use super::reader::{Read, Reader, write_optional_text, write_text};
use crate::description::{
    EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription,
};

/// The version of a description that ends with its extensions. One without any is written as the first version
/// reads it.
const EXTENDED: u8 = VERSION + 1;

const fn version_of(extensions: Option<&str>) -> u8 {
    if extensions.is_some() { EXTENDED } else { VERSION }
}

fn write_extensions(extensions: Option<&str>, value: &mut Vec<u8>) {
    if let Some(text) = extensions {
        write_text(text, value);
    }
}

/// Writes the description of a queue.
pub fn write_description(description: &QueueDescription, value: &mut Vec<u8>) {
    let QueueDescription {
        path,
        lock_duration,
        max_size_in_megabytes,
        requires_duplicate_detection,
        duplicate_detection_history_time_window,
        requires_session,
        default_message_time_to_live,
        dead_lettering_on_message_expiration,
        max_delivery_count,
        enable_batched_operations,
        status,
        forward_to,
        forward_dead_lettered_messages_to,
        auto_delete_on_idle,
        enable_partitioning,
        enable_express,
        max_message_size_in_kilobytes,
        user_metadata,
        extensions,
    } = description;
    value.push(version_of(extensions.as_deref()));
    write_text(path, value);
    for span in [
        lock_duration,
        duplicate_detection_history_time_window,
        default_message_time_to_live,
        auto_delete_on_idle,
    ] {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_size_in_megabytes.to_be_bytes());
    value.extend_from_slice(&max_message_size_in_kilobytes.to_be_bytes());
    value.extend_from_slice(&max_delivery_count.to_be_bytes());
    for switch in [
        requires_duplicate_detection,
        requires_session,
        dead_lettering_on_message_expiration,
        enable_batched_operations,
        enable_partitioning,
        enable_express,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    for text in [forward_to, forward_dead_lettered_messages_to, user_metadata] {
        write_optional_text(text.as_deref(), value);
    }
    write_extensions(extensions.as_deref(), value);
}

/// Reads the description of a queue.
///
/// # Errors
/// With what is wrong with it.
pub fn read_description(value: &[u8]) -> Read<QueueDescription> {
    let mut reader = Reader::new(value);
    let is_extended = reader.version_or(EXTENDED)?;
    let description = QueueDescription {
        path: reader.text()?,
        lock_duration: reader.span()?,
        duplicate_detection_history_time_window: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_size_in_megabytes: reader.u64()?,
        max_message_size_in_kilobytes: reader.u64()?,
        max_delivery_count: reader.u32()?,
        requires_duplicate_detection: reader.switch()?,
        requires_session: reader.switch()?,
        dead_lettering_on_message_expiration: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        enable_partitioning: reader.switch()?,
        enable_express: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        forward_to: reader.optional_text()?,
        forward_dead_lettered_messages_to: reader.optional_text()?,
        user_metadata: reader.optional_text()?,
        extensions: if is_extended { Some(reader.text()?) } else { None },
    };
    reader.end()?;
    Ok(description)
}

/// Writes the description of a topic.
pub fn write_topic(description: &TopicDescription, value: &mut Vec<u8>) {
    let TopicDescription {
        path,
        max_size_in_megabytes,
        requires_duplicate_detection,
        duplicate_detection_history_time_window,
        default_message_time_to_live,
        enable_batched_operations,
        status,
        auto_delete_on_idle,
        enable_partitioning,
        enable_express,
        support_ordering,
        max_message_size_in_kilobytes,
        user_metadata,
        extensions,
    } = description;
    value.push(version_of(extensions.as_deref()));
    write_text(path, value);
    for span in
        [duplicate_detection_history_time_window, default_message_time_to_live, auto_delete_on_idle]
    {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_size_in_megabytes.to_be_bytes());
    value.extend_from_slice(&max_message_size_in_kilobytes.to_be_bytes());
    for switch in [
        requires_duplicate_detection,
        enable_batched_operations,
        enable_partitioning,
        enable_express,
        support_ordering,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    write_optional_text(user_metadata.as_deref(), value);
    write_extensions(extensions.as_deref(), value);
}

/// Reads the description of a topic.
///
/// # Errors
/// With what is wrong with it.
pub fn read_topic(value: &[u8]) -> Read<TopicDescription> {
    let mut reader = Reader::new(value);
    let is_extended = reader.version_or(EXTENDED)?;
    let description = TopicDescription {
        path: reader.text()?,
        duplicate_detection_history_time_window: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_size_in_megabytes: reader.u64()?,
        max_message_size_in_kilobytes: reader.u64()?,
        requires_duplicate_detection: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        enable_partitioning: reader.switch()?,
        enable_express: reader.switch()?,
        support_ordering: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        user_metadata: reader.optional_text()?,
        extensions: if is_extended { Some(reader.text()?) } else { None },
    };
    reader.end()?;
    Ok(description)
}

/// Writes the description of a subscription.
pub fn write_subscription(description: &SubscriptionDescription, value: &mut Vec<u8>) {
    let SubscriptionDescription {
        topic,
        name,
        lock_duration,
        requires_session,
        default_message_time_to_live,
        dead_lettering_on_message_expiration,
        enable_dead_lettering_on_filter_evaluation_exceptions,
        max_delivery_count,
        enable_batched_operations,
        status,
        forward_to,
        forward_dead_lettered_messages_to,
        auto_delete_on_idle,
        user_metadata,
        extensions,
    } = description;
    value.push(version_of(extensions.as_deref()));
    write_text(topic, value);
    write_text(name, value);
    for span in [lock_duration, default_message_time_to_live, auto_delete_on_idle] {
        value.extend_from_slice(&span.ticks().to_be_bytes());
    }
    value.extend_from_slice(&max_delivery_count.to_be_bytes());
    for switch in [
        requires_session,
        dead_lettering_on_message_expiration,
        enable_dead_lettering_on_filter_evaluation_exceptions,
        enable_batched_operations,
    ] {
        value.push(u8::from(*switch));
    }
    write_text(status.name(), value);
    for text in [forward_to, forward_dead_lettered_messages_to, user_metadata] {
        write_optional_text(text.as_deref(), value);
    }
    write_extensions(extensions.as_deref(), value);
}

/// Reads the description of a subscription.
///
/// # Errors
/// With what is wrong with it.
pub fn read_subscription(value: &[u8]) -> Read<SubscriptionDescription> {
    let mut reader = Reader::new(value);
    let is_extended = reader.version_or(EXTENDED)?;
    let description = SubscriptionDescription {
        topic: reader.text()?,
        name: reader.text()?,
        lock_duration: reader.span()?,
        default_message_time_to_live: reader.span()?,
        auto_delete_on_idle: reader.span()?,
        max_delivery_count: reader.u32()?,
        requires_session: reader.switch()?,
        dead_lettering_on_message_expiration: reader.switch()?,
        enable_dead_lettering_on_filter_evaluation_exceptions: reader.switch()?,
        enable_batched_operations: reader.switch()?,
        status: EntityStatus::parse(&reader.text()?).ok_or("unknown status")?,
        forward_to: reader.optional_text()?,
        forward_dead_lettered_messages_to: reader.optional_text()?,
        user_metadata: reader.optional_text()?,
        extensions: if is_extended { Some(reader.text()?) } else { None },
    };
    reader.end()?;
    Ok(description)
}
