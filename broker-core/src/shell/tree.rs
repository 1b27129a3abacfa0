//! What all actors of one top-level entity share: the stage, the account, the submitted batches.
//!
//! ```text
//!   changes ──► stage n ──(turn ends)──► submitted n ──(durable)──► notices, then replies
//!                 │ replies that rest on it are held with it            bytes are freed
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use smallvec::SmallVec;

use super::commit::Participant;
use super::writer::ShardWriter;
use crate::change::{Durability, TopicChange};
use crate::entity::StageNumber;
use crate::entity::family::{Family, MemberNumber};
use crate::ids::EntityId;
use crate::request::Release;
use crate::store::{Batch, Fence, Shard, StoreError};
use crate::time::{TimeSpan, Timestamp};
use crate::transfer::passage::Guard;

/// A stage is cut when it holds this many bytes, between atomic units.
const STAGE_BYTES_MAX: u64 = 8 << 20;
/// How long changes that nobody waits for may stay in memory.
const LAZY_DELAY: TimeSpan = TimeSpan::from_ms(500);

/// Is called when a stage is durable or has failed. Any thread.
pub type StageCompletion = Box<dyn FnOnce(StageNumber, Result<(), StoreError>) + Send>;

/// The shared state of one tree. One arbiter owns it; no lock.
pub struct Tree {
    writer: Arc<ShardWriter>,
    stage: Stage,
    /// Cut, not yet submitted.
    cut: VecDeque<Stage>,
    /// Submitted, not yet durable, in order.
    submitted: VecDeque<Submitted>,
    /// Under which epoch the last of them was submitted.
    fence: Option<Fence>,
    /// Whether a stage is lost; nothing that came after it may be stored.
    lost: bool,
    stored_bytes: u64,
    /// The last stage of which all before it are durable too.
    durable: StageNumber,
    member_count: u32,
    /// What its machines know of each other, if there can be several.
    family: Option<Box<Family>>,
    /// Who drives the machines, for a transaction over several of them.
    participants: BTreeMap<EntityId, Weak<RefCell<dyn Participant>>>,
    /// Whether what is staged now belongs to one unit, within which the stage is not ended.
    is_one_unit: bool,
}

#[derive(Default)]
struct Stage {
    number: StageNumber,
    batch: Batch,
    held: Vec<Release>,
    freed_bytes: u64,
    /// Of lists that came from other entities and are part of the batch.
    guards: Vec<Guard>,
    lazy_since: Option<Timestamp>,
    members: Members,
}

struct Submitted {
    number: StageNumber,
    held: Vec<Release>,
    freed_bytes: u64,
    members: Members,
}

/// Who has something in a stage. Nearly always one or two.
type Members = SmallVec<[MemberNumber; 2]>;

impl Tree {
    /// A tree whose records hold so many bytes already.
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

    /// A tree of several machines: a topic and its subscriptions.
    #[must_use]
    pub fn of_family(writer: Arc<ShardWriter>, stored_bytes: u64, family: Family) -> Self {
        Self { family: Some(Box::new(family)), ..Self::new(writer, stored_bytes) }
    }

    /// What its machines know of each other, if there can be several.
    pub fn family(&mut self) -> Option<&mut Family> {
        let size_bytes = if self.family.is_some() { self.size_bytes() } else { 0 };
        let family = self.family.as_deref_mut()?;
        family.size_bytes = size_bytes;
        Some(family)
    }

    /// Takes note of who drives a machine.
    pub fn enlist(&mut self, id: EntityId, participant: Weak<RefCell<dyn Participant>>) {
        self.participants.insert(id, participant);
    }

    /// Who drives a machine, if somebody does.
    pub(super) fn participant(&self, id: EntityId) -> Option<Rc<RefCell<dyn Participant>>> {
        self.participants.get(&id)?.upgrade()
    }

    /// What is staged from now on stays in one stage until [`Tree::end_unit`].
    pub(super) const fn begin_unit(&mut self) {
        self.is_one_unit = true;
    }

    /// Ends what began with [`Tree::begin_unit`].
    pub(super) const fn end_unit(&mut self) {
        self.is_one_unit = false;
    }

    /// Lets the driver of a machine look, because another one has driven it.
    pub(super) fn wake(&mut self, number: MemberNumber) {
        if let Some(family) = &mut self.family {
            family.wake(number);
        }
    }

    /// Gives a machine its number.
    pub(super) const fn join(&mut self) -> MemberNumber {
        let number = MemberNumber(self.member_count);
        self.member_count += 1;
        number
    }

    /// The machine of a subscription is driven from now on, under this number.
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

    /// The machine of a subscription is driven no more, because it is being removed.
    pub fn leave_family(&mut self, id: EntityId) {
        self.participants.remove(&id);
        if let Some(family) = &mut self.family {
            family.leave(id);
        }
    }

    /// Members that have to look, though no stage of theirs becomes durable.
    pub fn take_to_wake(&mut self) -> Vec<MemberNumber> {
        self.family.as_deref_mut().map(Family::take_to_wake).unwrap_or_default()
    }

    /// Takes note of what happened to the topic; returns how many bytes are gone with it.
    pub(super) fn learn(&mut self, change: TopicChange) -> u64 {
        let Some(family) = &mut self.family else { return 0 };
        let members = &mut self.stage.members;
        family.learn(change, self.stage.number, |number| members.push(number))
    }

    /// Takes note that a machine has something in this stage, whose notice it gets.
    pub fn mark(&mut self, number: MemberNumber) {
        self.stage.members.push(number);
    }

    /// Who has something in the stages up to this one, which is durable now.
    pub fn members_of(&self, stage: StageNumber) -> SmallVec<[MemberNumber; 2]> {
        let mut members = Members::new();
        for done in self.submitted.iter().take_while(|done| done.number <= stage) {
            members.extend_from_slice(&done.members);
        }
        members.sort_unstable();
        members.dedup();
        members
    }

    /// Bytes of all messages, without what is removed and not yet durably so.
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

    /// The stage that carries the next changes.
    #[must_use]
    pub const fn stage_number(&self) -> StageNumber {
        self.stage.number
    }

    /// Bytes that count for the quota: removals count until they are durable (DESIGN D3).
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// The last durable stage. Machines are told before every list of commands, so that a command
    /// that follows an acknowledgement meets what was acknowledged, whatever the order of mail.
    #[must_use]
    pub const fn durable_stage(&self) -> StageNumber {
        self.durable
    }

    /// Whether an append failed. Nothing may be answered any more from what the machines hold.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether nothing is staged or on its way.
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

    /// Notes how durable the records added must be.
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

    /// Takes bytes off that are free already: the batch of another tree has removed them.
    pub(super) const fn free(&mut self, bytes: u64) {
        self.stored_bytes = self.stored_bytes.saturating_sub(bytes);
    }

    /// Keeps a guard with the stage; before the command is applied, so that it is on the stage that
    /// carries the changes.
    pub(super) fn keep(&mut self, guard: Guard) {
        self.stage.guards.push(guard);
    }

    /// Gives the last guard back, because the command changed nothing.
    pub(super) fn give_back_guard(&mut self) {
        self.stage.guards.pop();
    }

    /// Lets the stage carry a reservation; before the command is applied, so that it is on the stage
    /// that carries the changes.
    pub(super) const fn carry_reservation(&mut self, bytes: u64) {
        self.stage.batch.carry_reservation(bytes);
    }

    /// Takes a reservation back, because the command changed nothing.
    pub(super) fn give_back_reservation(&mut self, bytes: u64) {
        self.stage.batch.drop_reservation(bytes);
        self.writer.unreserve(bytes);
    }

    /// Holds something back until all that it may rest on is durable; gives it back if that is the
    /// case already. Changes that nobody waits for hold nothing back.
    pub(super) fn hold(&mut self, release: Release) -> Option<Release> {
        // On a lost tree everything is held, to be dropped with it.
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

    /// When changes that nobody waits for must be submitted.
    #[must_use]
    pub fn flush_deadline(&self) -> Option<Timestamp> {
        self.stage.lazy_since.map(|at| at.plus(LAZY_DELAY))
    }

    /// Whether the stage is large enough for a batch of its own, and may end here.
    pub(super) const fn is_large(&self) -> bool {
        self.stage.batch.bytes() >= STAGE_BYTES_MAX && !self.is_one_unit
    }

    /// Ends the stage.
    pub(super) fn cut(&mut self) {
        let number = StageNumber(self.stage.number.0 + 1);
        let stage = std::mem::replace(&mut self.stage, Stage { number, ..Stage::default() });
        self.cut.push_back(stage);
    }

    /// Whether [`Tree::submit`] has something to do.
    #[must_use]
    pub fn wants_submit(&self, now: Timestamp) -> bool {
        !self.cut.is_empty()
            || self.stage.batch.is_synced()
            || self.flush_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Submits what is staged, each stage as one batch. `completion` makes what is called with the
    /// outcome of each.
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
            self.submitted.push_back(Submitted { number, held, freed_bytes, members });
            let completion = completion();
            let completion = Box::new(move |result| completion(number, result));
            self.fence = Some(self.writer.submit_behind(earlier, batch, guards, completion));
        }
    }

    /// Makes even lazy changes ready for [`Tree::submit`], as a stop does.
    pub fn flush(&mut self) {
        if !self.stage.batch.is_empty() {
            self.cut();
        }
    }

    /// The last stage that holds something, of which this member gets notice.
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

    /// Takes note that a stage and all before it are durable. Returns what they held back, to be
    /// released after the machines were told.
    pub fn completed(&mut self, stage: StageNumber) -> Vec<Release> {
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

    /// Forgets what was staged and not submitted, and everybody who waits for it; they are answered
    /// that the outcome is unknown. Part of a tree's end: its machines know of what is forgotten, so
    /// that none of them may go on.
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

    /// Takes note that a submitted stage is lost. From now on nothing is submitted: it would rest on
    /// what was lost, and a writer that somebody else has taken over again would store it.
    pub fn ended(&mut self, stage: StageNumber) {
        self.lost = true;
        self.submitted.retain(|submitted| submitted.number != stage);
    }
}
