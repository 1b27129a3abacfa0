//! An authority for development: makes the certificate of a broker where nobody else does.
//!
//! Who trusts it trusts it for the names it was made for and names below them, and for no other: it is constrained to
//! them (RFC 5280 4.2.1.10, where `bus.lan` permits `eu.bus.lan`, too), so that a key that gets into wrong hands cannot
//! stand in for the rest of the internet. For another name there is another authority.

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

/// The authority's certificate, for who is to trust it.
pub const AUTHORITY_FILE: &str = "authority.pem";
/// The authority's key.
const AUTHORITY_KEY_FILE: &str = "authority.key";
/// The broker's certificate.
const CERTIFICATE_FILE: &str = "server.pem";
/// The broker's key.
const KEY_FILE: &str = "server.key";

/// As long as people keep a machine.
const AUTHORITY_TIME: Duration = Duration::days(3_650);
/// Systems refuse certificates that are good for longer.
const CERTIFICATE_TIME: Duration = Duration::days(397);
/// So long before its end it is made anew.
const RENEW_BEFORE: Duration = Duration::days(60);
/// For clocks that are behind.
const SINCE: Duration = Duration::days(1);
/// Names and addresses of one authority.
const NAMES_MAX: usize = 64;

/// Where an authority is, or will be.
#[derive(Clone, Debug)]
pub struct Authority {
    directory: PathBuf,
}

/// What there is.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The authority.
    pub authority: Certificate,
    /// The certificate of the broker.
    pub certificate: Certificate,
}

/// An authority that may be trusted: it vouches for its own names and names below them, and for nothing else (TLS-05).
#[derive(Clone, Debug)]
pub struct Trustworthy {
    /// What its certificate says.
    pub certificate: Certificate,
    /// The certificate that was examined, in PEM form: to be installed in place of the file, which may change.
    pub pem: String,
    /// The names and addresses that it is limited to.
    pub names: Vec<String>,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// Everything was there.
    Nothing,
    /// Another certificate by the authority that was there.
    Certificate,
    /// An authority, and a certificate by it.
    Authority,
}

/// Why there is no authority that can be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file cannot be read or written.
    #[error("`{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file does not have what was put there.
    #[error("`{}` cannot be used: {detail}; `peeklock tls init --force` creates another authority", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The authority was made for other names.
    #[error(
        "the existing authority is only for {known}, not for `{name}`; `peeklock tls init --force` \
         creates another one, which clients must then trust"
    )]
    OtherNames {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// It is no name of a host.
    #[error("`{0}` must be the name of a host, such as bus.example.com, or an address")]
    NotAName(String),
    /// There are too many names.
    #[error("{0} names are more than the limit of an authority, {NAMES_MAX}")]
    TooMany(usize),
    /// Keys or certificates cannot be made.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// What an authority is for.
#[derive(Clone, PartialEq, Eq, Default)]
struct Names {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Authority {
    /// The authority in this directory.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Its directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file with its certificate, to be trusted.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.directory.join(AUTHORITY_FILE)
    }

    /// The settings of a broker with its certificate.
    #[must_use]
    pub fn config(&self) -> TlsConfig {
        TlsConfig::of_files(self.directory.join(CERTIFICATE_FILE), self.directory.join(KEY_FILE))
    }

    /// What there is; none if it was never made.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn kept(&self) -> Result<Option<Kept>, AuthorityError> {
        let Some(authority) = self.certificate_of(AUTHORITY_FILE)? else { return Ok(None) };
        let Some(certificate) = self.certificate_of(CERTIFICATE_FILE)? else { return Ok(None) };
        Ok(Some(Kept { authority: authority.1, certificate: certificate.1 }))
    }

    /// The authority, examined for who is to trust it; none if it was never made.
    ///
    /// # Errors
    /// When it cannot be read, or is not limited to its own names.
    pub fn trustworthy(&self) -> Result<Option<Trustworthy>, AuthorityError> {
        let Some((pem, certificate)) = self.certificate_of(AUTHORITY_FILE)? else {
            return Ok(None);
        };
        let unusable = |detail| AuthorityError::Unusable { path: self.authority_file(), detail };
        if pem.matches("-----BEGIN").count() != 1 {
            return Err(unusable("it has more than one certificate".to_owned()));
        }
        let names = Names::of_authority(&pem).map_err(unusable)?;
        Ok(Some(Trustworthy { certificate, pem, names: names.texts().collect() }))
    }

    /// Makes what is missing (TLS-05): an authority for `localhost`, `127.0.0.1`, `::1` and these names, and a certificate by
    /// it, which is made anew in time before it ends. Private keys are readable by their owner alone.
    ///
    /// # Errors
    /// When the authority that is there is for other names, or nothing can be written.
    pub fn prepare(&self, names: &[String]) -> Result<Made, AuthorityError> {
        let wanted = Names::wanted(names)?;
        self.check_directory()?;
        let Some((pem, _)) = self.certificate_of(AUTHORITY_FILE)? else {
            return self.replace_for(&wanted).map(|()| Made::Authority);
        };
        let path = self.authority_file();
        let unusable = |detail: &dyn std::fmt::Display| AuthorityError::Unusable {
            path: path.clone(),
            detail: detail.to_string(),
        };
        let known = Names::of_authority(&pem).map_err(|detail| unusable(&detail))?;
        if let Some(name) = wanted.first_beyond(&known) {
            return Err(AuthorityError::OtherNames { name, known: known.text() });
        }
        if self.is_good(&known)? {
            return Ok(Made::Nothing);
        }
        let key = KeyPair::from_pem(&self.text(AUTHORITY_KEY_FILE)?.unwrap_or_default())
            .map_err(|error| unusable(&format!("its key: {error}")))?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|error| unusable(&error))?;
        self.issue(&known, &issuer)?;
        Ok(Made::Certificate)
    }

    /// Makes another authority in the place of the one that is there, and a certificate by it.
    ///
    /// # Errors
    /// When nothing can be written.
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
        // The certificate comes last: without it there is no authority, and all is made again.
        self.forget(AUTHORITY_FILE)?;
        self.write(AUTHORITY_KEY_FILE, &key_text, Secrecy::Private)?;
        self.issue(names, &issuer)?;
        self.write(AUTHORITY_FILE, &certificate.pem(), Secrecy::Public)
    }

    /// Refuses a directory that is a link: keys would be written to where it leads.
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

    /// A certificate of the broker by an authority.
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
        // A certificate beside the key of another would stop every start: without one both are made again.
        self.forget(CERTIFICATE_FILE)?;
        self.write(KEY_FILE, &key.serialize_pem(), Secrecy::Private)?;
        self.write(CERTIFICATE_FILE, &certificate.pem(), Secrecy::Public)
    }

    /// Whether the certificate of the broker is there, for all names, and not about to end.
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

    /// A certificate of a file, as its text and what it says; none if there is no such file.
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

    /// Writes a file whole or not at all.
    fn write(&self, file: &str, text: &str, secrecy: Secrecy) -> Result<(), AuthorityError> {
        let path = self.directory.join(file);
        let new = self.directory.join(format!(".{file}.{}", std::process::id()));
        let written = write_new(&new, text, secrecy).and_then(|()| fs::rename(&new, &path));
        written.map_err(|source| {
            // What is left of it would be in the way next time.
            fs::remove_file(&new).ok();
            AuthorityError::File { path, source }
        })
    }

    fn forget(&self, file: &str) -> Result<(), AuthorityError> {
        let path = self.directory.join(file);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(AuthorityError::File { path, source })
            }
            _ => Ok(()),
        }
    }
}

/// Who may read a file.
#[derive(Clone, Copy)]
enum Secrecy {
    Public,
    Private,
}

impl Names {
    /// The names that every authority has, and these.
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

    /// What an authority is constrained to. Fails for one that can vouch for anything else: that signs for other
    /// authorities, has constraints that a client may pass over, or is free for names or for addresses.
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
        // A kind of name of which none is permitted is not limited (RFC 5280 4.2.1.10).
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

    /// The first name that others do not have.
    fn first_beyond(&self, known: &Self) -> Option<String> {
        let dns = self.dns.iter().find(|name| !known.dns.contains(name)).cloned();
        dns.or_else(|| {
            let beyond = self.addresses.iter().find(|address| !known.addresses.contains(address));
            beyond.map(IpAddr::to_string)
        })
    }

    fn texts(&self) -> impl Iterator<Item = String> {
        self.dns.iter().cloned().chain(self.addresses.iter().map(IpAddr::to_string))
    }

    fn text(&self) -> String {
        self.texts().collect::<Vec<_>>().join(", ")
    }
}

/// The address of a constraint; none if its mask lacks bits, so that it is for a network.
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
