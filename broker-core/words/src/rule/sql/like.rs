//! LIKE patterns (SQL-25 to SQL-29). The parser compiles constant patterns, and the evaluation
//! compiles others; both predict their steps (SQL-41).

use super::error::Fault;
use super::evaluate::OPERATION_STEPS;
use crate::rule::ALLOCATION_BYTES;

/// Number of characters that a word of a [`Wild`] tracks.
const WORD_BITS: usize = u64::BITS as usize;

/// A compiled pattern: the start of the text, then parts that are each searched for as early as
/// possible, and the end of the text.
///
/// ```text
///  'a_b%cd%_e'      first a_b    middle cd    last _e
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern {
    first: Part,
    /// `None` for a pattern without `%`: then the text must equal `first`.
    rest: Option<Rest>,
    /// Maximum number of steps for each byte of a text.
    steps_per_byte: u64,
    /// Maximum number of steps for all searched parts, in addition, even for a short text.
    steps_once: u64,
}

/// The parts after the first `%`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rest {
    middle: Box<[Part]>,
    last: Part,
}

/// A part between two `%`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    /// Without `_`: searched as text.
    Plain(Box<str>),
    Wild(Wild),
}

/// With `_`: `None` is any character.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wild {
    characters: Box<[Option<char>]>,
    /// The positions of each literal character, ascending.
    named: Box<[(char, Positions)]>,
    /// The positions of `_`, one bit each.
    any: Box<[u64]>,
}

/// Positions of a character in a part, in the smaller form.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Positions {
    /// A list of positions.
    List(Box<[usize]>),
    /// One bit for each position.
    Bits(Box<[u64]>),
}

impl Pattern {
    /// Compiles a pattern and its escape (SQL-26, SQL-27).
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
                    // Before any other character, the escape is literal (SQL-26).
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
            // Several % in a row match the same texts as a single one.
            middle: parts.filter(|part| !part.is_empty()).map(Part::new).collect(),
            last: Part::new(last),
        });
        let middle: &[Part] = rest.as_ref().map_or(&[], |rest| &rest.middle);
        // Parts are searched one after the other, so the text is passed once, at the pace of the
        // slowest part.
        let steps_per_byte = middle.iter().map(Part::steps_per_byte).max().unwrap_or(1);
        let steps_once = middle.iter().map(Part::steps_once).sum();
        Ok(Self { first, rest, steps_per_byte, steps_once })
    }

    /// Whether the whole text matches. Without `_`, the time grows with the sum of both lengths. A
    /// part with `_` costs two steps for each character of the text and for each 64 characters of
    /// the part (SQL-41).
    pub(super) fn matches(&self, text: &str) -> bool {
        self.matches_counted(text, &mut |_| {})
    }

    /// Whether the text matches. Passes the steps to `count` as it takes them.
    fn matches_counted(&self, text: &str, count: &mut impl FnMut(usize)) -> bool {
        let Some(mut text) = self.first.leads(text, count) else { return false };
        let Some(Rest { middle, last }) = &self.rest else { return text.is_empty() };
        let Some(rest) = last.ends(text, count) else { return false };
        text = rest;
        // The first position of a part leaves the most text for later parts.
        middle.iter().all(|part| part.find(text, count).map(|rest| text = rest).is_some())
    }

    /// Bytes of memory that the pattern owns: an estimate, on the high side.
    pub(super) fn memory_bytes(&self) -> usize {
        let rest = self.rest.iter().flat_map(|rest| rest.middle.iter().chain([&rest.last]));
        let parts = rest.chain([&self.first]);
        parts.map(|part| size_of::<Part>() + part.memory_bytes()).sum()
    }

    /// Maximum number of steps of [`Pattern::matches`] for a text of `text_bytes` bytes.
    pub(super) const fn steps(&self, text_bytes: usize) -> u64 {
        // The end of the text counts as a byte.
        let bytes = (text_bytes as u64).saturating_add(1);
        self.steps_per_byte.saturating_mul(bytes).saturating_add(self.steps_once)
    }

    /// A factor: multiplied by the bytes of a text plus 1,024, it is at least [`Pattern::steps`].
    pub(super) const fn weight(&self) -> u64 {
        self.steps_per_byte + self.steps_once / 1_024
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

    /// Minimum number of bytes of a text that contains the part.
    fn bytes_min(&self) -> usize {
        match self {
            Self::Plain(part) => part.len(),
            Self::Wild(wild) => wild.characters.len(),
        }
    }

    /// Maximum number of steps of [`Part::find`] for each byte of text.
    fn steps_per_byte(&self) -> u64 {
        match self {
            Self::Plain(_) => 1,
            Self::Wild(wild) => wild.steps_per_character() as u64,
        }
    }

    /// Maximum number of steps of [`Part::find`] before it reads the text, because it prepares the
    /// whole part.
    fn steps_once(&self) -> u64 {
        OPERATION_STEPS.saturating_add(self.bytes_min() as u64)
    }

    /// The text after the part, if the text begins with it.
    fn leads<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        match self {
            Self::Plain(part) => {
                count(part.len().min(text.len()));
                text.strip_prefix(&**part)
            }
            Self::Wild(wild) => {
                let mut rest = text.chars();
                let stands = |wanted: &Option<char>| {
                    count(1);
                    rest.next().is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.characters.iter().all(stands).then_some(rest.as_str())
            }
        }
    }

    /// The text before the part, if the text ends with it.
    fn ends<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        match self {
            Self::Plain(part) => {
                count(part.len().min(text.len()));
                text.strip_suffix(&**part)
            }
            Self::Wild(wild) => {
                let mut rest = text.chars();
                let stands = |wanted: &Option<char>| {
                    count(1);
                    rest.next_back()
                        .is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.characters.iter().rev().all(stands).then_some(rest.as_str())
            }
        }
    }

    /// The text after the first occurrence.
    fn find<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        // Preparing a long part costs more than a short text.
        if self.bytes_min() > text.len() {
            return None;
        }
        match self {
            Self::Plain(part) => {
                let rest_from = text.find(&**part).map(|at| at + part.len());
                // The search (Two-Way) also reads the part before the text.
                count(1 + part.len() + rest_from.unwrap_or(text.len()));
                text.get(rest_from?..)
            }
            Self::Wild(wild) => wild.find(text, count),
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
                true => Positions::Bits(bits(&mut places)),
                false => Positions::List(places.collect()),
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
                Positions::List(few) => size_of_val(&**few),
                Positions::Bits(many) => size_of_val(&**many),
            };
            size_of::<(char, Positions)>() + ALLOCATION_BYTES + places
        });
        let own = size_of_val(&*self.characters) + size_of_val(&*self.any);
        3 * ALLOCATION_BYTES + own + named.sum::<usize>()
    }

    const fn words(&self) -> usize {
        self.any.len()
    }

    /// Steps of a character of the text: reading it, finding its positions, and updating each word
    /// with its bits or positions, of which there are at most as many as words (SQL-41).
    fn steps_per_character(&self) -> usize {
        let comparisons = self.named.len().next_power_of_two().ilog2() as usize + 1;
        1 + comparisons + 2 * self.words()
    }

    fn places(&self, character: char, count: &mut impl FnMut(usize)) -> Option<&Positions> {
        let at = self.named.binary_search_by(|(named, _)| {
            count(1);
            named.cmp(&character)
        });
        self.named.get(at.ok()?).map(|(_, places)| places)
    }

    /// The text after the first occurrence. A set bit of `so_far` means that the text read so far
    /// ends with the part up to that position (Shift-And). A character of the text updates 64
    /// positions at a time.
    fn find<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        count(self.words());
        let mut so_far = vec![0u64; self.words()];
        let end = (self.characters.len() - 1) % WORD_BITS;
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            count(1);
            let (few, many): (&[usize], &[u64]) = match self.places(character, count) {
                Some(Positions::List(few)) => (few, &[]),
                Some(Positions::Bits(many)) => (&[], many),
                None => (&[], &[]),
            };
            let mut few = few.iter().copied().peekable();
            let mut carry = 1;
            for (at, (word, any)) in so_far.iter_mut().zip(&self.any).enumerate() {
                count(1);
                let mut may = *any;
                if let Some(places) = many.get(at) {
                    count(1);
                    may |= places;
                }
                while let Some(place) = few.next_if(|place| *place / WORD_BITS == at) {
                    count(1);
                    may |= 1 << (place % WORD_BITS);
                }
                let moved = *word << 1 | carry;
                carry = *word >> (WORD_BITS - 1);
                *word = moved & may;
            }
            if so_far.last().is_some_and(|word| word >> end & 1 == 1) {
                return Some(rest.as_str());
            }
        }
        None
    }
}

/// Sets the bit of a position.
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

    /// The definition, by exhaustive search.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            Some((wanted, rest)) => text.split_first().is_some_and(|(found, tail)| {
                (*wanted == '_' || wanted == found) && naive(rest, tail)
            }),
        }
    }

    /// SQL-25, SQL-26: every pattern of up to five characters over every text of up to six, and
    /// long parts across the border of a word.
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
            let compiled = Pattern::new(&pattern.iter().collect::<String>(), None).unwrap();
            for text in &texts {
                let whole: String = text.iter().collect();
                let expected = naive(&pattern, text);
                assert_eq!(compiled.matches(&whole), expected, "{pattern:?} {text:?}");
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

    /// SQL-41: a search that would take a second with restarts at every position takes a
    /// thousandth, and the predicted steps are an upper bound.
    #[test]
    fn steps_do_not_grow_with_the_product_of_both_lengths() {
        let text = "a".repeat(32_000);
        for (pattern, steps_max) in [
            (format!("%{}b%", "a".repeat(950)), 40_000),
            (format!("%{}_b%", "a".repeat(950)), 32_000 * 34),
            (format!("%{}b", "%a".repeat(400)), 40_000),
        ] {
            let compiled = Pattern::new(&pattern, None).unwrap();
            assert!(!compiled.matches(&text));
            let predicted = compiled.steps(text.len());
            assert!(
                taken(&compiled, &text) <= predicted && predicted <= steps_max,
                "{predicted} steps"
            );
        }
    }

    /// Number of steps of a match.
    fn taken(pattern: &Pattern, text: &str) -> u64 {
        let mut taken = 0;
        pattern.matches_counted(text, &mut |steps| taken += steps as u64);
        taken
    }

    /// SQL-41: a match takes no more steps than predicted, for any pattern and text.
    #[test]
    fn match_never_exceeds_predicted_steps() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % below as u64).unwrap()
        };
        let letters: Vec<char> = ('a'..='z').chain('α'..='ω').chain('一'..='十').take(64).collect();
        let mut matched = 0;
        for _ in 0..2_000 {
            // With few letters, a part occurs nearly everywhere. With many, finding one takes long.
            let letters = &letters[..[1, 2, 3, 64][random(4)]];
            let length_max = [5, 70, 140, 800][random(4)];
            let length = 1 + random(length_max);
            let (any, wild) = ([3, 30, 1_000][random(3)], [2, 10, 200][random(3)]);
            let pattern: Vec<char> = (0..length)
                .map(|_| match (random(any), random(wild)) {
                    (0, _) => '%',
                    (_, 0) => '_',
                    _ => letters[random(letters.len())],
                })
                .collect();
            let mut text = String::new();
            if random(2) == 0 {
                // A text that matches.
                for wanted in &pattern {
                    let count = if *wanted == '%' { random(4) } else { 1 };
                    let is_letter = !matches!(wanted, '%' | '_');
                    for _ in 0..count {
                        text.push(if is_letter { *wanted } else { letters[random(letters.len())] });
                    }
                }
            } else {
                let count = random(1_500);
                text.extend((0..count).map(|_| letters[random(letters.len())]));
            }
            let pattern: String = pattern.iter().collect();
            let compiled = Pattern::new(&pattern, None).unwrap();
            let (taken, predicted) = (taken(&compiled, &text), compiled.steps(text.len()));
            assert!(
                taken <= predicted,
                "{taken} steps, {predicted} were predicted: {pattern:?} on {text:?}"
            );
            let foreseen = compiled.weight() * (text.len() as u64 + 1_024);
            assert!(
                predicted <= foreseen,
                "{predicted} steps, {foreseen} were foreseen: {pattern:?}"
            );
            matched += usize::from(compiled.matches(&text));
        }
        assert!((900..1_900).contains(&matched), "{matched} of them match");
    }

    /// SQL-41: the prediction is close to the steps for the worst text.
    #[test]
    fn predicted_steps_are_close_to_the_worst_text() {
        let text = "a".repeat(32_000);
        for pattern in [
            "%ab%".to_owned(),
            // A part of a single word, of few words, and of many, with few enough `a` that their
            // positions are a list.
            format!("%a{}b%", "_".repeat(62)),
            format!("%aaa{}b%", "_".repeat(3 * 64 - 4)),
            format!("%{}{}b%", "a".repeat(15), "_".repeat(15 * 64 - 16)),
            // One more `a`, and the positions are bits.
            format!("%{}{}b%", "a".repeat(16), "_".repeat(15 * 64 - 17)),
            format!("%{}_b%", "a".repeat(950)),
        ] {
            let compiled = Pattern::new(&pattern, None).unwrap();
            let (taken, predicted) = (taken(&compiled, &text), compiled.steps(text.len()));
            assert!(taken <= predicted, "{taken} steps, {predicted} were predicted: {pattern}");
            assert!(
                taken > predicted - predicted / 100,
                "{taken} steps, {predicted} were predicted: {pattern}"
            );
        }
    }
}
