//! Codec of a rule: version 1, or version 2 for a rule with unknown properties (HTP-17).
//!
//! ```text
//!  version 01 | name | created at (8) | filter | has action (1) [ action ]
//!  version 02 | as before | extensions
//!  filter:   00 true   01 false   02 SQL text   03 correlation
//!  SQL text: text, count of parameters (4), for each its name and its value
//!  correlation: 8 times present (1) and text, in the order of AMQ-24; count of properties (4), for
//!               each its name and its value
//!  texts have a length of 4 bytes before them, values too; values are AMQP, numbers big-endian
//! ```
//!
//! To change it, give it the next version byte, write only that version, and keep reading every
//! earlier one. The tests keep golden records of each version.

#[cfg(test)]
mod tests;

use super::{Reader, write_text};
use crate::message::Value;
use crate::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};

/// Version of a rule that ends with its extensions.
const EXTENDED: u8 = super::VERSION + 1;

const TRUE: u8 = 0;
const FALSE: u8 = 1;
const SQL: u8 = 2;
const CORRELATION: u8 = 3;

/// Writes a rule.
pub fn write_rule(rule: &RuleDescription, value: &mut Vec<u8>) {
    let RuleDescription { name, filter, action, created_at, extensions } = rule;
    value.push(if extensions.is_some() { EXTENDED } else { super::VERSION });
    write_text(name, value);
    value.extend_from_slice(&created_at.ticks().to_be_bytes());
    match filter {
        Filter::True => value.push(TRUE),
        Filter::False => value.push(FALSE),
        Filter::Sql(sql) => {
            value.push(SQL);
            write_sql(sql, value);
        }
        Filter::Correlation(filter) => {
            value.push(CORRELATION);
            write_correlation(filter, value);
        }
    }
    value.push(u8::from(action.is_some()));
    if let Some(action) = action {
        write_sql(action, value);
    }
    if let Some(extensions) = extensions {
        write_text(extensions, value);
    }
}

/// Reads a rule.
///
/// # Errors
/// A description of the error in the value.
pub fn read_rule(value: &[u8]) -> Result<RuleDescription, &'static str> {
    let mut reader = Reader::new(value);
    let is_extended = reader.version_or(EXTENDED)?;
    let name = reader.text()?;
    let created_at = reader.instant()?;
    let filter = match reader.u8()? {
        TRUE => Filter::True,
        FALSE => Filter::False,
        SQL => Filter::Sql(read_sql(&mut reader)?),
        CORRELATION => Filter::Correlation(read_correlation(&mut reader)?),
        _ => return Err("unknown filter"),
    };
    let action = if reader.switch()? { Some(read_sql(&mut reader)?) } else { None };
    let extensions = if is_extended { Some(reader.text()?) } else { None };
    reader.end()?;
    Ok(RuleDescription { name, filter, action, created_at, extensions })
}

fn write_sql(sql: &SqlText, value: &mut Vec<u8>) {
    write_text(&sql.text, value);
    let parameters: Vec<_> = sql.parameters.iter().collect();
    write_pairs(&parameters, value);
}

fn read_sql(reader: &mut Reader<'_>) -> Result<SqlText, &'static str> {
    let text = reader.text()?;
    Ok(SqlText { text, parameters: read_pairs(reader)?.into_iter().collect() })
}

fn write_correlation(filter: &CorrelationFilter, value: &mut Vec<u8>) {
    for field in CorrelationFilter::FIELDS {
        let text = field.get(filter);
        value.push(u8::from(text.is_some()));
        write_text(text.unwrap_or_default(), value);
    }
    let properties = filter.properties.iter();
    let properties: Vec<_> = properties.map(|(name, value)| (&**name, value)).collect();
    write_pairs(&properties, value);
}

fn read_correlation(reader: &mut Reader<'_>) -> Result<CorrelationFilter, &'static str> {
    let mut filter = CorrelationFilter::default();
    for field in CorrelationFilter::FIELDS {
        field.set(&mut filter, reader.optional_text()?);
    }
    filter.properties = read_pairs(reader)?;
    Ok(filter)
}

fn write_pairs(pairs: &[(&str, &Value)], value: &mut Vec<u8>) {
    write_length(pairs.len(), value);
    for (name, pair_value) in pairs {
        write_text(name, value);
        let mut encoded = Vec::new();
        pair_value.encode_to(&mut encoded);
        write_length(encoded.len(), value);
        value.extend_from_slice(&encoded);
    }
}

/// Writes a length of 4 bytes. A longer rule was refused for its size before.
fn write_length(length: usize, value: &mut Vec<u8>) {
    value.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn read_pairs(reader: &mut Reader<'_>) -> Result<Vec<(Box<str>, Value)>, &'static str> {
    let count = reader.u32()?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        let name = reader.text()?;
        let length = usize::try_from(reader.u32()?).map_err(|_| "value too long")?;
        let value = Value::decode(reader.take(length)?).map_err(|_| "value is not AMQP")?;
        pairs.push((name, value));
    }
    Ok(pairs)
}
