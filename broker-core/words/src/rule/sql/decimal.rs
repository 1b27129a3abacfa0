//! Decimal floating point of 128 bits, IEEE 754-2008 in its binary integer encoding (SQL-31).
//!
//! 34 digits, rounded half to even. Simple rather than fast, because filters rarely meet such a
//! number.

use std::cmp::Ordering;
use std::fmt;

#[cfg(test)]
mod tests;

const DIGITS_MAX: u32 = 34;
const COEFFICIENT_MAX: u128 = 10u128.pow(DIGITS_MAX) - 1;
/// Every number with at most this many digits fits a [`Wide`].
const WIDE_DIGITS: i64 = 76;
const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;

/// A decimal number, an infinity, or not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decimal {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Magnitude {
    /// A coefficient of at most 34 digits times ten to the power of an exponent.
    Finite(u128, i32),
    Infinity,
    NotANumber,
}

use Magnitude::{Finite, Infinity, NotANumber};

impl Decimal {
    const NAN: Self = Self { negative: false, magnitude: NotANumber };

    /// The number of these bits, in network order. A coefficient that is too large counts as zero,
    /// as in the standard.
    #[must_use]
    pub fn from_bits(bits: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(bits);
        let negative = bits >> 127 == 1;
        let combination = (bits >> 122) & 0x1f;
        let magnitude = match combination {
            0x1e => Infinity,
            0x1f => NotANumber,
            _ if combination >> 3 == 0b11 => Finite(0, exponent(bits >> 111)),
            _ => {
                let coefficient = bits & ((1 << 113) - 1);
                let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
                Finite(coefficient, exponent(bits >> 113))
            }
        };
        Self { negative, magnitude }
    }

    /// The bits of this number, in network order.
    #[must_use]
    pub fn to_bits(self) -> [u8; 16] {
        let sign = u128::from(self.negative) << 127;
        let bits = match self.magnitude {
            Finite(coefficient, exponent) => {
                let biased = u128::from((exponent - EXPONENT_MIN).unsigned_abs());
                sign | (biased << 113) | coefficient
            }
            Infinity => sign | (0x1e << 122),
            NotANumber => sign | (0x1f << 122),
        };
        bits.to_be_bytes()
    }

    /// Reads digits with a point and an exponent, rounded if necessary.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, exponent) = match digits.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (digits, 0),
        };
        // Outside this range every number is zero or infinite.
        let mut exponent = i64::from(exponent).clamp(-100_000, 100_000);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (mut wide, mut sticky) = (Wide::from(0), false);
        let places = whole.bytes().map(|byte| (byte, 0)).chain(fraction.bytes().map(|b| (b, 1)));
        for (byte, places) in places {
            if !byte.is_ascii_digit() {
                return None;
            }
            let digit = u64::from(byte - b'0');
            // Further digits only affect the rounding.
            if wide.digits() > DIGITS_MAX + 4 {
                sticky |= digit != 0;
                exponent += 1 - places;
                continue;
            }
            wide = wide.times(10).plus(Wide::from(u128::from(digit)));
            exponent -= places;
        }
        let exponent = i32::try_from(exponent.clamp(-1_000_000, 1_000_000)).ok()?;
        Some(Self::rounded(negative, wide, exponent, sticky))
    }

    /// The negated number.
    #[must_use]
    pub const fn negate(self) -> Self {
        Self { negative: !self.negative, magnitude: self.magnitude }
    }

    /// The nearest binary number, correctly rounded. Equal decimals give equal results.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        let value = match self.magnitude {
            Finite(coefficient, exponent) => {
                format!("{coefficient}e{exponent}").parse().unwrap_or(f64::NAN)
            }
            Infinity => f64::INFINITY,
            NotANumber => f64::NAN,
        };
        if self.negative { -value } else { value }
    }

    /// The nearest whole number, halves to even; `None` if it does not fit 128 bits.
    #[must_use]
    pub fn to_integer(self) -> Option<i128> {
        let Finite(coefficient, exponent) = self.magnitude else {
            return None;
        };
        let mut magnitude = coefficient;
        if coefficient != 0 {
            if exponent >= 0 {
                magnitude = magnitude.checked_mul(power(exponent.unsigned_abs())?)?;
            } else {
                magnitude = match power(exponent.unsigned_abs()) {
                    Some(divisor) => {
                        let (quotient, rest) = (magnitude / divisor, magnitude % divisor);
                        let up = match rest.cmp(&(divisor - rest)) {
                            Ordering::Less => false,
                            Ordering::Equal => quotient % 2 == 1,
                            Ordering::Greater => true,
                        };
                        quotient + u128::from(up)
                    }
                    None => 0,
                };
            }
        }
        let value = i128::try_from(magnitude).ok()?;
        Some(if self.negative { -value } else { value })
    }

    /// Whether the number is neither infinite nor NaN.
    #[must_use]
    pub const fn is_finite(self) -> bool {
        matches!(self.magnitude, Finite(..))
    }

    /// Compares two numbers; `None` if one is NaN.
    #[must_use]
    pub fn order(self, other: Self) -> Option<Ordering> {
        let signed =
            |negative: bool, order: Ordering| if negative { order.reverse() } else { order };
        match (self.magnitude, other.magnitude) {
            (NotANumber, _) | (_, NotANumber) => None,
            (Finite(0, _), Finite(0, _)) => Some(Ordering::Equal),
            (Finite(0, _), _) => Some(signed(other.negative, Ordering::Less)),
            (_, Finite(0, _)) => Some(signed(self.negative, Ordering::Greater)),
            _ if self.negative != other.negative => Some(signed(self.negative, Ordering::Greater)),
            (Infinity, Infinity) => Some(Ordering::Equal),
            (Infinity, Finite(..)) => Some(signed(self.negative, Ordering::Greater)),
            (Finite(..), Infinity) => Some(signed(self.negative, Ordering::Less)),
            (Finite(left, left_exponent), Finite(right, right_exponent)) => {
                let order = order_magnitudes(left, left_exponent, right, right_exponent);
                Some(signed(self.negative, order))
            }
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (left, left_exponent, right, right_exponent) = match (self.magnitude, other.magnitude) {
            (NotANumber, _) | (_, NotANumber) => return Self::NAN,
            (Infinity, Infinity) if self.negative != other.negative => return Self::NAN,
            (Infinity, _) => return self,
            (_, Infinity) => return other,
            (Finite(left, left_exponent), Finite(right, right_exponent)) => {
                (left, left_exponent, right, right_exponent)
            }
        };
        if left_exponent < right_exponent {
            return other.plus(self);
        }
        // The left number has the larger exponent and is scaled to the exponent of the right one.
        // If the distance is too large for that, the right number is less than any kept digit.
        let distance = i64::from(left_exponent) - i64::from(right_exponent);
        let scale_max = WIDE_DIGITS - digits(left);
        let (right, right_exponent, sticky) = if left != 0 && distance > scale_max {
            let exponent = i64::from(left_exponent) - scale_max;
            (0, i32::try_from(exponent).unwrap_or(EXPONENT_MIN), right != 0)
        } else {
            (right, right_exponent, false)
        };
        if left == 0 {
            let negative =
                if right == 0 { self.negative && other.negative } else { other.negative };
            return Self::rounded(negative, Wide::from(right), right_exponent, false);
        }
        let scale = (left_exponent - right_exponent).unsigned_abs();
        let left = Wide::from(left).times_power(scale);
        let right = Wide::from(right);
        if self.negative == other.negative {
            return Self::rounded(self.negative, left.plus(right), right_exponent, sticky);
        }
        if sticky {
            // Lower by one in a digit that is not kept, with a nonzero rest.
            let lowered = left.minus(Wide::from(1));
            return Self::rounded(self.negative, lowered, right_exponent, true);
        }
        match left.cmp(&right) {
            Ordering::Equal => Self::rounded(false, Wide::from(0), right_exponent, false),
            Ordering::Greater => {
                Self::rounded(self.negative, left.minus(right), right_exponent, false)
            }
            Ordering::Less => {
                Self::rounded(other.negative, right.minus(left), right_exponent, false)
            }
        }
    }

    /// The product.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.magnitude, other.magnitude) {
            (NotANumber, _) | (_, NotANumber) => Self::NAN,
            (Infinity, Finite(0, _)) | (Finite(0, _), Infinity) => Self::NAN,
            (Infinity, _) | (_, Infinity) => Self { negative, magnitude: Infinity },
            (Finite(left, left_exponent), Finite(right, right_exponent)) => {
                let product = Wide::product(left, right);
                Self::rounded(negative, product, left_exponent + right_exponent, false)
            }
        }
    }

    /// The quotient. Division by zero gives infinity or NaN (SQL-32).
    #[must_use]
    pub fn divided_by(self, other: Self) -> Self {
        let negative = self.negative != other.negative;
        match (self.magnitude, other.magnitude) {
            (NotANumber, _) | (_, NotANumber) | (Infinity, Infinity) => Self::NAN,
            (Finite(0, _), Finite(0, _)) => Self::NAN,
            (Infinity, Finite(..)) | (Finite(..), Finite(0, _)) => {
                Self { negative, magnitude: Infinity }
            }
            (Finite(..), Infinity) => Self { negative, magnitude: Finite(0, EXPONENT_MIN) },
            (Finite(left, left_exponent), Finite(right, right_exponent)) => {
                let ideal = left_exponent - right_exponent;
                if left == 0 {
                    return Self::rounded(negative, Wide::from(0), ideal, false);
                }
                // Enough digits for the quotient to have more than the kept ones.
                let scale = i64::from(DIGITS_MAX) + 3 + digits(right) - digits(left);
                let scale = u32::try_from(scale).unwrap_or(0);
                let (quotient, rest) = Wide::from(left).times_power(scale).divided(right);
                let scaled = ideal - scale.cast_signed();
                let inexact = rest != 0;
                Self::rounded_towards(negative, quotient, scaled, inexact, ideal)
            }
        }
    }

    /// The rest of a division to a whole number, with the sign of the dividend (SQL-33).
    #[must_use]
    pub fn remainder(self, other: Self) -> Self {
        match (self.magnitude, other.magnitude) {
            (NotANumber, _) | (_, NotANumber) | (Infinity, _) | (_, Finite(0, _)) => Self::NAN,
            (Finite(..), Infinity) => self,
            (Finite(left, left_exponent), Finite(right, right_exponent)) => {
                let exponent = left_exponent.min(right_exponent);
                let rest = if left_exponent >= right_exponent {
                    let mut rest = left % right;
                    for _ in 0..left_exponent - right_exponent {
                        rest = rest * 10 % right;
                    }
                    rest
                } else {
                    let distance = (right_exponent - left_exponent).unsigned_abs();
                    match power(distance).and_then(|scale| right.checked_mul(scale)) {
                        Some(right) => left % right,
                        // The divisor is larger than any dividend.
                        None => left,
                    }
                };
                Self::rounded(self.negative, Wide::from(rest), exponent, false)
            }
        }
    }

    /// The number rounded to at most 34 digits; `sticky` is true if nonzero digits follow.
    fn rounded(negative: bool, wide: Wide, exponent: i32, sticky: bool) -> Self {
        Self::rounded_towards(negative, wide, exponent, sticky, i32::MIN)
    }

    /// As `rounded`. An exact result drops zeros at the end up to the exponent `ideal`.
    fn rounded_towards(
        negative: bool,
        mut wide: Wide,
        mut exponent: i32,
        mut sticky: bool,
        ideal: i32,
    ) -> Self {
        let excess = i64::from(wide.digits()) - i64::from(DIGITS_MAX);
        let below = i64::from(EXPONENT_MIN) - i64::from(exponent);
        let mut last = 0;
        // 100 steps remove all digits.
        let dropped = excess.max(below).clamp(0, 100);
        let exact_before = !sticky;
        for _ in 0..dropped {
            sticky |= last != 0;
            (wide, last) = wide.tenth();
        }
        if below > 100 {
            exponent = EXPONENT_MIN;
        } else {
            exponent = exponent.saturating_add(i32::try_from(dropped).unwrap_or(i32::MAX));
        }
        let exact = exact_before && last == 0 && !sticky;
        let mut coefficient = wide.low();
        let up = match last.cmp(&5) {
            Ordering::Less => false,
            Ordering::Equal => sticky || coefficient % 2 == 1,
            Ordering::Greater => true,
        };
        coefficient += u128::from(up);
        if coefficient > COEFFICIENT_MAX {
            coefficient /= 10;
            exponent += 1;
        }
        while exact && exponent < ideal && coefficient.is_multiple_of(10) && coefficient != 0 {
            coefficient /= 10;
            exponent += 1;
        }
        if coefficient == 0 {
            let exponent = exponent.clamp(EXPONENT_MIN, EXPONENT_MAX);
            return Self { negative, magnitude: Finite(0, exponent) };
        }
        while exponent > EXPONENT_MAX {
            if coefficient > COEFFICIENT_MAX / 10 {
                return Self { negative, magnitude: Infinity };
            }
            coefficient *= 10;
            exponent -= 1;
        }
        Self { negative, magnitude: Finite(coefficient, exponent) }
    }
}

impl From<i128> for Decimal {
    /// Exact for every integer of 64 bits.
    fn from(value: i128) -> Self {
        Self::rounded(value < 0, Wide::from(value.unsigned_abs()), 0, false)
    }
}

/// Digits with a point if that is short, otherwise with an exponent. Reads back as the same number.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative && self.magnitude != NotANumber {
            f.write_str("-")?;
        }
        let (coefficient, exponent) = match self.magnitude {
            Infinity => return f.write_str("Infinity"),
            NotANumber => return f.write_str("NaN"),
            Finite(coefficient, exponent) => (coefficient, exponent),
        };
        let digits = coefficient.to_string();
        let point = i64::try_from(digits.len()).unwrap_or(0) + i64::from(exponent);
        if exponent == 0 {
            return f.write_str(&digits);
        }
        if exponent < 0 && point > -6 {
            let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) =
                padded.split_at_checked(padded.len() - places).unwrap_or((&padded, ""));
            return write!(f, "{whole}.{fraction}");
        }
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        let point_mark = if rest.is_empty() { "" } else { "." };
        write!(f, "{first}{point_mark}{rest}E{:+}", point - 1)
    }
}

fn exponent(bits: u128) -> i32 {
    i32::try_from(bits & 0x3fff).unwrap_or(0) + EXPONENT_MIN
}

fn power(exponent: u32) -> Option<u128> {
    10u128.checked_pow(exponent)
}

fn digits(value: u128) -> i64 {
    value.checked_ilog10().map_or(1, |log| i64::from(log) + 1)
}

/// Compares two nonzero magnitudes.
fn order_magnitudes(left: u128, left_exponent: i32, right: u128, right_exponent: i32) -> Ordering {
    let top = |coefficient, exponent| digits(coefficient) + i64::from(exponent);
    let by_size = top(left, left_exponent).cmp(&top(right, right_exponent));
    if by_size.is_ne() {
        return by_size;
    }
    // They have the same size, so their exponents are less than 34 apart.
    let distance = left_exponent.abs_diff(right_exponent);
    let (mut left, mut right) = (Wide::from(left), Wide::from(right));
    if left_exponent > right_exponent {
        left = left.times_power(distance);
    } else {
        right = right.times_power(distance);
    }
    left.cmp(&right)
}

/// A whole number of 256 bits, lowest limb first. No operation here needs more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wide([u64; 4]);

impl From<u128> for Wide {
    fn from(value: u128) -> Self {
        Self([low64(value), low64(value >> 64), 0, 0])
    }
}

impl Wide {
    fn product(left: u128, right: u128) -> Self {
        let high = Self::from(left).times(low64(right >> 64));
        let [a, b, c, _] = high.0;
        Self([0, a, b, c]).plus(Self::from(left).times(low64(right)))
    }

    fn times(self, factor: u64) -> Self {
        let mut carry = 0;
        Self(self.0.map(|limb| {
            let product = u128::from(limb) * u128::from(factor) + carry;
            carry = product >> 64;
            low64(product)
        }))
    }

    /// Multiplies by ten to the power of `exponent`; the result must have at most 76 digits.
    fn times_power(self, exponent: u32) -> Self {
        (0..exponent).fold(self, |wide, _| wide.times(10))
    }

    fn plus(self, other: Self) -> Self {
        let mut carry = 0;
        let mut others = other.0.into_iter();
        Self(self.0.map(|limb| {
            let sum = u128::from(limb) + u128::from(others.next().unwrap_or(0)) + carry;
            carry = sum >> 64;
            low64(sum)
        }))
    }

    /// The difference; `other` must not be larger.
    fn minus(self, other: Self) -> Self {
        let mut borrow = false;
        let mut others = other.0.into_iter();
        Self(self.0.map(|limb| {
            let (difference, first) = limb.overflowing_sub(others.next().unwrap_or(0));
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            borrow = first || second;
            difference
        }))
    }

    /// The quotient of a division by ten, and the remaining digit.
    fn tenth(self) -> (Self, u8) {
        let mut rest = 0;
        let mut limbs = self.0;
        for limb in limbs.iter_mut().rev() {
            let part = (rest << 64) | u128::from(*limb);
            *limb = low64(part / 10);
            rest = part % 10;
        }
        (Self(limbs), u8::try_from(rest).unwrap_or(0))
    }

    /// The quotient and the rest of a division by a number of at most 34 digits.
    fn divided(self, divisor: u128) -> (Self, u128) {
        let mut quotient = [0u64; 4];
        let mut rest = 0u128;
        for (limb, out) in self.0.iter().zip(&mut quotient).rev() {
            for bit in (0..64).rev() {
                rest = (rest << 1) | u128::from((limb >> bit) & 1);
                if rest >= divisor {
                    rest -= divisor;
                    *out |= 1 << bit;
                }
            }
        }
        (Self(quotient), rest)
    }

    fn digits(self) -> u32 {
        let (mut wide, mut digits) = (self, 1);
        while wide.0 != [wide.0[0], 0, 0, 0] {
            wide = wide.tenth().0;
            digits += 1;
        }
        digits + wide.0[0].checked_ilog10().unwrap_or(0)
    }

    fn low(self) -> u128 {
        u128::from(self.0[0]) | (u128::from(self.0[1]) << 64)
    }

    fn cmp(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

fn low64(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or(u64::MAX)
}
