use std::collections::BTreeSet;

use super::*;

/// Number of crashes, to see all possible results.
const CRASHES: u64 = 400;

fn file_with(disk: &SimulatedDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.create(name).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    Disk::sync(disk).unwrap();
    file
}

/// Acts in the same way on many disks, crashes each, and collects the results.
fn left_by<T: Ord>(
    act: impl Fn(&SimulatedDisk),
    look: impl Fn(&BTreeMap<String, Vec<u8>>) -> T,
) -> BTreeSet<T> {
    left_by_with(Names::Prefix, act, look)
}

fn left_by_with<T: Ord>(
    names: Names,
    act: impl Fn(&SimulatedDisk),
    look: impl Fn(&BTreeMap<String, Vec<u8>>) -> T,
) -> BTreeSet<T> {
    (0..CRASHES)
        .map(|seed| {
            let disk = SimulatedDisk::new(seed);
            act(&disk);
            look(&disk.crash_with(&mut Random::new(seed), names).files())
        })
        .collect()
}

fn names_of(files: &BTreeMap<String, Vec<u8>>) -> String {
    files.keys().cloned().collect::<Vec<_>>().join(" ")
}

/// The first byte of each sector.
fn sectors_of(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    files.get("a").map(|bytes| bytes.iter().step_by(SECTOR_BYTES).copied().collect()).unwrap()
}

#[test]
fn written_bytes_are_read() {
    let disk = SimulatedDisk::new(1);
    let file = disk.create("a").unwrap();
    file.write_at(b"hello", 3).unwrap();
    let mut buffer = [9; 10];
    assert_eq!(file.read_at(&mut buffer, 1).unwrap(), 7);
    assert_eq!(&buffer, b"\0\0hello\x09\x09\x09");
    assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 800).unwrap(), 0);
    assert_eq!(file.length().unwrap(), 8);
    file.allocate(20).unwrap();
    file.allocate(5).unwrap();
    assert_eq!(file.length().unwrap(), 20);
    file.truncate(4).unwrap();
    file.allocate(8).unwrap();
    assert_eq!(disk.files()["a"], b"\0\0\0h\0\0\0\0");
}

#[test]
fn names_are_kept_as_a_directory_keeps_them() {
    let disk = SimulatedDisk::new(1);
    assert!(disk.open("a").is_err());
    file_with(&disk, "a", b"one");
    assert!(disk.create("a").is_err(), "the name is taken");
    let replaced = file_with(&disk, "b", b"two");
    disk.rename("a", "b").unwrap();
    assert!(disk.rename("a", "c").is_err());
    assert!(disk.remove("a").is_err());
    assert_eq!(disk.list().unwrap(), ["b"]);
    let mut buffer = [0; 3];
    replaced.read_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"two", "who has it open reads on");
    disk.open("b").unwrap().read_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"one");
}

#[test]
fn synced_bytes_survive_every_crash() {
    let left = left_by(
        |disk| {
            let file = file_with(disk, "a", &[1; 3 * SECTOR_BYTES]);
            file.write_at(&[2; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
            file.sync().unwrap();
        },
        sectors_of,
    );
    assert_eq!(left, BTreeSet::from([vec![1, 2, 1]]));
}

#[test]
fn any_mix_of_unsynced_sectors_outlives_a_crash() {
    let left = left_by(
        |disk| {
            let file = file_with(disk, "a", &[1; 3 * SECTOR_BYTES]);
            file.write_at(&[2; 3 * SECTOR_BYTES], 0).unwrap();
            file.write_at(&[3; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
        },
        sectors_of,
    );
    assert_eq!(left.len(), 2 * 3 * 2, "old, between and new of every sector: {left:?}");
}

#[test]
fn part_of_a_sector_is_never_torn() {
    let left = left_by(
        |disk| {
            let file = file_with(disk, "a", b"old old old");
            file.write_at(b"new", 4).unwrap();
        },
        |files| files["a"].clone(),
    );
    assert_eq!(left, BTreeSet::from([b"old old old".to_vec(), b"old new old".to_vec()]));
}

#[test]
fn length_is_any_since_the_last_sync_and_bytes_may_be_missing() {
    let left = left_by(
        |disk| {
            let file = file_with(disk, "a", &[1; SECTOR_BYTES]);
            file.write_at(&[2; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
            file.allocate(3 * SECTOR_BYTES as u64).unwrap();
        },
        sectors_of,
    );
    let expected = [vec![1], vec![1, 0], vec![1, 2], vec![1, 0, 0], vec![1, 2, 0]];
    assert_eq!(left, BTreeSet::from(expected));
}

#[test]
fn truncation_removes_earlier_writes() {
    let left = left_by(
        |disk| {
            let file = file_with(disk, "a", &[1; 2 * SECTOR_BYTES]);
            file.write_at(&[2; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
            file.truncate(SECTOR_BYTES as u64).unwrap();
            file.write_at(&[3; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
        },
        sectors_of,
    );
    let expected = [vec![1, 1], vec![1, 2], vec![1], vec![1, 0], vec![1, 3]];
    assert_eq!(left, BTreeSet::from(expected));
}

#[test]
fn a_name_that_was_not_synced_may_be_gone_with_its_bytes() {
    let left = left_by(
        |disk| {
            let file = disk.create("a").unwrap();
            file.write_at(b"bytes", 0).unwrap();
            file.sync().unwrap();
        },
        |files| files.get("a").cloned(),
    );
    assert_eq!(left, BTreeSet::from([None, Some(b"bytes".to_vec())]));
}

#[test]
fn a_prefix_of_the_changes_to_names_outlives_a_crash() {
    let act = |disk: &SimulatedDisk| {
        file_with(disk, "a", b"one");
        disk.create("b").unwrap();
        disk.rename("a", "c").unwrap();
        disk.remove("b").unwrap();
    };
    let left = left_by(act, names_of);
    let prefixes = ["a", "a b", "b c", "c"].map(str::to_owned);
    assert_eq!(left, BTreeSet::from(prefixes.clone()));
    let left = left_by_with(Names::AnyOrder, act, names_of);
    assert!(left.is_superset(&BTreeSet::from(prefixes)));
    assert_eq!(left.len(), 4, "no name is removed before it was there: {left:?}");
    let left = left_by_with(
        Names::AnyOrder,
        |disk| {
            disk.create("a").unwrap();
            disk.create("b").unwrap();
        },
        names_of,
    );
    assert_eq!(left, BTreeSet::from(["", "a", "b", "a b"].map(str::to_owned)));
}

#[test]
fn a_removed_name_that_comes_back_has_its_bytes() {
    let left = left_by(
        |disk| {
            drop(file_with(disk, "a", b"bytes"));
            disk.remove("a").unwrap();
        },
        |files| files.get("a").cloned(),
    );
    assert_eq!(left, BTreeSet::from([None, Some(b"bytes".to_vec())]));
}

#[test]
fn failed_sync_loses_bytes_that_remain_readable() {
    let disk = SimulatedDisk::new(1);
    let file = file_with(&disk, "a", &[1; SECTOR_BYTES]);
    file.write_at(&[2; SECTOR_BYTES], 0).unwrap();
    disk.fail(Call::Sync, 1, Fault::Whole);
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(sectors_of(&disk.files()), [2], "the page cache has it");
    assert_eq!(sectors_of(&disk.durable_files()), [1], "the medium does not");
    let killed = disk.kill(Lost::StillCached);
    assert_eq!(sectors_of(&killed.files()), [2]);
    assert_eq!(sectors_of(&killed.kill(Lost::ReadAnew).files()), [1]);
}

#[test]
fn a_failed_sync_of_names_makes_none_of_them_certain_later() {
    let left = left_by(
        |disk| {
            disk.fail(Call::SyncNames, 1, Fault::Whole);
            disk.create("a").unwrap();
            Disk::sync(disk).unwrap_err();
            Disk::sync(disk).unwrap();
        },
        names_of,
    );
    assert_eq!(left, BTreeSet::from([String::new(), "a".to_owned()]));
}

#[test]
fn a_killed_process_loses_nothing_and_syncs_nothing() {
    let disk = SimulatedDisk::new(1);
    let file = file_with(&disk, "a", &[1; SECTOR_BYTES]);
    file.write_at(&[2; SECTOR_BYTES], 0).unwrap();
    let next = disk.kill(Lost::ReadAnew);
    assert!(file.sync().is_err() && disk.list().is_err(), "the process is gone");
    assert_eq!(sectors_of(&next.files()), [2]);
    assert_eq!(sectors_of(&next.durable_files()), [1]);
    next.open("a").unwrap().sync().unwrap();
    assert_eq!(sectors_of(&next.durable_files()), [2], "the next process can sync it");
}

#[test]
fn a_fork_goes_its_own_way() {
    let disk = SimulatedDisk::new(1);
    let file = file_with(&disk, "a", &[1; SECTOR_BYTES]);
    file.write_at(&[2; SECTOR_BYTES], 0).unwrap();
    let fork = disk.fork();
    disk.remove("a").unwrap();
    assert_eq!(sectors_of(&fork.files()), [2]);
    assert_eq!(sectors_of(&fork.durable_files()), [1]);
    fork.create("b").unwrap();
    assert!(disk.files().is_empty());
}

#[test]
fn power_is_cut_in_the_middle_of_the_planned_call() {
    let left: BTreeSet<Vec<u8>> = (0..CRASHES)
        .map(|seed| {
            let disk = SimulatedDisk::new(seed);
            let file = file_with(&disk, "a", &[1; 2 * SECTOR_BYTES]);
            disk.cut_power_at(2);
            assert_eq!(file.length().unwrap(), 2 * SECTOR_BYTES as u64);
            assert!(!disk.is_cut());
            assert!(file.write_at(&[2; 2 * SECTOR_BYTES], 0).is_err());
            assert!(disk.is_cut());
            assert!(file.length().is_err(), "nothing works any more");
            sectors_of(&disk.crash(&mut Random::new(seed)).files())
        })
        .collect();
    assert_eq!(left.len(), 4);
}

#[test]
fn planned_failures_hit_the_call_they_name() {
    let disk = SimulatedDisk::new(1);
    let file = file_with(&disk, "a", b"");
    disk.fail(Call::Write, 2, Fault::Whole);
    file.write_at(b"x", 0).unwrap();
    file.write_at(b"yz", 0).unwrap_err();
    file.write_at(b"z", 1).unwrap();
    assert_eq!(disk.files()["a"], b"xz");
    disk.fail_from(Call::Remove, 1, Fault::Done);
    disk.remove("a").unwrap_err();
    assert!(disk.files().is_empty(), "it was done all the same");
    file_with(&disk, "b", b"");
    disk.heal();
    disk.remove("b").unwrap();
    assert_eq!(disk.call_count_of(Call::Write), 5);
}

#[test]
fn a_write_may_fail_in_its_middle() {
    let lengths: BTreeSet<u64> = (0..CRASHES)
        .map(|seed| {
            let disk = SimulatedDisk::new(seed);
            let file = file_with(&disk, "a", b"");
            disk.fail(Call::Write, 1, Fault::Partly);
            file.write_at(b"four", 0).unwrap_err();
            file.length().unwrap()
        })
        .collect();
    assert_eq!(lengths, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn full_disk_accepts_fitting_writes_and_frees_removed_files() {
    let disk = SimulatedDisk::new(1);
    disk.set_quota(Some(4 * SECTOR_BYTES as u64));
    let file = disk.create("a").unwrap();
    file.allocate(3 * SECTOR_BYTES as u64).unwrap();
    assert_eq!(disk.free_bytes().unwrap(), SECTOR_BYTES as u64);
    file.write_at(&[1; 3 * SECTOR_BYTES], 0).unwrap();
    let error = file.write_at(&[1; 2 * SECTOR_BYTES], 3 * SECTOR_BYTES as u64).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.length().unwrap(), 4 * SECTOR_BYTES as u64, "what fits is written");
    assert!(disk.create("b").unwrap().allocate(1).is_err());
    disk.remove("a").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 0, "an open file keeps its space");
    drop(file);
    assert_eq!(disk.free_bytes().unwrap(), 4 * SECTOR_BYTES as u64);
}

#[test]
fn a_flipped_bit_is_on_the_medium_too() {
    let disk = SimulatedDisk::new(1);
    file_with(&disk, "a", &[0; 10]);
    assert!(disk.flip_bit("a", 9, 3));
    assert!(!disk.flip_bit("a", 10, 0) && !disk.flip_bit("b", 0, 0));
    assert_eq!(disk.files()["a"][9], 8);
    assert_eq!(disk.durable_files()["a"][9], 8);
}

#[test]
fn the_same_seed_does_the_same() {
    let run = |seed| {
        let disk = SimulatedDisk::new(seed);
        let file = file_with(&disk, "a", &[1; 9 * SECTOR_BYTES]);
        file.write_at(&[2; 9 * SECTOR_BYTES], 0).unwrap();
        disk.crash(&mut Random::new(seed)).files()
    };
    assert_eq!(run(7), run(7));
    assert!((0..20).any(|seed| run(seed) != run(seed + 1)));
}
