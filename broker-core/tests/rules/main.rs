//! Filters agree with the specification, and any text gets a result or an error.
//!
//! `oracle.rs` is the language as a plain tree, `generator.rs` draws filters and messages and
//! writes the filters as text, and `texts.rs` passes texts that resemble filters to the parser. A
//! failure names its seed: `PEEKLOCK_RULES_SEED` sets the first seed, and `PEEKLOCK_RULES_COUNT`
//! the number of seeds.
#![expect(clippy::panic, clippy::unwrap_used, reason = "a panic is how a test fails")]

mod generator;
mod oracle;
mod texts;
mod topics;

use std::time::Instant;

use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::rule::sql::{self, Parameters, Unobserved};
use peeklock_core::rule::{Facts, PublishedMessage};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use generator::Generator;
use oracle::{Val, World};

/// Filters for each message.
const FILTERS: usize = 20;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn value(val: &Val) -> Value {
    match val.clone() {
        Val::Null => Value::Null,
        Val::Bool(value) => Value::Bool(value),
        Val::Int(value, name) => match name {
            "i8" => Value::I8(value.try_into().unwrap()),
            "i16" => Value::I16(value.try_into().unwrap()),
            "i32" => Value::I32(value.try_into().unwrap()),
            "u8" => Value::U8(value.try_into().unwrap()),
            "u16" => Value::U16(value.try_into().unwrap()),
            "u32" => Value::U32(value.try_into().unwrap()),
            "u64" => Value::U64(value.try_into().unwrap()),
            _ => Value::I64(value.try_into().unwrap()),
        },
        Val::Float(value) => Value::F32(value),
        Val::Double(value) => Value::F64(value),
        Val::Text(text) => Value::String(text),
        Val::Char(character) => Value::Char(character),
        Val::Uuid(uuid) => Value::Uuid(uuid),
        // Ticks since 1970 in the oracle, milliseconds in a timestamp.
        Val::Instant(ticks) => Value::Timestamp((ticks / 10_000).try_into().unwrap()),
        Val::Span(ticks) => Value::TimeSpan(ticks),
        Val::Bytes(bytes) => Value::Binary(bytes.into()),
        Val::Uri(uri) => Value::Uri(uri),
    }
}

/// The message of a world.
fn message(world: &World) -> Content {
    let mut message = Message::new("body");
    message.application_properties =
        world.user.iter().map(|(name, val)| (name.clone(), value(val))).collect();
    for (name, val) in &world.sys {
        if let Val::Text(text) = val {
            match *name {
                "Label" => message.subject = Some(text.clone()),
                "To" => message.to = Some(text.clone()),
                _ => {}
            }
        }
    }
    message.encode()
}

fn facts(world: &World) -> Facts<'static> {
    let span = world.sys.iter().find_map(|(name, val)| match (*name, val) {
        ("TimeToLive", Val::Span(ticks)) => Some(TimeSpan::from_ticks(*ticks)),
        _ => None,
    });
    Facts {
        sequence: SequenceNumber(7),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::from_unix_ms(1),
        expires_at: None,
        time_to_live: span,
        size: 100,
        dead_letter_source: None,
    }
}

/// Every filter gives the same result as the oracle (file 14).
#[test]
fn filters_agree_with_the_oracle() {
    let first = number("PEEKLOCK_RULES_SEED", 1);
    let count = number("PEEKLOCK_RULES_COUNT", 4_000);
    let mut seen = [0usize; 4];
    for seed in first..first + count {
        let mut generator = Generator { random: Random::new(seed) };
        let world = generator.world();
        let content = message(&world);
        let published = PublishedMessage::new(content.property_view(), facts(&world));
        for _ in 0..FILTERS {
            let mut parameters = Vec::new();
            let pred = generator.pred(3, &mut parameters);
            let text = generator.write_pred(&pred, 1);
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, val)| all.with(name, value(val)));
            let program = sql::compile_filter(&text, &parameters)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}\n{pred:?}"));
            let result = program.test(&published, &mut || 0, &mut Unobserved);
            let expected = world.truth(&pred);
            let same = match (&result, &expected) {
                (Ok(result), Ok(expected)) => result == expected,
                (Err(_), Err(_)) => true,
                _ => false,
            };
            assert!(
                same,
                "seed {seed}: {result:?} instead of {expected:?}\n{text}\n{pred:?}\n{world:?}"
            );
            let place = match expected {
                Ok(Some(true)) => 0,
                Ok(Some(false)) => 1,
                Ok(None) => 2,
                Err(_) => 3,
            };
            seen[place] += 1;
        }
    }
    if count >= 100 {
        let all: usize = seen.iter().sum();
        assert!(seen.iter().all(|one| *one * 20 > all), "hardly seen: {seen:?}");
    }
}

/// SQL-41: the cost of the largest text and the largest properties.
#[test]
fn the_worst_filters_end_soon() {
    let texts = [
        "a + a = a OR ".repeat(70) + "a = 'x'",
        "a LIKE '%a%a%a%a%b' OR ".repeat(40) + "a = 'x'",
        format!("a LIKE '{}b'", "%a".repeat(500)),
        "a = a AND ".repeat(100) + "TRUE",
        "p(p(a)) = 1 OR ".repeat(60) + "TRUE",
    ];
    let mut sent = Message::new("");
    sent.application_properties.push(("a".into(), "a".repeat(32_000).into()));
    let content = sent.encode();
    let world = World::default();
    for text in texts {
        assert!(text.chars().count() <= 1_024, "{}", text.len());
        let program = sql::compile_filter(&text, &Parameters::new()).unwrap();
        let published = PublishedMessage::new(content.property_view(), facts(&world));
        let started = Instant::now();
        std::hint::black_box(program.test(&published, &mut || 0, &mut Unobserved).is_ok());
        // Linear work takes a few milliseconds; anything worse takes minutes.
        assert!(started.elapsed().as_secs() < 10, "{text}");
    }
}
