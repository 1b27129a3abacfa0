//! Validity of a certificate at a time, and when it is logged. Operators rarely check a certificate
//! in use, and all clients fail when it expires.

use peeklock_core::time::{TimeSpan, Timestamp};

use crate::certificate::Certificate;

/// Time before expiry from which a certificate expires soon.
const SOON: TimeSpan = TimeSpan::from_days(14);
/// Interval between repeated warnings.
const REPEAT_AFTER: TimeSpan = TimeSpan::from_days(1);

/// Validity of a certificate at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Validity {
    /// Valid for at least two weeks.
    Good,
    /// Valid, but expires within two weeks.
    EndsSoon,
    /// Not valid yet.
    NotYet,
    /// Expired.
    Ended,
}

/// The last logged state, and its time.
#[derive(Default)]
pub(crate) struct LastReport(Option<(Validity, Timestamp)>);

impl Validity {
    fn of(certificate: &Certificate, now: Timestamp) -> Self {
        if certificate.not_after <= now {
            Self::Ended
        } else if certificate.not_before > now {
            Self::NotYet
        } else if certificate.not_after <= now.plus(SOON) {
            Self::EndsSoon
        } else {
            Self::Good
        }
    }
}

impl LastReport {
    /// Returns the state to log now: a changed state immediately, and a warning state once a day.
    pub(crate) fn due(&mut self, certificate: &Certificate, now: Timestamp) -> Option<Validity> {
        let standing = Validity::of(certificate, now);
        if let Some((last, at)) = self.0
            && last == standing
        {
            // After the clock was set back, log again.
            let is_day_over = now < at || now >= at.plus(REPEAT_AFTER);
            if standing == Validity::Good || !is_day_over {
                return None;
            }
        }
        self.0 = Some((standing, now));
        Some(standing)
    }
}
