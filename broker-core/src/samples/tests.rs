//! Bounds of samples (CON-36).

use super::*;
use crate::ids::SequenceNumber;
use crate::message::Message;
use crate::rule::Acceptance;
use crate::time::{TimeSpan, Timestamp};

fn published(number: u64, property_bytes: usize) -> SampledMessage {
    let mut message = Message::new("x".repeat(1_000));
    message.subject = Some("s".repeat(property_bytes));
    let content = message.encode();
    let acceptance = Acceptance {
        sequence: SequenceNumber(number),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::NONE,
        time_to_live_max: TimeSpan::from_minutes(1),
        size: content.size(),
    };
    SampledMessage { content, changes: None, acceptance, copy_count: 0 }
}

fn numbers(samples: &Samples, topic: u64) -> Vec<u64> {
    let (newest, _) = samples.newest(EntityId(topic), usize::MAX);
    newest.iter().map(|sample| sample.acceptance.sequence.0).collect()
}

fn bytes(samples: &Samples) -> u64 {
    samples.rings().values().map(|ring| ring.lock().bytes).sum()
}

/// CON-36: at most 256 samples, the newest, also of a batch that is larger; without bodies.
#[test]
fn a_topic_keeps_its_last_256_messages_without_bodies() {
    let samples = Samples::new(SamplesConfig::default());
    let ring = samples.ring(EntityId(1));
    let add = |from: u64, to: u64| {
        let batch: Vec<_> = (from..to).map(|number| published(number, 10)).collect();
        ring.add(&batch, &samples);
    };
    add(1, 257);
    assert_eq!(numbers(&samples, 1), (1..257).rev().collect::<Vec<_>>());
    add(257, 258);
    assert_eq!(numbers(&samples, 1), (2..258).rev().collect::<Vec<_>>());
    add(258, 900);
    assert_eq!(numbers(&samples, 1), (644..900).rev().collect::<Vec<_>>());
    let (newest, total) = samples.newest(EntityId(1), 2);
    assert_eq!((newest.len(), total), (2, 256));
    assert!(newest[0].bytes() < 100 && newest[0].acceptance.size > 1_000);
}

/// CON-36: at most 256 KiB of a topic, also with large properties; a larger message is no sample,
/// and removes none.
#[test]
fn samples_of_a_topic_stay_within_its_bytes() {
    let samples = Samples::new(SamplesConfig::default());
    let ring = samples.ring(EntityId(1));
    for number in 1..=100 {
        ring.add(&[published(number, 30_000)], &samples);
        assert!(bytes(&samples) <= 256 << 10);
    }
    assert_eq!(numbers(&samples, 1), (93..=100).rev().collect::<Vec<_>>());
    ring.add(&[published(101, 256 << 10)], &samples);
    assert_eq!(numbers(&samples, 1), (93..=100).rev().collect::<Vec<_>>());
    let batch: Vec<_> = [(102, 10), (103, 256 << 10), (104, 10)].into();
    let batch: Vec<_> = batch.into_iter().map(|(number, size)| published(number, size)).collect();
    ring.add(&batch, &samples);
    assert_eq!(numbers(&samples, 1)[..3], [104, 102, 100]);
    assert!(bytes(&samples) <= 256 << 10);
}

/// CON-36: topics share 16 MiB. A share halves with the 65th topic, and doubles when one is gone.
#[test]
fn samples_of_all_topics_stay_within_their_bytes() {
    let samples = Samples::new(SamplesConfig::default());
    let fill = |topic: u64| {
        let ring = samples.ring(EntityId(topic));
        for number in 0..10 {
            ring.add(&[published(number, 30_000)], &samples);
        }
        ring
    };
    let mut rings: Vec<_> = (0..64).map(fill).collect();
    assert_eq!(numbers(&samples, 0).len(), 8);
    rings.push(fill(64));
    assert_eq!((numbers(&samples, 0).len(), numbers(&samples, 64).len()), (4, 4));
    rings.extend((65..300).map(fill));
    assert!(bytes(&samples) <= 16 << 20);
    for (topic, ring) in (64..300).zip(&rings[64..]) {
        samples.forget(EntityId(topic), ring);
    }
    assert!(numbers(&samples, 64).is_empty());
    rings[0].add(&(0..10).map(|number| published(number, 30_000)).collect::<Vec<_>>(), &samples);
    assert_eq!(numbers(&samples, 0).len(), 8);
}

/// CON-36: a topic that is opened again has a new ring, which the end of the earlier one keeps.
#[test]
fn the_ring_of_a_topic_that_is_opened_again_stays() {
    let samples = Samples::new(SamplesConfig::default());
    let earlier = samples.ring(EntityId(1));
    let ring = samples.ring(EntityId(1));
    ring.add(&[published(7, 10)], &samples);
    samples.forget(EntityId(1), &earlier);
    assert_eq!(numbers(&samples, 1), [7]);
    samples.forget(EntityId(1), &ring);
    assert!(numbers(&samples, 1).is_empty());
}
