//! Opening of the configured store and of the data directory, and the texts of their errors.
//! `server.rs` calls it.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use peeklock::store::journal::disk::{Disk as _, OsDisk};
use peeklock::store::{Store, StoreError};

use super::ServeError;
use crate::config::Loaded;
use crate::registry;

/// Text of a store error that names its directory exactly once.
pub fn in_directory(directory: &str, error: &StoreError) -> String {
    let named = format!("`{directory}`");
    let text = error.to_string();
    if text.contains(&named) { text } else { format!("{named}: {text}") }
}

/// Advice for a store that cannot be opened.
pub const fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged(_) => {
            "; nothing was changed: `peeklock verify` shows the damage, `peeklock repair` shows \
             the data that can be saved"
        }
        StoreError::Failed(_)
        | StoreError::Unknown
        | StoreError::Unavailable(_)
        | StoreError::Fenced { .. }
        | StoreError::Gone => {
            "; choose another directory with --data-dir or server.data_dir, or keep messages in \
             memory only with --ephemeral"
        }
    }
}

/// Advice for a store in a database whose error has none.
pub const fn database_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged(_) => {
            "; nothing was changed: restore the database from a backup, which loses every later \
             change"
        }
        _ => "",
    }
}

/// Creates the data directory if it is missing, readable only by its owner, as a store does.
pub fn make_data_dir(path: &str) -> Result<(), ServeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| ServeError::RootKey { path: path.to_owned(), source })
}

/// Locks the data directory of a broker that stores its messages in a database, as the journal
/// does. Its other files are there, and commands find the running broker by the lock.
pub fn hold_data_dir(path: &str) -> Result<OsDisk, ServeError> {
    let failed = |source| ServeError::DataDir { source };
    let disk = OsDisk::open(Path::new(path)).map_err(failed)?;
    if disk.list().map_err(failed)?.iter().any(|name| name.starts_with("segment-")) {
        tracing::warn!(
            directory = path,
            "the data directory has a journal, and the messages in it are not served, because \
             store.kind is postgres; `peeklock migrate` copies them"
        );
    }
    Ok(disk)
}

/// Opens the configured store.
pub fn open_store(loaded: &Loaded) -> Result<Arc<dyn Store>, ServeError> {
    let name = registry::store_in_use(loaded);
    let opened = Instant::now();
    let store = registry::STORES
        .iter()
        .find(|(store, _)| *store == name)
        .map_or_else(|| unreachable!("the registry has the store"), |(_, open)| open(loaded))
        .map_err(|source| match name {
            registry::POSTGRES => ServeError::OpenDatabase { source },
            _ => ServeError::Open { directory: loaded.config.server.data_dir.clone(), source },
        })?;
    tracing::info!(store = name, elapsed = ?opened.elapsed(), "store is open");
    Ok(store)
}
