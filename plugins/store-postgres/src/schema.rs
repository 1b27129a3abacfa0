//! The tables and functions of the store.

use peeklock_store::StoreError;

use crate::fault::opening_error;
use crate::leaf::{slot_of, table_of};
use crate::session::Connection;

/// The format of tables and functions. A function that changes its meaning needs a new format: every
/// start replaces the functions, also under a running broker of the same format.
pub const FORMAT: i32 = 2;
/// The format without leases. Its brokers exclude each other with a lock of their session.
const FORMAT_WITHOUT_LEASES: i32 = 1;

/// Lets one broker go on at a time: two that start on an empty database make one store.
const BEGIN: &str = "BEGIN; SELECT pg_advisory_xact_lock(1885693291, 1);";

/// Takes the lock of a broker of the format without leases, until the end of the transaction.
const LOCK_WITHOUT_LEASES: &str =
    "SELECT pg_try_advisory_xact_lock(1885693291, hashtext(current_schema()))";

/// Changes the format without leases. A broker that has lost its session, and the lock with it, is
/// fenced.
const UPGRADE: &str = "
UPDATE cluster SET format = 2;
UPDATE shards SET owner = 0, epoch = epoch + 1;";

/// Everything but the leaves, which are made when a shard needs them. A broker of the format
/// without leases makes its function `amend`, which has no fence, before it refuses the database.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    format int NOT NULL,
    shards int NOT NULL
);
CREATE TABLE IF NOT EXISTS shards (
    shard int PRIMARY KEY,
    epoch bigint NOT NULL,
    owner bigint NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS brokers (
    name text PRIMARY KEY,
    incarnation bigint NOT NULL UNIQUE,
    renewal bigint NOT NULL,
    lease interval NOT NULL,
    ends timestamptz NOT NULL,
    horizon bigint
);
CREATE TABLE IF NOT EXISTS shared (key bytea PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE IF NOT EXISTS removed (
    shard int NOT NULL,
    by_shard int NOT NULL,
    by_id bigint NOT NULL,
    keys bytea[] NOT NULL,
    PRIMARY KEY (shard, by_shard, by_id)
);
CREATE OR REPLACE FUNCTION recycle(
    of_shard int, held bigint, leaf text, below bigint, tail_leaf text, tail_id bigint,
    tail_meta bytea
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '100ms' AS $$
DECLARE is_so boolean;
BEGIN
    -- After the lock, all inserts have ended, and each statement sees their rows.
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', leaf);
    PERFORM 1 FROM shards WHERE shard = of_shard AND epoch = held FOR SHARE;
    IF NOT FOUND THEN RETURN 'fenced'; END IF;
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE id >= $1)', leaf) INTO is_so USING below;
    IF is_so THEN RETURN 'used'; END IF;
    -- The records in use of the leaf were written again before this row.
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I WHERE id = $1
        AND substring(head FROM 1 FOR 32) = $2)', tail_leaf) INTO is_so USING tail_id, tail_meta;
    IF NOT is_so THEN RETURN 'hole'; END IF;
    EXECUTE format('TRUNCATE %I', leaf);
    RETURN 'free';
END $$;
CREATE OR REPLACE FUNCTION renew(
    of_name text, number bigint, may_enter boolean, lease_ms double precision,
    last_instant bigint, of_renewal bigint, OUT has_lease boolean, OUT now_us bigint,
    OUT latest bigint, OUT owned_by bigint, OUT owner_name text, OUT owner_renewal bigint,
    OUT is_over boolean, OUT is_barred boolean
) LANGUAGE plpgsql AS $$
DECLARE own_lease interval := lease_ms * interval '1 ms';
BEGIN
    IF may_enter THEN
        DELETE FROM brokers b WHERE b.ends < clock_timestamp() - interval '1 day'
            AND NOT EXISTS (SELECT 1 FROM shards s WHERE s.owner = b.incarnation);
    END IF;
    -- A broker whose row is gone never gets a lease again.
    INSERT INTO brokers AS b (name, incarnation, renewal, lease, ends, horizon)
        SELECT of_name, number, of_renewal, own_lease, clock_timestamp() + own_lease, last_instant
        WHERE may_enter OR EXISTS (SELECT 1 FROM brokers o WHERE o.incarnation = number)
        ON CONFLICT (name) DO UPDATE SET incarnation = number, renewal = of_renewal,
            lease = own_lease, ends = clock_timestamp() + own_lease,
            horizon = CASE WHEN b.incarnation = number THEN coalesce(last_instant, b.horizon)
                ELSE greatest(last_instant, b.horizon) END
        WHERE (b.incarnation = number AND b.renewal < of_renewal)
            OR (b.incarnation <> number AND may_enter AND b.ends <= clock_timestamp());
    has_lease := FOUND;
    -- After the clock was set back, no lease lasts longer than its length.
    UPDATE brokers b SET ends = clock_timestamp() + b.lease WHERE b.name IN (
        SELECT o.name FROM brokers o WHERE o.ends > clock_timestamp() + o.lease
        FOR UPDATE SKIP LOCKED);
    -- The row above is locked. A takeover from this broker was committed before and is seen, or
    -- waits for the row and sees this renewal.
    SELECT s.owner, b.name, coalesce(b.renewal, 0), coalesce(b.ends <= clock_timestamp(), true),
            b.name IS NULL
        INTO owned_by, owner_name, owner_renewal, is_over, is_barred
        FROM shards s LEFT JOIN brokers b ON b.incarnation = s.owner WHERE s.shard = 0;
    SELECT max(b.horizon) INTO latest FROM brokers b;
    now_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
END $$;
CREATE OR REPLACE FUNCTION take_shards(number bigint, past bigint, seen_renewal bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE past_ends timestamptz; past_renewal bigint;
BEGIN
    -- Waits for a renewal that has begun. None follows until the commit.
    SELECT b.ends, b.renewal INTO past_ends, past_renewal
        FROM brokers b WHERE b.incarnation = past FOR UPDATE;
    IF past_ends > clock_timestamp() OR past_renewal <> seen_renewal THEN RETURN; END IF;
    UPDATE shards SET owner = number, epoch = epoch + 1, since = clock_timestamp()
        WHERE owner = past;
    IF NOT FOUND THEN RETURN; END IF;
    -- Other owners exist only after a repair by hand. A broker without all shards ends.
    UPDATE shards s SET owner = number, epoch = epoch + 1, since = clock_timestamp()
        WHERE s.owner <> number
        AND NOT EXISTS (SELECT 1 FROM brokers b WHERE b.incarnation = s.owner
            AND b.ends > clock_timestamp());
END $$;
DROP FUNCTION IF EXISTS amend(bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], bytea[]);
CREATE OR REPLACE FUNCTION amend(
    held_by bigint, expected bytea[], expected_values bytea[], put bytea[], put_values bytea[],
    gone bytea[], gone_from bytea[], gone_to bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- One amendment at a time: the next statements see the rows of the last one.
    PERFORM 1 FROM cluster FOR UPDATE;
    -- A takeover waits for the commit.
    PERFORM 1 FROM shards WHERE shard = 0 AND owner = held_by FOR SHARE;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF EXISTS (
        SELECT 1 FROM unnest(expected, expected_values) AS e(key, value)
        LEFT JOIN shared s ON s.key = e.key WHERE s.value IS DISTINCT FROM e.value
    ) THEN RETURN false; END IF;
    DELETE FROM shared s USING unnest(gone_from, gone_to) AS p(a, b)
        WHERE s.key >= p.a AND (p.b IS NULL OR s.key < p.b);
    DELETE FROM shared WHERE key = ANY (gone);
    INSERT INTO shared SELECT * FROM unnest(put, put_values)
        ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value;
    RETURN true;
END $$;";

/// Makes missing tables, and changes tables of the format without leases, in one transaction. Checks
/// the format before: tables and functions of a later format stay as they are. Returns the number of
/// shards; none if a broker of the format without leases uses the database.
pub async fn prepare(connection: &Connection, shard_count: u16) -> Result<Option<u16>, StoreError> {
    let client = &connection.client;
    client.batch_execute(BEGIN).await.map_err(|error| opening_error(&error))?;
    let prepared = prepare_alone(connection, shard_count).await;
    let end = if matches!(prepared, Ok(Some(_))) { "COMMIT" } else { "ROLLBACK" };
    let ended = client.batch_execute(end).await;
    let prepared = prepared?;
    ended.map_err(|error| opening_error(&error))?;
    Ok(prepared)
}

/// As [`prepare`], within its transaction.
async fn prepare_alone(
    connection: &Connection,
    shard_count: u16,
) -> Result<Option<u16>, StoreError> {
    let client = &connection.client;
    let failed = |error: tokio_postgres::Error| opening_error(&error);
    let format = stored_format(connection).await?;
    match format {
        None | Some(FORMAT) => client.batch_execute(SCHEMA).await.map_err(failed)?,
        Some(FORMAT_WITHOUT_LEASES) => {
            let locked = client.query_one(LOCK_WITHOUT_LEASES, &[]).await.map_err(failed)?;
            if !locked.get::<_, Option<bool>>(0).unwrap_or(false) {
                return Ok(None);
            }
            client.batch_execute(SCHEMA).await.map_err(failed)?;
            client.batch_execute(UPGRADE).await.map_err(failed)?;
            tracing::info!("the database gets format {FORMAT}, which older versions refuse");
        }
        Some(format) => {
            let text = format!(
                "the database has format {format}, and this version knows {FORMAT}; use a newer one"
            );
            return Err(StoreError::Failed(text.into()));
        }
    }
    client
        .execute(
            "INSERT INTO cluster (format, shards) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            &[&FORMAT, &i32::from(shard_count)],
        )
        .await
        .map_err(failed)?;
    let row = client.query_one("SELECT shards FROM cluster", &[]).await.map_err(failed)?;
    let shards = row.get::<_, i32>(0);
    client
        .execute(
            "INSERT INTO shards (shard, epoch, owner) SELECT n, 0, 0 FROM generate_series(0, $1 - 1) n \
             ON CONFLICT DO NOTHING",
            &[&shards],
        )
        .await
        .map_err(failed)?;
    let damaged = |_| StoreError::Damaged("table `cluster`: shards".into());
    u16::try_from(shards).map(Some).map_err(damaged)
}

/// The format of the store; none if there is no store yet.
async fn stored_format(connection: &Connection) -> Result<Option<i32>, StoreError> {
    const EXISTS: &str =
        "SELECT to_regclass(quote_ident(current_schema()) || '.cluster') IS NOT NULL";
    let failed = |error: tokio_postgres::Error| opening_error(&error);
    let client = &connection.client;
    if !client.query_one(EXISTS, &[]).await.map_err(failed)?.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_opt("SELECT format FROM cluster", &[]).await.map_err(failed)?;
    Ok(row.map(|row| row.get(0)))
}

/// The numbers of all leaf tables.
pub async fn slots(connection: &Connection) -> Result<Vec<i32>, StoreError> {
    const TABLES: &str = "SELECT relname::text FROM pg_class WHERE relkind = 'r' \
        AND relnamespace = current_schema()::regnamespace AND relname LIKE 'log\\_%'";
    let rows = connection.client.query(TABLES, &[]).await.map_err(|error| opening_error(&error))?;
    let mut slots: Vec<i32> =
        rows.iter().filter_map(|row| slot_of(row.get::<_, &str>(0))).collect();
    slots.sort_unstable();
    Ok(slots)
}

/// Makes a leaf table. Heads stay in the row, and bodies are stored apart without compression. No
/// row is deleted one by one, so there is nothing to vacuum.
pub fn create_leaf(slot: i32) -> String {
    let table = table_of(slot);
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, head bytea NOT NULL, \
             body bytea NOT NULL) WITH (autovacuum_enabled = false, toast_tuple_target = 8160, \
             toast.autovacuum_enabled = false);
         ALTER TABLE {table} ALTER head SET STORAGE MAIN, ALTER body SET STORAGE EXTERNAL;"
    )
}

/// The append of rows to a leaf. It stores them only if the epochs are in force, and the row before
/// them exists. Returns both conditions.
///
/// Parameters: shards and epochs; ids, heads and bodies of the rows; id and head without records of
/// the row before, which is in the table `before`.
pub fn append(table: &str, before: &str) -> String {
    format!("{} {RESULT}", insert(table, before))
}

/// As [`append`], with changes in other tables. Further parameters: shards, batch ids and keys of
/// removals elsewhere; of removals that are now in the log of the first shard, the shards and ids
/// of their batches; keys and values of shared records; removed keys; and removed ranges.
pub fn append_more(table: &str, before: &str) -> String {
    format!(
        "{}, elsewhere AS (
            INSERT INTO removed SELECT r.shard, ($1::int[])[1], r.id, ARRAY(
                SELECT k.key FROM unnest($10::int[], $11::bytea[]) AS k(place, key)
                WHERE k.place = r.place)
            FROM unnest($8::int[], $9::bigint[]) WITH ORDINALITY AS r(shard, id, place)
            WHERE (SELECT is_so FROM allowed)),
        taken_over AS (
            DELETE FROM removed d USING unnest($12::int[], $13::bigint[]) AS t(shard, id)
            WHERE d.shard = ($1::int[])[1] AND d.by_shard = t.shard AND d.by_id = t.id
            AND (SELECT is_so FROM allowed)),
        put AS (
            INSERT INTO shared SELECT s.key, s.value FROM unnest($14::bytea[], $15::bytea[])
                AS s(key, value) WHERE (SELECT is_so FROM allowed)
            ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value),
        gone AS (
            DELETE FROM shared s WHERE (SELECT is_so FROM allowed)
            AND NOT s.key = ANY ($14) AND (s.key = ANY ($16::bytea[]) OR EXISTS (
                SELECT 1 FROM unnest($17::bytea[], $18::bytea[]) AS p(a, b)
                WHERE s.key >= p.a AND (p.b IS NULL OR s.key < p.b))))
        {RESULT}",
        insert(table, before)
    )
}

const RESULT: &str = "SELECT owned.is_so, continuous.is_so FROM owned, continuous";

/// The locks on the epochs last until the commit.
fn insert(table: &str, before: &str) -> String {
    format!(
        "WITH held AS MATERIALIZED (
            SELECT 1 FROM shards s JOIN unnest($1::int[], $2::bigint[]) AS h(shard, epoch)
            ON s.shard = h.shard AND s.epoch = h.epoch FOR SHARE OF s),
        owned AS MATERIALIZED (SELECT count(*) = cardinality($1) AS is_so FROM held),
        continuous AS MATERIALIZED (SELECT $6::bigint IS NULL OR EXISTS (
            SELECT 1 FROM {before} WHERE id = $6 AND substring(head FROM 1 FOR 32) = $7::bytea)
            AS is_so),
        allowed AS MATERIALIZED (
            SELECT owned.is_so AND continuous.is_so AS is_so FROM owned, continuous),
        stored AS (INSERT INTO {table} (id, head, body) SELECT r.id, r.head, r.body
            FROM unnest($3::bigint[], $4::bytea[], $5::bytea[]) AS r(id, head, body)
            WHERE (SELECT is_so FROM allowed))"
    )
}

/// The rows of an append that exist. Parameters: their ids and heads without records; shard and
/// epoch. Returns whether the epoch is in force, and the number of ids and of equal rows.
pub fn find(table: &str) -> String {
    format!(
        "SELECT EXISTS (SELECT 1 FROM shards WHERE shard = $3 AND epoch = $4), count(l.id),
            count(*) FILTER (WHERE substring(l.head FROM 1 FOR 32) = r.meta)
        FROM unnest($1::bigint[], $2::bytea[]) AS r(id, meta) LEFT JOIN {table} l ON l.id = r.id"
    )
}

/// The rows that have bytes from a position on, with their bodies. Parameters: ids of the first
/// position and of the end.
pub fn read_rows(table: &str) -> String {
    format!(
        "SELECT id, head, body FROM {table} WHERE id >= coalesce((SELECT max(id) FROM {table} \
         WHERE id <= $1), $1) AND id < $2 ORDER BY id"
    )
}

/// Heads from the row with a position on. Parameters: id of the position, id of the end of its
/// leaf, and the number of heads.
pub fn read_heads(table: &str) -> String {
    format!(
        "SELECT id, head FROM {table} WHERE id >= coalesce((SELECT max(id) FROM {table} \
         WHERE id <= $1), $1) AND id < $2 ORDER BY id LIMIT $3"
    )
}
