//! The machine of a queue agrees with a naive oracle for any sequence of commands and ticks.
//!
//! `oracle.rs` is the specification as a plain program, `generator.rs` draws commands, `subject.rs`
//! drives the machine, and `compare.rs` reports the first difference, shortened by
//! `differences.rs`. `delayed.rs` and `ledger.rs` judge the machine without an oracle while its
//! appends are late and its process crashes. A failure names its seed: `PEEKLOCK_MODEL_SEED` sets
//! the first seed, and `PEEKLOCK_MODEL_SEQUENCES` the number of sequences.
//!
//! Not covered: sessions, topics and forwarding; transports; entities with more than a few dozen
//! messages, and so the duties of expiry and schedules within a second; the bound of the duplicate
//! history; and refusals before a command is created.
#![expect(clippy::panic, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;

#[path = "model/compare.rs"]
mod compare;
#[path = "model/delayed.rs"]
mod delayed;
#[path = "model/differences.rs"]
mod differences;
#[path = "model/generator.rs"]
mod generator;
#[path = "model/ledger.rs"]
mod ledger;
#[path = "model/operation.rs"]
mod operation;
#[path = "model/oracle.rs"]
mod oracle;
#[path = "model/subject.rs"]
mod subject;

/// Number of steps of a sequence.
const STEPS: usize = 60;

/// The rules that random sequences must cover, so that their comparison is meaningful.
const RULES: &[&str] = &[
    "CON-02", "CON-12", "CON-15", "CON-26", "DEF-01", "DEF-02", "DEF-03", "DEF-04", "DEF-05",
    "DEF-09", "DEL-01", "DEL-02", "DEL-09", "DLQ-07", "DLQ-34", "DUP-01", "DUP-02", "DUP-05",
    "DUP-06", "DUP-12", "ENT-17", "ENT-24", "ENT-29", "EXP-05", "EXP-17", "EXP-21", "EXP-22",
    "EXP-23", "EXP-25", "EXP-26", "EXP-27", "EXP-28", "EXP-30", "EXP-31", "EXP-32", "EXP-34",
    "EXP-38", "LIF-04", "MSG-12", "PEK-01", "PEK-08", "QUO-03", "QUO-04", "QUO-05", "RCV-02",
    "RCV-05", "RCV-10", "RCV-11", "RCV-12", "RCV-13", "RCV-14", "RCV-16", "RCV-17", "RCV-18",
    "RCV-22", "RCV-26", "RTY-01", "RTY-02", "RTY-03", "RTY-04", "RTY-05", "RTY-07", "RTY-13",
    "RTY-17", "RTY-18", "RTY-19", "SCH-01", "SCH-03", "SCH-04", "SCH-05", "SCH-06", "SET-01",
    "SET-03", "SET-04", "SET-05", "SET-06", "SET-08", "SET-10", "SET-12", "SET-13", "SET-16",
    "SET-18", "SET-20", "SET-21", "SET-28", "SET-31", "SET-32", "SET-34", "SET-35", "SET-36",
    "SET-38", "SET-41", "SET-42", "SET-44", "SND-20", "SND-22", "SND-23", "SND-24", "SND-30",
    "SND-31", "SND-32", "SND-34", "TMP-07", "TXN-01", "TXN-03", "TXN-07", "TXN-13", "TXN-14",
];

/// Cases of CON-12 and CON-15 that random sequences must cover too.
const CASES_OF_ACTS: &[&str] = &[
    "CON-12 dead-letter",
    "CON-12 delete",
    "CON-12 expired",
    "CON-12 locked",
    "CON-12 reschedule",
    "CON-12 undefer",
    "CON-15 conflict",
    "CON-15 leaving",
    "CON-15 repeated",
    "CON-15 sent",
    "CON-17",
    "CON-17 full",
];

/// LIF-01: every answer, delivery, count, instant and size of the machine agrees with the oracle,
/// and so do the records in the store and a machine rebuilt from them after every list of commands.
///
/// The rules that sequences must cover, each many times: CON-02, CON-12, CON-15, CON-26, DEF-01, DEF-02, DEF-03, DEF-04, DEF-05,
/// DEF-09, DEL-01, DEL-02, DEL-09, DLQ-07, DLQ-34, DUP-01, DUP-02, DUP-05, DUP-06, DUP-12, ENT-17, ENT-24,
/// ENT-29, EXP-05, EXP-17, EXP-21, EXP-22, EXP-23, EXP-25, EXP-26, EXP-27, EXP-28, EXP-30, EXP-31,
/// EXP-32, EXP-34, EXP-38, LIF-04, MSG-12, PEK-01, PEK-08, QUO-03, QUO-04, QUO-05, RCV-02, RCV-05,
/// RCV-10, RCV-11, RCV-12, RCV-13, RCV-14, RCV-16, RCV-17, RCV-18, RCV-22, RCV-26, RTY-01, RTY-02,
/// RTY-03, RTY-04, RTY-05, RTY-07, RTY-13, RTY-17, RTY-18, RTY-19, SCH-01, SCH-03, SCH-04, SCH-05,
/// SCH-06, SET-01, SET-03, SET-04, SET-05, SET-06, SET-08, SET-10, SET-12, SET-13, SET-16, SET-18,
/// SET-20, SET-21, SET-28, SET-31, SET-32, SET-34, SET-35, SET-36, SET-38, SET-41, SET-42, SET-44, SND-20, SND-22,
/// SND-23, SND-24, SND-30, SND-31, SND-32, SND-34, TMP-07, TXN-01, TXN-03, TXN-07, TXN-13, TXN-14.
#[test]
fn the_machine_agrees_with_the_oracle_on_random_sequences() {
    let (first, count) = seeds();
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + count {
        match compare::run(seed, STEPS) {
            Ok(oracle) => {
                for (rule, times) in oracle.reached {
                    *reached.entry(rule).or_default() += times;
                }
            }
            Err(difference) => panic!("{difference}"),
        }
    }
    if count >= 1_000 {
        let times = |rule: &&&str| reached.get(**rule).copied().unwrap_or(0);
        let rare: Vec<_> = RULES.iter().chain(CASES_OF_ACTS).filter(|it| times(it) < 20).collect();
        assert!(rare.is_empty(), "met less than 20 times: {rare:?}");
    }
}

/// LIF-02, LIF-03, LIF-04, FND-02, MSG-12, MSG-13: over a store whose appends are late or lost with
/// the process, each append leaves every message in one state; the counts equal the accepted
/// messages less the removed ones; numbers have no gaps; no message is shown before its last change
/// is durable or delivered while it is locked; and a restart finds exactly the appended state.
#[test]
fn late_appends_and_crashes_break_no_invariant() {
    let (first, count) = seeds();
    for seed in first..first + count {
        if let Err(difference) = delayed::run(seed, STEPS) {
            panic!("{difference}");
        }
    }
}

/// The first seed and the number of seeds.
fn seeds() -> (u64, u64) {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    (number("PEEKLOCK_MODEL_SEED", 1), number("PEEKLOCK_MODEL_SEQUENCES", 4_000))
}
