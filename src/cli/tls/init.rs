//! `peeklock tls init`

use clap::Args;
use peeklock::tls::authority::{AuthorityError, Made};

use super::super::{Failure, exit, say};
use super::{Of, show};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock tls init                                  for localhost, 127.0.0.1 and ::1
  peeklock tls init --name bus.lan --name 10.0.0.7   for these too
  peeklock tls init --name bus.lan --force           another authority in the place of the one that is there

What is there and fits stays: the command can be run again. The certificate of the broker is good for 397 days and is \
made anew, by the same authority, when the broker starts within 60 days of its end. A broker that is running takes \
another certificate by itself.

",
    exit_codes!()
);

#[derive(Args)]
pub struct InitFlags {
    /// Another name or address by which clients reach the broker; may be given several times
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Make another authority, also if there is one: who trusts that one has to trust the other anew
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    of: Of,
}

pub fn run(flags: &InitFlags) -> Result<(), Failure> {
    let authority = flags.of.authority()?;
    let made = if flags.force {
        authority.replace(&flags.names).map(|()| Made::Authority)
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
        Made::Authority => "authority and certificate made",
        Made::Certificate => "certificate made, by the authority that is there",
        Made::Nothing => "authority and certificate are there already",
    };
    say(&format!(
        "{done}\n\n{}\nnext: `peeklock serve --tls`, and `peeklock tls trust` for clients\n",
        show::text(&authority, &kept)
    ))
}
