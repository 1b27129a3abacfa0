//! Carries out the first steps that make the namespace as declared.

use peeklock_core::declaration::STEP_COUNT_MAX;
pub(crate) use peeklock_json::{CarriedOutView, DigestText};

use super::DeclarationForm;
use crate::connection::{Asked, Conversation, Done};
use crate::frame::bodies;
use crate::operation::Notice;
use crate::operation::manage::json_inside;

bodies! {
    struct CarryOutDeclaration {
        declaration: DeclarationForm,
        /// Of the plan whose steps are to be done.
        digest: DigestText,
        /// At most so many steps, and no more than 100.
        #[serde(skip_serializing_if = "Option::is_none")]
        steps_max: Option<u32>,
    }
}

json_inside!(CarriedOutView, DigestText);

impl Conversation {
    pub(in crate::operation) fn carry_out_declaration(
        &mut self,
        asked: Asked,
        it: CarryOutDeclaration,
    ) -> Done {
        let declaration = it.declaration.to_declaration()?;
        let steps_max = it.steps_max.map_or(STEP_COUNT_MAX, |count| {
            usize::try_from(count).unwrap_or(STEP_COUNT_MAX).min(STEP_COUNT_MAX)
        });
        self.manage_in_turn(asked, move |access| async move {
            let mut turn = access.turn_at_carrying_out(&declaration).await?;
            let carried_out = turn.carry_out(it.digest.0, steps_max).await?;
            let notice = Notice::CarriedOut(Box::new(CarriedOutView::from(&carried_out)));
            Ok((notice, turn.into_turn()))
        })
    }
}
