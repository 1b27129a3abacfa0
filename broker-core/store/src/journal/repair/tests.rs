//! Tests on a disk in memory, small enough to damage every byte and to fail every write.

mod memory_disk;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use self::memory_disk::{Files, MemoryDisk};
use super::super::disk::{DiskFile, OsDisk};
use super::super::format::FRAME_HEAD;
use super::super::verify::{Fate, Severity, Totals, verify};
use super::*;

fn key(number: u64) -> Key {
    Key::of_space(7).then(&[0x10]).then(&number.to_be_bytes())
}

fn content(number: u64) -> Bytes {
    Bytes::from(format!("content of {number} ").repeat(6))
}

fn small() -> JournalConfig {
    JournalConfig { segment_bytes: 16 << 10, ..config() }
}

/// Content of a journal: keys, with their values and contents.
type Held = BTreeMap<Key, (Vec<u8>, Option<Bytes>)>;

fn held(disk: &Arc<MemoryDisk>) -> Held {
    let opened = super::super::opening::open(&*MemoryDisk::of(&disk.files())).unwrap();
    let mut held = Held::new();
    opened.index.each(&mut |key, entry| {
        let segment = opened.segments.get(entry.record.segment).unwrap();
        let value = segment.read_value(entry, key.as_bytes()).unwrap();
        let content = entry.content_at().map(|content| {
            if !content.is_large {
                let segment = opened.segments.get(content.place.segment).unwrap();
                return segment.read_content(content.place, content.length as usize).unwrap();
            }
            let parts = opened.index.part_places(content.place).unwrap();
            let parts: Vec<Bytes> = parts
                .iter()
                .map(|part| opened.segments.get(part.segment).unwrap().read_part(*part).unwrap())
                .collect();
            join(parts, content.length as usize)
        });
        held.insert(key, (value, content));
    });
    held
}

/// A journal with sent, changed and settled messages, closed in order.
fn filled(disk: &Arc<MemoryDisk>, messages: u64) {
    let journal = Journal::without_threads(Arc::clone(disk) as _, &small(), None).unwrap();
    let mut writer = Writer::new(journal).unwrap();
    for number in (0..messages).step_by(4) {
        for number in number..number + 4 {
            writer.batch.put_with_content(&key(number), content(number), |value| {
                value.extend_from_slice(b"sent");
            });
        }
        writer.write().unwrap();
        writer.batch.put_keep_content(&key(number + 1), |value| value.extend_from_slice(b"back"));
        writer.batch.delete(&key(number + 2));
        writer.write().unwrap();
    }
    writer.journal.close().unwrap();
}

fn whole() -> Files {
    let disk = MemoryDisk::of(&Files::new());
    filled(&disk, 16);
    disk.files()
}

fn look(disk: &MemoryDisk) -> Report {
    verify(disk, &mut |_| {}).unwrap().report().clone()
}

fn plan(disk: &Arc<MemoryDisk>, drop: &[u32]) -> Plan {
    Plan::new(Arc::clone(disk) as _, drop, &mut |_| {}).unwrap()
}

fn flip(disk: &MemoryDisk, name: &str, at: usize) {
    disk.file(name).unwrap().bytes.lock().unwrap()[at] ^= 0x10;
}

fn find(disk: &MemoryDisk, name: &str, wanted: &[u8]) -> usize {
    let file = disk.file(name).unwrap();
    let bytes = file.bytes.lock().unwrap();
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

#[test]
fn plan_for_a_sound_journal_writes_nothing() {
    let files = whole();
    let disk = MemoryDisk::of(&files);
    let mut stages = Vec::new();
    let report = verify(&*disk, &mut |progress| stages.push(progress.stage)).unwrap();
    assert!(report.report().is_sound(), "{:?}", report.report());
    assert_eq!(report.report().findings, []);
    let Totals { live_keys, records, segments, .. } = report.report().totals;
    assert_eq!((live_keys, records, segments), (12, 24, 1));
    assert_eq!(report.value(&key(1)), Some(b"back".to_vec()));
    assert_eq!(disk.files(), files);
    assert!(!plan(&disk, &[]).is_needed());
    assert_eq!(disk.files(), files);
}

#[test]
fn a_directory_without_a_journal_is_no_journal() {
    let disk = MemoryDisk::of(&Files::new());
    let error = verify(&*disk, &mut |_| {}).err().unwrap().to_string();
    assert!(error.contains("there is no journal"), "{error}");
    assert_eq!(disk.files(), Files::new());
}

/// Bit rot at every byte of a small closed journal is found in every frame and header, and repair
/// gives up no readable data.
#[test]
fn bit_rot_at_every_byte_is_found_and_repaired() {
    let files = whole();
    let before = held(&MemoryDisk::of(&files));
    let (name, bytes) = files.iter().find(|(name, _)| name.starts_with("segment")).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut fates = BTreeMap::new();
    for (at, byte) in bytes.iter().enumerate().take(end) {
        let disk = MemoryDisk::of(&files);
        flip(&disk, name, at);
        let report = look(&disk);
        let is_in_header = at < usize::try_from(HEADER_BYTES).unwrap();
        if is_in_header {
            assert!(report.is_sound(), "byte {at}");
        } else if report.is_sound() {
            // Padding after a payload is not checked.
            assert_eq!(*byte, 0, "byte {at}");
            assert!(report.findings.is_empty(), "byte {at}");
            continue;
        }
        let plan = plan(&disk, &[]);
        assert_eq!(plan.report(), &report);
        let lost = report.count(Fate::Lost);
        plan.apply().unwrap();
        let report = look(&disk);
        assert!(report.is_sound(), "byte {at}: {report:?}");
        let after = held(&disk);
        for (key, record) in &after {
            // An earlier value of the key may return if its successor is unreadable.
            let is_known = before.get(key) == Some(record) || record.0 == b"sent";
            assert!(is_known, "byte {at}: {key:?} is {record:?}");
        }
        let missing = before.keys().filter(|key| !after.contains_key(*key)).count();
        *fates.entry((lost, missing)).or_insert(0) += 1;
        assert!(missing <= 4, "byte {at}: {missing} messages are gone");
    }
    // Most bytes of frames are contents: one message is lost, and its neighbours stay.
    let costs = fates.iter().filter(|((_, missing), _)| *missing > 0);
    assert_eq!(costs.max_by_key(|(_, count)| **count).unwrap().0, &(1, 1), "{fates:?}");
}

#[test]
fn damaged_content_loses_only_its_message() {
    let disk = MemoryDisk::of(&whole());
    let before = held(&disk);
    let name = name_of(1);
    flip(&disk, &name, find(&disk, &name, b"content of 9 "));
    let report = look(&disk);
    let finding = &report.findings[0];
    assert_eq!((finding.kind, finding.severity()), (FindingKind::Frames, Severity::Damage));
    let frames = finding.frames.unwrap();
    assert_eq!((frames.readable_record_count, frames.are_all_readable), (4, true));
    assert_eq!((report.count(Fate::Lost), report.count(Fate::Saved)), (1, 2));
    let lost = report.affected.iter().find(|one| one.fate == Fate::Lost).unwrap();
    assert_eq!(lost.key, key(9));
    assert!(lost.reason.contains(&name), "{}", lost.reason);
    plan(&disk, &[]).apply().unwrap();
    let mut expected = before;
    expected.remove(&key(9));
    assert_eq!(held(&disk), expected);
}

/// The value of the later record is lost, and the previous value of the key counts again.
#[test]
fn damaged_change_restores_the_previous_value() {
    let disk = MemoryDisk::of(&whole());
    let name = name_of(1);
    flip(&disk, &name, find(&disk, &name, b"back"));
    let report = look(&disk);
    assert!(!report.findings[0].frames.unwrap().are_all_readable);
    plan(&disk, &[]).apply().unwrap();
    assert_eq!(held(&disk)[&key(1)], (b"sent".to_vec(), Some(content(1))));
}

/// The removal of a settled message is in a damaged frame and readable: the message does not
/// return.
#[test]
fn removal_in_a_damaged_frame_stays_in_effect() {
    let disk = MemoryDisk::of(&whole());
    let before = held(&disk);
    let name = name_of(1);
    // The first two records of that frame are intact, and the second one is a deletion. The head of
    // the frame is damaged.
    let change = find(&disk, &name, b"back");
    let bytes = disk.file(&name).unwrap().bytes.lock().unwrap()[..change].to_vec();
    let head = bytes.windows(4).rposition(|window| window == b"PKf1").unwrap();
    flip(&disk, &name, head + FRAME_HEAD - 1);
    let report = look(&disk);
    assert_eq!((report.count(Fate::Removed), report.count(Fate::Saved)), (1, 1), "{report:?}");
    plan(&disk, &[]).apply().unwrap();
    assert_eq!(held(&disk), before);
}

#[test]
fn a_torn_end_is_harmless() {
    let mut files = whole();
    // Like a process that ended before it closed the journal.
    files.remove("manifest");
    let disk = MemoryDisk::of(&files);
    let name = name_of(1);
    let bytes = disk.file(&name).unwrap().bytes.lock().unwrap().clone();
    let mut heads: Vec<usize> = Vec::new();
    heads.extend((0..bytes.len() - 4).filter(|at| &bytes[*at..*at + 4] == b"PKf1"));
    // The last batch, and the mark after it, which is the only proof that the batch was durable.
    let (batch, mark) = (heads[heads.len() - 2], heads[heads.len() - 1]);
    disk.file(&name).unwrap().bytes.lock().unwrap()[mark..].fill(0);
    flip(&disk, &name, batch + FRAME_HEAD);
    let report = look(&disk);
    assert!(report.is_sound(), "{report:?}");
    let kinds: Vec<FindingKind> = report.findings.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [FindingKind::Manifest, FindingKind::UnfinishedWrite]);
    assert_eq!(report.findings[1].offset, batch as u64);
    held(&disk);
}

#[test]
fn read_error_is_reported_as_damage() {
    let disk = MemoryDisk::of(&whole());
    let name = name_of(1);
    let at = find(&disk, &name, b"content of 5 ") as u64;
    *disk.file(&name).unwrap().bad.lock().unwrap() = Some(at..at + 1);
    let report = look(&disk);
    assert!(!report.is_sound());
    assert!(report.findings[0].description.contains("medium error"), "{:?}", report.findings);
    let copy = MemoryDisk::of(&Files::new());
    plan(&disk, &[]).copy_to(&*copy, &mut |_| {}).unwrap();
    assert_eq!(look(&copy).totals.segments, 1);
}

/// Large contents are in parts. A damaged part loses the message that refers to it.
#[test]
fn a_damaged_part_costs_its_message() {
    let disk = MemoryDisk::of(&Files::new());
    let mut writer =
        Writer::new(Journal::without_threads(Arc::clone(&disk) as _, &small(), None).unwrap())
            .unwrap();
    for number in 0..3u8 {
        let large = Bytes::from(vec![number + 1; 600 << 10]);
        writer.batch.put_with_content(&key(number.into()), large, |_| {});
        writer.write().unwrap();
    }
    writer.journal.close().unwrap();
    let before = held(&disk);
    assert!(look(&disk).is_sound());
    let name = disk.list().unwrap().into_iter().find(|name| {
        name.starts_with("segment")
            && disk.file(name).unwrap().bytes.lock().unwrap().windows(64).any(|w| w == [2; 64])
    });
    let name = name.unwrap();
    flip(&disk, &name, find(&disk, &name, &[2; 64]) + 100);
    let report = look(&disk);
    assert_eq!((report.count(Fate::Lost), report.affected_omitted), (1, 0));
    assert_eq!(report.affected.iter().find(|one| one.fate == Fate::Lost).unwrap().key, key(1));
    plan(&disk, &[]).apply().unwrap();
    let mut expected = before;
    expected.remove(&key(1));
    assert_eq!(held(&disk), expected);
}

/// Several segments, the older ones with side files.
fn long() -> Files {
    let disk = MemoryDisk::of(&Files::new());
    filled(&disk, 400);
    // The keeper writes side files; its other work is not part of this test.
    let journal = Journal::without_threads(Arc::clone(&disk) as _, &small(), None).unwrap();
    for _ in 0..20 {
        let step = {
            let super::super::Driver::Manual(manual) = &journal.driver else { unreachable!() };
            manual.lock().unwrap().as_mut().unwrap().1.step()
        };
        match step {
            super::super::keeper::KeeperProgress::Worked => {}
            super::super::keeper::KeeperProgress::Waiting => {
                journal.turn();
            }
            super::super::keeper::KeeperProgress::Idle => break,
        }
    }
    journal.close().unwrap();
    disk.files()
}

#[test]
fn side_files_are_proven_against_their_segments() {
    let files = long();
    let sides: Vec<&String> = files.keys().filter(|name| name.ends_with(".idx")).collect();
    assert!(sides.len() >= 3, "{:?}", files.keys());
    let report = look(&MemoryDisk::of(&files));
    assert!(report.is_sound() && report.findings.is_empty(), "{report:?}");

    let disk = MemoryDisk::of(&files);
    flip(&disk, sides[1], 60);
    let report = look(&disk);
    assert!(report.is_sound());
    assert_eq!(report.findings[0].kind, FindingKind::SideFile);
    let before = held(&disk);
    let plan = plan(&disk, &[]);
    assert!(plan.is_needed());
    plan.apply().unwrap();
    assert_eq!(held(&disk), before);
    assert!(look(&disk).findings.is_empty());
}

/// A side file without a live record has valid checksums, but opening would lose the record.
#[test]
fn incomplete_side_file_is_damage() {
    let disk = MemoryDisk::of(&long());
    let before = held(&disk);
    let opened = super::super::opening::open(&*MemoryDisk::of(&disk.files())).unwrap();
    let segment = opened.segments.get(3).unwrap();
    let mut alive = before.keys();
    let omitted = alive.find(|key| opened.index.get(key.as_bytes()).unwrap().record.segment == 3);
    opened.index.replay(&[peeklock_store_log::Op::Delete { key: *omitted.unwrap() }]);
    side::draft(&*disk, &segment, &opened.index, false).unwrap();
    side::publish(&*disk, 3).unwrap();
    assert_eq!(held(&disk).len() + 1, before.len());
    let report = look(&disk);
    assert!(!report.is_sound());
    assert_eq!(report.findings[0].kind, FindingKind::SideFileDiffers);
    plan(&disk, &[]).apply().unwrap();
    assert_eq!(held(&disk), before);
}

/// The side file of a damaged segment has the records that were in it.
#[test]
fn side_file_saves_records_of_a_damaged_segment() {
    let files = long();
    let disk = MemoryDisk::of(&files);
    let before = held(&disk);
    let name = name_of(2);
    // The head of the first frame: no record in the gap can be read.
    let start = usize::try_from(HEADER_BYTES).unwrap();
    disk.file(&name).unwrap().bytes.lock().unwrap()[start..start + 8].fill(0xff);
    let report = look(&disk);
    assert_eq!(report.count(Fate::Lost), 0, "{report:?}");
    assert!(report.count(Fate::Saved) > 0, "{report:?}");
    plan(&disk, &[]).apply().unwrap();
    assert_eq!(held(&disk), before);
    assert!(look(&disk).is_sound());
}

#[test]
fn missing_segment_is_dropped_only_on_request() {
    let files = long();
    let newest = files.keys().filter(|name| name.starts_with("segment-"));
    let newest = newest.filter(|name| name.ends_with(".log")).count();
    for number in [1, 3, u32::try_from(newest).unwrap()] {
        let mut files = files.clone();
        files.remove(&name_of(number)).unwrap();
        let disk = MemoryDisk::of(&files);
        let report = look(&disk);
        assert_eq!(report.findings[0].kind, FindingKind::Missing);
        assert_eq!(report.findings[0].segment, Some(number));
        let refused = plan(&disk, &[]);
        assert_eq!(refused.obstacles()[0].segment, number);
        assert!(refused.apply().is_err());
        assert_eq!(disk.files(), files, "nothing was changed");
        let error = Plan::new(Arc::clone(&disk) as _, &[2], &mut |_| {}).err().unwrap();
        assert!(error.to_string().contains("can be read"), "{error}");
        plan(&disk, &[number]).apply().unwrap();
        let report = look(&disk);
        assert!(report.is_sound(), "without {number}: {report:?}");
        for (key, (_, content)) in held(&disk) {
            assert!(content.is_some(), "{key:?}");
        }
    }
}

#[test]
fn segment_without_header_is_dropped_only_on_request() {
    let disk = MemoryDisk::of(&long());
    let name = name_of(2);
    flip(&disk, &name, 20);
    let report = look(&disk);
    assert!(report.is_sound());
    assert_eq!(report.findings[0].kind, FindingKind::HeaderCopy);
    let before = held(&disk);
    let sound = disk.files();
    plan(&disk, &[]).apply().unwrap();
    assert!(look(&disk).findings.is_empty());
    assert_eq!(held(&disk), before);

    let disk = MemoryDisk::of(&sound);
    flip(&disk, &name, 2_048 + 20);
    assert_eq!(look(&disk).findings[0].kind, FindingKind::Header);
    assert_eq!(plan(&disk, &[]).obstacles().len(), 1);
    plan(&disk, &[2]).apply().unwrap();
    assert!(look(&disk).is_sound());
}

#[test]
fn file_of_another_journal_is_reported_and_removed() {
    let mut files = long();
    let foreign = whole()[&name_of(1)].clone();
    files.insert(name_of(99), foreign.clone());
    let disk = MemoryDisk::of(&files);
    assert_eq!(look(&disk).findings[0].kind, FindingKind::Stray);
    plan(&disk, &[]).apply().unwrap();
    assert!(look(&disk).is_sound());
    files.remove(&name_of(99));
    files.insert(name_of(2), foreign);
    let report = look(&MemoryDisk::of(&files));
    assert_eq!(report.findings[0].kind, FindingKind::Foreign);
}

/// The power fails at every write of a repair. A second repair has the same result.
#[test]
fn interrupted_repair_can_run_again() {
    let mut files = long();
    files.remove(&name_of(4)).unwrap();
    let broken = MemoryDisk::of(&files);
    let name = name_of(2);
    let at = find(&broken, &name, b"content of ");
    flip(&broken, &name, at);
    flip(&broken, &name_of(3), 10);
    let files = broken.files();
    plan(&broken, &[4]).apply().unwrap();
    let expected = held(&broken);
    for left in 0.. {
        let disk = MemoryDisk::of(&files);
        let first = plan(&disk, &[4]);
        disk.writes.left.store(left, Ordering::Release);
        let is_done = first.apply().is_ok();
        disk.writes.left.store(u64::MAX, Ordering::Release);
        let again = Plan::new(Arc::clone(&disk) as _, &[4], &mut |_| {});
        // The dropped segment may have its replacement already.
        let again = again.unwrap_or_else(|_| plan(&disk, &[]));
        again.apply().unwrap();
        assert!(look(&disk).is_sound(), "after {left} writes");
        assert_eq!(held(&disk), expected, "after {left} writes");
        if is_done {
            assert!(left > 10, "{left} writes");
            return;
        }
    }
}

/// Looking at a directory leaves no trace, and requires that no other process uses it.
#[test]
fn a_directory_is_looked_at_without_a_trace() {
    let path: PathBuf = std::env::temp_dir();
    let path = path.join(format!("peeklock-look-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    assert!(OsDisk::open_read_only(&path.join("absent")).is_err());
    for (name, bytes) in whole() {
        std::fs::write(path.join(name), bytes).unwrap();
    }
    let names = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names(&path);
    let disk = OsDisk::open_read_only(&path).unwrap();
    assert!(verify(&disk, &mut |_| {}).unwrap().report().is_sound());
    assert!(disk.open("manifest").unwrap().write_at(b"no", 0).is_err());
    drop(disk);
    assert_eq!(names(&path), before);
    let owner = OsDisk::open(&path).unwrap();
    let refused = OsDisk::open_read_only(&path).err().unwrap().to_string();
    assert!(refused.contains("this process"), "{refused}");
    drop(owner);
    std::fs::remove_dir_all(&path).unwrap();
}
