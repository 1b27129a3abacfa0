//! A store over a [`MemoryStore`] for tests of failures (DESIGN D11). Its driver decides when a
//! batch completes and with which result: stored, failed, unknown or fenced. The driver can also
//! make it answer Busy and Full, and delay the reading of contents and answers.
//!
//! ```text
//!  submit ──► queue of the shard ──(driver: complete_next with a fate)──► image ──► completion
//!                   │                                                       │
//!                   └──────── crash: lost, or a prefix of it lands ─────────┴──► the next broker
//! ```
//!
//! The image is the durable state: a batch enters it on completion, or when its outcome is reported
//! as unknown although it landed. Scans and pins see only the image, so that content that is not
//! durable cannot be read by mistake.

mod state;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use self::state::{ShardState, State, Unknown, is_repetition};
use super::block_on;
use super::faults::{Crash, Fate, Odds, Room};
use super::held_calls::{HeldCalls, HeldRecords};
use super::members::{Member, Members};
use super::random::Random;
use peeklock_store::content_ref::ContentRef;
use peeklock_store::{
    Batch, BatchId, Completion, Expectation, Fence, Key, MemoryStore, Records, Registry, Reserved,
    Shard, Store, StoreError, Submission, Waker,
};

/// A store whose driver decides the results.
pub struct FaultStore {
    image: Arc<MemoryStore>,
    /// The registry, if several brokers use the image.
    member: Option<Arc<Member>>,
    members: Arc<Members>,
    reads: Arc<HeldCalls>,
    answers: HeldCalls,
    state: Mutex<State>,
}

impl FaultStore {
    /// An empty store that stores batches only when its driver completes them.
    #[must_use]
    pub fn new(shard_count: u16, capacity_bytes: u64) -> Arc<Self> {
        Self::over(Arc::new(MemoryStore::new(shard_count, capacity_bytes)), false)
    }

    /// An empty store that stores every batch within [`Store::submit`].
    #[must_use]
    pub fn at_once(shard_count: u16, capacity_bytes: u64) -> Arc<Self> {
        Self::over(Arc::new(MemoryStore::new(shard_count, capacity_bytes)), true)
    }

    fn over(image: Arc<MemoryStore>, at_once: bool) -> Arc<Self> {
        Arc::new(Self::without_registry(image, at_once, Arc::default()))
    }

    fn without_registry(image: Arc<MemoryStore>, at_once: bool, members: Arc<Members>) -> Self {
        let shards = (0..image.shard_count()).map(|_| ShardState::default()).collect();
        let state = State {
            shards,
            room: Room::Open,
            waiting: Vec::new(),
            reserved_bytes: 0,
            overdrawn: false,
            shard_of_space: BTreeMap::new(),
            at_once,
            refuses_exists: false,
            separates_contents: false,
            amend_fates: VecDeque::new(),
            fate_here: None,
            spoilt: None,
            on_reserve: None,
            ended: false,
        };
        Self {
            image,
            member: None,
            members,
            reads: Arc::default(),
            answers: HeldCalls::default(),
            state: Mutex::new(state),
        }
    }

    /// The store of another broker over the same image, and its registry. Faults of each broker are
    /// decided separately. The first broker needs such a store too: one without a registry owns
    /// nothing that others could take.
    #[must_use]
    pub fn join(&self, name: &str) -> (Arc<Self>, Arc<Member>) {
        let member = self.members.join(name, &self.image);
        let (image, members) = (Arc::clone(&self.image), Arc::clone(&self.members));
        let mut store = Self::without_registry(image, self.lock().at_once, members);
        store.member = Some(Arc::clone(&member));
        (Arc::new(store), member)
    }

    /// The durable state.
    #[must_use]
    pub fn image(&self) -> &MemoryStore {
        &self.image
    }

    /// Reserved bytes.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.lock().reserved_bytes
    }

    /// Whether more bytes were released than reserved.
    #[must_use]
    pub fn is_overdrawn(&self) -> bool {
        self.lock().overdrawn
    }

    /// Number of wakers that it holds and has not called.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Number of batches of a shard that wait for their fate.
    #[must_use]
    pub fn queued(&self, shard: Shard) -> usize {
        self.lock().shards.get(usize::from(shard.0)).map_or(0, |state| state.queue.len())
    }

    /// From now on, stores every batch within [`Store::submit`], or waits for the driver. A batch
    /// that already waits is completed by the driver, or with the next batch of its shard.
    pub fn complete_at_once(&self, at_once: bool) {
        self.lock().at_once = at_once;
    }

    /// From now on, pinned contents are not loaded: each is read when the driver permits it.
    pub fn hold_reads(&self) {
        self.reads.hold();
    }

    /// Number of reads that wait for the driver.
    #[must_use]
    pub fn held_read_count(&self) -> usize {
        self.reads.count()
    }

    /// Lets a waiting read finish, by its position in the order of the reads. Returns whether it
    /// exists and its caller still waits.
    pub fn let_read(&self, place: usize) -> bool {
        self.reads.let_go(place)
    }

    /// Lets a waiting read fail because the store is not available. Returns whether it exists and
    /// its caller still waits.
    pub fn refuse_read(&self, place: usize) -> bool {
        self.reads.end(place, Err(unavailable()))
    }

    /// From now on, each answer to an asynchronous call, and each slice of a scan, waits for the
    /// driver.
    pub fn hold_answers(&self) {
        self.answers.hold();
    }

    /// Number of answers that wait for the driver.
    #[must_use]
    pub fn held_answer_count(&self) -> usize {
        self.answers.count()
    }

    /// Gives the oldest waiting answer. Returns whether there was one and its caller still waits.
    pub fn let_answer(&self) -> bool {
        self.answers.let_go(0)
    }

    /// Lets the oldest waiting answer fail because the store is not available. Returns whether there
    /// was one and its caller still waits.
    pub fn refuse_answer(&self) -> bool {
        self.answers.end(0, Err(unavailable()))
    }

    /// Lets the next call of [`Store::exists`] fail.
    pub fn refuse_exists(&self) {
        self.lock().refuses_exists = true;
    }

    /// From now on, contents are not shared between shards: a batch that does so fails.
    pub fn separate_contents(&self) {
        self.lock().separates_contents = true;
    }

    /// Whether no call of [`Store::exists`] has failed since [`Self::refuse_exists`].
    #[must_use]
    pub fn is_refusing_exists(&self) -> bool {
        self.lock().refuses_exists
    }

    /// Decides about an amendment that follows those decided before; others are stored.
    pub fn decide_amendment(&self, fate: Fate) {
        self.lock().amend_fates.push_back(fate);
    }

    /// From now on, [`Store::commit_here`] completes all batches with this fate, if there is one.
    pub fn commit_here_with(&self, fate: Option<Fate>) {
        self.lock().fate_here = fate;
    }

    /// Calls this function at the next reservation, on the thread of its caller, before it is
    /// granted.
    pub fn on_reserve(&self, call: impl FnOnce() + Send + 'static) {
        self.lock().on_reserve = Some(Box::new(call));
    }

    /// From now on, pins contents with this text as invalid messages.
    pub fn spoil(&self, text: &'static str) {
        self.lock().spoilt = Some(text);
    }

    /// From now on, answers reservations with `room`. `Room::Open` wakes waiting callers.
    pub fn set_room(&self, room: Room) {
        let mut state = self.lock();
        state.room = room;
        let waiting = match room {
            Room::Open => std::mem::take(&mut state.waiting),
            Room::Busy | Room::Full => Vec::new(),
        };
        drop(state);
        for waker in waiting {
            waker();
        }
    }

    /// Acquires the shard for another owner: later batches under the present epoch are fenced.
    pub fn usurp(&self, shard: Shard) {
        let mut state = self.lock();
        if let (Ok((fence, _)), Some(of_shard)) =
            (block_on(self.image.acquire(shard)), state.shards.get_mut(usize::from(shard.0)))
        {
            of_shard.epoch = fence.epoch;
        }
    }

    /// Completes the oldest batch of a shard that can complete. Returns whether there was one.
    pub fn complete_next(&self, shard: Shard, fate: Fate) -> bool {
        let mut state = self.lock();
        let index = usize::from(shard.0);
        let Some(of_shard) = state.shards.get_mut(index) else { return false };
        let Some((first, _)) = of_shard.queue.front() else { return false };
        let (id, epoch) = (first.id, epoch_of(first));
        let is_current = epoch == of_shard.epoch;
        // A batch that was reported as stored is stored again, regardless of the fate.
        let fate = if id.0 <= of_shard.answered { Fate::Store } else { fate };
        if is_current && of_shard.unknown.is_some_and(|unknown| unknown.holds) {
            return false;
        }
        let Some((submission, completion)) = of_shard.queue.pop_front() else { return false };
        // A stored batch cannot fail, and a repetition cannot undo it.
        let is_stored = id.0 <= of_shard.stored;
        let result = if !is_current {
            self.carry_out(submission)
        } else if of_shard.unknown.is_some() {
            Err(StoreError::Unknown)
        } else if of_shard.failed {
            Err(StoreError::Failed("an earlier batch failed".into()))
        } else {
            match fate {
                Fate::Fail if !is_stored => {
                    of_shard.failed = true;
                    Err(StoreError::Failed("as the test wants it".into()))
                }
                Fate::Store | Fate::Fail => self.carry_out(submission),
                Fate::Unknown { landed, .. } | Fate::GiveUp { landed } => {
                    let stored = if landed { self.carry_out(submission) } else { Ok(()) };
                    if landed && stored.is_ok() {
                        of_shard.stored = of_shard.stored.max(id.0);
                    }
                    stored.and_then(|()| match fate {
                        Fate::Unknown { holds, .. } => {
                            of_shard.unknown = Some(Unknown { id, holds });
                            Err(StoreError::Unknown)
                        }
                        Fate::Store | Fate::Fail | Fate::GiveUp { .. } => {
                            of_shard.failed = true;
                            Err(unavailable())
                        }
                    })
                }
            }
        };
        if result.is_ok() {
            of_shard.stored = of_shard.stored.max(id.0);
            of_shard.answered = of_shard.answered.max(id.0);
        }
        let freed = match &result {
            Err(StoreError::Unknown | StoreError::Unavailable(_)) => None,
            Ok(()) | Err(_) => of_shard.owed.remove(&(epoch, id.0)),
        };
        state.give_back(freed.unwrap_or(0));
        drop(state);
        self.image.unreserve(shard, freed.unwrap_or(0));
        completion(result);
        true
    }

    /// Completes the next batch of a random shard, by the odds. Returns whether there was one.
    pub fn step(&self, random: &mut Random, odds: &Odds) -> bool {
        let count = self.image.shard_count();
        let first = u16::try_from(random.below(u64::from(count))).unwrap_or(0);
        let fate = odds.draw(random);
        (0..count).any(|offset| self.complete_next(Shard((first + offset) % count), fate))
    }

    /// Ends the process. Returns the store that the next process finds.
    #[must_use]
    pub fn crash(&self, crash: Crash<'_>) -> Arc<Self> {
        let mut state = self.lock();
        state.ended = true;
        if let Crash::KeepsSome(random) = crash {
            for of_shard in state.shards.iter_mut().filter(|of_shard| !of_shard.failed) {
                let count = random.index(of_shard.queue.len() + 1);
                for (submission, _) in of_shard.queue.drain(..count) {
                    // The image refuses batches that follow a missing one.
                    self.carry_out(submission).ok();
                }
            }
        }
        for of_shard in &mut state.shards {
            of_shard.queue.clear();
        }
        state.waiting.clear();
        self.image.unreserve(Shard(0), state.reserved_bytes);
        state.reserved_bytes = 0;
        // The next process joins the registry of the image again.
        let members = Arc::clone(&self.members);
        let next = Self::without_registry(Arc::clone(&self.image), state.at_once, members);
        next.lock().separates_contents = state.separates_contents;
        Arc::new(next)
    }

    /// Refuses a broker of several that does not own the shards.
    fn check_owner(&self) -> Result<(), StoreError> {
        match self.member.as_ref().is_some_and(|member| !member.is_owner()) {
            true => Err(StoreError::Fenced { held: 0, current: 0 }),
            false => Ok(()),
        }
    }

    fn carry_out(&self, submission: Submission) -> Result<(), StoreError> {
        let answer = Arc::new(Mutex::new(Ok(())));
        let completion = Arc::clone(&answer);
        let batch = Arc::new(submission.batch.without_reservation());
        self.image.submit(
            Submission { batch, ..submission },
            Box::new(move |result| {
                *completion.lock().unwrap_or_else(PoisonError::into_inner) = result;
            }),
        );
        answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for FaultStore {
    fn name(&self) -> &'static str {
        "fault"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn shard_count(&self) -> u16 {
        self.image.shard_count()
    }

    async fn acquire(&self, shard: Shard) -> Result<(Fence, BatchId), StoreError> {
        self.answers.wait().await?;
        self.check_owner()?;
        let (fence, next) = self.image.acquire(shard).await?;
        let mut state = self.lock();
        let mut owed = 0;
        if let Some(of_shard) = state.shards.get_mut(usize::from(shard.0)) {
            of_shard.epoch = fence.epoch;
            of_shard.failed = false;
            of_shard.unknown = None;
            of_shard.stored = next.0 - 1;
            of_shard.answered = 0;
            owed = std::mem::take(&mut of_shard.owed).into_values().sum();
        }
        state.give_back(owed);
        drop(state);
        self.image.unreserve(shard, owed);
        Ok((fence, next))
    }

    fn reserve(&self, shard: Shard, bytes: u64, waker: &dyn Fn() -> Waker) -> Reserved {
        let on_reserve = self.lock().on_reserve.take();
        if let Some(on_reserve) = on_reserve {
            on_reserve();
        }
        let mut state = self.lock();
        let refusal = match state.room {
            Room::Open => {
                let reserved = self.image.reserve(shard, bytes, waker);
                if reserved == Reserved::Granted {
                    state.reserved_bytes += bytes;
                }
                return reserved;
            }
            Room::Busy => Reserved::Busy,
            Room::Full => Reserved::Full,
        };
        state.waiting.push(waker());
        refusal
    }

    fn unreserve(&self, shard: Shard, bytes: u64) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        state.give_back(bytes);
        drop(state);
        self.image.unreserve(shard, bytes);
    }

    fn submit(&self, submission: Submission, completion: Completion) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        if let Some(fault) = state.foreign_space(&submission) {
            drop(state);
            completion(Err(StoreError::Failed(fault.into())));
            return;
        }
        let at_once = state.at_once;
        let shard = submission.fences.first().map_or(Shard(0), |fence| fence.shard);
        let Some(of_shard) = state.shards.get_mut(usize::from(shard.0)) else {
            drop(state);
            completion(Err(StoreError::Failed("no such shard".into())));
            return;
        };
        let epoch = epoch_of(&submission);
        let reserved = submission.batch.reserved();
        if reserved > 0 && !is_repetition(of_shard, epoch, submission.id) {
            of_shard.owed.insert((epoch, submission.id.0), reserved);
        }
        let again = of_shard.unknown.is_some_and(|unknown| unknown.id == submission.id);
        if again {
            of_shard.unknown = None;
            of_shard.queue.push_front((submission, completion));
        } else {
            of_shard.queue.push_back((submission, completion));
        }
        drop(state);
        if at_once {
            while self.complete_next(shard, Fate::Store) {}
        }
    }

    fn commit_here(&self, submit: &mut dyn FnMut()) -> bool {
        let fate = self.lock().fate_here;
        submit();
        if let Some(fate) = fate {
            let shards = 0..self.image.shard_count();
            shards.for_each(|shard| while self.complete_next(Shard(shard), fate) {});
        }
        fate.is_some() || self.lock().at_once
    }

    async fn amend(&self, expected: &[Expectation], batch: Batch) -> Result<bool, StoreError> {
        self.answers.wait().await?;
        self.check_owner()?;
        let fate = self.lock().amend_fates.pop_front();
        match fate.unwrap_or(Fate::Store) {
            Fate::Store => self.image.amend(expected, batch).await,
            Fate::Fail => Err(StoreError::Failed("as the test wants it".into())),
            Fate::Unknown { landed, .. } => {
                if landed {
                    self.image.amend(expected, batch).await?;
                }
                Err(StoreError::Unknown)
            }
            Fate::GiveUp { landed } => {
                if landed {
                    self.image.amend(expected, batch).await?;
                }
                Err(unavailable())
            }
        }
    }

    fn pin(&self, keys: &[Key], contents: &mut Vec<Option<ContentRef>>) {
        let before = contents.len();
        self.image.pin(keys, contents);
        let spoilt = self.lock().spoilt;
        for content in contents.iter_mut().skip(before).flatten() {
            if spoilt.is_some_and(|text| has_text(content, text)) {
                *content = ContentRef::Loaded(Bytes::from_static(&[0xff; 16]));
            }
            self.reads.take(content);
        }
    }

    fn scan(&self, prefix: &Key) -> Box<dyn Records + '_> {
        Box::new(HeldRecords { calls: &self.answers, records: self.image.scan(prefix) })
    }

    async fn exists(&self, keys: &[Key]) -> Result<Vec<bool>, StoreError> {
        self.answers.wait().await?;
        if std::mem::take(&mut self.lock().refuses_exists) {
            return Err(StoreError::Failed("as the test wants it".into()));
        }
        self.image.exists(keys).await
    }

    fn registry(&self) -> Option<Arc<dyn Registry>> {
        self.member.clone().map(|member| member as Arc<dyn Registry>)
    }

    fn shares_contents(&self) -> bool {
        !self.lock().separates_contents
    }

    /// Copies the image; batches that wait for their fate stay only in this store.
    fn fork(&self) -> Option<Arc<dyn Store>> {
        let state = self.lock();
        Some(Self::over(Arc::new(self.image.forked()), state.at_once))
    }

    fn close(&self) -> Result<(), StoreError> {
        if let Some(member) = &self.member {
            member.leave();
        }
        self.image.close()
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("as the test wants it".into())
}

fn has_text(content: &ContentRef, text: &str) -> bool {
    let is_it = |part: &[u8]| part == text.as_bytes();
    content.loaded().is_some_and(|bytes| bytes.windows(text.len()).any(is_it))
}

fn epoch_of(submission: &Submission) -> u64 {
    submission.fences.first().map_or(0, |fence| fence.epoch)
}
