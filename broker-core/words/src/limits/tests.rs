//! Tests of the defaults of each tier, and of the ranges of limits.

use super::*;

fn check(number: impl Fn(&Limits) -> u64, expected: [u64; 3]) {
    let tiers = [Tier::Basic, Tier::Standard, Tier::Premium];
    assert_eq!(tiers.map(|tier| number(&Limits::of(tier))), expected);
}

#[test]
fn sizes_are_those_of_the_tier() {
    check(|limits| limits.message_bytes_default, [256 * KIB, 256 * KIB, MIB]);
    check(|limits| limits.message_bytes_max, [256 * KIB, 256 * KIB, 100 * MIB]);
    check(|limits| limits.message_bytes_http_max, [256 * KIB, 256 * KIB, MIB]);
    check(|limits| limits.batch_bytes_max, [256 * KIB, 256 * KIB, MIB]);
    check(|limits| limits.header_bytes_max, [65_536; 3]);
    check(|limits| limits.property_bytes_max, [32_768; 3]);
    check(|limits| limits.entity_megabytes_max, [5_120, 5_120, 81_920]);
}

#[test]
fn counts_are_those_of_the_tier() {
    check(|limits| limits.subscription_count_max as u64, [0, 2_000, 2_000]);
    check(|limits| limits.rule_sql_count_max as u64, [0, 2_000, 2_000]);
    check(|limits| limits.rule_correlation_count_max as u64, [0, 100_000, 100_000]);
    check(|limits| limits.transaction_message_count_max as u64, [0, 100, 100]);
    check(|limits| limits.batch_delete_count_max as u64, [500, 500, 4_000]);
    check(|limits| limits.entity_count_max as u64, [10_000; 3]);
    check(|limits| limits.receiver_count_max as u64, [5_000; 3]);
    check(|limits| limits.connection_count_max as u64, [5_000; 3]);
    check(|limits| limits.hop_count_max.into(), [4; 3]);
    check(|limits| limits.message_copy_count_max.into(), [10_000; 3]);
    check(|limits| limits.message_overlay_count_max as u64, [100; 3]);
    check(|limits| limits.policy_count_max as u64, [12; 3]);
}

#[test]
fn the_defaults_of_every_tier_agree_with_themselves() {
    for tier in [Tier::Basic, Tier::Standard, Tier::Premium] {
        assert_eq!(Limits::of(tier).validate(), Ok(()));
        assert_eq!(Limits::of(tier).tier, tier);
    }
    assert_eq!(Limits::default(), Limits::of(Tier::Premium));
}

/// FND-12
#[test]
fn a_host_may_lower_every_minimum() {
    let mut limits = Limits::of(Tier::Premium);
    limits.lock_duration_min = TimeSpan::from_ms(1);
    limits.time_to_live_min = TimeSpan::from_ms(1);
    limits.auto_delete_on_idle_min = TimeSpan::from_ms(1);
    limits.duplicate_window_min = TimeSpan::from_ms(1);
    assert_eq!(limits.validate(), Ok(()));
}

/// QUO-02, PEK-08: a peek reserves room for at most 250 messages before it runs, so none returns
/// more.
#[test]
fn a_peek_returns_no_more_than_it_pays_for() {
    for (count, fits) in [(0, false), (1, true), (250, true), (251, false)] {
        let limits = Limits { peek_count_max: count, ..Limits::default() };
        assert_eq!(limits.validate().is_ok(), fits, "{count}");
    }
}

/// QUO-02
#[test]
fn the_hop_limit_may_be_set_from_1_to_16() {
    for (hops, fits) in [(0, false), (1, true), (16, true), (17, false)] {
        let limits = Limits { hop_count_max: hops, ..Limits::default() };
        assert_eq!(limits.validate().is_ok(), fits, "{hops}");
    }
}

#[test]
fn a_minimum_above_its_default_is_refused() {
    let limits = Limits { lock_duration_min: TimeSpan::from_seconds(61), ..Limits::default() };
    assert_eq!(
        limits.validate().unwrap_err().detail(),
        "the limits of the lock duration are not in order: minimum PT1M1S, default PT1M, maximum PT5M"
    );
}

#[test]
fn a_tier_is_known_by_its_name_in_any_case() {
    assert_eq!(Tier::parse("standard"), Some(Tier::Standard));
    assert_eq!(Tier::parse("Gold"), None);
    assert_eq!(Tier::Premium.to_string(), "Premium");
}

/// QUO-02: a value that would be no bound, or that would allow no work, is refused with its range.
#[test]
fn a_limit_outside_its_range_is_refused_with_the_range() {
    let check = |name: &str, change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        let refused = limits.validate().unwrap_err();
        assert!(refused.detail().contains(name), "{refused}");
        assert!(refused.detail().contains(" to "), "{refused}");
    };
    check("`list_count_max` of 0", |limits| limits.list_count_max = 0);
    check("`connection_count_max`", |limits| limits.connection_count_max = usize::MAX);
    check("`atomic_bytes_max`", |limits| limits.atomic_bytes_max = u64::MAX);
    check("`message_copy_count_max` of 0", |limits| limits.message_copy_count_max = 0);
    check("`message_overlay_count_max` of 0", |limits| limits.message_overlay_count_max = 0);
    check("`publish_copy_count_max`", |limits| limits.publish_copy_count_max = 0);
    check("`transaction_step_count_max`", |limits| limits.transaction_step_count_max = 0);
    check("`header_bytes_max`", |limits| limits.header_bytes_max = 0);
    check("`broker_judged_bytes_max` of 0", |limits| limits.broker_judged_bytes_max = 0);
    check("`broker_loaded_bytes_max` of 0", |limits| limits.broker_loaded_bytes_max = 0);
}
