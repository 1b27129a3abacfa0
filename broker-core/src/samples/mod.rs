//! Samples: the last published messages of each topic, without their bodies, to try rules on
//! (CON-36).
//!
//! ```text
//!  Topic notes a publish ─► SampleRecorder of its shell ─► SampleRing ◄── access/filters.rs
//! ```
//!
//! A topic has at most 256 samples and 256 KiB. With many topics, each has less, so that all have
//! at most 16 MiB together. A message whose properties are larger than the share of its topic is no
//! sample.

pub mod query;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::EntityId;
use crate::rule::SampledMessage;

/// Maximum number of samples of a topic.
const COUNT_MAX: usize = 256;
/// Memory of a sample in addition to its bytes: its place in a ring that may be half empty, and two
/// allocations.
const SAMPLE_BYTES: u64 = 2 * size_of::<SampledMessage>() as u64 + 64;

/// Settings of samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplesConfig {
    /// Maximum memory for the samples of all topics.
    pub bytes_max: u64,
    /// Maximum memory for the samples of a topic.
    pub topic_bytes_max: u64,
}

impl Default for SamplesConfig {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, topic_bytes_max: 256 << 10 }
    }
}

/// The samples of a broker.
pub(crate) struct Samples {
    config: SamplesConfig,
    rings: Mutex<HashMap<EntityId, Arc<SampleRing>>>,
    /// Maximum memory for the samples of a topic now.
    share: AtomicU64,
}

/// The samples of a topic.
#[derive(Default)]
pub(crate) struct SampleRing(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    /// The oldest first.
    samples: VecDeque<SampledMessage>,
    bytes: u64,
}

fn weight(sample: &SampledMessage) -> u64 {
    SAMPLE_BYTES.saturating_add(sample.bytes() as u64)
}

impl Samples {
    pub(crate) fn new(config: SamplesConfig) -> Self {
        let share = AtomicU64::new(config.topic_bytes_max);
        Self { config, rings: Mutex::default(), share }
    }

    /// Returns a new ring for a topic.
    pub(crate) fn ring(&self, topic: EntityId) -> Arc<SampleRing> {
        let ring: Arc<SampleRing> = Arc::default();
        let mut rings = self.rings();
        rings.insert(topic, Arc::clone(&ring));
        let share = self.share_of(rings.len());
        // The share halves each time that the number of topics has doubled.
        if share < self.share.swap(share, Ordering::SeqCst) {
            rings.values().for_each(|ring| ring.lock().trim(share));
        }
        ring
    }

    /// Forgets the ring of a topic that has ended, unless the topic has another one.
    pub(crate) fn forget(&self, topic: EntityId, ring: &Arc<SampleRing>) {
        let mut rings = self.rings();
        if rings.get(&topic).is_some_and(|kept| Arc::ptr_eq(kept, ring)) {
            rings.remove(&topic);
            self.share.store(self.share_of(rings.len()), Ordering::SeqCst);
        }
    }

    /// Returns up to `count` samples of a topic, the newest first, and the number of all.
    pub(crate) fn newest(&self, topic: EntityId, count: usize) -> (Vec<SampledMessage>, usize) {
        let Some(ring) = self.rings().get(&topic).map(Arc::clone) else { return (Vec::new(), 0) };
        let ring = ring.lock();
        (ring.samples.iter().rev().take(count).cloned().collect(), ring.samples.len())
    }

    /// The largest half of a half ... of the maximum of a topic that all topics can have.
    fn share_of(&self, topics: usize) -> u64 {
        let mut share = self.config.topic_bytes_max;
        while share > 0 && share.saturating_mul(topics as u64) > self.config.bytes_max {
            share /= 2;
        }
        share
    }

    fn rings(&self) -> MutexGuard<'_, HashMap<EntityId, Arc<SampleRing>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampleRing {
    /// Adds messages, the oldest first, without their bodies; not those larger than the share.
    pub(crate) fn add(&self, messages: &[SampledMessage], samples: &Samples) {
        let last = messages.get(messages.len().saturating_sub(COUNT_MAX)..).unwrap_or_default();
        let mut ring = self.lock();
        let share = samples.share.load(Ordering::SeqCst);
        for message in last {
            // A larger message would remove all samples, and itself.
            if SAMPLE_BYTES.saturating_add(message.bytes_without_body() as u64) > share {
                continue;
            }
            let sample = message.without_body();
            ring.bytes = ring.bytes.saturating_add(weight(&sample));
            ring.samples.push_back(sample);
            ring.trim(share);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Removes the oldest samples until the others have room.
    fn trim(&mut self, bytes_max: u64) {
        while self.samples.len() > COUNT_MAX || self.bytes > bytes_max {
            let Some(oldest) = self.samples.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(weight(&oldest));
        }
    }
}
