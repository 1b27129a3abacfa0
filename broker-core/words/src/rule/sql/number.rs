//! Arithmetic of numbers: the types of operations and their results (SQL-30 to SQL-33). Evaluation
//! and comparisons use it.

use std::cmp::Ordering;

use super::decimal::Decimal;
use super::error::Fault;
use super::operand::Operand;

/// A number after widening to at least 32 bits (SQL-30).
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Integer(i128, Width),
    F32(f32),
    F64(f64),
    Decimal(Decimal),
}

/// The type of an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    I32,
    U32,
    I64,
    U64,
    /// The common type of unsigned 64 bits and a signed type: a result fits either of the two types
    /// of 64 bits (SQL-31).
    Either64,
}

/// The operators between numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl Arithmetic {
    pub(super) const fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }
}

impl Number {
    #[inline]
    pub(super) fn of(operand: &Operand<'_>) -> Option<Self> {
        Some(match *operand {
            Operand::I8(value) => Self::Integer(value.into(), Width::I32),
            Operand::I16(value) => Self::Integer(value.into(), Width::I32),
            Operand::I32(value) => Self::Integer(value.into(), Width::I32),
            Operand::I64(value) => Self::Integer(value.into(), Width::I64),
            Operand::U8(value) => Self::Integer(value.into(), Width::I32),
            Operand::U16(value) => Self::Integer(value.into(), Width::I32),
            Operand::U32(value) => Self::Integer(value.into(), Width::U32),
            Operand::U64(value) => Self::Integer(value.into(), Width::U64),
            Operand::F32(value) => Self::F32(value),
            Operand::F64(value) => Self::F64(value),
            Operand::Decimal(bits) => Self::Decimal(Decimal::from_bits(bits)),
            _ => return None,
        })
    }

    /// The value as a 64-bit float: exact up to 53 bits, otherwise correctly rounded.
    pub(super) fn to_f64(self) -> f64 {
        match self {
            Self::Integer(value, _) => value as f64,
            Self::F32(value) => f64::from(value),
            Self::F64(value) => value,
            Self::Decimal(value) => value.to_f64(),
        }
    }

    /// Compares two numbers; `None` if one is NaN (SQL-39). An integer and a float of either width
    /// are compared in 64 bits, so that numbers that are equal here are also equal in an index
    /// (TOP-21, decision 12).
    #[inline]
    pub(super) fn order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(left, _), Self::Integer(right, _)) => Some(left.cmp(&right)),
            (Self::Decimal(left), Self::Decimal(right)) => left.order(right),
            (Self::Decimal(left), Self::Integer(right, _)) => left.order(Decimal::from(right)),
            (Self::Integer(left, _), Self::Decimal(right)) => Decimal::from(left).order(right),
            _ => self.to_f64().partial_cmp(&other.to_f64()),
        }
    }

    pub(super) fn compute(
        self,
        operator: Arithmetic,
        other: Self,
    ) -> Result<Operand<'static>, Fault> {
        match (self, other) {
            (Self::Integer(left, left_width), Self::Integer(right, right_width)) => {
                integers(left, operator, right, left_width.with(right_width))
            }
            (Self::Decimal(left), Self::Decimal(right)) => Ok(decimals(left, operator, right)),
            (Self::Decimal(left), Self::Integer(right, _)) => {
                Ok(decimals(left, operator, Decimal::from(right)))
            }
            (Self::Integer(left, _), Self::Decimal(right)) => {
                Ok(decimals(Decimal::from(left), operator, right))
            }
            (Self::F32(left), Self::F32(right)) => {
                Ok(Operand::F32(floats_32(left, operator, right)))
            }
            (Self::F32(left), Self::Integer(right, _)) => {
                Ok(Operand::F32(floats_32(left, operator, right as f32)))
            }
            (Self::Integer(left, _), Self::F32(right)) => {
                Ok(Operand::F32(floats_32(left as f32, operator, right)))
            }
            (Self::F64(_), _) | (_, Self::F64(_)) | (Self::F32(_), _) | (_, Self::F32(_)) => {
                Ok(Operand::F64(floats_64(self.to_f64(), operator, other.to_f64())))
            }
        }
    }

    /// The sign `-`. As in C#, negating an unsigned number of 32 bits gives 64 bits.
    pub(super) fn negate(self) -> Result<Operand<'static>, Fault> {
        match self {
            Self::Integer(value, width) => {
                let width = match width {
                    Width::I32 => Width::I32,
                    Width::U32 | Width::I64 => Width::I64,
                    Width::U64 | Width::Either64 => Width::Either64,
                };
                width.operand(-value).ok_or(Fault::Overflow("-"))
            }
            Self::F32(value) => Ok(Operand::F32(-value)),
            Self::F64(value) => Ok(Operand::F64(-value)),
            Self::Decimal(value) => Ok(Operand::Decimal(value.negate().to_bits())),
        }
    }

    /// The sign `+`, which only widens.
    pub(super) fn widened(self) -> Operand<'static> {
        match self {
            Self::Integer(value, width) => width.operand(value).unwrap_or_default(),
            Self::F32(value) => Operand::F32(value),
            Self::F64(value) => Operand::F64(value),
            Self::Decimal(value) => Operand::Decimal(value.to_bits()),
        }
    }
}

impl Width {
    /// The smallest common type (SQL-30).
    const fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::I32, Self::I32) => Self::I32,
            (Self::U32, Self::U32) => Self::U32,
            (Self::U64, Self::U64 | Self::U32) | (Self::U32, Self::U64) => Self::U64,
            (Self::U64, Self::I32 | Self::I64)
            | (Self::I32 | Self::I64, Self::U64)
            | (Self::Either64, _)
            | (_, Self::Either64) => Self::Either64,
            (Self::I32 | Self::U32 | Self::I64, Self::I64)
            | (Self::I64, Self::I32 | Self::U32)
            | (Self::I32, Self::U32)
            | (Self::U32, Self::I32) => Self::I64,
        }
    }

    /// The value in this type, if it fits.
    fn operand(self, value: i128) -> Option<Operand<'static>> {
        match self {
            Self::I32 => i32::try_from(value).map(Operand::I32).ok(),
            Self::U32 => u32::try_from(value).map(Operand::U32).ok(),
            Self::I64 => i64::try_from(value).map(Operand::I64).ok(),
            Self::U64 => u64::try_from(value).map(Operand::U64).ok(),
            Self::Either64 => i64::try_from(value)
                .map(Operand::I64)
                .or_else(|_| u64::try_from(value).map(Operand::U64))
                .ok(),
        }
    }
}

/// Computes in 128 bits, where only the multiplication of two 64-bit numbers can overflow.
fn integers(
    left: i128,
    operator: Arithmetic,
    right: i128,
    width: Width,
) -> Result<Operand<'static>, Fault> {
    let result = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide | Arithmetic::Modulo if right == 0 => {
            return Err(Fault::DivisionByZero(operator.sign()));
        }
        Arithmetic::Divide => left.checked_div(right),
        Arithmetic::Modulo => left.checked_rem(right),
    };
    result.and_then(|value| width.operand(value)).ok_or(Fault::Overflow(operator.sign()))
}

fn floats_64(left: f64, operator: Arithmetic, right: f64) -> f64 {
    match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::Modulo => left % right,
    }
}

fn floats_32(left: f32, operator: Arithmetic, right: f32) -> f32 {
    match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::Modulo => left % right,
    }
}

fn decimals(left: Decimal, operator: Arithmetic, right: Decimal) -> Operand<'static> {
    let result = match operator {
        Arithmetic::Add => left.plus(right),
        Arithmetic::Subtract => left.plus(right.negate()),
        Arithmetic::Multiply => left.times(right),
        Arithmetic::Divide => left.divided_by(right),
        Arithmetic::Modulo => left.remainder(right),
    };
    Operand::Decimal(result.to_bits())
}
