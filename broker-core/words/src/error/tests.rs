//! Tests of the texts of errors, and of caller texts inside them.

use super::*;

fn noon() -> Timestamp {
    Timestamp::parse("2026-05-01T12:00:00Z").unwrap()
}

fn stamped(rejection: Rejection) -> BrokerError {
    BrokerError::new(rejection, TrackingId(0xabc), "orders", noon())
}

/// SND-06
#[test]
fn the_text_ends_with_tracking_id_entity_and_timestamp() {
    let error = stamped(Rejection::entity_full("queue", "orders", 1_073_741_824, 1_073_741_824));
    assert_eq!(
        error.to_string(),
        "QuotaExceeded: queue `orders` is full: 1073741824 of 1073741824 bytes. \
         TrackingId:00000000-0000-0000-0000-000000000abc, Entity:orders, \
         Timestamp:2026-05-01T12:00:00Z"
    );
}

/// ERR-09
#[test]
fn server_busy_text_requests_ten_seconds_wait() {
    let error = stamped(Rejection::server_busy("the disk has 10 of 100 bytes free"));
    assert_eq!(
        error.to_string(),
        "ServerBusy: the disk has 10 of 100 bytes free. Please wait 10 seconds and try again. \
         TrackingId:00000000-0000-0000-0000-000000000abc, Entity:orders, \
         Timestamp:2026-05-01T12:00:00Z"
    );
}

/// SND-04
#[test]
fn an_error_carries_condition_text_tracking_id_and_the_retryable_flag() {
    let error = stamped(Rejection::timeout("no session became free in 60 s"));
    assert_eq!(error.condition(), Condition::ServiceTimeout);
    assert_eq!(error.detail(), "no session became free in 60 s");
    assert_eq!(error.tracking_id(), TrackingId(0xabc));
    assert_eq!(error.entity(), "orders");
    assert_eq!(error.timestamp(), noon());
    assert!(error.retryable());
    assert!(!stamped(Rejection::entity_not_found("orders")).retryable());
}

#[test]
fn the_source_is_kept_for_the_log_and_out_of_the_text() {
    let error = stamped(Rejection::internal("the store failed"))
        .with_source(std::io::Error::other("/secret/path: no space"));
    assert_eq!(error.source().unwrap().to_string(), "/secret/path: no space");
    assert!(!error.to_string().contains("secret"));
    assert!(format!("{error:?}").contains("secret"));
}

#[test]
fn an_error_is_one_pointer_wide_and_travels_between_threads() {
    fn assert_travels<T: Send + Sync + 'static>() {}
    assert_travels::<BrokerError>();
    assert_eq!(size_of::<BrokerError>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), BrokerError>>(), size_of::<usize>());
}

#[test]
fn a_long_or_dirty_address_is_repeated_harmlessly() {
    let rejection = Rejection::entity_not_found("a\r\nb");
    assert_eq!(rejection.detail(), "no entity has the path `a\\r\\nb`");

    let long = "é".repeat(QUOTED_CHARS_MAX + 7);
    let kept = "é".repeat(QUOTED_CHARS_MAX);
    let expected = format!("no entity has the path `{kept}... and 7 more characters`");
    assert_eq!(Rejection::entity_not_found(&long).detail(), expected);

    let error = BrokerError::new(rejection, TrackingId(1), &"x\n".repeat(1_000_000), noon());
    assert!(error.to_string().len() < 2_000);
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn every_detail_names_the_thing_in_lower_case_and_without_full_stop() {
    let rejections = [
        Rejection::not_implemented("RequiresSession"),
        Rejection::entity_not_found("a"),
        Rejection::entity_already_exists("a"),
        Rejection::entity_disabled("a", "Disabled"),
        Rejection::entity_full("topic", "a", 1, 2),
        Rejection::too_many("receivers", "a", 5_000),
        Rejection::message_size_exceeded("message", 3, 2),
        Rejection::message_lock_lost(LockToken::new(SequenceNumber(1), 2)),
        Rejection::message_not_found(SequenceNumber(7)),
        Rejection::update_conflict("a"),
    ];
    for rejection in rejections {
        assert!(!rejection.detail().ends_with('.'), "{rejection}");
        assert!(
            rejection.own_words().starts_with(|c: char| !c.is_uppercase())
                || rejection.detail().starts_with("RequiresSession"),
            "{rejection}"
        );
    }
}

/// ERR-10: the cloud's sentences precede the name of the condition and the broker's own detail.
#[test]
fn cloud_sentences_come_first() {
    let error = stamped(Rejection::message_lock_lost(LockToken::new(SequenceNumber(1), 2)));
    let lost = "The lock supplied is invalid. Either the lock expired, or the message has already been removed \
                from the queue. ";
    let text = error.to_string();
    let ours = text.strip_prefix(lost).unwrap_or_else(|| panic!("{text}"));
    assert!(ours.starts_with("MessageLockLost: lock ") && ours.contains(" does not exist, "));
    assert!(error.detail().starts_with(lost) && error.detail().ends_with("was released"));
    let exists = Rejection::entity_already_exists("a\nb");
    let expected = "The messaging entity 'a\\nb' already exists. EntityAlreadyExists: an entity \
        with the path `a\\nb` already exists";
    assert_eq!(exists.to_string(), expected);
}
