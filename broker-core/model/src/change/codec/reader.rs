//! Reader and writers of the fields of a value. All codecs of records use them. A reader refuses a
//! value with missing or additional bytes.

use super::VERSION;
use crate::path::SubQueue;
use crate::time::{TimeSpan, Timestamp};

/// Result of reading; the error describes the fault of the value.
pub(crate) type Read<T> = Result<T, &'static str>;

pub(crate) fn write_optional_text(text: Option<&str>, value: &mut Vec<u8>) {
    value.push(u8::from(text.is_some()));
    write_text(text.unwrap_or_default(), value);
}

pub(crate) fn write_text(text: &str, value: &mut Vec<u8>) {
    value.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    value.extend_from_slice(text.as_bytes());
}

/// Reads fields off the front of a value.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(value: &'a [u8]) -> Self {
        Self(value)
    }

    pub(crate) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("value too short")?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "value too short")
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Read<u128> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    pub(super) fn sub_queue(&mut self) -> Read<SubQueue> {
        match self.u8()? {
            0 => Ok(SubQueue::Main),
            1 => Ok(SubQueue::DeadLetter),
            2 => Ok(SubQueue::TransferDeadLetter),
            _ => Err("unknown sub-queue"),
        }
    }

    pub(crate) fn instant(&mut self) -> Read<Timestamp> {
        Ok(Timestamp::from_ticks(i64::from_be_bytes(self.array()?)))
    }

    pub(crate) fn span(&mut self) -> Read<TimeSpan> {
        Ok(TimeSpan::from_ticks(i64::from_be_bytes(self.array()?)))
    }

    pub(crate) fn switch(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("switch is neither 0 nor 1"),
        }
    }

    pub(super) fn str(&mut self) -> Read<&'a str> {
        let length = self.u32()? as usize;
        std::str::from_utf8(self.take(length)?).map_err(|_| "text is not UTF-8")
    }

    pub(crate) fn text(&mut self) -> Read<Box<str>> {
        Ok(self.str()?.into())
    }

    pub(crate) fn optional_text(&mut self) -> Read<Option<Box<str>>> {
        let present = self.switch()?;
        let text = self.text()?;
        Ok(present.then_some(text))
    }

    pub(crate) fn version(&mut self) -> Read<()> {
        if self.u8()? == VERSION { Ok(()) } else { Err("version is not known") }
    }

    /// Reads the version byte; returns whether it is `later` rather than the first version.
    pub(crate) fn version_or(&mut self, later: u8) -> Read<bool> {
        match self.u8()? {
            VERSION => Ok(false),
            version if version == later => Ok(true),
            _ => Err("version is not known"),
        }
    }

    /// Reads the version byte, which must be at most `last`.
    pub(super) fn version_up_to(&mut self, last: u8) -> Read<u8> {
        match self.u8()? {
            version if (VERSION..=last).contains(&version) => Ok(version),
            _ => Err("version is not known"),
        }
    }

    pub(crate) const fn end(&self) -> Read<()> {
        if self.0.is_empty() { Ok(()) } else { Err("value too long") }
    }
}
