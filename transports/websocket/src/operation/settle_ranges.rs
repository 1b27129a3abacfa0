//! Settlements and renewals, which are handed over in parts: as many commands at a time as there is
//! room for.
//!
//! A range is one element of a frame and may name thousands of deliveries, each of which is a
//! command. The frame has paid for as many commands as it has elements. Further commands take
//! additional room, as much as is available at once. They do not wait for more: the frame would
//! keep its room meanwhile, and two such frames would wait for each other. The next part follows
//! when the last one is answered. No later request of the client starts before all parts are handed
//! over, so that requests are carried out in their order.

use std::sync::Arc;

use peeklock_core::Entity;
use peeklock_core::admission::{Budget, COMMAND_BYTES, Permit};
use peeklock_core::command::{Command, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, Ticket};
use peeklock_core::time::Timestamp;
use peeklock_link::pending::correlation;

use super::deliver::wire_number;
use super::{FailedRange, PendingAnswer, Range};
use crate::connection::{AdmittedRequest, Conversation, Done, Refusal};
use crate::frame::WireError;
use crate::frame::text::Token;

/// Deliveries that a settlement or renewal names, and the results until now.
pub(crate) struct NamedDeliveries {
    pub(super) link: u32,
    /// Number of ranges or tokens in the request, for which its frame has paid.
    pub(super) elements: usize,
    /// Delivery numbers, or indexes in the list of tokens.
    pub(super) keys: Vec<u32>,
    pub(super) tokens: Vec<LockToken>,
    /// Number of keys without a result.
    pub(super) left: usize,
    pub(super) failed: Vec<FailedRange>,
    /// Earliest end of the renewed locks.
    pub(super) until: Option<Timestamp>,
    /// State of the parts, if there are more commands than the frame has paid for.
    pub(super) parts: Option<Box<Handover>>,
    /// Entity for the parts: the link may be gone before the last part.
    pub(super) entity: Option<Entity>,
}

/// Command for each lock.
pub(super) enum LockOperation {
    Settle(Settlement),
    Renew,
}

/// Progress of a request that is handed over in parts.
pub(super) struct Handover {
    of_lock: LockOperation,
    /// Number of commands at a time that need no room in addition to the frame's room.
    paid: usize,
    /// Index of the first command that is not handed over.
    next: usize,
    /// Additional room of the commands under way.
    room: Option<Permit>,
}

impl LockOperation {
    pub(super) fn command(&self, token: LockToken) -> Command {
        match self {
            Self::Settle(settlement) => Command::Settle { token, settlement: settlement.clone() },
            Self::Renew => Command::RenewLock { token },
        }
    }

    /// Returns the room of a command in bytes.
    fn bytes(&self) -> u64 {
        match self {
            Self::Settle(settlement) => settlement.bytes().max(COMMAND_BYTES),
            Self::Renew => COMMAND_BYTES,
        }
    }

    /// Returns the number of commands for which this many elements of a frame have paid.
    fn paid_by(&self, elements: usize) -> usize {
        let paid = (elements as u64).saturating_mul(COMMAND_BYTES) / self.bytes();
        usize::try_from(paid).unwrap_or(usize::MAX).max(1)
    }
}

impl NamedDeliveries {
    pub(super) fn none(link: u32) -> Self {
        Self {
            link,
            elements: 0,
            keys: Vec::new(),
            tokens: Vec::new(),
            left: 0,
            failed: Vec::new(),
            until: None,
            parts: None,
            entity: None,
        }
    }

    /// Records a failure; neighbours with the same error are merged into one range.
    pub(super) fn fail(
        &mut self,
        index: usize,
        rejection: &Rejection,
        make: impl FnOnce(&Rejection) -> WireError,
    ) {
        let key = self.keys.get(index).copied().unwrap_or(0);
        if let Some(last) = self.failed.last_mut()
            && last.to.checked_add(1) == Some(key)
            && last.error.condition == rejection.condition().name()
        {
            last.to = key;
            return;
        }
        self.failed.push(FailedRange { from: key, to: key, error: make(rejection) });
    }

    /// Whether another part is left and all earlier ones are answered.
    pub(super) fn wants_next(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| {
            parts.next < self.tokens.len() && self.left + parts.next == self.tokens.len()
        })
    }

    fn has_more(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.next < self.tokens.len())
    }

    /// Returns the commands of the next part, with the index of the first. Room beyond the cost of
    /// the frame is held until they are answered.
    fn next_part(&mut self, budget: &Budget) -> (usize, Vec<Command>) {
        let Some(parts) = &mut self.parts else { return (0, Vec::new()) };
        // The room of the last part is released first.
        parts.room = None;
        let first = parts.next;
        let rest = self.tokens.get(first..).unwrap_or_default();
        let (count, room) = fit_into_budget(budget, rest.len(), parts.paid, parts.of_lock.bytes());
        parts.room = room;
        parts.next += count;
        (first, rest.iter().take(count).map(|token| parts.of_lock.command(*token)).collect())
    }
}

/// Returns how many of `all` commands may go at once, of which `paid` are paid for, and the room of
/// the others.
fn fit_into_budget(
    budget: &Budget,
    all: usize,
    paid: usize,
    bytes: u64,
) -> (usize, Option<Permit>) {
    let mut count = all;
    while count > paid {
        let more = (count - paid) as u64;
        let room = budget.try_take_list(more, more.saturating_mul(bytes));
        if room.is_some() {
            return (count, room);
        }
        count /= 2;
    }
    (all.min(paid), None)
}

impl Conversation {
    /// Issues the same command for each lock.
    pub(super) fn issue_each(
        &mut self,
        admitted: AdmittedRequest,
        mut named: NamedDeliveries,
        of_lock: LockOperation,
        expect: fn(NamedDeliveries) -> PendingAnswer,
    ) -> Done {
        let number = named.link;
        let paid = of_lock.paid_by(named.elements);
        if named.tokens.len() > paid {
            named.entity = Some(self.link(number)?.entity.clone());
            named.parts = Some(Box::new(Handover { of_lock, paid, next: 0, room: None }));
            let slot = self.await_answer(admitted, number, expect(named));
            self.hand_over_part(slot);
            return Ok(());
        }
        let commands: Vec<Command> =
            named.tokens.iter().map(|token| of_lock.command(*token)).collect();
        let slot = self.await_answer(admitted, number, expect(named));
        if commands.is_empty() {
            self.answer_named(slot);
        }
        let mut ticket = self.engine.links.tickets(commands.len() as u64);
        for (index, command) in commands.into_iter().enumerate() {
            self.engine.links.submit_as(number, ticket, command, correlation(slot, index));
            ticket = Ticket(ticket.0 + 1);
        }
        Ok(())
    }

    /// Hands over the next part of a request, after the last part is answered.
    pub(super) fn hand_over_part(&mut self, slot: usize) {
        let pending = self.engine.links.request_mut(slot);
        let Some((_, _, PendingAnswer::Settled(named) | PendingAnswer::Renewed(named))) = pending
        else {
            return;
        };
        let Some(entity) = named.entity.clone() else { return };
        let (first, commands) = named.next_part(&self.engine.budget);
        self.handing_over = named.has_more().then_some(slot);
        // Counts as progress, although no later request starts.
        let bytes = named.parts.as_ref().map_or(0, |parts| parts.of_lock.bytes());
        self.started_bytes += bytes.saturating_mul(commands.len() as u64);
        let correlations = (first..).map(|index| correlation(slot, index));
        self.engine.links.submit_all_to(&entity, correlations.zip(commands).collect());
    }

    /// Resolves delivery numbers or tokens. Numbers without an unsettled delivery of this link fail
    /// in ranges, so their count does not matter.
    pub(super) fn named_deliveries(
        &mut self,
        number: u32,
        ranges: &[Range],
        tokens: &[Token],
    ) -> Result<NamedDeliveries, Refusal> {
        if ranges.is_empty() == tokens.is_empty() {
            let detail = "give delivery numbers in ranges, or lockTokens, but not both";
            return Err(Rejection::argument(detail).into());
        }
        if !tokens.is_empty() {
            let tokens: Vec<LockToken> = tokens.iter().map(|Token(token)| *token).collect();
            let (keys, left) = ((0..).take(tokens.len()).collect(), tokens.len());
            self.engine.steps.add(left);
            return Ok(NamedDeliveries {
                elements: left,
                keys,
                tokens,
                left,
                ..NamedDeliveries::none(number)
            });
        }
        if let Some(Range(from, to)) = ranges.iter().find(|range| range.0 > range.1) {
            let detail = format!("the range {from} to {to} ends before it begins");
            return Err(Rejection::argument(detail).into());
        }
        let count_max = self.command_count_max();
        let link = self.link(number)?;
        let path = Arc::clone(&link.path);
        // A lost session takes its deliveries with it, and the broker remembers them only briefly
        // (SES-15).
        let condition = match link.has_lost_session() {
            true => Condition::SessionLockLost,
            false => Condition::MessageLockLost,
        };
        let numbers = ranges.iter().map(|Range(from, to)| (u64::from(*from), u64::from(*to)));
        let Some(found) = self.engine.links.unsettled.lookup_ranges(number, numbers, count_max)
        else {
            // The search has visited this many deliveries.
            self.engine.steps.add(count_max);
            let detail = format!("the ranges name more than {count_max} deliveries");
            return Err(Rejection::out_of_range(detail).into());
        };
        self.engine.steps.add(found.held.len() + found.gaps.len());
        let failed = found.gaps.into_iter().map(|(from, to)| {
            let detail =
                format!("no unsettled delivery of link {number} has a number from {from} to {to}");
            let rejection = Rejection::new(condition, detail);
            let (from, to) = (wire_number(from), wire_number(to));
            FailedRange { from, to, error: self.wire_error(rejection, &path) }
        });
        let (failed, left) = (failed.collect(), found.held.len());
        let held = found.held.into_iter();
        let (keys, tokens) = held.map(|(number, token)| (wire_number(number), token)).unzip();
        let elements = ranges.len();
        Ok(NamedDeliveries {
            elements,
            keys,
            tokens,
            left,
            failed,
            ..NamedDeliveries::none(number)
        })
    }
}

#[cfg(test)]
mod tests {
    use peeklock_core::message::Value;

    use super::*;

    /// Makes a request in parts for `count` deliveries that a frame names in `elements` ranges.
    fn wide(count: usize, elements: usize, of_lock: LockOperation) -> NamedDeliveries {
        let tokens: Vec<LockToken> = (0..count).map(|token| LockToken(token as u128)).collect();
        let (paid, left) = (of_lock.paid_by(elements), count);
        let parts = Some(Box::new(Handover { of_lock, paid, next: 0, room: None }));
        NamedDeliveries { elements, tokens, left, parts, ..NamedDeliveries::none(1) }
    }

    fn tokens(commands: &[Command]) -> impl Iterator<Item = u128> {
        commands.iter().map(|command| match command {
            Command::RenewLock { token } | Command::Settle { token, .. } => token.0,
            other => panic!("{other:?}"),
        })
    }

    /// DESIGN D6: commands of ranges never exceed the available room, even while others hold it.
    /// The room is held until they are answered; without any room, only the paid commands go. Each
    /// command is handed over once, in order.
    #[test]
    fn commands_of_ranges_never_exceed_the_room() {
        const ROOM: u64 = 100;

        let budget = Budget::new(1 << 30).connection(ROOM * COMMAND_BYTES);
        let frame = budget.try_take_list(2, 0);
        assert!(frame.is_some());
        let mut named = wide(1_000, 2, LockOperation::Renew);
        let mut handed_over = Vec::new();
        let mut others = None;
        while named.has_more() {
            let (first, commands) = named.next_part(&budget);
            assert_eq!(first, handed_over.len());
            let is_short = others.is_some();
            if is_short {
                assert_eq!(commands.len(), 2, "what the frame has paid for");
            } else {
                assert!(commands.len() > 8 && commands.len() as u64 <= ROOM, "{}", commands.len());
                let left = ROOM - commands.len() as u64;
                assert!(budget.try_take_list(left + 1, 0).is_none(), "the room is held");
                assert!(budget.try_take_list(left, 0).is_some());
            }
            handed_over.extend(tokens(&commands));
            for _ in 0..commands.len() {
                assert!(!named.wants_next());
                named.left -= 1;
            }
            assert_eq!(named.wants_next(), named.has_more());
            // Another client takes all the room, and releases it later.
            others = match handed_over.len() {
                400..500 => {
                    named.parts.as_mut().unwrap().room = None;
                    budget.try_take_list(ROOM - 2, 0)
                }
                _ => None,
            };
        }
        assert!(handed_over.into_iter().eq(0..1_000));
    }

    /// DESIGN D6: properties of a settlement count once per message, not once per frame.
    #[test]
    fn large_settlements_are_handed_over_by_their_bytes() {
        const BYTES: usize = 60_000;

        let budget = Budget::new(1 << 30).connection(4_096 * COMMAND_BYTES);
        let frame = budget.try_take_list(1, 0);
        assert!(frame.is_some());
        let properties = [("p".to_owned(), Value::from("v".repeat(BYTES).as_str()))];
        let settlement = || LockOperation::Settle(Settlement::defer(&properties).unwrap());
        assert_eq!(settlement().paid_by(1), 1);
        assert_eq!(settlement().paid_by(150), 10);
        let (_, commands) = wide(4_096, 1, settlement()).next_part(&budget);
        // At most all of the room, plus one command.
        let most = 4_096 * usize::try_from(COMMAND_BYTES).unwrap() / BYTES + 1;
        assert!((32..=most).contains(&commands.len()), "{} of {most}", commands.len());
    }
}
