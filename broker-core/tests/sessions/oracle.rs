//! Sessions by the specification alone: every message in one list, an explicit state each, linear
//! scans everywhere. Written from files 11 and 07, not from the machine.

#[path = "oracle/act.rs"]
mod act;

use std::collections::{BTreeMap, BTreeSet};

use peeklock_core::command::{ActResult, LinkEnd};
use peeklock_core::condition::Condition;
use peeklock_core::time::{TimeSpan, Timestamp};

pub const LOCK: TimeSpan = TimeSpan::from_seconds(10);
pub const DELIVERY_COUNT_MAX: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Scheduled,
    Available,
    /// Until its instant (file 26).
    Delayed,
    Locked,
    Deferred,
    LockedDeferred,
    DeadLettered,
    Gone,
}

#[derive(Clone, Debug)]
pub struct Message {
    pub sequence: u64,
    pub session: String,
    pub state: State,
    pub count: u32,
    enqueued_at: Timestamp,
    time_to_live: Option<TimeSpan>,
    /// The delivery that has the lock.
    delivery: u64,
    /// Its last change is not durable (DESIGN D5).
    in_flight: bool,
    /// End of its delay, while it is delayed.
    delayed_until: Timestamp,
}

#[derive(Clone, Debug)]
struct Hold {
    receiver: u64,
    until: Timestamp,
    /// Unique id of this lock.
    lock: u64,
}

#[derive(Clone, Debug)]
struct Call {
    ticket: u64,
    receiver: u64,
    count_max: usize,
    deadline: Timestamp,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Done,
    Number(u64),
    Accepted(String),
    /// Number, shown count, and the name of the delivery.
    Messages(Vec<(u64, u32, u64)>),
    State(Option<u8>),
    Until(Timestamp),
    Deleted(u64),
    Broken(u64),
    Acted(Vec<ActResult>),
    Refused(Condition),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settlement {
    Complete,
    /// With its delay, if any.
    Abandon(Option<TimeSpan>),
    Defer,
    DeadLetter,
    Release,
}

#[derive(Clone)]
pub struct Oracle {
    pub now: Timestamp,
    pub messages: Vec<Message>,
    pub states: BTreeMap<String, u8>,
    holds: BTreeMap<String, Hold>,
    accepts: Vec<Call>,
    calls: Vec<Call>,
    /// Every delivery: the message and its session lock.
    deliveries: Vec<(u64, u64)>,
    whole: bool,
    /// Whether other messages pass a delayed one (RTY-23), and the fixed delay of a policy
    /// (RTY-17).
    passes: bool,
    policy: Option<TimeSpan>,
    next_sequence: u64,
    next_lock: u64,
    pub answers: BTreeMap<u64, Reply>,
    pub reached: BTreeMap<&'static str, u64>,
}

impl Oracle {
    pub fn new(now: Timestamp, whole: bool, passes: bool, policy: Option<TimeSpan>) -> Self {
        Self {
            now,
            messages: Vec::new(),
            states: BTreeMap::new(),
            holds: BTreeMap::new(),
            accepts: Vec::new(),
            calls: Vec::new(),
            deliveries: Vec::new(),
            whole,
            passes,
            policy,
            next_sequence: 1,
            next_lock: 1,
            answers: BTreeMap::new(),
            reached: BTreeMap::new(),
        }
    }

    pub fn reach(&mut self, rule: &'static str) {
        *self.reached.entry(rule).or_default() += 1;
    }

    fn number(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    fn is_expired(&self, message: &Message) -> bool {
        message.time_to_live.is_some_and(|span| message.enqueued_at.plus(span) <= self.now)
    }

    /// SES-04
    pub fn sessions(&self) -> BTreeSet<String> {
        let present = |one: &&Message| !matches!(one.state, State::DeadLettered | State::Gone);
        let of_messages = self.messages.iter().filter(present).map(|one| one.session.clone());
        of_messages.chain(self.states.keys().cloned()).chain(self.holds.keys().cloned()).collect()
    }

    /// Number of deliveries.
    pub fn delivery_count(&self) -> u64 {
        self.deliveries.len() as u64
    }

    pub fn holders(&self) -> Vec<u64> {
        self.holds.values().map(|hold| hold.receiver).collect()
    }

    pub fn held_count(&self) -> u64 {
        self.holds.len() as u64
    }

    /// Processes due events, before an operation.
    pub fn advance(&mut self) {
        let over = self.holds.iter().find(|(_, hold)| hold.until <= self.now);
        if let Some((session, hold)) = over.map(|(session, hold)| (session.clone(), hold.clone())) {
            self.reach("SES-30");
            self.end_calls_of(hold.receiver, &Reply::Refused(Condition::SessionLockLost));
            self.end_hold(&session, LinkEnd::Broken);
            return self.advance();
        }
        let mut due: Vec<(Timestamp, u64, usize)> = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            if message.state == State::Scheduled && message.enqueued_at <= self.now {
                due.push((message.enqueued_at, message.sequence, index));
            }
        }
        due.sort_unstable();
        for (_, _, index) in due {
            self.reach("SCH-03");
            let sequence = self.number();
            let now = self.now;
            let message = &mut self.messages[index];
            message.sequence = sequence;
            message.enqueued_at = now;
            message.state = State::Available;
            message.in_flight = true;
        }
        for index in 0..self.messages.len() {
            let message = &mut self.messages[index];
            if message.state == State::Delayed && message.delayed_until <= self.now {
                message.state = State::Available;
                self.reach("RTY-03");
            }
        }
        self.expire();
    }

    /// EXP-41 to EXP-47, RTY-25
    fn expire(&mut self) {
        if self.holds.is_empty() && self.accepts.is_empty() {
            return;
        }
        let waits = |one: &Message| {
            matches!(one.state, State::Available | State::Delayed) && !one.in_flight
        };
        let expired: BTreeSet<String> = self
            .messages
            .iter()
            .filter(|one| waits(one) && self.is_expired(one))
            .map(|one| one.session.clone())
            .collect();
        for index in 0..self.messages.len() {
            let message = &self.messages[index];
            let own = self.is_expired(message);
            if waits(message) && expired.contains(&message.session) && (self.whole || own) {
                self.reach(if own { "EXP-20" } else { "EXP-41" });
                self.messages[index].state = State::DeadLettered;
            }
        }
    }

    /// Serves waiting calls, after an operation.
    pub fn serve(&mut self) {
        self.expire();
        self.give_sessions();
        self.give_messages();
        self.time_out();
    }

    /// Makes everything durable, with all consequences.
    pub fn commit(&mut self) {
        while self.messages.iter().any(|message| message.in_flight) {
            for message in &mut self.messages {
                message.in_flight = false;
            }
            self.serve();
        }
    }

    /// SES-19, SES-20: the lowest number. A message on its way back blocks later ones, and so does
    /// a delayed one unless they may pass it (RTY-22 to RTY-24).
    fn next_of(&self, session: &str) -> Option<usize> {
        let of_session = self.messages.iter().enumerate().filter(|(_, message)| {
            let counts = message.state == State::Available
                || (message.state == State::Delayed && !self.passes);
            message.session == session && counts
        });
        let (index, message) = of_session.min_by_key(|(_, message)| message.sequence)?;
        (message.state == State::Available && !message.in_flight).then_some(index)
    }

    /// Whether the lowest message of a session is delayed and a later one is available.
    fn is_retried(&self, session: &str) -> bool {
        let mut rest: Vec<&Message> = self
            .messages
            .iter()
            .filter(|one| matches!(one.state, State::Available | State::Delayed))
            .filter(|one| one.session == session && !one.in_flight)
            .collect();
        rest.sort_unstable_by_key(|one| one.sequence);
        let is_delayed = |one: &&Message| one.state == State::Delayed;
        rest.first().is_some_and(is_delayed) && !rest.iter().all(is_delayed)
    }

    /// SES-07, SES-08
    fn give_sessions(&mut self) {
        while !self.accepts.is_empty() {
            let sessions: BTreeSet<String> = self.sessions();
            let is_held_up = |one: &String| !self.holds.contains_key(one) && self.is_retried(one);
            if !self.passes && sessions.iter().any(is_held_up) {
                self.reach("RTY-24");
            }
            let open = sessions
                .into_iter()
                .filter(|session| !self.holds.contains_key(session))
                .filter_map(|session| {
                    Some((self.messages[self.next_of(&session)?].sequence, session))
                })
                .min();
            let Some((_, session)) = open else { return };
            let accept = self.accepts.remove(0);
            self.reach("SES-07");
            self.hold(&session, accept.receiver);
            self.answers.insert(accept.ticket, Reply::Accepted(session));
        }
    }

    fn give_messages(&mut self) {
        for call in self.calls.clone() {
            let Some(session) = self.held_by(call.receiver) else { continue };
            if self.is_retried(&session) {
                self.reach(if self.passes { "RTY-23" } else { "RTY-22" });
            }
            let mut given = Vec::new();
            while given.len() < call.count_max
                && let Some(index) = self.next_of(&session)
            {
                given.push(self.deliver(index, State::Locked));
            }
            if !given.is_empty() {
                self.calls.retain(|other| other.ticket != call.ticket);
                self.answers.insert(call.ticket, Reply::Messages(given));
            }
        }
    }

    fn deliver(&mut self, index: usize, state: State) -> (u64, u32, u64) {
        let lock = self.holds[&self.messages[index].session].lock;
        let message = &mut self.messages[index];
        self.deliveries.push((message.sequence, lock));
        message.delivery = self.deliveries.len() as u64;
        message.state = state;
        (message.sequence, message.count + 1, message.delivery)
    }

    fn time_out(&mut self) {
        let now = self.now;
        for call in self.calls.extract_if(.., |call| call.deadline <= now) {
            self.answers.insert(call.ticket, Reply::Messages(Vec::new()));
        }
        for call in self.accepts.extract_if(.., |call| call.deadline <= now) {
            self.answers.insert(call.ticket, Reply::Refused(Condition::ServiceTimeout));
        }
    }

    fn held_by(&self, receiver: u64) -> Option<String> {
        let found = self.holds.iter().find(|(_, hold)| hold.receiver == receiver);
        found.map(|(session, _)| session.clone())
    }

    fn hold(&mut self, session: &str, receiver: u64) {
        let hold = Hold { receiver, until: self.now.plus(LOCK), lock: self.next_lock };
        self.next_lock += 1;
        self.holds.insert(session.to_owned(), hold);
    }

    fn end_calls_of(&mut self, receiver: u64, reply: &Reply) {
        for call in self.calls.extract_if(.., |call| call.receiver == receiver) {
            self.answers.insert(call.ticket, reply.clone());
        }
    }

    /// SES-30, SES-31, SES-33
    fn end_hold(&mut self, session: &str, end: LinkEnd) {
        for index in 0..self.messages.len() {
            let message = &self.messages[index];
            if message.session != session
                || !matches!(message.state, State::Locked | State::LockedDeferred)
            {
                continue;
            }
            match end {
                LinkEnd::Broken | LinkEnd::Lost => {
                    self.fail(index, false, None);
                    if self.messages[index].state == State::Delayed {
                        self.reach("RTY-25");
                    }
                }
                LinkEnd::Orderly | LinkEnd::ByBroker => {
                    self.reach("SES-31");
                    self.give_back(index);
                }
            }
        }
        self.holds.remove(session);
    }

    fn give_back(&mut self, index: usize) {
        let message = &mut self.messages[index];
        message.state = match message.state {
            State::LockedDeferred => State::Deferred,
            _ => State::Available,
        };
    }

    /// EXP-26, EXP-28, EXP-43, SET-35, RTY-01, RTY-17
    fn fail(&mut self, index: usize, in_flight: bool, asked: Option<TimeSpan>) {
        let expired =
            self.messages[index].state == State::Locked && self.is_expired(&self.messages[index]);
        let message = &mut self.messages[index];
        message.count += 1;
        if expired || message.count >= DELIVERY_COUNT_MAX {
            message.state = State::DeadLettered;
            self.reach(if expired { "EXP-43" } else { "SET-35" });
            return;
        }
        message.in_flight = in_flight;
        let delay = asked.or(self.policy).filter(|delay| *delay > TimeSpan::ZERO);
        match delay {
            Some(delay) if message.state == State::Locked => {
                message.state = State::Delayed;
                message.delayed_until = self.now.plus(delay);
                self.reach(if asked.is_some() { "RTY-01" } else { "RTY-17" });
            }
            Some(_) | None => self.give_back(index),
        }
    }

    pub fn send(
        &mut self,
        session: &str,
        time_to_live: Option<TimeSpan>,
        delay: Option<TimeSpan>,
    ) -> Reply {
        let sequence = self.number();
        self.messages.push(Message {
            sequence,
            session: session.to_owned(),
            state: if delay.is_some() { State::Scheduled } else { State::Available },
            count: 0,
            enqueued_at: delay.map_or(self.now, |delay| self.now.plus(delay)),
            time_to_live,
            delivery: 0,
            in_flight: true,
            delayed_until: Timestamp::NONE,
        });
        Reply::Number(sequence)
    }

    /// SES-05 to SES-08
    pub fn accept(
        &mut self,
        ticket: u64,
        session: Option<&str>,
        receiver: u64,
        wait: TimeSpan,
    ) -> Option<Reply> {
        let Some(session) = session else {
            let deadline = self.now.plus(wait);
            self.accepts.push(Call { ticket, receiver, count_max: 0, deadline });
            return None;
        };
        if self.holds.contains_key(session) {
            self.reach("SES-06");
            return Some(Reply::Refused(Condition::SessionCannotBeLocked));
        }
        self.hold(session, receiver);
        Some(Reply::Accepted(session.to_owned()))
    }

    pub fn close(&mut self, receiver: u64, end: LinkEnd) -> Reply {
        self.end_calls_of(receiver, &Reply::Messages(Vec::new()));
        for accept in self.accepts.extract_if(.., |accept| accept.receiver == receiver) {
            self.answers.insert(accept.ticket, Reply::Refused(Condition::OperationCancelled));
        }
        if let Some(session) = self.held_by(receiver) {
            self.end_hold(&session, end);
        }
        Reply::Done
    }

    pub fn receive(
        &mut self,
        ticket: u64,
        receiver: u64,
        count_max: usize,
        wait: TimeSpan,
    ) -> Option<Reply> {
        if self.held_by(receiver).is_none() {
            self.reach("SES-15");
            return Some(Reply::Refused(Condition::SessionLockLost));
        }
        let deadline = self.now.plus(wait);
        self.calls.push(Call { ticket, receiver, count_max, deadline });
        None
    }

    /// DEF-03, DEF-08
    pub fn receive_deferred(&mut self, receiver: u64, sequences: &[u64]) -> Reply {
        let Some(session) = self.held_by(receiver) else {
            return Reply::Refused(Condition::SessionLockLost);
        };
        let mut found = Vec::new();
        for (place, sequence) in sequences.iter().enumerate() {
            let index = self.messages.iter().position(|one| {
                one.sequence == *sequence
                    && one.state == State::Deferred
                    && !one.in_flight
                    && !self.is_expired(one)
            });
            match index {
                Some(index) if !sequences[..place].contains(sequence) => found.push(index),
                _ => return Reply::Refused(Condition::MessageNotFound),
            }
        }
        if found.iter().any(|index| self.messages[*index].session != session) {
            self.reach("DEF-08");
            return Reply::Refused(Condition::SessionLockLost);
        }
        Reply::Messages(
            found.into_iter().map(|index| self.deliver(index, State::LockedDeferred)).collect(),
        )
    }

    /// SES-15, SES-32, SET-13
    pub fn settle(&mut self, delivery: u64, settlement: Settlement) -> Reply {
        let (_, lock) = self.deliveries[usize::try_from(delivery).unwrap() - 1];
        if !self.holds.values().any(|hold| hold.lock == lock) {
            self.reach("SES-15");
            return Reply::Refused(Condition::SessionLockLost);
        }
        let found = self.messages.iter().position(|one| {
            one.delivery == delivery && matches!(one.state, State::Locked | State::LockedDeferred)
        });
        let Some(index) = found else {
            self.reach("SET-13");
            return Reply::Refused(Condition::MessageLockLost);
        };
        let message = &mut self.messages[index];
        if let Settlement::Abandon(Some(delay)) = settlement
            && delay > TimeSpan::ZERO
            && message.state == State::LockedDeferred
        {
            self.reach("RTY-08");
            return Reply::Refused(Condition::InvalidOperation);
        }
        match settlement {
            Settlement::Complete => message.state = State::Gone,
            Settlement::DeadLetter => message.state = State::DeadLettered,
            // SET-33
            Settlement::Defer => {
                message.count += 1;
                message.in_flight = true;
                message.state = match message.count >= DELIVERY_COUNT_MAX {
                    true => State::DeadLettered,
                    false => State::Deferred,
                };
            }
            Settlement::Release => self.give_back(index),
            Settlement::Abandon(delay) => {
                self.reach("SES-20");
                self.fail(index, true, delay);
            }
        }
        Reply::Done
    }

    pub fn renew(&mut self, receiver: u64) -> Reply {
        let now = self.now;
        match self.holds.values_mut().find(|hold| hold.receiver == receiver) {
            Some(hold) => {
                hold.until = now.plus(LOCK);
                Reply::Until(hold.until)
            }
            None => Reply::Refused(Condition::SessionLockLost),
        }
    }

    /// SES-24, SES-25
    pub fn set_state(&mut self, receiver: u64, state: Option<u8>) -> Reply {
        let Some(session) = self.held_by(receiver) else {
            return Reply::Refused(Condition::SessionLockLost);
        };
        match state {
            Some(state) => self.states.insert(session, state),
            None => self.states.remove(&session),
        };
        Reply::Done
    }

    pub fn state(&self, receiver: u64) -> Reply {
        match self.held_by(receiver) {
            Some(session) => Reply::State(self.states.get(&session).copied()),
            None => Reply::Refused(Condition::SessionLockLost),
        }
    }

    /// DEL-03, DEL-04, DEL-07: in a held session, or in all sessions that are not held.
    pub fn delete(&mut self, receiver: Option<u64>, count_max: u64) -> Reply {
        let session = receiver.and_then(|receiver| self.held_by(receiver));
        if receiver.is_some() && session.is_none() {
            return Reply::Refused(Condition::SessionLockLost);
        }
        let mut doomed: Vec<(u64, usize)> = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            let is_meant = match &session {
                Some(session) => message.session == *session,
                None => !self.holds.contains_key(&message.session),
            };
            if is_meant
                && matches!(message.state, State::Available | State::Delayed)
                && !message.in_flight
                && message.enqueued_at < self.now
            {
                doomed.push((message.sequence, index));
            }
        }
        doomed.sort_unstable();
        doomed.truncate(usize::try_from(count_max).unwrap());
        for (_, index) in &doomed {
            self.messages[*index].state = State::Gone;
        }
        Reply::Deleted(doomed.len() as u64)
    }

    /// CON-26: the holder loses the session, whose deliveries count if that is asked for.
    pub fn break_session(&mut self, session: &str, counts: bool) -> Reply {
        let Some(receiver) = self.holds.get(session).map(|hold| hold.receiver) else {
            return Reply::Broken(0);
        };
        self.reach("CON-26");
        self.end_calls_of(receiver, &Reply::Refused(Condition::SessionLockLost));
        self.end_hold(session, if counts { LinkEnd::Broken } else { LinkEnd::ByBroker });
        Reply::Broken(1)
    }

    /// CON-27: only while nobody holds the session.
    pub fn set_state_unheld(&mut self, session: &str, state: Option<u8>) -> Reply {
        if self.holds.contains_key(session) {
            self.reach("CON-27 held");
            return Reply::Refused(Condition::SessionCannotBeLocked);
        }
        self.reach("CON-27");
        match state {
            Some(state) => self.states.insert(session.to_owned(), state),
            None => self.states.remove(session),
        };
        Reply::Done
    }

    /// SES-18, LIF-04
    pub fn crash(&mut self) {
        for index in 0..self.messages.len() {
            if matches!(self.messages[index].state, State::Locked | State::LockedDeferred) {
                self.reach("LIF-04");
                self.give_back(index);
            }
        }
        self.holds.clear();
        self.calls.clear();
        self.accepts.clear();
        self.answers.clear();
    }
}
