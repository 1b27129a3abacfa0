//! Messages whose result a lost connection has left unknown, reported in a single line for all.
//! `report.rs` collects them.

/// Usual cause of an unknown result.
pub const CONNECTION_LOST: &str = "the connection was lost";

/// Consecutive places with an unknown result.
pub struct UnknownRun {
    one: &'static str,
    many: &'static str,
    /// First and last place.
    run: Option<(u64, u64)>,
}

impl UnknownRun {
    /// Creates an empty run; `one` and `many` name a place in singular and plural.
    pub const fn new(one: &'static str, many: &'static str) -> Self {
        Self { one, many, run: None }
    }

    pub fn add(&mut self, place: u64) {
        self.run = Some(self.run.map_or((place, place), |(first, _)| (first, place)));
    }

    /// Returns the report of the collected places, and clears them.
    pub fn take(&mut self, why: &str) -> Option<String> {
        let (first, last) = self.run.take()?;
        let which = if first == last {
            format!("{} {first}", self.one)
        } else {
            format!("{} {first} to {last}", self.many)
        };
        Some(format!("{which}: {why}; may have been stored"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_reported_once() {
        let mut lost = UnknownRun::new("line", "lines");
        assert_eq!(lost.take(CONNECTION_LOST), None);
        lost.add(7);
        let text = lost.take(CONNECTION_LOST).unwrap();
        assert_eq!(text, "line 7: the connection was lost; may have been stored");
        for place in 8..=263 {
            lost.add(place);
        }
        let text = lost.take(CONNECTION_LOST).unwrap();
        assert_eq!(text, "lines 8 to 263: the connection was lost; may have been stored");
        assert_eq!(lost.take(CONNECTION_LOST), None);
    }
}
