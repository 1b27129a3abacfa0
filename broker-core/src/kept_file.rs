//! Files of the data directory that are small enough to be replaced as a whole: series, muted
//! findings. Like all files there, they are only for their owner.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Whether the new content of a file must survive a crash of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Durability {
    /// It is synced before the call returns.
    Synced,
    /// A crash of the machine may bring an earlier content back, or none.
    Written,
}

/// Replaces a file. Creates its directory if it does not exist. May wait for the disk.
pub(crate) fn replace(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    if durability == Durability::Written {
        return fs::rename(&new, path);
    }
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(directory)?.sync_all()
}

/// Reads a file of at most `bytes_max`; larger ones were not written by a broker. A file that cannot
/// be read, or that `parse` refuses, is put aside as `NAME.damaged` in place of an older one, and
/// the log says that its content, called `name`, is lost. `None` without a file of use.
pub(crate) fn read<T>(
    path: &Path,
    bytes_max: u64,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, &'static str>,
) -> Option<T> {
    let read = || match fs::metadata(path)?.len() {
        length if length > bytes_max => Ok(Err("the file is too large")),
        _ => fs::read(path).map(|content| parse(&content)),
    };
    let why = match read() {
        Ok(Ok(content)) => return Some(content),
        Ok(Err(why)) => why.to_owned(),
        Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    let moved = fs::rename(path, aside).is_ok();
    tracing::warn!(path = %path.display(), why, moved, "{name} cannot be read and are lost");
    None
}
