//! Selects the messages of a job. Nothing changes: listed numbers are looked up, conditions are
//! searched for.

use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::command::{Command, Deed, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    Found, Head, HeadPage, HeadQuery, HeadStart, HeadStates, Question, SearchOutput, SearchQuery,
    Where,
};
use peeklock_core::inspect::{JOB_MESSAGE_COUNT_MAX, JobDraft, JobFacts, JobSelection, JobState};
use peeklock_core::management::{Managed, Management};
use peeklock_core::path::SubQueue;
use peeklock_core::{Access, Broker, Entity};

use crate::engine::Engine;
use crate::preview::Selected;

/// Maximum number of listed messages that are looked up at once.
const HEADS_AT_ONCE: u32 = 100;

/// A selection in progress.
pub(crate) struct Selector<'a> {
    pub(crate) broker: &'a Broker,
    pub(crate) access: Access,
    pub(crate) job: &'a JobFacts,
    pub(crate) selected: Selected,
    /// Gets the number of selected messages, and reports whether to go on.
    pub(crate) progress: &'a dyn Fn(usize) -> bool,
}

/// Error of a selection.
pub(crate) enum SelectionError {
    /// The job was cancelled.
    Cancelled,
    Broker(BrokerError),
}

impl From<BrokerError> for SelectionError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl Selector<'_> {
    /// Selects the messages.
    pub(crate) async fn select(&mut self, selection: JobSelection) -> Result<(), SelectionError> {
        match selection {
            JobSelection::Numbers(mut numbers) => {
                numbers.sort_unstable();
                numbers.dedup();
                self.look_up(&numbers).await
            }
            JobSelection::Matching { states, conditions, count_max } => {
                let count_max = count_max.map_or(JOB_MESSAGE_COUNT_MAX, |count| count as usize);
                self.search(states, conditions, count_max).await
            }
        }
    }

    async fn look_up(&mut self, mut numbers: &[SequenceNumber]) -> Result<(), SelectionError> {
        while let Some(first) = numbers.first() {
            self.report()?;
            // A run of numbers without a gap is in one page.
            let follows = |[one, next]: &[SequenceNumber; 2]| one.next() == *next;
            let run = 1 + numbers.array_windows().take_while(|pair| follows(pair)).count();
            let count_max = u32::try_from(run).unwrap_or(u32::MAX).min(HEADS_AT_ONCE);
            let start = HeadStart::Number(*first);
            let query = HeadQuery { start, count_max, ..HeadQuery::default() };
            let page = self.heads(query).await?;
            let end = first.0.saturating_add(u64::from(count_max));
            let looked_up = numbers.iter().take_while(|number| number.0 < end);
            let mut heads = page.heads.iter().peekable();
            // A page of long heads is short; it names the position of the next one.
            let reached = page.next.map_or(u64::MAX, |next| next.sequence.0.max(first.0));
            let mut taken = 0;
            for number in looked_up.take_while(|number| number.0 <= reached) {
                let same = |head: &&_| head_sequence(head) == *number;
                match heads.next_if(same) {
                    Some(head) => self.add(head),
                    None => self.selected.add_missing(*number),
                }
                taken += 1;
            }
            numbers = numbers.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    async fn heads(&self, query: HeadQuery) -> Result<HeadPage, SelectionError> {
        let question = Management::Inspect(Box::new(Question::Heads(query)));
        if let Managed::Findings(findings) = self.access.manage(&self.job.path, question).await?
            && let Found::Heads(page) = findings.found
        {
            return Ok(page);
        }
        let rejection = Rejection::internal("the heads have another answer");
        Err(self.broker.refuse(rejection, &self.job.path).into())
    }

    async fn search(
        &mut self,
        states: HeadStates,
        conditions: Where,
        count_max: usize,
    ) -> Result<(), SelectionError> {
        let mut query = SearchQuery {
            paths: vec![(*self.job.path).into()],
            sub_queues: Vec::new(),
            states,
            is_descending: false,
            conditions,
            output: SearchOutput::Hits(None),
            after: None,
        };
        loop {
            self.report()?;
            let mut search = match self.access.search(query.clone()).await {
                Ok(search) => search,
                Err(error) if error.condition() == Condition::ServerBusy => {
                    // Other searches have all places.
                    crate::engine::wait(self.broker, crate::engine::RETRY_TIME).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let end = loop {
                let page = search.next().await?;
                for hit in &page.hits {
                    if self.selected.sequences.len() == count_max {
                        self.selected.is_cut = true;
                        return Ok(());
                    }
                    self.add(&hit.head);
                }
                self.report()?;
                if let Some(end) = page.end {
                    query.after = page.progress.position;
                    break end;
                }
            };
            // A search has bounds of its own; the next one goes on from there.
            if end.bound.is_none() {
                return Ok(());
            }
        }
    }

    fn add(&mut self, head: &Head) {
        self.selected.add(head, &self.job.deed, self.job.breaks_locks);
    }

    fn report(&self) -> Result<(), SelectionError> {
        match (self.progress)(self.selected.sequences.len()) {
            true => Ok(()),
            false => Err(SelectionError::Cancelled),
        }
    }
}

fn head_sequence(head: &Head) -> SequenceNumber {
    head.facts.message.sequence
}

impl Engine {
    /// Selects the messages of the jobs in turn.
    pub(crate) async fn select_all(self: Rc<Self>) {
        loop {
            let next = self.drafts.borrow_mut().pop_front();
            let Some((id, draft)) = next else {
                self.has_drafts.notified().await;
                continue;
            };
            if self.table.state(id) != Some(JobState::Selecting) {
                continue;
            }
            self.table.with(id, |entry| entry.is_busy = true);
            if let Err(SelectionError::Broker(error)) = self.select(id, draft).await {
                self.table.fail_selection(id, error.detail(), self.broker.now());
            }
            self.release(id);
        }
    }

    async fn select(&self, id: JobId, draft: JobDraft) -> Result<(), SelectionError> {
        let Some(mut job) = self.table.get(id) else { return Err(SelectionError::Cancelled) };
        let path = Arc::clone(&job.facts.path);
        let at_path = self.broker.entity(&path)?;
        let entity = at_path.id();
        let progress = |count: usize| {
            self.table.with(id, |entry| entry.job.facts.progress.tried = count as u64);
            self.take_requests(id);
            self.table.state(id) == Some(JobState::Selecting)
        };
        let mut selector = Selector {
            broker: &self.broker,
            access: self.broker.full_access(),
            job: &job.facts,
            selected: Selected::default(),
            progress: &progress,
        };
        selector.select(draft.selection).await?;
        let selected = selector.selected;
        if !progress(selected.sequences.len()) {
            return Err(SelectionError::Cancelled);
        }
        let now = self.broker.now();
        let stays = stays_undoable(&at_path, &job.facts.deed).await?;
        let room = selected.undo_room(&job.facts.deed).filter(|_| stays);
        let room = room.filter(|room| self.table.reserve_export(id, *room));
        job.undo_room = room.unwrap_or(0);
        let (sequences, preview) = selected.into_preview(&job.facts, entity, now, room.is_some());
        let line = job.select(entity, sequences.into(), preview);
        if let Err(error) = self.table.make(job, &line) {
            self.table.remove_export(id).ok();
            return Err(self.broker.refuse(error, &path).into());
        }
        Ok(())
    }
}

/// Whether the entity is not a topic, and does not forward the messages that the deed has changed.
async fn stays_undoable(entity: &Entity, deed: &Deed) -> Result<bool, BrokerError> {
    let is_topic = entity.kind() == EntityKind::Topic;
    if is_topic || entity.sub_queue() != SubQueue::Main {
        return Ok(!is_topic);
    }
    let (of_main, of_dead_letters) = match entity.call(Command::Describe).await? {
        Outcome::Described(queue) => {
            let it = queue.description;
            (it.forward_to, it.forward_dead_lettered_messages_to)
        }
        Outcome::SubscriptionDescribed(subscription) => {
            let it = subscription.description;
            (it.forward_to, it.forward_dead_lettered_messages_to)
        }
        _ => return Ok(false),
    };
    Ok(match deed {
        Deed::DeadLetter { .. } => of_dead_letters.is_none(),
        Deed::Undefer => of_main.is_none(),
        _ => true,
    })
}
