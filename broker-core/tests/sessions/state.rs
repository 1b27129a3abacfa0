//! The state of a session (SES-24 to SES-28).

use peeklock_core::command::LinkEnd;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::store::Reserved;

use crate::stand::{Stand, sessionful};

/// SES-24, SES-25: null at first, kept for the next holder, cleared with null; empty is not null.
#[test]
fn a_state_stays_until_it_is_cleared() {
    let mut stand = Stand::new();
    stand.accept(Some("a"), 1).unwrap();
    assert_eq!(stand.state(1), Ok(None));
    stand.set_state(1, Some(b"step 1")).unwrap();
    stand.set_state(1, Some(b"step 2")).unwrap();
    assert_eq!(stand.state(1), Ok(Some(b"step 2".to_vec())));
    stand.close(1, LinkEnd::Broken);
    stand.accept(Some("a"), 2).unwrap();
    assert_eq!(stand.state(2), Ok(Some(b"step 2".to_vec())));
    stand.set_state(2, Some(b"")).unwrap();
    assert_eq!(stand.state(2), Ok(Some(Vec::new())));
    stand.set_state(2, None).unwrap();
    assert_eq!(stand.state(2), Ok(None));
    assert_eq!(stand.describe().size_bytes, 0);
}

/// DESIGN D5: a state that is being stored is read with its new value.
#[test]
fn a_state_in_flight_can_be_read() {
    let mut stand = Stand::new();
    stand.accept(Some("a"), 1).unwrap();
    stand.set_state(1, Some(b"old")).unwrap();
    stand.commits = false;
    stand.set_state(1, Some(b"new")).unwrap();
    assert_eq!(stand.state(1), Ok(Some(b"new".to_vec())));
    stand.set_state(1, None).unwrap();
    assert_eq!(stand.state(1), Ok(None));
    stand.commit();
    assert_eq!(stand.state(1), Ok(None));
}

/// SES-26, SES-27, QUO-05: a state has at most the size of a message, counts for the quota, and
/// needs room in the store.
#[test]
fn a_state_is_bounded_and_counts() {
    let description = QueueDescription {
        max_message_size_in_kilobytes: 1_024,
        max_size_in_megabytes: 2,
        ..sessionful()
    };
    let mut stand = Stand::of(description, true);
    let megabyte = vec![7u8; 1 << 20];
    for receiver in 1..=3 {
        stand.accept(Some(&format!("session {receiver}")), receiver).unwrap();
    }
    let mut larger = megabyte.clone();
    larger.push(7);
    assert_eq!(stand.set_state(1, Some(&larger)), Err(Condition::MessageSizeExceeded));
    stand.set_state(1, Some(&megabyte)).unwrap();
    stand.set_state(2, Some(&megabyte)).unwrap();
    assert_eq!(stand.describe().size_bytes, 2 << 20);
    assert_eq!(stand.set_state(3, Some(b"x")), Err(Condition::QuotaExceeded));
    // A state of the same size replaces the previous one.
    stand.set_state(2, Some(&megabyte)).unwrap();
    stand.set_state(2, Some(b"small")).unwrap();
    assert_eq!(stand.describe().size_bytes, (1 << 20) + 5);
    assert_eq!(stand.stored_bytes, (1 << 20) + 5);
    stand.room = Reserved::Full;
    assert_eq!(stand.set_state(3, Some(b"x")), Err(Condition::ServerBusy));
    stand.set_state(1, None).unwrap();
}

/// SES-27: empty states do not count for the quota, so their number is limited.
#[test]
fn session_states_are_bounded() {
    let mut stand = Stand::new();
    stand.limits.session_state_count_max = 2;
    for receiver in 1..=3 {
        stand.accept(Some(&format!("session {receiver}")), receiver).unwrap();
    }
    stand.set_state(1, Some(b"")).unwrap();
    stand.set_state(2, Some(b"")).unwrap();
    assert_eq!(stand.set_state(3, Some(b"")), Err(Condition::QuotaExceeded));
    stand.set_state(2, Some(b"again")).unwrap();
    stand.set_state(1, None).unwrap();
    stand.set_state(3, Some(b"")).unwrap();
    stand.crash();
    stand.accept(Some("another"), 4).unwrap();
    assert_eq!(stand.set_state(4, Some(b"")), Err(Condition::QuotaExceeded));
}
