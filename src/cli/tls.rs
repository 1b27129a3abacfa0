//! `peeklock tls`: an authority for development, and ways for clients to trust it. `cli.rs`
//! dispatches to it.

mod init;
mod show;
mod trust;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use peeklock::tls::authority::{Authority, AuthorityError, ExistingCertificates, TrustedAuthority};

use super::{Failure, FileFlag, exit};
use crate::config::{Flag, Layers, Loaded, TlsSection};

pub const HELP: &str = "\
Examples:
  peeklock tls init --name bus.lan --name 192.168.1.7
  peeklock serve --tls
  peeklock tls trust                         print the steps for clients
  curl --cacert ./data/tls/authority.pem https://localhost:5300/health
  peeklock queue list --data-dir ./data      on the machine of the broker

The authority is in the directory `tls` of the data directory. `peeklock serve --tls` creates it \
if it does not exist, for localhost, 127.0.0.1 and ::1. It can only issue certificates for the \
names that it was created for and names below them; this limits the risk for clients that trust \
it. To use your own certificate, set `tls.certificate_file` and `tls.key_file`.";

#[derive(Subcommand)]
pub enum TlsCommand {
    /// Create a certificate authority for development, and a certificate
    #[command(after_help = init::HELP)]
    Init(init::InitFlags),
    /// Show the authority and its certificate
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// Print the steps by which clients trust the authority
    #[command(after_help = trust::HELP)]
    Trust(trust::TrustFlags),
}

/// Flags that select the authority.
#[derive(Args)]
pub struct AuthorityFlags {
    /// Data directory of the broker [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    #[command(flatten)]
    file: FileFlag,
}

pub fn run(command: &TlsCommand) -> Result<(), Failure> {
    match command {
        TlsCommand::Init(flags) => init::run(flags),
        TlsCommand::Show(flags) => show::run(flags),
        TlsCommand::Trust(flags) => trust::run(flags),
    }
}

impl AuthorityFlags {
    /// The authority that `serve` would use with the same flags.
    fn authority(&self) -> Result<Authority, Failure> {
        let flag = self.data_dir.clone().map(|value| Flag {
            name: "--data-dir",
            key: "server.data_dir",
            value,
        });
        let flags = flag.into_iter().collect();
        let layers = Layers {
            file: self.file.config.clone(),
            environment: None,
            flags,
            ..Layers::default()
        };
        let data_dir = PathBuf::from(Loaded::load(&layers)?.config.server.data_dir);
        Ok(TlsSection::authority(&data_dir))
    }

    /// The authority with its existing certificates.
    fn kept(&self) -> Result<(Authority, ExistingCertificates), Failure> {
        self.with(Authority::kept)
    }

    /// The authority with its certificates, checked before a client may trust it.
    fn trustworthy(&self) -> Result<(Authority, TrustedAuthority), Failure> {
        self.with(Authority::trustworthy)
    }

    fn with<T>(
        &self,
        read: impl Fn(&Authority) -> Result<Option<T>, AuthorityError>,
    ) -> Result<(Authority, T), Failure> {
        let authority = self.authority()?;
        match read(&authority).map_err(|error| Failure::Failed(error.to_string()))? {
            Some(found) => Ok((authority, found)),
            None => Err(Failure::ended(
                exit::NOT_FOUND,
                format!(
                    "there is no authority in `{}`; create it with `peeklock tls init` or \
                     `peeklock serve --tls`",
                    authority.directory().display()
                ),
            )),
        }
    }
}
