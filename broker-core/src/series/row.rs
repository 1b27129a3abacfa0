//! One row of a series, and its packed form.
//!
//! A packed row is a mask of the values that follow, then these values as variable-length numbers:
//! counts that are not 0, gauges as differences from the row before, and percentiles. A row without
//! any value is *quiet*: the entity did nothing and its gauges stayed.

use crate::flows::{FLOW_COUNT, Percentiles};

/// Number of gauges: active, locked, deferred and scheduled messages, dead letters, bytes, and the
/// instant in milliseconds at which the oldest message was enqueued, 0 if there is none.
pub(super) const GAUGE_COUNT: usize = 7;
const WAITS_BIT: usize = FLOW_COUNT + GAUGE_COUNT;
const LOCKS_BIT: usize = WAITS_BIT + 1;
const _: () = assert!(LOCKS_BIT < u32::BITS as usize, "a mask has a bit for each value");

/// Gauges at the end of a slot.
pub(super) type GaugeValues = [u64; GAUGE_COUNT];

/// Values of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) counts: [u64; FLOW_COUNT],
    pub(super) gauges: GaugeValues,
    pub(super) waits: Option<Percentiles>,
    pub(super) locks: Option<Percentiles>,
}

impl Row {
    fn mask(&self, before: &GaugeValues) -> u32 {
        let counts = self.counts.iter().map(|count| *count != 0);
        let gauges = self.gauges.iter().zip(before).map(|(now, before)| now != before);
        let times = [self.waits.is_some(), self.locks.is_some()];
        let bits = counts.chain(gauges).chain(times).enumerate();
        bits.filter(|(_, is_set)| *is_set).fold(0, |mask, (bit, _)| mask | 1 << bit)
    }

    /// Whether nothing happened since the row before.
    pub(super) fn is_quiet(&self, before: &GaugeValues) -> bool {
        self.mask(before) == 0
    }

    /// Appends the packed form.
    pub(super) fn write(&self, before: &GaugeValues, out: &mut Vec<u8>) {
        write_number(self.mask(before).into(), out);
        for count in self.counts.iter().filter(|count| **count != 0) {
            write_number(*count, out);
        }
        for (now, before) in self.gauges.iter().zip(before).filter(|(now, before)| now != before) {
            let difference = now.wrapping_sub(*before).cast_signed();
            // Small differences of either sign become small numbers.
            write_number(((difference << 1) ^ (difference >> 63)).cast_unsigned(), out);
        }
        for times in [self.waits, self.locks].into_iter().flatten() {
            out.extend_from_slice(&times);
        }
    }

    /// Reads the values that follow a mask; none if the bytes end before.
    pub(super) fn read(mask: u32, before: &GaugeValues, bytes: &mut &[u8]) -> Option<Self> {
        let has = |bit: usize| mask >> bit & 1 == 1;
        let mut row = Self { gauges: *before, ..Self::default() };
        for (_, count) in row.counts.iter_mut().enumerate().filter(|(place, _)| has(*place)) {
            *count = read_number(bytes)?;
        }
        for (place, gauge) in row.gauges.iter_mut().enumerate() {
            if has(FLOW_COUNT + place) {
                let number = read_number(bytes)?;
                let difference = (number >> 1) ^ (number & 1).wrapping_neg();
                *gauge = gauge.wrapping_add(difference);
            }
        }
        for (bit, times) in [(WAITS_BIT, &mut row.waits), (LOCKS_BIT, &mut row.locks)] {
            if has(bit) {
                let (first, rest) = bytes.split_first_chunk::<3>()?;
                (*times, *bytes) = (Some(*first), rest);
            }
        }
        Some(row)
    }
}

/// Appends a number, seven bits to a byte.
pub(super) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Reads a number; none if the bytes end before or it has over 64 bits.
pub(super) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-32: a packed row is read as it was written, for the smallest and largest values.
    #[test]
    fn rows_survive_packing() {
        let before = [5, u64::MAX, 0, 1 << 40, 7, 0, 9];
        let mut row = Row { gauges: [0, 0, u64::MAX, 1, 7, 1 << 63, 10], ..Row::default() };
        (row.counts[0], row.counts[14]) = (u64::MAX, 1);
        row.locks = Some([0, 63, 255]);
        for row in [row, Row { gauges: before, ..Row::default() }] {
            let mut packed = Vec::new();
            row.write(&before, &mut packed);
            let mut rest = &*packed;
            let mask = u32::try_from(read_number(&mut rest).unwrap()).unwrap();
            assert_eq!(Row::read(mask, &before, &mut rest), Some(row));
            assert!(rest.is_empty());
            assert_eq!(row.is_quiet(&before), mask == 0);
            for end in 1..packed.len() {
                let mut cut = packed.get(1..end).unwrap();
                if mask > 0 && mask < 0x80 {
                    assert_eq!(Row::read(mask, &before, &mut cut), None);
                }
            }
        }
        assert_eq!(read_number(&mut &[0x80; 10][..]), None);
    }
}
