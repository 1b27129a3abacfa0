//! The messages of one queue from its creation to its deletion.

use std::collections::{BTreeMap, HashMap};

use super::message::{Message, Place, State, There, Wait};
use crate::inspection::QueueSeen;
use crate::ledger::{Id, Outcome, Part, Seen, Sent};

#[derive(Default)]
pub struct QueueBook {
    messages: BTreeMap<Id, Message>,
    /// Message of each sequence number ever seen.
    numbers: HashMap<u64, Id>,
    /// Highest known sequence number, now and at the start of the round.
    number_max: u64,
    number_max_before: u64,
    round: u32,
    /// Maximum of messages that receive-and-delete requests with a lost answer may have taken from
    /// the queue, and from its dead-letter queue.
    losses: [u64; 2],
    /// Batches with an unknown outcome: each is stored completely or not at all.
    open_batches: Vec<Vec<Id>>,
    /// Cancellations of several messages with an unknown outcome.
    open_cancels: Vec<Vec<Id>>,
    /// Batches stored in this round.
    batches: Vec<Vec<Id>>,
    findings: Vec<(&'static str, u64)>,
}

type Complain<'a> = &'a mut dyn FnMut(String);

impl QueueBook {
    /// Number of messages that may exist.
    pub fn message_count(&self) -> usize {
        self.messages.values().filter(|message| message.is_there()).count()
    }

    /// Number of findings by kind since the last call.
    pub fn take_findings(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.findings)
    }

    /// Whether one of these messages may be enqueued by now.
    pub fn may_be_due(&self, ids: &[Id], at: u64) -> bool {
        ids.iter().filter_map(|id| self.messages.get(id)).any(|message| message.is_due(at))
    }

    /// Records a send of messages, all or none.
    pub fn send(
        &mut self,
        round: u32,
        (sender, tick, ended_at): (usize, u64, u64),
        messages: Vec<Sent>,
        outcome: &Outcome,
        complain: Complain<'_>,
    ) {
        self.round = round;
        let ids: Vec<Id> = messages.iter().map(|sent| sent.id).collect();
        if let Outcome::Numbers(numbers) = outcome
            && numbers.len() != ids.len()
        {
            complain(format!("{} numbers for {} messages", numbers.len(), ids.len()));
        }
        for (place, sent) in messages.into_iter().enumerate() {
            let origin = (round, sender, tick, place);
            let number = match outcome {
                Outcome::Numbers(numbers) => numbers.get(place).copied(),
                _ => None,
            };
            let message =
                self.messages.entry(sent.id).or_insert_with(|| Message::new(&sent, origin));
            let was_stored = message.was_stored();
            let may_be_new = message.states.contains(&State::NotStored);
            if !was_stored {
                message.sent = origin;
            }
            let stored = message.stored();
            match (outcome, number) {
                (Outcome::Unknown, _) => {
                    message.note("sent", false);
                    if may_be_new && !message.states.contains(&stored) {
                        message.states.push(stored);
                    }
                }
                // DUP-02: the message is or was there already.
                (_, Some(0)) => {
                    message.note("dropped as duplicate", true);
                    if message.states == [State::NotStored] {
                        complain(format!(
                            "m{} is taken for a duplicate, and was never stored: {}",
                            sent.id,
                            message.history_text()
                        ));
                    }
                    message.states.retain(|state| *state != State::NotStored);
                }
                (Outcome::Done | Outcome::Numbers(_), number) => {
                    message.note("sent", true);
                    if was_stored {
                        complain(format!(
                            "m{} was stored again, as {number:?} (DUP-08): {}",
                            sent.id,
                            message.history_text()
                        ));
                    }
                    message.states = vec![stored];
                    message.stored_by(ended_at);
                    if let Some(number) = number {
                        self.numbered(sent.id, number, complain);
                    }
                }
                _ => message.note("refused", true),
            }
        }
        match outcome {
            Outcome::Unknown if ids.len() > 1 => self.open_batches.push(ids),
            Outcome::Done | Outcome::Numbers(_) if ids.len() > 1 => self.batches.push(ids),
            _ => {}
        }
    }

    /// Records the sequence number of a message.
    fn numbered(&mut self, id: Id, number: u64, complain: Complain<'_>) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        if message.number == Some(number) {
            return;
        }
        // SCH-03: only a scheduled message ever gets another number, which is higher.
        if let Some(before) = message.number
            && (message.due.is_none() || number < before)
        {
            complain(format!("m{id} had the number {before}, and has {number}"));
        }
        message.number = Some(number);
        if let Some(other) = self.numbers.insert(number, id)
            && other != id
        {
            complain(format!("the number {number} was m{other}'s, and is m{id}'s (MSG-12)"));
        }
        let is_of_this_round = message.sent.0 == self.round;
        if is_of_this_round && number <= self.number_max_before {
            let before = self.number_max_before;
            complain(format!("m{id} has the number {number}, though {before} was given before"));
        }
        self.number_max = self.number_max.max(number);
    }

    /// Records a delivery under lock or by receive-and-delete.
    pub fn deliver(
        &mut self,
        part: Part,
        deletes: bool,
        at: u64,
        delivered: &[Seen],
        complain: Complain<'_>,
    ) {
        for seen in delivered {
            let mut found = There::found(part, seen);
            if !deletes {
                // SET-30.
                found.count = found.count.saturating_sub(1);
            }
            let Some(id) = self.known(seen, complain) else { continue };
            let Some(message) = self.messages.get_mut(&id) else { continue };
            message.note(if deletes { "received for good" } else { "received" }, true);
            let was_delayed = matches!(message.wait, Wait::Until(..));
            if let Some(early) = message.end_wait(at) {
                complain(format!("m{id} was delivered {early}: {}", message.history_text()));
            } else if was_delayed {
                self.findings.push(("delivered after its delay", 1));
            }
            if found.place == Place::Scheduled {
                complain(format!("m{id} was delivered as {:?}", seen.standing));
            }
            if let Some(shown) = message.look_at_shown(&found.place, seen.shows_scheduled) {
                complain(format!("m{id} was delivered, {shown}: {}", message.history_text()));
            } else if seen.shows_scheduled == Some(true) && message.was_found_active {
                self.findings.push(("enqueued before a kill, Scheduled over AMQP after it", 1));
            }
            let like = if deletes {
                // The shown count is not certain (RCV-08).
                let counts = message.states.iter().filter_map(|state| match state {
                    State::There(there) => Some(There { count: there.count, ..found.clone() }),
                    State::NotStored | State::Gone => None,
                });
                counts.filter_map(|found| message.like(&found, at)).next()
            } else {
                message.like(&found, at)
            };
            match like {
                Some(_) if deletes => message.states = vec![State::Gone],
                Some(state) => message.states = vec![state],
                None => {
                    complain(format!(
                        "m{id} was delivered as {found:?}; {}",
                        message.history_text()
                    ));
                    message.states = vec![State::There(found)];
                }
            }
        }
    }

    /// Identifies a message, and checks its unchangeable parts against the sent ones.
    fn known(&mut self, seen: &Seen, complain: Complain<'_>) -> Option<Id> {
        let Some(id) = seen.id() else {
            complain(format!("the message {} was never sent", seen.message_id));
            return None;
        };
        let Some(message) = self.messages.get(&id) else {
            complain(format!("m{id} was never sent to this queue, number {}", seen.number));
            return None;
        };
        if message.print != seen.print {
            complain(format!("m{id} has {:?} and not {:?}", seen.print, message.print));
        }
        self.numbered(id, seen.number, complain);
        Some(id)
    }

    /// Records a receive-and-delete whose answer was lost.
    pub fn lose(&mut self, part: Part, count_max: u64) {
        self.losses[part as usize] += count_max;
    }

    /// Applies a change to messages, certain or possible.
    pub fn change(&mut self, ids: &[Id], is_certain: bool, change: impl Fn(&State) -> State) {
        for id in ids {
            let Some(message) = self.messages.get_mut(id) else { continue };
            message.note("changed", is_certain);
            let changed: Vec<State> = message.states.iter().map(&change).collect();
            if is_certain {
                message.states = changed;
            } else {
                for state in changed {
                    if !message.states.contains(&state) {
                        message.states.push(state);
                    }
                }
            }
        }
    }

    /// Records a settlement, certain or possible. `delay` returns the minimum and maximum delay if
    /// the settlement left the message in its place; in any other case there is no delay.
    pub fn delay(
        &mut self,
        id: Id,
        is_certain: bool,
        (begun_at, ended_at): (u64, u64),
        delay: impl Fn(bool) -> Option<(u64, u64)>,
        settle: impl Fn(&State) -> State,
    ) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let place = |state: &State| match state {
            State::There(there) => Some(there.place.clone()),
            State::NotStored | State::Gone => None,
        };
        let before: Vec<_> = message.states.iter().map(place).collect();
        let after: Vec<_> = message.states.iter().map(|state| place(&settle(state))).collect();
        let stays = before == after && !before.contains(&Some(Place::Deferred));
        let is_main = before.iter().all(|place| *place == Some(Place::Active));
        message.wait = match delay(is_main).filter(|_| stays) {
            _ if before.len() > 1 => Wait::Unknown,
            None => Wait::Never,
            Some(_) if !is_certain => Wait::Unknown,
            Some((least, most)) => Wait::Until(begun_at + least, ended_at + most),
        };
    }

    /// Records a cancellation whose answer was lost.
    pub fn cancel_unknown(&mut self, ids: Vec<Id>, at: u64) {
        self.change(&ids, false, |_| State::Gone);
        // If one message had been due, the cancellation was refused, and that message may be gone
        // because a client received it.
        if !self.may_be_due(&ids, at) {
            self.open_cancels.push(ids);
        }
    }

    /// Compares all possible states with the found ones.
    pub fn look(&mut self, round: u32, queue: &QueueSeen, at: u64, complain: Complain<'_>) {
        self.round = round;
        let mut there: HashMap<Id, There> = HashMap::new();
        let mut delayed: HashMap<Id, u64> = HashMap::new();
        let main = queue.main.iter().map(|seen| (Part::Main, seen));
        let dead = queue.dead.iter().map(|seen| (Part::DeadLetter, seen));
        for (part, seen) in main.chain(dead) {
            let Some(id) = self.known(seen, complain) else { continue };
            delayed.extend(seen.delayed_until.map(|until| (id, until)));
            if there.insert(id, There::found(part, seen)).is_some() {
                complain(format!("m{id} is there twice, now as {}", seen.number));
            }
        }
        self.close_batches(&there, complain);
        self.close_cancels(&there, complain);
        for (id, message) in &mut self.messages {
            let found = there.get(id);
            match found.map(|found| &found.place) {
                Some(Place::Active) => message.was_found_active = true,
                Some(Place::Scheduled) => message.was_scheduled = Some(true),
                _ => {}
            }
            if found.is_some() {
                let shown = delayed.get(id).copied();
                if shown.is_some() {
                    self.findings.push(("still Delayed after a kill", 1));
                }
                if let Some(what) = message.look_at_wait(shown, at) {
                    complain(format!("m{id} {what}: {}", message.history_text()));
                }
            }
            let state = match found {
                Some(found) => message.like(found, at),
                None => {
                    message.states.iter().find(|state| !matches!(state, State::There(_))).cloned()
                }
            };
            let state = match (state, found) {
                (Some(state), _) => state,
                (None, Some(found)) => {
                    complain(format!("m{id} is there as {found:?}; {}", message.history_text()));
                    State::There(found.clone())
                }
                (None, None) => {
                    let part = match message.states.first() {
                        Some(State::There(There { place: Place::Dead { .. }, .. })) => {
                            Part::DeadLetter
                        }
                        _ => Part::Main,
                    };
                    let was_deferred = |state: &State| {
                        matches!(state, State::There(There { place: Place::Deferred, .. }))
                    };
                    let loss = &mut self.losses[part as usize];
                    if *loss > 0 && !message.states.iter().all(was_deferred) {
                        *loss -= 1;
                        message.note("taken by a lost answer", true);
                        self.findings.push(("taken by a lost answer", 1));
                    } else {
                        complain(format!("m{id} is lost; {}", message.history_text()));
                    }
                    State::Gone
                }
            };
            if message.states.len() > 1 {
                let what = match (&state, message.states.contains(&State::NotStored)) {
                    (State::There(_), true) => "unknown send was stored",
                    (State::NotStored, _) => "unknown send was not stored",
                    (State::Gone, _) => "unknown settlement was carried out",
                    (State::There(_), false) => "unknown settlement, still there",
                };
                self.findings.push((what, 1));
            }
            message.states = vec![state];
        }
        self.check_order(complain);
    }

    /// SND-29: a batch of which one message was stored was stored whole.
    fn close_batches(&mut self, there: &HashMap<Id, There>, complain: Complain<'_>) {
        for batch in std::mem::take(&mut self.open_batches) {
            let stored = |id: &Id| {
                there.contains_key(id) || self.messages.get(id).is_some_and(Message::was_stored)
            };
            let count = batch.iter().filter(|id| stored(id)).count();
            if count == 0 {
                self.findings.push(("unknown batch was not stored", 1));
                continue;
            }
            self.findings.push(("unknown batch was stored", 1));
            let missing = |id: &&Id| !stored(id);
            if self.losses == [0, 0] && count < batch.len() {
                let missing: Vec<&Id> = batch.iter().filter(missing).collect();
                complain(format!("of the batch {batch:?} these are missing: {missing:?}"));
            }
            for id in &batch {
                if let Some(message) = self.messages.get_mut(id) {
                    message.states.retain(|state| *state != State::NotStored);
                }
            }
            self.batches.push(batch);
        }
    }

    /// SCH-05: several messages are cancelled all or none.
    fn close_cancels(&mut self, there: &HashMap<Id, There>, complain: Complain<'_>) {
        for cancel in std::mem::take(&mut self.open_cancels) {
            let count = cancel.iter().filter(|id| there.contains_key(id)).count();
            if count > 0 && count < cancel.len() {
                complain(format!("of {cancel:?} {count} are left of a cancellation"));
            }
        }
    }

    /// SND-09, SND-31: numbers ascend in the order of a client's sends, and are consecutive in a
    /// batch.
    fn check_order(&self, complain: Complain<'_>) {
        for batch in &self.batches {
            let numbers: Vec<(usize, u64)> = batch
                .iter()
                .enumerate()
                .filter_map(|(place, id)| {
                    let message = self.messages.get(id)?;
                    Some((place, message.number.filter(|_| message.due.is_none())?))
                })
                .collect();
            let follow = |one: &(usize, u64), next: &(usize, u64)| {
                next.1.checked_sub(one.1) == Some((next.0 - one.0) as u64)
            };
            if !numbers.is_sorted_by(follow) {
                complain(format!("the batch {batch:?} has the numbers {numbers:?}"));
            }
        }
        let sent_now = |message: &&Message| message.sent.0 == self.round && message.due.is_none();
        let mut sent: Vec<_> = self
            .messages
            .values()
            .filter(sent_now)
            .filter_map(|message| Some((message.sent, message.number?)))
            .collect();
        sent.sort_unstable();
        for pair in sent.windows(2) {
            let [(one, number), (next, next_number)] = pair else { continue };
            if one.1 == next.1 && number >= next_number {
                complain(format!("client {} sent {number} before {next_number}", one.1));
            }
        }
    }

    /// Starts the next round.
    pub fn close_round(&mut self) {
        self.number_max_before = self.number_max;
        self.losses = [0, 0];
        self.batches.clear();
    }
}
