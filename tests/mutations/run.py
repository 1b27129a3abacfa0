#!/usr/bin/env python3
"""Breaks one rule of the broker's core at a time and checks that a test finds the break.

usage: tests/mutations/run.py [--group NAME]... [--only N | FIRST-LAST]... [--tiers A,B]
                              [--list | --check]

Works on a copy of the tree, so that the sources are unchanged. Each mutation replaces one piece of
text that must occur exactly once in its file. The tier that README.md names for it runs first, then
the others of its group in order; the first that fails has found the break, and the remaining tiers
are not built. Prints a table in Markdown
and exits with 1 if a mutation survives or cannot be applied.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = "broker-core/"
README = pathlib.Path(__file__).with_name("README.md")
# Timeout of a tier in seconds, including its build.
PATIENCE = "900"
# The crates with rules of the core, in addition to peeklock-core.
BELOW = ["peeklock-words", "peeklock-model", "peeklock-machine"]

# The tests of consumers, which use in-process handles.
IN_PROCESS = ["consumers", "renewal", "refused", "session_consumer", "unreadable"]

# Modules of the test binary `broker`.
BROKER = [
    "declarations", "filters", "forwarders", "looking", "namespace", "opening", "standby", "store_conformance",
    "unnamed",
]

# Per group: rule, requirement ids, file, text, replacement
QUEUE = [
    ("an abandoned message counts", "SET-28", "machine/src/queue/settle.rs",
     "SubQueue::Main => slot.delivery_count.saturating_add(1),", "SubQueue::Main => slot.delivery_count,"),
    ("the last allowed failure dead-letters", "SET-35", "machine/src/queue/settle.rs",
     "&& delivery_count >= self.description.max_delivery_count;", "&& delivery_count > self.description.max_delivery_count;"),
    ("expiry wins over the delivery count", "EXP-28", "machine/src/queue/settle.rs",
     "if is_main && slot.state == SlotState::Active && self.is_expired(slot, ctx.now) {", "if is_main && slot.state == SlotState::Active && self.is_expired(slot, ctx.now)\n            && self.count_at_maximum(slot).is_none() {"),
    ("an expired deferred message goes back to deferred", "EXP-38", "machine/src/queue/settle.rs",
     "if is_main && slot.state == SlotState::Active && self.is_expired(slot, ctx.now) {", "if is_main && self.is_expired(slot, ctx.now) {"),
    ("a sub-queue has no delivery limit", "SET-38", "machine/src/queue/settle.rs",
     "let is_at_maximum = slot.sub_queue == SubQueue::Main\n            && delivery_count", "let is_at_maximum = delivery_count"),
    ("a dead letter is not dead-lettered again", "DLQ-07", "machine/src/queue/settle.rs",
     "if matches!(settlement, Settlement::DeadLetter { .. }) && sub_queue != SubQueue::Main {", "if matches!(settlement, Settlement::DeadLetter { .. }) && sub_queue != SubQueue::Main && false {"),
    ("properties that do not fit are refused", "SET-10", "machine/src/queue/settle.rs",
     "if properties.is_some() && size > ctx.limits.header_bytes_max {", "if properties.is_some() && size > 2 * ctx.limits.header_bytes_max {"),
    ("a lock lasts LockDuration", "RCV-06", "machine/src/queue/lock.rs",
     "let until = ctx.now.plus(self.description.lock_duration);\n        let lock", "let until = ctx.now.plus(self.description.lock_duration.divided_by(2));\n        let lock"),
    ("a token settles its own lock only", "SET-13", "machine/src/queue/lock.rs",
     "let in_force = lock.token == token\n                && lock.until > now", "let in_force = lock.until > now"),
    ("a token is good in its sub-queue only", "SET-20", "machine/src/queue/lock.rs",
     "                && slot.sub_queue == sub_queue\n                && self.end_of_detached", "                && self.end_of_detached"),
    ("a renewed lock ends later", "SET-18", "machine/src/queue/lock.rs",
     "        self.locks.renew(lock.index, until);\n", ""),
    ("a broken lock does not count unless asked", "CON-26", "machine/src/queue/operator.rs",
     "if counts { LinkEnd::Broken } else { LinkEnd::ByBroker }", "if counts { LinkEnd::ByBroker } else { LinkEnd::Broken }"),
    ("locks end by themselves", "SET-04", "machine/src/queue/lock.rs",
     ".filter(|lock| lock.until <= ctx.now)", ".filter(|lock| lock.until < ctx.now && lock.holder.is_some())"),
    ("expired means at or after the instant", "EXP-15", "machine/src/queue/expire.rs",
     "&& self.expires_at(slot) <= now", "&& self.expires_at(slot) < now"),
    ("nothing expires while nobody receives", "EXP-31", "machine/src/queue/expire.rs",
     "        self.empty_expired_sessions(moves, ctx, step);\n        if !self.has_active_receiver() {", "        self.empty_expired_sessions(moves, ctx, step);\n        if false {"),
    ("a sub-queue does not observe TTL", "EXP-39", "machine/src/queue/expire.rs",
     "        slot.sub_queue == SubQueue::Main\n            && !matches!", "        !matches!"),
    ("the default TTL in force decides", "EXP-13", "machine/src/queue/enact.rs",
     "                self.description.clone_from(description);\n", "                let span = self.description.default_message_time_to_live;\n                self.description.clone_from(description);\n                self.description.default_message_time_to_live = span;\n"),
    ("the default TTL is a ceiling", "EXP-05", "machine/src/queue/send.rs",
     "enqueued_at.plus(own.min(self.description.default_message_time_to_live))", "enqueued_at.plus(own)"),
    ("the ceiling applies to materialised messages", "EXP-17", "machine/src/queue/schedule.rs",
     "ctx.now.plus(own.min(self.description.default_message_time_to_live))", "ctx.now.plus(own)"),
    ("a past schedule enqueues at once", "SCH-06", "machine/src/queue/send.rs",
     ".filter(|at| *at > ctx.now)", ".filter(|at| *at >= ctx.now)"),
    ("cancelling is all or none", "SCH-05", "machine/src/intake.rs",
     "!seen.insert(**sequence) || !self.is_cancellable(**sequence)", "!seen.insert(**sequence) || (seen.len() == 1 && !self.is_cancellable(**sequence))"),
    ("receiving by number is all or none", "DEF-03", "machine/src/queue/defer.rs",
     "                || !self.is_receivable_deferred(sub_queue, *sequence, ctx.now)\n", "                || (seen.len() == 1 && !self.is_receivable_deferred(sub_queue, *sequence, ctx.now))\n"),
    ("an expired deferred message is not received", "EXP-38", "machine/src/queue/defer.rs",
     "&& self.slots.get(sequence).is_some_and(|slot| !self.is_expired(slot, now))", ""),
    ("a duplicate is dropped", "DUP-02", "machine/src/duplicate_history.rs",
     ".find(|acceptance| acceptance.at.plus(window) > now)", ".find(|_| false)"),
    ("the window runs from the first acceptance", "DUP-05", "machine/src/duplicate_history.rs",
     ".find(|acceptance| acceptance.at.plus(window) > now)", ".find(|_| true)"),
    ("a duplicate of a scheduled message gives its number", "DUP-12", "machine/src/intake.rs",
     "Some(if self.is_scheduled(found) { found } else { SequenceNumber(0) })", "Some(if self.is_scheduled(found) { SequenceNumber(0) } else { SequenceNumber(0) })"),
    ("the quota counts stored messages", "SND-24", "machine/src/intake.rs",
     "if ctx.stored_bytes.saturating_add(bytes) > bytes_max {", "if bytes > bytes_max {"),
    ("a sub-queue refuses sends", "SND-20", "machine/src/queue/send.rs",
     "            SubQueue::Main => Ok(()),\n            SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {", "            SubQueue::Main | SubQueue::TransferDeadLetter => Ok(()),\n            SubQueue::DeadLetter => {"),
    ("a status that blocks sends blocks them", "ENT-24", "machine/src/queue/send.rs",
     "        self.description.status\n", "        EntityStatus::Active\n"),
    ("a call gets at most its maximum", "RCV-12", "machine/src/queue/demand.rs",
     "while messages.len() < call.count_max as usize\n            && let", "while messages.len() <= call.count_max as usize\n            && let"),
    ("a link gets no more than its credit", "RCV-16", "machine/src/queue/demand.rs",
     "self.delivery_limit.saturating_sub(self.delivered)\n", "self.delivery_limit.saturating_sub(self.delivered) + 1\n"),
    ("drained credit is given back", "RCV-18", "machine/src/queue/demand.rs",
     "        link.delivery_limit = link.delivered;\n", ""),
    ("a link goes to the end of the order after its turn", "RCV-17", "machine/src/queue/demand.rs",
     "            && count < turn_max\n", ""),
    ("a broken link counts", "SET-31", "machine/src/queue/receive.rs",
     "self.detached.entry(receiver).or_insert(end);", "self.detached.entry(receiver).or_insert(match end {\n                LinkEnd::Broken => LinkEnd::ByBroker,\n                other => other,\n            });"),
    ("a waiting call ends at its time", "RCV-11", "machine/src/queue/receive.rs",
     "filter(|(deadline, _)| *deadline <= now)", "filter(|(deadline, _)| *deadline < now)"),
    ("a status that blocks receiving blocks it", "ENT-24", "machine/src/queue/receive.rs",
     "if !self.description.status.allows_receive() {", "if false {"),
    ("a batch delete stops at the instant", "DEL-03", "machine/src/queue/browse.rs",
     "slot.enqueued_at < before", "slot.enqueued_at <= before"),
    ("peek begins at the requested number", "PEK-04", "machine/src/queue/browse.rs",
     "members.iter_from(from)", "members.iter_from(from.next())"),
    ("a message in flight is not offered", "LIF-01", "machine/src/queue/enact.rs",
     "self.insert(*sequence, *slot, session.as_deref());\n                self.mark_in_flight(*sequence, stage);", "self.insert(*sequence, *slot, session.as_deref());\n                self.offer(*sequence);"),
    ("scheduled messages keep a queue in use", "TMP-14", "machine/src/queue/idle.rs",
     "            || self.tally.counts.scheduled > 0\n", ""),
    ("every use ends idleness", "TMP-09", "machine/src/usage.rs",
     "        self.last_at = self.last_at.max(now);\n", "        let _ = now;\n"),
    ("numbers are not reused, also after a restart", "MSG-12", "machine/src/queue/records.rs",
     "self.last_sequence = self.last_sequence.max(counters.last_sequence);", ""),
    ("fixed properties stay", "ENT-16", "machine/src/queue/update.rs",
     "        self.refuse_fixed(&fixed)?;\n", "        self.refuse_fixed(&fixed).ok();\n"),
]

SESSIONS = [
    ("the state of a held session is not set by others", "CON-27", "machine/src/queue/session/state.rs",
     "if found.is_some_and(|session| session.hold().is_some()) {", "if false {"),
    ("no message of a session overtakes a returning one", "SES-20", "machine/src/queue/session/directory.rs",
     "Some(returning) if returning < first => None,", "Some(returning) if returning < first => Some(first),"),
    ("closing a session counts nothing", "SES-31", "machine/src/queue/session/hold.rs",
     "LinkEnd::Orderly | LinkEnd::ByBroker => self.release(lock.sequence()),", "LinkEnd::Orderly | LinkEnd::ByBroker => self.fail_delivery(lock.sequence(), ctx, step),"),
    ("the message that expires a session is dead-lettered last", "EXP-45", "machine/src/queue/expire.rs",
     "let sequence = expiring.others.pop_first().or_else(", "expiring.others.insert(expiring.cause);\n            let sequence = expiring.others.pop_first().or_else("),
    ("a state that is not yet stored can be read", "SES-24", "machine/src/queue/session/state.rs",
     "Some(bytes) => StateFacts::Fresh(bytes.clone()),", "Some(_) => StateFacts::Stored(self.session_state_key(session.name())),"),
    ("the session of the oldest message is next", "SES-07", "machine/src/queue/session/directory.rs",
     "self.open.first_key_value().map", "self.open.last_key_value().map"),
    ("a token is lost with its session", "SES-15", "machine/src/queue/lock.rs",
     "&& !sessions.is_in_force(token.epoch(), now)", "&& !sessions.is_in_force(token.epoch(), now)\n            && false"),
    ("no message is offered while expiration is late", "EXP-45", "machine/src/queue/demand.rs",
     "self.is_order_behind() || self.is_expiry_behind(now)", "self.is_order_behind() || (self.is_expiry_behind(now) && false)"),
    ("one expired message expires its session", "EXP-41", "machine/src/queue/expire.rs",
     "Some(sessions) if self.config.expire_whole_sessions => {", "Some(sessions) if !self.config.expire_whole_sessions => {"),
    ("a session has one holder", "SES-06", "machine/src/queue/session/accept.rs",
     "if until > ctx.now || moves_max >= COMMAND_MOVES_MAX as u64 {", "if (until > ctx.now && false) || moves_max >= COMMAND_MOVES_MAX as u64 {"),
    ("a renewed session lock lasts LockDuration", "SES-12", "machine/src/queue/session/hold.rs",
     "let until = ctx.now.plus(self.description.lock_duration);", "let until = ctx.now.plus(self.description.lock_duration.divided_by(2));"),
    ("a session lock that runs out counts", "SES-30", "machine/src/queue/session/hold.rs",
     "self.end_hold(index, LinkEnd::Broken, moves, ctx, step);", "self.end_hold(index, LinkEnd::ByBroker, moves, ctx, step);"),
    ("waiting accepts are served in order", "SES-08", "machine/src/queue/session/accept.rs",
     "        self.turns.first_key_value().map(|(turn, _)| *turn)", "        self.turns.last_key_value().map(|(turn, _)| *turn)"),
    ("the state of a session is there after a restart", "SES-25", "machine/src/queue/session/directory.rs",
     "            session.state = Some(Box::new(KnownState { set_at, size, fresh: None }));\n            self.state_count += 1;\n", "            let _ = (session, set_at, size);\n"),
]

FORWARDING = [
    ("a transfer removes its messages from the source", "FND-03", "machine/src/queue/records.rs",
     "        if let PreviousLocation::Here(origin) = previous {\n            origin.delete(batch);\n        }\n", "        let _ = previous;\n"),
    ("a failed delivery is stored before its message leaves", "FND-03", "machine/src/queue/enact.rs",
     "if self.slots.get(*sequence).is_some_and(leaves) {", "if self.slots.get(*sequence).is_some_and(leaves) && false {"),
    ("a message makes four hops", "FWD-12", "machine/src/queue/transfer/dispatch.rs",
     "receipt.is_none() && slot.hops >= self.config", "receipt.is_none() && slot.hops > self.config"),
    ("a transfer counts a hop", "FWD-13", "src/transfer/contents.rs",
     "hops: if is_forwarded { hops.saturating_add(1) } else { 0 },", "hops: if is_forwarded { *hops } else { 0 },"),
    ("nothing of a source that has ended is taken over", "FND-03", "src/transfer/claim.rs",
     "        if state.is_closed {\n            return None;\n        }\n", ""),
    ("a source that has ended waits for its guards", "FND-03", "src/transfer/claim.rs",
     "if state.claimed > 0 {", "if false {"),
    ("the guard of a failed batch is closed until its shard is owned again", "FND-03", "src/shell/writer.rs",
     "state.failed_guards.append(&mut one.guards);", "one.guards.clear();"),
    ("no message after a refused one is accepted", "FWD-10", "machine/src/take_over.rs",
     "Ok(TakeDecision::Take(plan)) if !has_refused || arrival.resent.is_some() => {", "Ok(TakeDecision::Take(plan)) if !has_refused || true => {"),
    ("an unknown outcome is read from the store", "FND-03", "src/transfer/contents.rs",
     "_ if !exists => Departure::Taken,", "_ if !exists => Departure::Unknown,"),
    ("transferred messages are not counted", "FWD-25", "machine/src/queue/transfer/depart.rs",
     "step.bytes_departed += u64::from(size);", "let _ = size;"),
    ("a failing forwarder is given up", "FWD-32", "machine/src/queue/transfer/depart.rs",
     "delivery_count >= self.description.max_delivery_count", "delivery_count > self.description.max_delivery_count"),
    ("a duplicate is taken by its destination", "FWD-22", "machine/src/queue/transfer/arrive.rs",
     "if self.find_duplicate(envelope.message_id_hash, ctx.now).is_some() {", "if false {"),
    ("a session queue refuses a transfer without session id", "DLQ-21", "machine/src/queue/transfer/arrive.rs",
     "        self.refuse_without_session(message, Condition::SessionIdIsNull)?;\n", ""),
    ("a disabled destination refuses permanently", "FWD-15", "machine/src/queue/transfer/depart.rs",
     "                | Condition::EntityDisabled\n", ""),
    ("a dead letter that is refused stays", "FWD-28", "machine/src/queue/transfer/depart.rs",
     "        if *exit == Exit::DeadLetters {\n            // It is", "        if false {\n            // It is"),
    ("a dead letter says where it was dead-lettered", "FWD-26", "machine/src/queue/transfer/arrive.rs",
     "dead_letter_source.as_deref().map(Overlay::dead_letter_source).into_iter().collect();", "{\n                let _ = &dead_letter_source;\n                Vec::new()\n            };"),
    ("no transfer starts before refusals are stored", "FWD-10", "machine/src/queue/transfer/depart.rs",
     "self.dead_letter_transfer(sequence, reason, description, ctx, step);\n        self.transfers.block_until(exit, ctx.stage);", "self.dead_letter_transfer(sequence, reason, description, ctx, step);\n        let _ = exit;"),
    ("a forwarder's message does not overtake one that its entity refused", "FWD-10", "src/actor/courier.rs",
     "if not_taking.contains(&named) {", "if not_taking.contains(&named) && false {"),
    ("a generated message id is no duplicate after forwarding", "DUP-14", "src/edge.rs",
     "let mut message = match never_duplicate {", "let mut message = match never_duplicate && false {"),
]

TOPICS = [
    ("all rules without action give one copy", "TOP-02", "words/src/rule/judging.rs",
     "        judging.hits.sort_by_key(|hit| hit.subscription);\n", ""),
    ("each rule with an action makes a copy", "TOP-03", "words/src/rule/judging.rs",
     "    for (place, changed) in changed {\n", "    for (place, changed) in changed.into_iter().take(1) {\n"),
    ("the copy of an action names its rule", "TOP-03", "words/src/rule/action.rs",
     "    draft.put(RULE_NAME.into(), Some(Value::from(rule)));\n", "    let _ = RULE_NAME;\n"),
    ("copies are numbered in the order of rule names", "TOP-05", "words/src/rule/judging.rs",
     "        if count > 1 {\n            hits.get_mut", "        if count > 9 {\n            hits.get_mut"),
    ("a failing rule makes no dead letter with the switch off", "DLQ-24", "words/src/rule/judging.rs",
     "failed.filter(|_| settings.dead_lettering_on_filter_errors)", "failed.filter(|_| true)"),
    ("the first failing rule is reported", "DLQ-25", "words/src/rule/judging.rs",
     "        open.failed.get_or_insert_with(|| (hit.place, Refusal::of_rule(rule, cause, &error)));", "        open.failed = Some((hit.place, Refusal::of_rule(rule, cause, &error)));"),
    ("a copy whose rule removed its required session is a dead letter", "DLQ-21", "words/src/rule/judging.rs",
     "session_refusal(settings, changed.session_id.as_deref())", "session_refusal(settings, message.published.view().session_id())"),
    ("a removed rule selects nothing any more", "TOP-09", "words/src/rule/matcher.rs",
     "        self.take_out(round, place);\n        true\n", "        let _ = (round, place);\n        true\n"),
    ("a removed rule is gone after its removal", "TOP-13", "machine/src/topic/enact.rs",
     "                self.matcher.remove_rule(*subscription, name).ok();", "                let _ = (subscription, name);"),
    ("a subscription with a rule that is not valid is not created", "TOP-17", "machine/src/topic/subscriptions.rs",
     "rules.map(|rule| Rule::create(rule, ctx.limits)).collect::<Result<_, _>>()?", "rules.filter_map(|rule| Rule::create(rule, ctx.limits).ok()).collect()"),
    ("content is stored once for all copies", "DESIGN D8", "machine/src/topic/records.rs",
     "                source = Source::Of(key);\n", "                let _ = key;\n"),
    ("a scheduled message is removed when it is published", "SCH-03", "machine/src/topic/records.rs",
     "                    self.write_removal(*from, 0, batch);\n", ""),
    ("copies of one message have different numbers", "MSG-13", "machine/src/topic/copies.rs",
     "previous.map_or(subscription.last_sequence, |last| last.sequence)", "previous.map_or(subscription.last_sequence, |_| subscription.last_sequence)"),
    ("a topic drops duplicates", "DUP-02", "machine/src/topic/publish.rs",
     "        if let Some(earlier) = self.find_duplicate(envelope.message_id_hash, ctx.now) {", "        if let Some(earlier) = self.find_duplicate(envelope.message_id_hash, ctx.now).filter(|_| false) {"),
    ("a topic remembers ids over a restart", "DUP-08", "machine/src/topic/records.rs",
     "                    history.record(bucket, id_hash, at, sequence);", "                    let _ = (history, bucket, id_hash, at, sequence);"),
    ("the quota counts each copy", "TOP-10", "machine/src/topic/publish.rs",
     "of_copies.sum()", "size + of_copies.map(|bytes| bytes - size).sum::<u64>()"),
    ("the account counts each copy", "TOP-10", "machine/src/topic/publish.rs",
     "copies.iter().map(|copy| u64::from(copy.slot.size)).sum::<u64>();", "copies.iter().take(1).map(|copy| u64::from(copy.slot.size)).sum::<u64>();"),
    ("the lower default counts when a copy is made", "EXP-07", "machine/src/topic/copies.rs",
     "            let ceiling = settings\n                .default_message_time_to_live\n                .min(self.description.default_message_time_to_live);", "            let ceiling = settings.default_message_time_to_live;"),
    ("the lower default counts for copies without one of their own", "EXP-06", "words/src/description/entities.rs",
     "self.default_message_time_to_live.min(topic.default_message_time_to_live);", "self.default_message_time_to_live;"),
    ("a disabled subscription gets copies", "ENT-24", "machine/src/queue/subscription.rs",
     "            if arrival.sequence <= self.last_sequence {", "            if arrival.sequence <= self.last_sequence || !self.description.status.allows_send() {"),
    ("a status that blocks sends blocks publishing", "ENT-24", "machine/src/topic/publish.rs",
     "        self.description.status\n", "        EntityStatus::Active\n"),
    ("cancelling at a topic is all or none", "SCH-05", "machine/src/topic/schedule.rs",
     "        self.check_cancelled(sequences)?;\n", "        self.check_cancelled(sequences.get(..1).unwrap_or_default())?;\n"),
    ("a cancelled message is not published", "SCH-04", "machine/src/topic/enact.rs",
     "if !self.is_outbox_message(*sequence) => {\n                self.take(*sequence);\n", "if !self.is_outbox_message(*sequence) => {\n"),
    ("messages published together are visible together", "TOP-07", "machine/src/topic/publish.rs",
     "        self.refuse_over_quota(total, ctx)?;\n", "        self.refuse_over_quota(total.min(1), ctx)?;\n"),
    ("a copy that is not yet stored is not offered", "LIF-01", "machine/src/queue/subscription.rs",
     "            self.mark_in_flight(arrival.sequence, arrival.stage);", "            self.offer(arrival.sequence);"),
    ("copies that come before the machine of their subscription wait for it", "DLQ-33", "machine/src/family.rs",
     "        entry.number = Some(number);\n", "        entry.number = Some(number);\n        entry.arrivals.clear();\n"),
    ("a message keeps the number that it was first given", "MSG-15", "machine/src/topic/copies.rs",
     "let first = if journey.first.0 == 0 { sequence } else { journey.first };", "let first = sequence;"),
    ("the way into a subscription is no hop, those before count", "FWD-13", "machine/src/topic/copies.rs",
     "                enqueued_sequence: first,\n                hops: journey.hops,", "                enqueued_sequence: first,\n                hops: 0,"),
    ("a message that is forwarded to a topic leaves its source", "FND-03", "machine/src/topic/records.rs",
     "                    write_copies(copies, source, batch);\n                    origin.delete(batch);", "                    write_copies(copies, source, batch);"),
    ("a message scheduled at a topic keeps its dead-letter source", "FWD-26", "machine/src/topic/schedule.rs",
     "self.sources.get(&from).map(", "self.sources.get(&from).filter(|_| false).map("),
]

TRANSACTIONS = [
    ("a lock is settled once in a transaction", "TXN-07", "machine/src/queue/transaction.rs",
     "(!settled.insert(lock.token)).then_some(lock)", "(!settled.insert(lock.token) && false).then_some(lock)"),
    ("a lock that is settled is not renewed", "TXN-07", "machine/src/queue/transaction.rs",
     "settled.contains(&lock.token).then_some(lock),", "(settled.contains(&lock.token) && false).then_some(lock),"),
    ("the messages of a transaction need room together", "TXN-07", "machine/src/queue/transaction.rs",
     "        if !messages.is_empty() {\n            self.admit_together", "        if !messages.is_empty() && false {\n            self.admit_together"),
    ("a subscription that refuses its part stops its topic", "TXN-08", "src/shell/commit.rs",
     "        if let Err(rejection) = checked {", "        if let Err(rejection) = checked && false {"),
    ("a topic and its subscription commit in one batch", "TXN-15", "src/shell/tree.rs",
     "        self.is_one_unit = true;", "        self.is_one_unit = false;"),
    ("a topic publishes all of a transaction or nothing", "TXN-01", "machine/src/topic/transaction.rs",
     "        let plans = self.admit(published, ctx)?;", "        let plans = self.admit(&published[..1], ctx)?;"),
    ("a message sent by way of a queue waits as a transfer", "TXN-09", "machine/src/queue/transaction.rs",
     "                    .map(|message| self.store_pending(message, Arc::clone(&destination), ctx, step))\n", "                    .map(|message| {\n                        let _ = &destination;\n                        self.accept(message, ctx, step)\n                    })\n"),
]

RETRY = [
    ("a message that is abandoned with a delay waits", "RTY-01", "machine/src/queue/retry.rs",
     "(delay > TimeSpan::ZERO).then(|| ctx.now.plus(delay))", "(delay > TimeSpan::ZERO).then(|| ctx.now)"),
    ("a delay has a limit", "RTY-02", "machine/src/queue/retry.rs",
     "if delay > ctx.limits.retry_delay_max {", "if delay > ctx.limits.retry_delay_max && false {"),
    ("an abandon of a deferred message has no delay", "RTY-08", "machine/src/queue/retry.rs",
     "if slot.state == SlotState::Deferred {", "if slot.state == SlotState::Deferred && false {"),
    ("the policy does not hold in a sub-queue", "RTY-19", "machine/src/queue/retry.rs",
     "self.description.retry_policy.is_some()\n            && slot.sub_queue == SubQueue::Main", "self.description.retry_policy.is_some()"),
    ("a delay that the abandon names wins", "RTY-17", "machine/src/queue/retry.rs",
     "(Some(delay), _) => delay,", "(Some(delay), None) => delay,\n            (Some(_), Some(policy)) => policy.delay_after(failures, 0, ctx.limits),"),
    ("a message that is due is available", "RTY-04", "machine/src/queue/retry.rs",
     "            if was_delayed {\n", "            if was_delayed && false {\n"),
    ("a Delayed message expires like an available one", "RTY-07", "machine/src/queue/retry.rs",
     "        self.watch_expiry(sequence, slot);\n", ""),
    ("a Delayed message blocks later messages of its session", "RTY-22", "machine/src/queue/session/directory/members.rs",
     "        if holds {\n", "        if holds && false {\n"),
    ("the order of a session's retries can be changed", "RTY-23", "machine/src/queue/retry.rs",
     "if self.description.session_retry_order != before && self.sessions.is_some() {", "if self.description.session_retry_order != before && self.sessions.is_some() && false {"),
    ("a Delayed message is counted separately from active ones", "RTY-11", "machine/src/queue/tally.rs",
     "            self.counts.delayed += 1;", "            self.counts.delayed += 0;"),
    ("until when a message is Delayed is durable", "RTY-06", "machine/src/queue/records.rs",
     "                codec::write_delay(until, value);", "                let _ = (until, &value);"),
]

CATCH_ALL = [
    ("a catch-all gets only messages unselected by others", "TOP-25", "words/src/rule/judging.rs",
     "            Round::Ordinary if judging.selected_by.is_some() => return Stage::Done,\n", ""),
    ("a selection by a rule without action counts", "TOP-25", "words/src/rule/judging.rs",
     "        self.plain.is_some() || !self.changed.is_empty()", "        !self.changed.is_empty()"),
    ("a subscription becomes a catch-all, and stops being one", "TOP-25", "words/src/rule/matcher.rs",
     "        if before.catch_all == settings.catch_all {", "        if before.catch_all == settings.catch_all || true {"),
    ("a catch-all is one after a restart", "TOP-25", "model/src/change/codec/description.rs",
     "            if version == CATCH_ALL {\n", "            if version == CATCH_ALL && false {\n"),
    ("the rules of a catch-all decide", "TOP-26", "words/src/rule/judging.rs",
     "                Ok(Some(false) | None) => None,\n", "                Ok(Some(false) | None) => (judging.round == Round::CatchAll).then_some(None),\n"),
    ("catch-alls do not count for each other", "TOP-27", "words/src/rule/judging.rs",
     "            let steps = make_copies(open, message, &mut judging.copies, &mut sizes);\n", "            if judging.round != Round::Ordinary && !judging.copies.is_empty() {\n                continue;\n            }\n            let steps = make_copies(open, message, &mut judging.copies, &mut sizes);\n"),
    ("a rule that fails selects nothing", "TOP-28", "words/src/rule/judging.rs",
     "            if judging.round == Round::Ordinary && open.selects() {", "            if judging.round == Round::Ordinary {"),
    ("copies are in the order of subscriptions", "TOP-05", "words/src/rule/judging.rs",
     "                judging.copies.sort_by_key(|copy| copy.subscription);\n", ""),
    ("the explanation of a catch-all says that it was not judged", "TOP-30", "machine/src/topic/rules.rs",
     "        if !self.is_catch_all(id) {", "        if !self.is_catch_all(id) || true {"),
]

# After all other groups, so that their numbers do not change.
RETRY_AGAIN = [
    ("the properties of a delayed abandon hold", "RTY-03", "machine/src/queue/enact.rs",
     "                    slot.delivery_count = *delivery_count;\n                    slot.add_overlay(overlay.as_ref());", "                    slot.delivery_count = *delivery_count;\n                    slot.add_overlay(overlay.as_ref().filter(|_| delayed_until.is_none()));"),
    ("a due message returns to its place", "RTY-03", "machine/src/queue/retry.rs",
     "            if was_delayed {\n                self.offer(sequence);", "            if was_delayed && self.main.available.first().is_some_and(|first| first > sequence) {\n                self.delay(sequence, Some(ctx.now.plus(TimeSpan::from_ms(1))));\n            } else if was_delayed {\n                self.offer(sequence);"),
    ("the last allowed attempt dead-letters without its delay", "RTY-05", "machine/src/queue/settle.rs",
     "        match self.failure(slot, ctx) {\n            Failure::Expired => self.remove_expired(sequence, properties, ctx, step),", "        let failure = match (self.failure(slot, ctx), delay) {\n            (Failure::TooManyDeliveries { delivery_count }, Some(delay)) if delay > TimeSpan::ZERO => {\n                Failure::Returned { delivery_count }\n            }\n            (failure, _) => failure,\n        };\n        match failure {\n            Failure::Expired => self.remove_expired(sequence, properties, ctx, step),"),
    ("a delay works in a sub-queue", "RTY-05", "machine/src/queue/retry.rs",
     "(Some(delay), _) => delay,", "(Some(delay), _) => match slot.sub_queue {\n                SubQueue::Main => delay,\n                SubQueue::DeadLetter | SubQueue::TransferDeadLetter => TimeSpan::ZERO,\n            },"),
    ("peek shows that a message is Delayed", "RTY-12", "machine/src/queue/facts.rs",
     "SlotState::Active if slot.is_delayed() => MessageState::Delayed,", "SlotState::Active if slot.is_delayed() => MessageState::Active,"),
    ("peek shows until when a message is Delayed", "RTY-12", "machine/src/queue/facts.rs",
     "                true => self.delays.until(slot.sub_queue, sequence),", "                true => None,"),
    ("a batch delete removes Delayed messages", "RTY-13", "machine/src/queue/browse.rs",
     "                .filter(|sequence| self.is_durably_delayed(*sequence))\n", "                .filter(|sequence| self.is_durably_delayed(*sequence) && false)\n"),
    ("a delete by number removes a Delayed message", "RTY-13", "machine/src/queue/defer.rs",
     "        let is_delayed = self.is_durably_delayed(sequence)\n", "        let is_delayed = false && self.is_durably_delayed(sequence)\n"),
    ("a Delayed message is forwarded when it is due", "RTY-14", "machine/src/queue/location.rs",
     "SlotState::Active if slot.is_delayed() => self.register_delayed(sequence, &slot),", "SlotState::Active if slot.is_delayed() && !self.leaves(&slot) => self.register_delayed(sequence, &slot),"),
    ("an abandon under a policy waits", "RTY-17", "machine/src/queue/retry.rs",
     "            (None, Some(policy)) if self.has_policy_for(slot) => {", "            (None, Some(policy)) if self.has_policy_for(slot) && failures > 1 => {"),
    ("the end of a lock under a policy delays", "RTY-17", "machine/src/queue/settle.rs",
     "let change = Change::DeliveryCounted { sequence, delivery_count, delayed_until };", "let _ = delayed_until;\n                let change = Change::DeliveryCounted { sequence, delivery_count, delayed_until: None };"),
    ("a linear delay grows", "RTY-18", "words/src/description/retry.rs",
     "RetryKind::Linear => delay * i128::from(failures),", "RetryKind::Linear => delay,"),
    ("an exponential delay begins with itself", "RTY-18", "words/src/description/retry.rs",
     "delay << failures.saturating_sub(1).min(60)", "delay << failures.min(60)"),
    ("no delay is longer than the longest", "RTY-18", "words/src/description/retry.rs",
     "        let nominal = nominal.min(i128::from(most.ticks()));\n", "        let _ = most;\n"),
    ("jitter shortens", "RTY-18", "words/src/description/retry.rs",
     "i64::try_from(nominal - shorter)", "i64::try_from(nominal + shorter)"),
    ("jitter is no more than its part", "RTY-18", "words/src/description/retry.rs",
     "let widest = nominal * i128::from(self.jitter.0) / i128::from(JITTER_PARTS);", "let widest = nominal;"),
    ("a change of the policy keeps the instants of Delayed messages", "RTY-20", "machine/src/queue/enact.rs",
     "                self.begin_to_reorder(order);\n            }\n            Change::SubscriptionDescribed", "                self.forget_past_delays(crate::time::Timestamp::NEVER);\n                self.begin_to_reorder(order);\n            }\n            Change::SubscriptionDescribed"),
    ("messages due while the broker was down are available", "RTY-04", "machine/src/queue/retry.rs",
     "        while let Some(sequence) = self.delays.first_due(now) {", "        while let Some(sequence) = self.delays.first_due(now).filter(|_| false) {"),
    ("accept next does not offer a session whose head is Delayed", "RTY-24", "machine/src/queue/session/directory.rs",
     "Some(returning) if returning < first => None,", "Some(returning) if returning < first && session.hold.is_some() => None,"),
    ("an expiring session takes its Delayed messages along", "RTY-25", "machine/src/queue/session/directory/members.rs",
     "let mut delayed = self.take_delayed(index);", "let mut delayed = SequenceSet::default();"),
    ("at the bound an abandon that would delay is refused", "RTY-32", "machine/src/queue/settle.rs",
     "if delays && ctx.remaining.delayed == 0 && returns() {", "if delays && ctx.remaining.delayed == 0 && returns() && false {"),
    ("only an abandon accepts a delay", "RTY-10", "model/src/command/retry.rs",
     "        refuse_retry_delay(\"defer\", properties)?;\n", ""),
    ("the property of a delay is not stored", "RTY-27", "model/src/command/retry.rs",
     "properties.iter().filter(|one| !is_delay(one)).cloned().collect();", "properties.to_vec();"),
]

DECLARATIONS = [
    ("a property that is not named keeps its value", "DEC-02", "src/declaration/planner.rs",
     "        properties.keep(cleared, current);\n", "        let _ = cleared;\n"),
    ("a subscription that declares rules has exactly these", "DEC-03", "src/declaration/rules.rs",
     "if !is_kept && !self.gone.contains_key(&key) {", "if !is_kept && !self.gone.contains_key(&key) && key.starts_with('$') {"),
    ("a rule that differs is updated", "DEC-03", "src/declaration/rules.rs",
     "*known = if text == property_text::rule_text(wanted) {", "*known = if text == property_text::rule_text(wanted) || true {"),
    ("an empty list of rules is none at all", "DEC-03", "src/access/declare.rs",
     "        self.manage_step(path, Management::DeleteRule(DEFAULT_RULE.into())).await\n",
     "        let _ = path;\n        Ok(())\n"),
    ("a double declaration is refused", "DEC-04", "src/declaration/judge.rs",
     "    if known.insert(key) {", "    if known.insert(key) || true {"),
    ("a change of a fixed property is refused", "DEC-05", "src/declaration/planner.rs",
     "FIXED.contains(&&*change.property)) {", "FIXED.contains(&&*change.property) && false) {"),
    ("a plan counts unchanged entities", "DEC-06", "src/declaration/planner.rs",
     "            self.unchanged_count += 1;\n", ""),
    ("destinations precede their sources", "DEC-07", "src/declaration/planner.rs",
     "one.needs.iter().flatten().filter_map(|key| places.get(key).copied()).collect()", "one.needs.iter().flatten().filter_map(|key| places.get(key).copied()).take(0).collect()"),
    ("entities on a circle are updated after all exist", "DEC-07", "src/declaration/order.rs",
     "later: later.into_iter().collect() }", "later: later.into_iter().take(0).collect() }"),
    ("a destination that is neither there nor declared is refused", "DEC-08", "src/declaration/planner.rs",
     "            if !self.declared.contains(&key) {", "            if !self.declared.contains(&key) && false {"),
    ("steps that differ from the digest are not carried out", "DEC-09", "src/access/declare.rs",
     "        if planned.plan.digest() != digest {", "        if planned.plan.digest() != digest && false {"),
    ("at most the requested number of steps is done", "DEC-10", "src/access/declare.rs",
     "in plan.steps.iter().zip(work).take(steps_max) {", "in plan.steps.iter().zip(work).take(steps_max.saturating_add(1)) {"),
    ("a failed step remains", "DEC-11", "src/access/declare.rs",
     "rest: plan.after(done).await, failure }", "rest: plan.after(done + usize::from(failure.is_some())).await, failure }"),
    ("a plan requires Manage on the declared entities", "DEC-12", "src/access/declare.rs",
     "            let path = self.allow(Action::Plan, &path).await?;\n", "            let path: std::sync::Arc<str> = std::sync::Arc::from(&*path);\n"),
]

CONSUMERS = [
    ("a panic of a handler abandons its message", "SET-03", "../transports/client/src/consumer/outcome.rs",
     "            Err(Refusal::abandon().with_error(format_args!(\"the handler panicked: {panic}\")))", "            Ok(())"),
    ("a dead-lettering that is refused becomes an abandon", "DLQ-07", "../transports/client/src/consumer/outcome.rs",
     "let settlement = fallback.filter(|_| !is_gone && !error.retryable())?;", "let settlement = fallback.filter(|_| !is_gone && !error.retryable() && false)?;"),
    ("locks are renewed", "SET-18", "../transports/client/src/consumer/renewal.rs",
     "Some(Lock { token, until, due: Some(due), end, is_with_handler: false });", "Some(Lock { token, until, due: None, end, is_with_handler: false });"),
    ("locks are renewed up to a bound", "SET-18", "../transports/client/src/consumer/renewal.rs",
     "self.0.is_some_and(|end| end <= now)", "self.0.is_some_and(|end| end <= now) && false"),
    ("at most the configured number of messages is handled at once", "RCV-16", "../transports/client/src/consumer/queue.rs",
     "            while at_work.len() < concurrent_max\n", "            while at_work.len() <= concurrent_max\n"),
    ("undelivered messages are released at the end", "RCV-14", "../transports/client/src/consumer/queue.rs",
     "        for WaitingMessage { held, .. } in std::mem::take(&mut self.waiting) {\n            self.give_back(held);\n        }\n", "        self.waiting.clear();\n"),
    ("a consumer ends with its handler", "SET-21", "../transports/client/src/consumer/queue.rs",
     "if !state.is_closing && (handler.is_gone() || gone.as_mut().poll(context).is_ready()) {", "if !state.is_closing\n                && (handler.is_gone() || gone.as_mut().poll(context).is_ready())\n                && false\n            {"),
    ("a message that waited for its handler is renewed for as long as others", "SET-18", "../transports/client/src/consumer/renewal.rs",
     "(held.end, held.is_with_handler) = (End::after(max, now.here), true);", "let _ = max;\n        held.is_with_handler = true;"),
]

LOOKING = [
    ("an inquiry is no use of the queue", "CON-01", "machine/src/queue/mod.rs",
     "            Command::Inspect(inquiry) => self.inspect(sub_queue, &inquiry, ctx.now).map(answer),\n", "            Command::Inspect(inquiry) => {\n                self.touch(ctx.now);\n                self.inspect(sub_queue, &inquiry, ctx.now).map(answer)\n            }\n"),
    ("a message in flight is not listed", "CON-02", "machine/src/queue/inspect.rs",
     "                && !slot.is_in_flight()\n", ""),
    ("an expired message is not listed as active", "CON-02", "machine/src/queue/inspect.rs",
     "SlotState::Active | SlotState::Pending if self.is_expired(slot, now) => {", "SlotState::Active | SlotState::Pending if self.is_expired(slot, now) && false => {"),
    ("locks are listed in their order", "CON-25", "machine/src/queue/inspect.rs",
     "        found.sort_unstable();\n        let row", "        let row"),
    ("a renewal of a lock is counted", "CON-25", "machine/src/lock_table.rs",
     "            node.renewals = node.renewals.saturating_add(1);\n", ""),
    ("a session is stuck after ten lock durations", "CON-27", "machine/src/queue/inspect.rs",
     "const STUCK_AFTER_LOCKS: i64 = 10;", "const STUCK_AFTER_LOCKS: i64 = 11;"),
    ("messages after the last slot are counted", "CON-28", "machine/src/excerpt.rs",
     "            None => later += 1,\n", "            None => {}\n"),
    ("messages that a tap does not show are counted", "CON-34", "src/taps.rs",
     "state.omitted += count.saturating_sub(added);", "state.omitted += count.saturating_sub(added) / 2;"),
]

STORE = [
    ("an amendment is stored only if keys have the expected values", "CLU-28", "store/src/journal/committer.rs",
     "if matches!(is_expected, Ok(true)) {", "if is_expected.is_ok() {"),
    ("an amendment in memory is stored only if keys have the expected values", "CLU-28", "store/src/memory.rs",
     "let is_expected = expected.iter().all(is_as_expected);", "let is_expected = expected.iter().all(is_as_expected) || true;"),
    ("a lost reservation of ids is read again", "CLU-28", "src/actor/namespace/records.rs",
     "let begin = stored.map_or(first, |stored| stored.max(first));", "let begin = first;"),
    ("a scan continues after a page of the index", "LIF-04", "store/src/journal/scan.rs",
     "self.is_last_page = self.page.len() < PAGE;", "self.is_last_page = true;"),
    ("removed records do not exist", "FND-03", "store/src/journal/mod.rs",
     "Ok(keys.iter().map(|key| self.index.get(key.as_bytes()).is_some()).collect())", "Ok(vec![true; keys.len()])"),
    ("a transfer names the shard of its source", "FND-03", "model/src/transfer.rs",
     "batch.delete_in(self.shard, key);", "batch.delete(key);"),
    ("a source is restored if the result of a transfer stays unknown", "FWD-10", "src/actor/entity.rs",
     "                self.end_with_tree(&why, context);\n                return;\n            }\n        };\n        let request",
     "                tracing::error!(why);\n                Vec::new()\n            }\n        };\n        let request"),
]

ERRORS = [
    ("earlier errors leave room for the last error", "SET-44", "machine/src/queue/settle.rs",
     "let reserve = if is_last { 0 } else { LAST_ATTEMPT_BYTES };", "let reserve = u64::from(is_last);"),
    ("a dead letter describes the error of its last attempt", "DLQ-34", "machine/src/queue/dead_letter.rs",
     ".then_some(error)", ".then_some(error).filter(|_| false)"),
    ("a long error is cut", "SET-43", "model/src/command/last_error.rs",
     "if error.len() <= LAST_ERROR_BYTES_MAX {", "if error.len() <= 2 * LAST_ERROR_BYTES_MAX {"),
]

ACTING = [
    ("a repeated step changes nothing", "CON-15", "machine/src/act.rs",
     "receipt.step.number >= number)", "receipt.step.number > number)"),
    ("a deed leaves locked messages alone", "CON-12", "machine/src/queue/act.rs",
     "if !act.breaks_locks || is_in_session {", "if is_in_session {"),
    ("an expired message is not undeferred", "CON-12", "machine/src/queue/act.rs",
     "if (act.deed == Deed::Undefer || act.deed.sends()) && self.is_expired(&slot, ctx.now) {", "if false {"),
    ("the receipt of a step is stored", "CON-15", "machine/src/queue/records.rs",
     "codec::write_receipt(receipt, value);", "codec::write_receipt(&crate::command::Receipt { messages: Vec::new(), ..(**receipt).clone() }, value);"),
]

OUTAGES = [
    ("an outage of the store is no failed delivery", "RCV-31", "../transports/client/src/receiver.rs",
     "let is_lost = |error: &BrokerError| error.condition() != Condition::ServerBusy;", "let is_lost = |_: &BrokerError| true;"),
    ("a consumer gives back messages during an outage", "RCV-31", "../transports/client/src/consumer/outcome.rs",
     "if reason.condition() == Condition::ServerBusy {", "if false {"),
    ("a call of the store is repeated after an outage", "CLU-21", "src/shared.rs",
     "Err(error) if error.is_unavailable() => error,", "Err(error) if error.is_unavailable() && false => error,"),
    ("an outage is no failure of an entity", "CLU-21", "src/actor/namespace/rebuild.rs",
     "entity.failures.extend((!by_outage).then_some(now));", "let _ = by_outage;\n        entity.failures.push_back(now);"),
    ("contents of another shard are stored again", "CLU-13", "src/transfer/contents.rs",
     "let is_new = !shares_contents || new_body(list).is_some();", "let is_new = new_body(list).is_some();"),
    ("a deletion is repeated after an outage", "CLU-21", "src/actor/namespace/write.rs",
     "(State::Deleting, Err(error)) if error.is_unavailable() && !self.stopping => {", "(State::Deleting, Err(error)) if error.is_unavailable() && false => {"),
    ("a creation is undone after an outage", "CLU-28", "src/actor/namespace/write.rs",
     "(State::Undoing, Err(error)) if error.is_unavailable() && !self.stopping => {", "(State::Undoing, Err(error)) if error.is_unavailable() && false => {"),
]

SENDING = [
    ("messages of a job leave after its step is durable", "CON-15", "machine/src/queue/transfer/job.rs",
     "            self.transfers.block_until(&Exit::Job(job), stage);\n", "            let _ = stage;\n"),
    ("a restart continues a step that sends", "CON-15", "machine/src/queue/mod.rs",
     "        self.send_messages_of_receipts();\n", ""),
    ("a message that left before a restart is done", "CON-15", "machine/src/queue/transfer/job.rs",
     "None => self.receipts.note_left(job, sequence),", "None => {}"),
    ("a forgotten job keeps its messages", "CON-19", "machine/src/queue/enact.rs",
     "                self.keep_messages_of(*job);\n", ""),
    ("a next step waits for messages that are leaving", "CON-15", "machine/src/act.rs",
     "            receipts.refuse_while_leaving(of_job)?;\n", ""),
    ("a full destination ends a step", "CON-17", "machine/src/queue/transfer/job.rs",
     "if is_full || is_last_offer == Some(true) || is_forgotten {", "if is_last_offer == Some(true) || is_forgotten {"),
    ("a list of a job continues after a refusal", "CON-17", "machine/src/take_over.rs",
     "if !has_refused || arrival.resent.is_some() => {", "if !has_refused => {"),
    ("a refusal of the destination is stored", "CON-15", "machine/src/queue/transfer/job.rs",
     "            self.change(Change::Receipted(receipt), Durability::Sync, ctx, step);\n", "            self.enact(&Change::Receipted(receipt), ctx.stage);\n            let _ = Durability::Sync;\n"),
    ("a number of a message that left is not given again", "MSG-13", "machine/src/queue/act.rs",
     "            self.change(Change::Numbered { last }, Durability::Sync, ctx, step);\n", "            let _ = last;\n"),
    ("a duplicate that a job sends stays", "CON-17", "machine/src/queue/transfer/arrive.rs",
     "return Ok(TakeDecision::LeaveDuplicate);", "return Ok(TakeDecision::Take(()));"),
]

JOBS = [
    ("a large body is not patched", "CON-16", "src/transfer/body_change.rs",
     "    PATCHED_BODY_BYTES_MAX as usize\n}", "    2 * PATCHED_BODY_BYTES_MAX as usize\n}"),
    ("null in a merge patch removes a member", "CON-16", "words/src/message/merge_patch.rs",
     "                Some((_, Self::Remove)) => {", "                Some((_, Self::Remove)) if false => {"),
    ("a message that a receiver has changed is not put back", "CON-20", "machine/src/queue/put_back.rs",
     "                if present != left {", "                if present.sub_queue != left.sub_queue {"),
    ("a message is put back once", "CON-20", "../plugins/operations/src/export.rs",
     "        changed.retain(|number, _| !returned.contains(number));\n", "        returned.clear();\n"),
    ("messages are kept before their step", "CON-20", "../plugins/operations/src/undo.rs",
     "        self.table.write_export(export).map_err(refuse)?;\n        act.kept = Some(kept);", "        act.kept = Some(kept);"),
    ("a step changes messages only as they are kept", "CON-20", "machine/src/queue/act.rs",
     "            && kept.get(&sequence) != Some(&self.record(sequence, &slot))", "            && !kept.contains_key(&sequence)"),
    ("messages stay until an undo has put all back", "CON-20", "../plugins/operations/src/undo.rs",
     "            Some(undone) if is_whole =>", "            Some(undone) if is_whole || facts.state.is_end() =>"),
    ("messages stay while their undo works", "CON-20", "../plugins/operations/src/table.rs",
     "is_some_and(|undo| undo.works()) {", "is_some_and(|undo| undo.works()) && now < Timestamp::NONE {"),
    ("a repeated step of an export begins after the last line", "CON-22", "../plugins/operations/src/table/outputs.rs",
     "Ok(GrowingFile::new(name, length.is_some(), job.kept))", "Ok(GrowingFile::new(name, length.is_some(), length.unwrap_or(0)))"),
    ("a step of an export without a line is repeated from its begin", "CON-22", "../plugins/operations/src/output.rs",
     "        self.table.rewind_output(&mut file, job.kept).map_err(refuse)?;\n", ""),
    ("a file is for readers of its own entity", "CON-13", "src/access/jobs.rs",
     "if !self.broker.entity(&path).is_ok_and(is_of) {", "if !self.broker.entity(&path).is_ok_and(is_of) && false {"),
    ("a cell is no formula", "CON-22", "../plugins/operations/src/output.rs",
     "let text = if is_formula {", "let text = if is_formula && text.is_empty() {"),
    ("the file of an export that works does not make way", "CON-22", "../plugins/operations/src/table/outputs.rs",
     "Some(facts) if facts.state.is_end() => {", "Some(facts) => {"),
]

STANDBY_PROGRAM = [
    ("a past owner starts again as a standby", "CLU-18", "../src/server.rs",
     "        Err(_) if is_lost => {", "        Err(_) if is_lost && false => {"),
    ("a signal ends the wait of a standby", "CLU-53", "../src/server/standby.rs",
     "signal = signals.next() => break ControlFlow::Break(signal),", "signal = signals.next() => drop(signal),"),
    ("a standby names the owner", "CLU-53", "../src/server/standby.rs",
     "    if *has_ended {\n", "    if true || *has_ended {\n"),
]

OWNERSHIP = [
    ("a lease is over for its holder before it is for others", "CLU-16", "src/cluster/ownership.rs",
     "TimeSpan::from_ticks(self.lease.ticks() - self.margin.ticks())", "TimeSpan::from_ticks(self.lease.ticks() + self.margin.ticks())"),
    ("a lease counts from the instant at which its renewal was sent", "CLU-16", "src/cluster/ownership.rs",
     "        self.renewed = Some(sent_at);\n", "        self.renewed = Some(now);\n"),
    ("an owner without a valid lease is suspended", "CLU-17", "src/cluster/ownership.rs",
     "if self.phase == Phase::Owner && now >= valid_until {", "if self.phase == Phase::Owner && now >= valid_until && false {"),
    ("an owner that lost its shards gives up", "CLU-18", "src/cluster/ownership.rs",
     "                Some(Action::Lose)\n", "                None\n"),
    ("shards are taken only after one whole own lease", "CLU-21", "src/cluster/ownership.rs",
     "(*has_ended && self.has_watched_for_a_lease())", "*has_ended"),
    ("a gap between renewals begins a new wait", "CLU-21", "src/cluster/ownership.rs",
     "if self.valid_until().is_none_or(|until| sent_at >= until) {", "if self.renewed.is_none() {"),
    ("a suspension is as long as the lease was over", "CLU-22", "src/cluster/ownership.rs",
     "Action::Resume(span(since, now))", "Action::Resume(span(sent_at, now))"),
    ("a suspension prolongs locks by a bounded time", "CLU-22", "src/cluster/tenure.rs",
     "let span = suspended.min(PROLONGED_MAX);", "let span = suspended;"),
    ("an ended tenure is never extended", "CLU-18", "src/cluster/tenure.rs",
     "        if state.ending.is_none() {\n            let span", "        if true {\n            let span"),
    ("a clock follows the database slowly", "CLU-14", "src/clock.rs",
     "self.base += error.clamp(-most, most);", "self.base += error.clamp(-most, most.max(error));"),
    ("a slow answer does not change the time", "CLU-14", "src/clock.rs",
     "if round_trip <= slowest {", "if round_trip <= slowest || true {"),
    ("the clock of an owner begins after the past one", "CLU-15", "src/clock.rs",
     "self.now().max(self.lock().begin_at)", "self.now()"),
    ("locks out of order are prolonged too", "CLU-22", "machine/src/lock_table.rs",
     "earlier.map(|(until, index)| (until.plus(span), index)).collect();", "earlier.collect();"),
    ("session locks are prolonged", "CLU-22", "machine/src/queue/session/directory/holders.rs",
     "let until = hold.until.plus(span);", "let until = hold.until;"),
    ("locks are prolonged after a suspension", "CLU-22", "src/shell/mod.rs",
     "            self.machine.prolong_locks(span);\n", "            let _ = span;\n"),
    ("a horizon reaches to the end of the lease", "CLU-15", "src/cluster/keeper.rs",
     "clock.now().plus(valid_for).plus(valid_for.divided_by(10))", "clock.now()"),
    ("a broker that stops leaves its last instant", "CLU-15", "src/cluster/keeper.rs",
     "                keeping.note_last_instant().await;\n", ""),
    ("pages of a list wait while the broker is suspended", "CLU-17", "src/access/turn.rs",
     "            self.judged.access.wait_for_tenure(&self.judged.path).await?;\n", ""),
    ("results of a turn wait for the lease", "CLU-17", "src/actor/drive.rs",
     "        if !self.desk.tenure.is_valid() {\n            // A suspended turn", "        if false {\n            // A suspended turn"),
    ("a lease in force is not taken", "CLU-16", "../plugins/store-postgres/src/schema.rs",
     "    IF past_ends > clock_timestamp() OR past_renewal <> seen_renewal THEN RETURN; END IF;\n", ""),
    ("a takeover waits for a renewal that has begun", "CLU-16", "../plugins/store-postgres/src/schema.rs",
     "WHERE b.incarnation = past FOR UPDATE;", "WHERE b.incarnation = past;"),
    ("an amendment proves that its broker owns the shards", "CLU-07", "../plugins/store-postgres/src/schema.rs",
     "    IF NOT FOUND THEN RETURN NULL; END IF;\n", ""),
    ("a broker without a row gets no lease", "CLU-17", "../plugins/store-postgres/src/schema.rs",
     "        WHERE may_enter OR EXISTS (SELECT 1 FROM brokers o WHERE o.incarnation = number)\n", ""),
    ("sessions of a past owner do not delay a takeover", "CLU-18", "../plugins/store-postgres/src/registry.rs",
     "    SELECT count(pg_terminate_backend(pid)) FROM", "    SELECT count(pid) FROM"),
    ("a barred owner delays nobody", "CLU-19", "src/cluster/ownership.rs",
     "let is_free = *is_barred || ", "let is_free = "),
    ("a set clock ends no lease", "CLU-16", "src/cluster/ownership.rs",
     "if self.watched.is_none_or(|watched| watched.seen != *seen) {", "if self.watched.is_none() {"),
    ("a broker without leases is not robbed", "CLU-44", "../plugins/store-postgres/src/schema.rs",
     "if !locked.get::<_, Option<bool>>(0).unwrap_or(false) {", "if false {"),
]

# Samples of topics, and trials of rules.
FILTERS = [
    ("samples have no body", "CON-36", "words/src/rule/topic_trial.rs",
     "            content: self.content.without_body(),", "            content: self.content.clone(),"),
    ("samples of a topic have a maximum of bytes", "CON-36", "src/samples/mod.rs",
     "self.samples.len() > COUNT_MAX || self.bytes > bytes_max", "self.samples.len() > COUNT_MAX"),
    ("the share of a topic shrinks with their number", "CON-36", "src/samples/mod.rs",
     "            share /= 2;", "            break;"),
    ("scheduled messages are samples when they are published", "CON-36", "machine/src/topic/schedule.rs",
     "            self.note_sample((&content, &journey), sequence, copies.len(), ctx.now, step);\n", ""),
    ("a message is tried once", "CON-37", "src/access/filters.rs",
     "if self.known.insert((first, id)) {", "if self.known.insert((first, id)) || true {"),
    ("a catch-all is tried with the changes", "CON-37", "src/access/filters/comparison.rs",
     "        let after = select(&self.after,", "        let after = select(&self.before,"),
    ("a reader sees only subscriptions that it may read", "CON-73", "src/access/filters.rs",
     "            match keys.contains(&PathKey::fold(&path)) {", "            match keys.contains(&PathKey::fold(&path)) || true {"),
    ("a hidden subscription is answered as a missing one", "CON-73", "src/access/filters.rs",
     "is_none_or(|id| !readable.contains(&id))", "is_none()"),
    ("copies of an explanation have a maximum of bytes", "CON-35", "src/access/filters.rs",
     "if !room.take(preview_bytes(&message, copy, &preview)) {", "if false {"),
    ("an explanation has each rule that fits", "CON-35", "src/access/filters.rs",
     "if room.take(NAME_BYTES + name.len()) || !rules.is_empty() || !copies.is_empty() {",
     "if room.take(NAME_BYTES + name.len()) {"),
    ("samples are tried before messages are read", "CON-37", "src/access/filters.rs",
     "let samples = std::mem::take(&mut tried.list);", "let samples = Vec::new();"),
    ("differences have a maximum of bytes", "CON-37", "src/access/filters/comparison.rs",
     "with_it > self.bytes_max && self.bytes > 0", "false"),
    ("a sample larger than its share removes none", "CON-36", "src/samples/mod.rs",
     "if SAMPLE_BYTES.saturating_add(message.bytes_without_body() as u64) > share {", "if false {"),
    ("refused messages have no copies", "CON-37", "words/src/rule/topic_trial.rs",
     "if self.excess.is_some() { &[] } else { &self.copies }", "&self.copies"),
]

LEAVING = [
    ("a leaving broker is not ready", "CLU-53", "../src/server/standby.rs",
     "    readiness.end();\n", "    let _ = readiness;\n"),
    ("a leaving broker serves on for its delay", "CLU-53", "../src/server/standby.rs",
     "    if broker.lease_left().is_some_and(|left| left > TimeSpan::ZERO) {\n        tokio::time::timeout(delay", "    if false {\n        tokio::time::timeout(delay"),
    ("renewals notice a database that does not answer", "CLU-21", "../plugins/store-postgres/src/inner.rs",
     "trouble.or_else(|| self.leases.problem())", "trouble"),
]

DELETIONS = [
    ("entities that are not named are deleted only on request", "DEC-18", "src/access/declare.rs",
     "    if declaration.unnamed == Unnamed::Delete {\n        let unnamed", "    if true {\n        let unnamed"),
    ("a deletion requires Manage on the namespace", "DEC-18", "src/access/declare.rs",
     "        if declaration.unnamed == Unnamed::Delete {\n            //", "        if false {\n            //"),
    ("a destination of a named entity is not deleted", "DEC-19", "src/declaration/planner.rs",
     "        if self.unnamed == Unnamed::Keep {", "        if true {"),
    ("the digest has the creation of deleted entities", "DEC-18", "src/declaration/planner.rs",
     'Some(created_at.to_string().into())', "None"),
    ("the digest has the subscriptions of deleted topics", "DEC-18", "src/declaration/planner.rs",
     "    if let Some(count) = subscription_count {", "    if let Some(count) = subscription_count && false {"),
    ("a protected entity is not deleted", "DEC-19", "src/access/unnamed.rs",
     "protection_of(self.declaration, path) {", "protection_of(self.declaration, path).filter(|_| false) {"),
]

# Test tiers of each group, in order; the tests of the machine alone are built soonest.
GROUPS = {
    "queue": (QUEUE, ["machine", "model", "unit", "conformance"]),
    "sessions": (SESSIONS, ["machine", "sessions", "whole", "model", "unit", "conformance"]),
    "forwarding": (FORWARDING, ["machine", "transfers", "whole", "forwarders", "model", "unit", "conformance"]),
    "topics": (TOPICS, ["machine", "topics", "whole", "rules", "unit", "topic_recovery", "conformance"]),
    "transactions": (TRANSACTIONS, ["machine", "model", "whole", "unit", "topic_recovery", "conformance"]),
    "retry": (RETRY, ["machine", "model", "sessions", "whole", "unit", "conformance"]),
    "catch-all": (CATCH_ALL, ["machine", "rules", "unit", "topics", "whole", "conformance"]),
    "retry-again": (RETRY_AGAIN, ["machine", "model", "unit", "sessions", "broker_bounds", "whole", "transfers", "conformance"]),
    "declarations": (DECLARATIONS, ["declarations", "rights", "unit"]),
    "consumers": (CONSUMERS, ["consumers", "renewal", "refused", "session_consumer"]),
    "looking": (LOOKING, ["machine", "unit", "looking", "model"]),
    "store": (STORE, ["store_conformance", "namespace", "transfers", "opening"]),
    "errors": (ERRORS, ["machine", "model", "unit"]),
    "acting": (ACTING, ["machine", "model", "unit"]),
    "outages": (OUTAGES, ["unreadable", "opening", "transfers"]),
    "sending": (SENDING, ["machine", "recovery", "model"]),
    "jobs": (JOBS, ["unit", "operations"]),
    "standby-program": (STANDBY_PROGRAM, ["program"]),
    "ownership": (OWNERSHIP, ["unit", "standby", "leases"]),
    "filters": (FILTERS, ["unit", "filters"]),
    "deletions": (DELETIONS, ["unnamed"]),
    "leaving": (LEAVING, ["program"]),
}
MUTATIONS = [(group, *mutation) for group, (all, _) in GROUPS.items() for mutation in all]


def command(tier: str) -> list[str]:
    if tier == "conformance":
        return ["cargo", "test", "-q", "--test", "conformance"]
    if tier == "machine":
        return ["cargo", "test", "-q", "-p", "peeklock-machine", "--lib"]
    if tier == "unit":
        below = [argument for crate in BELOW for argument in ("-p", crate)]
        return ["cargo", "test", "-q", *below, "-p", "peeklock-core", "--lib"]
    if tier == "program":
        return ["cargo", "test", "-q", "--test", "cli", "--", "standby::"]
    if tier == "leases":
        return ["cargo", "test", "-q", "-p", "peeklock-store-postgres", "--test", "server", "--", "registry::", "formats::"]
    if tier == "operations":
        return ["cargo", "test", "-q", "-p", "peeklock-operations"]
    if tier in IN_PROCESS:
        return ["cargo", "test", "-q", "-p", "peeklock-client", "--test", "in_process", "--", f"{tier}::"]
    if tier in BROKER:
        return ["cargo", "test", "-q", "-p", "peeklock-core", "--test", "broker", "--", f"{tier}::"]
    return ["cargo", "test", "-q", "-p", "peeklock-core", "--test", tier]


def known_tiers() -> dict[str, str]:
    """The tier that found each rule's mutation in an earlier run, by README.md."""
    rows = re.findall(r"^\| \d+ \| (.+) \| [^|]+ \| ([\w ]+)", README.read_text(), re.MULTILINE)
    return {rule: tier.strip().replace(" ", "_") for rule, tier in rows}


def copy_tree(target: pathlib.Path) -> None:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")
    for name in filter(None, names):
        source = ROOT / name
        place = target / name
        # Unchanged files keep their times, so that they are not built again.
        if source.is_file() and not (place.is_file() and place.read_bytes() == source.read_bytes()):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)


def numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=numbers, action="append", help="run those with these numbers")
    parser.add_argument("--group", choices=GROUPS, action="append", help="run those of a group")
    parser.add_argument("--tiers", help="run only these tiers, with commas between")
    parser.add_argument("--list", action="store_true", help="list the mutations")
    parser.add_argument("--check", action="store_true", help="see whether each can be applied")
    arguments = parser.parse_args()
    chosen = [
        (number, mutation)
        for number, mutation in enumerate(MUTATIONS, 1)
        if (not arguments.group or mutation[0] in arguments.group)
        and (not arguments.only or any(number in some for some in arguments.only))
    ]
    if arguments.list:
        for number, (group, rule, ids, file, _, _) in chosen:
            print(f"{number:3} {group:12} {ids:8} {rule} ({file})")
        return 0
    if arguments.check:
        stale = [
            f"{number}: {rule} ({file}) occurs {count} times"
            for number, (_, rule, _, file, text, _) in chosen
            if (count := (ROOT / SOURCES / file).read_text().count(text)) != 1
        ]
        print("\n".join(stale) or f"all {len(chosen)} can be applied")
        return 1 if stale else 0
    tree = ROOT / "target" / "mutations"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    # Building takes longer than running, so optimisation is off and the largest model runs fewer
    # seeds. The tests of the machine draw long scripts, and run longer than they build.
    environment = dict(
        CARGO_PROFILE_TEST_OPT_LEVEL="0", CARGO_PROFILE_TEST_DEBUG="0",
        PEEKLOCK_WHOLE_SEEDS="60",
    )
    environment.update(os.environ)
    environment.update(
        CARGO_TARGET_DIR=str(tree / "target"), CARGO_INCREMENTAL="1", RUST_BACKTRACE="0",
    )

    def run(tier: str) -> subprocess.CompletedProcess[str]:
        optimised = {"CARGO_PROFILE_TEST_OPT_LEVEL": "1"} if tier == "machine" else {}
        return subprocess.run(
            ["timeout", PATIENCE, *command(tier)],
            cwd=tree, env=environment | optimised, capture_output=True, text=True,
        )

    # Tiers that pass without a mutation. A tier that fails without one proves nothing.
    sound: set[str] = set()
    known = known_tiers()
    missed = 0
    print("| # | rule | id | found by |\n|---|---|---|---|", flush=True)
    for number, (group, rule, ids, file, text, replacement) in chosen:
        path = tree / SOURCES / file
        before = path.read_text()
        if before.count(text) != 1:
            print(f"| {number} | {rule} | {ids} | **cannot be applied** |", flush=True)
            missed += 1
            continue
        path.write_text(before.replace(text, replacement))
        found = "**nobody**"
        started = time.monotonic()
        wanted = arguments.tiers.split(",") if arguments.tiers else GROUPS[group][1]
        wanted = sorted(wanted, key=lambda tier: tier != known.get(rule))
        for tier in wanted:
            ended = run(tier)
            if "could not compile" in ended.stderr:
                found = "**does not compile**"
                print(ended.stderr[-2000:], file=sys.stderr, flush=True)
                break
            if ended.returncode != 0:
                # A mutation that makes the broker loop forever counts as found.
                found = tier.replace("_", " ") + (", which did not end" if ended.returncode == 124 else "")
                break
        path.write_text(before)
        if not found.startswith("**") and tier not in sound:
            unbroken = run(tier)
            if unbroken.returncode != 0:
                print(unbroken.stdout[-2000:], unbroken.stderr[-2000:], file=sys.stderr)
                sys.exit(f"{tier} fails although nothing is broken")
            sound.add(tier)
        missed += found.startswith("**")
        print(f"| {number} | {rule} | {ids} | {found} |", flush=True)
        print(f"{number}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{len(chosen) - missed} of {len(chosen)} found", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
