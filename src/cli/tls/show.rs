//! `peeklock tls show`: shows the authority and its certificate. `tls.rs` dispatches to it.

use clap::Args;
use peeklock::tls::authority::{Authority, ExistingCertificates};
use serde_json::json;

use super::super::connect::Output;
use super::super::terminal::object;
use super::super::{Failure, print};
use super::AuthorityFlags;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock tls show
  peeklock tls show --pem > authority.pem    for clients; contains no secret
  peeklock tls show -o json | jq -r .authority.fingerprint

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    /// Print only the authority's certificate
    #[arg(long, conflicts_with = "output")]
    pem: bool,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
    #[command(flatten)]
    of: AuthorityFlags,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    let (authority, kept) = flags.of.kept()?;
    if flags.pem {
        return print(&std::fs::read_to_string(authority.authority_file())?);
    }
    if flags.output == Output::Table {
        return print(&text(&authority, &kept));
    }
    let of = |certificate: &peeklock::tls::Certificate| {
        json!({
            "subject": certificate.subject,
            "names": names(certificate),
            "notBefore": certificate.not_before.to_string(),
            "notAfter": certificate.not_after.to_string(),
            "fingerprint": certificate.fingerprint,
        })
    };
    let document = json!({
        "directory": authority.directory().display().to_string(),
        "authorityFile": authority.authority_file().display().to_string(),
        "authority": of(&kept.authority),
        "certificate": of(&kept.certificate),
    });
    print(&object(&document.to_string(), flags.output))
}

/// Text about the authority and its certificate.
pub fn text(authority: &Authority, kept: &ExistingCertificates) -> String {
    let ExistingCertificates { authority: issuer, certificate } = kept;
    format!(
        "authority    {}\nfile         {}\nfingerprint  {}\nvalid until  {}\nnames        \
         {}\ncertificate  valid until {}\n",
        issuer.subject,
        authority.authority_file().display(),
        issuer.fingerprint,
        issuer.not_after,
        names(certificate).join(", "),
        certificate.not_after,
    )
}

fn names(certificate: &peeklock::tls::Certificate) -> Vec<String> {
    let addresses = certificate.addresses.iter().map(ToString::to_string);
    certificate.dns_names.iter().cloned().chain(addresses).collect()
}
