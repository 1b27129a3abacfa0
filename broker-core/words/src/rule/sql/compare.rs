//! Comparisons: equality, order, and types that cannot be compared (SQL-28, SQL-35 to SQL-39).
//! Evaluation and correlation filters use them.

use std::cmp::Ordering;
use std::hash::Hasher;

use super::error::Fault;
use super::number::Number;
use super::operand::{Kind, Operand, UuidText};

/// The comparison operators; `!=` is `<>` (SQL-38).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// Whether values in this order meet the comparison.
    pub(crate) const fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// The relation of two known operands.
enum Relation {
    Ordered(Ordering),
    /// An operand is NaN: they are unequal, and neither is less (SQL-39).
    NotANumber,
    /// Types with equality only.
    Equality(bool),
    /// Types that are never equal and have no order (SQL-35, SQL-36).
    Incompatible,
    /// A character and a number (SQL-37).
    Forbidden,
}

/// Compares two operands; `None` is Unknown (SQL-17).
#[inline]
pub(super) fn compare(
    comparison: Comparison,
    left: &Operand<'_>,
    right: &Operand<'_>,
) -> Result<Option<bool>, Fault> {
    if matches!(left, Operand::Unknown) || matches!(right, Operand::Unknown) {
        return Ok(None);
    }
    let types =
        || Fault::Types { operator: comparison.sign(), left: left.kind(), right: right.kind() };
    Ok(Some(match (relation(left, right), comparison) {
        (Relation::Ordered(order), _) => comparison.holds(order),
        (Relation::NotANumber, _) => comparison == Comparison::NotEqual,
        (Relation::Equality(equal), Comparison::Equal) => equal,
        (Relation::Equality(equal), Comparison::NotEqual) => !equal,
        (Relation::Incompatible, Comparison::Equal) => false,
        (Relation::Incompatible, Comparison::NotEqual) => true,
        (Relation::Forbidden | Relation::Equality(_) | Relation::Incompatible, _) => {
            return Err(types());
        }
    }))
}

/// Whether the value of a correlation filter equals the value in the message: like `=`, and never
/// an error (TOP-21).
#[must_use]
pub fn equal(left: &Operand<'_>, right: &Operand<'_>) -> bool {
    matches!(compare(Comparison::Equal, left, right), Ok(Some(true)))
}

#[inline]
fn relation(left: &Operand<'_>, right: &Operand<'_>) -> Relation {
    // Texts first, because most filters compare texts.
    if let (Operand::Text(left), Operand::Text(right)) = (left, right) {
        return Relation::Ordered(left.as_ref().cmp(right.as_ref()));
    }
    if let (Some(left), Some(right)) = (Number::of(left), Number::of(right)) {
        return left.order(right).map_or(Relation::NotANumber, Relation::Ordered);
    }
    if let (Some(left), Some(right)) = (left.instant_ticks(), right.instant_ticks()) {
        return Relation::Ordered(left.cmp(&right));
    }
    let (mut left_buffer, mut right_buffer) = ([0; 4], [0; 4]);
    match (left, right) {
        (Operand::Bool(left), Operand::Bool(right)) => Relation::Equality(left == right),
        (Operand::Uuid(left), Operand::Uuid(right)) => Relation::Ordered(left.cmp(right)),
        (Operand::Uuid(left), Operand::Text(right)) => {
            Relation::Ordered(UuidText::of(*left).as_str().cmp(right.as_ref()))
        }
        (Operand::Text(left), Operand::Uuid(right)) => {
            Relation::Ordered(left.as_ref().cmp(UuidText::of(*right).as_str()))
        }
        (Operand::TimeSpan(left), Operand::TimeSpan(right)) => Relation::Ordered(left.cmp(right)),
        (Operand::Binary(left), Operand::Binary(right)) => Relation::Ordered(left.cmp(right)),
        (Operand::Uri(left), Operand::Uri(right)) => Relation::Ordered(left.cmp(right)),
        _ => match (left.as_text(&mut left_buffer), right.as_text(&mut right_buffer)) {
            (Some(left), Some(right)) => Relation::Ordered(left.cmp(right)),
            _ => match (left.kind(), right.kind()) {
                (Kind::Char, Kind::Number) | (Kind::Number, Kind::Char) => Relation::Forbidden,
                _ => Relation::Incompatible,
            },
        },
    }
}

/// Feeds a hash that is the same for all operands that are equal by `=` (TOP-21).
pub(in crate::rule) fn hash(operand: &Operand<'_>, hasher: &mut impl Hasher) {
    let mut buffer = [0; 4];
    if let Some(number) = Number::of(operand) {
        hasher.write_u8(1);
        // Equal numbers of all types are the same in 64 bits. Adding 0 removes the sign of zero.
        return hasher.write_u64((number.to_f64() + 0.0).to_bits());
    }
    if let Some(ticks) = operand.instant_ticks() {
        hasher.write_u8(2);
        return hasher.write_i128(ticks);
    }
    if let Some(text) = operand.as_text(&mut buffer) {
        return hash_bytes(3, text.as_bytes(), hasher);
    }
    match operand {
        Operand::Uuid(uuid) => hash_bytes(3, UuidText::of(*uuid).as_str().as_bytes(), hasher),
        Operand::Binary(bytes) => hash_bytes(4, bytes, hasher),
        Operand::Uri(uri) => hash_bytes(5, uri.as_bytes(), hasher),
        Operand::Bool(value) => hasher.write_u8(6 + u8::from(*value)),
        Operand::TimeSpan(ticks) => {
            hasher.write_u8(8);
            hasher.write_i64(*ticks);
        }
        _ => hasher.write_u8(0),
    }
}

fn hash_bytes(kind: u8, bytes: &[u8], hasher: &mut impl Hasher) {
    hasher.write_u8(kind);
    hasher.write_u64(bytes.len() as u64);
    hasher.write(bytes);
}
