//! Size of the tables under steady traffic.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use peeklock_store_postgres::{PostgresConfig, PostgresStore};

use crate::owner::{Outcome, Owner, PATIENCE, key, outcome, put};
use crate::support::{Server, schema_of};

const CONTENT_BYTES: usize = 8_000;
/// Batches that wait for the database at a time.
const WAITING_MAX: usize = 64;
/// Leaves in addition to four times the bytes in use; 128 MiB by default.
const SPARE_LEAVES: u64 = 8;

/// Traffic in one shard: each batch stores a record, and removes the oldest one.
struct Fifo<'a> {
    server: &'a Server,
    schema: String,
    owner: Owner,
    waiting: VecDeque<Receiver<Outcome>>,
    /// Number of records in use.
    backlog: u64,
    /// Number of the next record.
    next: u64,
    /// Limit of the size.
    size_max: u64,
}

impl<'a> Fifo<'a> {
    fn new(server: &'a Server, backlog: u64, leaf_bytes: u64) -> Self {
        let config = PostgresConfig { leaf_bytes, ..server.empty_store() };
        let store = PostgresStore::open_alone(&config).unwrap();
        let used = backlog * CONTENT_BYTES as u64;
        let mut fifo = Self {
            server,
            schema: schema_of(&config).to_owned(),
            owner: Owner::of(&store, 0),
            waiting: VecDeque::new(),
            backlog,
            next: 0,
            size_max: 4 * used + SPARE_LEAVES * leaf_bytes,
        };
        fifo.run(backlog);
        fifo
    }

    /// Stores this number of records.
    fn run(&mut self, count: u64) {
        for _ in 0..count {
            let mut batch = put(&key(7, self.next), &[7; CONTENT_BYTES]);
            if let Some(oldest) = self.next.checked_sub(self.backlog) {
                batch.delete(&key(7, oldest));
            }
            self.next += 1;
            self.waiting.push_back(self.owner.send(batch));
            if self.waiting.len() == WAITING_MAX {
                outcome(&self.waiting.pop_front().unwrap()).unwrap();
            }
        }
    }

    /// Bytes of all tables with their indexes.
    fn size(&self) -> u64 {
        let sizes = format!(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
             WHERE relkind = 'r' AND relnamespace = '{}'::regnamespace",
            self.schema
        );
        self.server.ask(&sizes).parse().unwrap()
    }

    fn require_small(&self) {
        let (size, most) = (self.size(), self.size_max);
        assert!(size < most, "the tables have {size} of {most} bytes after {} records", self.next);
    }
}

/// CLU-12: with a bounded backlog the tables stay small, also while another session keeps a snapshot.
/// While a program has locked them as `pg_dump` does, they grow, and they shrink again after it.
#[test]
fn tables_stay_small_under_steady_traffic() {
    const BACKLOG: u64 = 1_000;
    let server = Server::start("size");
    let mut fifo = Fifo::new(&server, BACKLOG, 1 << 20);
    let mut reader = server.session();
    // The first statement of the transaction takes the snapshot.
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    for _ in 0..8 {
        fifo.run(BACKLOG);
        fifo.require_small();
    }
    reader.run("COMMIT");
    let tables = "SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables";
    let tables = server.ask(&format!("{tables} WHERE schemaname = '{}'", fifo.schema));
    let mut dump = server.session();
    dump.run(&format!("BEGIN; LOCK TABLE {tables} IN ACCESS SHARE MODE"));
    let before = fifo.size();
    fifo.run(4 * BACKLOG);
    assert!(fifo.size() > before + BACKLOG * CONTENT_BYTES as u64, "no locked table is emptied");
    dump.run("COMMIT");
    let deadline = Instant::now() + PATIENCE;
    while fifo.size() >= fifo.size_max {
        assert!(Instant::now() < deadline, "{} of {} bytes", fifo.size(), fifo.size_max);
        fifo.run(100);
    }
}

/// CLU-12: the same for an hour, with leaves of the usual size. The rate does not fall.
#[test]
#[ignore = "takes an hour; `just store-size` runs it"]
fn tables_stay_small_for_an_hour() {
    const BACKLOG: u64 = 10_000;
    let minutes = std::env::var("PEEKLOCK_SIZE_MINUTES").map_or(60, |text| text.parse().unwrap());
    let server = Server::start("hour");
    let mut fifo = Fifo::new(&server, BACKLOG, PostgresConfig::default().leaf_bytes);
    let mut reader = server.session();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    let mut rates = Vec::new();
    for minute in 0..minutes {
        let (begin, first) = (Instant::now(), fifo.next);
        while begin.elapsed() < Duration::from_secs(60) {
            fifo.run(1_000);
        }
        rates.push(fifo.next - first);
        eprintln!("minute {minute}: {} MiB, {} records", fifo.size() >> 20, fifo.next - first);
        fifo.require_small();
    }
    let quarter = rates.len() / 4;
    let [first, last]: [u64; 2] =
        [&rates[..quarter], &rates[rates.len() - quarter..]].map(|part| part.iter().sum());
    assert!(2 * last >= first, "the rate has fallen: {rates:?}");
}
