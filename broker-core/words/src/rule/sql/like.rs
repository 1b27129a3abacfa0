//! LIKE (SQL-25 to SQL-29).

use super::error::Fault;

/// A pattern, ready to be matched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    pieces: Box<[Piece]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    One(char),
    /// `_`
    Any,
    /// `%`
    Many,
}

impl Pattern {
    /// Understands a pattern and its escape (SQL-26, SQL-27).
    pub(super) fn new(pattern: &str, escape: Option<&str>) -> Result<Self, Fault> {
        let escape = escape.map(one_character).transpose()?;
        let mut pieces = Vec::with_capacity(pattern.len());
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            if Some(character) == escape {
                match characters.peek() {
                    None => return Err(Fault::DanglingEscape),
                    Some(&next) if matches!(next, '%' | '_') || Some(next) == escape => {
                        characters.next();
                        pieces.push(Piece::One(next));
                    }
                    // Before anything else it is itself (SQL-26).
                    Some(_) => pieces.push(Piece::One(character)),
                }
                continue;
            }
            match character {
                '%' => {
                    // Several in a row match what one does.
                    if pieces.last() != Some(&Piece::Many) {
                        pieces.push(Piece::Many);
                    }
                }
                '_' => pieces.push(Piece::Any),
                _ => pieces.push(Piece::One(character)),
            }
        }
        Ok(Self { pieces: pieces.into() })
    }

    /// Whether the whole text matches, in time of at most the product of both lengths (SQL-41):
    /// only the last `%` passed is ever tried again, one character further.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut rest = text.chars();
        let mut piece = 0;
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let ahead = rest.clone().next();
            match (self.pieces.get(piece), ahead) {
                (Some(Piece::Many), _) => {
                    piece += 1;
                    if piece == self.pieces.len() {
                        return true;
                    }
                    retry = Some((piece, rest.clone()));
                    continue;
                }
                (Some(Piece::Any), Some(_)) => {
                    rest.next();
                    piece += 1;
                    continue;
                }
                (Some(Piece::One(wanted)), Some(character)) if *wanted == character => {
                    rest.next();
                    piece += 1;
                    continue;
                }
                (None, None) => return true,
                // The text is at its end and the pattern is not: no later start helps.
                (Some(_), None) => return false,
                (Some(_) | None, Some(_)) => {}
            }
            let Some((from, start)) = &mut retry else {
                return false;
            };
            start.next();
            piece = *from;
            rest = start.clone();
        }
    }
}

fn one_character(escape: &str) -> Result<char, Fault> {
    let mut characters = escape.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(Fault::EscapeLength(escape.chars().count())),
    }
}
