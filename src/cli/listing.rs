//! Common parts of the commands that list something: reading all pages, and formats for programs.
//! The list commands use them.

use peeklock::error::BrokerError;

use super::Failure;
use super::connect::Output;
use super::message::{Form, Writer};
use super::terminal::{Out, WriteOutcome};

/// Maximum length of a list, for a broker that never returns an empty page.
const COUNT_MAX: usize = 1_000_000;

/// Reads a whole list. `page` returns the page after the given number of items; an empty page ends
/// the list.
pub async fn pages<T>(
    page: impl AsyncFn(usize) -> Result<Vec<T>, BrokerError>,
) -> Result<Vec<T>, Failure> {
    let mut all: Vec<T> = Vec::new();
    while all.len() < COUNT_MAX {
        let page = page(all.len()).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    Ok(all)
}

/// Writes JSON texts as an array, or one per line for `ndjson`.
pub fn objects(
    out: Out,
    output: Output,
    objects: impl IntoIterator<Item = String>,
) -> Result<(), Failure> {
    let form = if output == Output::Ndjson { Form::Ndjson } else { Form::Json };
    let mut writer = Writer::new(out, form);
    for object in objects {
        if writer.object(&object)? == WriteOutcome::OutputClosed {
            return Ok(());
        }
    }
    writer.end()
}
