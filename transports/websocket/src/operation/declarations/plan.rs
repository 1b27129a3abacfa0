//! Tells the steps that make the namespace as declared.

pub(crate) use peeklock_json::PlanView;

use super::DeclarationForm;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Notice;
use crate::operation::manage::json_inside;

bodies! {
    struct PlanDeclaration {
        declaration: DeclarationForm,
    }
}

json_inside!(PlanView);

impl Conversation {
    pub(in crate::operation) fn plan_declaration(
        &mut self,
        asked: Asked,
        plan: PlanDeclaration,
    ) -> Done {
        let declaration = plan.declaration.to_declaration()?;
        self.manage_in_turn(asked, |access| async move {
            let turn = access.turn_at_plan(&declaration).await?;
            let plan = turn.plan().await?;
            Ok((Notice::Plan(Box::new(PlanView::from(&plan))), turn.into_turn()))
        })
    }
}
