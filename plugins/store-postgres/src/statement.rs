//! The statement of an append: its parameters, and the meaning of its result.

use peeklock_store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::append::{Append, end_of_prefix};
use crate::fault::{is_damage, is_final, stored_nothing, text_of};
use crate::leaf::table_of;
use crate::row::integer;
use crate::schema;
use crate::session::Connection;
use crate::shard::Tail;

/// The outcome of an attempt to store an append.
pub enum Outcome {
    /// The commit is confirmed.
    Stored,
    /// Nothing was stored, and nothing will be. Another attempt may succeed.
    KnownFailed { problem: String, is_disk_full: bool },
    /// The rows may be stored, now or later.
    Unknown(String),
    /// Nothing was stored: another writer owns one of the shards.
    Fenced,
    /// Nothing was stored, and no attempt can succeed.
    Lost(StoreError),
}

/// The statement of an append.
pub struct Statement<'a> {
    sql: String,
    has_more: bool,
    shards: Vec<i32>,
    epochs: Vec<i64>,
    ids: Vec<i64>,
    heads: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    before_id: Option<i64>,
    before_meta: Option<&'a [u8]>,
    removed_shards: Vec<i32>,
    removed_ids: Vec<i64>,
    removed_places: Vec<i32>,
    removed_keys: Vec<&'a [u8]>,
    taken_shards: Vec<i32>,
    taken_ids: Vec<i64>,
    put_keys: Vec<&'a [u8]>,
    put_values: Vec<&'a [u8]>,
    gone_keys: Vec<&'a [u8]>,
    gone_from: Vec<&'a [u8]>,
    gone_to: Vec<Option<Vec<u8>>>,
}

impl<'a> Statement<'a> {
    /// The statement for an append to the first of these shards, each with its epoch. `before` is
    /// the last row of the log, and `taken_over` are the removals with which the append begins.
    pub fn new(
        owned: &[(u16, u64)],
        append: &'a Append,
        before: Option<&'a Tail>,
        taken_over: &[(u16, u64)],
    ) -> Self {
        let has_more =
            !append.shared.is_empty() || !append.removed.is_empty() || !taken_over.is_empty();
        let table = append.leaf.table();
        let before_table = before.map_or_else(|| table.clone(), |before| table_of(before.slot));
        let sql = if has_more { schema::append_more } else { schema::append };
        let places = append.removed.iter().zip(1..);
        let places = places
            .flat_map(|((_, _, keys), place)| keys.iter().map(move |key| (place, key.as_bytes())));
        let (removed_places, removed_keys) = places.unzip();
        let put = append.shared.keys.iter();
        let put = put.filter_map(|(key, value)| Some((&key[..], value.as_deref()?)));
        let (put_keys, put_values) = put.unzip();
        let gone = append.shared.keys.iter().filter(|(_, value)| value.is_none());
        let prefixes = &append.shared.prefixes;
        Self {
            sql: sql(&table, &before_table),
            has_more,
            shards: owned.iter().map(|(shard, _)| i32::from(*shard)).collect(),
            epochs: owned.iter().map(|(_, epoch)| integer(*epoch)).collect(),
            ids: append.rows.iter().map(|row| row.id).collect(),
            heads: append.rows.iter().map(|row| &row.head[..]).collect(),
            bodies: append.rows.iter().map(|row| &row.body[..]).collect(),
            before_id: before.map(|before| before.id),
            before_meta: before.map(|before| &before.meta[..]),
            removed_shards: append.removed.iter().map(|(shard, ..)| i32::from(*shard)).collect(),
            removed_ids: append.removed.iter().map(|(_, id, _)| integer(*id)).collect(),
            removed_places,
            removed_keys,
            taken_shards: taken_over.iter().map(|(shard, _)| i32::from(*shard)).collect(),
            taken_ids: taken_over.iter().map(|(_, id)| integer(*id)).collect(),
            put_keys,
            put_values,
            gone_keys: gone.map(|(key, _)| &key[..]).collect(),
            gone_from: prefixes.iter().map(|prefix| &prefix[..]).collect(),
            gone_to: prefixes.iter().map(|prefix| end_of_prefix(prefix)).collect(),
        }
    }

    /// Makes an attempt.
    pub async fn run(&self, connection: &Connection) -> Outcome {
        match self.ask(connection).await {
            Ok(_) if connection.is_spoiled() => {
                Outcome::Unknown("the wait for a standby was cancelled".to_owned())
            }
            Ok((true, true)) => Outcome::Stored,
            Ok((true, false)) => Outcome::Lost(StoreError::Damaged(
                "the database has lost a row that was acknowledged (CLU-10): a standby without \
                 it became the primary, or an old copy was restored; nothing is appended after \
                 the gap"
                    .into(),
            )),
            Ok((false, _)) => Outcome::Fenced,
            Err(error) => {
                connection.note_error(&error);
                outcome_of(&error)
            }
        }
    }

    /// Whether the epochs are in force, and whether the row before exists.
    async fn ask(&self, connection: &Connection) -> Result<(bool, bool), Error> {
        let statement = connection.prepared(&self.sql).await?;
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
            &self.shards,
            &self.epochs,
            &self.ids,
            &self.heads,
            &self.bodies,
            &self.before_id,
            &self.before_meta,
        ];
        if self.has_more {
            parameters.extend::<[&(dyn ToSql + Sync); 11]>([
                &self.removed_shards,
                &self.removed_ids,
                &self.removed_places,
                &self.removed_keys,
                &self.taken_shards,
                &self.taken_ids,
                &self.put_keys,
                &self.put_values,
                &self.gone_keys,
                &self.gone_from,
                &self.gone_to,
            ]);
        }
        let row = connection.client.query_one(&statement, &parameters).await?;
        Ok((row.get(0), row.get(1)))
    }
}

/// The outcome of a statement that has failed.
fn outcome_of(error: &Error) -> Outcome {
    let problem = text_of(error);
    if is_damage(error) {
        return Outcome::Lost(StoreError::Damaged(problem.into()));
    }
    if !stored_nothing(error) {
        return Outcome::Unknown(problem);
    }
    if is_final(error) {
        // Rows of another writer with these ids, or a table that no longer exists.
        let constraint = error.as_db_error().and_then(|error| error.constraint());
        let constraint = constraint.map(|name| format!(" (`{name}`)")).unwrap_or_default();
        let text = format!("another program has changed the tables: {problem}{constraint}");
        return Outcome::Lost(StoreError::Damaged(text.into()));
    }
    let is_disk_full = error.code() == Some(&SqlState::DISK_FULL);
    Outcome::KnownFailed { problem, is_disk_full }
}
