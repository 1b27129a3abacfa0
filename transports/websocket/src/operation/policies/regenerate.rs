//! Puts another key in the place of one of a policy.

pub(crate) use peeklock_json::{KeyForm, KeyName};

use super::PolicyKeysView;
use crate::connection::{Asked, Conversation, Done};
use crate::error::FrameError;
use crate::frame::wire::{Reader, Wire};
use crate::frame::{bodies, wire_choice};
use crate::operation::Notice;
use crate::operation::manage::json_inside;

bodies! {
    struct RegeneratePolicyKey {
        path: String,
        name: String,
        key: KeyName,
        /// The new key; made if it is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<KeyForm>,
    }
}

json_inside!(KeyForm);
wire_choice!(KeyName, "key of a policy", [Primary, Secondary]);

impl Conversation {
    pub(in crate::operation) fn regenerate_key(
        &mut self,
        asked: Asked,
        it: RegeneratePolicyKey,
    ) -> Done {
        let value = it.value.as_ref().map(KeyForm::to_key).transpose()?;
        self.manage(asked, move |access| async move {
            let keys = access.regenerate_key(&it.path, &it.name, it.key.into(), value).await?;
            Ok(Notice::PolicyKeys(Box::new(PolicyKeysView::from(&keys))))
        })
    }
}
