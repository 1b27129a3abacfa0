//! Settings of the authorizer. The server reads them from its configuration file.

/// Conditions for access without a token, and the accepted hosts of audiences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SasConfig {
    /// `security.allow_anonymous`: whether clients without a token have all rights until a key is
    /// first used (SEC-17).
    pub allow_anonymous: bool,
    /// `security.i_know`: whether `allow_anonymous` also applies to clients on other machines.
    pub beyond_loopback: bool,
    /// Host names of this broker: an audience may begin with one without a scheme (SEC-13).
    pub own_hosts: Vec<String>,
    /// `security.strict_audience`: the hosts that an audience may name; `None` if the host does not
    /// matter (SEC-13).
    pub audience_hosts: Option<Vec<String>>,
}

impl SasConfig {
    /// Returns settings that require a token from every client.
    #[must_use]
    pub fn closed() -> Self {
        Self::default()
    }

    /// Returns settings that let clients on this machine in without a token until a key is first
    /// used (SEC-17).
    #[must_use]
    pub fn open_on_loopback() -> Self {
        Self { allow_anonymous: true, ..Self::default() }
    }
}
