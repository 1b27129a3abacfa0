//! Splits a text into words, one at a time, for the parser. It also reports the position of an
//! error.

use std::borrow::Cow;

use super::error::{Position, Problem, SyntaxError, excerpt};

/// A word of a text, with its position.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Token<'t> {
    pub(super) word: Word<'t>,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A word.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Word<'t> {
    Keyword(Keyword),
    /// A regular identifier.
    Regular(&'t str),
    /// `[...]` or `"..."`.
    Delimited(Cow<'t, str>),
    /// `@name`, without the sign.
    Parameter(&'t str),
    Integer(i64),
    Float(f64),
    /// `'...'`
    Text(Cow<'t, str>),
    Mark(Mark),
    End,
}

/// The reserved words (SQL-06).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keyword {
    And,
    Or,
    Not,
    Is,
    Null,
    In,
    Like,
    Escape,
    Exists,
    True,
    False,
    Set,
    Remove,
}

/// Punctuation and operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Open,
    Close,
    Comma,
    Dot,
    Semicolon,
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
}

const KEYWORDS: [(&str, Keyword); 13] = [
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("NOT", Keyword::Not),
    ("IS", Keyword::Is),
    ("NULL", Keyword::Null),
    ("IN", Keyword::In),
    ("LIKE", Keyword::Like),
    ("ESCAPE", Keyword::Escape),
    ("EXISTS", Keyword::Exists),
    ("TRUE", Keyword::True),
    ("FALSE", Keyword::False),
    ("SET", Keyword::Set),
    ("REMOVE", Keyword::Remove),
];

/// A mark must come before any shorter mark that it begins with.
const MARKS: [(&str, Mark); 17] = [
    ("<>", Mark::NotEqual),
    ("!=", Mark::NotEqual),
    (">=", Mark::GreaterOrEqual),
    ("<=", Mark::LessOrEqual),
    ("=", Mark::Equal),
    (">", Mark::Greater),
    ("<", Mark::Less),
    ("(", Mark::Open),
    (")", Mark::Close),
    (",", Mark::Comma),
    (".", Mark::Dot),
    (";", Mark::Semicolon),
    ("+", Mark::Plus),
    ("-", Mark::Minus),
    ("*", Mark::Star),
    ("/", Mark::Slash),
    ("%", Mark::Percent),
];

/// Takes words from the front of a text.
#[derive(Clone)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

type Read<T> = Result<T, SyntaxError>;

impl<'t> Lexer<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn error(&self, at: usize, problem: Problem) -> SyntaxError {
        SyntaxError { position: Position::of(self.text, at), problem }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Takes the next word.
    pub(super) fn next(&mut self) -> Read<Token<'t>> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        let from = self.at;
        let word = self.word()?;
        Ok(Token { word, from, to: self.at })
    }

    fn word(&mut self) -> Read<Word<'t>> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Word::End);
        };
        let second_is_digit = || rest.chars().nth(1).is_some_and(|next| next.is_ascii_digit());
        match first {
            '\'' => Ok(Word::Text(self.delimited('\'', '\'', "text", "'")?)),
            '"' => Ok(Word::Delimited(self.name('"', '"', "\"")?)),
            '[' => Ok(Word::Delimited(self.name('[', ']', "]")?)),
            '@' => self.parameter(),
            _ if first.is_ascii_digit() => self.number(),
            '.' if second_is_digit() => self.number(),
            _ if first.is_alphabetic() => {
                let name = self.take(identifier_length(rest));
                let keyword = KEYWORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
                Ok(keyword.map_or(Word::Regular(name), |(_, keyword)| Word::Keyword(*keyword)))
            }
            _ => {
                let Some((text, mark)) = MARKS.iter().find(|(text, _)| rest.starts_with(text))
                else {
                    return Err(self.error(self.at, Problem::BadCharacter(first)));
                };
                self.at += text.len();
                Ok(Word::Mark(*mark))
            }
        }
    }

    fn take(&mut self, length: usize) -> &'t str {
        let taken = self.rest().get(..length).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    fn parameter(&mut self) -> Read<Word<'t>> {
        let from = self.at;
        self.at += 1;
        let name = self.take(identifier_length(self.rest()));
        if name.is_empty() {
            let problem = Problem::Unexpected {
                expected: "the name of a parameter behind `@`",
                found: excerpt(self.rest().get(..1).unwrap_or("@")),
            };
            return Err(self.error(from, problem));
        }
        Ok(Word::Parameter(name))
    }

    fn name(&mut self, open: char, close: char, end: &'static str) -> Read<Cow<'t, str>> {
        let from = self.at;
        let name = self.delimited(open, close, "name", end)?;
        if name.is_empty() {
            return Err(self.error(from, Problem::EmptyName));
        }
        Ok(name)
    }

    /// The text between two marks. A doubled closing mark stands for a single one.
    fn delimited(
        &mut self,
        open: char,
        close: char,
        construct: &'static str,
        end: &'static str,
    ) -> Read<Cow<'t, str>> {
        let from = self.at;
        self.at += open.len_utf8();
        let mut joined = Cow::Borrowed("");
        loop {
            let rest = self.rest();
            let Some(length) = rest.find(close) else {
                return Err(self.error(from, Problem::Unfinished { construct, end }));
            };
            let doubled = rest.get(length + close.len_utf8()..).unwrap_or_default();
            let doubled = doubled.starts_with(close);
            // The part includes a doubled mark once.
            let part = rest.get(..length + usize::from(doubled)).unwrap_or_default();
            if joined.is_empty() {
                joined = Cow::Borrowed(part);
            } else {
                joined.to_mut().push_str(part);
            }
            self.at += length + close.len_utf8();
            if !doubled {
                return Ok(joined);
            }
            self.at += close.len_utf8();
        }
    }

    /// Digits, a point and an exponent (SQL-13). A letter directly after them is part of the number
    /// and makes it malformed, so that `1x` is not two words.
    fn number(&mut self) -> Read<Word<'t>> {
        let from = self.at;
        let rest = self.rest();
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = digits(rest);
        let mut whole = true;
        if rest.get(length..).is_some_and(|rest| rest.starts_with('.')) {
            whole = false;
            length += 1;
            length += digits(rest.get(length..).unwrap_or_default());
        }
        if let Some(exponent) = rest.get(length..).and_then(|rest| rest.strip_prefix(['e', 'E'])) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits(unsigned) > 0 {
                whole = false;
                length += 1 + (exponent.len() - unsigned.len()) + digits(unsigned);
            }
        }
        let suffix = rest.get(length..).unwrap_or_default();
        let foreign = suffix.find(|c: char| !is_identifier_part(c)).unwrap_or(suffix.len());
        let number = self.take(length + foreign);
        if foreign > 0 {
            return Err(self.error(from, Problem::BadNumber(excerpt(number))));
        }
        if whole {
            return number.parse().map(Word::Integer).map_err(|_| {
                let range = "-9223372036854775807 to 9223372036854775807, the integers of 64 bits";
                self.error(from, Problem::NumberRange { number: excerpt(number), range })
            });
        }
        match number.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Word::Float(value)),
            _ => {
                let range = "the floating point numbers of 64 bits";
                Err(self.error(from, Problem::NumberRange { number: excerpt(number), range }))
            }
        }
    }
}

/// Length in bytes of the regular identifier at the start of a text (SQL-06).
fn identifier_length(text: &str) -> usize {
    if !text.starts_with(char::is_alphabetic) {
        return 0;
    }
    text.find(|c: char| !is_identifier_part(c)).unwrap_or(text.len())
}

fn is_identifier_part(character: char) -> bool {
    character.is_alphabetic() || character.is_ascii_digit() || character == '_'
}

impl Word<'_> {
    /// The word as an error names it.
    pub(super) fn describe(&self, text: &str) -> Box<str> {
        match self {
            Self::End => "the end of the text".into(),
            _ => excerpt(text),
        }
    }
}
