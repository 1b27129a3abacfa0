//! What queues and topics do alike when messages come in: status, quota, duplicates. (SND-19.)

use std::collections::BTreeSet;

use super::duplicate_history::DuplicateHistory;
use super::peers::{PeerSource, Peers};
use super::{Ctx, Step};
use crate::change::{Change, Durability};
use crate::command::InboundMessage;
use crate::description::EntityStatus;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::time::{TimeSpan, Timestamp};

/// The bytes that an entity may hold, and what it is for people: a subscription counts for its topic.
pub(crate) struct Quota<'a> {
    pub(crate) kind: &'static str,
    pub(crate) path: &'a str,
    pub(crate) bytes_max: u64,
}

/// A machine that messages are sent to.
pub(crate) trait Intake {
    fn quota(&self) -> Quota<'_>;

    fn status(&self) -> EntityStatus;

    /// The path, for people.
    fn name(&self) -> &str;

    /// The ids that were accepted of late, where duplicates are detected.
    fn history(&self) -> Option<&DuplicateHistory>;

    /// The same, to give memory back.
    fn history_mut(&mut self) -> Option<&mut DuplicateHistory>;

    /// DuplicateDetectionHistoryTimeWindow.
    fn window(&self) -> TimeSpan;

    /// Whether a message waits for its instant.
    fn is_scheduled(&self, sequence: SequenceNumber) -> bool;

    /// Whether a message that waits for its instant is known to do so: it can be cancelled.
    fn is_cancellable(&self, sequence: SequenceNumber) -> bool;

    /// What other brokers have forwarded here of late.
    fn peers(&self) -> &Peers;

    /// Carries a change out and puts it into the step.
    fn note(&mut self, change: Change, durability: Durability, ctx: &Ctx<'_>, step: &mut Step);

    /// Refuses to take messages while the status says so (ENT-24).
    fn refuse_status(&self) -> Result<(), Rejection> {
        if !self.status().allows_send() {
            return Err(Rejection::entity_disabled(self.name(), self.status()));
        }
        Ok(())
    }

    /// Refuses more bytes than may be held (SND-24, TOP-10).
    fn refuse_over_quota(&self, bytes: u64, ctx: &Ctx<'_>) -> Result<(), Rejection> {
        let Quota { kind, path, bytes_max } = self.quota();
        if ctx.stored_bytes.saturating_add(bytes) > bytes_max {
            return Err(Rejection::entity_full(kind, path, ctx.stored_bytes, bytes_max));
        }
        Ok(())
    }

    /// Refuses messages with an id when the history can take no more of them (DUP-01).
    fn refuse_full_history(
        &self,
        messages: &[InboundMessage],
        ctx: &Ctx<'_>,
    ) -> Result<(), Rejection> {
        match self.history() {
            Some(history) => history.refuse_if_full(messages, self.name(), self.window(), ctx),
            None => Ok(()),
        }
    }

    /// Looks an id up. A hit gives the number to answer with: that of the kept message if it is
    /// still scheduled, else 0 (DUP-12).
    fn find_duplicate(&self, id_hash: Option<u128>, now: Timestamp) -> Option<SequenceNumber> {
        let found = self.history()?.find(id_hash?, now, self.window())?;
        Some(if self.is_scheduled(found) { found } else { SequenceNumber(0) })
    }

    /// Remembers the id of a message that was just accepted, if duplicates are detected; with its number if it
    /// is scheduled (DUP-01).
    fn remember_id(
        &mut self,
        id_hash: Option<u128>,
        scheduled: Option<SequenceNumber>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) {
        let (Some(history), Some(id_hash)) = (self.history(), id_hash) else { return };
        let change = history.remember(id_hash, scheduled, ctx.now, self.window());
        self.note(change, Durability::Sync, ctx, step);
    }

    /// Refuses to cancel what is not scheduled, or is named twice (SCH-05).
    fn check_cancelled(&self, sequences: &[SequenceNumber]) -> Result<(), Rejection> {
        let mut seen = BTreeSet::new();
        let wrong = |sequence: &&SequenceNumber| {
            !seen.insert(**sequence) || !self.is_cancellable(**sequence)
        };
        match sequences.iter().find(wrong) {
            Some(sequence) => Err(Rejection::message_not_found(*sequence)),
            None => Ok(()),
        }
    }

    /// Refuses an update that changes what was fixed when the entity was created; each of these, and whether it
    /// is the same (ENT-16).
    fn refuse_fixed(&self, fixed: &[(&str, bool)]) -> Result<(), Rejection> {
        match fixed.iter().find(|(_, same)| !same) {
            Some((property, _)) => Err(Rejection::argument(format!(
                "{property} of `{}` was fixed when it was created",
                self.name()
            ))),
            None => Ok(()),
        }
    }

    /// Records that a message of another broker was taken, so that it is not taken again (FWD-09, FWD-13). Of the
    /// sources that are known the most silent one makes room for a new one.
    fn record_peer(
        &mut self,
        source: PeerSource,
        sequence: SequenceNumber,
        enqueued_at: Timestamp,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) {
        if let Some(surplus) = self.peers().surplus(&source) {
            self.note(Change::PeerForgotten { source: surplus }, Durability::Lazy, ctx, step);
        }
        let taking = self.peers().taking(&source, sequence, enqueued_at, ctx.now);
        self.note(Change::PeerTaken { source, taking }, Durability::Sync, ctx, step);
    }

    /// Drops the buckets of ids that every window has left.
    fn forget_ids(&mut self, ctx: &Ctx<'_>, step: &mut Step) {
        let window = self.window();
        while let Some(change) =
            self.history().and_then(|history| history.forget_oldest(ctx.now, window))
        {
            self.note(change, Durability::Lazy, ctx, step);
        }
        if let Some(history) = self.history_mut() {
            history.shed();
        }
    }
}
