//! What the rules of a subscription would make of a message (MAT-01).

use serde::{Deserialize, Serialize};

use super::Notice;
use super::manage::json_inside;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::frame::message::Outgoing;

pub(crate) use peeklock_json::ExplanationView;

bodies! {
    struct Explain {
        /// The path of the subscription.
        path: String,
        message: Outgoing,
    }
}

/// What each rule of a subscription makes of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Explained {
    pub(crate) rules: Vec<ExplanationView>,
}

json_inside!(Explained);

impl Conversation {
    pub(super) fn explain(&mut self, asked: Asked, explain: Explain) -> Done {
        let message = self.inbound(explain.message)?;
        self.manage_in_turn(asked, |access| async move {
            let turn = access.turn_at_explanation(&explain.path).await?;
            let explained = turn.explain(message).await?;
            let rules = explained.iter().map(ExplanationView::from).collect();
            Ok((Notice::Explained(Explained { rules }), turn.into_turn()))
        })
    }
}
