//! Where a certificate stands in its time, and when that is said. Nobody looks at one that is in use, and with its end every
//! client is refused.

use peeklock_core::time::{TimeSpan, Timestamp};

use crate::certificate::Certificate;

/// How long before its end a certificate is spoken of.
const SOON: TimeSpan = TimeSpan::from_days(14);
/// After so long what somebody has to act on is said again.
const SAID_AGAIN_AFTER: TimeSpan = TimeSpan::from_days(1);

/// Where a certificate stands in its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is good, for two weeks at least.
    Good,
    /// It is good, and ends within two weeks.
    EndsSoon,
    /// It is not good yet.
    NotYet,
    /// It has ended.
    Ended,
}

/// What was said of a certificate last, and when.
#[derive(Default)]
pub(crate) struct Said(Option<(Standing, Timestamp)>);

impl Standing {
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

impl Said {
    /// What is to be said of this certificate now: what has changed at once, and what is not good once a day.
    pub(crate) fn due(&mut self, certificate: &Certificate, now: Timestamp) -> Option<Standing> {
        let standing = Standing::of(certificate, now);
        if let Some((said, at)) = self.0
            && said == standing
        {
            // A wall clock that was set back is no reason for silence.
            let is_day_over = now < at || now >= at.plus(SAID_AGAIN_AFTER);
            if standing == Standing::Good || !is_day_over {
                return None;
            }
        }
        self.0 = Some((standing, now));
        Some(standing)
    }
}
