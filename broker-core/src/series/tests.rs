//! Bounds of the memory of series, and their files.

use sha2::{Digest as _, Sha256};

use super::disk::{FILE_COUNT, FileToWrite, read};
use super::*;

/// Returns a track with rows of each resolution and messages in the last minute.
fn track(is_fine: bool, count: u64) -> Track {
    let mut track = Track::new(0, FlowTotals::default(), true);
    track.set_fine(is_fine);
    let mut totals = FlowTotals::default();
    for second in 1..=1_800 {
        totals.counts[0] += count;
        track.sample(second, Some(&totals), [totals.counts[0], 0, 0, 0, 0, 0, 1]);
    }
    track.age();
    track
}

fn known(track: &Track, place: usize) -> u64 {
    let mut count = 0;
    track.read(place, 0, u64::MAX, |_, _| count += 1);
    count
}

/// CON-32: the least active entity loses its finest rows first, and only as far as needed.
#[test]
fn least_active_entity_loses_its_finest_rows_first() {
    let (mut busy, mut calm) = (track(true, 9), track(true, 1));
    let all = busy.bytes() + calm.bytes() + 100;
    let counts = |track: &Track| [0, 1, 2].map(|place| known(track, place));
    let full = counts(&busy);
    assert_eq!(full, [1_800, 30, 2]);
    let (busy_id, calm_id) = (EntityId(1), EntityId(2));
    // A copy has less spare capacity.
    let fine_bytes = track(true, 1).drop_rows(0);
    let mut room = |bytes_max: u64| {
        let mut tracks = [(busy_id, &mut busy), (calm_id, &mut calm)];
        let (bytes, dropped) = make_room(&mut tracks, 100, bytes_max);
        (bytes, dropped, [counts(tracks[0].1), counts(tracks[1].1)])
    };
    assert_eq!(room(all), (all, Vec::new(), [full, full]));
    assert_eq!(room(all - 1), (all - fine_bytes, Vec::new(), [full, [0, 30, 2]]));
    let (_, dropped, left) = room(all - fine_bytes - 1);
    assert_eq!((dropped, left), (Vec::new(), [[0, 30, 2], [0, 30, 2]]));
    let empty = 2 * size_of::<Track>() as u64 + 100;
    assert_eq!(room(empty), (empty, Vec::new(), [[0; 3]; 2]));
    assert_eq!(room(empty - 1).1, [calm_id]);
    assert_eq!(room(0).1, [calm_id, busy_id]);
}

/// CON-32: an entity that is not among the busiest loses minutes over 6 h first, and none before.
#[test]
fn old_minutes_stay_while_there_is_room() {
    let (mut busy, mut calm) = (track(true, 9), track(false, 1));
    let mut totals = calm.latest().clone();
    for second in 1_801..=86_400 {
        totals.counts[0] += second % 7;
        calm.sample(second, Some(&totals), [second % 11; 7]);
    }
    let all = busy.bytes() + calm.bytes();
    let mut room = |bytes_max: u64| {
        let mut tracks = [(EntityId(1), &mut busy), (EntityId(2), &mut calm)];
        make_room(&mut tracks, 0, bytes_max);
        [known(tracks[0].1, 0), known(tracks[1].1, 1)]
    };
    assert_eq!(room(all), [1_800, 1_440]);
    assert_eq!(room(all - 1), [1_800, 360]);
    assert!(calm.keeps(1, 6 * 3_600) && !calm.keeps(1, 7 * 3_600));
}

/// CON-32: an entity keeps its seconds down to place 120, and gets them at place 100.
#[test]
fn small_changes_of_rank_keep_seconds() {
    let mut owned = vec![track(false, 1); 130];
    let mut tracks: Vec<_> = (0..).map(EntityId).zip(&mut owned).collect();
    assert_eq!(choose_fine(&mut tracks), 100);
    tracks.rotate_right(20);
    assert_eq!(choose_fine(&mut tracks), 120);
    tracks.rotate_right(1);
    assert_eq!(choose_fine(&mut tracks), 120);
    assert!(tracks[119].1.is_fine && !tracks[120].1.is_fine);
}

/// CON-32: a late sample closes no minute, unless it is the first second of the next.
#[test]
fn late_sample_closes_no_minute() {
    let mut track = Track::new(0, FlowTotals::default(), true);
    let mut totals = FlowTotals::default();
    for second in (1..=58).chain(65..=180).chain([200, 240, 241, 299, 301]) {
        totals.counts[0] += 1;
        track.sample(second, Some(&totals), GaugeValues::default());
    }
    let mut rows = Vec::new();
    track.read(1, 0, 9, |slot, row| rows.push((slot, row.counts[0])));
    assert_eq!(rows, [(2, 60), (3, 2), (4, 3)]);
}

/// CON-32: rows of a clock that was ahead are dropped at the next start, and new ones follow.
#[test]
fn rows_of_the_future_are_dropped() {
    let mut stored = Vec::new();
    track(false, 1).write(&mut stored);
    let mut namespace = Track::new(600, FlowTotals::default(), false);
    namespace.restore(&stored);
    let idle = Idle::new(600, false, &Row::default(), &stored);
    let entity = Track::of_idle(&idle, 600, FlowTotals::default(), false);
    for mut track in [namespace, entity] {
        assert_eq!([known(&track, 1), known(&track, 2)], [10, 0]);
        let mut totals = FlowTotals::default();
        for second in 601..=720 {
            totals.counts[0] += 2;
            track.sample(second, Some(&totals), GaugeValues::default());
        }
        let mut rows = Vec::new();
        track.read(1, 9, 99, |slot, row| rows.push((slot, row.counts[0])));
        assert_eq!(rows, [(9, 60), (10, 120), (11, 120)]);
    }
}

/// CON-32: an idle entity takes under 100 bytes, also with messages.
#[test]
fn idle_entity_takes_under_100_bytes() {
    let mut values = Row { gauges: [3, 0, 1, 0, 2, 70_000, 1_700_000_000_000], ..Row::default() };
    values.counts[0] = 6;
    let idle = Idle::new(1_700_000_000, false, &values, &[]);
    assert_eq!(idle.values(), values);
    assert!(idle.bytes() <= 24, "{}", idle.bytes());
    assert!(IDLE_BYTES + idle.bytes() < 100, "{}", idle.bytes());
}

/// CON-32: an entity is unchanged until it has messages, and then continues with its rows.
#[test]
fn idle_entity_keeps_its_rows_when_it_becomes_busy() {
    let values = Row { gauges: [3, 0, 0, 0, 0, 9, 0], ..Row::default() };
    let mut stored = Vec::new();
    track(false, 1).write(&mut stored);
    let idle = Idle::new(3_600, false, &values, &stored);
    let mut totals = FlowTotals::default();
    let mut track = Track::of_idle(&idle, 7_199, totals.clone(), true);
    totals.counts[0] = 5;
    track.sample(7_200, Some(&totals), [8, 0, 0, 0, 0, 9, 0]);
    let mut rows = Vec::new();
    track.read(1, 0, 1_000, |slot, row| rows.push((slot, row.counts[0], row.gauges[0])));
    assert_eq!(rows.len(), 30 + 60);
    assert_eq!((rows[29], rows[30]), ((29, 60, 1_800), (60, 0, 3)));
    assert_eq!((rows[88], rows[89]), ((118, 0, 3), (119, 5, 8)));
    assert_eq!(known(&track, 0), 3_600);
    // The same from its stored form.
    let mut written = Vec::new();
    idle.write(7_200, &mut written);
    let again = Idle::new(9_000, false, &values, &written);
    let mut slots = Vec::new();
    again.read(Resolution::Minute, (0, 152), |slot, _| slots.push(slot));
    assert_eq!(slots, (0..30).chain(60..120).chain(150..152).collect::<Vec<_>>());
}

/// CON-32: files are read as they were written; a damaged one is put aside, the others stay.
#[test]
fn damaged_file_is_put_aside() {
    let folder = std::env::temp_dir().join(format!("peeklock-rows-{}", std::process::id()));
    for number in 0..FILE_COUNT {
        let mut file = FileToWrite::new(&folder, number);
        file.add(number, &[7; 5]);
        file.add(u64::MAX - number, &[]);
        file.carry_out(&Mutex::default());
    }
    assert_eq!(read(&folder).len(), 32);
    for (number, damage) in [(3, 8), (4, 20), (5, 60)] {
        let path = folder.join(format!("{number:02}.series"));
        let mut content = std::fs::read(&path).unwrap();
        match content.get_mut(damage) {
            Some(byte) => *byte ^= 1,
            None => content.truncate(content.len() - 1),
        }
        std::fs::write(&path, content).unwrap();
    }
    for _ in 0..2 {
        let rows = read(&folder);
        assert_eq!(
            (rows.len(), rows.get(&3), rows.get(&6).map(|row| row.len())),
            (26, None, Some(5))
        );
        assert!(folder.join("03.series.damaged").exists());
    }
    // Rows with other counts have other bits.
    let path = folder.join("06.series");
    let mut content = std::fs::read(&path).unwrap();
    content.truncate(content.len() - 32);
    content[8] += 1;
    let digest = Sha256::digest(&content);
    content.extend_from_slice(&digest);
    std::fs::write(&path, content).unwrap();
    assert_eq!(read(&folder).get(&6), None);
    assert!(folder.join("06.series.damaged").exists());
    // A file that comes after the final ones is not written.
    FileToWrite::new(&folder, 6).carry_out(&Mutex::new(true));
    assert!(!path.exists());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(read(&folder).is_empty());
}

/// CON-32: each file is written within 5 min, so that a kill loses no more.
#[test]
fn each_file_is_written_within_five_minutes() {
    let (mut state, mut written) = (State::default(), std::collections::BTreeMap::new());
    for second in 1_000..2_000 {
        state.second = second;
        let (number, _) = state.next_file;
        if state.due_file(Path::new("series")).is_some() {
            let before = written.insert(number, second).unwrap_or(1_000);
            assert!(second - before <= 300, "file {number} at {second} after {before}");
        }
    }
    assert_eq!(written.len() as u64, FILE_COUNT);
}
