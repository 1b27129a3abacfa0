//! Settlement and renewal, by delivery number or by lock token.

use peeklock_core::command::{Command, Settlement};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, Ticket};
use peeklock_core::message::Overlay;
use peeklock_link::pending::correlation;

use super::Conversation;
use super::inbound::{Asked, Done, Refusal};
use super::pending::{Expect, Keyed};
use crate::frame::message::Properties;
use crate::frame::text::Token;
use crate::frame::{Decision, FailedRange, Notice, Range, Renew, Renewed, Settle, Settled};

/// What a settlement or renewal names: keys with their locks, and what fails at once.
struct Targets {
    keys: Vec<u32>,
    tokens: Vec<LockToken>,
    failed: Vec<FailedRange>,
}

impl Conversation {
    pub(super) fn settle(&mut self, asked: Asked, settle: Settle) -> Done {
        let number = settle.link;
        self.receiver(number)?;
        let settlement = self.settlement(&settle)?;
        let targets = self.targets(number, &settle.ranges, &settle.lock_tokens)?;
        if targets.keys.is_empty() {
            let notice = Notice::Settled(Settled { failed: targets.failed });
            self.say(asked.id, notice);
            return Ok(());
        }
        let commands = targets
            .tokens
            .iter()
            .map(|token| Command::Settle { token: *token, settlement: settlement.clone() })
            .collect();
        self.submit_targets(asked, number, targets, commands, Expect::Settled);
        Ok(())
    }

    pub(super) fn renew(&mut self, asked: Asked, renew: &Renew) -> Done {
        let number = renew.link;
        self.receiver(number)?;
        let targets = self.targets(number, &renew.ranges, &renew.lock_tokens)?;
        if targets.keys.is_empty() {
            let renewed = Renewed { locked_until_utc: None, failed: targets.failed };
            self.say(asked.id, Notice::Renewed(renewed));
            return Ok(());
        }
        let commands =
            targets.tokens.iter().map(|token| Command::RenewLock { token: *token }).collect();
        let expect = |keyed| Expect::Renewed { keyed, until: None };
        self.submit_targets(asked, number, targets, commands, expect);
        Ok(())
    }

    fn submit_targets(
        &mut self,
        asked: Asked,
        number: u32,
        targets: Targets,
        commands: Vec<Command>,
        expect: impl FnOnce(Keyed) -> Expect,
    ) {
        let Targets { keys, tokens, failed } = targets;
        let keyed = Keyed { link: number, left: keys.len(), keys, tokens, failed };
        let slot = self.await_answer(asked, number, expect(keyed));
        let mut ticket = self.links.tickets(commands.len() as u64);
        for (index, command) in commands.into_iter().enumerate() {
            self.links.submit_as(number, ticket, command, correlation(slot, index));
            ticket = Ticket(ticket.0 + 1);
        }
    }

    /// What a settlement or renewal in a transaction names.
    pub(super) fn keyed(
        &self,
        number: u32,
        ranges: &[Range],
        tokens: &[Token],
    ) -> Result<Keyed, Refusal> {
        let Targets { keys, tokens, failed } = self.targets(number, ranges, tokens)?;
        Ok(Keyed { link: number, left: keys.len(), keys, tokens, failed })
    }

    /// The decision in the broker's words.
    pub(super) fn settlement(&self, settle: &Settle) -> Result<Settlement, Rejection> {
        let properties = settle.properties.as_ref();
        let has_reason = settle.reason.is_some() || settle.description.is_some();
        if has_reason && settle.decision != Decision::DeadLetter {
            let detail = "reason and description are for the decision deadLetter";
            return Err(Rejection::argument(detail));
        }
        let overlay = |properties: Option<&Properties>| match properties {
            Some(properties) if !properties.0.is_empty() => {
                Overlay::encode(&properties.0).map(Some)
            }
            Some(_) | None => Ok(None),
        };
        match settle.decision {
            Decision::Complete | Decision::Release => {
                if properties.is_some_and(|properties| !properties.0.is_empty()) {
                    let detail = "complete and release set no properties";
                    return Err(Rejection::argument(detail));
                }
                Ok(if settle.decision == Decision::Complete {
                    Settlement::Complete
                } else {
                    Settlement::Release
                })
            }
            Decision::Abandon => Ok(Settlement::Abandon { properties: overlay(properties)? }),
            Decision::Defer => Ok(Settlement::Defer { properties: overlay(properties)? }),
            Decision::DeadLetter => Settlement::dead_letter(
                settle.reason.as_deref(),
                settle.description.as_deref(),
                properties.map_or(&[], |properties| &properties.0),
                &self.broker.settings().limits,
            ),
        }
    }

    /// What delivery numbers or tokens name. Numbers of no unsettled delivery of this link fail in
    /// ranges, however many they are.
    fn targets(&self, number: u32, ranges: &[Range], tokens: &[Token]) -> Result<Targets, Refusal> {
        if ranges.is_empty() == tokens.is_empty() {
            let detail = "name delivery numbers in ranges, or lockTokens, and not both";
            return Err(Rejection::argument(detail).into());
        }
        if !tokens.is_empty() {
            let tokens: Vec<LockToken> = tokens.iter().map(|Token(token)| *token).collect();
            let keys = (0..).take(tokens.len()).collect();
            return Ok(Targets { keys, tokens, failed: Vec::new() });
        }
        if let Some(Range(from, to)) = ranges.iter().find(|range| range.0 > range.1) {
            let detail = format!("the range {from} to {to} ends before it begins");
            return Err(Rejection::argument(detail).into());
        }
        let count_max = self.command_count_max();
        let link = self.link(number)?;
        let numbers = ranges.iter().map(|Range(from, to)| (*from, *to));
        let Some(named) = self.links.unsettled.named(number, numbers, count_max) else {
            let detail = format!("the ranges name more than {count_max} deliveries");
            return Err(Rejection::out_of_range(detail).into());
        };
        let path = &*link.path;
        let failed = named
            .gaps
            .into_iter()
            .map(|(from, to)| {
                let detail = format!(
                    "no unsettled delivery of link {number} has a number from {from} to {to}"
                );
                let lost = peeklock_core::condition::Condition::MessageLockLost;
                let error = self.wire_error(Rejection::new(lost, detail), path);
                FailedRange { from, to, error }
            })
            .collect();
        let (keys, tokens) = named.held.into_iter().unzip();
        Ok(Targets { keys, tokens, failed })
    }
}
