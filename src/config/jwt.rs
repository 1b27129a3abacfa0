//! The section `[security.jwt]`: checks it and converts it to the settings of the authorizer.
//! `config.rs` calls it at start. Without an issuer no other key may be set, and no bearer token is
//! accepted.

use std::path::Path;

use peeklock::auth_jwt::{Algorithm, JwtConfig, KeySource, Role, certificates};
use peeklock::contract::{Right, Rights};
use serde::Deserialize;

use super::sections::JwtSection;
use super::text::List;

/// `[[security.jwt.roles]]`: the rights of a role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RoleDeclaration {
    /// The name of the role in tokens.
    pub name: String,
    /// Send, Listen, Manage.
    pub rights: List,
    /// The entity to which the rights apply, with its children; empty for the whole namespace.
    #[serde(default)]
    pub entity: String,
}

impl JwtSection {
    /// Whether bearer tokens are accepted.
    pub const fn is_used(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// Converts to the settings of the authorizer, if an issuer is set; reads the named files.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn config(&self) -> Result<Option<JwtConfig>, (String, String)> {
        if !self.is_used() {
            let others = [&self.jwks_url, &self.jwks_file, &self.ca_file];
            let is_begun = others.iter().any(|text| !text.is_empty())
                || !(self.audiences.is_empty() && self.roles.is_empty());
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
        if self.audiences.is_empty() {
            let detail = "is empty, but tokens for other services must not be accepted here; write \
                the name of this broker at the provider";
            return Err(wrong("audiences", detail.to_owned()));
        }
        let mut config = JwtConfig::new(self.issuer.as_str(), "", self.keys()?);
        config.audiences.clone_from(&self.audiences);
        config.algorithms = self.algorithms()?;
        config.clock_skew = self.clock_skew;
        config.role_claims.clone_from(&self.role_claims);
        if self.role_claims.is_empty() {
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
        let time = self.timeout.to_std();
        let authorities = match self.ca_file.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| wrong("ca_file", error.to_string()))?,
        };
        let (key, source) = match (self.jwks_url.as_str(), self.jwks_file.as_str()) {
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
        let judged = source.and_then(|source| source.check().map(|()| source));
        judged.map_err(|error| wrong(key, error.to_string()))
    }

    fn algorithms(&self) -> Result<Vec<Algorithm>, (String, String)> {
        let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
        if self.algorithms.is_empty() {
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
        self.algorithms.iter().map(algorithm).collect()
    }
}

impl RoleDeclaration {
    fn role(&self, index: usize) -> Result<Role, (String, String)> {
        let wrong = |key: &str, detail: String| wrong(&format!("roles[{index}].{key}"), detail);
        if self.name.is_empty() {
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
        // The same rule as for a policy (SEC-01).
        if rights.contains(Right::Manage) && rights != Rights::ALL {
            let detail = "a role with the right Manage needs Send and Listen as well; write all \
                three";
            return Err(wrong("rights", detail.to_owned()));
        }
        Ok(Role::new(self.name.as_str(), rights).at(&self.entity))
    }
}

fn wrong(key: &str, detail: String) -> (String, String) {
    (format!("security.jwt.{key}"), detail)
}
