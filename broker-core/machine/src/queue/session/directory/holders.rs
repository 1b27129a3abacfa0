//! Holders of sessions: their locks, links, calls and deadlines. Receives, renewals and link ends
//! call it. A session has at most one holder.

use std::collections::BTreeSet;

use super::Sessions;
use crate::command::LinkEnd;
use crate::ids::{ReceiverId, SessionEpoch, Ticket};
use crate::queue::demand::{Calls, ReceiveCall, ReceiverLink};
use crate::queue::session::{SessionHold, SessionIndex};
use crate::time::{TimeSpan, Timestamp};

impl Sessions {
    pub(in crate::queue) fn hold_mut(&mut self, index: SessionIndex) -> Option<&mut SessionHold> {
        self.get_mut(index)?.hold.as_deref_mut()
    }

    /// Returns the session that a receiver holds.
    pub(in crate::queue) fn session_held_by(&self, receiver: ReceiverId) -> Option<SessionIndex> {
        self.by_receiver.get(&receiver).copied()
    }

    /// Returns the hold of a receiver.
    pub(in crate::queue) fn hold_of(&self, receiver: ReceiverId) -> Option<&SessionHold> {
        self.get(self.session_held_by(receiver)?)?.hold()
    }

    /// Whether the session lock with this epoch is in force.
    pub(in crate::queue) fn is_in_force(&self, epoch: SessionEpoch, now: Timestamp) -> bool {
        self.by_epoch
            .get(&epoch)
            .and_then(|index| self.get(*index)?.hold())
            .is_some_and(|hold| hold.until > now)
    }

    /// Whether a session lock with this epoch exists.
    pub(in crate::queue::session) fn has_epoch(&self, epoch: SessionEpoch) -> bool {
        self.by_epoch.contains_key(&epoch)
    }

    /// The link of a holder.
    pub(in crate::queue) fn link(&self, receiver: ReceiverId) -> Option<&ReceiverLink> {
        self.hold_of(receiver)?.link.as_ref()
    }

    pub(in crate::queue) fn link_mut(&mut self, receiver: ReceiverId) -> Option<&mut ReceiverLink> {
        self.hold_mut(self.session_held_by(receiver)?)?.link.as_mut()
    }

    /// Sets the link of a holder.
    pub(in crate::queue::session) fn open_link(&mut self, index: SessionIndex, link: ReceiverLink) {
        let Some(hold) = self.hold_mut(index) else { return };
        let is_new = hold.link.replace(link).is_none();
        self.link_count += usize::from(is_new);
    }

    /// Removes the link of a holder.
    pub(in crate::queue) fn take_link(&mut self, receiver: ReceiverId) -> Option<ReceiverLink> {
        let link = self.hold_mut(self.session_held_by(receiver)?)?.link.take()?;
        self.link_count -= 1;
        Some(link)
    }

    /// Iterates over the holders that have a link.
    pub(in crate::queue) fn links(&self) -> impl Iterator<Item = ReceiverId> {
        let linked = |receiver: &&ReceiverId| self.link(**receiver).is_some();
        self.by_receiver.keys().filter(linked).copied()
    }

    /// Iterates over the waiting calls of holders.
    pub(in crate::queue) fn calls(&self) -> impl Iterator<Item = Ticket> {
        self.by_call.keys().copied()
    }

    /// Adds a waiting call of a holder.
    pub(in crate::queue) fn add_call(
        &mut self,
        index: SessionIndex,
        ticket: Ticket,
        call: ReceiveCall,
    ) {
        self.change_calls(index, |calls| calls.insert(ticket, call));
        self.by_call.insert(ticket, index);
    }

    /// Removes a call of a holder.
    pub(in crate::queue) fn take_call(&mut self, ticket: Ticket) -> Option<ReceiveCall> {
        let index = self.by_call.remove(&ticket)?;
        self.change_calls(index, |calls| calls.remove(ticket))?
    }

    fn change_calls<T>(
        &mut self,
        index: SessionIndex,
        change: impl FnOnce(&mut Calls) -> T,
    ) -> Option<T> {
        let hold = self.hold_mut(index)?;
        let before = hold.calls.first_deadline();
        let changed = change(&mut hold.calls);
        let after = hold.calls.first_deadline();
        if before != after {
            if let Some((deadline, _)) = before {
                self.waits.remove(&(deadline, index));
            }
            if let Some((deadline, _)) = after {
                self.waits.insert((deadline, index));
            }
        }
        Some(changed)
    }

    /// Returns a call of a holder whose deadline has passed.
    pub(in crate::queue) fn first_call_over(&self, now: Timestamp) -> Option<Ticket> {
        let (_, index) = self.waits.first().filter(|(deadline, _)| *deadline <= now)?;
        self.get(*index)?.hold()?.calls.first_deadline().map(|(_, ticket)| ticket)
    }

    /// Returns a session whose lock has run out.
    pub(in crate::queue::session) fn first_ended(&self, now: Timestamp) -> Option<SessionIndex> {
        self.ends.first().filter(|(until, _)| *until <= now).map(|(_, index)| *index)
    }

    /// Locks a session for a receiver.
    pub(in crate::queue::session) fn lock(&mut self, index: SessionIndex, hold: SessionHold) {
        self.by_receiver.insert(hold.receiver, index);
        self.by_epoch.insert(hold.epoch, index);
        self.ends.insert((hold.until, index));
        self.link_count += usize::from(hold.link.is_some());
        if let Some(session) = self.get_mut(index) {
            session.hold = Some(Box::new(hold));
        }
        self.reindex(index);
    }

    /// Changes the end of a session lock for its holder.
    pub(in crate::queue::session) fn renew(&mut self, index: SessionIndex, until: Timestamp) {
        self.set_end(index, until);
        if let Some(hold) = self.hold_mut(index) {
            hold.renewals = hold.renewals.saturating_add(1);
        }
    }

    /// Lets all session locks in force, and the locks under them, end later by the same time.
    pub(in crate::queue) fn prolong(&mut self, span: TimeSpan) {
        let held: Vec<SessionIndex> = self.by_receiver.values().copied().collect();
        for index in held {
            let Some(hold) = self.hold_mut(index).filter(|hold| hold.ended.is_none()) else {
                continue;
            };
            hold.locks.prolong(span);
            let until = hold.until.plus(span);
            self.set_end(index, until);
        }
    }

    fn set_end(&mut self, index: SessionIndex, until: Timestamp) {
        let Some(hold) = self.hold_mut(index) else { return };
        let before = std::mem::replace(&mut hold.until, until);
        self.ends.remove(&(before, index));
        self.ends.insert((until, index));
    }

    /// Ends the hold of a session: it is no longer in force, and stays until all locks under it
    /// have ended. Returns whether the hold ended just now.
    pub(in crate::queue::session) fn begin_end(
        &mut self,
        index: SessionIndex,
        end: LinkEnd,
    ) -> bool {
        let Some(hold) = self.hold_mut(index) else { return false };
        if hold.ended.is_some() {
            return false;
        }
        hold.ended = Some(end);
        self.set_end(index, Timestamp::NONE);
        self.ending.insert(index);
        true
    }

    /// Whether a hold that has ended still has locks.
    pub(in crate::queue) fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Removes the hold of a session.
    pub(in crate::queue::session) fn unlock(&mut self, index: SessionIndex) {
        let Some(hold) = self.get_mut(index).and_then(|session| session.hold.take()) else {
            return;
        };
        self.by_receiver.remove(&hold.receiver);
        self.by_epoch.remove(&hold.epoch);
        self.ends.remove(&(hold.until, index));
        self.ending.remove(&index);
        self.link_count -= usize::from(hold.link.is_some());
        for (ticket, call) in hold.calls.iter() {
            self.by_call.remove(&ticket);
            self.waits.remove(&(call.deadline, index));
        }
        self.busy.remove(&index);
        self.reindex(index);
    }

    /// Takes the sessions that may have both demand and messages.
    pub(in crate::queue) fn take_busy(&mut self) -> BTreeSet<SessionIndex> {
        std::mem::take(&mut self.busy)
    }

    /// Records that a session may have both demand and messages.
    pub(in crate::queue) fn note_busy(&mut self, index: SessionIndex) {
        self.busy.insert(index);
    }
}
