//! Rights that actions need according to the specification, written independently of the table that
//! the broker uses. Tests of tokens compare the broker with this copy, so that a mistake in the
//! broker's table fails. The matrices of the transports link to this file.

use peeklock_core::contract::{Action, Ceiling, Right, Rights};

/// Returns the rights of which an action needs one, or all ([`needs_all`]) (SEC-05, SEC-06, FWD-05, VIA-02, DEC-12), and
/// its lowest ceiling (CON-72); none if the action is never granted.
pub fn expected(action: Action) -> Option<(&'static [Right], Ceiling)> {
    use Ceiling::{Admin, Operator, Viewer};
    use Right::{Listen, Manage, Send};
    Some(match action {
        Action::Send | Action::SendVia | Action::BeSentTo | Action::CancelScheduled => {
            (&[Send], Operator)
        }
        Action::Receive | Action::ReceiveDeferred | Action::Settle | Action::RenewLock => {
            (&[Listen], Operator)
        }
        Action::AcceptSession | Action::HoldSession | Action::DeleteBatch => (&[Listen], Operator),
        Action::ChangeOwnRules => (&[Listen, Manage], Operator),
        Action::Peek | Action::Inspect | Action::ListSessions => (&[Listen], Viewer),
        Action::ReadRules | Action::Overview => (&[Listen, Manage], Viewer),
        Action::Describe | Action::Plan | Action::List | Action::ReadMetrics => (&[Manage], Viewer),
        Action::Create | Action::Update | Action::Delete | Action::BeForwardedTo => {
            (&[Manage], Admin)
        }
        Action::ChangeRules | Action::Forward => (&[Manage], Admin),
        Action::ReadPolicies | Action::ReadKeys | Action::ChangePolicies => (&[Manage], Admin),
        Action::DeleteUnlocked | Action::DeleteDeferred => (&[Manage], Admin),
        Action::CloseClients | Action::ReadAudit => (&[Manage], Admin),
        Action::Operate => (&[Listen, Send], Operator),
        Action::End | Action::Commit => (&[], Viewer),
        Action::Internal => return None,
    })
}

/// Whether an action needs all of its rights (CON-72).
pub fn needs_all(action: Action) -> bool {
    action == Action::Operate
}

/// Whether these rights below this ceiling allow an action.
pub fn allows(action: Action, rights: Rights, ceiling: Ceiling) -> bool {
    match expected(action) {
        None => false,
        Some(([], _)) => true,
        Some((named, least)) => {
            let mut held = named.iter().map(|right| rights.contains(*right));
            let suffice = if needs_all(action) { held.all(|it| it) } else { held.any(|it| it) };
            suffice && ceiling >= least
        }
    }
}
