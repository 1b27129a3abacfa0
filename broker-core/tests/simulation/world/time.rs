//! The clock, and the room of the store.

use super::*;

impl World {
    pub(super) fn change_room(&mut self) {
        self.room = match self.random.below(4) {
            0 => Room::Busy,
            1 => Room::Full,
            _ => Room::Open,
        };
        self.auditor.was_full |= self.room == Room::Full;
        let room = self.room;
        self.note(|| format!("the store is {room:?}"));
        self.store.set_room(room);
        self.wake();
    }

    pub(super) fn let_time_pass(&mut self) {
        let milliseconds = match self.random.below(20) {
            0..=9 => self.random.between(1, 60),
            10..=15 => self.random.between(100, 3_000),
            16 | 17 => self.random.between(3_000, 40_000),
            18 => self.random.between(60_000, 700_000),
            _ => 0,
        };
        let span = TimeSpan::from_ms(i64::try_from(milliseconds).unwrap_or(0));
        if milliseconds == 0 {
            let earliest = self.next_deadline();
            self.now = self.now.max(earliest.unwrap_or(self.now));
            return;
        }
        if self.random.one_in(3) {
            self.pass_promptly(span);
        } else {
            self.now = self.now.plus(span);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.entities.iter().filter_map(|of| of.shell.as_ref()?.next_deadline()).min()
    }

    /// Lets time pass, and every timer fires when it is due.
    pub(super) fn pass_promptly(&mut self, span: TimeSpan) {
        let until = self.now.plus(span);
        let mut knocks = 0;
        for _ in 0..2_000 {
            while let Some(entity) = self.due() {
                knocks += 1;
                assert!(knocks < KNOCKS_MAX, "entity {entity} is due and never does what is due");
                if !self.run(entity) {
                    break;
                }
                if self.entities[entity].dirty {
                    self.submit(entity);
                }
                if self.now > until {
                    return;
                }
            }
            match self.next_deadline() {
                Some(at) if at < until => self.now = self.now.max(at).plus(TimeSpan::from_ticks(1)),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    pub(super) fn due(&self) -> Option<usize> {
        self.entities.iter().position(|of| {
            let deadline = of.shell.as_ref().and_then(Shell::next_deadline);
            deadline.is_some_and(|deadline| deadline <= self.now)
        })
    }
}
