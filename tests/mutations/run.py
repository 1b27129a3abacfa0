#!/usr/bin/env python3
"""Breaks one rule of the queue machine at a time and sees whether the tests find it.

usage: tests/mutations/run.py [--only N] [--list]

Works on a copy of the tree, so that the sources stay as they are. Each mutation replaces one piece
of text that must occur exactly once in its file. The model test runs first, then the unit tests of
the core, then the conformance suite; the first that fails has found the break. Prints a table in
Markdown and exits with 1 if a mutation survives or cannot be applied.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUEUE = "broker-core/src/entity/queue/"

# rule, requirement ids, file, text, replacement
MUTATIONS = [
    ("an abandoned message counts", "SET-28", "settle.rs",
     "let delivery_count = slot.delivery_count.saturating_add(1);", "let delivery_count = slot.delivery_count;"),
    ("the last allowed failure dead-letters", "SET-35", "settle.rs",
     "if delivery_count >= self.description.max_delivery_count {", "if delivery_count > self.description.max_delivery_count {"),
    ("expiry wins over the delivery count", "EXP-28", "settle.rs",
     "if slot.state == SlotState::Active && self.is_expired(slot, ctx.now) {", "if slot.state == SlotState::Active && self.is_expired(slot, ctx.now)\n            && delivery_count < self.description.max_delivery_count {"),
    ("an expired deferred message goes back to deferred", "EXP-38", "settle.rs",
     "if slot.state == SlotState::Active && self.is_expired(slot, ctx.now) {", "if self.is_expired(slot, ctx.now) {"),
    ("a sub-queue has no delivery limit", "SET-38", "settle.rs",
     "        if slot.sub_queue != SubQueue::Main {\n            return Failure::Returned { delivery_count };\n        }\n", ""),
    ("a dead letter is not dead-lettered again", "DLQ-07", "settle.rs",
     "if sub_queue != SubQueue::Main {\n                    return Err", "if false {\n                    return Err"),
    ("properties that do not fit are refused", "SET-10", "settle.rs",
     "if properties.is_some() && size > ctx.limits.header_bytes_max {", "if properties.is_some() && size > 2 * ctx.limits.header_bytes_max {"),
    ("a lock lasts LockDuration", "RCV-06", "lock.rs",
     "let until = ctx.now.plus(self.description.lock_duration);\n        slot.lock", "let until = ctx.now.plus(self.description.lock_duration.divided_by(2));\n        slot.lock"),
    ("a token settles its own lock only", "SET-13", "lock.rs",
     "lock.token == token && lock.until > now", "lock.until > now"),
    ("a token is good in its sub-queue only", "SET-20", "lock.rs",
     " && slot.sub_queue == sub_queue;", ";"),
    ("a renewed lock ends later", "SET-18", "lock.rs",
     "        self.locks.renew(held.index, until);\n", ""),
    ("locks end by themselves", "SET-04", "lock.rs",
     ".filter(|lock| lock.until <= ctx.now)", ".filter(|lock| lock.until < ctx.now && lock.holder.is_some())"),
    ("expired means at or after the instant", "EXP-15", "expire.rs",
     "&& self.expires_at(slot) <= now", "&& self.expires_at(slot) < now"),
    ("nothing expires while nobody receives", "EXP-31", "expire.rs",
     "if !self.has_active_receiver() {", "if false {"),
    ("a sub-queue does not observe TTL", "EXP-39", "expire.rs",
     "        slot.sub_queue == SubQueue::Main\n            && !matches!", "        !matches!"),
    ("the default TTL in force decides", "EXP-13", "mod.rs",
     "                self.rebuild_expiry();\n", ""),
    ("the default TTL is a ceiling", "EXP-05", "send.rs",
     "enqueued_at.plus(own.min(self.description.default_message_time_to_live))", "enqueued_at.plus(own)"),
    ("the ceiling applies to materialised messages", "EXP-17", "schedule.rs",
     "ctx.now.plus(own.min(self.description.default_message_time_to_live))", "ctx.now.plus(own)"),
    ("a past schedule enqueues at once", "SCH-06", "send.rs",
     ".filter(|at| *at > ctx.now)", ".filter(|at| *at >= ctx.now)"),
    ("cancelling is all or none", "SCH-05", "schedule.rs",
     "if !seen.insert(*sequence) || !self.is_waiting(*sequence) {", "if !seen.insert(*sequence) || (seen.len() == 1 && !self.is_waiting(*sequence)) {"),
    ("receiving by number is all or none", "DEF-03", "defer.rs",
     "                || !self.is_receivable_deferred(sub_queue, *sequence, ctx.now)\n", "                || (seen.len() == 1 && !self.is_receivable_deferred(sub_queue, *sequence, ctx.now))\n"),
    ("an expired deferred message is not received", "EXP-38", "defer.rs",
     "&& self.slots.get(sequence).is_some_and(|slot| !self.is_expired(slot, now))", ""),
    ("a duplicate is dropped", "DUP-02", "duplicate.rs",
     ".find(|acceptance| acceptance.at.plus(window) > now)", ".find(|_| false)"),
    ("the window runs from the first acceptance", "DUP-05", "duplicate.rs",
     ".find(|acceptance| acceptance.at.plus(window) > now)", ".find(|_| true)"),
    ("a duplicate of a scheduled message gives its number", "DUP-12", "duplicate.rs",
     "Some(if scheduled { found.sequence } else { SequenceNumber(0) })", "Some(SequenceNumber(0))"),
    ("the quota counts what is stored", "SND-24", "send.rs",
     "if ctx.stored_bytes.saturating_add(bytes) > size_bytes_max {", "if bytes > size_bytes_max {"),
    ("a sub-queue takes no sends", "SND-20", "send.rs",
     "            SubQueue::Main => Ok(()),\n            SubQueue::DeadLetter | SubQueue::TransferDeadLetter => {", "            SubQueue::Main | SubQueue::TransferDeadLetter => Ok(()),\n            SubQueue::DeadLetter => {"),
    ("a status that blocks sends blocks them", "ENT-24", "send.rs",
     "        self.refuse_status()?;\n        let size_max", "        let size_max"),
    ("a call gets no more than it asked for", "RCV-12", "demand.rs",
     "while messages.len() < call.count_max as usize\n            && let", "while messages.len() <= call.count_max as usize\n            && let"),
    ("a link gets no more than its credit", "RCV-16", "demand.rs",
     "self.delivery_limit.saturating_sub(self.delivered)\n", "self.delivery_limit.saturating_sub(self.delivered) + 1\n"),
    ("drained credit is given back", "RCV-18", "demand.rs",
     "        link.delivery_limit = link.delivered;\n", ""),
    ("a link goes to the back after its turn", "RCV-17", "demand.rs",
     "            && count < turn_max\n", ""),
    ("a broken link counts", "SET-31", "receive.rs",
     "LinkEnd::Orderly | LinkEnd::Broken => {", "LinkEnd::Broken => {\n                while let Some(lock) = self.locks.first_of(receiver).copied() {\n                    self.release(lock.sequence());\n                }\n            }\n            LinkEnd::Orderly => {"),
    ("a waiting call ends at its time", "RCV-11", "receive.rs",
     "filter(|(deadline, _)| *deadline <= now)", "filter(|(deadline, _)| *deadline < now)"),
    ("a status that blocks receiving blocks it", "ENT-24", "receive.rs",
     "if !self.description.status.allows_receive() {", "if false {"),
    ("a batch delete stops at the instant", "DEL-03", "browse.rs",
     "slot.enqueued_at < before", "slot.enqueued_at <= before"),
    ("peek begins at the number asked for", "PEK-04", "browse.rs",
     "members.iter_from(from)", "members.iter_from(from.next())"),
    ("a message in flight is offered to nobody", "LIF-01", "mod.rs",
     "self.insert(*sequence, *slot, session.as_deref());\n                self.hold_back(*sequence, stage);", "self.insert(*sequence, *slot, session.as_deref());\n                self.offer(*sequence);"),
    ("scheduled messages keep a queue in use", "TMP-14", "idle.rs",
     "            || self.tally.counts.scheduled > 0\n", ""),
    ("every use ends idleness", "TMP-09", "idle.rs",
     "        self.usage.last_at = self.usage.last_at.max(now);\n", ""),
    ("numbers are never given twice, not after a restart either", "MSG-12", "records.rs",
     "self.last_sequence = self.last_sequence.max(counters.last_sequence);", ""),
    ("what is fixed at creation stays", "ENT-16", "update.rs",
     "            return Err(Rejection::argument(format!(\n                \"{property} of", "            let _ = (Rejection::argument(format!(\n                \"{property} of"),
    ("nothing of a session overtakes what is on its way back", "SES-20", "session/mod.rs",
     "Some(returning) if returning < first => None,", "Some(returning) if returning < first => Some(first),"),
    ("closing a session counts nothing", "SES-31", "session/hold.rs",
     "LinkEnd::Orderly | LinkEnd::ByBroker => self.release(lock.sequence()),", "LinkEnd::Orderly | LinkEnd::ByBroker => self.fail_delivery(lock.sequence(), ctx, step),"),
    ("the message that expires a session goes last", "EXP-45", "expire.rs",
     "let sequence = doomed.others.pop_first();", "doomed.others.insert(doomed.cause);\n            let sequence = doomed.others.pop_first();"),
    ("a state on its way to the store can be read", "SES-24", "session/state.rs",
     "Some(bytes) => StateFacts::Fresh(bytes.clone()),", "Some(_) => StateFacts::Stored(self.session_state_key(session.name())),"),
    ("the session of the oldest message is next", "SES-07", "session/directory.rs",
     "self.open.first_key_value().map", "self.open.last_key_value().map"),
    ("a token is lost with its session", "SES-15", "lock.rs",
     "&& !sessions.is_in_force(token.epoch(), now)", "&& !sessions.is_in_force(token.epoch(), now)\n            && false"),
    ("nothing is offered while expiration is behind", "EXP-45", "session/accept.rs",
     "if self.is_expiry_behind(ctx.now) {", "if self.is_expiry_behind(ctx.now) && false {"),
    ("one expired message expires its session", "EXP-41", "expire.rs",
     "Some(sessions) if self.config.expire_whole_sessions => {", "Some(sessions) if !self.config.expire_whole_sessions => {"),
    ("a transfer removes what it moves", "FND-03", "records.rs",
     "        delete_origin(origin, batch);\n    }\n", "        let _ = delete_origin;\n    }\n"),
    ("a failed delivery is stored before its message leaves", "FND-03", "mod.rs",
     "if self.slots.get(*sequence).is_some_and(leaves) {", "if self.slots.get(*sequence).is_some_and(leaves) && false {"),
    ("a message makes four hops", "FWD-12", "transfer/dispatch.rs",
     "if slot.hops >= self.config", "if slot.hops > self.config"),
    ("a transfer counts a hop", "FWD-13", "../../transfer/errand.rs",
     "hops: hops.saturating_add(1),", "hops: *hops,"),
    ("nothing of a source that has ended is taken over", "FND-03", "../../transfer/passage.rs",
     "        if state.is_closed {\n            return None;\n        }\n", ""),
    ("a source that has ended waits for its guards", "FND-03", "../../transfer/passage.rs",
     "if state.claimed > 0 {", "if false {"),
    ("the guard of a failed batch is out until its shard is owned anew", "FND-03", "../../shell/writer.rs",
     "state.limbo.append(&mut one.guards);", "one.guards.clear();"),
    ("a message arrives before those that were not tried", "FWD-10", "transfer/arrive.rs",
     "is_stopped = when_full == WhenFull::Stop", "is_stopped = false && when_full == WhenFull::Stop"),
    ("who does not know asks the store", "FND-03", "../../transfer/errand.rs",
     "(None, _) => Departure::Taken,", "(None, _) => Departure::Kept,"),
    ("what has left is not counted any more", "FWD-25", "transfer/depart.rs",
     "step.bytes_left += u64::from(slot.size);", ""),
    ("a failing forwarder is given up", "FWD-32", "transfer/depart.rs",
     "delivery_count >= self.description.max_delivery_count", "delivery_count > self.description.max_delivery_count"),
]

RUNS = [
    ("model", ["cargo", "test", "-q", "-p", "peeklock-core", "--features", "testing", "--test", "model"]),
    ("sessions", ["cargo", "test", "-q", "-p", "peeklock-core", "--features", "testing", "--test", "sessions"]),
    ("transfers", ["cargo", "test", "-q", "-p", "peeklock-core", "--features", "testing", "--test", "transfers"]),
    ("forwarders", ["cargo", "test", "-q", "-p", "peeklock-core", "--features", "testing", "--test", "forwarders"]),
    ("unit", ["cargo", "test", "-q", "-p", "peeklock-core", "--features", "testing", "--lib"]),
    ("conformance", ["cargo", "test", "-q", "--test", "conformance"]),
]


def copy_tree(target: pathlib.Path) -> None:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=int, help="run one mutation, by its number")
    parser.add_argument("--list", action="store_true", help="list the mutations")
    arguments = parser.parse_args()
    chosen = [(n, m) for n, m in enumerate(MUTATIONS, 1) if arguments.only in (None, n)]
    if arguments.list:
        for number, (rule, ids, file, _, _) in chosen:
            print(f"{number:3} {ids:8} {rule} ({file})")
        return 0
    tree = ROOT / "target" / "mutations"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    environment = dict(os.environ, CARGO_TARGET_DIR=str(tree / "target"), RUST_BACKTRACE="0")
    missed = 0
    print("| # | rule | id | found by |\n|---|---|---|---|", flush=True)
    for number, (rule, ids, file, text, replacement) in chosen:
        path = tree / QUEUE / file
        before = path.read_text()
        if before.count(text) != 1:
            print(f"| {number} | {rule} | {ids} | **cannot be applied** |", flush=True)
            missed += 1
            continue
        path.write_text(before.replace(text, replacement))
        found = "**nobody**"
        started = time.monotonic()
        for name, command in RUNS:
            ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
            if "error[E" in ended.stderr or "could not compile" in ended.stderr:
                found = "**does not compile**"
                break
            if ended.returncode != 0:
                found = name
                break
        path.write_text(before)
        missed += found.startswith("**")
        print(f"| {number} | {rule} | {ids} | {found} |", flush=True)
        print(f"{number}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{len(chosen) - missed} of {len(chosen)} found", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
