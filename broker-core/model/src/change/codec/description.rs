//! Descriptions of queues, topics and subscriptions.

use super::VERSION;
use super::reader::{Read, Reader, write_optional_text, write_text};
use crate::description::{
    EntityStatus, Jitter, QueueDescription, RetryKind, RetryPolicy, SessionRetryOrder,
    SubscriptionDescription, TopicDescription,
};

/// The version of a description that ends with its extensions. One without any is written as the first version
/// reads it.
const EXTENDED: u8 = VERSION + 1;
/// The version of the description of a queue or subscription that says how it retries (RTY-16, RTY-23). It
/// ends with that, behind its extensions if it has some. One that says nothing is written as the versions
/// before read it.
const RETRYING: u8 = EXTENDED + 1;
/// The version of the description of a subscription that is a catch-all (TOP-25). It ends as the one before. One
/// that is none is written as the versions before read it.
const CATCH_ALL: u8 = RETRYING + 1;

/// What is said of retries in a byte.
const HAS_POLICY: u8 = 1;
const HAS_DELAY_MAX: u8 = 2;
const PASSES: u8 = 4;

const fn version_of(extensions: Option<&str>) -> u8 {
    if extensions.is_some() { EXTENDED } else { VERSION }
}

/// What a queue or subscription says of retries.
#[derive(Clone, Copy)]
struct Retries {
    policy: Option<RetryPolicy>,
    order: SessionRetryOrder,
}

impl Retries {
    fn version(self, extensions: Option<&str>) -> u8 {
        match (self.policy, self.order) {
            (None, SessionRetryOrder::Hold) => version_of(extensions),
            (Some(_), _) | (None, SessionRetryOrder::Pass) => RETRYING,
        }
    }

    /// Writes the end of a description of that version.
    fn write_end(self, version: u8, extensions: Option<&str>, value: &mut Vec<u8>) {
        if version < RETRYING {
            write_extensions(extensions, value);
            return;
        }
        write_optional_text(extensions, value);
        let flag = |is_so: bool, flag: u8| if is_so { flag } else { 0 };
        let delay_max = self.policy.and_then(|policy| policy.delay_max);
        value.push(
            flag(self.policy.is_some(), HAS_POLICY)
                | flag(delay_max.is_some(), HAS_DELAY_MAX)
                | flag(self.order == SessionRetryOrder::Pass, PASSES),
        );
        let Some(RetryPolicy { kind, delay, delay_max, jitter }) = self.policy else { return };
        write_text(kind.name(), value);
        value.extend_from_slice(&delay.ticks().to_be_bytes());
        if let Some(most) = delay_max {
            value.extend_from_slice(&most.ticks().to_be_bytes());
        }
        value.extend_from_slice(&jitter.millionths().to_be_bytes());
    }

    /// Reads the end of a description of that version: its extensions, and what it says of retries.
    fn read_end(version: u8, reader: &mut Reader<'_>) -> Read<(Option<Box<str>>, Self)> {
        let none = Self { policy: None, order: SessionRetryOrder::Hold };
        match version {
            VERSION => return Ok((None, none)),
            EXTENDED => return Ok((Some(reader.text()?), none)),
            _ => {}
        }
        let extensions = reader.optional_text()?;
        let said = reader.u8()?;
        if said & !(HAS_POLICY | HAS_DELAY_MAX | PASSES) != 0 {
            return Err("unknown property of a retry policy");
        }
        let order = match said & PASSES {
            0 => SessionRetryOrder::Hold,
            _ => SessionRetryOrder::Pass,
        };
        if said & (HAS_POLICY | HAS_DELAY_MAX) == HAS_DELAY_MAX {
            return Err("a maximum delay without a policy");
        }
        if said & HAS_POLICY == 0 {
            return Ok((extensions, Self { policy: None, order }));
        }
        let policy = RetryPolicy {
            kind: RetryKind::parse(&reader.text()?).ok_or("unknown kind of a retry policy")?,
            delay: reader.span()?,
            delay_max: if said & HAS_DELAY_MAX == 0 { None } else { Some(reader.span()?) },
            jitter: Jitter::of_millionths(reader.u32()?).ok_or("jitter is more than 1")?,
        };
        Ok((extensions, Self { policy: Some(policy), order }))
    }
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
        retry_policy,
        session_retry_order,
        extensions,
    } = description;
    let retries = Retries { policy: *retry_policy, order: *session_retry_order };
    let version = retries.version(extensions.as_deref());
    value.push(version);
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
    retries.write_end(version, extensions.as_deref(), value);
}

/// Reads the description of a queue.
///
/// # Errors
/// With what is wrong with it.
pub fn read_description(value: &[u8]) -> Read<QueueDescription> {
    let mut reader = Reader::new(value);
    let version = reader.version_up_to(RETRYING)?;
    let mut description = QueueDescription {
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
        retry_policy: None,
        session_retry_order: SessionRetryOrder::Hold,
        extensions: None,
    };
    let (extensions, retries) = Retries::read_end(version, &mut reader)?;
    description.extensions = extensions;
    description.retry_policy = retries.policy;
    description.session_retry_order = retries.order;
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
        retry_policy,
        session_retry_order,
        catch_all,
        extensions,
    } = description;
    let retries = Retries { policy: *retry_policy, order: *session_retry_order };
    let version = if *catch_all { CATCH_ALL } else { retries.version(extensions.as_deref()) };
    value.push(version);
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
    retries.write_end(version, extensions.as_deref(), value);
}

/// Reads the description of a subscription.
///
/// # Errors
/// With what is wrong with it.
pub fn read_subscription(value: &[u8]) -> Read<SubscriptionDescription> {
    let mut reader = Reader::new(value);
    let version = reader.version_up_to(CATCH_ALL)?;
    let mut description = SubscriptionDescription {
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
        retry_policy: None,
        session_retry_order: SessionRetryOrder::Hold,
        catch_all: version == CATCH_ALL,
        extensions: None,
    };
    let (extensions, retries) = Retries::read_end(version, &mut reader)?;
    description.extensions = extensions;
    description.retry_policy = retries.policy;
    description.session_retry_order = retries.order;
    reader.end()?;
    Ok(description)
}
