//! Keeps the published messages of a topic as samples (CON-36).

use std::sync::Arc;

use super::Shell;
use crate::ids::EntityId;
use crate::machine::Machine;
use crate::rule::SampledMessage;
use crate::samples::{SampleRing, Samples};

/// Number of messages for which a topic keeps memory between calls.
const NOTED_KEPT: usize = 16;

/// Samples of an entity. They end with its shell.
pub(super) struct SampleRecorder {
    entity: EntityId,
    samples: Arc<Samples>,
    /// Made with the first sample, so that only topics that are used have one.
    ring: Option<Arc<SampleRing>>,
}

impl SampleRecorder {
    /// Keeps the messages that a call of the machine has published.
    pub(super) fn note(&mut self, noted: &mut Vec<SampledMessage>) {
        if noted.is_empty() {
            return;
        }
        let Self { entity, samples, ring } = self;
        ring.get_or_insert_with(|| samples.ring(*entity)).add(noted, samples);
        noted.clear();
        noted.shrink_to(NOTED_KEPT);
    }
}

impl Drop for SampleRecorder {
    fn drop(&mut self) {
        if let Some(ring) = &self.ring {
            self.samples.forget(self.entity, ring);
        }
    }
}

impl<M: Machine> Shell<M> {
    /// Keeps samples of published messages.
    pub(crate) fn with_samples(mut self, entity: EntityId, samples: Option<Arc<Samples>>) -> Self {
        self.step.notes_samples = samples.is_some();
        self.samples = samples.map(|samples| SampleRecorder { entity, samples, ring: None });
        self
    }
}
