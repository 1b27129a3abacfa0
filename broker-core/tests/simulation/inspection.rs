//! Judgement at rest: compares the knowledge of clients with the stored records.

use peeklock_core::machine::slot::SlotState;
use peeklock_core::time::Timestamp;

use crate::book::{Book, Sending, is_dead};
use crate::clients::name;
use crate::image::Image;

/// Occasion of an inspection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// Everything is answered and durable.
    Rest,
    /// The entity was read back after a failure or a crash: unknown outcomes are now decided
    /// permanently.
    Restart,
}

impl Book {
    /// Compares every message with the image (FND-02, LIF-02, LIF-04).
    pub fn inspect(&mut self, image: &Image, occasion: Occasion, now: Timestamp) {
        self.inspect_present(image, occasion);
        if occasion == Occasion::Restart {
            self.inspect_transactions(image);
        }
        self.inspect_absent(image, occasion, now);
        if occasion == Occasion::Restart {
            self.inspect_batches(image);
            self.decide(image, now);
        }
        self.inspect_numbers(image);
        // Overlays are added without a reservation.
        let bytes_max = self.description.size_bytes_max() + 600 * image.overlay_count;
        assert!(
            image.size_bytes <= bytes_max,
            "{} bytes stored of {bytes_max} allowed (SND-24)",
            image.size_bytes
        );
    }

    fn inspect_present(&mut self, image: &Image, occasion: Occasion) {
        let mut markers: Vec<u64> = image.messages.iter().map(|stored| stored.marker).collect();
        markers.sort_unstable();
        assert!(markers.is_sorted_by(|a, b| a < b), "a message is stored twice (LIF-02)");
        for stored in &image.messages {
            self.learn_number(stored.sequence, stored.marker);
            let Some(message) = self.messages.get_mut(&stored.marker) else {
                panic!("message {} was never sent to this entity", stored.marker);
            };
            let context = format!("{stored:?}: {message:?}");
            // A dead letter has left its session (DLQ-11).
            let session = message.sent.session.filter(|_| !is_dead(stored.sub_queue)).map(name);
            assert_eq!(stored.session, session, "in another session (SES-02): {context}");
            match message.sending {
                Sending::Accepted => {}
                Sending::Unknown if occasion == Occasion::Restart => {}
                Sending::Asked if occasion == Occasion::Restart => {
                    panic!("stored although its command never ran: {context}")
                }
                Sending::Asked | Sending::Unknown => panic!("stored and undecided: {context}"),
                Sending::Refused => panic!("stored although it was refused (ERR-06): {context}"),
                Sending::Duplicate => panic!("a duplicate is stored (DUP-02): {context}"),
            }
            assert!(message.gone_at.is_none(), "stored although it is gone (FND-02): {context}");
            if stored.state == SlotState::Scheduled {
                assert!(message.sent.scheduled_at.is_some(), "never scheduled: {context}");
                assert!(
                    message.accepted_as == 0 || message.accepted_as == stored.sequence,
                    "scheduled under another number: {context}"
                );
                continue;
            }
            assert!(
                message.number == 0 || message.number == stored.sequence,
                "stored under another number (MSG-12): {context}"
            );
            message.number = stored.sequence;
            let dead = is_dead(stored.sub_queue);
            assert!(dead || !message.dead, "back from the dead (DLQ-12): {context}");
            if message.deferred && !dead {
                assert_eq!(
                    stored.state,
                    SlotState::Deferred,
                    "no longer deferred (LIF-04): {context}"
                );
            }
            assert!(
                stored.delivery_count >= message.count_floor,
                "count {} although {} failures were acknowledged (SET-27): {context}",
                stored.delivery_count,
                message.count_floor
            );
            assert!(
                stored.delivery_count <= message.deliveries,
                "count {} after {} deliveries (SET-28): {context}",
                stored.delivery_count,
                message.deliveries
            );
            message.dead = dead;
        }
    }

    /// Every acknowledged message that is absent must have been removed (FND-02).
    fn inspect_absent(&mut self, image: &Image, occasion: Occasion, now: Timestamp) {
        let present: std::collections::BTreeSet<u64> =
            image.messages.iter().map(|stored| stored.marker).collect();
        let expires = self.descriptions().any(|one| !one.dead_lettering_on_message_expiration);
        let (mut unexplained, mut expirable) = (Vec::new(), 0);
        for (marker, message) in &self.messages {
            if present.contains(marker)
                || message.sending != Sending::Accepted
                || message.gone_at.is_some()
            {
                continue;
            }
            if expires && self.may_go_with_its_session(message, now) && !message.dead {
                expirable += 1;
            } else if occasion == Occasion::Rest || !message.perhaps_gone {
                unexplained.push(*marker);
            } else {
                expirable += 1;
            }
        }
        assert!(
            unexplained.len() as u64 <= self.loss_max,
            "acknowledged messages are lost (FND-02), {} of them taken unseen: {:?}",
            self.loss_max,
            unexplained.iter().map(|marker| &self.messages[marker]).collect::<Vec<_>>()
        );
        assert!(
            unexplained.len() as u64 + expirable >= self.loss_min,
            "fewer messages are gone than were deleted (DEL-01)"
        );
        for (marker, message) in &mut self.messages {
            if message.sending == Sending::Accepted && !present.contains(marker) {
                message.gone_at.get_or_insert(0);
            }
        }
        if !self.hides() {
            (self.loss_min, self.loss_max) = (0, 0);
        } else {
            self.loss_min = 0;
        }
    }

    /// A transaction with an unknown outcome is complete or has no effect: its sends are stored
    /// exactly if the messages that it completes are not (TXN-15).
    fn inspect_transactions(&mut self, image: &Image) {
        if self.description.requires_duplicate_detection {
            for message in self.messages.values_mut() {
                message.perhaps_gone |= !std::mem::take(&mut message.gone_with).is_empty();
            }
            return;
        }
        let is_there = |marker: &u64| image.messages.iter().any(|one| one.marker == *marker);
        for (marker, message) in &mut self.messages {
            let with = std::mem::take(&mut message.gone_with);
            if with.iter().any(is_there) {
                assert!(
                    !is_there(marker),
                    "message {marker} is stored, and so is what a transaction that completes it \
                     has sent (TXN-15): {message:?}"
                );
                message.perhaps_gone = true;
            }
        }
    }

    /// A batch with an unknown outcome is stored whole or not at all (SND-29).
    fn inspect_batches(&self, image: &Image) {
        if self.description.requires_duplicate_detection {
            return;
        }
        let mut batches: std::collections::BTreeMap<u64, (usize, usize)> =
            std::collections::BTreeMap::new();
        for (marker, message) in &self.messages {
            if message.sending == Sending::Unknown {
                let (count, present) = batches.entry(message.ticket).or_default();
                *count += 1;
                *present += usize::from(image.messages.iter().any(|one| one.marker == *marker));
            }
        }
        for (ticket, (count, present)) in batches {
            assert!(
                present == 0 || present == count,
                "{present} of {count} messages of batch {ticket} are stored (SND-29)"
            );
        }
    }

    /// Decides unknown outcomes by the stored records. Locks are gone, and counts are the stored
    /// ones.
    fn decide(&mut self, image: &Image, now: Timestamp) {
        for (marker, message) in &mut self.messages {
            if message.sending == Sending::Asked {
                // Its command has not reached the entity yet.
                continue;
            }
            let stored = image.messages.iter().find(|stored| stored.marker == *marker);
            message.lock = None;
            if message.sending == Sending::Unknown {
                message.sending =
                    if stored.is_some() { Sending::Accepted } else { Sending::Refused };
            }
            if let Some(stored) = stored {
                if message.accepted_as == 0 && message.sent.scheduled_at.is_none() {
                    message.accepted_as = stored.sequence;
                }
                if message.accepted_as == 0 {
                    message.accepted_at = now;
                }
                message.deferred = stored.state == SlotState::Deferred;
                message.touched =
                    stored.state != SlotState::Active || stored.is_delayed || message.dead;
                message.count = stored.delivery_count;
            } else {
                message.gone_at.get_or_insert(0);
            }
            message.perhaps_gone = false;
            message.perhaps_dead = false;
            message.perhaps_deferred = false;
        }
    }

    /// Only stored messages use up numbers (MSG-13).
    fn inspect_numbers(&self, image: &Image) {
        let mut used = self.unknown_numbers;
        for message in self.messages.values() {
            let took_part = matches!(message.sending, Sending::Accepted)
                || (message.sending == Sending::Unknown);
            used += u64::from(took_part && message.accepted_as != 0);
            used += u64::from(took_part && message.sent.scheduled_at.is_some());
        }
        assert!(
            image.last_sequence <= used,
            "{:?} {:?}: the last number is {}, but only {used} can have been used, nobody knows {:?} (MSG-13)",
            self.id,
            self.by_number,
            image.last_sequence,
            (1..=image.last_sequence)
                .filter(|number| !self.by_number.contains_key(number))
                .collect::<Vec<_>>()
        );
    }
}
