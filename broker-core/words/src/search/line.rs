//! Clauses in one line of words (CON-49): `reason:timeout body.$.order.id=17 not after:-2h`.
//!
//! ```text
//!  line   := [ clause { blank clause } ]         clause := [ "not" blank ] test
//!  test   := text | field sign value | path [ sign value ]
//!  path   := "body." JSON-path                   value  := text
//!  sign   := ":" | "~" | "=" | "!=" | "<" | "<=" | ">" | ">="
//!  text   := characters without a blank | '"' characters, with \" and \\ '"'
//! ```

use std::fmt::{self, Write as _};

use super::json::Number;
use super::path::JsonPath;
use super::{Clause, JsonScalar, JsonTest, NumberField, Test, TextField, TextPattern, TextTest};
use crate::error::Rejection;
use crate::rule::sql::Comparison;
use crate::time::{TimeSpan, Timestamp};

/// Fields without a property of their own.
const PLACES: [&str; 5] = ["text", "body", "property", "after", "before"];
const SQL: &str = "sql";
const NOT: &str = "not";
/// Before the JSON path of a clause.
const BODY_PATH: &str = "body.$";

/// Relation between a field and a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Contains { ignores_case: bool },
    Compare(Comparison),
}

impl Sign {
    /// All signs; a sign stands before its own beginnings.
    const ALL: [(&'static str, Self); 8] = [
        (":", Self::Contains { ignores_case: true }),
        ("~", Self::Contains { ignores_case: false }),
        ("!=", Self::Compare(Comparison::NotEqual)),
        ("<=", Self::Compare(Comparison::LessOrEqual)),
        (">=", Self::Compare(Comparison::GreaterOrEqual)),
        ("=", Self::Compare(Comparison::Equal)),
        ("<", Self::Compare(Comparison::Less)),
        (">", Self::Compare(Comparison::Greater)),
    ];

    fn text(self) -> &'static str {
        Self::ALL.iter().find(|(_, sign)| *sign == self).map_or("", |(text, _)| *text)
    }
}

/// Value of a clause, and whether it was quoted.
struct Written {
    text: String,
    is_quoted: bool,
}

pub(super) fn parse(line: &str, now: Timestamp) -> Result<Vec<Clause>, Rejection> {
    let mut parser = Parser { line, at: 0, now };
    let mut clauses = Vec::new();
    loop {
        parser.blanks();
        if parser.rest().is_empty() {
            return Ok(clauses);
        }
        clauses.push(parser.clause()?);
    }
}

struct Parser<'t> {
    line: &'t str,
    at: usize,
    now: Timestamp,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn error(&self, at: usize, problem: &str) -> Rejection {
        let place = self.line.get(..at).unwrap_or_default().chars().count() + 1;
        Rejection::argument(format!("where, character {place}: {problem}"))
    }

    fn clause(&mut self) -> Result<Clause, Rejection> {
        let negated = self
            .rest()
            .strip_prefix(NOT)
            .filter(|rest| rest.starts_with(char::is_whitespace) && !rest.trim_start().is_empty());
        if negated.is_some() {
            self.at += NOT.len();
            self.blanks();
        }
        Ok(Clause { is_negated: negated.is_some(), test: self.test()? })
    }

    fn test(&mut self) -> Result<Test, Rejection> {
        let start = self.at;
        let rest = self.rest();
        if rest.starts_with(BODY_PATH) {
            return self.json();
        }
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        self.at += end;
        let Some(sign) = self.sign().filter(|_| end > 0) else {
            self.at = start;
            return Ok(Test::Anywhere(self.value()?.pattern(true)));
        };
        let name = rest.get(..end).unwrap_or_default();
        self.field(name, sign, start)
    }

    fn json(&mut self) -> Result<Test, Rejection> {
        self.at += BODY_PATH.len() - 1;
        let start = self.at;
        let (path, length) = JsonPath::parse_start(self.rest())
            .map_err(|rejection| self.error(start, rejection.detail()))?;
        self.at += length;
        let test = match self.sign() {
            Some(Sign::Contains { ignores_case }) => {
                JsonTest::Contains(self.value()?.pattern(ignores_case))
            }
            Some(Sign::Compare(comparison)) => {
                JsonTest::Compare(comparison, self.value()?.scalar())
            }
            None if self.rest().is_empty() || self.rest().starts_with(char::is_whitespace) => {
                JsonTest::Exists
            }
            None => return Err(self.error(self.at, "expected a sign such as `=`, or a blank")),
        };
        Ok(Test::Json(path, test))
    }

    fn field(&mut self, name: &str, sign: Sign, start: usize) -> Result<Test, Rejection> {
        let wrong = |parser: &Self, signs: &str| {
            Err(parser.error(start, &format!("`{name}` has only the signs {signs}")))
        };
        if let Some((field, _)) = TextField::WORDS.into_iter().find(|(_, word)| *word == name) {
            return match sign {
                Sign::Contains { ignores_case } => {
                    let pattern = self.value()?.pattern(ignores_case);
                    Ok(Test::Field(field, TextTest::Contains(pattern)))
                }
                Sign::Compare(Comparison::Equal) => {
                    let text = self.value()?.text.into();
                    Ok(Test::Field(field, TextTest::Equals(text)))
                }
                Sign::Compare(_) => wrong(self, "`:`, `~` and `=`"),
            };
        }
        if let Some((field, _)) = NumberField::WORDS.into_iter().find(|(_, word)| *word == name) {
            let Sign::Compare(comparison) = sign else {
                return wrong(self, "`=`, `!=`, `<`, `<=`, `>` and `>=`");
            };
            let number = if field.is_instant() { self.instant()? } else { self.number()? };
            return Ok(Test::Number(field, comparison, number));
        }
        match (name, sign) {
            ("text", Sign::Contains { ignores_case }) => {
                Ok(Test::Anywhere(self.value()?.pattern(ignores_case)))
            }
            ("body", Sign::Contains { ignores_case }) => {
                Ok(Test::Body(self.value()?.pattern(ignores_case)))
            }
            ("property", Sign::Contains { ignores_case }) => {
                Ok(Test::Properties(self.value()?.pattern(ignores_case)))
            }
            ("text" | "body" | "property", Sign::Compare(_)) => wrong(self, "`:` and `~`"),
            ("after", Sign::Contains { ignores_case: true }) => {
                let instant = self.instant()?;
                Ok(Test::Number(NumberField::EnqueuedAt, Comparison::GreaterOrEqual, instant))
            }
            ("before", Sign::Contains { ignores_case: true }) => {
                let instant = self.instant()?;
                Ok(Test::Number(NumberField::EnqueuedAt, Comparison::Less, instant))
            }
            (SQL, Sign::Contains { ignores_case: true }) => {
                Ok(Test::Sql(self.value()?.text.into()))
            }
            ("after" | "before" | SQL, _) => wrong(self, "`:`"),
            _ => {
                let words = TextField::WORDS.iter().map(|(_, word)| *word);
                let words = PLACES.into_iter().chain(words);
                let words = words.chain(NumberField::WORDS.iter().map(|(_, word)| *word));
                let words = words.chain([SQL, "body.$"]).collect::<Vec<_>>().join(", ");
                Err(self
                    .error(start, &format!("`{name}` is none of {words}; quote a text to find it")))
            }
        }
    }

    fn sign(&mut self) -> Option<Sign> {
        let rest = self.rest();
        let (text, sign) = Sign::ALL.iter().find(|(text, _)| rest.starts_with(text))?;
        self.at += text.len();
        Some(*sign)
    }

    fn value(&mut self) -> Result<Written, Rejection> {
        let start = self.at;
        let rest = self.rest();
        if !rest.starts_with('"') {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let text = rest.get(..end).unwrap_or_default();
            if text.is_empty() {
                return Err(self.error(start, "expected a value; write \"\" for an empty text"));
            }
            self.at += end;
            return Ok(Written { text: text.to_owned(), is_quoted: false });
        }
        let mut text = String::new();
        let mut characters = rest.char_indices().skip(1);
        while let Some((place, found)) = characters.next() {
            match found {
                '"' => {
                    self.at += place + 1;
                    if !(self.rest().is_empty() || self.rest().starts_with(char::is_whitespace)) {
                        return Err(self.error(self.at, "expected a blank after the quoted text"));
                    }
                    return Ok(Written { text, is_quoted: true });
                }
                '\\' => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => return Err(self.error(start + place, "expected \\\" or \\\\")),
                },
                found => text.push(found),
            }
        }
        Err(self.error(start, "the quoted text has no end"))
    }

    fn number(&mut self) -> Result<i64, Rejection> {
        let start = self.at;
        let number = self.value()?.text.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| self.error(start, "expected a number of at most 63 bits"))
    }

    /// Parses an instant, or a time before or after now.
    fn instant(&mut self) -> Result<i64, Rejection> {
        let start = self.at;
        let text = self.value()?.text;
        let relative = || {
            let (sign, rest) = text.split_at_checked(1)?;
            let unit = match rest.chars().last()? {
                's' => 1,
                'm' => 60,
                'h' => 3_600,
                'd' => 86_400,
                _ => return None,
            };
            let count = rest.get(..rest.len() - 1)?;
            let count: u32 =
                count.bytes().all(|it| it.is_ascii_digit()).then(|| count.parse().ok())??;
            let span = TimeSpan::from_seconds(i64::from(count) * unit);
            match sign {
                "-" => Some(self.now.minus(span)),
                "+" => Some(self.now.plus(span)),
                _ => None,
            }
        };
        let instant = Timestamp::parse(&text).or_else(relative);
        instant.map(Timestamp::ticks).ok_or_else(|| {
            let expected = "expected an instant such as 2026-05-01T12:00:00Z, or -2h, -30m, +1d";
            self.error(start, expected)
        })
    }
}

impl Written {
    fn pattern(self, ignores_case: bool) -> TextPattern {
        TextPattern { text: self.text.into(), ignores_case }
    }

    fn scalar(self) -> JsonScalar {
        match &*self.text {
            "null" if !self.is_quoted => JsonScalar::Null,
            "true" if !self.is_quoted => JsonScalar::Bool(true),
            "false" if !self.is_quoted => JsonScalar::Bool(false),
            text if !self.is_quoted && Number::parse(text).is_some() => {
                JsonScalar::Number(self.text.into())
            }
            _ => JsonScalar::Text(self.text.into()),
        }
    }
}

pub(super) fn write(clauses: &[Clause], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, clause) in clauses.iter().enumerate() {
        if place > 0 {
            f.write_char(' ')?;
        }
        if clause.is_negated {
            write!(f, "{NOT} ")?;
        }
        write_test(&clause.test, f)?;
    }
    Ok(())
}

fn write_test(test: &Test, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match test {
        Test::Anywhere(pattern) => write_pattern("text", pattern, f),
        Test::Body(pattern) => write_pattern("body", pattern, f),
        Test::Properties(pattern) => write_pattern("property", pattern, f),
        Test::Field(field, test) => {
            let word = TextField::WORDS.iter().find(|(it, _)| it == field).map_or("", |it| it.1);
            match test {
                TextTest::Contains(pattern) => write_pattern(word, pattern, f),
                TextTest::Equals(text) => {
                    write!(f, "{word}=")?;
                    write_value(text, false, f)
                }
            }
        }
        Test::Json(path, test) => {
            write!(f, "body.{path}")?;
            match test {
                JsonTest::Exists => Ok(()),
                JsonTest::Contains(pattern) => write_pattern("", pattern, f),
                JsonTest::Compare(comparison, scalar) => {
                    f.write_str(Sign::Compare(*comparison).text())?;
                    match scalar {
                        JsonScalar::Null => f.write_str("null"),
                        JsonScalar::Bool(value) => write!(f, "{value}"),
                        JsonScalar::Number(text) => f.write_str(text),
                        JsonScalar::Text(text) => write_value(text, true, f),
                    }
                }
            }
        }
        Test::Sql(text) => {
            write!(f, "{SQL}:")?;
            write_value(text, true, f)
        }
        Test::Number(field, comparison, number) => {
            let word = NumberField::WORDS.iter().find(|(it, _)| it == field).map_or("", |it| it.1);
            let sign = Sign::Compare(*comparison).text();
            match field.is_instant() {
                true => write!(f, "{word}{sign}{}", Timestamp::from_ticks(*number)),
                false => write!(f, "{word}{sign}{number}"),
            }
        }
    }
}

fn write_pattern(word: &str, pattern: &TextPattern, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let sign = Sign::Contains { ignores_case: pattern.ignores_case };
    write!(f, "{word}{}", sign.text())?;
    write_value(&pattern.text, false, f)
}

fn write_value(text: &str, is_quoted: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_plain =
        !text.is_empty() && !text.starts_with('"') && !text.contains(char::is_whitespace);
    if is_plain && !is_quoted {
        return f.write_str(text);
    }
    f.write_char('"')?;
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(character)?;
    }
    f.write_char('"')
}
