//! New bodies of messages that a job sends (CON-16). Samples of previews and dry runs of clients
//! show the same.

use std::sync::Arc;

use bytes::Bytes;

use crate::command::{BodyEdit, PATCHED_BODY_BYTES_MAX};
use crate::message::{Body, Content, MergePatch};

/// Change of bodies, the same for all messages of a list. Clones share it.
#[derive(Clone, Debug)]
pub struct BodyChange(Change);

#[derive(Clone, Debug)]
enum Change {
    Whole(Bytes),
    /// None for a text that is no merge patch, which no request for a job may have.
    MergePatch(Option<Arc<MergePatch>>),
}

impl BodyChange {
    /// Reads an edit.
    #[must_use]
    pub fn new(edit: &BodyEdit) -> Self {
        Self(match edit {
            BodyEdit::Whole(bytes) => Change::Whole(bytes.clone()),
            BodyEdit::MergePatch(patch) => {
                Change::MergePatch(MergePatch::parse(patch).map(Arc::new))
            }
        })
    }

    /// Whether the new body depends on the present one.
    #[must_use]
    pub const fn is_patch(&self) -> bool {
        matches!(self.0, Change::MergePatch(_))
    }

    /// Returns the new body; none if the merge patch does not apply to this one.
    #[must_use]
    pub fn body_after(&self, body: &Body) -> Option<Bytes> {
        match (&self.0, body) {
            (Change::Whole(bytes), _) => Some(bytes.clone()),
            (Change::MergePatch(Some(patch)), Body::Data(data)) if data.len() <= data_max() => {
                Some(patch.apply(std::str::from_utf8(data).ok()?)?.into())
            }
            (Change::MergePatch(_), _) => None,
        }
    }

    /// Returns the content with the new body; none if the merge patch does not apply to the present
    /// one. A whole body has no content encoding, and its predecessor is not read.
    pub(crate) fn content_after(&self, content: Content) -> Option<Content> {
        Some(match &self.0 {
            Change::Whole(bytes) => content.without_content_encoding().with_body(bytes),
            Change::MergePatch(_) => {
                let present = Body::Data(content.data_within(data_max())?);
                content.with_body(&self.body_after(&present)?)
            }
        })
    }
}

const fn data_max() -> usize {
    PATCHED_BODY_BYTES_MAX as usize
}
