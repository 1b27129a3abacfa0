//! Codec of entity descriptions, driven by the table of their properties.
//!
//! A record is a version, the names, the values of the first 19 tags in groups by type, and an end.
//! Each version adds to the end. A description is written in the lowest version that can express
//! it, so that older brokers can read it.

use super::VERSION;
use super::reader::{Read, Reader, write_optional_text, write_text};
use crate::description::{
    Description, EntityStatus, Field, FieldKind, FieldValue, Jitter, RetryKind, RetryPolicy,
    SessionRetryOrder,
};
use crate::limits::Limits;

/// The version of a description that ends with its unknown properties.
const EXTENDED: u8 = VERSION + 1;
/// The version that ends with unknown properties, if there are some, and with retries (RTY-16,
/// RTY-23).
const RETRYING: u8 = EXTENDED + 1;
/// The version of a catch-all subscription (TOP-25). It ends as the version before.
const CATCH_ALL: u8 = RETRYING + 1;
/// The version that ends with unknown properties, if there are some, and with tag, length and value
/// of each further property that differs from its default.
const TAGGED: u8 = CATCH_ALL + 1;

/// The greatest tag of the properties in groups.
const GROUPED_TAG_MAX: u8 = 19;
/// The tag of the property `catch_all`.
const CATCH_ALL_TAG: u8 = 22;
/// The greatest tag of the properties that have a version without tags.
const UNTAGGED_TAG_MAX: u8 = 22;

/// Bits of the byte in front of retries.
const HAS_POLICY: u8 = 1;
const HAS_DELAY_MAX: u8 = 2;
const PASSES: u8 = 4;

/// The types of grouped properties, in the order of their groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Spans,
    Sizes,
    Counts,
    Flags,
    Statuses,
    Texts,
}

impl Group {
    const ALL: [Self; 6] =
        [Self::Spans, Self::Sizes, Self::Counts, Self::Flags, Self::Statuses, Self::Texts];

    const fn of(kind: FieldKind) -> Option<Self> {
        Some(match kind {
            FieldKind::Span => Self::Spans,
            FieldKind::Megabytes | FieldKind::Kilobytes => Self::Sizes,
            FieldKind::Count => Self::Counts,
            FieldKind::Flag => Self::Flags,
            FieldKind::Status => Self::Statuses,
            FieldKind::Destination | FieldKind::Text => Self::Texts,
            FieldKind::Retry | FieldKind::Order => return None,
        })
    }

    /// The properties of a group, in the order of the table.
    fn fields<D: Description>(self) -> impl Iterator<Item = &'static Field<D>> {
        D::FIELDS
            .iter()
            .filter(move |field| field.tag <= GROUPED_TAG_MAX && Self::of(field.kind) == Some(self))
    }
}

fn write_value(field: &FieldValue, value: &mut Vec<u8>) {
    match field {
        FieldValue::Flag(flag) => value.push(u8::from(*flag)),
        FieldValue::Count(count) => value.extend_from_slice(&count.to_be_bytes()),
        FieldValue::Size(size) => value.extend_from_slice(&size.to_be_bytes()),
        FieldValue::Span(span) => value.extend_from_slice(&span.ticks().to_be_bytes()),
        FieldValue::Status(status) => write_text(status.name(), value),
        FieldValue::Text(text) => write_optional_text(text.as_deref(), value),
        FieldValue::Retry(policy) => write_retries(*policy, SessionRetryOrder::Hold, value),
        FieldValue::Order(order) => write_retries(None, *order, value),
    }
}

fn read_value(kind: FieldKind, reader: &mut Reader<'_>) -> Read<FieldValue> {
    Ok(match kind {
        FieldKind::Flag => FieldValue::Flag(reader.switch()?),
        FieldKind::Count => FieldValue::Count(reader.u32()?),
        FieldKind::Megabytes | FieldKind::Kilobytes => FieldValue::Size(reader.u64()?),
        FieldKind::Span => FieldValue::Span(reader.span()?),
        FieldKind::Status => {
            FieldValue::Status(EntityStatus::parse(&reader.text()?).ok_or("unknown status")?)
        }
        FieldKind::Destination | FieldKind::Text => FieldValue::Text(reader.optional_text()?),
        FieldKind::Retry => FieldValue::Retry(read_retries(reader)?.0),
        FieldKind::Order => FieldValue::Order(read_retries(reader)?.1),
    })
}

fn write_retries(policy: Option<RetryPolicy>, order: SessionRetryOrder, value: &mut Vec<u8>) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let delay_max = policy.and_then(|policy| policy.delay_max);
    value.push(
        flag(policy.is_some(), HAS_POLICY)
            | flag(delay_max.is_some(), HAS_DELAY_MAX)
            | flag(order == SessionRetryOrder::Pass, PASSES),
    );
    let Some(RetryPolicy { kind, delay, delay_max, jitter }) = policy else { return };
    write_text(kind.name(), value);
    value.extend_from_slice(&delay.ticks().to_be_bytes());
    if let Some(most) = delay_max {
        value.extend_from_slice(&most.ticks().to_be_bytes());
    }
    value.extend_from_slice(&jitter.millionths().to_be_bytes());
}

fn read_retries(reader: &mut Reader<'_>) -> Read<(Option<RetryPolicy>, SessionRetryOrder)> {
    let flags = reader.u8()?;
    if flags & !(HAS_POLICY | HAS_DELAY_MAX | PASSES) != 0 {
        return Err("unknown property of a retry policy");
    }
    let order = match flags & PASSES {
        0 => SessionRetryOrder::Hold,
        _ => SessionRetryOrder::Pass,
    };
    if flags & (HAS_POLICY | HAS_DELAY_MAX) == HAS_DELAY_MAX {
        return Err("a maximum delay without a policy");
    }
    if flags & HAS_POLICY == 0 {
        return Ok((None, order));
    }
    let policy = RetryPolicy {
        kind: RetryKind::parse(&reader.text()?).ok_or("unknown kind of a retry policy")?,
        delay: reader.span()?,
        delay_max: if flags & HAS_DELAY_MAX == 0 { None } else { Some(reader.span()?) },
        jitter: Jitter::of_millionths(reader.u32()?).ok_or("jitter is more than 1")?,
    };
    Ok((Some(policy), order))
}

fn field_of<D: Description>(kind: FieldKind) -> Option<&'static Field<D>> {
    D::FIELDS.iter().find(|field| field.kind == kind)
}

/// The properties after a tag that differ from their defaults.
fn non_default<D: Description>(description: &D, after: u8) -> Vec<(u8, FieldValue)> {
    let limits = Limits::default();
    let further = D::FIELDS.iter().filter(|field| field.tag > after);
    further
        .map(|field| (field, field.get(description)))
        .filter(|(field, value)| *value != (field.default)(&limits))
        .map(|(field, value)| (field.tag, value))
        .collect()
}

/// Writes the description of an entity.
pub fn write_description<D: Description>(description: &D, value: &mut Vec<u8>) {
    let further = non_default(description, GROUPED_TAG_MAX);
    let version = match further.iter().map(|(tag, _)| *tag).max() {
        None if description.extensions().is_some() => EXTENDED,
        None => VERSION,
        Some(CATCH_ALL_TAG) => CATCH_ALL,
        Some(tag) if tag <= UNTAGGED_TAG_MAX => RETRYING,
        Some(_) => TAGGED,
    };
    write_version(description, version, value);
}

/// Writes a description in a version that can express it.
pub(super) fn write_version<D: Description>(description: &D, version: u8, value: &mut Vec<u8>) {
    value.push(version);
    for name in description.names() {
        write_text(name, value);
    }
    for group in Group::ALL {
        for field in group.fields::<D>() {
            write_value(&field.get(description), value);
        }
    }
    match (version, description.extensions()) {
        (..EXTENDED, _) | (EXTENDED, None) => return,
        (EXTENDED, Some(extensions)) => return write_text(extensions, value),
        (_, extensions) => write_optional_text(extensions, value),
    }
    if version < TAGGED {
        let value_of = |kind| field_of::<D>(kind).map(|field| field.get(description));
        let policy = match value_of(FieldKind::Retry) {
            Some(FieldValue::Retry(policy)) => policy,
            _ => None,
        };
        let order = match value_of(FieldKind::Order) {
            Some(FieldValue::Order(order)) => order,
            _ => SessionRetryOrder::Hold,
        };
        return write_retries(policy, order, value);
    }
    for (tag, field) in non_default(description, GROUPED_TAG_MAX) {
        let mut bytes = Vec::new();
        write_value(&field, &mut bytes);
        value.push(tag);
        value.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        value.extend_from_slice(&bytes);
    }
}

/// Reads the description of an entity.
///
/// # Errors
/// A description of the error in the value. A property that this entity lacks is an error too, since
/// a later version may have written it.
pub fn read_description<D: Description>(value: &[u8]) -> Read<D> {
    let mut reader = Reader::new(value);
    let version = reader.version_up_to(TAGGED)?;
    let mut description = D::named_by(|| reader.text())?;
    for group in Group::ALL {
        for field in group.fields::<D>() {
            field.set(&mut description, read_value(field.kind, &mut reader)?);
        }
    }
    description.set_extensions(match version {
        VERSION => None,
        EXTENDED => Some(reader.text()?),
        _ => reader.optional_text()?,
    });
    match version {
        RETRYING | CATCH_ALL => {
            let (policy, order) = read_retries(&mut reader)?;
            let unknown = "version is not known";
            let retry = field_of::<D>(FieldKind::Retry).ok_or(unknown)?;
            retry.set(&mut description, FieldValue::Retry(policy));
            let session_order = field_of::<D>(FieldKind::Order).ok_or(unknown)?;
            session_order.set(&mut description, FieldValue::Order(order));
            if version == CATCH_ALL {
                let catch_all = D::FIELDS.iter().find(|field| field.tag == CATCH_ALL_TAG);
                catch_all.ok_or(unknown)?.set(&mut description, FieldValue::Flag(true));
            }
        }
        TAGGED => read_tagged(&mut description, &mut reader)?,
        _ => {}
    }
    reader.end()?;
    Ok(description)
}

fn read_tagged<D: Description>(description: &mut D, reader: &mut Reader<'_>) -> Read<()> {
    while reader.end().is_err() {
        let tag = reader.u8()?;
        let length = reader.u32()? as usize;
        let mut value = Reader::new(reader.take(length)?);
        let mut further = D::FIELDS.iter().filter(|field| field.tag > GROUPED_TAG_MAX);
        let field = further.find(|field| field.tag == tag).ok_or("unknown property")?;
        field.set(description, read_value(field.kind, &mut value)?);
        value.end()?;
    }
    Ok(())
}
