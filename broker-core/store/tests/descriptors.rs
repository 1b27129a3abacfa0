//! A process without free descriptors: the store uses its reserved ones, waits when even these are
//! used, and continues later. It needs its own process, because the limit applies to a process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bytes::Bytes;
use peeklock_record::{Batch, Key};
use peeklock_store::journal::{Journal, JournalConfig};
use peeklock_store::{BatchId, Shard, Store, Submission};
use peeklock_store_testing::{block_on, visit_records};
use rustix::process::{Resource, getrlimit, setrlimit};

const SEGMENT_BYTES: u64 = 256 << 10;
const CONTENT_BYTES: usize = 100 << 10;
/// Two batches fill a segment, so there are far more rolls than reserved descriptors.
const BATCHES: u64 = 60;
/// A store that has not answered for this time waits for a descriptor.
const WAITS: Duration = Duration::from_secs(3);

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// DESIGN D11: a roll of the log without a free descriptor is no failure: submitted batches wait
/// until there is one, and all are stored.
#[test]
fn log_rolls_after_descriptors_are_free_again() {
    let place = Place(std::env::temp_dir().join(format!("descriptors-{}", std::process::id())));
    let config = JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        free_bytes_min: 0,
        ..JournalConfig::default()
    };
    let journal: Arc<dyn Store> = Journal::open(&place.0, config).unwrap();
    let (fence, BatchId(first)) = block_on(journal.acquire(Shard(0))).unwrap();
    let before = getrlimit(Resource::Nofile);
    let mut lowered = before;
    lowered.current = Some(64);
    setrlimit(Resource::Nofile, lowered).unwrap();
    let mut others = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        others.push(file);
    }
    let (done, completed) = channel();
    for number in 0..BATCHES {
        let mut batch = Batch::default();
        let key = Key::of_space(1).then(&number.to_be_bytes());
        batch.put_with_content(&key, Bytes::from(vec![1; CONTENT_BYTES]), |_| {});
        batch.require_sync();
        let id = BatchId(first + number);
        let submission = Submission { id, fences: vec![fence], batch: Arc::new(batch) };
        let done = done.clone();
        journal.submit(submission, Box::new(move |result| done.send(result).unwrap()));
    }
    let mut count = 0;
    let mut had_to_wait = false;
    while count < BATCHES {
        match completed.recv_timeout(WAITS) {
            Ok(result) => {
                result.unwrap();
                count += 1;
            }
            Err(RecvTimeoutError::Timeout) if !had_to_wait => {
                had_to_wait = true;
                others.clear();
                setrlimit(Resource::Nofile, before).unwrap();
            }
            Err(error) => unreachable!("{count} of {BATCHES} are stored, then {error}"),
        }
    }
    assert!(had_to_wait, "there were descriptors enough, so that this shows nothing");
    journal.close().unwrap();
    drop(journal);
    let journal: Arc<dyn Store> = Journal::open(&place.0, JournalConfig::default()).unwrap();
    let mut stored = 0;
    visit_records(&*journal, &Key::of_space(1), |_, _| stored += 1).unwrap();
    assert_eq!(stored, BATCHES);
    journal.close().unwrap();
}
