//! Counts of messages (ADM-35).

use peeklock_core::command::Counts;

use super::super::xml::{COUNTS, Xml};

/// Writes the parts. Some clients find them by the prefix that the one attribute declares.
pub(super) fn write(xml: &mut Xml, counts: &Counts) {
    xml.element("CountDetails", &[("xmlns:d2p1", COUNTS)], |xml| {
        for (name, count) in [
            // As the cloud counts: deferred ones, too (CNT-02).
            ("ActiveMessageCount", counts.active + counts.deferred),
            ("DeadLetterMessageCount", counts.dead_letter),
            ("ScheduledMessageCount", counts.scheduled),
            ("TransferDeadLetterMessageCount", counts.transfer_dead_letter),
            ("TransferMessageCount", counts.transfer),
        ] {
            xml.leaf(&format!("d2p1:{name}"), &count.to_string());
        }
    });
}
