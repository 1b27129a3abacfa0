//! Management of policies: of a queue or topic, or of the namespace where the path is empty.

use super::manage::json_inside;
use super::{Notice, PathOnly};
use crate::connection::{Asked, Conversation, Done};
use crate::error::FrameError;
use crate::frame::wire::{Reader, Wire};
use crate::frame::{bodies, wire_choice};

pub(crate) use peeklock_json::{
    KeyForm, KeyName, PolicyKeysView, PolicyList, PolicyProperties, PolicyView,
};

bodies! {
    struct SetPolicy {
        path: String,
        name: String,
        #[serde(default)]
        properties: PolicyProperties,
    }

    struct NamedPolicy {
        path: String,
        name: String,
    }

    struct RegeneratePolicyKey {
        path: String,
        name: String,
        key: KeyName,
        /// The new key; made if it is left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<KeyForm>,
    }
}

json_inside!(PolicyProperties, PolicyView, PolicyList, PolicyKeysView, KeyForm);
wire_choice!(KeyName, "key of a policy", [Primary, Secondary]);

impl Conversation {
    pub(super) fn create_policy(&mut self, asked: Asked, set: SetPolicy) -> Done {
        let properties = set.properties.to_update()?;
        self.manage(asked, |access| async move {
            let policy = access.create_policy(&set.path, &set.name, properties).await?;
            Ok(Notice::Policy(Box::new(PolicyView::from(&policy))))
        })
    }

    pub(super) fn get_policy(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            let policy = access.policy(&named.path, &named.name).await?;
            Ok(Notice::Policy(Box::new(PolicyView::from(&policy))))
        })
    }

    pub(super) fn update_policy(&mut self, asked: Asked, set: SetPolicy) -> Done {
        let properties = set.properties.to_update()?;
        self.manage(asked, |access| async move {
            let policy = access.update_policy(&set.path, &set.name, properties).await?;
            Ok(Notice::Policy(Box::new(PolicyView::from(&policy))))
        })
    }

    pub(super) fn delete_policy(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            access.delete_policy(&named.path, &named.name).await?;
            Ok(Notice::Done(Default::default()))
        })
    }

    pub(super) fn list_policies(&mut self, asked: Asked, of: PathOnly) -> Done {
        self.manage(asked, |access| async move {
            let policies = access.policies(&of.path).await?;
            Ok(Notice::Policies(PolicyList::from(&*policies)))
        })
    }

    pub(super) fn policy_keys(&mut self, asked: Asked, named: NamedPolicy) -> Done {
        self.manage(asked, |access| async move {
            let keys = access.policy_keys(&named.path, &named.name).await?;
            Ok(Notice::PolicyKeys(Box::new(PolicyKeysView::from(&keys))))
        })
    }

    pub(super) fn regenerate_key(&mut self, asked: Asked, it: RegeneratePolicyKey) -> Done {
        let value = it.value.as_ref().map(KeyForm::to_key).transpose()?;
        self.manage(asked, move |access| async move {
            let keys = access.regenerate_key(&it.path, &it.name, it.key.into(), value).await?;
            Ok(Notice::PolicyKeys(Box::new(PolicyKeysView::from(&keys))))
        })
    }
}
