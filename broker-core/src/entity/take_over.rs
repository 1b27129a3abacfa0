//! Lists of messages that are taken over from elsewhere, in their order, each by itself. Queues and
//! topics share it.

use crate::command::PeerArrival;
use crate::condition::Condition;
use crate::error::Rejection;
use crate::transfer::{Admission, Arrival, WhenFull};

/// Takes messages of another entity over. A refusal does not end the list, but for want of room if it is
/// to stop there.
pub(in crate::entity) fn arrivals(
    messages: Vec<Arrival>,
    when_full: WhenFull,
    mut take: impl FnMut(Arrival) -> Result<(), Rejection>,
) -> Vec<Admission> {
    let mut is_stopped = false;
    let admit = |arrival| {
        if is_stopped {
            return Admission::NotTried;
        }
        match take(arrival) {
            Ok(()) => Admission::Accepted,
            Err(rejection) => {
                is_stopped = when_full == WhenFull::Stop
                    && rejection.condition() == Condition::QuotaExceeded;
                Admission::Refused(rejection)
            }
        }
    };
    messages.into_iter().map(admit).collect()
}

/// Takes messages of another broker over. Ends at the first that may be taken later, so that none
/// overtakes it (FWD-10).
pub(in crate::entity) fn arrivals_of_peer(
    messages: Vec<PeerArrival>,
    mut take: impl FnMut(PeerArrival) -> Result<(), Rejection>,
) -> Vec<Result<(), Rejection>> {
    let mut results = Vec::with_capacity(messages.len());
    for arrival in messages {
        let result = take(arrival);
        let ends = result.as_ref().is_err_and(Rejection::retryable);
        results.push(result);
        if ends {
            break;
        }
    }
    results
}

/// Refuses a message that has made more hops than it may (FWD-12).
pub(in crate::entity) fn refuse_hops(hops: u8, hops_max: u8) -> Result<(), Rejection> {
    if hops <= hops_max {
        return Ok(());
    }
    let detail = format!("the message has made {hops} hops, the limit is {hops_max}");
    Err(Rejection::invalid_operation(detail))
}
