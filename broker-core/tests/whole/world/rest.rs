//! Checks once no work is in progress.

use peeklock_core::store::Shard;
use peeklock_core::time::TimeSpan;
use peeklock_store_testing::Fate;

use super::{SHARDS, World};
use crate::oracle::Oracle;

impl World {
    /// Finishes all work in progress with a working store.
    pub fn come_to_rest(&mut self) {
        self.note(|| "come to rest".to_owned());
        let odds = std::mem::take(&mut self.odds);
        for _ in 0..2_000 {
            self.resubmit();
            for shard in 0..SHARDS {
                while self.store.complete_next(Shard(shard), Fate::Store) {
                    self.take_completions();
                }
            }
            self.take_completions();
            for place in 0..self.groves.len() {
                for member in 0..self.groves[place].members.len() {
                    self.read_mail_of(place, member);
                }
                self.submit_tree(place);
            }
            for _ in 0..self.errands.len() {
                self.walk();
            }
            self.process_ends();
            self.move_endings();
            if self.is_at_rest() {
                self.odds = odds;
                self.check_rest();
                return;
            }
            // Lazy changes are flushed.
            self.oracle.now = self.oracle.now.plus(TimeSpan::from_ms(501));
        }
        panic!("the world does not come to rest");
    }

    fn is_at_rest(&self) -> bool {
        self.errands.is_empty()
            && self.fates.is_empty()
            && (0..SHARDS).all(|shard| self.store.queued(Shard(shard)) == 0)
            && self.done.lock().unwrap().is_empty()
            && self.ended.lock().unwrap().is_empty()
            && self.unknown.lock().unwrap().is_empty()
            && self.groves.iter().all(|grove| {
                grove.ending.is_none()
                    && grove.tree.borrow().is_quiet()
                    && grove.members.iter().all(|member| member.mail.is_empty())
            })
    }

    /// Machines, store and oracle agree.
    fn check_rest(&mut self) {
        for grove in &self.groves {
            let mut bytes = 0;
            for member in &grove.members {
                let shell = member.shell.as_ref().unwrap().borrow();
                let image = crate::image::Image::read(&self.store, member.id);
                let found = shell.machine().size_bytes();
                assert_eq!(found, image.size_bytes, "{}: size (CNT-08)", member.path);
                bytes += found;
                assert_eq!(image.states, self.oracle.entities[&member.id].states, "SES-25");
            }
            let tree = grove.tree.borrow();
            assert_eq!(tree.stored_bytes(), bytes, "{}: account (TOP-10)", grove.members[0].path);
            assert_eq!(tree.size_bytes(), bytes, "{}: size (CNT-08)", grove.members[0].path);
        }
        self.oracle.check_rest();
    }

    /// After a restart everything is unchanged.
    pub fn restart_and_rest(&mut self) {
        self.come_to_rest();
        self.crash();
        self.come_to_rest();
    }
}

impl Oracle {
    /// A message that left its source has arrived.
    pub fn check_nothing_vanished(&self) {
        for (id, entity) in &self.entities {
            for (sequence, card) in &entity.cards {
                assert!(!card.has_vanished, "{id}/{sequence} is lost: {card:?} (FND-03)");
            }
        }
    }

    /// No reservation and no command is left.
    fn check_rest(&mut self) {
        self.check_nothing_vanished();
        assert!(self.replies.is_empty(), "{:?} were never answered", self.replies);
        assert!(self.groups.is_empty(), "{:?} are not stored", self.groups);
        for (id, entity) in &mut self.entities {
            assert!(entity.incoming.is_empty(), "{id}: {:?} is not stored", entity.incoming);
            assert!(entity.departing.is_empty(), "{id}: {:?}", entity.departing);
            for (sequence, card) in &entity.cards {
                assert!(card.doing.is_none() && !card.is_frozen, "{id}/{sequence}: {card:?}");
                assert_eq!(card.count, card.record.count, "{id}/{sequence} (SET-27)");
            }
            entity.durable_states = vec![entity.states.clone()];
            entity.durable_rules = vec![entity.rules.clone()];
        }
    }
}
