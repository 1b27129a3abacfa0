//! Texts that resemble filters: each gets a result or an error with a position in the text, soon
//! and without a panic.

use std::time::Instant;

use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::rule::sql::{self, Parameters, SyntaxError, Unobserved};
use peeklock_core::rule::{Facts, PublishedMessage};
use peeklock_core::time::Timestamp;
use peeklock_store_testing::Random;

use crate::generator::Generator;
use crate::number;

/// Pieces that sometimes form a filter.
const PIECES: &[&str] = &[
    " ",
    " ",
    " ",
    "\n",
    "\t",
    "\r\n",
    "a",
    "b",
    "größe",
    "ä",
    "日本",
    "\u{0}",
    "\u{feff}",
    "💥",
    "_",
    "1",
    "0",
    "12345678901234567890",
    "1.5",
    ".5",
    "5.",
    "1e5",
    "1e",
    "1e999",
    "'",
    "''",
    "'x'",
    "\"",
    "\"x\"",
    "[",
    "]",
    "[x]",
    "(",
    ")",
    "((",
    "))",
    ",",
    ".",
    ";",
    "=",
    "<>",
    "!=",
    "<=",
    "<",
    ">",
    "!",
    "+",
    "-",
    "*",
    "/",
    "%",
    "@",
    "@p",
    "AND",
    "OR",
    "NOT",
    "IS NULL",
    "IN (",
    "LIKE",
    "ESCAPE",
];
const MORE: &[&str] = &[
    "EXISTS(",
    "EXISTS",
    "sys.",
    "user.",
    "sys.Label",
    "x.y",
    "newid()",
    "property(",
    "p('a')",
    "TRUE",
    "NULL",
    "SET ",
    "REMOVE ",
    "SET a = ",
];

/// Checks that a position is inside the text and consistent.
fn check_place(text: &str, error: &SyntaxError) {
    let position = error.position;
    assert!(position.byte <= text.len(), "{error} in {text:?}");
    let before = text.get(..position.byte).unwrap_or_else(|| panic!("{error} inside a character"));
    assert_eq!(position.line, before.split('\n').count(), "{error} in {text:?}");
    let in_line = before.rsplit('\n').next().unwrap_or_default();
    assert_eq!(position.column, in_line.chars().count() + 1, "{error} in {text:?}");
    let told = error.to_string();
    let place = format!("line {}, column {}: ", position.line, position.column);
    let reason = told.strip_prefix(&place).unwrap_or_else(|| panic!("no place in {told}"));
    assert!(!reason.is_empty() && told.len() < 500 && !told.contains('\n'), "{told}");
}

/// Compiles a text as filter and action, and evaluates the result. Returns whether it was a filter.
fn check(text: &str) -> bool {
    let parameters = Parameters::new().with("p", 5);
    if let Err(error) = sql::compile_action(text, &parameters, 32) {
        check_place(text, &error);
    }
    let program = match sql::compile_filter(text, &parameters) {
        Ok(program) => program,
        Err(error) => {
            check_place(text, &error);
            return false;
        }
    };
    let mut message = Message::new("").with_subject("x");
    message.application_properties = vec![("a".into(), 5.into()), ("b".into(), "text".into())];
    let content = message.encode();
    let facts = Facts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::NONE,
        expires_at: None,
        time_to_live: None,
        size: 0,
        dead_letter_source: None,
    };
    let published = PublishedMessage::new(content.property_view(), facts);
    if let Err(error) = program.test(&published, &mut || 0, &mut Unobserved) {
        let told = error.describe(text);
        assert!(told.contains("line ") && !told.contains('\n') && told.len() < 500, "{told}");
    }
    true
}

/// TOP-16: pieces in any order.
#[test]
fn pieces_of_filters_in_any_order() {
    let mut random = Random::new(number("PEEKLOCK_RULES_SEED", 1));
    let pieces: Vec<_> = PIECES.iter().chain(MORE).collect();
    let mut accepted = 0;
    for _ in 0..60_000 {
        let count = random.between(0, 12);
        let text: String = (0..count).map(|_| **random.pick(&pieces).unwrap()).collect();
        accepted += usize::from(check(&text));
    }
    assert!(accepted > 100, "only {accepted} were filters");
}

/// TOP-16: real filters, cut off, with characters lost, doubled or exchanged.
#[test]
fn damaged_filters() {
    for seed in 1..=1_500 {
        let mut generator = Generator { random: Random::new(seed) };
        let pred = generator.pred(2, &mut Vec::new());
        let text = generator.write_pred(&pred, 1);
        let characters: Vec<char> = text.chars().collect();
        let cut = generator.random.index(characters.len() + 1);
        check(&characters[..cut].iter().collect::<String>());
        for _ in 0..6 {
            let mut damaged = characters.clone();
            for _ in 0..generator.random.between(1, 3) {
                let place = generator.random.index(damaged.len());
                match generator.random.below(4) {
                    0 => drop(damaged.remove(place)),
                    1 => damaged.insert(place, damaged[place]),
                    2 => {
                        let other = generator.random.index(damaged.len());
                        damaged.swap(place, other);
                    }
                    _ => {
                        let noise = PIECES[generator.random.index(PIECES.len())];
                        damaged[place] = noise.chars().next().unwrap_or(' ');
                    }
                }
                if damaged.is_empty() {
                    break;
                }
            }
            check(&damaged.iter().collect::<String>());
        }
    }
}

/// TOP-16: random bytes.
#[test]
fn noise() {
    let mut random = Random::new(number("PEEKLOCK_RULES_SEED", 1));
    for _ in 0..20_000 {
        let count = random.between(0, 60);
        let characters = (0..count).filter_map(|_| match random.below(3) {
            0 => char::from_u32(u32::try_from(random.below(0x11_0000)).unwrap_or(0)),
            _ => char::from_u32(u32::try_from(random.between(32, 126)).unwrap_or(32)),
        });
        check(&characters.collect::<String>());
    }
}

/// SQL-42: texts of 256 KiB, far over the limit, which would have refused them before.
#[test]
fn huge_texts_end_soon() {
    for piece in [
        "(",
        ")",
        "NOT ",
        "-",
        "+",
        "a ",
        "a = 1 AND ",
        "a = 1 OR ",
        "a IN (1,",
        "1, ",
        "'",
        "''",
        "[",
        "]]",
        "\"",
        "p(",
        "p('a'",
        "sys.",
        "a.",
        "1+",
        "1.",
        "'x' LIKE ",
        "EXISTS(",
        "\n",
        "\u{fffd}",
        "@",
        "@p+",
        "SET a = 1;",
        "SET a = (",
        "REMOVE ",
        "NULL IS ",
        "'%' LIKE '%' ESCAPE ",
    ] {
        let text = piece.repeat((1 << 18) / piece.len());
        let started = Instant::now();
        check(&text);
        check(&format!("a = 1 AND {text}"));
        check(&format!("[x] + {text} 1"));
        assert!(started.elapsed().as_secs() < 20, "{piece:?}");
    }
    let many = (0..30_000).map(|number| format!("n{number} = {number} OR ")).collect::<String>();
    assert!(check(&(many + "TRUE")));
}
