//! Steps of operators' jobs.

use peeklock_core::command::{Act, Deed, JobStep, NewInstant};
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Generator, View};

impl Generator {
    /// A new step of a job, a step without a job, or a repetition of an earlier step, at times with
    /// another deed.
    pub(super) fn act(&mut self, view: &View) -> (SubQueue, Act) {
        if self.random.percent(20)
            && let Some((sub_queue, mut act)) = self.random.pick_some(&self.acts)
        {
            if self.random.percent(30) {
                act.deed = self.deed(view);
            }
            return (sub_queue, act);
        }
        let sub_queue = self.sub_queue();
        let deed = self.deed(view);
        let there = |all: &[(u64, SubQueue)]| {
            let there = all.iter().filter(|(_, place)| *place == sub_queue);
            there.map(|(number, _)| *number).collect::<Vec<u64>>()
        };
        let fitting = match &deed {
            Deed::Undefer => there(&view.deferred),
            Deed::Reschedule(_) => view.scheduled.clone(),
            _ if self.random.percent(40) => there(&view.locked),
            _ => (1..=view.last_sequence).collect(),
        };
        let numbers = self.numbers(&fitting, view.last_sequence);
        let sequences = numbers.into_iter().map(SequenceNumber).collect();
        let needs_step = deed.sends() && self.random.percent(90);
        let step = (needs_step || self.random.percent(50)).then(|| {
            let number = self.next_step + 1;
            self.next_step = number;
            JobStep { job: self.job(), number }
        });
        let act = Act { step, sequences, deed, breaks_locks: self.random.percent(40), kept: None };
        self.acts.push((sub_queue, act.clone()));
        // A next step, at times while messages of this one are leaving.
        if act.deed.sends()
            && let Some(JobStep { job, number }) = act.step
        {
            self.next_step = number + 1;
            let step = Some(JobStep { job, number: number + 1 });
            self.next_act =
                self.random.percent(50).then(|| (sub_queue, Act { step, ..act.clone() }));
        }
        if self.acts.len() > 4 {
            self.acts.remove(0);
        }
        (sub_queue, act)
    }

    /// One of a few jobs, so that steps meet their receipts, or a job that exceeds the limit.
    pub(super) fn job(&mut self) -> JobId {
        JobId(u128::from(self.random.below(10)))
    }

    fn deed(&mut self, view: &View) -> Deed {
        let text = |length: usize| -> Box<str> { "d".repeat(length).into() };
        match self.random.below(12) {
            9 => Deed::Move { to: "elsewhere".into(), edit: None },
            10 | 11 => Deed::Resubmit { to: None, edit: None },
            0 | 1 => Deed::Delete,
            2..=4 => Deed::DeadLetter {
                reason: self.random.percent(70).then(|| text(self.random.pick(&[0, 7, 900]))),
                description: self.random.percent(50).then(|| text(self.random.pick(&[1, 400]))),
            },
            5 | 6 => Deed::Undefer,
            _ => Deed::Reschedule(self.instant(view)),
        }
    }

    fn instant(&mut self, view: &View) -> NewInstant {
        let ms = self.random.pick(&[-60_000, -2_000, 0, 1, 2_000, 9_000]);
        let shift = TimeSpan::from_ms(self.random.pick(&[0, 1, 1_000, 4_000, 60_000]));
        match self.random.below(4) {
            0 => NewInstant::Now,
            1 => NewInstant::Later(shift),
            2 => NewInstant::Earlier(shift),
            _ => NewInstant::At(Timestamp::from_unix_ms(view.now.unix_ms().saturating_add(ms))),
        }
    }
}
