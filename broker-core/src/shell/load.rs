//! Contents that a machine has asked for: those at hand are given at once, others when the driver has
//! loaded them, away from its arbiter. They take of the room that the broker has for what it loads for itself, from
//! before they are loaded until the machine has got all of them.

use bytes::Bytes;

use super::{Failure, Shell, Turn};
use crate::admission::{LoadRoom, LoadedFor, loaded_bytes};
use crate::content_ref::ContentRef;
use crate::entity::{Ahead, Machine};
use crate::ids::SequenceNumber;
use crate::request::Release;
use crate::store::Reserved;
use crate::time::Timestamp;

/// Contents on their way to a machine. There is one such list at a time, of bounded size: the machine
/// asks for no more before it got what it asked for.
pub(super) enum Load {
    /// Somebody has to load them.
    Wanted(Wanted),
    /// Somebody does.
    Loading,
    /// They are there.
    Loaded(Vec<(SequenceNumber, Option<Bytes>)>, LoadRoom),
}

/// What the driver has to load.
pub struct Wanted {
    /// The contents. Without room they hold none of what is on a medium.
    pub contents: Contents,
    /// What they take of the room.
    pub bytes: u64,
    /// That room, if there was some at once; else it is to be waited for first.
    pub room: Option<LoadRoom>,
}

/// References to the contents of messages, pinned.
pub type Contents = Vec<(SequenceNumber, ContentRef)>;

impl Load {
    pub(super) const fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }
}

impl<M: Machine> Shell<M> {
    /// What the driver has to load; it gives it back by [`Shell::loaded`], also what could not be read.
    pub fn take_load(&mut self) -> Option<Wanted> {
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

    /// Takes what was loaded, and runs the machine with it.
    ///
    /// # Errors
    /// When the tree must end.
    pub fn loaded(
        &mut self,
        contents: Vec<(SequenceNumber, Option<Bytes>)>,
        room: LoadRoom,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<Turn, Failure> {
        self.load = Some(Load::Loaded(contents, room));
        self.run([], now, out)
    }

    /// Pins the contents that the machine asks for.
    pub(super) fn load(&mut self, sequences: &[SequenceNumber], bytes: u64) -> Result<(), Failure> {
        self.keys.clear();
        self.keys.extend(sequences.iter().map(|sequence| self.machine.content_key(*sequence)));
        let mut found = Vec::with_capacity(sequences.len());
        let bytes = loaded_bytes(sequences.len(), bytes);
        let room = self.loads.try_take(bytes, LoadedFor::Entity);
        match room {
            Some(_) => self.store.pin(&self.keys, &mut found),
            None => self.store.pin_apart(&self.keys, &mut found),
        }
        let mut contents = Vec::with_capacity(sequences.len());
        for (sequence, content) in sequences.iter().zip(found) {
            let content = content
                .ok_or_else(|| Failure(format!("the store lost content of message {sequence}")))?;
            contents.push((*sequence, content));
        }
        let at_hand: Option<Vec<_>> = contents
            .iter()
            .map(|(sequence, content)| Some((*sequence, Some(content.loaded()?.clone()))))
            .collect();
        self.load = Some(match (at_hand, room) {
            (Some(loaded), Some(room)) => Load::Loaded(loaded, room),
            (_, room) => Load::Wanted(Wanted { contents, bytes, room }),
        });
        Ok(())
    }

    /// Gives the machine what it asked for, if it is there. What it does with it draws on the spare of
    /// the store: it was accepted before.
    pub(super) fn hand_over_loaded(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
        turn: &mut Turn,
    ) -> Result<(), Failure> {
        let Some(Load::Loaded(contents, room)) =
            self.load.take_if(|load| matches!(load, Load::Loaded(..)))
        else {
            return Ok(());
        };
        // Each message is an atomic unit of its own, so that a stage can be cut between them.
        let mut contents = contents.into_iter();
        while let Some((sequence, content)) = contents.next() {
            let ahead = content.as_ref().map(|content| Ahead::Loaded { sequence, content });
            if ahead.is_some_and(|ahead| !self.go_ahead(ahead, now)) {
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
