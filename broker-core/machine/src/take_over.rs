//! Order of taking over lists of messages from another entity or broker. Queues and topics share
//! it: the destination judges each message in order.

use crate::command::PeerArrival;
use crate::condition::Condition;
use crate::error::Rejection;
use crate::transfer::{Admission, Arrival, WhenFull};

/// Decision of a destination to take a message.
pub(crate) enum TakeDecision<P> {
    /// It takes the message now, by this plan.
    Take(P),
    /// The message exceeds the step together with the messages before it. The source offers it
    /// again, with all messages after it.
    Postpone,
    /// The message is a duplicate that a job sends; it stays at its source.
    LeaveDuplicate,
}

/// Takes over messages of another entity: `admit` judges a message, `take` stores an admitted one.
///
/// After a refused message, no later message of the list is taken: the source must first store that
/// it keeps the refused one. Otherwise, if the answer were lost, the source would offer the refused
/// message again, and the destination might take it after later ones (FWD-10).
///
/// Later messages are still judged. Each refused one is reported as such, and the first admissible
/// one ends the list. If the quota is exceeded and `when_full` is [`WhenFull::Stop`], the list ends
/// at once. Messages after the end are [`Admission::NotTried`].
///
/// A job does not depend on this order: it sends each message at most once after a refusal, so its
/// list continues.
pub(crate) fn arrivals<D, P>(
    destination: &mut D,
    messages: Vec<Arrival>,
    when_full: WhenFull,
    admit: impl Fn(&mut D, &Arrival) -> Result<TakeDecision<P>, Rejection>,
    take: impl Fn(&mut D, Arrival, P),
) -> Vec<Admission> {
    let mut admissions = Vec::with_capacity(messages.len());
    let (mut has_refused, mut is_stopped) = (false, false);
    for arrival in messages {
        let admission = if is_stopped {
            Admission::NotTried
        } else {
            match admit(destination, &arrival) {
                Ok(TakeDecision::LeaveDuplicate) => Admission::Duplicate,
                Ok(TakeDecision::Take(plan)) if !has_refused || arrival.resent.is_some() => {
                    take(destination, arrival, plan);
                    Admission::Accepted
                }
                Ok(TakeDecision::Take(_) | TakeDecision::Postpone) => {
                    is_stopped = true;
                    Admission::NotTried
                }
                Err(rejection) => {
                    has_refused = true;
                    is_stopped = when_full == WhenFull::Stop
                        && rejection.condition() == Condition::QuotaExceeded;
                    Admission::NotAdmitted(rejection)
                }
            }
        };
        admissions.push(admission);
    }
    admissions
}

/// Takes over messages of another broker. Ends at the first refused message, because the other
/// broker stores first that it keeps that message (FWD-10). A message that is postponed has no
/// result.
pub(crate) fn arrivals_of_peer(
    messages: Vec<PeerArrival>,
    mut take: impl FnMut(PeerArrival) -> Result<TakeDecision<()>, Rejection>,
) -> Vec<Result<(), Rejection>> {
    let mut results = Vec::with_capacity(messages.len());
    for arrival in messages {
        let result = match take(arrival) {
            Ok(TakeDecision::Take(())) => Ok(()),
            Ok(TakeDecision::Postpone | TakeDecision::LeaveDuplicate) => break,
            Err(rejection) => Err(rejection),
        };
        let ends = result.is_err();
        results.push(result);
        if ends {
            break;
        }
    }
    results
}

/// Refuses a message that exceeds the limit of hops (FWD-12).
pub(crate) fn refuse_hops_of_peer(hops: u8, hops_max: u8) -> Result<(), Rejection> {
    if hops <= hops_max {
        return Ok(());
    }
    let detail = format!("the message has made {hops} hops, the limit is {hops_max}");
    Err(Rejection::invalid_operation(detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::InboundMessage;
    use crate::ids::{EntityId, SequenceNumber};
    use crate::message::{Message, PropertyLimits};
    use crate::transfer::{Origin, Resent};

    /// Runs a list in which `x` is refused, `f` finds no room, `l` exceeds the step, and all others
    /// are taken. Returns the messages taken, and the answers (`+` accepted, `-` refused, `.` not
    /// tried).
    fn judged(list: &str, when_full: WhenFull) -> (String, String) {
        judged_as(list, when_full, None)
    }

    /// The same for messages that a job sends; `d` is a duplicate.
    fn judged_as(list: &str, when_full: WhenFull, resent: Option<Resent>) -> (String, String) {
        let content = Message::new("").with_message_id("m").encode();
        let envelope = content.envelope(&PropertyLimits::default(), &[0; 16]);
        let key = crate::change::codec::slot_key(EntityId(1), SequenceNumber(1));
        let arrivals_of = list.bytes().map(|letter| Arrival {
            message: InboundMessage { content: content.clone(), envelope: envelope.clone() },
            overlays: Vec::new(),
            lowered_time_to_live: None,
            enqueued_sequence: SequenceNumber(1),
            hops: letter,
            copies_spent: 0,
            dead_letter_source: None,
            origin: Origin { shard: 0, key, overlays: Box::default(), contents: None },
            resent,
        });
        let mut taken = String::new();
        let admissions = arrivals(
            &mut taken,
            arrivals_of.collect(),
            when_full,
            |_, arrival| match arrival.hops {
                b'x' => Err(Rejection::argument("no")),
                b'f' => Err(Rejection::quota_exceeded("full")),
                b'l' => Ok(TakeDecision::Postpone),
                b'd' => Ok(TakeDecision::LeaveDuplicate),
                _ => Ok(TakeDecision::Take(())),
            },
            |taken, arrival, ()| taken.push(char::from(arrival.hops)),
        );
        let said = admissions.into_iter().map(|admission| match admission {
            Admission::Accepted => '+',
            Admission::NotAdmitted(_) => '-',
            Admission::NotTried => '.',
            Admission::Duplicate => '=',
        });
        (taken, said.collect())
    }

    /// FWD-10, FWD-15: no message after a refused one is taken before its source has stored that it
    /// keeps that one. Other refusals are reported at once.
    #[test]
    fn list_takes_no_message_after_a_refused_one() {
        for (list, taken, said) in [
            ("abc", "abc", "+++"),
            ("axb", "a", "+-."),
            ("ffabf", "", "--..."),
            ("afxfb", "a", "+---."),
            ("albx", "a", "+..."),
            ("xlx", "", "-.."),
        ] {
            let expected = (taken.to_owned(), said.to_owned());
            assert_eq!(judged(list, WhenFull::Refuse), expected, "{list}");
        }
    }

    /// CON-17: a list of a job continues after a refusal and a duplicate, and ends when the
    /// destination is full.
    #[test]
    fn list_of_a_job_continues_after_a_refusal() {
        let resent = Some(Resent { from: EntityId(9), size: 0, only: None });
        for (list, taken, said) in
            [("axbdc", "abc", "+-+=+"), ("afb", "a", "+-."), ("alb", "a", "+..")]
        {
            let expected = (taken.to_owned(), said.to_owned());
            assert_eq!(judged_as(list, WhenFull::Stop, resent), expected, "{list}");
        }
    }

    /// VIA-03: with `WhenFull::Stop`, the first message without room ends the list.
    #[test]
    fn list_ends_at_first_message_without_room_if_held() {
        for (list, taken, said) in [("afxfb", "a", "+-..."), ("axfb", "a", "+--.")] {
            let expected = (taken.to_owned(), said.to_owned());
            assert_eq!(judged(list, WhenFull::Stop), expected, "{list}");
        }
    }
}
