//! Access to sessions without their lock: lists, peek and deletion (SES-29, PEK-07, DEL-07).
//! `queue/mod.rs` calls it. Long lists are prepared in slices ahead of the command.

use std::ops::Bound;
use std::sync::Arc;

use super::{Session, SessionIndex, Sessions};
use crate::change::Removal;
use crate::command::{Outcome, SessionFilter};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::{SequenceNumber, Ticket};
use crate::path::SubQueue;
use crate::queue::{COMMAND_MOVES_MAX, Queue};
use crate::sequence_set::SequenceSet;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput};

/// Number of sessions examined in a slice, which takes about a millisecond.
const SLICE_SESSIONS: usize = 10_000;

/// A requested list of sessions (SES-29).
#[derive(Clone, Copy)]
pub(in crate::queue) struct ListRequest<'a> {
    pub(in crate::queue) which: SessionFilter,
    /// Lists only sessions after this id.
    pub(in crate::queue) after: Option<&'a str>,
    /// Number of matching sessions to skip at the start.
    pub(in crate::queue) skip: u64,
    /// Maximum number of sessions, capped by the limit for lists.
    pub(in crate::queue) top: u32,
}

/// A list of sessions that is being built. Its position is an id, so that sessions may be created
/// and removed in between.
#[derive(Debug)]
pub(super) struct SessionListing {
    ticket: Ticket,
    which: SessionFilter,
    /// The last session examined, or the id after which the list begins.
    after: Option<Arc<str>>,
    /// Number of matching sessions that are still to be skipped, and to be listed.
    skip: u64,
    top: usize,
    names: Vec<Arc<str>>,
}

impl Session {
    /// Whether a filter selects the session.
    pub(in crate::queue) fn is_selected(&self, filter: SessionFilter) -> bool {
        match filter {
            SessionFilter::All => true,
            SessionFilter::WithActiveMessages => self.active > 0,
            SessionFilter::StateSetAfter(Timestamp::NEVER) => {
                self.active > 0 || self.state().is_some()
            }
            SessionFilter::StateSetAfter(at) => self.state().is_some_and(|state| state.set_at > at),
        }
    }
}

impl SessionListing {
    fn new(ticket: Ticket, request: ListRequest<'_>, count_max: usize) -> Box<Self> {
        let ListRequest { which, after, skip, top } = request;
        let (after, top) = (after.map(Arc::from), (top as usize).min(count_max));
        Box::new(Self { ticket, which, after, skip, top, names: Vec::new() })
    }

    /// Examines at most `count_max` further sessions; returns whether the list is complete.
    fn go_on(&mut self, sessions: &Sessions, count_max: usize) -> bool {
        let after = self.after.take();
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = sessions.iter_from(from);
        for _ in 0..count_max {
            if self.names.len() >= self.top {
                return true;
            }
            let Some(session) = rest.next() else { return true };
            if session.is_selected(self.which) {
                match self.skip {
                    0 => self.names.push(Arc::clone(session.name())),
                    skip => self.skip = skip - 1,
                }
            }
            self.after = Some(Arc::clone(session.name()));
        }
        self.names.len() >= self.top
    }
}

impl Sessions {
    /// Whether a list of all sessions may exceed a slice.
    pub(in crate::queue) fn is_long_to_list(&self) -> bool {
        self.counts().existing > SLICE_SESSIONS as u64
    }
}

impl Queue {
    /// Examines a slice of the sessions; returns whether the list is complete.
    pub(in crate::queue) fn list_ahead(
        &mut self,
        ticket: Ticket,
        request: ListRequest<'_>,
        ctx: &Ctx<'_>,
    ) -> bool {
        let Some(sessions) = &mut self.sessions else { return true };
        let mut listing = match sessions.listing.take() {
            Some(listing) if listing.ticket == ticket => listing,
            Some(_) | None => SessionListing::new(ticket, request, ctx.limits.list_count_max),
        };
        let is_over = listing.go_on(sessions, SLICE_SESSIONS);
        sessions.listing = Some(listing);
        is_over
    }

    /// Returns session ids in ascending order, from the list that was built ahead, if there is one.
    pub(in crate::queue) fn list_sessions(
        &mut self,
        ticket: Ticket,
        sub_queue: SubQueue,
        request: ListRequest<'_>,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let Some(sessions) = &mut self.sessions else { return Ok(Answer::Later) };
        let listing = match sessions.listing.take() {
            Some(listing) if listing.ticket == ticket => listing,
            Some(_) | None => {
                let mut listing = SessionListing::new(ticket, request, ctx.limits.list_count_max);
                listing.go_on(sessions, usize::MAX);
                listing
            }
        };
        Ok(Answer::after_commit(Outcome::Sessions(listing.names)))
    }

    /// Returns messages of a session, locked or not, without changing them (PEK-07).
    pub(in crate::queue) fn peek_session(
        &mut self,
        sub_queue: SubQueue,
        session: &str,
        from: SequenceNumber,
        count_max: u32,
        ctx: &Ctx<'_>,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        let members = self
            .sessions
            .as_ref()
            .and_then(|sessions| Some(sessions.get(sessions.named(session)?)?.members()));
        let messages = match members {
            Some(members) => self.peek_messages(members.iter_from(from), count_max, ctx)?,
            None => self.peek_messages(std::iter::empty(), count_max, ctx)?,
        };
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Peeked(messages)))
    }

    /// Removes available and Delayed messages of a session for its holder (DEL-07, RTY-13).
    pub(super) fn delete_batch_of(
        &mut self,
        index: SessionIndex,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_receive()?;
        Self::refuse_delete_count(count_max, ctx)?;
        let before = enqueued_before.unwrap_or(ctx.now);
        let first_of = |all: &SequenceSet| -> Vec<SequenceNumber> {
            all.iter_from(SequenceNumber(0))
                .take_while(|sequence| self.is_enqueued_before(*sequence, before))
                .take(count_max as usize)
                .collect()
        };
        let mut to_delete = Vec::new();
        if let Some(sessions) = &self.sessions {
            to_delete.extend(
                sessions.get(index).map(Session::available).map(first_of).unwrap_or_default(),
            );
            to_delete.extend(sessions.delayed_in(index).map(first_of).unwrap_or_default());
        }
        to_delete.sort_unstable();
        to_delete.truncate(count_max as usize);
        Ok(self.delete_all(&to_delete, ctx, step))
    }

    /// Removes available and Delayed messages of all unlocked sessions, lowest numbers first
    /// (DEL-07, RTY-13).
    pub(in crate::queue) fn delete_batch_unlocked(
        &mut self,
        sub_queue: SubQueue,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        self.refuse_without_sessions(sub_queue)?;
        self.refuse_receive()?;
        Self::refuse_delete_count(count_max, ctx)?;
        let before = enqueued_before.unwrap_or(ctx.now);
        let (mut count, mut overlays_left) = (0, COMMAND_MOVES_MAX);
        while count < u64::from(count_max) && overlays_left > 0 {
            let Some(sessions) = &self.sessions else { break };
            let available = sessions.first_open().map(|(sequence, _)| sequence);
            let delayed = sessions.first_open_delayed();
            let Some(sequence) = available.into_iter().chain(delayed).min() else { break };
            if !self.is_enqueued_before(sequence, before) {
                break;
            }
            overlays_left = overlays_left.saturating_sub(self.overlay_count(sequence));
            self.remove_message(sequence, Removal::Deleted, ctx, step);
            count += 1;
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Deleted(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StageNumber;
    use crate::slot::SlotState;

    fn listing(request: ListRequest<'_>) -> Box<SessionListing> {
        SessionListing::new(Ticket(1), request, usize::MAX)
    }

    fn names(sessions: &Sessions, request: ListRequest<'_>) -> Vec<Arc<str>> {
        let is_behind = |one: &&Session| request.after.is_none_or(|name| **one.name() > *name);
        let all = sessions.iter_from(Bound::Unbounded).filter(is_behind);
        let matching = all.filter(|one| one.is_selected(request.which));
        let (skip, top) = (usize::try_from(request.skip).unwrap(), request.top as usize);
        matching.skip(skip).take(top).map(|one| Arc::clone(one.name())).collect()
    }

    /// SES-29: a list built in slices of any size equals a list built at once, and no slice
    /// examines more sessions than its limit.
    #[test]
    fn session_list_in_slices_equals_list_at_once() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..400 {
            let mut sessions = Sessions::default();
            let count = random(60);
            for number in 0..count {
                let name = format!("s{}", random(1_000));
                let at = Timestamp::from_ticks(i64::try_from(random(10)).unwrap());
                if random(2) == 0 {
                    sessions.set_state(&name, Some(bytes::Bytes::new()), at, StageNumber(1));
                } else {
                    let state =
                        if random(2) == 0 { SlotState::Active } else { SlotState::Deferred };
                    sessions.insert(SequenceNumber(number + 1), state, &name);
                }
            }
            let which = match random(3) {
                0 => SessionFilter::All,
                1 => SessionFilter::WithActiveMessages,
                _ => SessionFilter::StateSetAfter(Timestamp::from_ticks(4)),
            };
            let (skip, top) = (random(30), u32::try_from(random(30)).unwrap());
            let name = format!("s{}", random(1_000));
            let after = (random(2) == 0).then_some(&*name);
            let request = ListRequest { which, after, skip, top };
            let slice = 1 + usize::try_from(random(12)).unwrap();
            let mut listing = listing(request);
            let mut slices = 0;
            while !listing.go_on(&sessions, slice) {
                slices += 1;
                assert!(slices <= 60 / slice + 1, "a slice looks at all it may");
            }
            let expected = names(&sessions, request);
            assert_eq!(listing.names, expected, "{which:?} {after:?} {skip} {top}");
        }
    }

    /// SES-29, AMQP-85: the maximal instant lists sessions with active messages and sessions that
    /// only have a state.
    #[test]
    fn session_list_includes_sessions_with_only_a_state() {
        let mut sessions = Sessions::default();
        sessions.insert(SequenceNumber(1), SlotState::Active, "active");
        sessions.insert(SequenceNumber(2), SlotState::Deferred, "deferred");
        let at = Timestamp::from_ticks(1);
        sessions.set_state("state", Some(bytes::Bytes::new()), at, StageNumber(1));
        for (which, expected) in [
            (SessionFilter::WithActiveMessages, &["active"][..]),
            (SessionFilter::StateSetAfter(Timestamp::NEVER), &["active", "state"]),
        ] {
            let request = ListRequest { which, after: None, skip: 0, top: 9 };
            let mut listing = listing(request);
            assert!(listing.go_on(&sessions, SLICE_SESSIONS));
            assert!(listing.names.iter().map(|name| &**name).eq(expected.iter().copied()));
        }
    }

    /// SES-29: a slice examines a limited number of sessions, while other sessions are created and
    /// removed.
    #[test]
    fn session_list_of_many_sessions_takes_several_turns() {
        let mut sessions = Sessions::default();
        for number in 0..25_000 {
            sessions.insert(SequenceNumber(number + 1), SlotState::Active, &format!("{number:06}"));
        }
        let request = ListRequest { which: SessionFilter::All, after: None, skip: 20_000, top: 2 };
        let mut listing = listing(request);
        assert!(!listing.go_on(&sessions, SLICE_SESSIONS));
        // The last examined session is removed, and a session before it is created.
        sessions.remove(SequenceNumber(10_000), SlotState::Active);
        sessions.insert(SequenceNumber(30_000), SlotState::Active, "000000 a");
        assert!(!listing.go_on(&sessions, SLICE_SESSIONS));
        assert!(listing.go_on(&sessions, SLICE_SESSIONS));
        assert_eq!(listing.names, [Arc::from("020000"), Arc::from("020001")]);
        // Sessions up to the id after which the list begins are not examined.
        let request = ListRequest { after: Some("024000"), skip: 0, ..request };
        let mut listing = SessionListing::new(Ticket(1), request, usize::MAX);
        assert!(listing.go_on(&sessions, 2));
        assert_eq!(listing.names, [Arc::from("024001"), Arc::from("024002")]);
    }
}
