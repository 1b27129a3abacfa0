//! The manifest: a small file with the number of the newest segment, and the end of the log if it
//! was closed in order. Without it, a lost newest segment or a lost end would look like a crash.
//! The log writes it, and opening reads it.
//!
//! Two slots are written in turn, so that a torn write leaves the previous state.

use std::io;
use std::sync::Arc;

use crc32c::crc32c;

use super::disk::{Disk, DiskFile};
use super::format::Fields;

/// The name of the file.
pub(super) const NAME: &str = "manifest";
const MAGIC: [u8; 8] = *b"PEEKMANI";
const VERSION: u32 = 1;
pub(super) const SLOT_BYTES: u64 = 512;
const SLOT_LENGTH: usize = 8 + 4 + 8 + 4 + 8 + 4;

/// The state in the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ManifestState {
    generation: u64,
    /// The newest segment that may contain acknowledged data; 0 for none.
    pub(super) newest: u32,
    /// End of the log in that segment, if it was closed in order; otherwise 0.
    pub(super) closed_end: u64,
}

/// The file, and the last written state.
pub(super) struct Manifest {
    file: Arc<dyn DiskFile>,
    last: ManifestState,
}

impl Manifest {
    /// Opens the manifest, or makes an empty one. Returns its state.
    pub(super) fn open(disk: &dyn Disk) -> io::Result<(Self, ManifestState)> {
        let file = if disk.list()?.iter().any(|name| name == NAME) {
            disk.open(NAME)?
        } else {
            let file = disk.create(NAME)?;
            disk.sync()?;
            file
        };
        let state = read(&*file)?;
        Ok((Self { file, last: state }, state))
    }

    /// Writes a new state, durably.
    pub(super) fn record(&mut self, newest: u32, closed_end: u64) -> io::Result<()> {
        let state = ManifestState { generation: self.last.generation + 1, newest, closed_end };
        let mut slot = Vec::with_capacity(SLOT_LENGTH);
        slot.extend_from_slice(&MAGIC);
        slot.extend_from_slice(&VERSION.to_le_bytes());
        slot.extend_from_slice(&state.generation.to_le_bytes());
        slot.extend_from_slice(&state.newest.to_le_bytes());
        slot.extend_from_slice(&state.closed_end.to_le_bytes());
        let checksum = crc32c(&slot);
        slot.extend_from_slice(&checksum.to_le_bytes());
        self.file.write_at(&slot, (state.generation % 2) * SLOT_BYTES)?;
        self.file.sync()?;
        self.last = state;
        Ok(())
    }
}

/// The state of a manifest; the default if no slot is readable.
pub(super) fn read(file: &dyn DiskFile) -> io::Result<ManifestState> {
    let mut newest = ManifestState::default();
    for place in 0..2 {
        let mut slot = [0; SLOT_LENGTH];
        let count = file.read_at(&mut slot, place * SLOT_BYTES)?;
        let state = slot.get(..count).and_then(read_slot).unwrap_or_default();
        if state.generation > newest.generation {
            newest = state;
        }
    }
    Ok(newest)
}

/// Offsets of written slots that are unreadable.
pub(super) fn damaged_slots(file: &dyn DiskFile) -> io::Result<Vec<u64>> {
    let mut damaged = Vec::new();
    for place in 0..2 {
        let mut slot = [0; SLOT_LENGTH];
        let count = file.read_at(&mut slot, place * SLOT_BYTES)?;
        let slot = slot.get(..count).unwrap_or_default();
        if read_slot(slot).is_none() && slot.iter().any(|byte| *byte != 0) {
            damaged.push(place * SLOT_BYTES);
        }
    }
    Ok(damaged)
}

fn read_slot(slot: &[u8]) -> Option<ManifestState> {
    let (covered, checksum) = slot.split_at_checked(SLOT_LENGTH - 4)?;
    if crc32c(covered).to_le_bytes() != checksum {
        return None;
    }
    let mut fields = Fields(covered);
    if fields.take(MAGIC.len()).ok()? != MAGIC || fields.u32().ok()? != VERSION {
        return None;
    }
    Some(ManifestState {
        generation: fields.u64().ok()?,
        newest: fields.u32().ok()?,
        closed_end: fields.u64().ok()?,
    })
}
