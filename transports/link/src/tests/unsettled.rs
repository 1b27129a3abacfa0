//! The table of unsettled deliveries.
use super::stand::{at, token};
use crate::unsettled::{DeliveryPosition, Unsettled};
use peeklock_core::command::LockGrant;

fn table(deliveries: &[(u32, u64, u64)]) -> Unsettled {
    let mut table = Unsettled::default();
    for (link, number, sequence) in deliveries {
        let lock = LockGrant { token: token(*sequence), until: at(*sequence) };
        table.insert(DeliveryPosition { link: *link, number: *number }, lock);
    }
    table
}

/// A delivery is found by its lock across all links of the connection (SET-24).
#[test]
fn a_delivery_is_found_by_its_lock_across_links() {
    let mut table = table(&[(1, 1, 10), (2, 1, 20), (2, 2, 30)]);
    assert_eq!(table.find_by_lock(token(20)), Some(DeliveryPosition { link: 2, number: 1 }));
    assert_eq!(table.remove(token(20)), Some(DeliveryPosition { link: 2, number: 1 }));
    assert_eq!(table.remove(token(20)), None);
    assert_eq!((table.count(1), table.count(2)), (1, 1));
    table.remove_link(2);
    assert_eq!(table.find_by_lock(token(30)), None);
    assert!(!table.is_empty());
    table.remove_ended(1, at(9));
    assert_eq!(table.count(1), 1);
    table.remove_ended(1, at(10));
    assert!(table.is_empty());
}

/// Numbers without a delivery become gaps between deliveries; repeated ranges add no gaps.
#[test]
fn gaps_that_touch_are_one() {
    let table = table(&[(1, 3, 10), (1, 6, 20)]);
    let named = table.lookup_ranges(1, [(1, 8)].into_iter(), 8).unwrap();
    assert_eq!(named.held, [(3, token(10)), (6, token(20))]);
    assert_eq!(named.gaps, [(1, 2), (4, 5), (7, 8)]);
    let named = table.lookup_ranges(1, std::iter::repeat_n((1, 1), 4_096), 8).unwrap();
    assert_eq!(named.gaps, [(1, 1)]);
    assert!(table.lookup_ranges(1, [(1, 8)].into_iter(), 1).is_none());
    assert_eq!(table.lookup_ranges(9, [(1, 8)].into_iter(), 1).unwrap().gaps, [(1, 8)]);
}
