//! Random sequences of steps from a seed. Requests usually name existing things: existing numbers,
//! held locks, instants at which something is due, and a few that do not exist.

#[path = "generator/act.rs"]
mod act;
#[path = "generator/profile.rs"]
mod profile;
#[path = "generator/transact.rs"]
mod transact;

use peeklock_core::command::{Act, Drain, LinkEnd, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityStatus, QueueDescription};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    Cursor, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, ROW_COUNT_MAX,
};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

pub use self::profile::Profile;
use self::profile::{Kind, retry_policy};
use crate::operation::{
    Decision, Draft, Flaw, LockName, Operation, Part, Properties, Request, Step,
};

/// Splitmix64: small, well mixed, and the same on every platform.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        let index = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of[index].clone()
    }

    fn pick_some<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(self.pick(of)) }
    }
}

/// Knowledge of the generator about the entity.
#[derive(Clone, Debug)]
pub struct View {
    pub now: Timestamp,
    pub description: QueueDescription,
    /// Held locks.
    pub locks: Vec<(LockName, SubQueue)>,
    /// Number of locks ever given.
    pub locks_given: u64,
    /// Locked messages.
    pub locked: Vec<(u64, SubQueue)>,
    pub deferred: Vec<(u64, SubQueue)>,
    pub scheduled: Vec<u64>,
    pub last_sequence: u64,
    pub links: Vec<LinkView>,
    pub waiting: Vec<u64>,
    /// Holders of locks or of waiting calls.
    pub holders: Vec<(u64, SubQueue)>,
    /// Future instants at which something is due.
    pub instants: Vec<Timestamp>,
    /// Version of the description.
    pub updated_at: Timestamp,
    /// Bytes that the quota still allows.
    pub room_bytes: u64,
}

/// A link and the messages sent to it.
#[derive(Clone, Copy, Debug)]
pub struct LinkView {
    pub receiver: u64,
    pub sub_queue: SubQueue,
    pub sent: u64,
    pub sent_bytes: u64,
}

/// More bytes than a link ever needs.
pub const ROOMY: u64 = 1 << 40;

#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    profile: Profile,
    next_ticket: u64,
    next_receiver: u64,
    next_marker: u64,
    /// Issued parts of transactions that are neither committed nor rolled back.
    open: Vec<Vec<Part>>,
    /// The last steps of operators, to repeat them, and the highest number of a step.
    acts: Vec<(SubQueue, Act)>,
    next_step: u64,
    /// Next step of a job, which follows its last one in the same list.
    next_act: Option<(SubQueue, Act)>,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let profile = Profile::new(&mut random);
        Self {
            random,
            profile,
            next_ticket: 1,
            next_receiver: 1,
            next_marker: 1,
            open: Vec::new(),
            acts: Vec::new(),
            next_step: 0,
            next_act: None,
        }
    }

    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    pub fn step(&mut self, view: &View) -> Step {
        match self.random.below(1_000) {
            0..25 => Step::Crash(self.random.pick(&[
                TimeSpan::ZERO,
                TimeSpan::from_ms(100),
                TimeSpan::from_seconds(2),
                TimeSpan::from_seconds(20),
            ])),
            25..40 => Step::Full(self.random.percent(35)),
            40..360 => Step::Wait(self.span(view)),
            _ => {
                let span = if self.random.percent(15) { self.aimed(view) } else { TimeSpan::ZERO };
                let count = self.random.pick(&[1, 1, 1, 1, 1, 1, 2, 2, 3, 5]);
                let mut requests: Vec<Request> = Vec::new();
                for _ in 0..count {
                    let request = self.request(view);
                    if !ends_twice(&requests, &request) {
                        requests.push(request);
                    }
                    if let Some((sub_queue, act)) = self.next_act.take() {
                        let ticket = self.ticket();
                        let operation = Operation::Act(Box::new(act));
                        requests.push(Request { ticket, sub_queue, operation });
                    }
                }
                if span > TimeSpan::ZERO && self.random.percent(20) {
                    return Step::Late(self.span(view), requests);
                }
                Step::List(span, requests)
            }
        }
    }

    fn span(&mut self, view: &View) -> TimeSpan {
        if self.random.percent(55) {
            return self.aimed(view);
        }
        TimeSpan::from_ms(
            self.random.pick(&[
                0, 1, 100, 100, 1_000, 1_000, 2_500, 5_000, 5_000, 12_000, 70_000, 301_000,
            ]),
        )
    }

    /// Time to an instant at which something is due, or one tick off.
    fn aimed(&mut self, view: &View) -> TimeSpan {
        let mut instants = view.instants.clone();
        instants.sort_unstable();
        instants.truncate(4);
        let Some(at) = self.random.pick_some(&instants) else {
            return TimeSpan::from_ms(100);
        };
        let offset = self.random.pick(&[-1, 0, 0, 0, 0, 1]);
        TimeSpan::from_ticks(at.since(view.now).ticks() + offset)
    }

    fn request(&mut self, view: &View) -> Request {
        let total: u64 = self.profile.weights.iter().map(|(_, weight)| weight).sum();
        let mut draw = self.random.below(total);
        let mut kind = Kind::Send;
        for (candidate, weight) in &self.profile.weights {
            if draw < *weight {
                kind = *candidate;
                break;
            }
            draw -= weight;
        }
        let ticket = self.ticket();
        let (sub_queue, operation) = self.operation(kind, ticket, view);
        Request { ticket, sub_queue, operation }
    }

    const fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    /// Mostly the main queue, sometimes its dead-letter queue, rarely the transfer dead-letter
    /// queue.
    fn sub_queue(&mut self) -> SubQueue {
        match self.random.below(100) {
            0..76 => SubQueue::Main,
            76..98 => SubQueue::DeadLetter,
            _ => SubQueue::TransferDeadLetter,
        }
    }

    fn operation(&mut self, kind: Kind, ticket: u64, view: &View) -> (SubQueue, Operation) {
        match kind {
            Kind::Send => {
                let draft = self.draft(view, false);
                (self.target(), Operation::Send(draft))
            }
            Kind::Schedule => {
                let draft = self.draft(view, true);
                (self.target(), Operation::Send(draft))
            }
            Kind::SendBatch => {
                let count = self.random.pick(&[0, 1, 2, 2, 3, 3, 4]);
                let drafts = (0..count)
                    .map(|_| {
                        let scheduled = self.random.percent(20);
                        self.draft(view, scheduled)
                    })
                    .collect();
                (self.target(), Operation::SendBatch(drafts))
            }
            Kind::Cancel if view.scheduled.is_empty() && self.random.percent(85) => {
                self.operation(Kind::Schedule, ticket, view)
            }
            Kind::Cancel => {
                let sequences = self.numbers(&view.scheduled, view.last_sequence);
                (self.target(), Operation::CancelScheduled(sequences))
            }
            Kind::ReceiveNow => (self.sub_queue(), self.receive(TimeSpan::ZERO)),
            Kind::ReceiveWaiting => {
                let milliseconds =
                    self.random.pick(&[50, 800, 3_000, 10_000, 100_000, 400_000, i64::MAX]);
                (self.sub_queue(), self.receive(TimeSpan::from_ms(milliseconds)))
            }
            Kind::CancelReceive => {
                let call = match self.random.pick_some(&view.waiting) {
                    Some(call) if self.random.percent(85) => call,
                    _ => self.random.below(ticket),
                };
                (self.sub_queue(), Operation::CancelReceive { call })
            }
            Kind::ReceiveDeferred if view.deferred.is_empty() && self.random.percent(85) => {
                self.operation(Kind::Settle, ticket, view)
            }
            Kind::ReceiveDeferred => {
                let sub_queue = self.sub_queue();
                let there: Vec<u64> = view
                    .deferred
                    .iter()
                    .filter(|(_, place)| *place == sub_queue)
                    .map(|(sequence, _)| *sequence)
                    .collect();
                let sequences = self.numbers(&there, view.last_sequence);
                let mode = self.mode();
                let holder = self.holder();
                (sub_queue, Operation::ReceiveDeferred { mode, sequences, holder })
            }
            Kind::Attach => {
                let receiver = self.new_receiver();
                (self.sub_queue(), Operation::Attach { receiver, mode: self.mode() })
            }
            Kind::Grant => {
                let Some(link) = self.random.pick_some(&view.links) else {
                    return self.operation(Kind::Attach, ticket, view);
                };
                let credit = self.random.pick(&[0, 1, 1, 2, 3, 5, 8, 20]);
                let drain = if self.random.percent(25) { Drain::Yes } else { Drain::No };
                let room = self.random.pick(&[0, 1, 100, ROOMY, ROOMY, ROOMY, ROOMY, ROOMY]);
                // Occasionally less than already sent.
                let delivery_limit = match self.random.below(30) {
                    0 => link.sent.saturating_sub(1),
                    _ => link.sent + credit,
                };
                let byte_limit = link.sent_bytes + room;
                let receiver = link.receiver;
                (link.sub_queue, Operation::Grant { receiver, delivery_limit, byte_limit, drain })
            }
            Kind::Detach => {
                let mut ends: Vec<(u64, SubQueue)> =
                    view.links.iter().map(|link| (link.receiver, link.sub_queue)).collect();
                ends.extend(&view.holders);
                let Some((receiver, sub_queue)) = self.random.pick_some(&ends) else {
                    return self.operation(Kind::Attach, ticket, view);
                };
                let end = self.random.pick(&[
                    LinkEnd::Orderly,
                    LinkEnd::Orderly,
                    LinkEnd::Broken,
                    LinkEnd::Lost,
                    LinkEnd::ByBroker,
                ]);
                (sub_queue, Operation::Detach { receiver, end })
            }
            // If there is nothing to settle, usually draw the step that leads there.
            Kind::Settle if view.locks.is_empty() && self.random.percent(85) => {
                self.operation(Kind::ReceiveNow, ticket, view)
            }
            Kind::Settle => {
                let (lock, sub_queue) = self.lock(view);
                (sub_queue, Operation::Settle { lock, settlement: self.decision() })
            }
            Kind::Renew => {
                let (lock, sub_queue) = self.lock(view);
                (sub_queue, Operation::RenewLock { lock })
            }
            Kind::Peek => {
                let from = self.random.pick(&[0, 0, 1, 3, view.last_sequence]);
                let count_max = self.random.pick(&[0, 1, 2, 4, 5, 100]);
                (self.sub_queue(), Operation::Peek { from, count_max })
            }
            Kind::DeleteBatch => {
                let count_max = self.random.pick(&[0, 1, 1, 2, 3, 4, 5]);
                let enqueued_before = match self.random.below(4) {
                    0 | 1 => None,
                    2 => Some(view.now.plus(TimeSpan::from_seconds(1))),
                    _ => Some(view.now.minus(TimeSpan::from_seconds(5))),
                };
                (self.sub_queue(), Operation::DeleteBatch { count_max, enqueued_before })
            }
            Kind::DeleteDeferred => {
                let (sequence, sub_queue) = match self.random.pick_some(&view.deferred) {
                    Some(there) if self.random.percent(85) => there,
                    _ => (self.random.below(view.last_sequence + 2), self.sub_queue()),
                };
                (sub_queue, Operation::DeleteDeferred { sequence })
            }
            Kind::BreakLocks => {
                let (locked, sub_queue) = match self.random.pick_some(&view.locked) {
                    Some(there) => there,
                    None => (self.random.below(view.last_sequence + 2), self.sub_queue()),
                };
                let other = self.random.below(view.last_sequence + 2);
                let sequences =
                    if self.random.percent(70) { vec![locked] } else { vec![other, locked] };
                (sub_queue, Operation::BreakLocks { sequences, counts: self.random.percent(50) })
            }
            Kind::Act => {
                let (sub_queue, act) = self.act(view);
                (sub_queue, Operation::Act(Box::new(act)))
            }
            Kind::ForgetJob => (self.target(), Operation::ForgetJob(self.job())),
            Kind::Update => {
                let description = Box::new(self.update(view));
                let read_at = match self.random.below(10) {
                    0..6 => None,
                    6..9 => Some(view.updated_at),
                    _ => Some(view.updated_at.plus(TimeSpan::from_ticks(1))),
                };
                (self.target(), Operation::Update { description, read_at })
            }
            Kind::Describe => (self.target(), Operation::Describe),
            Kind::Inspect => (self.sub_queue(), Operation::Inspect(Box::new(self.heads(view)))),
            Kind::Transact => self.transact(ticket, view),
        }
    }

    /// A page of messages in some states, from any number or either end.
    fn heads(&mut self, view: &View) -> HeadQuery {
        let number = SequenceNumber(self.random.below(view.last_sequence + 2));
        let cursor = Cursor { at: Timestamp::NONE, sequence: number };
        let states = match self.random.below(3) {
            0 => HeadStates::ALL,
            1 => HeadStates::default().with(self.random.pick(&HeadState::ALL)),
            _ => (0..3).map(|_| self.random.pick(&HeadState::ALL)).collect(),
        };
        HeadQuery {
            session: None,
            states,
            order: HeadOrder::Number,
            is_descending: self.random.percent(50),
            start: self.random.pick(&[
                HeadStart::End,
                HeadStart::End,
                HeadStart::Number(number),
                HeadStart::After(cursor),
            ]),
            count_max: self.random.pick(&[0, 1, 2, 3, 5, 100, ROW_COUNT_MAX, ROW_COUNT_MAX + 1]),
        }
    }

    /// The main queue, and rarely a sub-queue, for operations that are refused there.
    fn target(&mut self) -> SubQueue {
        if self.random.percent(97) { SubQueue::Main } else { self.sub_queue() }
    }

    fn receive(&mut self, wait: TimeSpan) -> Operation {
        Operation::Receive {
            mode: self.mode(),
            count_max: if self.random.percent(2) {
                0
            } else {
                self.random.pick(&[1, 1, 1, 2, 3, 10])
            },
            bytes_max: self.random.pick(&[ROOMY, ROOMY, ROOMY, 0, 1, 150, 250_000]),
            wait,
            holder: self.holder(),
        }
    }

    fn mode(&mut self) -> ReceiveMode {
        if self.random.percent(80) { ReceiveMode::PeekLock } else { ReceiveMode::ReceiveAndDelete }
    }

    fn holder(&mut self) -> Option<u64> {
        if self.random.percent(30) { Some(self.new_receiver()) } else { None }
    }

    const fn new_receiver(&mut self) -> u64 {
        self.next_receiver += 1;
        self.next_receiver
    }

    fn lock(&mut self, view: &View) -> (LockName, SubQueue) {
        match self.random.pick_some(&view.locks) {
            Some(held) if self.random.percent(92) => held,
            // An expired lock, or one that never existed.
            _ => {
                let past = self.random.below(view.locks_given + 1);
                (LockName(self.random.pick(&[past, past, u64::MAX - past])), self.sub_queue())
            }
        }
    }

    /// Mostly suitable numbers, occasionally an unsuitable or repeated one.
    fn numbers(&mut self, fitting: &[u64], last: u64) -> Vec<u64> {
        let count = self.random.pick(&[0, 1, 1, 1, 1, 2, 2, 3]);
        let mut numbers = Vec::new();
        for _ in 0..count {
            let number = match self.random.pick_some(fitting) {
                Some(number) if self.random.percent(90) => number,
                _ => self.random.below(last + 3),
            };
            if !numbers.contains(&number) || self.random.percent(20) {
                numbers.push(number);
            }
        }
        numbers
    }

    fn decision(&mut self) -> Decision {
        match self.random.below(100) {
            0..24 => Decision::Complete,
            24..54 => Decision::Abandon(self.properties(), self.delay()),
            54..72 => Decision::Defer(self.properties()),
            72..87 => Decision::DeadLetter(self.properties()),
            _ => Decision::Release,
        }
    }

    /// Mostly none, occasionally one that is too long (RTY-02).
    fn delay(&mut self) -> Option<TimeSpan> {
        if self.random.percent(55) {
            return None;
        }
        let most = self.profile.limits.retry_delay_max;
        let milliseconds =
            self.random.pick(&[0, 0, 1, 100, 1_000, 1_000, 2_000, 5_000, 5_000, 12_000, -1, -2]);
        Some(match milliseconds {
            -1 => most,
            -2 => most.plus(TimeSpan::from_ms(1)),
            some => TimeSpan::from_ms(some),
        })
    }

    fn properties(&mut self) -> Option<Properties> {
        if self.random.percent(65) {
            return None;
        }
        let error = "peeklock-last-error";
        let keys = ["a", "b", error, "DeadLetterReason", "DeadLetterErrorDescription", error];
        let mut pairs: Vec<(String, String)> = Vec::new();
        for _ in 0..self.random.pick(&[1, 1, 2, 3]) {
            let key = self.random.pick(&keys);
            if pairs.iter().any(|(other, _)| other == key) {
                continue;
            }
            let length = self.random.pick(&[0, 1, 7, 350, 1_000]);
            let letter = self.random.pick(&["x", "y", "z"]);
            pairs.push((key.to_owned(), letter.repeat(length)));
        }
        Some(Properties::new(pairs))
    }

    fn draft(&mut self, view: &View, scheduled: bool) -> Draft {
        let marker = self.next_marker;
        self.next_marker += 1;
        let time_to_live = self.random.percent(40).then(|| {
            TimeSpan::from_ms(self.random.pick(&[1, 100, 1_000, 1_000, 3_000, 8_000, 45_000]))
        });
        let delay = self.random.pick(&[-1_000, 0, 1, 1_000, 2_000, 2_000, 5_000, 12_000]);
        // The encoding has a resolution of milliseconds.
        let scheduled_at =
            scheduled.then(|| Timestamp::from_unix_ms(view.now.unix_ms().saturating_add(delay)));
        let pretended_bytes = if self.random.percent(9) {
            self.random.pick(&[1, 2, 4, 7, 10, 12]) * 100_000
        } else {
            0
        };
        let pretended_header_bytes =
            if self.random.percent(if self.profile.has_full_headers { 70 } else { 3 }) {
                self.random.pick(&[64_500, 65_500])
            } else {
                0
            };
        let flaw = match self.random.below(60) {
            0 => Some(Flaw::Size),
            1 => Some(Flaw::Property(Condition::ArgumentOutOfRange)),
            2 => Some(Flaw::Property(Condition::ArgumentError)),
            _ => None,
        };
        let mut draft = Draft {
            marker,
            id: self.random.percent(60).then(|| self.random.pick(&[0, 1, 2, 3, 4, 5, 6, 7])),
            time_to_live,
            scheduled_at,
            pretended_bytes,
            pretended_header_bytes,
            size: 0,
            header_size: 0,
            flaw,
        }
        .measured();
        // Occasionally the largest message, or one byte more (SND-22).
        let largest = view.description.max_message_size_in_kilobytes << 10;
        if self.random.percent(2)
            && let Ok(largest) = u32::try_from(largest)
            && largest >= draft.size
        {
            draft.pretended_bytes += largest - draft.size + self.random.pick(&[0, 1]);
            draft = draft.measured();
        }
        // Occasionally exactly the remaining room, or one byte more (SND-24).
        if self.random.percent(4)
            && let Ok(room) = u32::try_from(view.room_bytes)
            && room >= draft.size
            && room < 1_000_000
        {
            draft.pretended_bytes += room - draft.size + self.random.pick(&[0, 1]);
            draft = draft.measured();
        }
        draft
    }

    fn update(&mut self, view: &View) -> QueueDescription {
        let mut description = view.description.clone();
        if description.status != EntityStatus::Active && self.random.percent(75) {
            description.status = EntityStatus::Active;
            return description;
        }
        let seconds = TimeSpan::from_seconds;
        match self.random.below(9) {
            8 => description.retry_policy = retry_policy(&mut self.random),
            0 => description.lock_duration = self.random.pick(&[seconds(5), seconds(10)]),
            1 => description.max_delivery_count = self.random.pick(&[1, 2, 3, 10]),
            2 => description.dead_lettering_on_message_expiration ^= true,
            3 => {
                description.default_message_time_to_live =
                    self.random.pick(&[seconds(2), seconds(10), TimeSpan::MAX]);
            }
            4 => {
                description.status = self.random.pick(&[
                    EntityStatus::Disabled,
                    EntityStatus::SendDisabled,
                    EntityStatus::ReceiveDisabled,
                ]);
            }
            5 => description.max_size_in_megabytes = self.random.pick(&[1, 2, 1_024]),
            6 => {
                description.duplicate_detection_history_time_window =
                    self.random.pick(&[seconds(20), seconds(40), seconds(60)]);
            }
            _ => {
                description.user_metadata = Some("changed".into());
                description.auto_delete_on_idle =
                    self.random.pick(&[TimeSpan::MAX, TimeSpan::from_minutes(5)]);
            }
        }
        description
    }
}

/// A receiver ends only once.
fn ends_twice(earlier: &[Request], request: &Request) -> bool {
    let Operation::Detach { receiver, .. } = request.operation else { return false };
    earlier.iter().any(
        |other| matches!(other.operation, Operation::Detach { receiver: same, .. } if same == receiver),
    )
}
