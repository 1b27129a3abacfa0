//! Counts calls and applies the planned failures. `simulated_disk.rs` asks it before each call.

use std::io;

use super::{Call, Fault};
use crate::Random;

/// The fate of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallFate {
    Passes,
    Fails(Fault),
    /// The power fails during the call.
    LastOne,
}

#[derive(Default)]
pub(super) struct Calls {
    total: u64,
    of_kind: [u64; Call::ALL.len()],
    planned: Vec<Planned>,
    failures: u64,
    cut_at: Option<u64>,
    cut: bool,
}

struct Planned {
    call: Call,
    first: u64,
    last: u64,
    fault: Fault,
}

pub(super) fn power_is_cut() -> io::Error {
    io::Error::other("the power is cut")
}

impl CallFate {
    pub(super) fn must_pass(self) -> io::Result<()> {
        match self {
            Self::Passes => Ok(()),
            Self::Fails(_) => Err(io::Error::other("input/output error, as planned")),
            Self::LastOne => Err(power_is_cut()),
        }
    }

    /// Whether an indivisible operation takes effect.
    pub(super) const fn is_done(self, random: &mut Random) -> bool {
        match self {
            Self::Passes | Self::Fails(Fault::Done) => true,
            Self::Fails(Fault::Whole) => false,
            Self::Fails(Fault::Partly) | Self::LastOne => random.one_in(2),
        }
    }

    /// The amount of `whole` that takes effect.
    pub(super) fn amount(self, random: &mut Random, whole: usize) -> usize {
        match self {
            Self::Passes | Self::Fails(Fault::Done) => whole,
            Self::Fails(Fault::Whole) => 0,
            Self::Fails(Fault::Partly) => random.index(whole),
            // The crash decides which part of a whole write reaches the medium.
            Self::LastOne if random.one_in(2) => whole,
            Self::LastOne => random.index(whole),
        }
    }
}

impl Calls {
    pub(super) fn enter(&mut self, call: Call) -> io::Result<CallFate> {
        if self.cut {
            return Err(power_is_cut());
        }
        self.total += 1;
        let count = self.of_kind.get_mut(call as usize).map_or(0, |count| {
            *count += 1;
            *count
        });
        if self.cut_at.is_some_and(|at| self.total >= at) {
            self.cut = true;
            return Ok(CallFate::LastOne);
        }
        let planned = self
            .planned
            .iter()
            .find(|one| one.call == call && (one.first..=one.last).contains(&count));
        let Some(planned) = planned else { return Ok(CallFate::Passes) };
        self.failures += 1;
        Ok(CallFate::Fails(planned.fault))
    }

    pub(super) const fn cut(&mut self) {
        self.cut = true;
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }

    pub(super) const fn cut_at(&mut self, count: u64) {
        self.cut_at = Some(self.total + count);
    }

    pub(super) fn fail(&mut self, call: Call, count: u64, times: u64, fault: Fault) {
        let first = self.total_of(call) + count;
        let last = first.saturating_add(times.saturating_sub(1));
        self.planned.push(Planned { call, first, last, fault });
    }

    pub(super) fn heal(&mut self) {
        self.planned.clear();
    }

    pub(super) const fn failure_count(&self) -> u64 {
        self.failures
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn total_of(&self, call: Call) -> u64 {
        self.of_kind.get(call as usize).copied().unwrap_or(0)
    }
}
