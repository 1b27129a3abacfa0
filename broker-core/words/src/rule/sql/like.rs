//! LIKE (SQL-25 to SQL-29).

use smallvec::SmallVec;

use super::error::Fault;
use crate::rule::ALLOCATION_BYTES;

/// Characters that one word of a [`Wild`] keeps track of.
const WORD_BITS: usize = u64::BITS as usize;

/// A pattern, ready to be matched: what the text begins with, what comes behind in this order, each as
/// early as it can be, and what it ends with.
///
/// ```text
///  'a_b%cd%_e'      first a_b    middle cd    last _e
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    first: Part,
    /// `None` for a pattern without `%`: then the text is `first`, and nothing else.
    rest: Option<Rest>,
}

/// What stands behind the first `%`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rest {
    middle: Box<[Part]>,
    last: Part,
}

/// What stands between two `%`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    /// Without `_`: searched for as a text.
    Plain(Box<str>),
    Wild(Wild),
}

/// With `_`: `None` stands for any one character.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wild {
    characters: Box<[Option<char>]>,
    /// The places of each character that is named; ascending.
    named: Box<[(char, Places)]>,
    /// The places of `_`, one bit a place.
    any: Box<[u64]>,
}

/// Where a character stands in a part, in whatever needs less room.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Places {
    /// One by one.
    Few(Box<[usize]>),
    /// One bit a place.
    Many(Box<[u64]>),
}

impl Pattern {
    /// Understands a pattern and its escape (SQL-26, SQL-27).
    pub(super) fn new(pattern: &str, escape: Option<&str>) -> Result<Self, Fault> {
        let escape = escape.map(one_character).transpose()?;
        let mut parts = vec![Vec::new()];
        let put = |parts: &mut Vec<Vec<Option<char>>>, character| {
            if let Some(part) = parts.last_mut() {
                part.push(character);
            }
        };
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            if Some(character) == escape {
                match characters.peek() {
                    None => return Err(Fault::DanglingEscape),
                    Some(&next) if matches!(next, '%' | '_') || Some(next) == escape => {
                        characters.next();
                        put(&mut parts, Some(next));
                    }
                    // Before anything else it is itself (SQL-26).
                    Some(_) => put(&mut parts, Some(character)),
                }
                continue;
            }
            match character {
                '%' => parts.push(Vec::new()),
                '_' => put(&mut parts, None),
                _ => put(&mut parts, Some(character)),
            }
        }
        let last = (parts.len() > 1).then(|| parts.pop().unwrap_or_default());
        let mut parts = parts.into_iter();
        let first = Part::new(parts.next().unwrap_or_default());
        let rest = last.map(|last| Rest {
            // Several % in a row match what one does.
            middle: parts.filter(|part| !part.is_empty()).map(Part::new).collect(),
            last: Part::new(last),
        });
        Ok(Self { first, rest })
    }

    /// Whether the whole text matches. Without `_` that takes a time that grows with the sum of both
    /// lengths; a part with `_` costs a step for each character of the text and 64 of its own (SQL-41).
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(mut text) = self.first.leads(text) else { return false };
        let Some(Rest { middle, last }) = &self.rest else { return text.is_empty() };
        let Some(rest) = last.ends(text) else { return false };
        text = rest;
        // Where a part stands first, more is left for those behind it than anywhere later.
        middle.iter().all(|part| part.find(text).map(|rest| text = rest).is_some())
    }

    /// What it takes in memory beside itself, about, on the high side.
    pub(super) fn memory_bytes(&self) -> usize {
        let rest = self.rest.iter().flat_map(|rest| rest.middle.iter().chain([&rest.last]));
        let parts = rest.chain([&self.first]);
        parts.map(|part| size_of::<Part>() + part.memory_bytes()).sum()
    }

    /// Steps that [`Pattern::matches`] takes at most for each byte of a text.
    pub(super) fn steps_per_byte(&self) -> u64 {
        // Parts are found one behind the other: it is one pass, at the pace of the slowest.
        let parts = self.rest.iter().flat_map(|rest| rest.middle.iter());
        let slowest = parts.map(|part| match part {
            Part::Plain(_) => 1,
            Part::Wild(wild) => 2 * wild.words() as u64,
        });
        slowest.max().unwrap_or(1)
    }
}

impl Part {
    fn new(characters: Vec<Option<char>>) -> Self {
        match characters.iter().copied().collect::<Option<String>>() {
            Some(plain) => Self::Plain(plain.into()),
            None => Self::Wild(Wild::new(characters.into())),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Plain(part) => part.len() + ALLOCATION_BYTES,
            Self::Wild(wild) => wild.memory_bytes(),
        }
    }

    /// What is behind it, if the text begins with it.
    fn leads<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Plain(part) => text.strip_prefix(&**part),
            Self::Wild(wild) => {
                let mut rest = text.chars();
                let stands = |wanted: &Option<char>| {
                    rest.next().is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.characters.iter().all(stands).then_some(rest.as_str())
            }
        }
    }

    /// What is before it, if the text ends with it.
    fn ends<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Plain(part) => text.strip_suffix(&**part),
            Self::Wild(wild) => {
                let mut rest = text.chars();
                let stands = |wanted: &Option<char>| {
                    rest.next_back()
                        .is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.characters.iter().rev().all(stands).then_some(rest.as_str())
            }
        }
    }

    /// What is behind the first place where it stands.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Self::Plain(part) => text.find(&**part).and_then(|at| text.get(at + part.len()..)),
            Self::Wild(wild) => wild.find(text),
        }
    }
}

impl Wild {
    fn new(characters: Box<[Option<char>]>) -> Self {
        let words = characters.len().div_ceil(WORD_BITS);
        let bits = |places: &mut dyn Iterator<Item = usize>| {
            let mut bits = vec![0u64; words].into_boxed_slice();
            for place in places {
                set(&mut bits, place);
            }
            bits
        };
        let mut sorted: Vec<(char, usize)> = Vec::with_capacity(characters.len());
        let all = characters.iter().enumerate();
        sorted.extend(all.filter_map(|(place, wanted)| Some(((*wanted)?, place))));
        sorted.sort_unstable();
        let named = sorted.chunk_by(|(left, _), (right, _)| left == right);
        let named = named.filter_map(|same| {
            let mut places = same.iter().map(|(_, place)| *place);
            let places = match same.len() > words {
                true => Places::Many(bits(&mut places)),
                false => Places::Few(places.collect()),
            };
            Some((same.first()?.0, places))
        });
        let named = named.collect();
        let mut wild = characters.iter().enumerate().filter(|(_, wanted)| wanted.is_none());
        let any = bits(&mut std::iter::from_fn(|| wild.next().map(|(place, _)| place)));
        drop(wild);
        Self { characters, named, any }
    }

    fn memory_bytes(&self) -> usize {
        let named = self.named.iter().map(|(_, places)| {
            let places = match places {
                Places::Few(few) => size_of_val(&**few),
                Places::Many(many) => size_of_val(&**many),
            };
            size_of::<(char, Places)>() + ALLOCATION_BYTES + places
        });
        let own = size_of_val(&*self.characters) + size_of_val(&*self.any);
        3 * ALLOCATION_BYTES + own + named.sum::<usize>()
    }

    const fn words(&self) -> usize {
        self.any.len()
    }

    fn places(&self, character: char) -> Option<&Places> {
        let at = self.named.binary_search_by_key(&character, |(named, _)| *named).ok()?;
        self.named.get(at).map(|(_, places)| places)
    }

    /// What is behind the first place where it stands. A bit of `so_far` says that what was read last is
    /// the part up to there (Shift-And): a character of the text moves 64 of them on at once.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut so_far = vec![0u64; self.words()];
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            let mut carry = 1;
            for word in &mut so_far {
                let moved = *word << 1 | carry;
                carry = *word >> (WORD_BITS - 1);
                *word = moved;
            }
            let places = self.places(character);
            let few: &[usize] = match places {
                Some(Places::Few(few)) => few,
                Some(Places::Many(_)) | None => &[],
            };
            let stays = |so_far: &[u64], place: usize| {
                so_far
                    .get(place / WORD_BITS)
                    .is_some_and(|word| word >> (place % WORD_BITS) & 1 == 1)
            };
            // Those that the mask below would take away.
            let kept: SmallVec<[usize; 16]> =
                few.iter().copied().filter(|place| stays(&so_far, *place)).collect();
            for (at, word) in so_far.iter_mut().enumerate() {
                let mut may = self.any.get(at).copied().unwrap_or(0);
                if let Some(Places::Many(many)) = places {
                    may |= many.get(at).copied().unwrap_or(0);
                }
                *word &= may;
            }
            for place in kept {
                set(&mut so_far, place);
            }
            if stays(&so_far, self.characters.len() - 1) {
                return Some(rest.as_str());
            }
        }
        None
    }
}

/// Sets the bit of a place.
fn set(bits: &mut [u64], place: usize) {
    if let Some(word) = bits.get_mut(place / WORD_BITS) {
        *word |= 1 << (place % WORD_BITS);
    }
}

fn one_character(escape: &str) -> Result<char, Fault> {
    let mut characters = escape.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(Fault::EscapeLength(escape.chars().count())),
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that goes wrong may panic")]
mod tests {
    use super::Pattern;

    /// The definition, tried out in full.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            Some((wanted, rest)) => text.split_first().is_some_and(|(found, behind)| {
                (*wanted == '_' || wanted == found) && naive(rest, behind)
            }),
        }
    }

    /// SQL-25, SQL-26: every pattern of up to five characters over every text of up to six, and long
    /// parts over the border of a word.
    #[test]
    fn agrees_with_the_definition() {
        let words = |letters: &[char], length_max: u32| {
            let mut words = vec![Vec::new()];
            for length in 1..=length_max {
                let from = words.len() - letters.len().pow(length - 1);
                for at in from..from + letters.len().pow(length - 1) {
                    for letter in letters {
                        let mut word = words[at].clone();
                        word.push(*letter);
                        words.push(word);
                    }
                }
            }
            words
        };
        let texts = words(&['a', 'ß'], 6);
        for pattern in words(&['a', 'ß', '_', '%'], 5) {
            let understood = Pattern::new(&pattern.iter().collect::<String>(), None).unwrap();
            for text in &texts {
                let whole: String = text.iter().collect();
                let expected = naive(&pattern, text);
                assert_eq!(understood.matches(&whole), expected, "{pattern:?} {text:?}");
            }
        }
        for length in [1, 62, 63, 64, 65, 127, 128, 129, 200] {
            let part = format!("b{}_c", "a".repeat(length));
            let pattern = Pattern::new(&format!("%{part}%{part}%"), None).unwrap();
            let found = format!("b{}xc", "a".repeat(length));
            assert!(pattern.matches(&format!("ba{found}a{found}")));
            assert!(!pattern.matches(&format!("ba{found}a{}", &found[1..])));
        }
    }

    /// SQL-41: what a search from every place on would take a second for takes a thousandth, and the
    /// steps told are at least those taken.
    #[test]
    fn steps_do_not_grow_with_the_product_of_both_lengths() {
        let text = "a".repeat(32_000);
        for (pattern, steps_max) in [
            (format!("%{}b%", "a".repeat(950)), 40_000),
            (format!("%{}_b%", "a".repeat(950)), 32_000 * 31),
            (format!("%{}b", "%a".repeat(400)), 40_000),
        ] {
            let understood = Pattern::new(&pattern, None).unwrap();
            assert!(!understood.matches(&text));
            let steps = understood.steps_per_byte() * text.len() as u64;
            assert!(steps <= steps_max, "{steps} steps");
        }
    }
}
