//! Decides which contents are possible after an ending.
//!
//! The order of answers is the order of the log. The newest acknowledged batches may be lost, back
//! to the last one that must be kept. Only if none is lost, batches without an answer may also be
//! there: the first ones of each shard, in order. Shards do not wait for each other, and batches
//! without an answer do not change records of other shards' batches.

use crate::book::Book;
use crate::oracle::State;

/// Acknowledged batches that an ending may lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Unsynced batches, with all later ones.
    Sudden,
    /// None.
    Closed,
}

/// Checks the contents found at an opening. Returns the number of stored batches, or the lowest if
/// several are possible.
pub fn judge(book: &Book, found: &State, ending: Ending) -> Result<usize, String> {
    let must_be_kept = |place: &usize| ending == Ending::Closed || book.batches[*place].synced;
    let kept_min = book.stored.iter().rposition(must_be_kept).map_or(0, |index| index + 1);
    let mut nearest = (usize::MAX, String::new());
    let mut compare = |state: &State, what: &dyn Fn() -> String| match state.difference(found) {
        None => true,
        Some((differing, difference)) => {
            if differing < nearest.0 {
                nearest = (differing, format!("nearest is {}: {difference}", what()));
            }
            false
        }
    };
    let mut state = book.base.clone();
    for count in 0..=book.stored.len() {
        if let Some(index) = count.checked_sub(1) {
            state.apply(&book.batches[book.stored[index]].ops);
        }
        let is_same = compare(&state, &|| format!("the state after {count} answers"));
        if is_same && count >= kept_min {
            return Ok(count);
        }
    }
    let uncertain = book.uncertain();
    let mut counts = vec![0; uncertain.len()];
    while next_combination(&mut counts, &uncertain.iter().map(Vec::len).collect::<Vec<_>>()) {
        let mut state = state.clone();
        for (batches, count) in uncertain.iter().zip(&counts) {
            for batch in &batches[..*count] {
                state.apply(&batch.ops);
            }
        }
        if compare(&state, &|| format!("all answers, and {counts:?} unanswered batches of shards"))
        {
            return Ok(book.stored.len() + counts.iter().sum::<usize>());
        }
    }
    Err(format!(
        "{ending:?} end: of {} stored and {} other batches at least {kept_min} had to be kept; {}",
        book.stored.len(),
        book.batches.len() - book.stored.len(),
        nearest.1
    ))
}

/// Increments to the next combination; `false` after the last.
fn next_combination(counts: &mut [usize], limits: &[usize]) -> bool {
    for (count, limit) in counts.iter_mut().zip(limits) {
        if *count < *limit {
            *count += 1;
            return true;
        }
        *count = 0;
    }
    false
}
