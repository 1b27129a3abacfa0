//! The leaf of the next append.

use std::sync::Arc;

use peeklock_store::StoreError;
use peeklock_store_log::LogSegment as _;

use super::storing::note_disk;
use super::{Pauses, Writer};
use crate::append::Append;
use crate::fault::text_of;
use crate::inner::Place;
use crate::leaf::{Leaf, capacity, table_of};
use crate::row::Stamp;
use crate::schema;
use crate::shard::Removed;

impl Writer {
    /// The append in the making, in a leaf with room. A new one begins with the removals by other
    /// shards.
    ///
    /// # Errors
    /// If batches are not stored any more.
    pub(super) async fn append(&mut self) -> Result<&mut Append, StoreError> {
        self.check()?;
        if self.group.append.is_none() {
            let leaf = match &self.active {
                Some(leaf) if !leaf.is_full() => Arc::clone(leaf),
                _ => self.next_leaf().await?,
            };
            let stamp = Stamp { epoch: self.shard.epoch(), batch: self.last };
            let mut append = Append::new(leaf, stamp);
            for Removed { by_shard, by_id, keys } in self.shard.take_removed() {
                keys.into_iter().for_each(|key| append.delete(key));
                self.group.taken_over.push((by_shard, by_id));
            }
            self.group.append = Some(append);
        }
        let closed = || StoreError::Failed("an append was lost".into());
        self.group.append.as_mut().ok_or_else(closed)
    }

    /// Begins a leaf, in an empty table or a new one.
    async fn next_leaf(&mut self) -> Result<Arc<Leaf>, StoreError> {
        let mut pauses = Pauses::default();
        let slot = loop {
            let room = &self.inner.room;
            room.set_tables_used_up(self.shard.number, self.shard.is_short_of_tables());
            if let Some(slot) = self.shard.take_free() {
                break slot;
            }
            if let Some(slot) = self.shard.new_slot() {
                self.make_table(slot).await?;
                break slot;
            }
            pauses.is_for_room = true;
            self.pause(&mut pauses, "an append waits", "the shard has too many tables").await?;
        };
        if let Some(full) = &self.active {
            full.seal();
        }
        self.newest += 1;
        let capacity = capacity(self.inner.leaf_bytes, self.shard.index.used_bytes());
        let leaf = Arc::new(Leaf::new(self.newest, slot, capacity));
        self.shard.leaves.insert(Arc::clone(&leaf));
        self.active = Some(Arc::clone(&leaf));
        Ok(leaf)
    }

    async fn make_table(&mut self, slot: i32) -> Result<(), StoreError> {
        let sql = schema::create_leaf(slot);
        let problem = format!("cannot make `{}`", table_of(slot));
        let mut pauses = Pauses::default();
        loop {
            self.shard.check()?;
            let error = match self.session.get().await {
                Ok(connection) => match connection.client.batch_execute(&sql).await {
                    Ok(()) => break,
                    Err(error) => {
                        connection.note_error(&error);
                        pauses.is_for_room = note_disk(&self.inner.room, self.shard.number, &error);
                        text_of(&error)
                    }
                },
                Err(error) => error.to_string(),
            };
            self.pause(&mut pauses, &problem, &error).await?;
        }
        // Whether the disk has space again is known after an append.
        self.inner.note_trouble(Place::Shard(self.shard.number), None);
        Ok(())
    }
}
