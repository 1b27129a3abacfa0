//! Contents that a machine has requested. Contents in memory are passed on at once; others when the
//! driver has loaded them, away from its arbiter. They hold part of the room for contents that the
//! broker loads for itself, from before the load until the machine has them all.

use bytes::Bytes;

use super::{Shell, TreeFault, TurnResults};
use crate::admission::{LoadRoom, LoadedFor, loaded_bytes};
use crate::content_ref::ContentRef;
use crate::ids::SequenceNumber;
use crate::machine::{Machine, Preparation};
use crate::request::Release;
use crate::store::Reserved;
use crate::time::Timestamp;

/// Contents on their way to a machine. There is at most one such list, of bounded size: the machine
/// requests no more until it has this one.
pub(super) enum Load {
    /// The driver has yet to load them.
    Wanted(LoadRequest),
    /// The driver is loading them.
    Loading,
    /// They are loaded.
    Loaded(Vec<(SequenceNumber, Option<Bytes>)>, LoadRoom),
}

/// Contents that the driver must load.
pub struct LoadRequest {
    /// The contents. Without `room`, they keep no bytes in memory that are also on a medium.
    pub contents: PinnedContents,
    /// Bytes of room that they need.
    pub bytes: u64,
    /// The room if it was available at once; otherwise the driver must wait for it first.
    pub room: Option<LoadRoom>,
}

/// Pinned references to the contents of messages.
pub type PinnedContents = Vec<(SequenceNumber, ContentRef)>;

impl Load {
    pub(super) const fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }
}

impl<M: Machine> Shell<M> {
    /// Returns contents that the driver must load. The driver passes the result to
    /// [`Shell::loaded`], including contents that could not be read.
    pub fn take_load(&mut self) -> Option<LoadRequest> {
        match self.load.take() {
            Some(Load::Wanted(wanted)) => {
                self.load = Some(Load::Loading);
                Some(wanted)
            }
            other => {
                self.load = other;
                None
            }
        }
    }

    /// Takes loaded contents, and runs the machine with them.
    ///
    /// # Errors
    /// A failure that must end the tree.
    pub fn loaded(
        &mut self,
        contents: Vec<(SequenceNumber, Option<Bytes>)>,
        room: LoadRoom,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<TurnResults, TreeFault> {
        self.load = Some(Load::Loaded(contents, room));
        self.run([], now, out)
    }

    /// Pins the contents that the machine requested.
    pub(super) fn load(
        &mut self,
        sequences: &[SequenceNumber],
        bytes: u64,
    ) -> Result<(), TreeFault> {
        self.keys.clear();
        self.keys.extend(sequences.iter().map(|sequence| self.machine.content_key(*sequence)));
        let mut found = Vec::with_capacity(sequences.len());
        let bytes = loaded_bytes(sequences.len(), bytes);
        let room = self.loads.try_take(bytes, LoadedFor::Entity);
        match room {
            Some(_) => self.store.pin(&self.keys, &mut found),
            None => self.store.pin_unloaded(&self.keys, &mut found),
        }
        let mut contents = Vec::with_capacity(sequences.len());
        for (sequence, content) in sequences.iter().zip(found) {
            let content = content.ok_or_else(|| {
                TreeFault(format!("the store lost content of message {sequence}"))
            })?;
            contents.push((*sequence, content));
        }
        let loaded: Option<Vec<_>> = contents
            .iter()
            .map(|(sequence, content)| Some((*sequence, Some(content.loaded()?.clone()))))
            .collect();
        self.load = Some(match (loaded, room) {
            (Some(loaded), Some(room)) => Load::Loaded(loaded, room),
            (_, room) => Load::Wanted(LoadRequest { contents, bytes, room }),
        });
        Ok(())
    }

    /// Passes requested contents to the machine if they are loaded. Resulting records use the
    /// reserve of the store, since their messages were accepted earlier.
    pub(super) fn hand_over_loaded(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut TurnResults,
    ) -> Result<(), TreeFault> {
        let Some(Load::Loaded(contents, room)) =
            self.load.take_if(|load| matches!(load, Load::Loaded(..)))
        else {
            return Ok(());
        };
        // Each message is a separate atomic unit, so that a stage can be cut between them.
        let mut contents = contents.into_iter();
        while let Some((sequence, content)) = contents.next() {
            let ahead = content.as_ref().map(|content| Preparation::Loaded { sequence, content });
            if ahead.is_some_and(|ahead| !self.prepare(ahead, now)) {
                let rest = std::iter::once((sequence, content)).chain(contents).collect();
                self.load = Some(Load::Loaded(rest, room));
                return Ok(());
            }
            let one = vec![(sequence, content)];
            self.step(out, turn, now, Reserved::Granted, |machine, ctx, step| {
                machine.loaded(one, ctx, step);
                Ok(())
            })?
            .ok();
        }
        drop(room);
        Ok(())
    }
}
