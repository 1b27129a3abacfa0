//! A development authority: creates the broker's certificate if the operator has none. The program
//! calls it at the start and for `peeklock tls`.
//!
//! A client that trusts the authority trusts it only for the names it was created with and the
//! names below them: its certificate has name constraints (RFC 5280 4.2.1.10, where `bus.lan` also
//! permits `eu.bus.lan`). A stolen key therefore cannot impersonate any other host. A further name
//! needs a new authority.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType,
};
use ring::digest::{SHA256, digest};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate::Certificate;
use crate::config::TlsConfig;

/// The authority's certificate, to be trusted by clients.
pub const AUTHORITY_FILE: &str = "authority.pem";
/// The authority's key.
const AUTHORITY_KEY_FILE: &str = "authority.key";
/// The broker's certificate.
const CERTIFICATE_FILE: &str = "server.pem";
/// The broker's key.
const KEY_FILE: &str = "server.key";

/// Validity of the authority: the usual lifetime of a machine.
const AUTHORITY_TIME: Duration = Duration::days(3_650);
/// Validity of the broker's certificate: systems reject longer ones.
const CERTIFICATE_TIME: Duration = Duration::days(397);
/// Time before its expiry at which a certificate is renewed.
const RENEW_BEFORE: Duration = Duration::days(60);
/// Tolerance for clocks that are behind.
const SINCE: Duration = Duration::days(1);
/// Maximum number of additional names and addresses of an authority.
const NAMES_MAX: usize = 64;

/// An authority in a directory, which may not exist yet.
#[derive(Clone, Debug)]
pub struct Authority {
    directory: PathBuf,
}

/// The existing certificates.
#[derive(Clone, Debug)]
pub struct ExistingCertificates {
    /// The authority.
    pub authority: Certificate,
    /// The certificate of the broker.
    pub certificate: Certificate,
}

/// An authority that is safe to trust: it can sign only for its own names and the names below them
/// (TLS-05).
#[derive(Clone, Debug)]
pub struct TrustedAuthority {
    /// Content of its certificate.
    pub certificate: Certificate,
    /// The examined certificate in PEM form. Install this text and not the file, which may have
    /// changed.
    pub pem: String,
    /// The permitted names and addresses.
    pub names: Vec<String>,
}

/// Result of [`Authority::prepare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreparedFiles {
    /// Nothing was missing.
    Nothing,
    /// A new certificate of the existing authority.
    Certificate,
    /// A new authority with a new certificate.
    Authority,
}

/// Reason why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A file has unexpected content.
    #[error("`{}` cannot be used: {detail}; `peeklock tls init --force` creates another authority", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Description of the flaw.
        detail: String,
    },
    /// The existing authority has other names.
    #[error(
        "the existing authority is only for {known}, not for `{name}`; `peeklock tls init --force` \
         creates another one, which clients must then trust"
    )]
    OtherNames {
        /// The requested name.
        name: String,
        /// The names of the authority.
        known: String,
    },
    /// The text is not a host name.
    #[error("`{0}` must be the name of a host, such as bus.example.com, or an address")]
    NotAName(String),
    /// There are too many names.
    #[error("{0} names are more than the limit of an authority, {NAMES_MAX}")]
    TooMany(usize),
    /// A key or certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Names and addresses of an authority.
#[derive(Clone, PartialEq, Eq, Default)]
struct Names {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Authority {
    /// Returns the authority in this directory.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Returns its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the authority's certificate, for clients to trust.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.directory.join(AUTHORITY_FILE)
    }

    /// Returns the settings for a broker with the authority's certificate.
    #[must_use]
    pub fn config(&self) -> TlsConfig {
        TlsConfig::of_files(self.directory.join(CERTIFICATE_FILE), self.directory.join(KEY_FILE))
    }

    /// Returns the existing certificates, or `None` if they were never created.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn kept(&self) -> Result<Option<ExistingCertificates>, AuthorityError> {
        let Some(authority) = self.certificate_of(AUTHORITY_FILE)? else { return Ok(None) };
        let Some(certificate) = self.certificate_of(CERTIFICATE_FILE)? else { return Ok(None) };
        Ok(Some(ExistingCertificates { authority: authority.1, certificate: certificate.1 }))
    }

    /// Examines the authority for clients that want to trust it. Returns `None` if it was never
    /// created.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is not limited to its own names.
    pub fn trustworthy(&self) -> Result<Option<TrustedAuthority>, AuthorityError> {
        let Some((pem, certificate)) = self.certificate_of(AUTHORITY_FILE)? else {
            return Ok(None);
        };
        let unusable = |detail| AuthorityError::Unusable { path: self.authority_file(), detail };
        if pem.matches("-----BEGIN").count() != 1 {
            return Err(unusable("it has more than one certificate".to_owned()));
        }
        let names = Names::of_authority(&pem).map_err(unusable)?;
        Ok(Some(TrustedAuthority { certificate, pem, names: names.texts().collect() }))
    }

    /// Creates the missing files (TLS-05): an authority for `localhost`, `127.0.0.1`, `::1` and
    /// these names, and its certificate, which is renewed before it expires. Private keys are
    /// readable only by their owner.
    ///
    /// # Errors
    /// Returns an error if the existing authority has other names, or a file cannot be written.
    pub fn prepare(&self, names: &[String]) -> Result<PreparedFiles, AuthorityError> {
        let wanted = Names::wanted(names)?;
        self.check_directory()?;
        let Some((pem, _)) = self.certificate_of(AUTHORITY_FILE)? else {
            return self.replace_for(&wanted).map(|()| PreparedFiles::Authority);
        };
        let path = self.authority_file();
        let unusable = |detail: &dyn std::fmt::Display| AuthorityError::Unusable {
            path: path.clone(),
            detail: detail.to_string(),
        };
        let known = Names::of_authority(&pem).map_err(|detail| unusable(&detail))?;
        if let Some(name) = wanted.first_missing_in(&known) {
            return Err(AuthorityError::OtherNames { name, known: known.text() });
        }
        if self.is_good(&known)? {
            return Ok(PreparedFiles::Nothing);
        }
        let key = KeyPair::from_pem(&self.text(AUTHORITY_KEY_FILE)?.unwrap_or_default())
            .map_err(|error| unusable(&format!("its key: {error}")))?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|error| unusable(&error))?;
        self.issue(&known, &issuer)?;
        Ok(PreparedFiles::Certificate)
    }

    /// Replaces the authority by a new one, with a new certificate.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn replace(&self, names: &[String]) -> Result<(), AuthorityError> {
        self.replace_for(&Names::wanted(names)?)
    }

    fn replace_for(&self, names: &Names) -> Result<(), AuthorityError> {
        let failed = |source| AuthorityError::File { path: self.directory.clone(), source };
        self.check_directory()?;
        create_directory(&self.directory).map_err(failed)?;
        let key = KeyPair::generate()?;
        let name = digest(&SHA256, key.public_key_raw());
        let name: String = name.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let mut params = params(&format!("Peeklock development authority {name}"), AUTHORITY_TIME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: names.subtrees(),
            excluded_subtrees: Vec::new(),
        });
        let certificate = params.self_signed(&key)?;
        let key_text = key.serialize_pem();
        let issuer = Issuer::new(params, key);
        // Write the certificate last: without it there is no authority, so an interrupted run
        // starts over.
        self.remove(AUTHORITY_FILE)?;
        self.write(AUTHORITY_KEY_FILE, &key_text, Secrecy::Private)?;
        self.issue(names, &issuer)?;
        self.write(AUTHORITY_FILE, &certificate.pem(), Secrecy::Public)
    }

    /// Rejects a symbolic link as the directory, because keys would be written to its target.
    fn check_directory(&self) -> Result<(), AuthorityError> {
        match fs::symlink_metadata(&self.directory) {
            Ok(found) if found.is_symlink() => {
                let text = "it is a symbolic link, and its target may belong to another user; \
                    replace it by a directory";
                let source = io::Error::other(text);
                Err(AuthorityError::File { path: self.directory.clone(), source })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Creates a certificate for the broker, signed by the authority.
    fn issue(&self, names: &Names, issuer: &Issuer<'_, KeyPair>) -> Result<(), AuthorityError> {
        let mut params = params("Peeklock", CERTIFICATE_TIME);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in &names.dns {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(names.addresses.iter().copied().map(SanType::IpAddress));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        // A certificate next to a key that does not match would prevent every start. Without a
        // certificate the next start creates both.
        self.remove(CERTIFICATE_FILE)?;
        self.write(KEY_FILE, &key.serialize_pem(), Secrecy::Private)?;
        self.write(CERTIFICATE_FILE, &certificate.pem(), Secrecy::Public)
    }

    /// Returns whether the broker's certificate exists, covers all names and does not expire soon.
    fn is_good(&self, names: &Names) -> Result<bool, AuthorityError> {
        let Some((_, certificate)) = self.certificate_of(CERTIFICATE_FILE)? else {
            return Ok(false);
        };
        let renew_at = OffsetDateTime::now_utc() + RENEW_BEFORE;
        let is_for_all = names.dns.iter().all(|name| certificate.is_for(name))
            && names.addresses.iter().all(|address| certificate.is_for_address(*address));
        let has_key = self.text(KEY_FILE)?.is_some();
        let ends_at = certificate.not_after.unix_ms() / 1_000;
        Ok(has_key && is_for_all && ends_at > renew_at.unix_timestamp())
    }

    /// Returns the text and content of a certificate file, or `None` if it does not exist.
    fn certificate_of(&self, file: &str) -> Result<Option<(String, Certificate)>, AuthorityError> {
        let Some(text) = self.text(file)? else { return Ok(None) };
        let unusable =
            |detail: String| AuthorityError::Unusable { path: self.directory.join(file), detail };
        let der = CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|error| unusable(error.to_string()))?;
        let certificate = Certificate::of_der(&der).map_err(|error| unusable(error.to_string()))?;
        Ok(Some((text, certificate)))
    }

    fn text(&self, file: &str) -> Result<Option<String>, AuthorityError> {
        let path = self.directory.join(file);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AuthorityError::File { path, source }),
        }
    }

    /// Writes a file atomically.
    fn write(&self, file: &str, text: &str, secrecy: Secrecy) -> Result<(), AuthorityError> {
        let path = self.directory.join(file);
        let new = self.directory.join(format!(".{file}.{}", std::process::id()));
        let written = write_new(&new, text, secrecy).and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| {
            // A leftover would block the next attempt.
            fs::remove_file(&new).ok();
            AuthorityError::File { path, source }
        })
    }

    fn remove(&self, file: &str) -> Result<(), AuthorityError> {
        let path = self.directory.join(file);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(AuthorityError::File { path, source })
            }
            _ => Ok(()),
        }
    }
}

/// Readers of a file: everybody, or only its owner.
#[derive(Clone, Copy)]
enum Secrecy {
    Public,
    Private,
}

impl Names {
    /// Returns the names that every authority has, and `more`.
    fn wanted(more: &[String]) -> Result<Self, AuthorityError> {
        let mut names = Self {
            dns: vec!["localhost".to_owned()],
            addresses: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        };
        if more.len() > NAMES_MAX {
            return Err(AuthorityError::TooMany(more.len()));
        }
        for name in more {
            let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            if let Ok(address) = bare.unwrap_or(name).parse() {
                if !names.addresses.contains(&address) {
                    names.addresses.push(address);
                }
                continue;
            }
            let name = name.to_ascii_lowercase();
            if !is_host(&name) {
                return Err(AuthorityError::NotAName(name));
            }
            if !names.dns.contains(&name) {
                names.dns.push(name);
            }
        }
        Ok(names)
    }

    /// Returns the names that an authority is constrained to. Fails if it could sign for anything
    /// else: if it may sign for other authorities, if its constraints are not critical, or if names
    /// or addresses are unconstrained.
    fn of_authority(pem: &str) -> Result<Self, String> {
        let der =
            CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| error.to_string())?;
        let basic = parsed.basic_constraints().map_err(|error| error.to_string())?;
        if basic.is_none_or(|it| !it.value.ca || it.value.path_len_constraint != Some(0)) {
            return Err("it is not a development authority of Peeklock, because it can sign for \
                other authorities"
                .into());
        }
        let constraints = parsed.name_constraints().map_err(|error| error.to_string())?;
        let constraints = constraints.filter(|it| it.critical);
        let permitted = constraints.and_then(|it| it.value.permitted_subtrees.as_ref());
        let permitted = permitted.ok_or(
            "it is not a development authority of Peeklock: its names are not limited, so a client \
             with its key could pretend to be any host",
        )?;
        let mut names = Self::default();
        for subtree in permitted {
            match &subtree.base {
                GeneralName::DNSName(name) if is_host(name) => names.dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => {
                    let address = address(bytes).ok_or("it is for a network of addresses")?;
                    names.addresses.push(address);
                }
                other => return Err(format!("it is for {other:?}, which is not a name of a host")),
            }
        }
        // Without a permitted subtree, a kind of name is unlimited (RFC 5280 4.2.1.10).
        if names.dns.is_empty() || names.addresses.is_empty() {
            return Err("it is not limited in its names, or not in its addresses".into());
        }
        Ok(names)
    }

    fn subtrees(&self) -> Vec<GeneralSubtree> {
        let dns = self.dns.iter().cloned().map(GeneralSubtree::DnsName);
        let addresses = self.addresses.iter().map(|address| {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
        });
        dns.chain(addresses).collect()
    }

    /// Returns the first name that `known` lacks.
    fn first_missing_in(&self, known: &Self) -> Option<String> {
        let dns = self.dns.iter().find(|name| !known.dns.contains(name)).cloned();
        dns.or_else(|| {
            let missing = self.addresses.iter().find(|address| !known.addresses.contains(address));
            missing.map(IpAddr::to_string)
        })
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        self.dns.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string))
    }

    fn text(&self) -> String {
        self.texts().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the address of a constraint, or `None` if it is a network.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let (address, mask) = bytes.split_at_checked(bytes.len() / 2)?;
    if mask.iter().any(|byte| *byte != u8::MAX) {
        return None;
    }
    match mask.len() {
        4 => <[u8; 4]>::try_from(address).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(address).ok().map(IpAddr::from),
        _ => None,
    }
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn params(name: &str, time: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - SINCE;
    params.not_after = now + time;
    params
}

#[cfg(unix)]
fn create_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

fn write_new(path: &Path, text: &str, secrecy: Secrecy) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        options.mode(match secrecy {
            Secrecy::Public => 0o644,
            Secrecy::Private => 0o600,
        });
    }
    #[cfg(not(unix))]
    let _ = secrecy;
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
