//! Knowledge about one message: every possible state, and the earliest time of its next delivery.

use crate::ledger::{Part, Print, Seen, Sent, Standing, Verdict};

/// How much earlier than its instant, by the clock of the clients, a message may be enqueued.
const CLOCK_SLACK_MS: u64 = 100;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    NotStored,
    There(There),
    Gone,
}

/// State of a stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct There {
    pub(super) place: Place,
    /// Failed deliveries.
    pub(super) count: u64,
    pub(super) mark: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Active,
    Deferred,
    Scheduled,
    Dead { reason: Option<String> },
}

/// Time of the next delivery of an abandoned message (RTY-01, RTY-17), in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// The message has no delay.
    Never,
    /// Earliest and latest end of the delay.
    Until(u64, u64),
    /// The message may have a delay.
    Unknown,
}

/// Knowledge about a message.
pub(super) struct Message {
    pub(super) print: Print,
    pub(super) due: Option<u64>,
    /// Whether the broker stored it as scheduled; `None` if its instant may have come before it was
    /// stored.
    pub(super) was_scheduled: Option<bool>,
    /// Whether it was found enqueued after a kill.
    pub(super) was_found_active: bool,
    /// All possible states; at least one.
    pub(super) states: Vec<State>,
    pub(super) wait: Wait,
    /// Its last known sequence number.
    pub(super) number: Option<u64>,
    /// Round, sender and tick of its send, and its place in the batch.
    pub(super) sent: (u32, usize, u64, usize),
    history: Vec<Note>,
}

/// One line of a message's history.
struct Note {
    what: &'static str,
    is_certain: bool,
}

impl State {
    /// Returns the state after a settlement.
    pub fn settled(
        &self,
        verdict: Verdict,
        mark: Option<&String>,
        reason: Option<&String>,
        count_max: u64,
    ) -> Self {
        let Self::There(there) = self else { return self.clone() };
        let mut there = there.clone();
        if let Some(mark) = mark {
            there.mark = Some(mark.clone());
        }
        match verdict {
            Verdict::Complete => return Self::Gone,
            Verdict::Release => {}
            Verdict::DeadLetter => there.place = Place::Dead { reason: reason.cloned() },
            // A dead-letter queue counts no deliveries (SET-38).
            Verdict::Abandon | Verdict::Defer if matches!(there.place, Place::Dead { .. }) => {}
            // SET-28, SET-33.
            Verdict::Abandon | Verdict::Defer => {
                there.count += 1;
                if there.count >= count_max {
                    // SET-35, SET-36.
                    let reason = Some("MaxDeliveryCountExceeded".to_owned());
                    there.place = Place::Dead { reason };
                } else if verdict == Verdict::Defer {
                    there.place = Place::Deferred;
                }
            }
        }
        Self::There(there)
    }
}

impl Message {
    pub(super) fn new(sent: &Sent, origin: (u32, usize, u64, usize)) -> Self {
        Self {
            print: sent.print,
            due: sent.due,
            was_scheduled: sent.due.is_none().then_some(false),
            was_found_active: false,
            states: vec![State::NotStored],
            wait: Wait::Never,
            number: None,
            sent: origin,
            history: Vec::new(),
        }
    }

    pub(super) fn stored(&self) -> State {
        let place = if self.due.is_some() { Place::Scheduled } else { Place::Active };
        State::There(There { place, count: 0, mark: None })
    }

    pub(super) fn note(&mut self, what: &'static str, is_certain: bool) {
        self.history.push(Note { what, is_certain });
    }

    /// Records a delivery, which must not be early (RTY-13).
    pub(super) fn end_wait(&mut self, at: u64) -> Option<String> {
        let Wait::Until(from, _) = std::mem::replace(&mut self.wait, Wait::Never) else {
            return None;
        };
        (at + CLOCK_SLACK_MS < from).then(|| format!("{} ms before it was due (RTY-13)", from - at))
    }

    /// Records a peek: the message is Delayed until the same instant, and not after it (RTY-06,
    /// RTY-12).
    pub(super) fn look_at_wait(&mut self, shown: Option<u64>, at: u64) -> Option<String> {
        let wait = self.wait;
        self.wait = shown.map_or(Wait::Never, |until| Wait::Until(until, until));
        let fits = match (wait, shown) {
            (Wait::Unknown, _) | (Wait::Never, None) => true,
            (Wait::Never, Some(_)) => false,
            (Wait::Until(from, to), Some(shown)) => {
                (from..=to + CLOCK_SLACK_MS).contains(&(shown + CLOCK_SLACK_MS / 2))
            }
            (Wait::Until(from, _), None) => from <= at + CLOCK_SLACK_MS,
        };
        (!fits).then(|| format!("should wait {wait:?}, and is Delayed until {shown:?} at {at}"))
    }

    /// Records that it is stored at this time: as scheduled if it is due later.
    pub(super) fn stored_by(&mut self, at: u64) {
        if !self.is_due(at) {
            self.was_scheduled = Some(true);
        }
    }

    /// Compares the state that AMQP shows with the expected one: an enqueued message that was
    /// scheduled is shown as Scheduled until it is deferred or dead-lettered, and no other message
    /// is (PEK-05).
    pub(super) fn look_at_shown(&mut self, place: &Place, shown: Option<bool>) -> Option<String> {
        let shown = shown?;
        let expected = *place == Place::Active && *self.was_scheduled.get_or_insert(shown);
        (shown != expected).then(|| format!("shown as Scheduled: {shown} (PEK-05)"))
    }

    /// Whether it may be stored.
    pub(super) fn is_there(&self) -> bool {
        self.states.iter().any(|state| matches!(state, State::There(_)))
    }

    /// Whether it was certainly stored, even if it is gone now.
    pub(super) fn was_stored(&self) -> bool {
        !self.states.contains(&State::NotStored)
    }

    pub(super) fn is_due(&self, at: u64) -> bool {
        self.due.is_none_or(|due| due <= at + CLOCK_SLACK_MS)
    }

    /// The possible state that equals the found one, if any. A scheduled message may have been
    /// enqueued since.
    pub(super) fn like(&self, found: &There, at: u64) -> Option<State> {
        let found = State::There(found.clone());
        if self.states.contains(&found) {
            return Some(found);
        }
        let scheduled = State::There(There { place: Place::Scheduled, count: 0, mark: None });
        let enqueued = State::There(There { place: Place::Active, count: 0, mark: None });
        let is_enqueued = found == enqueued && self.states.contains(&scheduled) && self.is_due(at);
        is_enqueued.then_some(enqueued)
    }

    pub(super) fn history_text(&self) -> String {
        let mut text = String::new();
        for note in &self.history {
            let doubt = if note.is_certain { "" } else { "?" };
            text.push_str(&format!(" {}{doubt}", note.what));
        }
        format!(
            "number {:?}, {} bytes, sent in round {} by client {}, may be {:?}; history:{text}",
            self.number, self.print.bytes, self.sent.0, self.sent.1, self.states
        )
    }
}

impl There {
    /// State in which a message was found.
    pub(super) fn found(part: Part, seen: &Seen) -> Self {
        let place = match (part, seen.standing) {
            (Part::DeadLetter, _) => Place::Dead { reason: seen.reason.clone() },
            (Part::Main, Standing::Active) => Place::Active,
            (Part::Main, Standing::Deferred) => Place::Deferred,
            (Part::Main, Standing::Scheduled) => Place::Scheduled,
        };
        Self { place, count: seen.count, mark: seen.mark.clone() }
    }
}
