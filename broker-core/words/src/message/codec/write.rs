//! Encodes the types that only content has: ids, and values of application properties. `encode.rs`
//! calls it.

pub(crate) use crate::amqp::write::*;

use super::{IdRef, described};
use crate::amqp::code;
use crate::message::Value;

pub(crate) fn id(sink: &mut impl Sink, id: IdRef<'_>) {
    match id {
        IdRef::Text(value) => text(sink, value),
        IdRef::Ulong(value) => ulong(sink, value),
        IdRef::Uuid(value) => fixed(sink, code::UUID, value.to_be_bytes()),
        IdRef::Binary(bytes) => binary(sink, bytes),
    }
}

/// Writes a value of an application property with its type (MSG-20).
pub(crate) fn write_value(sink: &mut impl Sink, value: &Value) {
    match value {
        Value::Null => sink.put_byte(code::NULL),
        Value::Bool(value) => boolean(sink, *value),
        Value::I8(value) => fixed(sink, code::BYTE, value.to_be_bytes()),
        Value::I16(value) => fixed(sink, code::SHORT, value.to_be_bytes()),
        Value::I32(value) => match i8::try_from(*value) {
            Ok(small) => fixed(sink, code::SMALL_INT, small.to_be_bytes()),
            Err(_) => fixed(sink, code::INT, value.to_be_bytes()),
        },
        Value::I64(value) => long(sink, *value),
        Value::U8(value) => fixed(sink, code::UBYTE, value.to_be_bytes()),
        Value::U16(value) => fixed(sink, code::USHORT, value.to_be_bytes()),
        Value::U32(value) => uint(sink, *value),
        Value::U64(value) => ulong(sink, *value),
        Value::F32(value) => fixed(sink, code::FLOAT, value.to_be_bytes()),
        Value::F64(value) => fixed(sink, code::DOUBLE, value.to_be_bytes()),
        Value::Decimal128(value) => fixed(sink, code::DECIMAL128, *value),
        Value::Char(value) => fixed(sink, code::CHAR, u32::from(*value).to_be_bytes()),
        Value::String(value) => text(sink, value),
        Value::Uuid(value) => fixed(sink, code::UUID, value.to_be_bytes()),
        Value::Timestamp(value) => timestamp(sink, *value),
        Value::Binary(value) => binary(sink, value),
        Value::Uri(value) => {
            descriptor(sink, described::URI);
            text(sink, value);
        }
        Value::DateTimeOffset(ticks) => {
            descriptor(sink, described::DATE_TIME_OFFSET);
            long(sink, *ticks);
        }
        Value::TimeSpan(ticks) => {
            descriptor(sink, described::TIME_SPAN);
            long(sink, *ticks);
        }
    }
}

fn descriptor(sink: &mut impl Sink, name: &str) {
    sink.put_byte(code::DESCRIBED);
    symbol(sink, name);
}
