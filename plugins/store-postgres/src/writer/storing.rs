//! Attempts of an append, until its outcome is known.
//!
//! After a lost connection, an attempt may be stored, or may still be on its way. The writer raises
//! the epoch of the shard, which waits for an attempt that has begun, and fences one that has not.
//! The commit of the raise is the later commit of CLU-08: everything that it confirms includes the
//! earlier attempt. After it, the rows exist or never will.

use peeklock_store::{BatchId, Fence, Shard, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::{Pauses, Writer, next_id};
use crate::append::Append;
use crate::fault::text_of;
use crate::inner::Place;
use crate::room::Room;
use crate::row::integer;
use crate::schema;
use crate::statement::{Outcome, Statement};

/// The owner of a shard, as the database has it.
enum Ownership {
    /// This process, with this epoch.
    Own(u64),
    /// Another one, or none, with this epoch.
    Other(u64),
}

impl Writer {
    /// Stores an append. Repeats it until the outcome is known.
    pub(super) async fn store(
        &mut self,
        append: &mut Append,
        fences: &[Fence],
        taken_over: &[(u16, u64)],
    ) -> Result<(), StoreError> {
        let stored = self.attempts(append, fences, taken_over).await;
        self.inner.note_trouble(Place::Shard(self.shard.number), None);
        if stored.is_ok() {
            self.inner.room.set_disk_full(self.shard.number, false);
        }
        stored
    }

    async fn attempts(
        &mut self,
        append: &mut Append,
        fences: &[Fence],
        taken_over: &[(u16, u64)],
    ) -> Result<(), StoreError> {
        let mut pauses = Pauses::default();
        loop {
            self.check()?;
            self.check_fences(fences)?;
            let owned = self.epochs(fences);
            append.set_epoch(self.shard.epoch());
            match self.attempt(append, &owned, taken_over).await {
                Outcome::Stored => return Ok(()),
                Outcome::KnownFailed { problem, is_disk_full } => {
                    if is_disk_full {
                        self.inner.room.set_disk_full(self.shard.number, true);
                    }
                    pauses.is_for_room = is_disk_full;
                    self.pause(&mut pauses, "an append is repeated", &problem).await?;
                }
                Outcome::Unknown(problem) => {
                    if self.settle(append, &mut pauses, problem).await? {
                        return Ok(());
                    }
                }
                // Another shard's writer has raised its epoch, which its owner does not see.
                Outcome::Fenced if owned != self.epochs(fences) => {}
                Outcome::Fenced => self.explain_fence(fences, &mut pauses).await?,
                Outcome::Lost(error) => return Err(self.lose(error)),
            }
        }
    }

    /// This shard and the ones of fences, with their epochs in the database.
    fn epochs(&self, fences: &[Fence]) -> Vec<(u16, u64)> {
        let shards = fences.iter().filter_map(|fence| {
            self.inner.shards.get(usize::from(fence.shard.0)).map(|shard| &**shard)
        });
        let shards = std::iter::once(&*self.shard).chain(shards);
        shards.map(|shard| (shard.number, shard.epoch())).collect()
    }

    async fn attempt(
        &mut self,
        append: &Append,
        owned: &[(u16, u64)],
        taken_over: &[(u16, u64)],
    ) -> Outcome {
        let before = self.shard.tail();
        match self.session.get().await {
            Ok(connection) => {
                let statement = Statement::new(owned, append, before.as_ref(), taken_over);
                statement.run(&connection).await
            }
            Err(error) => Outcome::KnownFailed { problem: error.to_string(), is_disk_full: false },
        }
    }

    /// Finds out whether an attempt of unknown outcome was stored. If not, it never will be.
    async fn settle(
        &mut self,
        append: &Append,
        pauses: &mut Pauses,
        mut problem: String,
    ) -> Result<bool, StoreError> {
        loop {
            self.pause(pauses, "the outcome of an append is unknown", &problem).await?;
            let found = match self.raise().await {
                Ok(Ownership::Own(_)) => self.find(append).await,
                Ok(Ownership::Other(current)) => {
                    self.lose(StoreError::Fenced { held: self.shard.epoch(), current });
                    let text = "another broker owns the shard now; the batch may be stored";
                    return Err(StoreError::Unavailable(text.into()));
                }
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(is_stored)) => return Ok(is_stored),
                Ok(None) => problem = "the epoch of the shard has changed".to_owned(),
                Err(error) => problem = error,
            }
            self.shard.check()?;
        }
    }

    /// Raises the epoch of the shard, if this process owns it. The commit is confirmed.
    async fn raise(&mut self) -> Result<Ownership, String> {
        const RAISE: &str = "UPDATE shards SET epoch = epoch + 1, since = now() \
            WHERE shard = $1 AND owner = $2 RETURNING epoch";
        const EPOCH: &str = "SELECT epoch FROM shards WHERE shard = $1";
        let shard = i32::from(self.shard.number);
        let connection = self.session.get().await.map_err(|error| error.to_string())?;
        let room = &self.inner.room;
        let failed = |error: Error| {
            connection.note_error(&error);
            note_disk(room, self.shard.number, &error);
            text_of(&error)
        };
        let owner = self.inner.owner;
        let raised = connection.client.query_opt(RAISE, &[&shard, &owner]).await.map_err(failed)?;
        if connection.is_spoiled() {
            return Err("the wait for a standby was cancelled".to_owned());
        }
        let is_own = raised.is_some();
        let row = match raised {
            Some(row) => Some(row),
            None => connection.client.query_opt(EPOCH, &[&shard]).await.map_err(failed)?,
        };
        let epoch = row.map(|row| row.get::<_, i64>(0)).and_then(|epoch| u64::try_from(epoch).ok());
        let epoch = epoch.unwrap_or(0);
        // Epochs only grow: a lower one comes from a past of the database.
        if epoch < self.shard.epoch() || (is_own && epoch == self.shard.epoch()) {
            let text = format!(
                "the database has lost acknowledged data (CLU-10): shard {shard} has epoch \
                 {epoch} after {}; a standby without it became the primary, or an old copy was \
                 restored",
                self.shard.epoch()
            );
            return Err(self.lose(StoreError::Damaged(text.into())).to_string());
        }
        if !is_own {
            return Ok(Ownership::Other(epoch));
        }
        self.shard.set_epoch(epoch);
        Ok(Ownership::Own(epoch))
    }

    /// Whether the rows of an append exist; `None` if the epoch is no longer in force.
    async fn find(&mut self, append: &Append) -> Result<Option<bool>, String> {
        let connection = self.session.get().await.map_err(|error| error.to_string())?;
        let sql = schema::find(&append.leaf.table());
        let ids: Vec<i64> = append.rows.iter().map(|row| row.id).collect();
        let metas: Vec<&[u8]> = append.rows.iter().map(|row| row.meta()).collect();
        let (shard, epoch) = (i32::from(self.shard.number), integer(self.shard.epoch()));
        let row = connection.client.query_one(&sql, &[&ids, &metas, &shard, &epoch]).await;
        let row = row.map_err(|error| {
            connection.note_error(&error);
            text_of(&error)
        })?;
        let (is_in_force, ids, same): (bool, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if !is_in_force {
            return Ok(None);
        }
        let count = i64::try_from(append.rows.len()).unwrap_or(i64::MAX);
        if (ids, same) == (count, count) || ids == 0 {
            return Ok(Some(ids > 0));
        }
        let table = append.leaf.table();
        let text = format!("table `{table}` has rows of another writer, or only a part of its own");
        Err(self.lose(StoreError::Damaged(text.into())).to_string())
    }

    /// Ends an append that an epoch in the database refuses, unless another attempt can succeed.
    async fn explain_fence(
        &mut self,
        fences: &[Fence],
        pauses: &mut Pauses,
    ) -> Result<(), StoreError> {
        let held = self.shard.epoch();
        match self.raise().await {
            // The other shard of the batch has another owner.
            Ok(Ownership::Own(_)) if !fences.is_empty() => {
                let held = fences.first().map_or(0, |fence| fence.epoch);
                Err(StoreError::Fenced { held, current: held + 1 })
            }
            Ok(Ownership::Own(_)) => Ok(()),
            Ok(Ownership::Other(current)) => Err(self.lose(StoreError::Fenced { held, current })),
            Err(problem) => self.pause(pauses, "an append is fenced", &problem).await,
        }
    }

    /// Closes the shard permanently.
    fn lose(&self, error: StoreError) -> StoreError {
        self.inner.lose(&self.shard, &error);
        error
    }

    /// Raises the epoch of the shard for a new owner within this process. `None` if the caller has
    /// gone.
    pub(super) async fn acquire(
        &mut self,
        is_abandoned: impl Fn() -> bool,
    ) -> Option<Result<(Fence, BatchId), StoreError>> {
        let held = self.shard.epoch();
        let mut pauses = Pauses::default();
        while !is_abandoned() {
            if let Err(error) = self.shard.check() {
                return Some(Err(error));
            }
            match self.raise().await {
                Ok(Ownership::Own(epoch)) => {
                    self.shard.set_fence(epoch);
                    self.halt = None;
                    self.inner.note_trouble(Place::Shard(self.shard.number), None);
                    let fence = Fence { shard: Shard(self.shard.number), epoch };
                    return Some(Ok((fence, next_id(self.last))));
                }
                Ok(Ownership::Other(current)) => {
                    return Some(Err(self.lose(StoreError::Fenced { held, current })));
                }
                Err(error) => {
                    let paused = self.pause(&mut pauses, "a shard cannot be acquired", &error);
                    if let Err(error) = paused.await {
                        return Some(Err(error));
                    }
                }
            }
        }
        None
    }
}

/// Notes that a statement met a full disk. Returns whether it did.
pub(super) fn note_disk(room: &Room, shard: u16, error: &Error) -> bool {
    let is_full = error.code() == Some(&SqlState::DISK_FULL);
    if is_full {
        room.set_disk_full(shard, true);
    }
    is_full
}
