//! How entities of the emulator's file are declared: what exists is updated (ADM-64), and the file alone says where
//! messages are forwarded to.

use peeklock::declaration::{Declaration, Existing, OtherRules};

/// The declaration as the emulator means it.
pub fn meant(mut declaration: Declaration) -> Declaration {
    declaration.existing = Existing::IsUpdated;
    for queue in &mut declaration.queues {
        queue.cleared.forward_to = true;
        queue.cleared.forward_dead_lettered_messages_to = true;
    }
    let subscriptions = declaration.topics.iter_mut().flat_map(|topic| &mut topic.subscriptions);
    for subscription in subscriptions {
        subscription.cleared.forward_to = true;
        subscription.cleared.forward_dead_lettered_messages_to = true;
        // A client may have added some since.
        subscription.other_rules = OtherRules::AreKept;
    }
    declaration
}
