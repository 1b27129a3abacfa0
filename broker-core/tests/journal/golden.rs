//! Journals of every released format version can be opened permanently, with unchanged contents
//! (DESIGN D11).
//!
//! Each version has a folder with one folder for each journal: its files, and its contents as text.
//! An ignored test writes them once, and they never change: a change of the format needs a new
//! folder.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::store::journal::verify::verify;
use peeklock_core::store::journal::{Journal, JournalConfig};
use peeklock_core::store::{Key, Shard, Store};
use peeklock_store_testing::{Call, Fault, Lost, SimulatedDisk, block_on, manual_journal};

use crate::book::Book;
use crate::oracle::{Op, SPACES, State};

/// Expected contents; no file of a journal has this name.
const EXPECTED: &str = "expected.txt";
const SHARDS: u16 = 2;
/// Contents up to this length are written as text.
const SHOWN_BYTES: usize = 32;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/golden")
}

fn open(disk: &SimulatedDisk) -> Arc<Journal> {
    let config = JournalConfig {
        segment_bytes: 16 << 10,
        free_bytes_min: 0,
        shard_count: SHARDS,
        ..JournalConfig::default()
    };
    manual_journal(Arc::new(disk.clone()), config, 1).unwrap()
}

/// One line for each record: key, value, content.
fn describe(state: &State) -> String {
    let mut text = String::new();
    for (key, entry) in &state.records {
        write!(text, "{key:?} = {}", shown(&entry.value)).unwrap();
        if let Some(content) = &entry.content {
            write!(text, " with {}", shown(content)).unwrap();
        }
        text.push('\n');
    }
    text
}

fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN_BYTES {
        return format!("\"{}\"", bytes.escape_ascii());
    }
    // FNV-1a, a checksum without dependencies.
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} bytes, sum {sum:016x}", bytes.len())
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// A journal and its expected contents, from its folder.
fn stored(folder: &Path) -> (BTreeMap<String, Vec<u8>>, String) {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        files.insert(name, std::fs::read(entry.path()).unwrap());
    }
    let expected = files.remove(EXPECTED).expect("a folder tells what is in it");
    (files, String::from_utf8(expected).unwrap())
}

/// Checks a journal for damage: side files agree with their segments, and records and contents
/// match their checksums.
fn check(disk: &SimulatedDisk, folder: &Path, is_torn: bool) {
    let report = verify(disk, &mut |_| {}).unwrap().report().clone();
    assert!(report.is_sound() && report.findings.is_empty() != is_torn, "{folder:?}: {report:?}");
}

/// Old journals are readable and usable.
#[test]
fn journals_of_all_versions_are_read() {
    let mut count = 0;
    for folder in folders(&root()).iter().flat_map(|version| folders(version)) {
        let (files, expected) = stored(&folder);
        let disk = SimulatedDisk::holding(&files, 1);
        check(&disk, &folder, folder.ends_with("torn"));
        let mut journal = open(&disk);
        let found = State::read(&*journal).unwrap();
        assert_eq!(describe(&found), expected, "{}", folder.display());
        let owners =
            (0..SHARDS).map(|shard| block_on(journal.acquire(Shard(shard))).unwrap()).collect();
        let mut book = Book::new(found.clone(), owners);
        book.submit(&*journal, 0, &[1], (references(&found), true));
        turn(&journal, &mut book);
        let referred = book.completed();
        journal.close().unwrap();
        drop(journal);
        // Side files are created again, or opening reads the segments.
        let mut files = disk.kill(Lost::ReadAnew).files();
        files.retain(|name, _| !name.ends_with("3.idx"));
        let disk = SimulatedDisk::holding(&files, 2);
        check(&disk, &folder, false);
        journal = open(&disk);
        let found = State::read(&*journal).unwrap();
        assert!(referred.difference(&found).is_none(), "{}", folder.display());
        let owners =
            (0..SHARDS).map(|shard| block_on(journal.acquire(Shard(shard))).unwrap()).collect();
        let mut book = Book::new(found, owners);
        for number in 0..40u8 {
            let key = Key::of_space(SPACES[0]).then(&[number]);
            let content = Bytes::from(vec![number; 1_000]);
            let op = Op::PutNew { key, value: vec![number], content };
            book.submit(&*journal, 0, &[], (vec![op], true));
            turn(&journal, &mut book);
        }
        assert!(book.is_all_answered() && book.failure().is_none());
        journal.close().unwrap();
        drop(journal);
        let disk = disk.kill(Lost::ReadAnew);
        check(&disk, &folder, false);
        let found = State::read(&*open(&disk)).unwrap();
        assert!(book.completed().difference(&found).is_none());
        count += 1;
    }
    assert!(count >= 4, "there are journals of both versions to be read");
}

/// New records that refer to contents in their original form, small and large: of the same key, and
/// of other keys in a chain.
fn references(state: &State) -> Vec<Op> {
    let length = |key: &&Key| state.records[key].content.as_ref().map_or(0, Bytes::len);
    let small = *state.records.keys().find(|key| length(key) > 100).unwrap();
    let large = *state.records.keys().max_by_key(length).unwrap();
    assert!(length(&&large) > 256 << 10);
    let mut ops = Vec::new();
    for (number, source) in [(0, small), (1, large)] {
        let copy = |place: u8| Key::of_space(SPACES[5]).then(&[9, number, place]);
        let value = |text: &str| text.as_bytes().to_vec();
        ops.push(Op::PutKeep { key: source, value: value("kept") });
        ops.push(Op::PutOf { key: copy(1), source, value: value("copy") });
        ops.push(Op::PutOf { key: copy(2), source: copy(1), value: value("copy of the copy") });
        ops.push(Op::PutKeep { key: copy(1), value: value("kept too") });
    }
    ops
}

fn turn(journal: &Journal, book: &mut Book) {
    for _ in 0..1_000 {
        let (kept, committed) = (journal.run_keeper(), journal.run_committer());
        if !kept && !committed {
            break;
        }
    }
    book.take_answers();
}

/// Every feature of the format: contents in the record, of another record, in parts; removals of
/// keys, prefixes and spaces; moved records, side files, marks, a manifest.
fn rich() -> (SimulatedDisk, Arc<Journal>, Book) {
    let disk = SimulatedDisk::new(1);
    let journal = open(&disk);
    let owners =
        (0..SHARDS).map(|shard| block_on(journal.acquire(Shard(shard))).unwrap()).collect();
    let mut book = Book::new(State::default(), owners);
    let key = |space: usize, number: u8| Key::of_space(SPACES[space]).then(&[7, number]);
    let text = |number: u8, length: usize| -> Bytes {
        format!("message {number}, ").into_bytes().into_iter().cycle().take(length).collect()
    };
    let put = |journal: &Journal, book: &mut Book, ops: Vec<Op>, synced: bool| {
        book.submit(journal, 0, &[1], (ops, synced));
        turn(journal, book);
    };
    let first = Op::PutNew { key: key(3, 1), value: b"moves".to_vec(), content: text(254, 500) };
    put(&journal, &mut book, vec![first], true);
    for number in 0..60 {
        let value = format!("value {number}").into_bytes();
        let mut ops = vec![Op::PutNew {
            key: key(0, number),
            value: value.clone(),
            content: text(number, usize::from(number) * 15),
        }];
        if number % 4 == 0 {
            ops.push(Op::PutOf { key: key(1, number), source: key(0, number), value });
        }
        if number % 4 != 0 {
            ops.push(Op::Delete { key: key(0, number - number / 4) });
        }
        if number % 5 == 0 {
            ops.push(Op::PutKeep { key: key(1, number / 2), value: vec![0, number, 255] });
        }
        if number % 7 == 0 {
            ops.push(Op::Put { key: key(2, number), value: Vec::new() });
        }
        if number == 40 {
            ops.push(Op::DeletePrefix { prefix: key(0, 20) });
        }
        if number == 50 {
            ops.push(Op::DeletePrefix { prefix: Key::of_space(SPACES[2]) });
        }
        put(&journal, &mut book, ops, number % 2 == 0);
    }
    // The first record lies in the first segment until it is moved.
    let mut number = 0u8;
    while disk.files().contains_key("segment-0000000001.log") {
        number = number.checked_add(1).expect("records move");
        let content = text(number, 2_000);
        let op = Op::PutNew { key: key(0, number % 4), value: vec![number], content };
        put(&journal, &mut book, vec![op], true);
    }
    // Texts are not packed if they would not become shorter, or are long.
    let texts = vec![
        Op::Put { key: key(5, 1), value: b"no zeros".to_vec() },
        Op::Put { key: key(5, 2), value: text(2, 200).to_vec() },
        Op::PutNew { key: key(5, 3), value: text(3, 200).to_vec(), content: text(3, 300) },
    ];
    put(&journal, &mut book, texts, true);
    // Contents in parts, with unpacked and packed places; then enough records for side files to
    // list them.
    let large = vec![
        Op::PutNew {
            key: key(3, 0),
            value: text(0, 120).to_vec(),
            content: text(255, (256 << 10) + 1),
        },
        Op::PutOf { key: key(3, 2), source: key(3, 0), value: b"in parts".to_vec() },
    ];
    put(&journal, &mut book, large, true);
    for number in 0..40 {
        let op = Op::PutNew {
            key: key(0, 100 + number % 20),
            value: vec![number],
            content: text(number, 1_000),
        };
        put(&journal, &mut book, vec![op], true);
    }
    assert!(disk.files().keys().any(|name| name.ends_with(".idx")), "there are side files");
    assert!(book.completed().records.contains_key(&key(3, 1)));
    (disk, journal, book)
}

/// Writes the journals of the current format. Run once for each version: `cargo test -p
/// peeklock-core --test journal -- --ignored write_golden_journals`.
#[test]
#[ignore = "writes files that never change again"]
fn write_golden_journals() {
    let version = root().join("v2");
    assert!(!version.exists(), "{} is there, and stays as it is", version.display());
    let write = |name: &str, disk: &SimulatedDisk, state: &State| {
        let folder = version.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in disk.files() {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        std::fs::write(folder.join(EXPECTED), describe(state)).unwrap();
    };
    let (disk, journal, book) = rich();
    journal.close().unwrap();
    write("closed", &disk, &book.completed());

    // Killed during a write: the last batch is partly there, and was never acknowledged.
    let (disk, journal, mut book) = rich();
    let state = book.completed();
    let op = Op::PutNew {
        key: Key::of_space(SPACES[0]).then(b"torn"),
        value: b"torn".to_vec(),
        content: vec![7; 3_000].into(),
    };
    disk.fail(Call::Write, 1, Fault::Partly);
    book.submit(&*journal, 0, &[], (vec![op], true));
    journal.run_committer();
    write("torn", &disk, &state);
}
