//! TLS settings of a command: trusted authorities and its client certificate. `connect.rs` and
//! commands that connect on their own use it.

use std::path::PathBuf;

use clap::Args;
use peeklock::tls::{ClientTls, certificates};

use super::Failure;

/// Files for TLS; empty environment variables count as unset.
#[derive(Args, Clone, Default)]
pub struct TlsFiles {
    /// Also trust the authorities in this file, in addition to those of the system; PEEKLOCK_CA
    /// does the same
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    ca: Option<PathBuf>,
    /// Client certificate for brokers that ask for one; PEEKLOCK_CERTIFICATE does the same
    #[arg(long, value_name = "FILE", requires = "certificate_key", help_heading = "Connection")]
    certificate: Option<PathBuf>,
    /// Private key of that certificate; PEEKLOCK_CERTIFICATE_KEY does the same
    #[arg(long, value_name = "FILE", requires = "certificate", help_heading = "Connection")]
    certificate_key: Option<PathBuf>,
}

impl TlsFiles {
    /// Whether a flag names an authority.
    pub const fn names_authority(&self) -> bool {
        self.ca.is_some()
    }

    /// Reads the files, and trusts further `authorities`.
    pub fn client(&self, authorities: &[PathBuf]) -> Result<ClientTls, Failure> {
        let variable = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let refused = |error: peeklock::tls::FileError| Failure::usage(error.to_string());
        let mut tls = ClientTls::of_system();
        let own = self.ca.clone().or_else(|| variable("PEEKLOCK_CA"));
        for file in authorities.iter().chain(&own) {
            tls = tls.trusting(certificates(file).map_err(refused)?);
        }
        let pair = match (&self.certificate, &self.certificate_key) {
            (Some(certificate), Some(key)) => [Some(certificate.clone()), Some(key.clone())],
            _ => ["PEEKLOCK_CERTIFICATE", "PEEKLOCK_CERTIFICATE_KEY"].map(variable),
        };
        match pair {
            [Some(certificate), Some(key)] => {
                tls.with_identity(&certificate, &key).map_err(refused)
            }
            [None, None] => Ok(tls),
            [Some(_), None] | [None, Some(_)] => Err(Failure::usage(
                "PEEKLOCK_CERTIFICATE and PEEKLOCK_CERTIFICATE_KEY go together: set both or \
                 neither",
            )),
        }
    }
}
