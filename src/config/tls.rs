//! The section `[tls]`: checks the named files and opens the certificate for the listeners.
//! `config.rs` calls it at start, and the commands `tls` and `connection-string` find the authority
//! with it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use config::{Map, Value};
use peeklock::contract::port;
use peeklock::tls::authority::{Authority, PreparedFiles};
use peeklock::tls::{ClientCertificates, File, FileError, Tls, TlsConfig};

use super::Layer;
use super::sections::TlsSection;

/// The directory of the development authority within the data directory.
pub const AUTHORITY_DIRECTORY: &str = "tls";

/// Defaults if TLS is enabled: AMQP clients then use another port (AMQP-02).
pub(super) fn secure_defaults() -> Layer {
    let value = format!("{}:{}", Ipv4Addr::LOCALHOST, port::AMQPS);
    let value = Value::new(Some(&"tls.enabled".to_owned()), value);
    Layer(Map::from_iter([("amqp.address".to_owned(), value)]))
}

impl TlsSection {
    /// Whether the certificate is signed by the development authority.
    pub const fn is_development(&self) -> bool {
        self.enabled && self.certificate_file.is_empty()
    }

    /// Whether certificate files are named while TLS is off.
    pub const fn is_left_off(&self) -> bool {
        !self.enabled && !self.certificate_file.is_empty()
    }

    /// Reads the named files as the broker would.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn judge(&self) -> Result<(), (String, String)> {
        let wrong = |key: &str, detail: &str| Err((format!("tls.{key}"), detail.to_owned()));
        let [certificate, key] =
            [&self.certificate_file, &self.key_file].map(|file| !file.is_empty());
        if certificate && !key {
            return wrong(
                "key_file",
                "the certificate has no key; write the file with its private key",
            );
        }
        if key && !certificate {
            return wrong(
                "certificate_file",
                "the key has no certificate; write the file with the certificate",
            );
        }
        if self.client_certificate_required && self.client_ca_file.is_empty() {
            return wrong(
                "client_ca_file",
                "client certificates are required, but no authority for them is set; write a file \
                 with authorities, or set tls.client_certificate_required = false",
            );
        }
        if self.enabled && certificate {
            Tls::open(self.with_files(self.named())).map_err(|error| self.explain(&error))?;
        } else if self.enabled && !self.client_ca_file.is_empty() {
            peeklock::tls::certificates(Path::new(&self.client_ca_file))
                .map_err(|error| ("tls.client_ca_file".to_owned(), error.to_string()))?;
        }
        Ok(())
    }

    /// Returns the certificate in use; none without TLS. Creates the development authority if it is
    /// missing.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn open(&self, data_dir: &str) -> Result<Option<Arc<Tls>>, (String, String)> {
        if !self.enabled {
            return Ok(None);
        }
        let config = if self.is_development() {
            let authority = Self::authority(Path::new(data_dir));
            let made = authority.prepare(&[]);
            let made = made.map_err(|error| ("tls.enabled".to_owned(), error.to_string()))?;
            let file = authority.authority_file();
            match made {
                PreparedFiles::Authority => tracing::info!(
                    file = %file.display(),
                    "development authority created; `peeklock tls trust` prints the steps by which \
                     clients trust it"
                ),
                PreparedFiles::Certificate => {
                    tracing::info!("the development authority issued a new certificate");
                }
                PreparedFiles::Nothing => {}
            }
            authority.config()
        } else {
            self.named()
        };
        Tls::open(self.with_files(config)).map(Some).map_err(|error| self.explain(&error))
    }

    /// The development authority of a data directory.
    pub fn authority(data_dir: &Path) -> Authority {
        Authority::at(data_dir.join(AUTHORITY_DIRECTORY))
    }

    fn named(&self) -> TlsConfig {
        TlsConfig::of_files(&self.certificate_file, &self.key_file)
    }

    fn with_files(&self, mut config: TlsConfig) -> TlsConfig {
        let authorities = &self.client_ca_file;
        config.client_certificates =
            match (authorities.is_empty(), self.client_certificate_required) {
                (true, _) => ClientCertificates::Ignored,
                (false, false) => ClientCertificates::Optional(authorities.into()),
                (false, true) => ClientCertificates::Required(authorities.into()),
            };
        config.handshake_timeout = self.handshake_timeout.to_std();
        config.handshake_count_max = self.handshake_count_max;
        config
    }

    fn explain(&self, error: &FileError) -> (String, String) {
        let key = match error.file() {
            _ if self.is_development() => "enabled",
            File::Certificate => "certificate_file",
            File::Key => "key_file",
            File::Authorities => "client_ca_file",
        };
        (format!("tls.{key}"), error.to_string())
    }
}
