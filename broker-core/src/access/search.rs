//! Searches through the messages of entities, page by page (CON-05 to CON-11, CON-73).
//!
//! Heads come from the entities in pages, contents from the store, and both are tested on the thread
//! of the reader. Between two tests the search yields, so that its thread has time for others.

use std::sync::Arc;

use peeklock_model::inspect::{
    Cursor, Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, HeadState, Inquiry,
};
use peeklock_words::search::{
    Candidate, CandidateHead, Decision, Evaluation, GroupBy, Groups, MatchPlace, Matcher, Sample,
};

use super::Access;
use super::inspect::Holders;
use crate::audited::end_of;
use crate::broker::{Broker, Entity};
use crate::command::{Command, MessageReadError, Outcome, ReceivedMessage};
use crate::condition::Condition;
use crate::contract::action::Action;
use crate::contract::auditor::AuditResult;
use crate::description::EntityKind;
use crate::error::{BrokerError, Rejection};
use crate::findings::{BODY_START_BYTES, Head, HeadContent, Holder, Question};
use crate::ids::SequenceNumber;
use crate::limits::Limits;
use crate::path::{EntityAddress, PathKey, SubQueue};
use crate::search::{
    Hit, HitPlace, PAGE_HIT_BYTES_MAX, PAGE_HIT_COUNT_MAX, PAGE_TIME, SEARCH_PATH_COUNT_MAX, Scan,
    SearchBound, SearchEnd, SearchId, SearchOutput, SearchPage, SearchPosition, SearchProgress,
    SearchQuery, SearchStep, Target,
};
use crate::survey::ReadableKeys;
use crate::time::{TimeSpan, Timestamp};

/// Number of heads that an entity lists at once.
const HEADS_AT_ONCE: u32 = 100;
/// Number of messages that are looked at between two yields.
const MESSAGES_AT_ONCE: u64 = 32;
/// Steps of a test between two yields; about a millisecond.
const STEPS_AT_ONCE: u64 = 1 << 19;
/// Bytes of a body between two looks at the steps.
const BYTES_AT_ONCE: usize = 4 << 10;
/// Number of entities that are listed between two yields.
const ENTITIES_AT_ONCE: usize = 1_024;

/// Open search. It changes nothing, and works only while its reader waits for a page. Dropping it
/// ends it.
pub struct Search {
    access: Access,
    id: SearchId,
    scan: Option<Box<Scan>>,
}

impl Access {
    /// Opens a search. At most `limits.search_count_max` are open at a time.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` for a named entity; `ArgumentOutOfRange`; `ServerBusy` if
    /// too many searches are open.
    pub async fn search(&self, query: SearchQuery) -> Result<Search, BrokerError> {
        let readable = self.judge_search(&query).await?;
        self.open_search(query, &readable).await
    }

    /// Refuses a search of an entity that its principal may not read. Returns the entities of a
    /// search that names none.
    pub(super) async fn judge_search(
        &self,
        query: &SearchQuery,
    ) -> Result<ReadableKeys, BrokerError> {
        if query.paths.is_empty() {
            return self.readable(Action::Inspect).await;
        }
        self.check_path_count(query)?;
        for path in &query.paths {
            self.allow(Action::Inspect, path).await?;
        }
        Ok(ReadableKeys::none())
    }

    fn check_path_count(&self, query: &SearchQuery) -> Result<(), BrokerError> {
        match query.paths.len() {
            0..=SEARCH_PATH_COUNT_MAX => Ok(()),
            count => {
                let detail =
                    format!("a search names {count} entities; at most {SEARCH_PATH_COUNT_MAX}");
                Err(self.broker.refuse(Rejection::out_of_range(detail), ""))
            }
        }
    }

    /// Returns the next page of a search whose reader polls. A search of the entity of a path names
    /// no others.
    pub(super) async fn search_page(
        &self,
        path: &str,
        step: SearchStep,
        readable: &ReadableKeys,
    ) -> Result<SearchPage, BrokerError> {
        let searches = &self.broker.shared.searches;
        let mut search = match step {
            SearchStep::Begin(mut query) => {
                if !path.is_empty() {
                    if !query.paths.is_empty() {
                        let detail = "give a path, or the entities of the search, not both";
                        return Err(self.broker.refuse(Rejection::argument(detail), path));
                    }
                    query.paths.push(path.into());
                }
                self.open_search(*query, readable).await?
            }
            SearchStep::Continue(id) => {
                let scan = searches.take(id).ok_or_else(|| {
                    let detail = "the search has ended, or another request makes its page";
                    self.broker.refuse(Rejection::invalid_operation(detail), "")
                })?;
                Search { access: self.clone(), id, scan: Some(scan) }
            }
        };
        let page = search.next().await?;
        if let Some(scan) = search.scan.take_if(|_| page.end.is_none()) {
            searches.keep(search.id, scan, self.broker.now());
        }
        Ok(page)
    }

    async fn open_search(
        &self,
        query: SearchQuery,
        readable: &ReadableKeys,
    ) -> Result<Search, BrokerError> {
        self.check_path_count(&query)?;
        let refuse = |rejection| self.broker.refuse(rejection, "");
        let shared = &self.broker.shared;
        let hit_count_max = shared.settings.limits.search_hit_count_max;
        let group_by = match &query.output {
            SearchOutput::Groups(by) => Some(by),
            SearchOutput::Hits(Some(count)) if !(1..=hit_count_max).contains(count) => {
                let detail = format!("hits is {count}; it must be 1 to {hit_count_max}");
                return Err(refuse(Rejection::out_of_range(detail)));
            }
            SearchOutput::Hits(_) => None,
        };
        let matcher = Matcher::new(&query.conditions, group_by).map_err(refuse)?;
        // 53 bits, so that the number is exact in JSON. It cannot be guessed.
        let id = SearchId(shared.edge.entropy().next_u64() >> 11);
        let count_max = shared.settings.limits.search_count_max;
        if !shared.searches.open(id, count_max, self.broker.now()) {
            return Err(refuse(Rejection::server_busy(format!(
                "all {count_max} searches that `limits.search_count_max` allows are open; try \
                 again later"
            ))));
        }
        // From here on, dropping the search frees its place.
        let mut search = Search { access: self.clone(), id, scan: None };
        let question = Question::Search(SearchStep::Begin(Box::new(query.clone())));
        let resource = match &*query.paths {
            [path] => path,
            _ => "",
        };
        let mut audited = self.audit_question(resource, &question).await?;
        let targets = self.targets(&query, readable).await;
        if targets.is_err() {
            std::mem::take(&mut audited).end_with(end_of(&targets)).await;
        }
        let targets = targets?;
        let rest: u64 = targets.iter().map(|target| target.count).sum();
        let later = rest - targets.first().map_or(0, |target| target.count);
        let position = query.after.clone();
        let progress = SearchProgress { rest, position, ..SearchProgress::default() };
        let (targets, time, groups) = (targets.into(), TimeSpan::ZERO, Groups::default());
        let scan = Scan { query, matcher, targets, later, progress, time, groups, audited };
        search.scan = Some(Box::new(scan));
        Ok(search)
    }

    /// Returns the queues that a search looks at.
    async fn targets(
        &self,
        query: &SearchQuery,
        readable: &ReadableKeys,
    ) -> Result<Vec<Target>, BrokerError> {
        let mut targets = match query.paths.is_empty() {
            true => self.readable_targets(query, readable).await,
            false => self.named_targets(query).await?,
        };
        if let Some(after) = &query.after {
            let last = place_of(&after.path);
            let last = last.map_err(|rejection| self.broker.refuse(rejection, ""))?;
            targets
                .retain(|target| (&target.key, target.sub_queue as u8) >= (&last.0, last.1 as u8));
        }
        Ok(targets)
    }

    /// Returns the queues with messages that the reader may read.
    async fn readable_targets(&self, query: &SearchQuery, readable: &ReadableKeys) -> Vec<Target> {
        let mut targets = Vec::new();
        for kind in [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription] {
            let paths = self.broker.paths_of(kind, "", 0, usize::MAX);
            for some in paths.chunks(ENTITIES_AT_ONCE) {
                for path in some {
                    let key = PathKey::fold(path);
                    if readable.contains(&key) {
                        let queues = sub_queues(query);
                        let made = queues.filter_map(|queue| self.target(&key, queue));
                        targets.extend(made.filter(|target| target.count > 0));
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        sort(&mut targets);
        targets
    }

    async fn named_targets(&self, query: &SearchQuery) -> Result<Vec<Target>, BrokerError> {
        let mut targets = Vec::new();
        for path in &query.paths {
            let entity = self.entity(path, Action::Inspect).await?;
            let refuse = |rejection| self.broker.refuse(rejection, path);
            let key = EntityAddress::parse(path).map_err(refuse)?.key();
            match entity.sub_queue() {
                SubQueue::Main => {
                    let queues = sub_queues(query);
                    targets.extend(queues.filter_map(|queue| self.target(&key, queue)));
                }
                sub_queue => targets.extend(self.target(&key, sub_queue)),
            }
        }
        sort(&mut targets);
        Ok(targets)
    }

    /// Returns a queue of an entity; `None` if the entity was deleted meanwhile.
    fn target(&self, key: &PathKey, sub_queue: SubQueue) -> Option<Target> {
        let entry = self.broker.shared.directory.get(key)?;
        let counts = entry.observed.readings().counts;
        let count = match sub_queue {
            SubQueue::Main => counts.active + counts.deferred + counts.scheduled + counts.transfer,
            SubQueue::DeadLetter => counts.dead_letter,
            SubQueue::TransferDeadLetter => counts.transfer_dead_letter,
        };
        let path = format!("{}{}", entry.path, sub_queue.suffix()).into();
        Some(Target { key: key.clone(), sub_queue, path, count })
    }
}

/// Queues of each entity that a query looks at, each once.
fn sub_queues(query: &SearchQuery) -> impl Iterator<Item = SubQueue> {
    let is_chosen = |queue: &SubQueue| match query.sub_queues.is_empty() {
        true => *queue == SubQueue::Main,
        false => query.sub_queues.contains(queue),
    };
    SubQueue::ALL.into_iter().filter(is_chosen)
}

/// Sorts targets in the order in which they are looked at, each once.
fn sort(targets: &mut Vec<Target>) {
    targets.sort_by(|a, b| (&a.key, a.sub_queue as u8).cmp(&(&b.key, b.sub_queue as u8)));
    targets.dedup_by(|a, b| a.key == b.key && a.sub_queue == b.sub_queue);
}

fn place_of(path: &str) -> Result<(PathKey, SubQueue), Rejection> {
    let address = EntityAddress::parse(path)
        .map_err(|_| Rejection::argument("after must be the `next` of a search"))?;
    Ok((address.key(), address.sub_queue))
}

impl Search {
    /// Name of the search.
    #[must_use]
    pub const fn id(&self) -> SearchId {
        self.id
    }

    /// Works for at most 200 ms, and returns the messages that were found. After the page with the
    /// end, every page is an error.
    ///
    /// # Errors
    /// `Unauthorized` if the grant has ended; errors of the entities.
    pub async fn next(&mut self) -> Result<SearchPage, BrokerError> {
        let access = self.access.clone();
        let Some(scan) = &mut self.scan else {
            let detail = "the search has ended";
            return Err(access.broker.refuse(Rejection::invalid_operation(detail), ""));
        };
        let slice = Slice::begin(&access, scan.time);
        let mut worker = Worker { access: &access, scan, slice, hits: Vec::new(), hit_bytes: 0 };
        let work = Box::pin(worker.work()).await;
        let Worker { slice, hits, .. } = worker;
        scan.time = slice.time();
        if work.is_err() {
            std::mem::take(&mut scan.audited).end_with(end_of(&work)).await;
        }
        let work = work?;
        let progress = scan.progress.clone();
        let end = match work {
            Work::Paused => None,
            Work::Ended(bound) => {
                let is_grouped = matches!(scan.query.output, SearchOutput::Groups(_));
                let groups = is_grouped.then(|| std::mem::take(&mut scan.groups).into_sorted());
                let audited = std::mem::take(&mut scan.audited);
                audited.end(AuditResult::Done, Some(progress.hits)).await;
                self.close();
                Some(SearchEnd { bound, groups })
            }
        };
        // Counts of the page rest on the memory of the broker (CLU-17).
        access.wait_for_tenure("").await?;
        Ok(SearchPage { search: self.id, hits, progress, end })
    }

    fn close(&mut self) {
        self.scan = None;
        self.access.broker.shared.searches.close(self.id);
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.close();
    }
}

/// Time of a page.
#[derive(Clone, Copy)]
struct Slice<'a> {
    broker: &'a Broker,
    began_at: Timestamp,
    /// Time of the search before the page.
    earlier: TimeSpan,
}

impl<'a> Slice<'a> {
    fn begin(access: &'a Access, earlier: TimeSpan) -> Self {
        Self { broker: &access.broker, began_at: access.broker.now(), earlier }
    }

    fn is_over(&self) -> bool {
        self.broker.now().since(self.began_at) >= PAGE_TIME
    }

    /// Time of the search up to now.
    fn time(&self) -> TimeSpan {
        self.earlier.plus(self.broker.now().since(self.began_at))
    }
}

/// Work on a page.
struct Worker<'a> {
    access: &'a Access,
    scan: &'a mut Scan,
    slice: Slice<'a>,
    hits: Vec<Hit>,
    /// Bytes of the heads of the hits.
    hit_bytes: u64,
}

/// How the work on a page ends.
enum Work {
    Paused,
    /// The search has ended, with the bound that it has met.
    Ended(Option<SearchBound>),
}

/// A message with its parts that were read.
struct Looked {
    facts: HeadFacts<ReceivedMessage>,
    content: Option<HeadContent>,
}

impl Worker<'_> {
    /// Looks at messages until the page or the search ends.
    async fn work(&mut self) -> Result<Work, BrokerError> {
        while let Some(target) = self.scan.targets.front().cloned() {
            let entity = match self.access.entity(&target.path, Action::Inspect).await {
                Ok(entity) => entity,
                // Deleted meanwhile.
                Err(error) if error.condition() == Condition::EntityNotFound => {
                    self.leave();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut start = self.start(&target);
            loop {
                if let Some(end) = self.pause() {
                    return Ok(end);
                }
                let (heads, next) = match self.heads(&entity, start).await {
                    Ok(page) => page,
                    Err(error) if self.is_without_queue(&error) => break,
                    Err(error) => return Err(error),
                };
                for facts in heads {
                    if let Some(end) = self.pause() {
                        return Ok(end);
                    }
                    self.look_at(&target, facts).await;
                }
                let Some(next) = next else { break };
                self.note(&target, next.sequence);
                start = HeadStart::After(next);
            }
            self.leave();
        }
        Ok(Work::Ended(None))
    }

    /// Where the search goes on in a queue.
    fn start(&self, target: &Target) -> HeadStart {
        let position = self.scan.progress.position.as_ref();
        let here = position.filter(|position| {
            place_of(&position.path)
                .is_ok_and(|(key, queue)| key == target.key && queue == target.sub_queue)
        });
        here.map_or(HeadStart::End, |position| {
            HeadStart::After(Cursor { at: Timestamp::NONE, sequence: position.sequence })
        })
    }

    async fn heads(
        &self,
        entity: &Entity,
        start: HeadStart,
    ) -> Result<(Vec<HeadFacts<ReceivedMessage>>, Option<Cursor>), BrokerError> {
        let inquiry = Inquiry::Heads(HeadQuery {
            session: None,
            states: self.scan.query.states,
            order: HeadOrder::Number,
            is_descending: self.scan.query.is_descending,
            start,
            count_max: HEADS_AT_ONCE,
        });
        match entity.manage(Command::Inspect(inquiry)).await? {
            Outcome::Inspected(excerpt) => match *excerpt {
                Excerpt::Heads { heads, next, .. } => Ok((heads, next)),
                _ => Err(entity.refuse(Rejection::internal("unexpected answer to an inquiry"))),
            },
            _ => Err(entity.refuse(Rejection::internal("unexpected answer to an inquiry"))),
        }
    }

    /// Whether an entity of a search of all entities has no such queue, or was deleted.
    fn is_without_queue(&self, error: &BrokerError) -> bool {
        match error.condition() {
            Condition::EntityNotFound => true,
            Condition::InvalidOperation => self.scan.query.paths.is_empty(),
            _ => false,
        }
    }

    fn limits(&self) -> &Limits {
        &self.access.broker.shared.settings.limits
    }

    /// Bound that the search has reached.
    fn bound(&self) -> Option<SearchBound> {
        let SearchProgress { bytes, hits, .. } = self.scan.progress;
        let limits = self.limits();
        if let SearchOutput::Hits(count_max) = self.scan.query.output
            && hits >= count_max.unwrap_or(limits.search_hit_count_max).into()
        {
            return Some(SearchBound::Hits);
        }
        if bytes >= limits.search_bytes_max {
            return Some(SearchBound::Bytes);
        }
        (self.slice.time() >= limits.search_time_max).then_some(SearchBound::Time)
    }

    /// Whether the page ends before the next message, and how.
    fn pause(&self) -> Option<Work> {
        let is_full = self.hits.len() >= PAGE_HIT_COUNT_MAX
            || self.hit_bytes >= PAGE_HIT_BYTES_MAX
            || self.slice.is_over();
        let bound = self.bound().map(|bound| Work::Ended(Some(bound)));
        bound.or_else(|| is_full.then_some(Work::Paused))
    }

    /// Notes the last message of a queue that was looked at.
    fn note(&mut self, target: &Target, sequence: SequenceNumber) {
        let path = Arc::clone(&target.path);
        self.scan.progress.position = Some(SearchPosition { path, sequence });
    }

    /// Ends a queue.
    fn leave(&mut self) {
        self.scan.targets.pop_front();
        self.scan.progress.rest = self.scan.later;
        self.scan.later -= self.scan.targets.front().map_or(0, |target| target.count);
    }

    /// Tests a message.
    async fn look_at(&mut self, target: &Target, facts: HeadFacts<ReceivedMessage>) {
        let progress = &mut self.scan.progress;
        progress.messages += 1;
        progress.rest = progress.rest.saturating_sub(1);
        if progress.messages.is_multiple_of(MESSAGES_AT_ONCE) {
            tokio::task::yield_now().await;
        }
        let sequence = facts.message.facts.sequence;
        let mut looked = Looked { facts, content: None };
        let found = match self.test(&mut looked).await {
            Ok(found) => found,
            Err(error) => {
                let path = &*target.path;
                tracing::debug!(path, %sequence, %error, "message cannot be read");
                self.scan.progress.unreadable += 1;
                None
            }
        };
        if let Some((place, value)) = found {
            self.scan.progress.hits += 1;
            self.take(target, looked, place, value).await;
        }
        self.note(target, sequence);
    }

    /// Returns the place of the match and the value of the group, if the message meets all
    /// conditions.
    async fn test(
        &mut self,
        looked: &mut Looked,
    ) -> Result<Option<(Option<HitPlace>, Option<String>)>, MessageReadError> {
        let candidate = candidate(&looked.facts);
        let body_bytes_max = self.limits().search_body_bytes_max;
        let Scan { matcher, progress, query, .. } = &mut *self.scan;
        if !matcher.test_facts(&candidate) {
            return Ok(None);
        }
        let enqueued_at = candidate.enqueued_at;
        if !matcher.needs_head() {
            let SearchOutput::Groups(by) = &query.output else { return Ok(Some((None, None))) };
            let head = CandidateHead { message: &Default::default(), dead_letter_source: None };
            return Ok(Some((None, by.value(&head, enqueued_at))));
        }
        let message = &looked.facts.message;
        let content = message.head(looked.facts.header_size).await?;
        progress.bytes += u64::from(looked.facts.header_size) + BODY_START_BYTES as u64;
        let head = CandidateHead {
            message: &content.message,
            dead_letter_source: content.dead_letter_source.as_deref(),
        };
        let mut evaluation = matcher.begin(&candidate, &head);
        let is_met = match evaluation.decision() {
            Decision::NeedsBody => {
                let source = (message, looked.facts.header_size);
                let bytes = &mut progress.bytes;
                let tested = test_body(source, &mut evaluation, body_bytes_max, bytes);
                let (is_met, is_undecided) = tested.await?;
                progress.undecided += u64::from(is_undecided);
                is_met
            }
            decision => decision == Decision::Holds,
        };
        if !is_met {
            return Ok(None);
        }
        let value = match &query.output {
            SearchOutput::Groups(GroupBy::Json(_)) => evaluation.group_value().map(str::to_owned),
            SearchOutput::Groups(by) => by.value(&head, enqueued_at),
            SearchOutput::Hits(_) => None,
        };
        let place = match evaluation.place() {
            Some(place) if matches!(query.output, SearchOutput::Hits(_)) => {
                Some(hit_place(message, looked.facts.header_size, place).await?)
            }
            _ => None,
        };
        looked.content = Some(content);
        Ok(Some((place, value)))
    }

    /// Adds a message to the result.
    async fn take(
        &mut self,
        target: &Target,
        looked: Looked,
        place: Option<HitPlace>,
        value: Option<String>,
    ) {
        let Looked { facts, content } = looked;
        let path = Arc::clone(&target.path);
        match &self.scan.query.output {
            SearchOutput::Groups(_) => {
                let (sequence, at) =
                    (facts.message.facts.sequence, facts.message.facts.enqueued_at);
                self.scan.groups.add(value, at, Sample { path, sequence });
            }
            SearchOutput::Hits(_) => {
                let content = match content {
                    Some(content) => Some(content),
                    None => facts.message.head(facts.header_size).await.ok(),
                };
                let mut holders = Holders::of(&self.access.broker);
                let facts: HeadFacts<_, Holder> =
                    facts.with_holder(|receiver| holders.get(receiver));
                self.hit_bytes += u64::from(facts.header_size) + BODY_START_BYTES as u64;
                let head = Head { facts: facts.with_message(|message| message.facts), content };
                self.hits.push(Hit { path, head, place });
            }
        }
    }
}

/// Facts about a message that need no content.
fn candidate(facts: &HeadFacts<ReceivedMessage>) -> Candidate<'static> {
    let message = &facts.message.facts;
    let (scheduled_at, state) = match facts.state {
        HeadState::Scheduled => (Some(message.enqueued_at), "Scheduled"),
        HeadState::Deferred => (None, "Deferred"),
        _ => (None, "Active"),
    };
    Candidate {
        sequence: message.sequence,
        enqueued_sequence: message.enqueued_sequence,
        enqueued_at: message.enqueued_at,
        scheduled_at,
        expires_at: (!facts.expires_at.is_never()).then_some(facts.expires_at),
        time_to_live: message.time_to_live.filter(|span| !span.is_unlimited()),
        delivery_count: message.delivery_count,
        size: message.size.into(),
        state,
    }
}

/// Tests at most the first `bytes_max` bytes of the body of a message, and counts them in `bytes`.
/// Returns whether all conditions hold, and whether one could not be decided.
async fn test_body(
    (message, header_size): (&ReceivedMessage, u32),
    evaluation: &mut Evaluation<'_>,
    bytes_max: u64,
    bytes: &mut u64,
) -> Result<(bool, bool), MessageReadError> {
    let mut body = message.body(header_size).await?;
    let (mut read, mut yielded_at) = (0, evaluation.steps());
    while read < bytes_max {
        let Some(piece) = body.next().await? else { break };
        let left = usize::try_from(bytes_max - read).unwrap_or(usize::MAX);
        let piece = piece.slice(..piece.len().min(left));
        read += piece.len() as u64;
        *bytes += piece.len() as u64;
        for some in piece.chunks(BYTES_AT_ONCE) {
            match evaluation.feed(some) {
                Decision::NeedsBody => {}
                decision => return Ok((decision == Decision::Holds, false)),
            }
            if evaluation.steps() - yielded_at > STEPS_AT_ONCE {
                yielded_at = evaluation.steps();
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(evaluation.end(body.length() <= bytes_max))
}

/// Returns the place of a match with its excerpt.
async fn hit_place(
    message: &ReceivedMessage,
    header_size: u32,
    place: &MatchPlace,
) -> Result<HitPlace, MessageReadError> {
    match place {
        MatchPlace::Property { name, excerpt } => {
            Ok(HitPlace::Property { name: name.clone(), excerpt: excerpt.clone() })
        }
        MatchPlace::Body(found) => {
            let window = MatchPlace::body_window(found);
            let mut body = message.body(header_size).await?;
            body.skip_to(window.start).await?;
            let wanted = usize::try_from(window.end - window.start).unwrap_or(usize::MAX);
            let mut bytes = Vec::with_capacity(wanted);
            while bytes.len() < wanted
                && let Some(piece) = body.next().await?
            {
                let end = piece.len().min(wanted - bytes.len());
                bytes.extend_from_slice(piece.get(..end).unwrap_or_default());
            }
            let excerpt = MatchPlace::body_excerpt(found, &bytes, window.start);
            Ok(HitPlace::Body { found: found.clone(), excerpt })
        }
    }
}
