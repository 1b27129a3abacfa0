//! LIKE (SQL-25 to SQL-29).

use super::error::Fault;
use super::evaluate::OPERATION_STEPS;
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
    /// Steps for a byte of a text, at most.
    steps_per_byte: u64,
    /// Steps for all parts that are looked for, at most, however short a text is.
    steps_once: u64,
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
        let middle: &[Part] = rest.as_ref().map_or(&[], |rest| &rest.middle);
        // Parts are found one behind the other: it is one pass, at the pace of the slowest.
        let steps_per_byte = middle.iter().map(Part::steps_per_byte).max().unwrap_or(1);
        let steps_once = middle.iter().map(Part::steps_once).sum();
        Ok(Self { first, rest, steps_per_byte, steps_once })
    }

    /// Whether the whole text matches. Without `_` that takes a time that grows with the sum of both
    /// lengths; a part with `_` costs two steps for each character of the text and 64 of its own (SQL-41).
    pub(super) fn matches(&self, text: &str) -> bool {
        self.matches_counted(text, &mut |_| {})
    }

    /// Says how many steps it takes, as it takes them.
    fn matches_counted(&self, text: &str, count: &mut impl FnMut(usize)) -> bool {
        let Some(mut text) = self.first.leads(text, count) else { return false };
        let Some(Rest { middle, last }) = &self.rest else { return text.is_empty() };
        let Some(rest) = last.ends(text, count) else { return false };
        text = rest;
        // Where a part stands first, more is left for those behind it than anywhere later.
        middle.iter().all(|part| part.find(text, count).map(|rest| text = rest).is_some())
    }

    /// What it takes in memory beside itself, about, on the high side.
    pub(super) fn memory_bytes(&self) -> usize {
        let rest = self.rest.iter().flat_map(|rest| rest.middle.iter().chain([&rest.last]));
        let parts = rest.chain([&self.first]);
        parts.map(|part| size_of::<Part>() + part.memory_bytes()).sum()
    }

    /// Steps that [`Pattern::matches`] takes at most on a text of so many bytes.
    pub(super) const fn steps(&self, text_bytes: usize) -> u64 {
        // What is missing behind the last byte is looked for too.
        let bytes = (text_bytes as u64).saturating_add(1);
        self.steps_per_byte.saturating_mul(bytes).saturating_add(self.steps_once)
    }

    /// Times the bytes of a text and a kilobyte more, it is at least [`Pattern::steps`].
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

    /// What a text that has it has at least in bytes.
    fn bytes_min(&self) -> usize {
        match self {
            Self::Plain(part) => part.len(),
            Self::Wild(wild) => wild.characters.len(),
        }
    }

    /// Steps that [`Part::find`] takes at most for each byte of the text that it goes over.
    fn steps_per_byte(&self) -> u64 {
        match self {
            Self::Plain(_) => 1,
            Self::Wild(wild) => wild.steps_per_character() as u64,
        }
    }

    /// Steps that [`Part::find`] takes at most before it goes over the text: it prepares all of the part.
    fn steps_once(&self) -> u64 {
        OPERATION_STEPS.saturating_add(self.bytes_min() as u64)
    }

    /// What is behind it, if the text begins with it.
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

    /// What is before it, if the text ends with it.
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

    /// What is behind the first place where it stands.
    fn find<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        // A short text is not worth preparing a long part.
        if self.bytes_min() > text.len() {
            return None;
        }
        match self {
            Self::Plain(part) => {
                let behind = text.find(&**part).map(|at| at + part.len());
                // Beside what the search goes over, it looks at the part before (Two-Way).
                count(1 + part.len() + behind.unwrap_or(text.len()));
                text.get(behind?..)
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

    /// To read it, to find its places, and to look at each word with its bits or with places in it, of which
    /// there are no more than words (SQL-41).
    fn steps_per_character(&self) -> usize {
        let comparisons = self.named.len().next_power_of_two().ilog2() as usize + 1;
        1 + comparisons + 2 * self.words()
    }

    fn places(&self, character: char, count: &mut impl FnMut(usize)) -> Option<&Places> {
        let at = self.named.binary_search_by(|(named, _)| {
            count(1);
            named.cmp(&character)
        });
        self.named.get(at.ok()?).map(|(_, places)| places)
    }

    /// What is behind the first place where it stands. A bit of `so_far` says that what was read last is
    /// the part up to there (Shift-And): a character of the text moves 64 of them on at once.
    fn find<'t>(&self, text: &'t str, count: &mut impl FnMut(usize)) -> Option<&'t str> {
        count(self.words());
        let mut so_far = vec![0u64; self.words()];
        let end = (self.characters.len() - 1) % WORD_BITS;
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            count(1);
            let (few, many): (&[usize], &[u64]) = match self.places(character, count) {
                Some(Places::Few(few)) => (few, &[]),
                Some(Places::Many(many)) => (&[], many),
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
            (format!("%{}_b%", "a".repeat(950)), 32_000 * 34),
            (format!("%{}b", "%a".repeat(400)), 40_000),
        ] {
            let understood = Pattern::new(&pattern, None).unwrap();
            assert!(!understood.matches(&text));
            let told = understood.steps(text.len());
            assert!(taken(&understood, &text) <= told && told <= steps_max, "{told} steps");
        }
    }

    /// Steps that a match takes.
    fn taken(pattern: &Pattern, text: &str) -> u64 {
        let mut taken = 0;
        pattern.matches_counted(text, &mut |steps| taken += steps as u64);
        taken
    }

    /// SQL-41: whatever pattern and text are, no more steps are taken than were told.
    #[test]
    fn no_match_takes_more_steps_than_were_told() {
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
            // With few letters a part stands nearly everywhere; with many they take long to be found.
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
                // One that matches.
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
            let understood = Pattern::new(&pattern, None).unwrap();
            let (taken, told) = (taken(&understood, &text), understood.steps(text.len()));
            assert!(taken <= told, "{taken} steps, {told} were told: {pattern:?} on {text:?}");
            let foreseen = understood.weight() * (text.len() as u64 + 1_024);
            assert!(told <= foreseen, "{told} steps, {foreseen} were foreseen: {pattern:?}");
            matched += usize::from(understood.matches(&text));
        }
        assert!((900..1_900).contains(&matched), "{matched} of them match");
    }

    /// SQL-41: not many more steps are told than the worst text takes.
    #[test]
    fn no_more_steps_are_told_than_the_worst_text_takes() {
        let text = "a".repeat(32_000);
        for pattern in [
            "%ab%".to_owned(),
            // A part of one word, of few, and of many, with so many `a` that their places are one by one.
            format!("%a{}b%", "_".repeat(62)),
            format!("%aaa{}b%", "_".repeat(3 * 64 - 4)),
            format!("%{}{}b%", "a".repeat(15), "_".repeat(15 * 64 - 16)),
            // One more, and they are bits.
            format!("%{}{}b%", "a".repeat(16), "_".repeat(15 * 64 - 17)),
            format!("%{}_b%", "a".repeat(950)),
        ] {
            let understood = Pattern::new(&pattern, None).unwrap();
            let (taken, told) = (taken(&understood, &text), understood.steps(text.len()));
            assert!(taken <= told, "{taken} steps, {told} were told: {pattern}");
            assert!(taken > told - told / 100, "{taken} steps, {told} were told: {pattern}");
        }
    }
}
