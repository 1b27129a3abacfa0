//! The corpus of `cargo fuzz`, with truncations and random mistakes of each file. The fuzz targets
//! run without end; these tests have a fixed number of mistakes.

use std::path::Path;
use std::process::Command;

use peeklock_amqp_testing::exercise;
use peeklock_store_testing::Random;

/// Number of mistaken forms of each file.
const MISTAKES: u64 = 400;

/// Memory limit of a process that decodes frames and messages, with its program and the stacks of
/// its threads, in KiB.
const MEMORY_KIB: u32 = 64 << 10;

/// Passes each file of a part of the corpus to `take`, and also all its truncations and its
/// mistaken forms. Returns the sum of the results for the whole files.
fn each(part: &str, take: impl Fn(&[u8]) -> usize) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(part);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut count = 0;
    for (seed, path) in (1..).zip(&files) {
        let whole = std::fs::read(path).unwrap();
        let _named = Named(path);
        count += take(&whole);
        for length in 0..whole.len() {
            take(&whole[..length]);
        }
        let mut random = Random::new(seed);
        for _ in 0..MISTAKES {
            take(&mistaken(&mut random, whole.clone()));
        }
    }
    count
}

fn mistaken(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.between(1, 4) {
        let at = random.index(bytes.len() + 1);
        let byte = u8::try_from(random.below(256)).unwrap();
        match random.below(4) {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            // Mistakes in codes, lengths and counts reach furthest.
            2 if at < bytes.len() => bytes[at] = [0, 0x40, 0x45, 0x7f, 0xff][random.index(5)],
            _ if at < bytes.len() => bytes[at] = byte,
            _ => {}
        }
    }
    bytes
}

/// Prints the file of a failure.
struct Named<'a>(&'a Path);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was {} or what came of it", self.0.display());
        }
    }
}

fn in_pieces(run: fn(&[u8], usize) -> exercise::Run, bytes: &[u8]) -> usize {
    let Some((piece_bytes, script)) = bytes.split_first() else { return 0 };
    run(script, usize::from(*piece_bytes) * 4 + 1).event_count
}

/// Every frame is refused or read, and a frame that was read is the same after it was written.
#[test]
fn frames_of_the_corpus_are_read_or_refused() {
    assert!(each("frames", exercise::frames) > 30);
}

/// AMQP-45: every message is refused, or can be sent on with an unchanged body.
#[test]
fn messages_of_the_corpus_are_passed_on_or_refused() {
    assert!(each("sections", exercise::sections) > 10);
}

/// AMQP-82, AMQP-88: every request to a management node is decoded or refused.
#[test]
fn requests_of_the_corpus_are_understood_or_refused() {
    assert!(each("requests", exercise::requests) > 20);
}

#[test]
fn connections_of_the_corpus_end_in_order() {
    assert!(each("connection", |bytes| in_pieces(exercise::connection, bytes)) > 80);
}

#[test]
fn logins_of_the_corpus_end_in_order() {
    assert!(each("login", |bytes| in_pieces(exercise::login, bytes)) > 60);
}

/// Frames and messages are decoded in a process with little memory: no memory is reserved for
/// announced sizes. Connections and logins check their memory themselves.
#[test]
fn decoding_takes_little_memory() {
    let ended = Command::new("sh")
        .args(["-c", "ulimit -v \"$1\" && exec \"$0\" --test-threads=1 frames_of_the_corpus messages_of_the_corpus"])
        .arg(std::env::current_exe().unwrap())
        .arg(MEMORY_KIB.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("2 passed"), "{said}{errors}");
}
