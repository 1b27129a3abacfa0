//! Credential of a client: a fixed token, or tokens that it signs with the key of a connection
//! string, each before its predecessor expires (TLS-08).

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_sas::ConnectionString;

use super::ClientOptions;

/// Longest and shortest interval of checks whether a new token is due.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(30);
const LOOK_EACH_MIN: Duration = Duration::from_millis(50);

/// Source of the tokens of a client.
pub(super) struct Credential {
    given: Option<Arc<str>>,
    string: Option<Arc<ConnectionString>>,
    time: TimeSpan,
    /// Time at which a new token is due, by the broker's clock.
    renew_at: Option<Timestamp>,
}

impl Credential {
    pub(super) fn of(options: &ClientOptions) -> Self {
        let ms = i64::try_from(options.token_time.as_millis()).unwrap_or(i64::MAX / 100_000);
        Self {
            given: options.token.clone(),
            string: options.connection_string.clone(),
            // The expiry of a token has whole seconds.
            time: TimeSpan::from_ms(ms.max(1_000)),
            renew_at: None,
        }
    }

    /// Returns a token that is valid from now on.
    pub(super) fn token(&mut self, now: Timestamp) -> Option<String> {
        let Some(string) = &self.string else { return self.given.as_deref().map(str::to_owned) };
        let three_quarters = TimeSpan::from_ticks(self.time.ticks() / 4 * 3);
        self.renew_at = string.renews().then(|| now.plus(three_quarters));
        Some(string.token(now.plus(self.time)))
    }

    /// Whether a new token is due. That includes a last token that expires too late, because it was
    /// signed before the broker's clock was known.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.renew_at.is_some_and(|at| now >= at || at > now.plus(self.time))
    }

    /// Returns how often to check whether a new token is due; none if the token is never renewed.
    pub(super) fn look_each(&self) -> Option<Duration> {
        self.string.as_ref().filter(|string| string.renews())?;
        Some((self.time.to_std() / 16).clamp(LOOK_EACH_MIN, CHECK_INTERVAL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(string: &str, seconds: u64) -> Credential {
        let connection_string = Some(Arc::new(ConnectionString::parse(string).unwrap()));
        let token_time = Duration::from_secs(seconds);
        Credential::of(&ClientOptions { connection_string, token_time, ..ClientOptions::default() })
    }

    /// TLS-08: a new token is due when a quarter of the lifetime is left, or when the broker's
    /// clock was unknown before.
    #[test]
    fn a_newer_token_is_due_before_the_last_one_ends() {
        let mut credential =
            credential("Endpoint=sb://a;SharedAccessKeyName=b;SharedAccessKey=c", 3_600);
        let now = Timestamp::from_unix_ms(1_000_000_000);
        let at = |seconds| now.plus(TimeSpan::from_seconds(seconds));
        let first = credential.token(now).unwrap();
        assert!(first.contains("&se=1003600&"), "{first}");
        assert!(!credential.is_due(at(2_699)) && credential.is_due(at(2_700)));
        let earlier = Timestamp::from_unix_ms(1_000_000_000 - 10_000_000);
        assert!(credential.is_due(earlier), "it would be good for hours");
        assert!(credential.token(at(2_700)).unwrap().contains("&se=1006300&"));
        assert!(!credential.is_due(at(2_700)));
    }

    /// TLS-08: a token that the connection string contains is sent unchanged.
    #[test]
    fn a_token_that_was_given_is_not_renewed() {
        let signed = "SharedAccessSignature sr=a&sig=b&se=1&skn=c";
        let mut credential =
            credential(&format!("Endpoint=sb://a;SharedAccessSignature={signed}"), 60);
        let now = Timestamp::from_unix_ms(1_000_000_000);
        assert_eq!(credential.token(now).as_deref(), Some(signed));
        assert!(!credential.is_due(now.plus(TimeSpan::from_days(9))));
        assert_eq!(credential.look_each(), None);
    }
}
