//! Messages before the deed of a job, in a file, so that the job can be undone (CON-20).
//!
//! ```text
//!  entry: kind, length of the body, a number, checksum of these; body, checksum of the body
//!         the id of the job is the key of the checksums, so that no body has valid entries
//!
//!  job: originals, synced ─► step ─► numbers that it has changed ─► line of the step
//!  undo:                     step ─► numbers that it has put back ─► line of the step
//! ```
//!
//! Only messages that the job has changed, and that no undo has put back, are undone. Of several
//! originals of a message the last one before the change counts. The line of a step has the bytes
//! of the file up to there, so that only the rest may be a torn write.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::io;

use peeklock_core::command::{ActResult, ActedMessage, Original};
use peeklock_core::ids::{JobId, SequenceNumber};
use siphasher::sip::SipHasher24;
use tokio::task::yield_now;

use crate::job::file_name;
use crate::shelf::{GrowingFile, OpenFile, Shelf, ShelfError};

/// End of the name of a file.
pub(crate) const EXPORT: &str = ".undo";
/// Maximum bytes of a message in a job that can be undone.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an entry in addition to message and session.
pub(crate) const ENTRY_BYTES: u64 = 160;
/// Bytes of the number of a message in two entries of its own: changed and put back.
pub(crate) const NOTE_BYTES: u64 = 80;

const ORIGINAL: u8 = 1;
const CHANGED: u8 = 2;
const RETURNED: u8 = 3;

const SUM_BYTES: usize = 8;
/// Kind, length, number and checksum.
const HEAD_BYTES: usize = 1 + 4 + 8 + SUM_BYTES;
/// Maximum bytes of a body, more than any that is written.
const BODY_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are read to find the entry after a damaged one.
const WINDOW_BYTES: usize = 64 << 10;
/// Entries after which other tasks have a turn.
const ENTRIES_AT_ONCE: u32 = 256;

/// The end of the file of a job, where entries are added.
pub(crate) struct Export {
    job: JobId,
    file: GrowingFile,
    /// End of the last entry with numbers after the line of the last step.
    noted_end: u64,
}

/// The messages of a job that can be put back.
pub(crate) struct Contents {
    /// Their numbers, with the places of their entries; none for an entry that is damaged.
    pub(crate) places: BTreeMap<SequenceNumber, Option<Place>>,
    /// Whether entries are damaged, so that messages may be missing.
    pub(crate) is_damaged: bool,
}

/// Place of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    at: u64,
    body_bytes: usize,
}

/// Reads the entries of a file.
pub(crate) struct Reader {
    job: JobId,
    file: OpenFile,
    length: u64,
}

/// The part of an entry before its body.
struct Head {
    kind: u8,
    number: SequenceNumber,
    place: Place,
    end: u64,
}

impl Export {
    /// Continues the file of a job after its last whole entry. `kept` is its end in the line of the
    /// last step: the entries up to there are not read, and the rest may be a torn write, whose
    /// step was not carried out.
    pub(crate) fn resume(shelf: &Shelf, job: JobId, kept: u64) -> Result<Self, ShelfError> {
        let name = file_name(job, EXPORT);
        let length = shelf.length(&name).map_err(ShelfError::Unchanged)?;
        if length.unwrap_or(0) < kept {
            return Err(ShelfError::Unchanged(damaged("a part of the file is missing")));
        }
        let (mut end, mut noted_end) = (kept, kept);
        if length.is_some_and(|length| length > kept) {
            let reader = Reader::open(shelf, job).map_err(ShelfError::Unchanged)?;
            while let Some(head) = reader.whole(end).map_err(ShelfError::Unchanged)? {
                end = head.end;
                if head.kind != ORIGINAL {
                    noted_end = end;
                }
            }
            if reader.length > end {
                shelf.mend(&name, end)?;
            }
        }
        Ok(Self { job, file: GrowingFile::new(name, length.is_some(), end), noted_end })
    }

    /// Bytes of the file and of gathered entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Whether it has numbers of messages after the line of the last step, which ended at `kept`.
    pub(crate) const fn has_notes(&self, kept: u64) -> bool {
        self.noted_end > kept
    }

    /// Removes the originals of a step that was not carried out.
    pub(crate) fn rewind(&mut self, shelf: &Shelf, kept: u64) -> Result<(), ShelfError> {
        self.file.rewind(shelf, kept.max(self.noted_end))
    }

    /// Adds a message.
    pub(crate) fn add(&mut self, sequence: SequenceNumber, original: &Original) {
        let mut body = Vec::new();
        part(&mut body, &original.record);
        body.push(u8::from(original.content.is_some()));
        part(&mut body, original.content.as_deref().unwrap_or_default());
        for overlay in &original.overlays {
            part(&mut body, overlay);
        }
        self.file.add(&entry(self.job, ORIGINAL, sequence, &body));
    }

    /// Adds the numbers of the messages that a step of the job has changed, or that a step of its
    /// undo has put back.
    pub(crate) fn note(&mut self, messages: &[ActedMessage], is_undo: bool) {
        let done = messages.iter().filter(|message| message.result == ActResult::Done);
        let body: Vec<u8> = done.flat_map(|message| message.sequence.0.to_be_bytes()).collect();
        if !body.is_empty() {
            let kind = if is_undo { RETURNED } else { CHANGED };
            self.file.add(&entry(self.job, kind, SequenceNumber(0), &body));
            self.noted_end = self.bytes();
        }
    }

    /// Whether enough bytes are gathered for a write.
    pub(crate) const fn is_full(&self) -> bool {
        self.file.is_full()
    }

    /// Writes the gathered entries, durably.
    pub(crate) fn write(&mut self, shelf: &Shelf) -> Result<(), ShelfError> {
        self.file.write(shelf)
    }
}

impl Contents {
    /// Bytes of the messages.
    pub(crate) fn bytes(&self) -> u64 {
        self.places.values().flatten().map(|place| place.body_bytes as u64).sum()
    }
}

impl Reader {
    pub(crate) fn open(shelf: &Shelf, job: JobId) -> io::Result<Self> {
        let file = shelf.open(&file_name(job, EXPORT))?;
        let length = file.length()?;
        Ok(Self { job, file, length })
    }

    /// Returns the messages that can be put back. `own_end` is the end of the entries of the job
    /// itself, for an undo that begins; entries of earlier undos follow.
    ///
    /// # Errors
    /// The file cannot be read; or an entry of an earlier undo is damaged, so that messages might
    /// be put back twice.
    pub(crate) async fn contents(&self, own_end: Option<u64>) -> io::Result<Contents> {
        let (mut originals, mut changed) = (BTreeMap::new(), BTreeMap::new());
        let mut returned = BTreeSet::new();
        let (mut at, mut count) = (0, 0_u32);
        let mut is_damaged = own_end.is_some_and(|end| self.length < end);
        while at < self.length {
            count = count.wrapping_add(1);
            if count.is_multiple_of(ENTRIES_AT_ONCE) {
                yield_now().await;
            }
            let found = match self.head(at)? {
                Some(head) => Some(head),
                None => self.find(at.saturating_add(1)).await?,
            };
            let next = found.as_ref().map_or(self.length, |head| head.place.at);
            let mut is_lost = next > at;
            let mut lost_end = next;
            at = next;
            if let Some(head) = found {
                at = head.end;
                match (head.kind, self.numbers(&head)?) {
                    (ORIGINAL, _) => {
                        originals.insert(head.number, head.place);
                    }
                    (_, None) => (is_lost, lost_end) = (true, head.end),
                    (CHANGED, Some(numbers)) => {
                        for number in numbers {
                            changed.entry(number).or_insert_with(|| originals.remove(&number));
                        }
                    }
                    (_, Some(numbers)) => returned.extend(numbers),
                }
            }
            if is_lost && own_end.is_some_and(|end| lost_end > end) {
                return Err(damaged("an entry of an earlier undo is damaged"));
            }
            is_damaged |= is_lost;
        }
        changed.retain(|number, _| !returned.contains(number));
        is_damaged |= changed.values().any(Option::is_none);
        Ok(Contents { places: changed, is_damaged })
    }

    /// Reads a message; none if its entry is damaged.
    pub(crate) fn original(&self, place: Place) -> io::Result<Option<Original>> {
        Ok(self.body(place)?.and_then(|body| parse(&body)))
    }

    /// Reads an entry up to its body; none if there is no entry, or a damaged or torn one.
    fn head(&self, at: u64) -> io::Result<Option<Head>> {
        Ok(self.parse_head(&self.file.read_at(at, HEAD_BYTES)?, at))
    }

    /// Reads the head of an entry whose body is whole.
    fn whole(&self, at: u64) -> io::Result<Option<Head>> {
        let Some(head) = self.head(at)? else { return Ok(None) };
        Ok(self.body(head.place)?.map(|_| head))
    }

    /// Reads the body of an entry; none if it is damaged.
    fn body(&self, Place { at, body_bytes }: Place) -> io::Result<Option<Vec<u8>>> {
        let mut body = self.file.read_at(at + HEAD_BYTES as u64, body_bytes + SUM_BYTES)?;
        let sum = body.split_off(body_bytes.min(body.len()));
        Ok((checksum(self.job, &body) == *sum).then_some(body))
    }

    /// Reads the numbers of an entry; none if it is damaged.
    fn numbers(&self, head: &Head) -> io::Result<Option<Vec<SequenceNumber>>> {
        if head.kind == ORIGINAL {
            return Ok(None);
        }
        let body = self.body(head.place)?;
        Ok(body.map(|body| body.as_chunks().0.iter().copied().map(number).collect()))
    }

    /// Finds the next entry after a damaged one.
    async fn find(&self, mut at: u64) -> io::Result<Option<Head>> {
        loop {
            let window = self.file.read_at(at, WINDOW_BYTES)?;
            let heads = window.windows(HEAD_BYTES).zip(at..);
            let mut heads = heads.filter_map(|(bytes, at)| self.parse_head(bytes, at));
            if let Some(head) = heads.next() {
                return Ok(Some(head));
            }
            if window.len() < WINDOW_BYTES {
                return Ok(None);
            }
            at += (WINDOW_BYTES - HEAD_BYTES + 1) as u64;
            yield_now().await;
        }
    }

    fn parse_head(&self, bytes: &[u8], at: u64) -> Option<Head> {
        let (kind, after) = bytes.split_first()?;
        if !(ORIGINAL..=RETURNED).contains(kind) {
            return None;
        }
        let (body_bytes, after) = after.split_first_chunk()?;
        let body_bytes = u32::from_be_bytes(*body_bytes);
        let (first, sum) = after.split_first_chunk()?;
        let summed = bytes.get(..HEAD_BYTES - SUM_BYTES)?;
        let end = at + (HEAD_BYTES + SUM_BYTES) as u64 + u64::from(body_bytes);
        let is_valid = u64::from(body_bytes) <= BODY_BYTES_MAX
            && end <= self.length
            && sum.get(..SUM_BYTES) == Some(checksum(self.job, summed).as_slice());
        let place = Place { at, body_bytes: usize::try_from(body_bytes).ok()? };
        is_valid.then_some(Head { kind: *kind, number: number(*first), place, end })
    }
}

fn parse(body: &[u8]) -> Option<Original> {
    let mut rest = body;
    let record = take(&mut rest)?;
    let (has_content, after) = rest.split_first()?;
    rest = after;
    let content = take(&mut rest)?;
    let mut overlays = Vec::new();
    while !rest.is_empty() {
        overlays.push(take(&mut rest)?.to_vec().into());
    }
    let content = (*has_content == 1).then(|| content.to_vec().into());
    Some(Original { record: record.to_vec().into(), content, overlays })
}

fn part(body: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(bytes);
}

fn take<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    let (part, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = after;
    Some(part)
}

const fn number(bytes: [u8; 8]) -> SequenceNumber {
    SequenceNumber(u64::from_be_bytes(bytes))
}

fn entry(job: JobId, kind: u8, number: SequenceNumber, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len() + SUM_BYTES);
    bytes.push(kind);
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&number.0.to_be_bytes());
    let sum = checksum(job, &bytes);
    bytes.extend_from_slice(&sum);
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&checksum(job, body));
    bytes
}

fn checksum(job: JobId, bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = SipHasher24::new_with_key(&job.0.to_be_bytes());
    hasher.write(bytes);
    hasher.finish().to_be_bytes()
}

fn damaged(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
