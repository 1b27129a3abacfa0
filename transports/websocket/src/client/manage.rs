//! Management over the protocol: requests that map to one operation, and requests that need
//! several. A subscription is named by its path, `<topic>/Subscriptions/<name>`.

use std::sync::Arc;

use peeklock_client::port::{Managed, Management};
use peeklock_core::command::ReceiveMode;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;

use super::core::Lifeline;
use crate::operation::{DeleteDeferred, Operation, Role, managed, operation};

pub(super) async fn manage(
    core: &Arc<Lifeline>,
    path: &str,
    request: Management,
) -> Result<Managed, BrokerError> {
    if let Management::DeleteDeferred(sequence) = request {
        return delete_deferred(core, path, sequence).await;
    }
    let unexpected = || core.refuse(Rejection::internal("unexpected answer"), path);
    let are_paths = matches!(request, Management::Paths(..));
    let operation = operation(path, request).ok_or_else(unexpected)?;
    let managed = managed(core.call(None, path, operation).await?).ok_or_else(unexpected)?;
    Ok(if are_paths { paths(managed) } else { managed })
}

/// Reduces a list of entities to their paths.
fn paths(managed: Managed) -> Managed {
    match managed {
        Managed::Queues(queues) => {
            let paths = queues.into_iter().map(|queue| queue.description.path.into());
            Managed::Paths(paths.collect())
        }
        Managed::Topics(topics) => {
            let paths = topics.into_iter().map(|topic| topic.description.path.into());
            Managed::Paths(paths.collect())
        }
        Managed::Subscriptions(subscriptions) => {
            let paths = subscriptions.into_iter().map(|one| one.description.path().into());
            Managed::Paths(paths.collect())
        }
        other => other,
    }
}

async fn delete_deferred(
    core: &Arc<Lifeline>,
    path: &str,
    sequence: SequenceNumber,
) -> Result<Managed, BrokerError> {
    let link = core.attach(path, Role::Receiver, ReceiveMode::PeekLock)?;
    let delete = DeleteDeferred { link: link.number, sequence_number: sequence.0 };
    link.call(Operation::DeleteDeferred(delete)).await?;
    link.end().await?;
    Ok(Managed::Done)
}
