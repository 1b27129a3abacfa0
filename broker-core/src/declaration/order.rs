//! Orders new entities so that destinations exist before the entities that forward to them
//! (DEC-07). `planner.rs` calls it.

use std::collections::BTreeSet;

use super::yielder::Yielder;

/// A position in the order.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct OrderedEntity {
    /// Index of the entity.
    pub(super) index: usize,
    /// Its needs that come later; not empty only for an entity on a circle.
    pub(super) later: Vec<usize>,
}

/// Orders entities so that each comes after all entities that it needs. In a circle that is
/// impossible: there one entity comes first, before a need of its own, and [`OrderedEntity::later`]
/// names that need.
pub(super) async fn order(needs: &[Vec<usize>], yielder: &mut Yielder) -> Vec<OrderedEntity> {
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    let mut unmet: Vec<BTreeSet<usize>> = Vec::with_capacity(needs.len());
    for (index, of) in needs.iter().enumerate() {
        let of: BTreeSet<usize> = of.iter().copied().filter(|need| *need < needs.len()).collect();
        for need in &of {
            if let Some(dependents) = needed_by.get_mut(*need) {
                dependents.push(index);
            }
        }
        unmet.push(of);
        yielder.step().await;
    }
    let mut waiting: BTreeSet<usize> = (0..needs.len()).collect();
    let mut ready: BTreeSet<usize> =
        unmet.iter().enumerate().filter(|(_, of)| of.is_empty()).map(|(index, _)| index).collect();
    let mut placed = Vec::with_capacity(needs.len());
    while let Some(first) = waiting.first().copied() {
        let index = match ready.pop_first() {
            Some(index) => index,
            None => find_circle(first, &unmet, yielder).await,
        };
        yielder.step().await;
        waiting.remove(&index);
        let later = unmet.get_mut(index).map(std::mem::take).unwrap_or_default();
        placed.push(OrderedEntity { index, later: later.into_iter().collect() });
        for dependent in needed_by.get(index).into_iter().flatten() {
            let Some(of) = unmet.get_mut(*dependent) else { continue };
            of.remove(&index);
            if of.is_empty() && waiting.contains(dependent) {
                ready.insert(*dependent);
            }
        }
    }
    placed
}

/// Follows needs until an index repeats. If no entity is ready, a circle exists.
async fn find_circle(first: usize, unmet: &[BTreeSet<usize>], yielder: &mut Yielder) -> usize {
    let (mut at, mut seen) = (first, BTreeSet::new());
    while seen.insert(at) {
        at = unmet.get(at).and_then(BTreeSet::first).copied().unwrap_or(first);
        // Many circles may follow from one long chain.
        yielder.step().await;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::yielder::run_counting_yields;
    use super::*;

    fn ordered(needs: &[Vec<usize>]) -> (Vec<OrderedEntity>, usize) {
        run_counting_yields(async { order(needs, &mut Yielder::default()).await })
    }

    fn check(needs: &[&[usize]], expected: &[(usize, &[usize])]) {
        let needs: Vec<Vec<usize>> = needs.iter().map(|of| of.to_vec()).collect();
        let (placed, _) = ordered(&needs);
        let placed: Vec<_> =
            placed.iter().map(|placed| (placed.index, placed.later.as_slice())).collect();
        assert_eq!(placed, expected, "{needs:?}");
    }

    /// DEC-07: needs come first, for any given order. Of a circle, one entity comes before its
    /// need, and entities that need the circle come after it.
    #[test]
    fn needs_come_first() {
        check(&[], &[]);
        check(&[&[], &[]], &[(0, &[]), (1, &[])]);
        check(&[&[1], &[2], &[]], &[(2, &[]), (1, &[]), (0, &[])]);
        check(&[&[2, 2], &[2], &[]], &[(2, &[]), (0, &[]), (1, &[])]);
        check(&[&[1], &[0]], &[(0, &[1]), (1, &[])]);
        check(&[&[1], &[2], &[1]], &[(1, &[2]), (0, &[]), (2, &[])]);
        // A recursion this deep would overflow the stack.
        let long: Vec<Vec<usize>> = (1..=50_000).map(|next| vec![next % 50_000]).collect();
        let (placed, yields) = ordered(&long);
        assert_eq!(placed.iter().filter(|placed| !placed.later.is_empty()).count(), 1);
        assert_eq!(placed.len(), long.len());
        // DESIGN D6: other tasks run many times meanwhile.
        assert!(yields > 20, "{yields}");
    }
}
