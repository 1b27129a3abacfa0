//! Answers of entities, and reactions of receivers.

use std::sync::Arc;

use peeklock_core::command::{Command, Outcome, Settlement};
use peeklock_core::ids::LockToken;
use peeklock_core::path::SubQueue;
use peeklock_core::request::Released;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{Operation, Part};

use super::{CommandKind, FAN, TOPIC, World, sent_in};
use crate::ground::{load, marker};

impl World {
    /// Passes outputs of the broker to the clients.
    pub(super) fn process_outputs(&mut self) {
        for item in self.outlet.take() {
            let Released::Answer { correlation, result } = item else { continue };
            self.note(|| match &result {
                Ok(Outcome::Received(all)) => {
                    let all: Vec<_> = all.iter().map(|one| one.facts.sequence).collect();
                    format!("  {correlation}: received {all:?}")
                }
                Ok(other) => format!(
                    "  {correlation}: {}",
                    &format!("{other:?}")[..20.min(format!("{other:?}").len())]
                ),
                Err(error) => format!("  {correlation}: {error}"),
            });
            let Some((asked, path)) = self.asked.remove(&correlation) else { continue };
            match (asked, result) {
                (CommandKind::Send(markers), Ok(outcome)) => {
                    let numbers = match outcome {
                        Outcome::Accepted(number) => vec![number],
                        Outcome::AcceptedBatch(numbers) => numbers,
                        Outcome::Committed(parts) => sent_in(&parts),
                        other => panic!("a send is answered with {other:?}"),
                    };
                    for (marker, number) in markers.into_iter().zip(numbers) {
                        if number.0 > 0 {
                            self.judge.acknowledged.insert(marker);
                        }
                    }
                }
                (CommandKind::Receive, Ok(Outcome::Received(messages))) => {
                    for message in messages {
                        let lock = message.facts.lock.expect("it is received under lock");
                        let loading = message.content.load();
                        let refuses = || self.odds.unknown > 0 && self.random.one_in(10);
                        let Some(content) = load(&self.store, refuses, loading) else {
                            self.release(&path, message.facts.sub_queue, lock.token);
                            continue;
                        };
                        let marker = marker(content);
                        let Some(place) = self.judge.last.places.get(&marker) else {
                            panic!("{marker} is delivered and not stored");
                        };
                        if let Some(until) = place.delayed_until {
                            assert!(until <= self.now, "{marker} is delivered too early (RTY-13)");
                            self.seen.retried += 1;
                        }
                        self.decide(&path, message.facts.sub_queue, lock.token, marker);
                    }
                }
                (_, Ok(_) | Err(_)) => {}
            }
        }
    }

    /// Gives back a message whose content the store could not load, as transports do.
    fn release(&mut self, path: &str, sub_queue: SubQueue, token: LockToken) {
        self.seen.unread_deliveries += 1;
        let place = self.entities.iter().position(|one| one.path == path && !one.closed);
        if let Some(place) = place {
            let settlement = Settlement::Release;
            let release = Command::Settle { token, settlement };
            self.submit(place, sub_queue, release, CommandKind::Other);
        }
    }

    fn decide(&mut self, path: &str, sub_queue: SubQueue, token: LockToken, marker: u64) {
        let Some(place) = self.entities.iter().position(|one| one.path == path && !one.closed)
        else {
            return;
        };
        // Only after a single attempt is it certain which messages replaced it.
        let is_first = self.judge.tried.insert(marker);
        self.judge.replaced.remove(&marker);
        let is_topic = matches!(place, TOPIC | FAN);
        // Messages in the transfer dead-letter queue of a topic are mostly sent on.
        let drawn = if is_topic && self.random.one_in(2) { 0 } else { self.random.below(9) };
        let settlement = match drawn {
            0 => {
                self.judge.may_go.insert(marker);
                Settlement::Complete
            }
            1..=3 => {
                let limits = Arc::clone(&self.limits);
                Settlement::dead_letter(Some("r"), Some("d"), &[], &limits).unwrap()
            }
            4..=7 => {
                let delay = self
                    .random
                    .one_in(2)
                    .then(|| TimeSpan::from_seconds(i64::try_from(self.random.below(40)).unwrap()));
                Settlement::Abandon { properties: None, delay }
            }
            // The lock times out.
            _ => return,
        };
        if is_topic && matches!(settlement, Settlement::Complete) && self.random.one_in(2) {
            // Completes the dead letter and sends another message in its place (TXN-09, TXN-14).
            let (via, markers) = self.send_via();
            let part = |sub_queue, operation| Part {
                member: None,
                sub_queue,
                operation,
                numbers: Vec::new(),
            };
            let parts = vec![
                part(sub_queue, Operation::Settle { token, settlement }),
                part(SubQueue::Main, Operation::of(via).unwrap()),
            ];
            self.seen.topic_commits += 1;
            if is_first {
                self.judge.replaced.insert(marker, markers.clone());
            }
            self.submit(
                place,
                SubQueue::Main,
                Command::Commit { parts },
                CommandKind::Send(markers),
            );
            return;
        }
        // A delayed message may have another destination when it is due (RTY-14).
        let is_retried = matches!(settlement, Settlement::Abandon { .. });
        self.submit(place, sub_queue, Command::Settle { token, settlement }, CommandKind::Other);
        if is_retried && (sub_queue == SubQueue::DeadLetter || self.random.one_in(3)) {
            let update = self.draw_update(place);
            self.submit(place, SubQueue::Main, update, CommandKind::Other);
        }
    }
}
