//! Positions in a log, and the reading of fields.

/// A position in the log: a segment, and a position in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogPosition {
    /// The number of the segment; 0 means none.
    pub segment: u32,
    /// The position in the segment. In the journal, the byte of its file.
    pub offset: u32,
}

/// Reason why bytes are not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// There is no such file, or it must not be read.
    #[error("there is no such file")]
    Absent,
    /// Only zeros: no frame was written here.
    #[error("nothing is written here")]
    Empty,
    /// The magic number differs.
    #[error("no frame begins here")]
    Magic,
    /// The bytes end in the middle of a structure.
    #[error("it ends in the middle")]
    Short,
    /// The checksum differs.
    #[error("its checksum differs")]
    Checksum,
    /// The number does not follow its predecessor.
    #[error("its number does not follow its predecessor")]
    Order,
    /// A later version wrote it.
    #[error("it was written by a later version")]
    Version,
    /// The checksum is right, but the fields are invalid.
    #[error("its content is invalid")]
    Form,
}

/// Replaces bytes of a buffer, if it has them.
pub fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = buffer.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Reads fields from the front of bytes. Integers are little-endian.
#[derive(Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`Flaw::Short`] if there are fewer; the same for all other fields.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Flaw::Short)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Flaw> {
        self.take(N)?.try_into().map_err(|_| Flaw::Short)
    }

    /// A byte.
    ///
    /// # Errors
    /// See [`Fields::take`].
    pub fn u8(&mut self) -> Result<u8, Flaw> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A length of seven bits per byte; see [`write_length`](crate::write_length).
    ///
    /// # Errors
    /// See [`Fields::take`]; [`Flaw::Form`] if it exceeds 32 bits.
    pub fn length(&mut self) -> Result<u32, Flaw> {
        let mut length = 0;
        for shift in (0..u32::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u32::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(Flaw::Form);
            }
            length |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(Flaw::Form)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// See [`Fields::take`].
    pub fn u32(&mut self) -> Result<u32, Flaw> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// See [`Fields::take`].
    pub fn u64(&mut self) -> Result<u64, Flaw> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// See [`Fields::take`].
    pub fn u128(&mut self) -> Result<u128, Flaw> {
        Ok(u128::from_le_bytes(self.array()?))
    }
}
