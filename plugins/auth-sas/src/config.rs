//! What an operator can set.

/// Whom an authorizer lets in besides those who have signed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SasConfig {
    /// `security.allow_anonymous`: whether clients that show no token may do everything, as long as nobody has used
    /// a key (SEC-17).
    pub allow_anonymous: bool,
    /// `security.i_know`: whether that holds for those too that are not of this machine.
    pub beyond_loopback: bool,
    /// Hosts that clients know this broker by: a token may be for one of them without a scheme before it (SEC-13).
    pub own_hosts: Vec<String>,
    /// `security.strict_audience`: the hosts of which one has to stand in a token; none if the host does not
    /// matter (SEC-13).
    pub audience_hosts: Option<Vec<String>>,
}

impl SasConfig {
    /// Nobody is let in without a token.
    #[must_use]
    pub fn closed() -> Self {
        Self::default()
    }

    /// Whoever is of this machine is let in without one, until somebody uses a key (SEC-17).
    #[must_use]
    pub fn open_on_loopback() -> Self {
        Self { allow_anonymous: true, ..Self::default() }
    }
}
