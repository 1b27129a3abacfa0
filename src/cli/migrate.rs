//! `peeklock migrate`: copies all messages between a data directory and a PostgreSQL database, while
//! the broker is stopped (CLU-54). `cli.rs` dispatches to it.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peeklock::core::migration::{Migration, MigrationError, Progress};
use peeklock::postgres::PostgresStore;
use peeklock::store::{Journal, Store};

use super::exit::{self, Interrupt};
use super::{Failure, FileFlag, print, scrub};
use crate::config::{Layers, Loaded, store_text};

pub const HELP: &str = "\
Examples:
  peeklock migrate --from ./data --to postgres://peeklock@localhost/peeklock --config peeklock.toml
  peeklock migrate --from postgres://peeklock@localhost/peeklock --to ./data --config peeklock.toml

Stop the broker first. The command copies all messages, entities, policies and keys from a data \
directory to a PostgreSQL database, or back, reads everything again, and compares every record and \
content. Entity ids, sequence numbers, counts and scheduled messages stay; locks end as at a \
restart. The messages of the source are not changed.

The destination must be empty: a database without a broker's tables or with empty ones, or a \
directory without a journal. An address begins with postgres:// or postgresql://, or is in words \
such as 'host=/run/postgresql user=peeklock dbname=peeklock'; everything else is a directory. The \
other settings, such as store.postgres.password_file, come from the configuration.

If the command is interrupted, run it again: it continues. Until it reports success, no broker \
opens the destination.

The audit trail, jobs, series, muted findings, development certificates and the first key are \
files in the data directory. They are not copied: keep the directory, or copy these files. Do not \
start a broker on the source again: it would deliver everything a second time.

Exit codes:
  0    copied, compared and equal
  1    failure; the output has the reason
  2    usage or configuration
  4    the source has no data of a broker
  5    the destination has data of a broker
  130  interrupted; run the command again";

#[derive(Args)]
pub struct MigrateFlags {
    /// Data directory, or address of the database, with the messages
    #[arg(long, value_name = "DIR_OR_URL")]
    from: String,
    /// Data directory, or address of the database, that gets the messages
    #[arg(long, value_name = "DIR_OR_URL")]
    to: String,
    #[command(flatten)]
    file: FileFlag,
}

/// Template of the progress line.
const TEMPLATE: &str = "{msg:10} [{bar:20}] {pos} of {len} entities, {prefix}";

pub fn run(flags: &MigrateFlags) -> Result<(), Failure> {
    let layers = Layers { file: flags.file.config.clone(), ..Layers::default() };
    let loaded = Loaded::load(&layers)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let interrupt = runtime.block_on(async { Interrupt::listen() })?;
    if !is_address(&flags.from) {
        // A directory without a journal is not changed, so it is checked first.
        drop(scrub::look_at(Path::new(&flags.from))?);
    }
    let source = open(&loaded, &flags.from)?;
    let destination = open(&loaded, &flags.to)?;
    let mut hash_key = [0; 16];
    getrandom::fill(&mut hash_key)
        .map_err(|error| Failure::Failed(format!("no random bytes: {error}")))?;
    let bar = progress_bar();
    let mut observe = |progress: Progress| {
        show(&bar, progress);
        !interrupt.is_set()
    };
    let copied = runtime.block_on(async {
        let migration = Migration::begin(&*source, &*destination, hash_key, &mut observe).await?;
        migration.copy().await
    });
    // Opened again, so that everything is read from the medium.
    let closed = close(&flags.to, &*destination);
    drop(destination);
    let copied = copied.map_err(failure)?;
    closed?;
    let destination = open(&loaded, &flags.to)?;
    let compared = runtime.block_on(async {
        let compared = copied.compare(&*destination, &mut observe).await?;
        copied.finish(&*source, &*destination).await?;
        Ok(compared)
    });
    bar.finish_and_clear();
    let closed = close(&flags.to, &*destination).and_then(|()| close(&flags.from, &*source));
    let (sum, entities) = compared.map_err(failure)?;
    closed?;
    let next = match is_address(&flags.to) {
        true => "set store.kind = \"postgres\" and store.postgres.url, and start the broker",
        false => "set store.kind = \"journal\" and server.data_dir, and start the broker",
    };
    let entities = match entities {
        1 => "1 entity".to_owned(),
        count => format!("{count} entities"),
    };
    print(&format!(
        "copied {entities} with {} records ({}), and read everything again: both stores are \
         equal\nnext: {next}\n",
        sum.records,
        scrub::bytes(sum.bytes)
    ))
}

/// Whether a place is the address of a database. Its words may come in any order.
fn is_address(place: &str) -> bool {
    place.contains("://") || (place.contains('=') && !Path::new(place).exists())
}

/// Opens a store, which locks it against brokers.
fn open(loaded: &Loaded, place: &str) -> Result<Arc<dyn Store>, Failure> {
    let opened = if is_address(place) {
        let mut section = loaded.config.postgres.clone();
        section.url = place.to_owned();
        let config = section.config().map_err(|(key, detail)| {
            // The address is an argument here.
            let key = if key == "store.postgres.url" { "address of the database" } else { &*key };
            Failure::usage(format!("{key}: {detail}"))
        })?;
        PostgresStore::open_alone(&config).map(|store| store as Arc<dyn Store>)
    } else {
        let mut journal = loaded.config.journal.clone();
        if journal.capacity_bytes == 0 {
            journal.capacity_bytes = u64::MAX;
        }
        Journal::open(Path::new(place), journal).map(|store| store as Arc<dyn Store>)
    };
    opened.map_err(|error| {
        let text = store_text(&error);
        let is_named = text.contains(&format!("`{place}`"));
        Failure::Failed(if is_named { text } else { format!("`{place}`: {text}") })
    })
}

fn close(place: &str, store: &dyn Store) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("`{place}`: {}", store_text(&error)));
    store.close().map_err(failed)
}

fn failure(error: MigrationError) -> Failure {
    let code = match &error {
        MigrationError::Empty => exit::NOT_FOUND,
        MigrationError::NotEmpty => exit::EXISTS,
        MigrationError::Interrupted => exit::INTERRUPTED,
        _ => exit::FAILURE,
    };
    Failure::ended(code, error.to_string())
}

/// The progress line, on a terminal only, on standard error.
fn progress_bar() -> ProgressBar {
    let bar = match io::stderr().is_terminal() {
        true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template(TEMPLATE);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_message(if progress.is_comparing { "comparing" } else { "copying" });
    bar.set_prefix(scrub::bytes(progress.bytes));
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
}
