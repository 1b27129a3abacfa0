//! The files of the trail: order, bounds, faults of the disk, crashes, and verification.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use peeklock_audit::{
    AuditConfig, AuditTrail, MemoryTrail, NotedEntry, OpenError, verify, verify_lines,
};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{
    AuditEntry, AuditError, AuditPage, AuditQuery, AuditResult, AuditStage, AuditedAction,
    AuditedChange, AuditedClient, Auditor, Ceiling,
};
use peeklock_core::ids::TrackingId;
use peeklock_core::store::journal::disk::{Disk as _, OsDisk};
use peeklock_core::store::{Journal, JournalConfig};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Call, Fault, Lost, Names, Random, SimulatedDisk};

const BEGIN: &str = "2026-05-01T12:00:00Z";

fn at(seconds: i64) -> Timestamp {
    Timestamp::parse(BEGIN).unwrap().plus(TimeSpan::from_seconds(seconds))
}

fn entry(number: i64) -> AuditEntry {
    AuditEntry {
        at: at(number),
        tracking_id: TrackingId(number.cast_unsigned().into()),
        action: AuditedAction::CloseClient,
        resource: format!("queue-{}", number % 3).into(),
        client: AuditedClient {
            policy: Some(format!("policy-{}", number % 2).into()),
            address: Some(SocketAddr::from(([192, 0, 2, 1], 5_671))),
            is_by_proxy: true,
            role: Some(Ceiling::Admin),
        },
        stage: AuditStage::Begin { request: format!("client {number}").into() },
    }
}

fn ended(number: i64, result: AuditResult) -> AuditEntry {
    let change = AuditedChange {
        property: "lock_duration".into(),
        before: Some("PT1M".into()),
        after: Some("PT2M".into()),
    };
    let stage =
        AuditStage::End { result, count: Some(7), changes: vec![change], error_tracking_id: None };
    AuditEntry { stage, ..entry(number) }
}

fn trail(disk: &SimulatedDisk, config: AuditConfig) -> AuditTrail {
    AuditTrail::on(Arc::new(disk.clone()), config).unwrap()
}

async fn record(trail: &dyn Auditor, numbers: impl IntoIterator<Item = i64>) {
    for number in numbers {
        trail.record(entry(number)).await.unwrap();
    }
}

fn query() -> AuditQuery {
    AuditQuery { count_max: 500, ..AuditQuery::default() }
}

fn numbers(page: &AuditPage) -> Vec<u64> {
    let number = |line: &str| {
        let text = line.strip_prefix("{\"number\":").unwrap();
        text.split(',').next().unwrap().parse().unwrap()
    };
    page.lines.iter().map(|line| number(line)).collect()
}

async fn all(trail: &dyn Auditor) -> Vec<Box<str>> {
    let (mut lines, mut query) = (Vec::new(), AuditQuery { is_ascending: true, ..query() });
    loop {
        let page = trail.read(query.clone()).await.unwrap();
        lines.extend(page.lines);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return lines,
        }
    }
}

/// CON-23: entries are listed newest or oldest first, by pages, with each condition.
#[tokio::test]
async fn entries_are_listed_by_page_and_condition() {
    for in_memory in [true, false] {
        let disk = SimulatedDisk::new(1);
        let trail: Box<dyn Auditor> = match in_memory {
            true => Box::new(MemoryTrail::new(MemoryTrail::BYTES_MAX, false)),
            false => Box::new(trail(&disk, AuditConfig::default().with_sizes(1 << 20, 2_000))),
        };
        record(&*trail, 1..=30).await;
        trail.record(ended(31, AuditResult::Failed(Condition::QuotaExceeded))).await.unwrap();
        let page = trail.read(AuditQuery { count_max: 4, ..query() }).await.unwrap();
        let page = trail.read(AuditQuery { after: page.next, ..query() }).await.unwrap();
        assert_eq!(numbers(&page).first(), Some(&27));
        let lines = all(&*trail).await;
        assert!(lines.len() >= 31, "{}", lines.len());
        // A page may be short before the end.
        let select = async |mut query: AuditQuery| {
            let mut found = Vec::new();
            loop {
                let page = trail.read(query.clone()).await.unwrap();
                found.extend(numbers(&page));
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => return found,
                }
            }
        };
        let until = AuditQuery { until: Some(at(3)), ..query() };
        assert_eq!(select(until).await, [2, 1]);
        let since = AuditQuery { since: Some(at(30)), ..query() };
        assert_eq!(select(since).await, [31, 30]);
        let policy = AuditQuery { policy: Some("policy-1".into()), ..query() };
        assert_eq!(select(policy).await.len(), 16);
        let resource = AuditQuery { resource: Some("QUEUE-0".into()), ..query() };
        assert_eq!(select(resource).await.len(), 10);
        let result = AuditQuery { result: Some("QuotaExceeded".into()), ..query() };
        assert_eq!(select(result).await, [31]);
        let action = AuditQuery { action: Some("signIn".into()), ..query() };
        assert_eq!(select(action).await, [0; 0]);
    }
}

/// CON-23: an entry has instant, policy and address of the client, role, request, counts, result,
/// changed values and tracking id.
#[tokio::test]
async fn a_line_has_all_facts_of_its_entry() {
    let trail = MemoryTrail::new(MemoryTrail::BYTES_MAX, false);
    record(&trail, [1]).await;
    trail.record(ended(2, AuditResult::Done)).await.unwrap();
    let lines = all(&trail).await;
    let zeros = "0".repeat(64);
    assert_eq!(
        &*lines[0],
        format!(
            "{{\"number\":1,\"previous\":\"{zeros}\",\"atUtc\":\"2026-05-01T12:00:01Z\",\
             \"trackingId\":\"00000000-0000-0000-0000-000000000001\",\"stage\":\"begin\",\
             \"operation\":\"closeClient\",\"resource\":\"queue-1\",\"policy\":\"policy-1\",\
             \"address\":\"192.0.2.1:5671\",\"byProxy\":true,\"role\":\"admin\",\
             \"request\":\"client 1\"}}"
        )
    );
    let end = "\"role\":\"admin\",\"result\":\"done\",\"count\":7,\"changes\":[{\"property\":\
        \"lock_duration\",\"before\":\"PT1M\",\"after\":\"PT2M\"}]}";
    assert!(lines[1].ends_with(end), "{}", lines[1]);
    assert!(verify_lines(lines.join("\n").as_bytes(), None).torn_bytes == 0);
}

/// CON-23: a page has at most 500 entries.
#[tokio::test]
async fn a_page_has_at_most_500_entries() {
    let disk = SimulatedDisk::new(2);
    let trail = trail(&disk, AuditConfig::default());
    record(&trail, 1..=501).await;
    for (asked, count, has_next) in [(500, 500, true), (501, 500, true), (1, 1, true)] {
        let page = trail.read(AuditQuery { count_max: asked, ..query() }).await.unwrap();
        assert_eq!((page.lines.len(), page.next.is_some()), (count, has_next), "{asked}");
    }
}

/// CON-23: an entry is durable when `record` ends, and entries that wait share a sync.
#[tokio::test]
async fn waiting_entries_share_one_sync() {
    let disk = SimulatedDisk::new(3);
    let trail = trail(&disk, AuditConfig::default());
    let waiting: Vec<_> = (1..=600).map(|number| trail.record(entry(number))).collect();
    for written in waiting {
        written.await.unwrap();
    }
    assert!(disk.call_count_of(Call::Sync) < 300, "{}", disk.call_count_of(Call::Sync));
    let durable: Vec<u8> = disk.durable_files().into_values().flatten().collect();
    assert_eq!(durable.iter().filter(|byte| **byte == b'\n').count(), 600);
}

/// CON-23: after a kill or a power cut at any call, every acknowledged entry is there, the torn end
/// is removed, and the chain is sound and goes on.
#[tokio::test]
async fn acknowledged_entries_survive_a_crash_at_any_call() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new(seed);
        let config = || AuditConfig::default().with_sizes(20_000, 1_500);
        let mut acknowledged = 0;
        {
            let trail = trail(&disk, config());
            disk.cut_power_at(1 + random.below(60));
            for number in 1..=20 {
                let group: Vec<_> = (0..3).map(|_| trail.record(entry(number))).collect();
                for written in group {
                    if written.await.is_ok() {
                        acknowledged += 1;
                    }
                }
            }
        }
        let found = match seed % 2 {
            0 => disk.crash_with(&mut random, Names::AnyOrder),
            _ => disk.kill(Lost::StillCached),
        };
        let trail = trail(&found, config());
        trail.record(entry(99)).await.unwrap();
        let lines = all(&trail).await;
        let written = lines.iter().filter(|line| line.contains("closeClient")).count();
        assert!(written > acknowledged, "seed {seed}: {written} of {acknowledged} and one more");
        drop(trail);
        let report = verify(&found, None).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.faults);
        assert_eq!((report.first, report.torn_bytes), (Some(1), 0), "seed {seed}");
    }
}

/// CON-23: a torn last line, as a kill leaves it, is removed and recorded.
#[tokio::test]
async fn a_torn_last_line_is_mended() {
    let disk = SimulatedDisk::new(4);
    record(&trail(&disk, AuditConfig::default()), 1..=3).await;
    let mut files = disk.files();
    let content = files.values_mut().next().unwrap();
    content.truncate(content.len() - 10);
    let disk = SimulatedDisk::holding(&files, 4);
    assert!(verify(&disk, None).unwrap().torn_bytes > 0);
    // A second start cannot hide it.
    drop(trail(&disk, AuditConfig::default()));
    let trail = trail(&disk, AuditConfig::default());
    record(&trail, [4]).await;
    let lines = all(&trail).await;
    let operations: Vec<bool> = lines.iter().map(|line| line.contains("mendTrail")).collect();
    assert_eq!(operations, [false, false, true, false]);
    assert!(verify(&disk, None).unwrap().is_sound());
}

/// Files of a trail with bounds in bytes.
async fn files(bytes_max: u64) -> BTreeMap<String, Vec<u8>> {
    let disk = SimulatedDisk::new(5);
    record(&trail(&disk, AuditConfig::default().with_sizes(bytes_max, 2_000)), 1..=40).await;
    disk.files()
}

fn verified(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let report = verify(&SimulatedDisk::holding(files, 6), None).unwrap();
    report.faults.iter().map(ToString::to_string).collect()
}

/// CON-23: a line that was changed, removed, added or moved is found, and its place is reported.
#[tokio::test]
async fn tampering_is_found() {
    let sound = files(1 << 20).await;
    assert_eq!(verified(&sound), [""; 0]);
    let names: Vec<&String> = sound.keys().collect();
    assert!(names.len() > 3);
    for (place, name) in names.iter().enumerate() {
        let lines: Vec<&[u8]> = sound[*name].split_inclusive(|byte| *byte == b'\n').collect();
        for line in 0..lines.len() {
            let is_last = place + 1 == names.len() && line + 1 == lines.len();
            let text = String::from_utf8(lines[line].to_vec()).unwrap();
            let mut changed = lines.clone();
            let other = text.replace("192.0.2.1", "192.0.2.9").into_bytes();
            changed[line] = &other;
            let mut files = sound.clone();
            files.insert((*name).clone(), changed.concat());
            let faults = verified(&files);
            // The last line has no witness.
            assert_eq!(faults.is_empty(), is_last, "{name}, line {}", line + 1);
            if !is_last {
                let start = format!("{name}, line {}: it was changed", line + 1);
                assert!(faults[0].starts_with(&start), "{faults:?}");
            }

            let mut removed = lines.clone();
            removed.remove(line);
            files.insert((*name).clone(), removed.concat());
            assert_eq!(verified(&files).is_empty(), is_last, "{name}, without line {}", line + 1);

            let mut doubled = lines.clone();
            doubled.insert(line, lines[line]);
            files.insert((*name).clone(), doubled.concat());
            assert!(!verified(&files).is_empty(), "{name}, line {} twice", line + 1);
        }
        let mut files = sound.clone();
        files.remove(*name);
        let is_last = place + 1 == names.len();
        assert_eq!(verified(&files).is_empty(), is_last, "without {name}");
    }
    let mut files = sound.clone();
    files.get_mut(names[1]).unwrap()[5] = b'x';
    let start = format!("{}, line 1: it is not an entry", names[1]);
    assert!(verified(&files)[0].starts_with(&start), "{:?}", verified(&files));
}

/// CON-23: an export verifies as a whole, and a change in it is found.
#[tokio::test]
async fn an_export_is_verified() {
    let disk = SimulatedDisk::new(7);
    let trail = trail(&disk, AuditConfig::default().with_sizes(6_000, 2_000));
    record(&trail, 1..=40).await;
    let export: String = all(&trail).await.iter().map(|line| format!("{line}\n")).collect();
    let report = verify_lines(export.as_bytes(), None);
    assert!(report.is_sound() && report.first > Some(1), "{report:?}");
    drop(trail);
    assert_eq!(report.last_hash, verify(&disk, None).unwrap().last_hash);
    let changed = export.replacen("client 39", "client 3", 1);
    assert_eq!(verify_lines(changed.as_bytes(), None).faults.len(), 1);
}

/// CON-23: the files have at most the given bytes; the oldest whole file goes, and an entry names
/// the beginning of the trail. A missing first file is still found.
#[tokio::test]
async fn the_oldest_file_goes_when_the_trail_is_full() {
    let disk = SimulatedDisk::new(8);
    let trail = trail(&disk, AuditConfig::default().with_sizes(10_000, 2_000));
    for number in 1..=200 {
        record(&trail, [number]).await;
        let bytes: usize = disk.files().values().map(Vec::len).sum();
        assert!(bytes <= 10_000, "{bytes} after {number}");
    }
    let bytes: usize = disk.files().values().map(Vec::len).sum();
    assert!(bytes > 7_000, "{bytes}: no more goes than must");
    let lines = all(&trail).await;
    assert!(lines.iter().any(|line| line.contains("\"trimTrail\"") && line.contains("\"begins\"")));
    drop(trail);
    let files = disk.files();
    assert_eq!(verified(&files), [""; 0]);
    let mut without = files.clone();
    without.pop_first();
    assert!(verified(&without)[0].contains("are missing"), "{:?}", verified(&without));
}

const DAY: i64 = 24 * 3_600;

/// CON-23: entries go after 90 days, by whole files of a day, and not earlier.
#[tokio::test]
async fn entries_go_after_90_days() {
    let disk = SimulatedDisk::new(9);
    let trail = trail(&disk, AuditConfig::default());
    // The first file has the entries of less than a day.
    record(&trail, [0, DAY - 1, DAY]).await;
    assert_eq!(disk.files().len(), 2);
    // The second file begins at one day, so the first one ends then.
    record(&trail, [91 * DAY]).await;
    assert_eq!(disk.files().len(), 3);
    // A day later, the instant is confirmed.
    record(&trail, [92 * DAY - 1]).await;
    assert_eq!(disk.files().len(), 3);
    record(&trail, [92 * DAY]).await;
    assert_eq!(disk.files().len(), 3);
    assert!(all(&trail).await[0].contains("2026-05-02T12:00:00Z"));
}

/// CON-23: a clock that is 90 days ahead when the machine starts removes no entries, not even in
/// several writes, and each write removes at most one file by age.
#[tokio::test]
async fn a_clock_that_jumps_removes_no_entries() {
    let disk = SimulatedDisk::new(9);
    let trail = trail(&disk, AuditConfig::default());
    record(&trail, [0, DAY, 2 * DAY]).await;
    record(&trail, [200 * DAY, 200 * DAY + 1, 2 * DAY + 1, 3 * DAY]).await;
    assert_eq!(disk.files().len(), 4);
    record(&trail, [200 * DAY, 201 * DAY]).await;
    assert_eq!(disk.files().len(), 4);
    record(&trail, [201 * DAY + 1]).await;
    assert_eq!(disk.files().len(), 3);
}

/// CON-23: while the oldest file cannot be removed, the trail stays within its bound and one file,
/// and its beginning is recorded once.
#[tokio::test]
async fn a_file_that_cannot_be_removed_does_not_unbound_the_trail() {
    let disk = SimulatedDisk::new(8);
    let trail = trail(&disk, AuditConfig::default().with_sizes(10_000, 2_000));
    disk.fail_from(Call::Remove, 1, Fault::Whole);
    let mut number = 0;
    let refused = loop {
        number += 1;
        if let Err(error) = trail.record(entry(number)).await {
            break error;
        }
        let bytes: usize = disk.files().values().map(Vec::len).sum();
        assert!(bytes <= 12_000, "{bytes} after {number}");
    };
    assert!(refused.to_string().contains("cannot be removed"), "{refused}");
    let trims: Vec<String> = all(&trail).await.iter().filter_map(|line| begins(line)).collect();
    let mut once = trims.clone();
    once.dedup();
    assert_eq!(trims, once);
    disk.heal();
    record(&trail, [number]).await;
    let bytes: usize = disk.files().values().map(Vec::len).sum();
    assert!(bytes <= 10_000, "{bytes}");
    drop(trail);
    assert!(verify(&disk, None).unwrap().is_sound());
}

fn begins(line: &str) -> Option<String> {
    line.split_once("\"begins\":").map(|(_, begins)| begins.to_owned())
}

/// CON-23: without room on the disk, entries are refused and leave no bytes, and with room the
/// trail goes on.
#[tokio::test]
async fn a_full_disk_refuses_entries_until_it_has_room() {
    let disk = SimulatedDisk::new(10);
    let trail = trail(&disk, AuditConfig::default());
    record(&trail, 1..=3).await;
    let before = disk.files();
    disk.set_quota(Some(disk.allocated_bytes()));
    let mut number = 3;
    // The last allocated unit may still have room.
    let refused = loop {
        number += 1;
        if let Err(error) = trail.record(entry(number)).await {
            break error;
        }
    };
    assert!(matches!(refused, AuditError::Failed(_)), "{refused}");
    assert!(disk.files().values().next().unwrap().starts_with(before.values().next().unwrap()));
    disk.set_quota(None);
    record(&trail, [number]).await;
    drop(trail);
    let report = verify(&disk, None).unwrap();
    assert!(report.is_sound() && report.torn_bytes == 0, "{report:?}");
    assert_eq!(report.last, Some(number.cast_unsigned()));
}

/// CON-23: a failed sync stops the trail. It is never tried again, not even by later entries.
#[tokio::test]
async fn a_failed_sync_stops_the_trail() {
    for call in [Call::Sync, Call::SyncNames] {
        let disk = SimulatedDisk::new(11);
        let trail = trail(&disk, AuditConfig::default().with_sizes(1 << 20, 1_000));
        record(&trail, 1..=3).await;
        disk.fail(call, 1, Fault::Whole);
        let mut number = 3;
        loop {
            number += 1;
            if trail.record(entry(number)).await.is_err() {
                break;
            }
        }
        let calls = disk.call_count();
        let refused = trail.record(entry(number)).await.unwrap_err();
        assert!(refused.to_string().contains("start the broker again"), "{refused}");
        assert_eq!(disk.call_count(), calls);
        drop(trail);
        let found = disk.kill(Lost::ReadAnew);
        record(&self::trail(&found, AuditConfig::default()), [9]).await;
        assert!(verify(&found, None).unwrap().is_sound());
    }
}

/// CON-23: after a failed sync, lines may be in the page cache only. The next start makes them
/// durable before it accepts entries, so that a power cut leaves no gap.
#[tokio::test]
async fn a_restart_makes_lines_durable_whose_sync_has_failed() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new(seed);
        let first = trail(&disk, AuditConfig::default());
        record(&first, 1..=3).await;
        disk.fail(Call::Sync, 1, Fault::Whole);
        assert!(first.record(entry(4)).await.is_err());
        drop(first);
        let found = disk.kill(Lost::StillCached);
        let second = trail(&found, AuditConfig::default());
        record(&second, 5..=20).await;
        let cut = found.crash_with(&mut Random::new(seed), Names::AnyOrder);
        drop(second);
        let third = trail(&cut, AuditConfig::default());
        let lines = all(&third).await;
        assert!(lines.last().unwrap().contains("client 20"), "seed {seed}: {lines:?}");
        drop(third);
        let report = verify(&cut, None).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.faults);
    }
}

/// CON-23: a damaged byte before durable lines is no torn end: the trail does not open, names the
/// line, and changes nothing.
#[tokio::test]
async fn a_damaged_byte_before_durable_lines_is_not_mended() {
    let sound = files(1 << 20).await;
    let last = sound.keys().next_back().unwrap();
    let count = sound[last].iter().filter(|byte| **byte == b'\n').count();
    assert!(count > 1, "{count}");
    for (line, start) in sound[last]
        .split_inclusive(|byte| *byte == b'\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some(start)
        })
        .enumerate()
    {
        let mut files = sound.clone();
        files.get_mut(last).unwrap()[start + 30] = 0;
        let disk = SimulatedDisk::holding(&files, 12);
        let opened = AuditTrail::on(Arc::new(disk.clone()), AuditConfig::default());
        if line + 1 == count {
            // A crash may have torn the last line.
            assert!(opened.is_ok(), "{opened:?}");
            continue;
        }
        let Err(OpenError::Damaged { file, line: found }) = &opened else { panic!("{opened:?}") };
        assert_eq!((file, *found), (last, line + 1));
        assert_eq!(disk.files(), files);
    }
}

/// CON-23: a trail without entries, or without a noted one, is not sound.
#[tokio::test]
async fn a_missing_trail_and_a_missing_noted_entry_are_found() {
    for report in [verify(&SimulatedDisk::new(1), None).unwrap(), verify_lines(b"", None)] {
        assert!(report.faults[0].to_string().contains("DATA/audit"), "{report:?}");
    }
    let disk = SimulatedDisk::new(1);
    record(&trail(&disk, AuditConfig::default()), 1..=5).await;
    let last = verify(&disk, None).unwrap().last_hash.unwrap();
    let faults = |noted: String| {
        let report = verify(&disk, Some(&noted.parse().unwrap())).unwrap();
        report.faults.iter().map(|fault| fault.reason.clone()).collect::<Vec<_>>()
    };
    assert_eq!(faults(format!("5:{last}")), [""; 0]);
    assert_eq!(faults(format!("4:{last}")), ["the entry does not have the noted hash"]);
    assert_eq!(faults(format!("6:{last}")), ["the noted entry 6 is missing"]);
    for wrong in ["5", "x:00", "5:00"] {
        assert!(wrong.parse::<NotedEntry>().is_err(), "{wrong}");
    }
}

/// CON-23: a trail whose last line is not an entry does not open, and names the line.
#[tokio::test]
async fn a_trail_with_a_strange_end_does_not_open() {
    let mut files = files(1 << 20).await;
    let mut last = files.last_entry().unwrap();
    last.get_mut().extend_from_slice(b"nonsense\n");
    let disk: Arc<SimulatedDisk> = Arc::new(SimulatedDisk::holding(&files, 12));
    let opened = AuditTrail::on(disk, AuditConfig::default());
    assert!(matches!(opened, Err(OpenError::Damaged { .. })), "{opened:?}");
}

/// CON-23: in memory, the last entries stay within a bound of bytes.
#[tokio::test]
async fn a_trail_in_memory_forgets_its_oldest_entries() {
    let trail = MemoryTrail::new(2_000, false);
    record(&trail, 1..=100).await;
    let lines = all(&trail).await;
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    assert!(bytes <= 2_000 && bytes > 1_500, "{bytes}");
    assert!(lines.last().unwrap().contains("client 100"));
}

/// CON-23: the trail is in a folder of the data directory, next to an open journal, and another
/// process cannot use it meanwhile.
#[tokio::test]
async fn a_trail_is_opened_next_to_a_journal() {
    let data = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("next-to-a-journal");
    if data.exists() {
        std::fs::remove_dir_all(&data).unwrap();
    }
    let journal = Journal::open(&data, JournalConfig::default()).unwrap();
    let folder = data.join("audit");
    for number in 1..=2 {
        let trail = AuditTrail::open(&folder, AuditConfig::default()).unwrap();
        record(&trail, [number]).await;
        assert!(AuditTrail::open(&folder, AuditConfig::default()).is_err());
    }
    drop(journal);
    let report = verify(&OsDisk::open_read_only(&folder).unwrap(), None).unwrap();
    assert!(report.is_sound() && report.last == Some(2), "{report:?}");
    let names = OsDisk::open_read_only(&data).unwrap().list().unwrap();
    assert!(!names.contains(&"audit".to_owned()), "a folder is no file of the journal: {names:?}");
    Journal::open(&data, JournalConfig::default()).unwrap();
}
