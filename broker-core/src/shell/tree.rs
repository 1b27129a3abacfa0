//! Tree: state that all actors of a top-level entity share, namely the stage, the byte account and
//! the submitted batches.
//!
//! ```text
//!   changes ──► stage n ──(turn ends)──► submitted n ──(durable)──► notices, then replies
//!                 │ replies that depend on it are held with it          bytes are freed
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use smallvec::SmallVec;

use super::commit::Participant;
use super::writer::ShardWriter;
use crate::change::{Durability, TopicChange};
use crate::ids::EntityId;
use crate::machine::StageNumber;
use crate::machine::family::{Family, MemberNumber};
use crate::request::Release;
use crate::store::{Batch, Fence, Shard, StoreError};
use crate::time::{TimeSpan, Timestamp};
use crate::transfer::claim::TransferGuard;

/// Size in bytes at which a stage is cut, between atomic units.
const STAGE_BYTES_MAX: u64 = 8 << 20;
/// Maximum size of a stage that its arbiter commits itself (decision 46). The journal writes more
/// records than this in the background.
const SMALL_RECORDS_MAX: usize = 15;
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Maximum time that lazy changes, on which no reply depends, stay in memory.
const LAZY_DELAY: TimeSpan = TimeSpan::from_ms(500);

/// Callback for a stage that is durable or has failed. Called on any thread.
pub type StageCompletion = Box<dyn FnOnce(StageNumber, Result<(), StoreError>) + Send>;

/// Shared state of a tree. One arbiter owns it, so it has no lock.
pub struct Tree {
    writer: Arc<ShardWriter>,
    stage: Stage,
    /// Stages that are cut but not submitted.
    cut: VecDeque<Stage>,
    /// Stages that are submitted but not durable, in order.
    submitted: VecDeque<SubmittedStage>,
    /// Epoch under which the last submitted stage was submitted.
    fence: Option<Fence>,
    /// Whether a stage is lost; later stages must not be stored.
    lost: bool,
    stored_bytes: u64,
    /// Last stage that is durable together with all earlier ones.
    durable: StageNumber,
    member_count: u32,
    /// State shared between its machines, if it can have several.
    family: Option<Box<Family>>,
    /// Drivers of its machines, for transactions that cover several.
    participants: BTreeMap<EntityId, Weak<RefCell<dyn Participant>>>,
    /// Whether the current changes belong to one unit, which must stay within one stage.
    is_one_unit: bool,
}

#[derive(Default)]
struct Stage {
    number: StageNumber,
    batch: Batch,
    held: Vec<Release>,
    freed_bytes: u64,
    /// Guards of lists from other entities that are part of the batch.
    guards: Vec<TransferGuard>,
    lazy_since: Option<Timestamp>,
    members: Members,
}

struct SubmittedStage {
    number: StageNumber,
    held: Vec<Release>,
    freed_bytes: u64,
    members: Members,
}

/// Members with changes in a stage; nearly always one or two.
type Members = SmallVec<[MemberNumber; 2]>;

impl Tree {
    /// Creates a tree whose records already hold `stored_bytes` bytes.
    #[must_use]
    pub fn new(writer: Arc<ShardWriter>, stored_bytes: u64) -> Self {
        let stage = Stage { number: StageNumber(1), ..Stage::default() };
        Self {
            writer,
            stage,
            cut: VecDeque::new(),
            submitted: VecDeque::new(),
            fence: None,
            lost: false,
            stored_bytes,
            durable: StageNumber(0),
            member_count: 0,
            family: None,
            participants: BTreeMap::new(),
            is_one_unit: false,
        }
    }

    /// Creates a tree of several machines: a topic and its subscriptions.
    #[must_use]
    pub fn of_family(writer: Arc<ShardWriter>, stored_bytes: u64, family: Family) -> Self {
        Self { family: Some(Box::new(family)), ..Self::new(writer, stored_bytes) }
    }

    /// State shared between its machines, if it can have several.
    pub fn family(&mut self) -> Option<&mut Family> {
        let size_bytes = if self.family.is_some() { self.size_bytes() } else { 0 };
        let family = self.family.as_deref_mut()?;
        family.size_bytes = size_bytes;
        Some(family)
    }

    /// Registers the driver of a machine.
    pub fn register_participant(
        &mut self,
        id: EntityId,
        participant: Weak<RefCell<dyn Participant>>,
    ) {
        self.participants.insert(id, participant);
    }

    /// Returns the driver of a machine, if it has one.
    pub(super) fn participant(&self, id: EntityId) -> Option<Rc<RefCell<dyn Participant>>> {
        self.participants.get(&id)?.upgrade()
    }

    /// Keeps all changes until [`Tree::end_unit`] in one stage.
    pub(super) const fn begin_unit(&mut self) {
        self.is_one_unit = true;
    }

    /// Ends the unit begun with [`Tree::begin_unit`].
    pub(super) const fn end_unit(&mut self) {
        self.is_one_unit = false;
    }

    /// Wakes the driver of a machine that another one has driven.
    pub(super) fn wake(&mut self, number: MemberNumber) {
        if let Some(family) = &mut self.family {
            family.wake(number);
        }
    }

    /// Assigns a number to a machine.
    pub(super) const fn join(&mut self) -> MemberNumber {
        let number = MemberNumber(self.member_count);
        self.member_count += 1;
        number
    }

    /// Registers the machine of a subscription, which is driven from now on under this number.
    pub fn join_family(&mut self, id: EntityId, number: MemberNumber) {
        let Some(family) = &mut self.family else { return };
        let stages = family.join(id, number);
        let submitted = self.submitted.iter_mut().map(|stage| (stage.number, &mut stage.members));
        let cut = self.cut.iter_mut().map(|stage| (stage.number, &mut stage.members));
        let open = [(self.stage.number, &mut self.stage.members)];
        for (stage, members) in submitted.chain(cut).chain(open) {
            if stages.contains(&stage) {
                members.push(number);
            }
        }
    }

    /// Removes the machine of a subscription that is being deleted.
    pub fn leave_family(&mut self, id: EntityId) {
        self.participants.remove(&id);
        if let Some(family) = &mut self.family {
            family.begin_removal(id);
        }
    }

    /// Returns members to wake although no stage of theirs becomes durable.
    pub fn take_to_wake(&mut self) -> Vec<MemberNumber> {
        self.family.as_deref_mut().map(Family::take_to_wake).unwrap_or_default()
    }

    /// Passes a change of the topic to its family. Returns the number of bytes that it removes.
    pub(super) fn apply_topic_change(&mut self, change: TopicChange) -> u64 {
        let Some(family) = &mut self.family else { return 0 };
        let members = &mut self.stage.members;
        family.apply_change(change, self.stage.number, |number| members.push(number))
    }

    /// Notes that a machine has changes in this stage, so that it is notified.
    pub fn mark(&mut self, number: MemberNumber) {
        self.stage.members.push(number);
    }

    /// Returns the members with changes in the stages up to this durable one.
    pub fn members_of(&self, stage: StageNumber) -> SmallVec<[MemberNumber; 2]> {
        let mut members = Members::new();
        for done in self.submitted.iter().take_while(|done| done.number <= stage) {
            members.extend_from_slice(&done.members);
        }
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Bytes of all messages, without those whose removal is not yet durable.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let cut = self.cut.iter().map(|stage| stage.freed_bytes);
        let submitted = self.submitted.iter().map(|stage| stage.freed_bytes);
        let freed = self.stage.freed_bytes + cut.chain(submitted).sum::<u64>();
        self.stored_bytes.saturating_sub(freed)
    }

    /// The shard that orders its batches.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.writer.shard()
    }

    /// The stage that takes the next changes.
    #[must_use]
    pub const fn stage_number(&self) -> StageNumber {
        self.stage.number
    }

    /// Bytes that count for the quota: removed bytes count until the removal is durable (DESIGN
    /// D3).
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// The last durable stage. Machines learn it before every list of commands, so that a command
    /// after an acknowledgement finds the acknowledged state, in any order of mail.
    #[must_use]
    pub const fn durable_stage(&self) -> StageNumber {
        self.durable
    }

    /// Whether an append failed. No answer may then be based on the machines.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether no stage is open with changes, cut or submitted.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.stage.batch.is_empty() && self.cut.is_empty() && self.submitted.is_empty()
    }

    /// Whether a submitted stage is not yet durable.
    #[must_use]
    pub fn is_submitting(&self) -> bool {
        !self.submitted.is_empty()
    }

    /// The batch that takes the next records.
    pub(super) const fn batch(&mut self) -> &mut Batch {
        &mut self.stage.batch
    }

    /// Notes the durability that the added records require.
    pub(super) fn require(&mut self, durability: Durability, now: Timestamp) {
        match durability {
            Durability::Sync => self.stage.batch.require_sync(),
            Durability::Lazy => {
                self.stage.lazy_since.get_or_insert(now);
            }
        }
    }

    pub(super) const fn account(&mut self, added: u64, freed: u64) {
        self.stored_bytes += added;
        self.stage.freed_bytes += freed;
    }

    /// Subtracts bytes that the batch of another tree has already removed.
    pub(super) const fn free(&mut self, bytes: u64) {
        self.stored_bytes = self.stored_bytes.saturating_sub(bytes);
    }

    /// Adds a guard to the stage. Called before the command is applied, so that the guard is in the
    /// stage with the changes.
    pub(super) fn add_guard(&mut self, guard: TransferGuard) {
        self.stage.guards.push(guard);
    }

    /// Removes the last guard because the command changed nothing.
    pub(super) fn give_back_guard(&mut self) {
        self.stage.guards.pop();
    }

    /// Adds a reservation to the stage. Called before the command is applied, so that it is in the
    /// stage with the changes.
    pub(super) const fn carry_reservation(&mut self, bytes: u64) {
        self.stage.batch.carry_reservation(bytes);
    }

    /// Returns a reservation because the command changed nothing.
    pub(super) fn give_back_reservation(&mut self, bytes: u64) {
        self.stage.batch.drop_reservation(bytes);
        self.writer.unreserve(bytes);
    }

    /// Holds a release back until everything it may depend on is durable; returns it if that is
    /// already the case. Lazy changes hold nothing back.
    pub(super) fn hold(&mut self, release: Release) -> Option<Release> {
        // A lost tree holds everything, and drops it with itself.
        let held = if self.stage.batch.is_synced() || self.lost {
            &mut self.stage.held
        } else if let Some(last) = self.cut.back_mut() {
            &mut last.held
        } else if let Some(last) = self.submitted.back_mut() {
            &mut last.held
        } else {
            return Some(release);
        };
        held.push(release);
        None
    }

    /// Time at which lazy changes must be submitted.
    #[must_use]
    pub fn flush_deadline(&self) -> Option<Timestamp> {
        self.stage.lazy_since.map(|at| at.plus(LAZY_DELAY))
    }

    /// Whether the stage is large enough for a batch and may end here.
    pub(super) const fn is_large(&self) -> bool {
        self.stage.batch.bytes() >= STAGE_BYTES_MAX && !self.is_one_unit
    }

    /// Ends the stage.
    pub(super) fn cut(&mut self) {
        let number = StageNumber(self.stage.number.0 + 1);
        let stage = std::mem::replace(&mut self.stage, Stage { number, ..Stage::default() });
        self.cut.push_back(stage);
    }

    /// Whether [`Tree::submit`] has work.
    #[must_use]
    pub fn wants_submit(&self, now: Timestamp) -> bool {
        !self.cut.is_empty()
            || self.stage.batch.is_synced()
            || self.flush_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether one small stage is all that waits, with a reply that needs it durable.
    #[must_use]
    pub fn wants_small_commit(&self) -> bool {
        let batch = &self.stage.batch;
        let is_small = batch.len() <= SMALL_RECORDS_MAX && batch.bytes() <= SMALL_BYTES_MAX;
        is_small && batch.is_synced() && self.cut.is_empty() && self.submitted.is_empty()
    }

    /// The writer of its shard.
    #[must_use]
    pub const fn writer(&self) -> &Arc<ShardWriter> {
        &self.writer
    }

    /// Submits each staged stage as one batch. `completion` creates the callback for the result of
    /// each.
    pub fn submit(&mut self, now: Timestamp, completion: &dyn Fn() -> StageCompletion) {
        if self.lost {
            return;
        }
        if self.wants_submit(now) && !self.stage.batch.is_empty() {
            self.cut();
        }
        while let Some(stage) = self.cut.pop_front() {
            let Stage { number, batch, held, freed_bytes, guards, members, .. } = stage;
            let earlier = if self.submitted.is_empty() { None } else { self.fence };
            self.submitted.push_back(SubmittedStage { number, held, freed_bytes, members });
            let completion = completion();
            let completion = Box::new(move |result| completion(number, result));
            self.fence = Some(self.writer.submit_after(earlier, batch, guards, completion));
        }
    }

    /// Prepares all changes, including lazy ones, for [`Tree::submit`]; for a stop.
    pub fn flush(&mut self) {
        if !self.stage.batch.is_empty() {
            self.cut();
        }
    }

    /// Returns the last stage with changes, and notifies this member when it is durable.
    pub fn mark_last(&mut self, number: MemberNumber) -> StageNumber {
        if !self.stage.batch.is_empty() {
            self.stage.members.push(number);
            return self.stage.number;
        }
        let cut = self.cut.back_mut().map(|last| (last.number, &mut last.members));
        let submitted = self.submitted.back_mut().map(|last| (last.number, &mut last.members));
        match cut.or(submitted) {
            Some((stage, members)) => {
                members.push(number);
                stage
            }
            None => self.durable,
        }
    }

    /// Notes that a stage and all earlier ones are durable. Returns the releases that they held
    /// back, for after the machines are notified.
    pub fn complete(&mut self, stage: StageNumber) -> Vec<Release> {
        self.durable = self.durable.max(stage);
        let mut released = Vec::new();
        while self.submitted.front().is_some_and(|first| first.number <= stage) {
            let Some(done) = self.submitted.pop_front() else { break };
            self.stored_bytes = self.stored_bytes.saturating_sub(done.freed_bytes);
            if released.is_empty() {
                released = done.held;
            } else {
                released.extend(done.held);
            }
        }
        released
    }

    /// Drops stages that are not submitted, and all replies that wait: their callers learn that the
    /// outcome is unknown. Part of the end of a tree: its machines contain the dropped changes, so
    /// none of them may continue.
    pub fn abandon(&mut self) {
        self.lost = true;
        let number = self.stage.number;
        let stage = std::mem::replace(&mut self.stage, Stage { number, ..Stage::default() });
        for stage in self.cut.drain(..).chain([stage]) {
            self.writer.unreserve(stage.batch.reserved());
        }
        for submitted in &mut self.submitted {
            submitted.held.clear();
        }
    }

    /// Notes that a submitted stage is lost. From now on nothing is submitted: later stages depend
    /// on the lost one, and another tree may have taken the shard over again, after which the
    /// writer would store them.
    pub fn note_lost(&mut self, stage: StageNumber) {
        self.lost = true;
        self.submitted.retain(|submitted| submitted.number != stage);
    }
}
