//! Values that are text in JSON and numbers in the binary form: an instant is ticks of 100 ns since
//! year 1, a duration is ticks (the largest value means "unlimited"), and a lock token or any other
//! GUID is 16 bytes.

use peeklock_core::ids::LockToken;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::wire::{Reader, Wire};
use crate::error::FrameError;

pub(crate) use peeklock_json::{Guid, Instant, Span, Token};

impl Wire for Instant {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.ticks().write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        i64::read(reader).map(|ticks| Self(Timestamp::from_ticks(ticks)))
    }
}

impl Wire for Span {
    const BYTES_MIN: usize = 8;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.ticks().write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        i64::read(reader).map(|ticks| Self(TimeSpan::from_ticks(ticks)))
    }
}

impl Wire for Token {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.0.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        u128::read(reader).map(|token| Self(LockToken(token)))
    }
}

impl Wire for Guid {
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        u128::read(reader).map(Self)
    }
}
