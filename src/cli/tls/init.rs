//! `peeklock tls init`: creates an authority for development, and a certificate. `tls.rs`
//! dispatches to it. An existing authority is kept.

use clap::Args;
use peeklock::tls::authority::{AuthorityError, PreparedFiles};

use super::super::{Failure, exit, print};
use super::{AuthorityFlags, show};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock tls init                                  for localhost, 127.0.0.1 and ::1
  peeklock tls init --name bus.lan --name 10.0.0.7   for these too
  peeklock tls init --name bus.lan --force           replace the existing authority

You can run the command again: existing files that fit stay. The certificate of the broker is \
valid for 397 days. The same authority renews it if the broker starts within 60 days of its end. \
A running broker loads a new certificate by itself.

",
    exit_codes!()
);

#[derive(Args)]
pub struct InitFlags {
    /// Additional name or address of the broker, such as bus.lan; may be repeated
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Replace an existing authority; clients that trust it must trust the new authority
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    of: AuthorityFlags,
}

pub fn run(flags: &InitFlags) -> Result<(), Failure> {
    let authority = flags.of.authority()?;
    let made = if flags.force {
        authority.replace(&flags.names).map(|()| PreparedFiles::Authority)
    } else {
        authority.prepare(&flags.names)
    };
    let made = made.map_err(|error| {
        let code = match error {
            AuthorityError::OtherNames { .. } => exit::EXISTS,
            AuthorityError::NotAName(_) | AuthorityError::TooMany(_) => exit::USAGE,
            _ => 1,
        };
        Failure::ended(code, error.to_string())
    })?;
    let (authority, kept) = flags.of.kept().map(|(_, kept)| (authority, kept))?;
    let done = match made {
        PreparedFiles::Authority => "authority and certificate created",
        PreparedFiles::Certificate => "certificate created, signed by the existing authority",
        PreparedFiles::Nothing => "authority and certificate already exist",
    };
    print(&format!(
        "{done}\n\n{}\nnext: `peeklock serve --tls`, and `peeklock tls trust` for clients\n",
        show::text(&authority, &kept)
    ))
}
