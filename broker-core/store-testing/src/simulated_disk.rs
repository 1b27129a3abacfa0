//! A disk in memory that loses, tears and reorders unsynced writes, fills up, and fails when a test
//! plans it (DESIGN D12). Tests of the journal and of whole brokers run on it.
//!
//! ```text
//!  write, allocate, truncate ──► current bytes ──(DiskFile::sync)──► durable bytes
//!  create, rename, remove    ──► names         ──(Disk::sync)─────► durable names
//! ```
//!
//! At a crash, every 512-byte sector written since the last sync of its file takes any of the
//! contents that it had since, independently of its neighbours. The length of a file takes any of
//! its values since the sync. Of the changes to names since the last sync of the directory, a
//! prefix survives: file systems with a journal keep that order. [`Names::AnyOrder`] is harsher and
//! keeps only the order of changes to one name. Bytes and names do not wait for each other, so that
//! a file whose name was not synced may disappear with all its synced bytes.
//!
//! All behaviour repeats from the seed. Absent on purpose: time, and any knowledge of the meaning
//! of the bytes.

mod bytes;
mod calls;
mod names;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::bytes::Inode;
use self::calls::{CallFate, Calls};
use self::names::Directory;
use super::random::Random;
use peeklock_store::journal::disk::{Disk, DiskFile};

/// The unit that a crash keeps or loses as a whole.
pub const SECTOR_BYTES: usize = 512;
/// Free bytes that a disk without a quota reports.
const UNBOUNDED_BYTES: u64 = 1 << 60;

/// The calls of a disk and its files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Call {
    /// [`Disk::list`].
    List,
    /// [`Disk::open`].
    Open,
    /// [`Disk::create`].
    Create,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
    /// [`Disk::sync`].
    SyncNames,
    /// [`Disk::free_bytes`].
    FreeBytes,
    /// [`DiskFile::length`].
    Length,
    /// [`DiskFile::read_at`].
    Read,
    /// [`DiskFile::write_at`].
    Write,
    /// [`DiskFile::allocate`].
    Allocate,
    /// [`DiskFile::truncate`].
    Truncate,
    /// [`DiskFile::sync`].
    Sync,
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 13] = [
        Self::List,
        Self::Open,
        Self::Create,
        Self::Rename,
        Self::Remove,
        Self::SyncNames,
        Self::FreeBytes,
        Self::Length,
        Self::Read,
        Self::Write,
        Self::Allocate,
        Self::Truncate,
        Self::Sync,
    ];
}

/// The way in which a call fails. A failed sync of a file loses the bytes that it did not write to
/// the medium: they count as clean from then on, and no later sync writes them, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The call has no effect.
    Whole,
    /// The call has a part of its effect.
    Partly,
    /// The call has its whole effect and fails nevertheless.
    Done,
}

/// The changes to names that a crash keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// All changes up to a random one.
    Prefix,
    /// Any changes; changes to one name keep their order.
    AnyOrder,
}

/// The bytes that the next process reads after a failed sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The written bytes, from the page cache, although no medium has them.
    StillCached,
    /// The bytes of the medium.
    ReadAnew,
}

/// A flat directory of simulated files. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    random: Random,
    directory: Directory,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    quota_bytes: Option<u64>,
    calls: Calls,
    trace: Option<Vec<String>>,
}

struct SimulatedFile {
    state: Arc<Mutex<State>>,
    inode: u64,
}

impl SimulatedDisk {
    /// An empty disk.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::holding(&BTreeMap::new(), seed)
    }

    /// A disk with these files, all durable.
    #[must_use]
    pub fn holding(files: &BTreeMap<String, Vec<u8>>, seed: u64) -> Self {
        let mut state = State {
            random: Random::new(seed),
            directory: Directory::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            quota_bytes: None,
            calls: Calls::default(),
            trace: None,
        };
        for (name, bytes) in files {
            let inode = state.new_inode(Inode::durable(bytes.clone()));
            state.directory.create(name, inode);
        }
        state.directory.sync();
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The files as calls see them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let of = |inode| state.inodes.get(inode).map_or_else(Vec::new, |at| at.current().to_vec());
        state.directory.names().iter().map(|(name, inode)| (name.clone(), of(inode))).collect()
    }

    /// The files that surely exist after a crash, with the bytes of their last sync.
    #[must_use]
    pub fn durable_files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let of = |inode| state.inodes.get(inode).map_or_else(Vec::new, |at| at.synced().to_vec());
        let names = state.directory.durable_names();
        names.iter().map(|(name, inode)| (name.clone(), of(inode))).collect()
    }

    /// Cuts the power, and returns the disk that the next process finds. Every later call on this
    /// disk fails.
    #[must_use]
    pub fn crash(&self, random: &mut Random) -> Self {
        self.crash_with(random, Names::Prefix)
    }

    /// Does the same with a choice for names.
    #[must_use]
    pub fn crash_with(&self, random: &mut Random, names: Names) -> Self {
        let mut state = self.lock();
        state.calls.cut();
        let kept = state.directory.survivors(random, names);
        let mut found = State {
            random: Random::new(random.bits()),
            directory: Directory::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            quota_bytes: state.quota_bytes,
            calls: Calls::default(),
            trace: state.trace.take(),
        };
        found.note(|| "the power is cut".to_owned());
        for (name, inode) in kept {
            let Some(inode) = state.inodes.get(&inode) else { continue };
            let bytes = inode.survivor(random);
            found.note(|| format!("left: {name}, {} bytes", bytes.len()));
            let inode = found.new_inode(Inode::durable(bytes));
            found.directory.create(&name, inode);
        }
        found.directory.sync();
        Self { state: Arc::new(Mutex::new(found)) }
    }

    /// An independent copy of the disk with the same files, written and durable. It has no open
    /// handles and no planned failures.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.lock();
        let mut forked = State {
            random: state.random.clone(),
            directory: state.directory.clone(),
            inodes: state.inodes.clone(),
            next_inode: state.next_inode,
            quota_bytes: state.quota_bytes,
            calls: Calls::default(),
            trace: None,
        };
        drop(state);
        for inode in forked.inodes.values_mut() {
            inode.close_all();
        }
        forked.forget_unnamed();
        Self { state: Arc::new(Mutex::new(forked)) }
    }

    /// Ends the process that uses the disk, and returns the disk for the next process. No written
    /// byte is lost, and no unsynced byte becomes more durable. Every later call on this disk
    /// fails.
    #[must_use]
    pub fn kill(&self, lost: Lost) -> Self {
        let mut state = self.lock();
        let mut found = State {
            random: state.random.clone(),
            directory: std::mem::take(&mut state.directory),
            inodes: std::mem::take(&mut state.inodes),
            next_inode: state.next_inode,
            quota_bytes: state.quota_bytes,
            calls: Calls::default(),
            trace: state.trace.take(),
        };
        state.calls.cut();
        drop(state);
        found.note(|| "the process is killed".to_owned());
        for inode in found.inodes.values_mut() {
            inode.close_all();
            if lost == Lost::ReadAnew {
                inode.reload();
            }
        }
        found.directory.restart();
        found.forget_unnamed();
        Self { state: Arc::new(Mutex::new(found)) }
    }

    /// Cuts the power at a call: 1 is the next. That call has a part of its effect and fails.
    pub fn cut_power_at(&self, count: u64) {
        self.lock().calls.cut_at(count);
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lock().calls.is_cut()
    }

    /// Plans a single failure of a call of a kind: 1 is the next of that kind.
    pub fn fail(&self, call: Call, count: u64, fault: Fault) {
        self.lock().calls.fail(call, count, 1, fault);
    }

    /// Plans failures of all calls of a kind from this one: 1 is the next of that kind.
    pub fn fail_from(&self, call: Call, count: u64, fault: Fault) {
        self.lock().calls.fail(call, count, u64::MAX, fault);
    }

    /// Cancels all planned failures.
    pub fn heal(&self) {
        self.lock().calls.heal();
    }

    /// Number of calls that failed as planned.
    #[must_use]
    pub fn failure_count(&self) -> u64 {
        self.lock().calls.failure_count()
    }

    /// Number of calls.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.lock().calls.total()
    }

    /// Number of calls of a kind.
    #[must_use]
    pub fn call_count_of(&self, call: Call) -> u64 {
        self.lock().calls.total_of(call)
    }

    /// Sets the maximum size of all files together, or removes it.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.lock().quota_bytes = bytes;
    }

    /// Bytes that files occupy.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.lock().allocated_bytes()
    }

    /// Flips a bit on the medium and in memory. Returns whether the byte exists.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u32) -> bool {
        let mut state = self.lock();
        let Some(inode) = state.directory.names().get(name).copied() else { return false };
        state.inodes.get_mut(&inode).is_some_and(|inode| inode.flip(offset, bit))
    }

    /// Records every later call, also on the disks that crashes leave.
    pub fn record(&self) {
        self.lock().trace.get_or_insert_default();
    }

    /// The calls recorded since the last time.
    #[must_use]
    pub fn take_trace(&self) -> Vec<String> {
        self.lock().trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn file(&self, state: &mut State, inode: u64) -> Arc<dyn DiskFile> {
        if let Some(inode) = state.inodes.get_mut(&inode) {
            inode.open();
        }
        Arc::new(SimulatedFile { state: Arc::clone(&self.state), inode })
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    /// Counts a call and returns its fate.
    fn enter(&mut self, call: Call, describe: impl FnOnce() -> String) -> io::Result<CallFate> {
        let fate = self.calls.enter(call)?;
        let number = self.calls.total();
        self.note(|| {
            let mut line = format!("{number:>5} {call:?} {}", describe());
            if fate != CallFate::Passes {
                write!(line, ": {fate:?}").ok();
            }
            line
        });
        Ok(fate)
    }

    fn name_of(&self, inode: u64) -> String {
        let mut names = self.directory.names().iter();
        let found = names.find(|(_, of)| **of == inode);
        found.map_or_else(|| format!("(unnamed {inode})"), |(name, _)| name.clone())
    }

    fn new_inode(&mut self, inode: Inode) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        number
    }

    /// Frees files that no handle and no name reaches, even after a crash.
    fn forget_unnamed(&mut self) {
        let directory = &self.directory;
        self.inodes.retain(|number, inode| inode.is_open() || directory.reaches(*number));
    }

    fn allocated_bytes(&self) -> u64 {
        let names = self.directory.names();
        self.inodes
            .iter()
            .filter(|(number, inode)| inode.is_open() || names.values().any(|of| of == *number))
            .map(|(_, inode)| inode.allocated_bytes())
            .sum()
    }

    fn free_bytes(&self) -> u64 {
        self.quota_bytes
            .map_or(UNBOUNDED_BYTES, |quota| quota.saturating_sub(self.allocated_bytes()))
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(calls::power_is_cut)
    }

    /// The greatest length that the file can grow to.
    fn length_max(&mut self, number: u64) -> io::Result<u64> {
        let free = self.free_bytes();
        Ok(self.inode(number)?.allocated_bytes() + free)
    }
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.enter(Call::List, String::new)?.must_pass()?;
        Ok(state.directory.names().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        state.enter(Call::Open, || name.to_owned())?.must_pass()?;
        let inode = state.directory.find(name)?;
        Ok(self.file(&mut state, inode))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        let fate = state.enter(Call::Create, || name.to_owned())?;
        if state.directory.find(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if fate.is_done(&mut state.random) {
            let inode = state.new_inode(Inode::default());
            state.directory.create(name, inode);
        }
        fate.must_pass()?;
        let inode = state.directory.find(name)?;
        Ok(self.file(&mut state, inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.enter(Call::Rename, || format!("{from} to {to}"))?;
        state.directory.find(from)?;
        if fate.is_done(&mut state.random) {
            state.directory.rename(from, to);
            state.forget_unnamed();
        }
        fate.must_pass()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.enter(Call::Remove, || name.to_owned())?;
        state.directory.find(name)?;
        if fate.is_done(&mut state.random) {
            state.directory.remove(name);
            state.forget_unnamed();
        }
        fate.must_pass()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.enter(Call::SyncNames, String::new)?;
        match fate {
            CallFate::Passes => state.directory.sync(),
            CallFate::Fails(_) => state.directory.fail_sync(),
            CallFate::LastOne => {}
        }
        state.forget_unnamed();
        fate.must_pass()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.lock();
        state.enter(Call::FreeBytes, String::new)?.must_pass()?;
        Ok(state.free_bytes())
    }
}

impl SimulatedFile {
    fn enter(
        &self,
        call: Call,
        describe: impl FnOnce() -> String,
    ) -> io::Result<(MutexGuard<'_, State>, CallFate)> {
        let mut state = lock(&self.state);
        let name = if state.trace.is_some() { state.name_of(self.inode) } else { String::new() };
        let fate = state.enter(call, || format!("{name} {}", describe()))?;
        Ok((state, fate))
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        let (mut state, fate) = self.enter(Call::Length, String::new)?;
        fate.must_pass()?;
        Ok(state.inode(self.inode)?.current().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (mut state, fate) =
            self.enter(Call::Read, || format!("{} bytes at {offset}", buffer.len()))?;
        fate.must_pass()?;
        Ok(state.inode(self.inode)?.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut state, fate) =
            self.enter(Call::Write, || format!("{} bytes at {offset}", bytes.len()))?;
        let room = state.length_max(self.inode)?.saturating_sub(offset);
        let fitting = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let count = fate.amount(&mut state.random, fitting);
        let inode = state.inode(self.inode)?;
        inode.write(bytes.get(..count).unwrap_or_default(), offset);
        fate.must_pass()?;
        if fitting < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let (mut state, fate) = self.enter(Call::Allocate, || format!("{bytes} bytes"))?;
        let length_max = state.length_max(self.inode)?;
        let length = state.inode(self.inode)?.current().len() as u64;
        let more = usize::try_from(bytes.saturating_sub(length)).unwrap_or(usize::MAX);
        let full = bytes > length_max;
        let reached = if full { state.random.one_in(2) } else { true };
        let more = if full {
            usize::try_from(length_max.saturating_sub(length)).unwrap_or(usize::MAX)
        } else {
            more
        };
        let more = fate.amount(&mut state.random, more);
        if reached && more > 0 {
            state.inode(self.inode)?.set_length(length + more as u64);
        }
        fate.must_pass()?;
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let (mut state, fate) = self.enter(Call::Truncate, || format!("to {bytes} bytes"))?;
        if fate.is_done(&mut state.random) {
            let bytes = bytes.min(state.length_max(self.inode)?);
            state.inode(self.inode)?.set_length(bytes);
        }
        fate.must_pass()
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, fate) = self.enter(Call::Sync, String::new)?;
        let mut random = Random::new(state.random.bits());
        let inode = state.inode(self.inode)?;
        match fate {
            CallFate::Passes => inode.sync(),
            CallFate::Fails(fault) => inode.fail_sync(fault, &mut random),
            CallFate::LastOne => {}
        }
        fate.must_pass()
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.close();
            if !inode.is_open() {
                state.forget_unnamed();
            }
        }
    }
}
