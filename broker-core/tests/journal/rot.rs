//! A wrong byte, or a cut, missing or replaced file: reads return exactly the stored data, or an
//! error that names file and offset, never silently less or more (DESIGN D12).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Key, Shard, Store, StoreError};
use peeklock_store_testing::{Random, SimulatedDisk, block_on, manual_journal, visit_records};

use crate::book::Book;
use crate::oracle::{Op, SPACES, State, load, load_range};

type Files = BTreeMap<String, Vec<u8>>;

/// Slightly more than a part.
const LARGE_BYTES: usize = (256 << 10) + 100;
/// In a large file only every `STRIDE`-th byte is flipped, unless all are requested.
const STRIDE: usize = 61;
/// For every `WORK_STRIDE`-th byte the journal also continues to work with the damage.
const WORK_STRIDE: usize = 37;

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 16 << 10,
        cache_bytes: 0,
        free_bytes_min: 0,
        shard_count: 1,
        ..JournalConfig::default()
    }
}

fn open(files: &Files) -> Result<(SimulatedDisk, Arc<Journal>), StoreError> {
    let disk = SimulatedDisk::holding(files, 1);
    let journal = manual_journal(Arc::new(disk.clone()), config(), 1)?;
    Ok((disk, journal))
}

fn key(number: u64) -> Key {
    let space = SPACES[usize::try_from(number).unwrap() % 3];
    Key::of_space(space).then(&number.to_be_bytes())
}

fn filling(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

fn work(journal: &Journal, book: &mut Book, random: &mut Random, rounds: u64) {
    for round in 0..rounds {
        let mut ops = Vec::new();
        for _ in 0..random.between(1, 4) {
            let at = key(random.below(60));
            let value = filling(random, 20);
            ops.push(match random.below(8) {
                0 | 1 => Op::Delete { key: at },
                2 => Op::PutKeep { key: at, value },
                3 => Op::PutOf { key: at, source: key(random.below(60)), value },
                4 if round % 8 == 0 => Op::DeletePrefix { prefix: at.cut(8 + 7) },
                _ => {
                    let length = usize::try_from(random.between(0, 500)).unwrap();
                    Op::PutNew { key: at, value, content: filling(random, length).into() }
                }
            });
        }
        book.submit(journal, 0, &[], (ops, true));
        turn(journal, book, 6);
    }
}

fn turn(journal: &Journal, book: &mut Book, keeper_turns: u32) {
    journal.run_committer();
    for _ in 0..keeper_turns {
        journal.run_keeper();
        journal.run_committer();
    }
    book.take_answers();
}

fn closed_journal(with_large: bool) -> (Files, State) {
    journal_that(End::Closed, with_large)
}

/// Ending of the journal that is damaged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    /// Idle for a second, then killed: only the log shows which data is durable.
    Marked,
}

/// A small journal with every feature: segments, side files, moved records, and optionally a
/// content in parts.
fn journal_that(ends: End, with_large: bool) -> (Files, State) {
    let (mut disk, mut journal) = open(&Files::new()).unwrap();
    let mut random = Random::new(5);
    let mut state = State::default();
    for session in 0..2 {
        let owner = block_on(journal.acquire(Shard(0))).unwrap();
        let mut book = Book::new(state, vec![owner]);
        work(&journal, &mut book, &mut random, 60);
        if session == 1 && with_large {
            let content = Bytes::from(filling(&mut random, LARGE_BYTES));
            let op = Op::PutNew { key: key(1_000), value: b"large".to_vec(), content };
            book.submit(&*journal, 0, &[], (vec![op], true));
            turn(&journal, &mut book, 10);
            work(&journal, &mut book, &mut random, 20);
        }
        turn(&journal, &mut book, 60);
        // The newest segment contains an acknowledged batch.
        work(&journal, &mut book, &mut random, 5);
        assert!(book.is_all_answered() && book.failure().is_none());
        state = book.completed();
        match ends {
            End::Closed => journal.close().unwrap(),
            End::Marked => journal.mark(),
        }
        if session == 0 {
            (disk, journal) = open(&disk.files()).unwrap();
        }
    }
    (disk.files(), state)
}

/// Asserts that an error names a file of the journal and a byte.
fn must_name_the_place(error: &StoreError, files: &Files) {
    let StoreError::Damaged(text) = error else { panic!("damage is called that, not {error}") };
    let is_file = |name: &String| text.contains(name.as_str());
    let is_named = files.keys().any(is_file) || text.contains("segment-");
    let offset = text.split("byte ").nth(1).and_then(|rest| rest.chars().next());
    assert!(
        is_named && offset.is_some_and(|digit| digit.is_ascii_digit()),
        "no file and offset in: {text}"
    );
}

/// Result of a damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Exact,
    Refused,
    /// Some data could not be read, everything else was exact.
    Partial,
}

/// Opens, scans everything, and reads every content. Then lets the journal work, and reads again.
fn judge(files: &Files, expected: &State, works_on: bool) -> Verdict {
    let (disk, journal) = match open(files) {
        Ok(opened) => opened,
        Err(error) => {
            must_name_the_place(&error, files);
            return Verdict::Refused;
        }
    };
    let verdict = compare(&journal, expected, files);
    if works_on {
        let owner = block_on(journal.acquire(Shard(0))).unwrap();
        let mut book = Book::new(expected.clone(), vec![owner]);
        let mut random = Random::new(7);
        work(&journal, &mut book, &mut random, 60);
        turn(&journal, &mut book, 300);
        assert!(book.is_all_answered());
        compare(&journal, &book.completed(), files);
        journal.close().unwrap();
        drop(journal);
        let files = disk.files();
        match open(&files) {
            Ok((_, journal)) => {
                compare(&journal, &book.completed(), &files);
            }
            Err(error) => must_name_the_place(&error, &files),
        }
    }
    verdict
}

/// Asserts that all readable data is correct.
fn compare(journal: &Journal, expected: &State, files: &Files) -> Verdict {
    let mut verdict = Verdict::Exact;
    for space in SPACES {
        let prefix = Key::of_space(space);
        let mut found = Vec::new();
        let scanned = visit_records(journal, &prefix, |key, value| {
            found.push((Key::from_bytes(key).unwrap(), value.to_vec()));
        });
        if let Err(error) = scanned {
            must_name_the_place(&error, files);
            verdict = Verdict::Partial;
            continue;
        }
        let wanted: Vec<(Key, Vec<u8>)> = expected
            .records
            .iter()
            .filter(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .map(|(key, entry)| (*key, entry.value.clone()))
            .collect();
        assert!(found == wanted, "a scan of space {space} shows something else");
    }
    let keys: Vec<Key> = expected.records.keys().copied().collect();
    let mut contents = Vec::new();
    journal.pin(&keys, &mut contents);
    for (entry, content) in expected.records.values().zip(contents) {
        assert_eq!(content.is_some(), entry.content.is_some(), "a content is gone, or came");
        match content.map(|content| load(&content)) {
            Some(Err(error)) => {
                must_name_the_place(&error, files);
                verdict = Verdict::Partial;
            }
            Some(Ok(found)) => {
                assert!(Some(&found) == entry.content.as_ref(), "a content is another");
            }
            None => {}
        }
    }
    verdict
}

/// One way to damage a journal.
struct Damage {
    what: String,
    files: Files,
    works_on: bool,
}

/// Judges all damages on all cores. Returns the numbers of exact, refused and partial results.
fn judge_all(
    expected: &State,
    count: usize,
    damage: impl Fn(usize) -> Option<Damage> + Sync,
) -> [usize; 3] {
    let next = AtomicUsize::new(0);
    let verdicts = [const { AtomicUsize::new(0) }; 3];
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || failed.lock().unwrap().len() >= 10 {
                        break;
                    }
                    let Some(Damage { what, files, works_on }) = damage(index) else { continue };
                    let judged =
                        catch_unwind(AssertUnwindSafe(|| judge(&files, expected, works_on)));
                    match judged {
                        Ok(verdict) => {
                            verdicts[verdict as usize].fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => failed.lock().unwrap().push(what),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "wrong after: {failed:#?}");
    verdicts.map(AtomicUsize::into_inner)
}

fn flip_everywhere(files: &Files, expected: &State, stride_of: impl Fn(&str) -> usize) {
    let mut places = Vec::new();
    for (name, bytes) in files {
        places.extend((0..bytes.len()).step_by(stride_of(name)).map(|offset| (name, offset)));
    }
    let verdicts = judge_all(expected, places.len(), |index| {
        let (name, offset) = places[index];
        let mut files = files.clone();
        let bit = offset % 8;
        files.get_mut(name)?[offset] ^= 1 << bit;
        let what = format!("bit {bit} of byte {offset} of {name}");
        Some(Damage { what, files, works_on: index % WORK_STRIDE == 0 })
    });
    eprintln!("{} bits turned: {verdicts:?} exact, refused, partly read", places.len());
    assert!(verdicts[Verdict::Refused as usize] > 0, "no damage was noticed");
}

/// The damaged journal has every feature of a journal.
#[test]
fn the_damaged_journal_has_every_feature() {
    for with_large in [false, true] {
        let (files, state) = closed_journal(with_large);
        let count_of = |end: &str| files.keys().filter(|name| name.ends_with(end)).count();
        for (name, bytes) in &files {
            eprintln!("{name}: {} bytes", bytes.len());
        }
        assert!(count_of(".log") >= 3, "several segments");
        assert!(count_of(".idx") >= 1, "side files");
        assert!(!files.contains_key("segment-0000000001.log"), "records have moved");
        assert!(state.records.len() > 10);
        assert_eq!(judge(&files, &state, true), Verdict::Exact);
    }
}

/// Any bit of any byte of any file.
#[test]
fn no_wrong_bit_goes_unnoticed() {
    let (files, state) = closed_journal(false);
    flip_everywhere(&files, &state, |_| 1);
}

/// Any bit of any byte, if no close marks the end of the log.
#[test]
fn no_wrong_bit_goes_unnoticed_after_a_kill() {
    let (files, state) = journal_that(End::Marked, false);
    flip_everywhere(&files, &state, |name| if name.starts_with("spare") { STRIDE } else { 1 });
}

/// Any bit of any byte, with contents in parts.
#[test]
fn no_wrong_bit_goes_unnoticed_in_large_contents() {
    let all = std::env::var("PEEKLOCK_JOURNAL_ROT").is_ok_and(|value| value == "all");
    let (files, state) = closed_journal(true);
    flip_everywhere(&files, &state, |_| if all { 1 } else { STRIDE });
}

/// CON-03: a range of a content in parts reads and checks the parts that overlap the range. Damage in
/// such a part is an error, damage elsewhere does not matter.
#[test]
fn range_of_a_content_is_checked_part_by_part() {
    const PART: usize = 256 << 10;
    let (disk, journal) = open(&Files::new()).unwrap();
    let owner = block_on(journal.acquire(Shard(0))).unwrap();
    let mut book = Book::new(State::default(), vec![owner]);
    let content = Bytes::from(filling(&mut Random::new(3), 3 * PART + 100));
    let put = Op::PutNew { key: key(1), value: b"large".to_vec(), content: content.clone() };
    book.submit(&*journal, 0, &[], (vec![put], true));
    turn(&journal, &mut book, 10);
    assert!(book.is_all_answered());
    journal.close().unwrap();
    let mut files = disk.files();
    // A byte of the second part.
    let sample = &content[PART + 1_000..PART + 1_064];
    let damaged = files.values_mut().find_map(|bytes| {
        let at = bytes.windows(sample.len()).position(|window| window == sample)?;
        bytes.get_mut(at)
    });
    *damaged.expect("the content is in a file") ^= 1;
    let (_, journal) = open(&files).unwrap();
    let mut contents = Vec::new();
    journal.pin_unloaded(&[key(1)], &mut contents);
    let pinned = contents.remove(0).unwrap();
    for (from, length) in [(0, PART), (PART - 1, 1), (2 * PART, 2 * PART), (3 * PART + 99, 9)] {
        let end = (from + length).min(content.len());
        assert_eq!(load_range(&pinned, from, length).unwrap(), content[from..end]);
    }
    for (from, length) in [(PART - 1, 2), (PART, 1), (2 * PART - 1, 2), (0, usize::MAX)] {
        must_name_the_place(&load_range(&pinned, from, length).unwrap_err(), &files);
    }
    assert!(load(&pinned).is_err());
}

/// Files that are cut at any sector, missing, empty, or full of other data.
#[test]
fn no_wrong_file_goes_unnoticed() {
    for with_large in [false, true] {
        let (files, state) = closed_journal(with_large);
        let mut damages: Vec<(String, Files)> = Vec::new();
        let mut add = |what: String, change: &dyn Fn(&mut Files)| {
            let mut files = files.clone();
            change(&mut files);
            damages.push((what, files));
        };
        for (name, bytes) in &files {
            for length in (0..bytes.len()).step_by(512) {
                let what = format!("{name} is cut to {length} bytes");
                add(what, &|files| files.get_mut(name).unwrap().truncate(length));
            }
            add(format!("{name} is gone"), &|files| drop(files.remove(name)));
            add(format!("{name} is all zeros"), &|files| {
                files.get_mut(name).unwrap().fill(0);
            });
            add(format!("{name} is garbage"), &|files| {
                let bytes = files.get_mut(name).unwrap();
                *bytes = filling(&mut Random::new(3), bytes.len());
            });
            add(format!("{name} is longer"), &|files| {
                files.get_mut(name).unwrap().extend([7; 5_000]);
            });
            for (other, _) in files.range::<String, _>(name..).skip(1) {
                add(format!("{name} and {other} are exchanged"), &|files| {
                    let bytes = files.remove(name).unwrap();
                    let others = files.insert(other.clone(), bytes).unwrap();
                    files.insert(name.clone(), others);
                });
                add(format!("{name} is there as {other} too"), &|files| {
                    let bytes = files[name].clone();
                    files.insert(other.clone(), bytes);
                });
            }
        }
        let verdicts = judge_all(&state, damages.len(), |index| {
            let (what, files) = &damages[index];
            let works_on = index % 5 == 0;
            Some(Damage { what: what.clone(), files: files.clone(), works_on })
        });
        eprintln!("{} wrong files: {verdicts:?} exact, refused, partly read", damages.len());
    }
}

/// Files that the journal did not create are no damage, and are left unchanged.
#[test]
fn foreign_files_are_left_unchanged() {
    let (files, state) = closed_journal(false);
    let newest = files.keys().rfind(|name| name.starts_with("segment-")).unwrap().clone();
    for name in [
        "notes.txt".to_owned(),
        "lost+found".to_owned(),
        "letter.draft".to_owned(),
        "spare-parts.txt".to_owned(),
        "spare-list.log".to_owned(),
        "segment-1.log".to_owned(),
        "segment-00000000000000000001.log".to_owned(),
        format!("{newest}.bak"),
        format!("{newest}~"),
        "manifest.old".to_owned(),
        "Segment-0000000001.log".to_owned(),
    ] {
        for bytes in [Vec::new(), filling(&mut Random::new(1), 5_000), files[&newest].clone()] {
            let mut files = files.clone();
            files.insert(name.clone(), bytes.clone());
            let (disk, journal) = open(&files).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(compare(&journal, &state, &files), Verdict::Exact, "{name}");
            journal.close().unwrap();
            assert_eq!(disk.files().get(&name), Some(&bytes), "{name} was touched");
        }
    }
}

/// An older file in place of a newer one, as after a careless restore.
#[test]
fn no_older_file_goes_unnoticed() {
    let (disk, journal) = open(&Files::new()).unwrap();
    let owner = block_on(journal.acquire(Shard(0))).unwrap();
    let mut book = Book::new(State::default(), vec![owner]);
    let mut random = Random::new(9);
    let mut older = Vec::new();
    for _ in 0..30 {
        work(&journal, &mut book, &mut random, 4);
        older.push(disk.files());
    }
    turn(&journal, &mut book, 60);
    journal.close().unwrap();
    let (files, state) = (disk.files(), book.completed());
    let mut damages = Vec::new();
    for (time, older) in older.iter().enumerate() {
        for (name, bytes) in older {
            if files.get(name) != Some(bytes) {
                damages.push((format!("{name} of time {time}"), name, bytes));
            }
        }
    }
    let verdicts = judge_all(&state, damages.len(), |index| {
        let (what, name, bytes) = &damages[index];
        let mut files = files.clone();
        files.insert((*name).clone(), (*bytes).clone());
        Some(Damage { what: what.clone(), files, works_on: index % 5 == 0 })
    });
    eprintln!("{} older files: {verdicts:?} exact, refused, partly read", damages.len());
}
