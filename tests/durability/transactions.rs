//! Transactions of a program that is killed: each is carried out completely or not at all (TXN-15).
//!
//! The program embeds the broker. It moves tokens: a transaction completes messages and sends each
//! again, one generation later, so that each token exists exactly once. The program prints each
//! outcome on a line of its output, which survives the kill. Some transactions are rolled back, and
//! some replace dead letters (TXN-14). Some schedule a message that never becomes due, the witness,
//! which gets its number before the commit (SCH-13).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peeklock::description::QueueUpdate;
use peeklock::ids::SequenceNumber;
use peeklock::message::Message;
use peeklock::path::dead_letter_path;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::{Broker, Client, Received};

use crate::alone::alone;
use crate::number;
use crate::random::Random;

const QUEUE: &str = "tokens";
pub(super) const TOKENS: u64 = 80;
pub(super) const WORKERS: u64 = 6;
/// Environment variable with the program's directory, its first transaction number and its seed.
pub(super) const PROGRAM: &str = "PEEKLOCK_TRANSACTIONS_OF";
pub(super) const LIFE_MS_MAX: u64 = 500;
/// Token of a witness.
const WITNESS: u64 = u64::MAX;
/// Instant of witnesses: in the year 3000.
const WITNESS_AT: Timestamp = Timestamp::from_unix_ms(32_503_680_000_000);

/// A token in a message: its id, the number of its moves, and the last transaction that moved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) token: u64,
    pub(super) generation: u64,
    pub(super) transaction: u64,
    pub(super) place: u64,
}

impl Token {
    pub(super) fn written(self) -> String {
        let Self { token, generation, transaction, place } = self;
        format!("{token} {generation} {transaction} {place}")
    }

    pub(super) fn read(body: &[u8]) -> Self {
        let text = std::str::from_utf8(body).unwrap();
        let numbers: Vec<u64> = text.split(' ').map(|one| one.parse().unwrap()).collect();
        let [token, generation, transaction, place] = numbers[..] else { panic!("{text}") };
        Self { token, generation, transaction, place }
    }
}

/// Knowledge about a transaction, with the generation of each token after it.
#[derive(Default, Debug)]
pub(super) struct Known {
    tokens: BTreeMap<u64, u64>,
    /// Whether it schedules a witness, and the number of the witness after the commit.
    has_witness: bool,
    witness: Option<u64>,
    pub(super) end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum End {
    #[default]
    Unknown,
    Committed,
    NotCommitted,
}

/// TXN-15, TXN-01, TXN-04, TXN-13, TXN-14, SCH-13: over many kills.
#[test]
fn a_transaction_is_complete_or_absent_after_a_kill() {
    let _alone = alone();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("killed-transactions");
    let _absent = std::fs::remove_dir_all(&directory);
    let seed = number("PEEKLOCK_KILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut random = Random::new(seed);
    on_broker(&directory, prepare);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let (mut ends, mut witnesses) = ([0; 3], 0);
    for round in 0..number("PEEKLOCK_KILL_ROUNDS").unwrap_or(12) {
        let life = Duration::from_millis(random.between(20, LIFE_MS_MAX));
        let first = known.keys().next_back().map_or(1, |last| last + 1);
        let lines = run("transactions::program", &directory, first, random.bits(), life);
        for line in &lines {
            read_line(line, &mut known);
        }
        let found = on_broker(&directory, look);
        let (witnessed, found): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, token)| token.token == WITNESS);
        witnesses = witnessed.len();
        let mut judged = judge(&known, first, &found);
        judged.extend(judge_numbers(&found));
        judged.extend(judge_witnesses(&known, first, &witnessed, &found));
        assert!(judged.is_empty(), "seed {seed}, round {round}:\n{}", judged.join("\n"));
        for known in known.range(first..).map(|(_, known)| known.end) {
            ends[known as usize] += 1;
        }
    }
    let [unknown, committed, not_committed] = ends;
    eprintln!(
        "{committed} committed, {not_committed} rolled back, {unknown} unknown, {witnesses} witnesses, \
         seed {seed}"
    );
    assert!(committed > 20 && not_committed > 5, "the kills came too early to say something");
    assert!(witnesses > 5, "few transactions have scheduled something");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Checks that every token exists exactly once, and that each transaction moved all of its tokens
/// or none.
pub(super) fn judge(
    known: &BTreeMap<u64, Known>,
    first: u64,
    found: &[(u64, Token)],
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut there: BTreeMap<u64, Token> = BTreeMap::new();
    for (_, token) in found {
        if there.insert(token.token, *token).is_some() {
            complaints.push(format!("{token:?} is there twice"));
        }
        let end = known.get(&token.transaction).map(|known| known.end);
        if token.transaction > 0 && matches!(end, None | Some(End::NotCommitted)) {
            complaints.push(format!("{token:?} was sent by a transaction that ended {end:?}"));
        }
    }
    if there.len() as u64 != TOKENS {
        complaints.push(format!("{} tokens of {TOKENS} are there", there.len()));
    }
    for (transaction, known) in known.range(first..) {
        let has_moved = |(token, generation): (&u64, &u64)| {
            there.get(token).is_some_and(|there| there.generation >= *generation)
        };
        let moved = known.tokens.iter().filter(|one| has_moved(*one)).count();
        let is_right = match known.end {
            End::Committed => moved == known.tokens.len(),
            End::Unknown => moved == 0 || moved == known.tokens.len(),
            // Another transaction may have moved them since.
            End::NotCommitted => true,
        };
        if !is_right {
            complaints
                .push(format!("{moved} tokens moved of transaction {transaction}: {known:?}"));
        }
    }
    complaints
}

/// Checks that the messages of a transaction have consecutive numbers (TXN-13).
fn judge_numbers(found: &[(u64, Token)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, token) in found.iter().filter(|(_, token)| token.transaction > 0) {
        let first = numbers.entry(token.transaction).or_insert(number - token.place);
        if *first + token.place != *number {
            complaints.push(format!("{token:?} has the number {number}, the first {first}"));
        }
    }
    complaints
}

/// Checks that each committed transaction has its witness, with a number below its tokens, and that
/// no other transaction has one (SCH-13, TXN-13).
fn judge_witnesses(
    known: &BTreeMap<u64, Known>,
    first: u64,
    witnessed: &[(u64, Token)],
    found: &[(u64, Token)],
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut there: BTreeMap<u64, u64> = BTreeMap::new();
    for (number, token) in witnessed {
        if there.insert(token.transaction, *number).is_some() {
            complaints.push(format!("{token:?} is there twice"));
        }
        if !known.get(&token.transaction).is_some_and(|known| known.has_witness) {
            complaints.push(format!("{token:?} was never scheduled"));
        }
    }
    let generations: BTreeMap<u64, u64> =
        found.iter().map(|(_, token)| (token.token, token.generation)).collect();
    for (transaction, known) in known.iter().filter(|(_, known)| known.has_witness) {
        let has_moved = |(token, generation): (&u64, &u64)| {
            generations.get(token).is_some_and(|there| there >= generation)
        };
        let was_carried_out = match known.end {
            End::Committed => true,
            End::NotCommitted => false,
            // Later rounds move the tokens of transactions that were not carried out.
            End::Unknown if *transaction < first => continue,
            End::Unknown => known.tokens.iter().all(has_moved),
        };
        let number = there.get(transaction);
        let is_right = match known.witness {
            Some(reported) => number == Some(&reported),
            None => number.is_some() == was_carried_out,
        };
        if !is_right {
            complaints.push(format!("{number:?} is the witness of {transaction}: {known:?}"));
        }
    }
    for (number, token) in found {
        if let Some(witness) = there.get(&token.transaction)
            && witness >= number
        {
            complaints.push(format!("{token:?} has the number {number}, its witness {witness}"));
        }
    }
    complaints
}

pub(super) fn read_line(line: &str, known: &mut BTreeMap<u64, Known>) {
    let mut words = line.split(' ');
    let what = words.next().unwrap_or_default();
    let mut number = || words.next()?.parse::<u64>().ok();
    match what {
        "begun" => {
            let mut tokens = BTreeMap::new();
            let transaction = number().unwrap();
            while let (Some(token), Some(generation)) = (number(), number()) {
                tokens.insert(token, generation);
            }
            known.insert(transaction, Known { tokens, ..Known::default() });
        }
        "scheduled" => known.get_mut(&number().unwrap()).unwrap().has_witness = true,
        "witness" => {
            let of = known.get_mut(&number().unwrap()).unwrap();
            of.witness = Some(number().unwrap());
        }
        "committed" => known.get_mut(&number().unwrap()).unwrap().end = End::Committed,
        "rolled-back" => known.get_mut(&number().unwrap()).unwrap().end = End::NotCommitted,
        "wrong" => panic!("{line}"),
        // Output of the test runner.
        _ => {}
    }
}

/// Runs a program for the time `life`. Returns the lines that it printed.
pub(super) fn run(
    program: &str,
    directory: &Path,
    first: u64,
    seed: u64,
    life: Duration,
) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", program, "--ignored", "--nocapture"])
        .env(PROGRAM, format!("{first} {seed} {}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (ready, begun) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in output.lines() {
            let line = line.unwrap();
            if line == "ready" {
                ready.send(()).unwrap();
            }
            lines.push(line);
        }
        lines
    });
    begun.recv().unwrap();
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut lines = reader.join().unwrap();
    // Each complete line ends with a full stop; a line that was cut is dropped.
    lines.retain(|line| line.ends_with('.'));
    lines
}

/// Runs `work` on a broker in this process, and stops the broker.
pub(super) fn on_broker<T>(directory: &Path, work: impl AsyncFnOnce(&Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::builder().data_dir(directory).unwrap().start().await.unwrap();
        let done = work(&Client::new(&broker)).await;
        broker.stop(Duration::ZERO).await.unwrap();
        done
    })
}

async fn prepare(client: &Client) {
    let lock_duration = Some(TimeSpan::from_minutes(5));
    let max_delivery_count = Some(1_000_000);
    let properties = QueueUpdate { lock_duration, max_delivery_count, ..QueueUpdate::default() };
    client.admin().create_queue_with(QUEUE, properties).await.unwrap();
    let tokens = (0..TOKENS).map(|token| {
        let first = Token { token, generation: 0, transaction: 0, place: 0 };
        Message::new(first.written())
    });
    client.sender(QUEUE).unwrap().send_batch(tokens.collect()).await.unwrap();
}

/// Sequence number and token of every stored message.
async fn look(client: &Client) -> Vec<(u64, Token)> {
    let mut found = Vec::new();
    for path in [QUEUE.to_owned(), dead_letter_path(QUEUE)] {
        let receiver = client.receiver(&path).unwrap();
        let mut from = SequenceNumber(0);
        loop {
            let seen = receiver.peek(from, 100).await.unwrap();
            let Some(last) = seen.last() else { break };
            from = last.sequence_number().next();
            found.extend(seen.iter().map(|one| (one.sequence_number().0, Token::read(one.body()))));
        }
    }
    found
}

/// The program that is killed. Only the test above runs it.
#[test]
#[ignore = "is the program that the test kills"]
fn program() {
    live(work);
}

/// Runs workers until the process is killed, if the environment variable is set.
pub(super) fn live(work: impl AsyncFn(&Client, &AtomicU64, Random)) {
    let Ok(orders) = std::env::var(PROGRAM) else { return };
    let mut words = orders.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let first: u64 = word().parse().unwrap();
    let mut random = Random::new(word().parse().unwrap());
    let directory = PathBuf::from(word());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::builder().data_dir(directory).unwrap().start().await.unwrap();
        let client = Client::new(&broker);
        let next = AtomicU64::new(first);
        print_line("\nready");
        let workers = (0..WORKERS).map(|_| work(&client, &next, random.fork()));
        futures_util::future::join_all(workers).await;
    });
}

async fn work(client: &Client, next: &AtomicU64, mut random: Random) {
    let sender = client.sender(QUEUE).unwrap();
    let main = client.receiver(QUEUE).unwrap();
    let dead = client.receiver(&dead_letter_path(QUEUE)).unwrap();
    loop {
        let receiver = if random.chance(30) { &dead } else { &main };
        let count = u32::try_from(random.between(1, 5)).unwrap();
        let held = receiver.receive_many(count, TimeSpan::from_ms(20)).await.unwrap();
        if held.is_empty() {
            continue;
        }
        if std::ptr::eq(receiver, &raw const main) && random.chance(25) {
            for message in &held {
                receiver.dead_letter(message, None, None, &[]).await.unwrap();
            }
            continue;
        }
        let number = next.fetch_add(1, Ordering::Relaxed);
        let moved = moved(number, &held);
        let transaction = client.begin_transaction().await.unwrap();
        // Schedules the witness before or after the tokens are sent.
        let (schedules, schedules_first) = (random.chance(40), random.chance(50));
        let witness = Token { token: WITNESS, generation: 0, transaction: number, place: 0 };
        let witness = Message::new(witness.written()).with_scheduled_enqueue_time(WITNESS_AT);
        if schedules && schedules_first {
            transaction.send(&sender, witness.clone()).await.unwrap();
        }
        let sends_first = random.chance(50);
        for is_send in [sends_first, !sends_first] {
            for (message, copy) in held.iter().zip(&moved) {
                if is_send {
                    transaction.send(&sender, Message::new(copy.written())).await.unwrap();
                } else {
                    transaction.complete(receiver, message).await.unwrap();
                }
            }
        }
        let tokens: Vec<String> =
            moved.iter().map(|copy| format!("{} {}", copy.token, copy.generation)).collect();
        if schedules && !schedules_first {
            transaction.send(&sender, witness).await.unwrap();
        }
        print_line(&format!("begun {number} {} .", tokens.join(" ")));
        if schedules {
            print_line(&format!("scheduled {number} ."));
        }
        if random.chance(20) {
            transaction.roll_back().await.unwrap();
            print_line(&format!("rolled-back {number} ."));
            for message in &held {
                receiver.release(message).await.unwrap();
            }
            continue;
        }
        let committed = transaction.commit().await.unwrap();
        let mut numbers = committed.sequence_numbers();
        if schedules {
            let witness = if schedules_first { numbers.remove(0) } else { numbers.pop().unwrap() };
            print_line(&format!("witness {number} {} .", witness.0));
        }
        if numbers.len() != held.len() || !numbers.is_sorted_by(|one, two| one.0 + 1 == two.0) {
            print_line(&format!("wrong numbers {numbers:?} ."));
        }
        print_line(&format!("committed {number} ."));
    }
}

/// The tokens of these messages, one generation later.
pub(super) fn moved(transaction: u64, held: &[Received]) -> Vec<Token> {
    let moved = (0..).zip(held).map(|(place, message)| {
        let Token { token, generation, .. } = Token::read(message.body());
        Token { token, generation: generation + 1, transaction, place }
    });
    moved.collect()
}

/// Prints a line that survives the process.
pub(super) fn print_line(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").unwrap();
    output.flush().unwrap();
}
