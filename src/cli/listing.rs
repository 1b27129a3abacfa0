//! What the commands have in common that list something: all pages of it, and its forms for programs.

use peeklock::error::BrokerError;

use super::Failure;
use super::connect::Output;
use super::message::{Form, Writer};
use super::terminal::{Out, Wrote};

/// A broker that says there are always more is not believed for ever.
const COUNT_MAX: usize = 1_000_000;

/// A whole list, page by page: a page is what comes behind so many.
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

/// Writes objects that are JSON already: one document, unless one a line was asked for.
pub fn objects(
    out: Out,
    output: Output,
    objects: impl IntoIterator<Item = String>,
) -> Result<(), Failure> {
    let form = if output == Output::Ndjson { Form::Ndjson } else { Form::Json };
    let mut writer = Writer::new(out, form);
    for object in objects {
        if writer.object(&object)? == Wrote::Gone {
            return Ok(());
        }
    }
    writer.end()
}
