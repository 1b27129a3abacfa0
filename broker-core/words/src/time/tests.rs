//! Tests of instants and durations in ticks, and of their texts.

use super::*;

const LAST_INSTANT: &str = "9999-12-31T23:59:59.9999999Z";
const UNLIMITED: &str = "P10675199DT2H48M5.4775807S";

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn check_instant(text: &str, ticks: i64) {
    assert_eq!(at(text).ticks(), ticks, "{text}");
    assert_eq!(Timestamp::from_ticks(ticks).to_string(), text);
}

fn check_span(text: &str, ticks: i64) {
    assert_eq!(TimeSpan::parse(text).map(TimeSpan::ticks), Some(ticks), "{text}");
    assert_eq!(TimeSpan::from_ticks(ticks).to_string(), text);
}

/// FND-07
#[test]
fn instants_are_utc_and_keep_every_tick() {
    check_instant("0001-01-01T00:00:00Z", 0);
    check_instant("1970-01-01T00:00:00Z", UNIX_EPOCH_TICKS);
    check_instant("2026-05-01T12:00:00Z", 639_132_336_000_000_000);
    check_instant("2026-05-01T12:00:00.0000001Z", 639_132_336_000_000_001);
    check_instant("2026-05-01T12:00:00.5Z", 639_132_336_005_000_000);
    check_instant(LAST_INSTANT, Timestamp::NEVER.ticks());
    assert_eq!(at("2026-05-01T14:00:00+02:00"), at("2026-05-01T12:00:00Z"));
}

/// FND-07
#[test]
fn durations_keep_every_tick_and_are_never_negative() {
    check_span("PT0S", 0);
    check_span("PT0.0000001S", 1);
    check_span("PT0.001S", TICKS_PER_MILLISECOND);
    check_span("PT1M", 60 * TICKS_PER_SECOND);
    check_span("PT5M0.5S", 300 * TICKS_PER_SECOND + 5_000_000);
    check_span("PT2H48M5.4775807S", 100_854_775_807);
    check_span("P14D", 14 * 86_400 * TICKS_PER_SECOND);
    check_span("P1DT1S", 86_401 * TICKS_PER_SECOND);
    assert_eq!(TimeSpan::from_ticks(-1), TimeSpan::ZERO);
    assert_eq!(TimeSpan::from_seconds(i64::MIN), TimeSpan::ZERO);
    assert_eq!(TimeSpan::from_seconds_f64(-0.001), None);
    assert_eq!(at("2026-05-01T12:00:00Z").since(at("2026-05-01T12:00:01Z")), TimeSpan::ZERO);
}

/// FND-08
#[test]
fn the_unlimited_duration_reads_back_as_itself() {
    check_span(UNLIMITED, i64::MAX);
    assert!(TimeSpan::parse(UNLIMITED).unwrap().is_unlimited());
    assert!(!TimeSpan::from_ticks(i64::MAX - 1).is_unlimited());
    assert_eq!(TimeSpan::from_std(TimeSpan::MAX.to_std()), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_seconds_f64(TimeSpan::MAX.as_seconds_f64()), Some(TimeSpan::MAX));
}

#[test]
fn durations_saturate_at_unlimited() {
    assert_eq!(TimeSpan::from_ms(i64::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_seconds(i64::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_minutes(i64::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_days(i64::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_std(std::time::Duration::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::from_seconds_f64(f64::INFINITY), Some(TimeSpan::MAX));
    assert_eq!(TimeSpan::MAX.plus(TimeSpan::MAX), TimeSpan::MAX);
    assert_eq!(TimeSpan::MAX.plus(TimeSpan::from_ticks(1)), TimeSpan::MAX);
}

/// FND-09
#[test]
fn an_instant_beyond_the_year_9999_saturates_and_means_never() {
    let now = at("2026-05-01T12:00:00Z");
    let tick = TimeSpan::from_ticks(1);
    assert_eq!(now.plus(TimeSpan::MAX), Timestamp::NEVER);
    assert_eq!(Timestamp::NEVER.plus(tick), Timestamp::NEVER);
    assert_eq!(now.plus(TimeSpan::MAX).to_string(), LAST_INSTANT);
    assert_eq!(Timestamp::from_ticks(i64::MAX), Timestamp::NEVER);
    assert_eq!(Timestamp::from_unix_ms(i64::MAX), Timestamp::NEVER);
    assert_eq!(Timestamp::from_unix_nanos(i128::MAX), Timestamp::NEVER);
    assert!(now.plus(TimeSpan::MAX).is_never());

    let almost = Timestamp::NEVER.minus(tick);
    assert!(!almost.is_never());
    assert!(almost.plus(tick).is_never());
}

#[test]
fn an_instant_before_the_year_1_saturates() {
    assert_eq!(at("2026-05-01T12:00:00Z").minus(TimeSpan::MAX), Timestamp::NONE);
    assert_eq!(Timestamp::from_ticks(-1), Timestamp::NONE);
    assert_eq!(Timestamp::from_unix_ms(i64::MIN), Timestamp::NONE);
    assert_eq!(Timestamp::from_unix_nanos(i128::MIN), Timestamp::NONE);
}

#[test]
fn unix_time_round_trips() {
    for text in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "2026-05-01T12:00:00.123Z"] {
        assert_eq!(Timestamp::from_unix_ms(at(text).unix_ms()), at(text), "{text}");
        assert_eq!(Timestamp::from_unix_nanos(at(text).unix_nanos()), at(text), "{text}");
    }
    assert_eq!(at("1969-12-31T23:59:59.9999999Z").unix_ms(), -1);
    assert_eq!(Timestamp::from_unix_nanos(-1), at("1969-12-31T23:59:59.9999999Z"));
}

#[test]
fn the_instants_of_http_round_trip() {
    let noon = at("2026-05-01T12:00:00Z");
    assert_eq!(noon.to_rfc1123(), "Fri, 01 May 2026 12:00:00 GMT");
    assert_eq!(Timestamp::parse_rfc1123("Fri, 01 May 2026 12:00:00 GMT"), Some(noon));
    assert_eq!(Timestamp::NONE.to_rfc1123(), "Mon, 01 Jan 0001 00:00:00 GMT");
    assert_eq!(Timestamp::NEVER.to_rfc1123(), "Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(Timestamp::parse_rfc1123("yesterday"), None);
    assert_eq!(Timestamp::parse("2026-05-01"), None);
}

#[test]
fn durations_in_other_spellings_are_read() {
    for (text, ticks) in [
        ("P0D", 0),
        ("PT60S", 60 * TICKS_PER_SECOND),
        ("PT90M", 5_400 * TICKS_PER_SECOND),
        ("PT0.5M", 30 * TICKS_PER_SECOND),
        ("P0DT0H1M0.000S", 60 * TICKS_PER_SECOND),
        ("PT0.00000019S", 1),
    ] {
        assert_eq!(TimeSpan::parse(text).map(TimeSpan::ticks), Some(ticks), "{text}");
    }
}

#[test]
fn malformed_durations_are_not_read() {
    for text in [
        "",
        "P",
        "PT",
        "P1DT",
        "1M",
        "PT1",
        "-PT1M",
        "PT-1M",
        "P1Y",
        "P1M",
        "P1W",
        "PT1S1M",
        "PT1M1M",
        "PT.5S",
        "PT1.5.5S",
        "PT1é",
        "P10675199DT2H48M5.4775808S",
        "P99999999999999999999D",
    ] {
        assert_eq!(TimeSpan::parse(text), None, "{text}");
    }
}

#[test]
fn seconds_with_fractions_are_rounded_to_ticks() {
    assert_eq!(TimeSpan::from_seconds_f64(0.29).map(TimeSpan::ticks), Some(2_900_000));
    assert_eq!(TimeSpan::from_seconds_f64(1.5), Some(TimeSpan::from_ms(1_500)));
    assert_eq!(TimeSpan::from_seconds_f64(f64::NAN), None);
    assert_eq!(TimeSpan::from_ms(1_999).as_ms(), 1_999);
    assert_eq!(TimeSpan::from_seconds(60).divided_by(10), TimeSpan::from_seconds(6));
    assert_eq!(TimeSpan::from_seconds(60).divided_by(0), TimeSpan::from_seconds(60));
}

/// FND-08: durations of the standard library are spans, and the longest is "unlimited".
#[test]
fn a_duration_is_a_span() {
    use std::time::Duration;
    assert_eq!(TimeSpan::from(Duration::from_millis(1_500)), TimeSpan::from_ms(1_500));
    assert_eq!(TimeSpan::from(Duration::from_nanos(199)), TimeSpan::from_ticks(1));
    assert_eq!(TimeSpan::from(Duration::MAX), TimeSpan::MAX);
    assert_eq!(Duration::from(TimeSpan::from_ms(1_500)), Duration::from_millis(1_500));
}

/// FND-07, FND-08: a failed assertion shows instants and spans in readable form, and they differ
/// where the values differ, to the last tick.
#[test]
fn instants_and_spans_are_debugged_as_they_are_shown() {
    assert_eq!(format!("{:?}", at("2026-05-01T12:00:00.0000001Z")), "2026-05-01T12:00:00.0000001Z");
    assert_eq!(format!("{:?}", Some(TimeSpan::from_ms(60_001))), "Some(PT1M0.001S)");
    assert_eq!(
        format!("{:?}", (Timestamp::NEVER, TimeSpan::MAX)),
        format!("({LAST_INSTANT}, {UNLIMITED})")
    );
}
