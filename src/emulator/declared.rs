//! Declaration of the entities in the emulator's file: existing entities are updated (ADM-64), and
//! destinations for forwarding that are absent in the file are removed.

use peeklock::declaration::{Declaration, Existing, OtherRules};

/// Turns a declaration into one with the emulator's meaning.
pub fn with_emulator_meaning(mut declaration: Declaration) -> Declaration {
    declaration.existing = Existing::Update;
    for queue in &mut declaration.queues {
        queue.cleared.forward_to = true;
        queue.cleared.forward_dead_lettered_messages_to = true;
    }
    let subscriptions = declaration.topics.iter_mut().flat_map(|topic| &mut topic.subscriptions);
    for subscription in subscriptions {
        subscription.cleared.forward_to = true;
        subscription.cleared.forward_dead_lettered_messages_to = true;
        // Clients may have added rules.
        subscription.other_rules = OtherRules::Keep;
    }
    declaration
}
