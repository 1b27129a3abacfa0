//! The section `[security.jwt]`.

use std::ops::RangeInclusive;
use std::path::Path;

use peeklock::auth_jwt::{Algorithm, JwtConfig, KeySource, Role, certificates};
use peeklock::contract::{Right, Rights};
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::{List, Scalar, span_text};

/// What reading keys may take: a client waits for it.
const TIMES: RangeInclusive<TimeSpan> = TimeSpan::from_ms(10)..=TimeSpan::from_seconds(20);
/// By how much clocks may differ: more makes the end of a token worth little.
const SKEWS: RangeInclusive<TimeSpan> = TimeSpan::ZERO..=TimeSpan::from_minutes(10);

/// Tokens of an identity provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct JwtSection {
    /// Who issues them; empty for nobody.
    pub issuer: Scalar<String>,
    /// Whom they may be for.
    pub audiences: List,
    /// Where keys are published.
    pub jwks_url: Scalar<String>,
    /// A file with keys, in place of that.
    pub jwks_file: Scalar<String>,
    /// Authorities beside those of the system; empty for none.
    pub ca_file: Scalar<String>,
    /// Time to read keys.
    pub timeout: Scalar<TimeSpan>,
    /// How they may be signed.
    pub algorithms: List,
    /// By how much clocks may differ.
    pub clock_skew: Scalar<TimeSpan>,
    /// The claims that name roles.
    pub role_claims: List,
    /// `[[security.jwt.roles]]`.
    #[serde(default)]
    pub roles: Vec<RoleDeclaration>,
}

/// What a role gives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RoleDeclaration {
    /// Its name, as it stands in tokens.
    pub name: Scalar<String>,
    /// Send, Listen, Manage.
    pub rights: List,
    /// The entity where it gives them, with what is below; everything if there is none.
    #[serde(default)]
    pub entity: Scalar<String>,
}

impl JwtSection {
    /// Whether such tokens are taken.
    pub const fn is_used(&self) -> bool {
        !self.issuer.0.is_empty()
    }

    /// The same in the words of the authorizer, if it is used; reads the files that are named.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn config(&self) -> Result<Option<JwtConfig>, (String, String)> {
        if !self.is_used() {
            let others = [&self.jwks_url.0, &self.jwks_file.0, &self.ca_file.0];
            let is_begun = others.iter().any(|text| !text.is_empty())
                || !(self.audiences.0.is_empty() && self.roles.is_empty());
            return match is_begun {
                true => Err(wrong(
                    "issuer",
                    "is empty, but other keys of [security.jwt] are set; write the issuer, or \
                     remove the other keys"
                        .to_owned(),
                )),
                false => Ok(None),
            };
        }
        if self.audiences.0.is_empty() {
            let detail = "is empty, but tokens for other services must not be accepted here; write \
                the name of this broker at the provider";
            return Err(wrong("audiences", detail.to_owned()));
        }
        let mut config = JwtConfig::new(self.issuer.0.as_str(), "", self.keys()?);
        config.audiences.clone_from(&self.audiences.0);
        config.algorithms = self.algorithms()?;
        config.clock_skew = within("clock_skew", self.clock_skew.0, SKEWS)?;
        config.role_claims.clone_from(&self.role_claims.0);
        if self.role_claims.0.is_empty() {
            return Err(wrong(
                "role_claims",
                "is empty; write at least one claim, such as `roles`".to_owned(),
            ));
        }
        if self.roles.is_empty() {
            let detail = "no role grants a right; add [[security.jwt.roles]]";
            return Err(wrong("roles", detail.to_owned()));
        }
        let roles = self.roles.iter().enumerate();
        config.roles = roles.map(|(index, role)| role.role(index)).collect::<Result<_, _>>()?;
        Ok(Some(config))
    }

    fn keys(&self) -> Result<KeySource, (String, String)> {
        let time = within("timeout", self.timeout.0, TIMES)?.to_std();
        let authorities = match self.ca_file.0.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| wrong("ca_file", error.to_string()))?,
        };
        let (key, source) = match (self.jwks_url.0.as_str(), self.jwks_file.0.as_str()) {
            ("", "") => {
                let detail = "is empty, and so is security.jwt.jwks_file; set one to the keys of \
                    the issuer";
                return Err(wrong("jwks_url", detail.to_owned()));
            }
            ("", file) => ("jwks_file", Ok(KeySource::file(file))),
            (url, "") => ("jwks_url", KeySource::url(url, authorities, time)),
            (_, _) => {
                let detail = "is set in addition to security.jwt.jwks_url; keep one";
                return Err(wrong("jwks_file", detail.to_owned()));
            }
        };
        let judged = source.and_then(|source| source.judge().map(|()| source));
        judged.map_err(|error| wrong(key, error.to_string()))
    }

    fn algorithms(&self) -> Result<Vec<Algorithm>, (String, String)> {
        let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
        if self.algorithms.0.is_empty() {
            return Err(wrong(
                "algorithms",
                format!("is empty; write at least one of {}", known()),
            ));
        }
        let algorithm = |name: &String| {
            let unknown = || {
                wrong(
                    "algorithms",
                    format!("`{name}` is not a known algorithm; write one of {}", known()),
                )
            };
            Algorithm::parse(name).ok_or_else(unknown)
        };
        self.algorithms.0.iter().map(algorithm).collect()
    }
}

impl RoleDeclaration {
    fn role(&self, index: usize) -> Result<Role, (String, String)> {
        let wrong = |key: &str, detail: String| wrong(&format!("roles[{index}].{key}"), detail);
        if self.name.0.is_empty() {
            return Err(wrong(
                "name",
                "the role has no name; write the role as in the token".to_owned(),
            ));
        }
        let right = |name: &String| {
            let right = Right::ALL.into_iter().find(|right| right.name() == name);
            let unknown = || {
                wrong("rights", format!("`{name}` is not a right; write Send, Listen or Manage"))
            };
            right.ok_or_else(unknown)
        };
        let rights = self.rights.0.iter().map(right).collect::<Result<Rights, _>>()?;
        if rights.is_none() {
            return Err(wrong(
                "rights",
                "the role grants no right; write Send, Listen or Manage".to_owned(),
            ));
        }
        // As of a policy (SEC-01).
        if rights.contains(Right::Manage) && rights != Rights::ALL {
            let detail = "a role with the right Manage needs Send and Listen as well; write all \
                three";
            return Err(wrong("rights", detail.to_owned()));
        }
        Ok(Role::new(self.name.0.as_str(), rights).at(&self.entity.0))
    }
}

fn wrong(key: &str, detail: String) -> (String, String) {
    (format!("security.jwt.{key}"), detail)
}

fn within(
    key: &str,
    value: TimeSpan,
    range: RangeInclusive<TimeSpan>,
) -> Result<TimeSpan, (String, String)> {
    if range.contains(&value) {
        return Ok(value);
    }
    let [value, least, most] = [value, *range.start(), *range.end()].map(span_text);
    Err(wrong(key, format!("{value} is out of range; write a duration from {least} to {most}")))
}
