//! Checks that the counts of a queue agree with its messages (CNT).

use crate::inspection::QueueSeen;
use crate::ledger::Standing;

/// Compares the counts of a queue with its messages.
pub fn count(queue: &QueueSeen, complain: &mut impl FnMut(String)) {
    let runtime = queue.description.get("runtime").cloned().unwrap_or_default();
    let reported = |name: &str| runtime[name].as_u64().unwrap_or(u64::MAX);
    let found = |standing: Standing| {
        queue.main.iter().filter(|seen| seen.standing == standing).count() as u64
    };
    // A scheduled message may be enqueued between the two reads. A subscription has no scheduled
    // messages and no count for them.
    let scheduled = runtime["scheduledMessageCount"].as_u64().unwrap_or(0);
    let reported_both = reported("activeMessageCount").saturating_add(scheduled);
    let found_both = found(Standing::Active) + found(Standing::Scheduled);
    for (what, reported, found) in [
        ("active and scheduled", reported_both, found_both),
        ("deferred", reported("deferredMessageCount"), found(Standing::Deferred)),
        ("dead-lettered", reported("deadLetterMessageCount"), queue.dead.len() as u64),
    ] {
        if reported != found {
            complain(format!("says {reported} {what} messages, and shows {found}"));
        }
    }
}
