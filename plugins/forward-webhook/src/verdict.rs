//! Verdicts for the receiver's answers. `route.rs` calls [`judge`] for each answer.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{DATE, HeaderMap, RETRY_AFTER};
use peeklock_core::clock::Clock;
use peeklock_core::contract::Verdict;
use peeklock_core::time::Timestamp;

/// DeadLetterReason of a permanently refused message.
pub const REFUSED: &str = "WebhookRefused";
/// Maximum wait that a receiver can request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Returns the verdict: 2xx is delivered; 408, 425, 429 and 5xx are a failure with a retry, at the
/// time that the receiver requests; any other status, including redirects, is a permanent refusal.
/// The text contains the authority but not path and query, which may contain secrets.
pub fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    authority: &str,
    clock: &dyn Clock,
) -> Verdict {
    if status.is_success() {
        return Verdict::Delivered;
    }
    let said = format!("webhook {authority} answered {status}");
    let is_passing = status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS]
            .contains(&status);
    if is_passing {
        return Verdict::Failed { why: said.into(), retry_after: retry_after(headers, clock) };
    }
    let description =
        if status.is_redirection() { format!("{said}; redirects are not followed") } else { said };
    Verdict::Refused { reason: REFUSED.into(), description: description.into() }
}

/// Returns the requested wait. A date is relative to the receiver's clock if the answer has a
/// `Date`, otherwise to the broker's clock.
fn retry_after(headers: &HeaderMap, clock: &dyn Clock) -> Option<Duration> {
    let instant = |text: &str| Timestamp::parse_rfc1123(text.trim());
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => {
            let date = headers.get(DATE).and_then(|date| instant(date.to_str().ok()?));
            instant(text)?.since(date.unwrap_or_else(|| clock.now())).to_std()
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};
    use peeklock_core::clock::ManualClock;

    use super::*;

    fn judged(status: u16, headers: &[(HeaderName, &str)]) -> Verdict {
        let clock = ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap());
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        judge(StatusCode::from_u16(status).unwrap(), &headers.collect(), "a.net", &clock)
    }

    #[test]
    fn a_status_decides() {
        for status in 100..=999 {
            let verdict = judged(status, &[]);
            match status {
                200..=299 => assert_eq!(verdict, Verdict::Delivered),
                408 | 425 | 429 | 500..=599 => {
                    let Verdict::Failed { why, retry_after: None } = verdict else {
                        panic!("{status}: {verdict:?}")
                    };
                    assert!(why.contains(&status.to_string()), "{why}");
                }
                _ => {
                    let Verdict::Refused { reason, description } = verdict else {
                        panic!("{status}: {verdict:?}")
                    };
                    assert_eq!(&*reason, "WebhookRefused");
                    assert!(description.contains(&status.to_string()), "{description}");
                    assert_eq!(description.contains("redirect"), (300..=399).contains(&status));
                }
            }
        }
    }

    fn check(headers: &[(HeaderName, &str)], expected: Option<u64>) {
        let Verdict::Failed { retry_after, .. } = judged(503, headers) else { panic!() };
        assert_eq!(retry_after, expected.map(Duration::from_secs), "{headers:?}");
    }

    #[test]
    fn retry_after_sets_the_time_of_the_retry() {
        check(&[(RETRY_AFTER, "7")], Some(7));
        check(&[(RETRY_AFTER, " 0 ")], Some(0));
        check(&[(RETRY_AFTER, "4000000000")], Some(3_600));
        check(&[(RETRY_AFTER, "Fri, 01 May 2026 12:00:30 GMT")], Some(30));
        check(&[(RETRY_AFTER, "Fri, 01 May 2026 11:00:00 GMT")], Some(0));
        let date = (DATE, "Fri, 01 May 2026 11:59:50 GMT");
        check(&[(RETRY_AFTER, "Fri, 01 May 2026 12:00:30 GMT"), date], Some(40));
        check(&[(RETRY_AFTER, "soon")], None);
        check(&[(RETRY_AFTER, "-1")], None);
        check(&[(RETRY_AFTER, "99999999999999999999")], None);
        check(&[], None);
    }
}
