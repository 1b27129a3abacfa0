//! Directed links between nodes, and the chains and circles that they form.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Directed links between nodes, which are numbers from 0.
pub(crate) struct Links {
    out: Vec<Vec<Link>>,
    back: Vec<Vec<Link>>,
}

/// A link to a node.
#[derive(Clone, Copy)]
struct Link {
    to: usize,
    /// Number of hops: 0 for a copy from a topic to its subscription, 1 for a transfer.
    hops: u8,
}

/// The longest way that begins at a node, without links within a circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Way {
    /// Number of hops.
    pub(crate) hops: u32,
    /// The next node.
    next: Option<usize>,
    /// Whether a link from outside of its circles leads to the node.
    pub(crate) has_link_before: bool,
}

/// Chains and circles of links.
pub(crate) struct Structure {
    /// The longest way from each node.
    pub(crate) ways: Vec<Way>,
    /// Circles that have no node in common, one for each group of nodes that reach each other.
    pub(crate) circles: Vec<Vec<usize>>,
}

impl Links {
    /// Takes the links between `count` nodes: from, to, hops.
    pub(crate) fn new(count: usize, links: impl IntoIterator<Item = (usize, usize, u8)>) -> Self {
        let (mut out, mut back) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (from, to, hops) in links {
            if let (Some(out), Some(back)) = (out.get_mut(from), back.get_mut(to)) {
                out.push(Link { to, hops });
                back.push(Link { to: from, hops });
            }
        }
        Self { out, back }
    }

    fn out(&self, node: usize) -> &[Link] {
        self.out.get(node).map_or(&[], Vec::as_slice)
    }

    fn back(&self, node: usize) -> &[Link] {
        self.back.get(node).map_or(&[], Vec::as_slice)
    }

    /// Whether a node has a link in either direction.
    pub(crate) fn is_linked(&self, node: usize) -> bool {
        !(self.out(node).is_empty() && self.back(node).is_empty())
    }

    /// Returns the nodes within `hops_max` hops of a node in either direction, the nearest first.
    pub(crate) fn near(&self, start: usize, hops_max: u8) -> Vec<usize> {
        let mut is_found = vec![false; self.out.len()];
        let mut found = Vec::new();
        let mut queue = VecDeque::from([(start, 0_u8)]);
        while let Some((node, hops)) = queue.pop_front() {
            match is_found.get_mut(node) {
                Some(is_found) if !*is_found => *is_found = true,
                _ => continue,
            }
            found.push(node);
            for link in self.out(node).iter().chain(self.back(node)) {
                match link.hops {
                    0 => queue.push_front((link.to, hops)),
                    more if hops.saturating_add(more) <= hops_max => {
                        queue.push_back((link.to, hops.saturating_add(more)));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Finds the longest chains, and the circles.
    pub(crate) fn structure(&self) -> Structure {
        let order = self.postorder();
        let group_of = self.groups(&order);
        let group = |node: usize| group_of.get(node).copied();
        let mut ways = vec![Way::default(); self.out.len()];
        // The first node of each circle by its group.
        let mut circles: BTreeMap<Option<usize>, usize> = BTreeMap::new();
        // A node that is reached from another group comes before the nodes that reach it.
        for node in order {
            let mut way = Way::default();
            for link in self.out(node).iter().filter(|link| group(link.to) != group(node)) {
                let hops = ways.get(link.to).map_or(0, |way| way.hops) + u32::from(link.hops);
                if hops > way.hops {
                    (way.hops, way.next) = (hops, Some(link.to));
                }
            }
            let is_from_outside = |link: &Link| group(link.to) != group(node);
            way.has_link_before = self.back(node).iter().any(is_from_outside);
            if self.out(node).iter().any(|link| group(link.to) == group(node)) {
                let first = circles.entry(group(node)).or_insert(node);
                *first = node.min(*first);
            }
            if let Some(place) = ways.get_mut(node) {
                *place = way;
            }
        }
        let mut circles: Vec<usize> = circles.into_values().collect();
        circles.sort_unstable();
        let circles = circles.into_iter().map(|node| self.circle(node, &group_of)).collect();
        Structure { ways, circles }
    }

    /// Returns the nodes, each after all nodes that it reaches over nodes that are new.
    fn postorder(&self) -> Vec<usize> {
        let mut is_found = vec![false; self.out.len()];
        let mut order = Vec::with_capacity(self.out.len());
        let mut find = |node: usize| match is_found.get_mut(node) {
            Some(is_found) => !std::mem::replace(is_found, true),
            None => false,
        };
        let mut stack = Vec::new();
        for start in 0..self.out.len() {
            if find(start) {
                stack.push((start, 0));
            }
            while let Some((node, place)) = stack.pop() {
                match self.out(node).get(place) {
                    Some(link) => {
                        stack.push((node, place + 1));
                        if find(link.to) {
                            stack.push((link.to, 0));
                        }
                    }
                    None => order.push(node),
                }
            }
        }
        order
    }

    /// Returns for each node the number of its group: the nodes that it reaches and that reach it.
    fn groups(&self, postorder: &[usize]) -> Vec<usize> {
        let mut group_of = vec![None; self.out.len()];
        let mut count = 0;
        let mut stack = Vec::new();
        for root in postorder.iter().rev() {
            stack.push(*root);
            let before = count;
            while let Some(node) = stack.pop() {
                let Some(group) = group_of.get_mut(node).filter(|group| group.is_none()) else {
                    continue;
                };
                *group = Some(before);
                count = before + 1;
                stack.extend(self.back(node).iter().map(|link| link.to));
            }
        }
        group_of.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Returns the shortest circle through a node, which begins with this node.
    fn circle(&self, start: usize, group_of: &[usize]) -> Vec<usize> {
        let mut before = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for link in
                self.out(node).iter().filter(|it| group_of.get(it.to) == group_of.get(start))
            {
                if link.to == start {
                    let mut circle = vec![node];
                    let mut at = node;
                    while let Some(earlier) = before.get(&at) {
                        circle.push(*earlier);
                        at = *earlier;
                    }
                    circle.reverse();
                    return circle;
                }
                if let Entry::Vacant(place) = before.entry(link.to) {
                    place.insert(node);
                    queue.push_back(link.to);
                }
            }
        }
        Vec::new()
    }
}

impl Structure {
    /// Iterates over the nodes of the longest way from a node, which begins with this node.
    pub(crate) fn chain(&self, start: usize) -> impl Iterator<Item = usize> {
        let next = |node: &usize| self.ways.get(*node).and_then(|way| way.next);
        std::iter::successors(Some(start), next)
    }

    /// Returns the first node of the longest way; none if there is no hop.
    pub(crate) fn longest(&self) -> Option<usize> {
        let ways = self.ways.iter().enumerate().filter(|(_, way)| way.hops > 0);
        // A way that begins at a topic is as long as the way from its subscription.
        let longest = ways
            .max_by_key(|(node, way)| (way.hops, !way.has_link_before, std::cmp::Reverse(*node)));
        longest.map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: u8 = 1;

    /// CON-38: chains count transfers only, and end before a circle.
    #[test]
    fn chains_count_hops_and_end_before_a_circle() {
        // 0 -> 1 (copy) -> 2 -> 3 -> 4 <-> 5, 6 alone.
        let links = [(0, 1, 0), (1, 2, HOP), (2, 3, HOP), (3, 4, HOP), (4, 5, HOP), (5, 4, HOP)];
        let structure = Links::new(7, links).structure();
        assert_eq!(structure.longest(), Some(0));
        assert_eq!(structure.chain(0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(
            structure.ways.iter().map(|way| way.hops).collect::<Vec<_>>(),
            [3, 3, 2, 1, 0, 0, 0]
        );
        assert_eq!(structure.circles, [[4, 5]]);
        assert_eq!(Links::new(2, [(0, 1, 0)]).structure().longest(), None);
        assert_eq!(Links::new(0, []).structure().longest(), None);
    }

    /// CON-38, CON-39: a node that links to itself is a circle, and circles that share nodes are
    /// one.
    #[test]
    fn each_group_has_one_circle() {
        let links = [(0, 0, HOP), (1, 2, HOP), (2, 1, HOP), (2, 3, HOP), (3, 1, HOP), (4, 5, HOP)];
        let structure = Links::new(6, links).structure();
        assert_eq!(structure.circles, [vec![0], vec![1, 2]]);
    }

    /// CON-38: nodes are near in either direction, and a copy costs no hop.
    #[test]
    fn nearness_counts_hops_in_both_directions() {
        let links = Links::new(6, [(0, 1, 0), (1, 2, HOP), (2, 3, HOP), (4, 2, HOP)]);
        let near = |start, hops| {
            let mut near = links.near(start, hops);
            near.sort_unstable();
            near
        };
        assert_eq!(near(0, 0), [0, 1]);
        assert_eq!(near(0, 1), [0, 1, 2]);
        assert_eq!(near(2, 1), [0, 1, 2, 3, 4]);
        assert_eq!(near(5, u8::MAX), [5]);
        assert!(links.is_linked(3) && !links.is_linked(5));
    }

    /// CON-38: long chains take no stack.
    #[test]
    fn long_chains_are_measured() {
        let count = 200_000;
        let structure = Links::new(count, (1..count).map(|node| (node - 1, node, HOP))).structure();
        assert_eq!(structure.chain(0).count(), count);
        assert!(structure.circles.is_empty());
    }
}
