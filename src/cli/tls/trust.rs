//! `peeklock tls trust`: prints the steps for trusting the authority, or carries them out. `tls.rs`
//! dispatches to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use peeklock::tls::authority::TrustedAuthority;

use super::super::{Failure, print};
use super::AuthorityFlags;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock tls trust              print the steps for each system
  sudo peeklock tls trust --system --data-dir /var/lib/peeklock

--system makes Debian and its derivatives trust the authority, for programs that use the system's \
list: curl, Python, Go, this program. Java, Node and browsers have their own lists; the command \
prints the steps for them.

",
    exit_codes!()
);

/// Directory for an administrator's authorities on Debian.
const DEBIAN: &str = "/usr/local/share/ca-certificates";

#[derive(Args)]
pub struct TrustFlags {
    /// Make this machine trust the authority (Debian and its derivatives)
    #[arg(long)]
    system: bool,
    #[command(flatten)]
    of: AuthorityFlags,
}

pub fn run(flags: &TrustFlags) -> Result<(), Failure> {
    let (authority, examined) = flags.of.trustworthy()?;
    if flags.system {
        return trust(&examined);
    }
    let file = authority.authority_file();
    let file = fs::canonicalize(&file).unwrap_or(file);
    print(&advice(&file, &examined))
}

/// File name of the authority, derived from its fingerprint.
fn name(examined: &TrustedAuthority) -> String {
    let id: String = examined.certificate.fingerprint.split(':').take(4).collect();
    format!("peeklock-{}", id.to_lowercase())
}

/// Makes Debian trust the checked authority.
fn trust(examined: &TrustedAuthority) -> Result<(), Failure> {
    if !Path::new(DEBIAN).is_dir() {
        return Err(Failure::Failed(format!(
            "`{DEBIAN}` does not exist: this is not Debian with ca-certificates; `peeklock tls \
             trust` prints the steps for other systems"
        )));
    }
    let target = PathBuf::from(DEBIAN).join(format!("{}.crt", name(examined)));
    fs::write(&target, &examined.pem).map_err(|error| {
        Failure::Failed(format!("`{}`: {error}; run --system as root (sudo)", target.display()))
    })?;
    let updated = Command::new("update-ca-certificates").output();
    let updated =
        updated.map_err(|error| Failure::Failed(format!("update-ca-certificates: {error}")))?;
    if !updated.status.success() {
        let said = String::from_utf8_lossy(&updated.stderr);
        return Err(Failure::Failed(format!("update-ca-certificates: {}", said.trim())));
    }
    print(&format!(
        "this machine now trusts the authority; to undo this: rm {} && update-ca-certificates \
         --fresh\n",
        target.display()
    ))
}

/// Steps for each kind of client.
fn advice(file: &Path, examined: &TrustedAuthority) -> String {
    let (file, name) = (file.display(), name(examined));
    format!(
        "\
The authority ({subject}) can issue certificates only for these names and names below them:
{names}

This program          peeklock --ca '{file}' …, or PEEKLOCK_CA='{file}'
curl                  curl --cacert '{file}' https://localhost:5300/health
Debian, Ubuntu        sudo cp '{file}' {DEBIAN}/{name}.crt && sudo update-ca-certificates
Fedora, RHEL          sudo cp '{file}' /etc/pki/ca-trust/source/anchors/{name}.pem && sudo update-ca-trust
macOS                 sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain '{file}'
Windows, .NET there   certutil -user -addstore Root authority.pem
.NET on Linux         as the system, or SSL_CERT_FILE='{file}'
Node                  NODE_EXTRA_CA_CERTS='{file}'
Python (azure)        connection_verify='{file}' of each client; REQUESTS_CA_BUNDLE='{file}' is enough for administration
Go                    as the system, or SSL_CERT_FILE='{file}'
Java                  keytool -importcert -noprompt -alias {name} -file '{file}' -keystore trust.p12 -storepass changeit
                      java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit …

SSL_CERT_FILE replaces the list of the system. The file contains no secret; private keys stay in \
the data directory.
",
        subject = examined.certificate.subject,
        names = examined.names.join(", "),
    )
}
