//! Searches over the messages of entities, and groups of messages (CON-05 to CON-11): their
//! questions, pages and places.
//!
//! ```text
//!  reader ─► Access::search ─► Searches::open ─► Search ─► next: a page with hits and progress
//! ```
//!
//! A search works only while its reader waits for a page, at most [`PAGE_TIME`] for each. Therefore
//! a reader that leaves ends the work, and a page is also the progress (CON-08).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_model::inspect::HeadStates;
use peeklock_words::search::{GroupBy, Groups, Matcher, SortedGroups, Where};

use crate::audited::Audited;
use crate::findings::Head;
use crate::ids::SequenceNumber;
use crate::path::{PathKey, SubQueue};
use crate::time::{TimeSpan, Timestamp};

/// Maximum number of entities that a search names.
pub const SEARCH_PATH_COUNT_MAX: usize = 100;
/// Maximum time that a search works for a page.
pub const PAGE_TIME: TimeSpan = TimeSpan::from_ms(200);
/// Maximum number of hits in a page.
pub(crate) const PAGE_HIT_COUNT_MAX: usize = 50;
/// Bytes of heads after which a page ends.
pub(crate) const PAGE_HIT_BYTES_MAX: u64 = 128 << 10;
/// Time after which a search whose reader does not ask gives its place to another.
const UNASKED_MAX: TimeSpan = TimeSpan::from_seconds(2);

/// Messages to look at, and their conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchQuery {
    /// Paths of entities or sub-queues, at most [`SEARCH_PATH_COUNT_MAX`]; without one, all entities
    /// that the reader may read.
    pub paths: Vec<Box<str>>,
    /// Queues of each entity; without one, the entity itself. A path of a sub-queue stands for
    /// itself.
    pub sub_queues: Vec<SubQueue>,
    /// States of the messages.
    pub states: HeadStates,
    /// Whether the messages of an entity with the highest numbers come first.
    pub is_descending: bool,
    /// Conditions on the messages.
    pub conditions: Where,
    /// The result.
    pub output: SearchOutput,
    /// Position at which an earlier search has ended.
    pub after: Option<SearchPosition>,
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug)]
pub enum SearchOutput {
    /// Messages, at most this number; without one, as many as `limits.search_hit_count_max`.
    Hits(Option<u32>),
    /// Counts of messages by a property (CON-11).
    Groups(GroupBy),
}

/// Last message that a search has looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchPosition {
    /// Path of its entity or sub-queue.
    pub path: Arc<str>,
    /// Its number.
    pub sequence: SequenceNumber,
}

/// Request for a page of a search whose reader polls.
#[derive(Clone, PartialEq, Debug)]
pub enum SearchStep {
    /// Begins a search, and reads its first page.
    Begin(Box<SearchQuery>),
    /// Reads the next page.
    Continue(SearchId),
}

impl SearchStep {
    /// Whether a search begins that names no entity.
    #[must_use]
    pub const fn is_of_all(&self) -> bool {
        match self {
            Self::Begin(query) => query.paths.is_empty(),
            Self::Continue(_) => false,
        }
    }
}

/// Number of a search since the start of the broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SearchId(pub u64);

/// Page of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct SearchPage {
    /// The search.
    pub search: SearchId,
    /// Messages that meet the conditions, since the last page.
    pub hits: Vec<Hit>,
    /// Progress of the search.
    pub progress: SearchProgress,
    /// Set on the last page.
    pub end: Option<SearchEnd>,
}

/// Message that meets the conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct Hit {
    /// Path of its entity or sub-queue.
    pub path: Arc<str>,
    /// The message without its body.
    pub head: Head,
    /// Place of the match; `None` if the conditions have no place.
    pub place: Option<HitPlace>,
}

/// Place of a match, and up to 120 characters around it (CON-05).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HitPlace {
    /// In the body.
    Body {
        /// Positions of the bytes.
        found: Range<u64>,
        /// The text around the match.
        excerpt: String,
    },
    /// In a property.
    Property {
        /// Name of the property.
        name: String,
        /// The text around the match.
        excerpt: String,
    },
}

/// Progress of a search (CON-08).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SearchProgress {
    /// Number of messages that were looked at.
    pub messages: u64,
    /// Bytes of these messages that were looked at.
    pub bytes: u64,
    /// Number of messages that meet the conditions.
    pub hits: u64,
    /// Number of messages for which a condition could not be decided, since their body is too long
    /// or nested too deep.
    pub undecided: u64,
    /// Number of messages that the store could not read.
    pub unreadable: u64,
    /// Estimate of the number of messages that are still to be looked at.
    pub rest: u64,
    /// Position of the last message that was looked at.
    pub position: Option<SearchPosition>,
}

/// End of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchEnd {
    /// Bound that has ended the search; `None` if all messages were looked at.
    pub bound: Option<SearchBound>,
    /// The groups, if they were asked for.
    pub groups: Option<SortedGroups>,
}

/// Bound of a search (CON-07).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchBound {
    /// Time
    Time,
    /// Bytes that were read
    Bytes,
    /// Number of hits
    Hits,
}

/// State of a search between two pages. It has no handle of an entity and no content of a message.
pub(crate) struct Scan {
    pub(crate) query: SearchQuery,
    pub(crate) matcher: Matcher,
    /// Queues that are not looked at to the end; the first one is current.
    pub(crate) targets: VecDeque<Target>,
    /// Estimate of the number of messages in the queues after the current one.
    pub(crate) later: u64,
    pub(crate) progress: SearchProgress,
    /// Time for which the search has worked.
    pub(crate) time: TimeSpan,
    pub(crate) groups: Groups,
    /// Entry in the audit trail.
    pub(crate) audited: Audited,
}

/// Entity or sub-queue that a search looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) key: PathKey,
    pub(crate) sub_queue: SubQueue,
    pub(crate) path: Arc<str>,
    /// Estimate of the number of its messages.
    pub(crate) count: u64,
}

/// The places of searches of a broker.
#[derive(Default)]
pub(crate) struct Searches {
    places: Mutex<Vec<Place>>,
}

struct Place {
    id: SearchId,
    asked_at: Timestamp,
    /// The search between two requests of a reader that polls.
    waiting: Option<Box<Scan>>,
    /// Whether a page of the search is being made, or the reader keeps the search itself.
    is_in_use: bool,
}

impl Searches {
    /// Takes a place; none if `count_max` searches are open. A search whose reader has not asked for
    /// two seconds loses its place.
    pub(crate) fn open(&self, id: SearchId, count_max: usize, now: Timestamp) -> bool {
        let mut places = self.places();
        if places.len() >= count_max {
            places.retain(|place| place.is_in_use || now.since(place.asked_at) < UNASKED_MAX);
        }
        let has_room = places.len() < count_max;
        if has_room {
            places.push(Place { id, asked_at: now, waiting: None, is_in_use: true });
        }
        has_room
    }

    /// Takes a waiting search out of its place, to make a page.
    pub(crate) fn take(&self, id: SearchId) -> Option<Box<Scan>> {
        let mut places = self.places();
        let place = places.iter_mut().find(|place| place.id == id)?;
        let scan = place.waiting.take()?;
        place.is_in_use = true;
        Some(scan)
    }

    /// Puts a search back until the next request.
    pub(crate) fn keep(&self, id: SearchId, scan: Box<Scan>, now: Timestamp) {
        let mut places = self.places();
        if let Some(place) = places.iter_mut().find(|place| place.id == id) {
            (place.waiting, place.asked_at, place.is_in_use) = (Some(scan), now, false);
        }
    }

    /// Frees the place of a search that is in use.
    pub(crate) fn close(&self, id: SearchId) {
        self.places().retain(|place| place.id != id || !place.is_in_use);
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
