//! `ENTITY/$management`: requests of a client about an entity, a subscription or a sub-queue
//! (AMQP-80 to AMQP-93).
//!
//! ```text
//!   request ─► credit for its reply? ─► body ─► Plan ─► permit ─► commands ─► Managing ─► reply
//!               no: waits                        a file for each kind of operation
//! ```
//!
//! A request is carried out when there is credit for its reply. So no request runs whose reply the
//! client does not take, and requests wait instead of messages. A request is not carried out after
//! its time-out has passed. Work that is not a command, such as a list of rules, is done apart from
//! the connection.

mod body;
#[cfg(feature = "testing")]
mod decode_all;
mod locks;
mod messages;
mod operation;
mod pieces;
mod plan;
mod rules;
mod schedule;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use peeklock_core::Entity;
use peeklock_core::admission::{Account, Permit};
use peeklock_core::command::Outcome;
use peeklock_core::condition::{Condition, Surface};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::transaction::{Operation, TransactionId};
use peeklock_link::pending::correlation;
use peeklock_link::{FinishedWork, Protocol as _, ResultSize, RunningWork};
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{code, descriptor};

use self::body::Body;
#[cfg(feature = "testing")]
pub use self::decode_all::decode_all;
use self::operation::ManagementOperation;
#[cfg(feature = "testing")]
pub use self::operation::operations;
use self::pieces::Pieces;
pub(in crate::server) use self::plan::{
    CommandPlan, ManagementAnswer, ManagementResult, PendingManagement,
};
use self::plan::{OperationPlan, RequestData};
use super::reply::{Names, Reply, head};
use super::{Node, NodeRequest};
use crate::connection::{LinkId, SessionId};
use crate::error::AmqpError;
use crate::server::conversation::Conversation;
use crate::server::outcomes::is_lock_lost;
use crate::server::work::{PendingAnswer, ReplyAddress, UnpaidWork};

const NAMES: Names = Names { code: "statusCode", description: "statusDescription" };
/// Maximum size of a request without contents, in bytes; it is enough for the maximum number of
/// items.
const REQUEST_BYTES_MAX: u64 = 2 << 20;
/// Status of a success.
const OK: i32 = 200;
/// Status if nothing was found (AMQP-92).
const NOTHING: i32 = 204;

/// A request with its context, for the file of its operation.
struct ManagementRequest<'a> {
    path: &'a Arc<str>,
    request: &'a NodeRequest,
    body: Body,
    /// Management link of the request.
    link: LinkId,
}

impl Conversation {
    /// Carries out a request whose reply has credit.
    pub(super) async fn manage(
        &mut self,
        link: LinkId,
        reply_address: ReplyAddress,
        request: &NodeRequest,
    ) {
        let Some(Node::Requests(requests)) = self.nodes.get(&link) else { return };
        let Some(manager) = requests.manager() else { return };
        let path = Arc::clone(&manager.path);
        let Some(reply_address) = self.unless_expired(reply_address) else { return };
        match self.plan(link, &path, request).await {
            Ok(OperationPlan::Commands { entity, commands, read, memo }) => {
                let transaction = request.transaction.map(|id| (id, link.session()));
                let plan = CommandPlan { reply_address, entity, commands, read, memo, transaction };
                self.when_permitted(UnpaidWork::Request(Box::new(plan))).await;
            }
            Ok(OperationPlan::InBackground(asking)) => {
                self.when_permitted(UnpaidWork::RequestInBackground(reply_address, asking)).await;
            }
            Err(error) => self.answer_managed(reply_address, Err(error)),
        }
    }

    /// Returns the client if it still waits. Otherwise it gets an error, and the request is not
    /// carried out (AMQP-80).
    pub(in crate::server) fn unless_expired(
        &mut self,
        reply_address: ReplyAddress,
    ) -> Option<ReplyAddress> {
        if reply_address.until.is_none_or(|until| self.engine.broker.now() < until) {
            return Some(reply_address);
        }
        let text = "the request waited longer than its server-timeout and was not carried out";
        let error = self.refuse(Rejection::timeout(text), "");
        self.answer_managed(reply_address, Err(error));
        None
    }

    /// Returns the plan of a request.
    async fn plan(
        &mut self,
        link: LinkId,
        path: &Arc<str>,
        request: &NodeRequest,
    ) -> Result<OperationPlan, AmqpError> {
        let name = request.text("operation").unwrap_or_default();
        let bytes = request.bytes();
        let refused = match ManagementOperation::parse(&name) {
            Some(operation) if bytes > REQUEST_BYTES_MAX && !operation.takes_contents() => {
                let what = "this kind of request can only schedule messages or set a session's \
                    state";
                Rejection::message_size_exceeded(what, bytes, REQUEST_BYTES_MAX).into()
            }
            Some(operation) => match Body::read(request.body()) {
                Ok(body) => {
                    let management = ManagementRequest { path, request, body, link };
                    match self.plan_operation(operation, &management).await {
                        Ok(planned) => return Ok(planned),
                        Err(refusal) => refusal,
                    }
                }
                Err(rejection) => rejection.into(),
            },
            None => unknown(&name).into(),
        };
        Err(match refused {
            Refusal::Known(error) => error,
            Refusal::Own(rejection) => self.refuse(rejection, path),
        })
    }

    /// Returns the entity of a management node, for an action.
    async fn managed_entity(
        &mut self,
        management: &ManagementRequest<'_>,
        action: Action,
    ) -> Result<Entity, Refusal> {
        let found = self.access_at(management.path).entity(management.path, action).await;
        found.map_err(|error| Refusal::Known(crate::server::error::of(&error)))
    }

    /// Hands the commands of a request to their entity; each is answered separately.
    pub(in crate::server) async fn submit_plan(&mut self, plan: CommandPlan, permit: Permit) {
        let open = |link: &u32| self.engine.links.get(*link).filter(|link| link.is_open());
        let link = plan.memo.link.filter(|link| open(link).is_some());
        let is_outside = plan.commands.iter().all(Operation::is_outside);
        if let Some((id, session)) = plan.transaction.filter(|_| !is_outside) {
            let by_link = link.as_ref().and_then(open).map(|link| link.entity.clone());
            let entity = by_link.unwrap_or_else(|| plan.entity.clone());
            return self.join_planned(id, session, entity, plan, permit).await;
        }
        let is_large = plan.cost().1 > Account::LARGE_BYTES;
        let CommandPlan { reply_address, entity, commands, read, memo, .. } = plan;
        let Some(reply_address) = self.unless_expired(reply_address) else { return };
        let takes = memo.room.is_some();
        self.inflow.large_count += usize::from(is_large);
        let managing = PendingManagement {
            reply_address,
            read,
            memo,
            outcomes: vec![None; commands.len()],
            issued: Vec::new(),
            left: commands.len(),
            failure: None,
            held_bytes: 0,
            is_large,
        };
        let expect = PendingAnswer::Managed(Box::new(managing));
        let (path, permit) = (entity.path().into(), Some(Arc::new(permit)));
        let slot = match takes {
            true => self.engine.links.add_deleting_request(path, 0, permit, expect),
            false => self.engine.links.add_unlinked_request(path, 0, permit, expect),
        };
        for (index, command) in commands.into_iter().enumerate() {
            match link {
                Some(link) => _ = self.engine.links.submit(link, command, correlation(slot, index)),
                None => self.engine.links.submit_to(&entity, command, correlation(slot, index)),
            }
        }
    }

    /// Has the entity check the commands of a request. Either all commands join the transaction, or
    /// none.
    async fn join_planned(
        &mut self,
        id: TransactionId,
        session: SessionId,
        entity: Entity,
        plan: CommandPlan,
        permit: Permit,
    ) {
        let CommandPlan { reply_address, commands, read, memo, .. } = plan;
        let Some(reply_address) = self.unless_expired(reply_address) else { return };
        let (mut checks, mut issued) = (Vec::new(), Vec::new());
        for command in commands {
            match self.issue(id, session, &entity, command).await {
                Ok(management) => {
                    checks.push((management.entity, management.command));
                    issued.push(management.issued);
                }
                Err(rejection) => {
                    // Dropping the issued parts leaves them out of the transaction.
                    drop(issued);
                    let error = self.refuse(rejection, entity.path());
                    return self.answer_managed(reply_address, Err(error));
                }
            }
        }
        let (outcomes, left) = (vec![None; checks.len()], checks.len());
        let managing = PendingManagement {
            reply_address,
            read,
            memo: RequestData { is_joined: true, ..memo },
            outcomes,
            issued,
            left,
            failure: None,
            held_bytes: 0,
            is_large: false,
        };
        let expect = PendingAnswer::Managed(Box::new(managing));
        let slot = self.engine.links.add_unlinked_request(
            entity.path().into(),
            0,
            Some(Arc::new(permit)),
            expect,
        );
        for (index, (entity, command)) in checks.into_iter().enumerate() {
            self.engine.links.submit_to(&entity, command, correlation(slot, index));
        }
    }

    /// Returns the result of a command, or success if the command repeats an earlier settlement
    /// with the same outcome. That settlement may have been in progress when the request was
    /// planned (AMQP-62).
    fn accept_repeated_settlement(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
    ) -> Result<Outcome, Rejection> {
        if !result.as_ref().is_err_and(is_lock_lost) {
            return result;
        }
        let settles = match self.engine.links.request_mut(slot) {
            Some((_, _, PendingAnswer::Managed(managing))) if !managing.memo.is_joined => {
                managing.memo.tokens.get(index).copied().zip(managing.memo.kind)
            }
            _ => None,
        };
        match settles {
            Some((token, kind)) if self.listener.outcomes().has(token, kind) => Ok(Outcome::Done),
            _ => result,
        }
    }

    /// Handles the answer to a command of a request, which holds `held_bytes` bytes of the account.
    /// After the last one, the reply is made.
    pub(in crate::server) fn handle_command_answer(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
        held_bytes: u64,
    ) {
        let result = self.accept_repeated_settlement(slot, index, result);
        let Some((_, path, PendingAnswer::Managed(managing))) = self.engine.links.request_mut(slot)
        else {
            return self.engine.account.release(held_bytes);
        };
        managing.left = managing.left.saturating_sub(1);
        managing.held_bytes += held_bytes;
        match result {
            Ok(outcome) => {
                if let Some(place) = managing.outcomes.get_mut(index) {
                    *place = Some(outcome);
                }
            }
            Err(rejection) => drop(managing.failure.get_or_insert(rejection)),
        }
        if managing.left > 0 {
            return;
        }
        let Some(pending) = self.engine.links.remove_request(slot) else { return };
        let PendingAnswer::Managed(managing) = pending.expect else { return };
        let PendingManagement {
            reply_address,
            read,
            memo,
            outcomes,
            issued,
            failure,
            held_bytes,
            is_large,
            ..
        } = *managing;
        self.inflow.large_count -= usize::from(is_large);
        if failure.is_none() {
            for (issued, outcome) in issued.into_iter().zip(outcomes.iter().flatten()) {
                issued.confirm(outcome);
            }
        }
        let taken_count = outcomes.iter().flatten().map(taken_count).sum();
        let deleted = self.outflow.lost.guard(taken_count);
        let answer = match failure {
            // Commands that were carried out stay so.
            Some(rejection) => {
                locks::record_partial_effects(self, &memo, &outcomes);
                Err(rejection)
            }
            None => read(self, &reply_address, &memo, outcomes.into_iter().flatten().collect()),
        };
        let answer = answer.map_err(|rejection| self.refuse(rejection, &path));
        // A refusal contains none of the messages.
        let deleted = deleted.filter(|_| answer.is_ok());
        let pieces = reply_of(&reply_address, answer);
        self.reply(reply_address, Reply { pieces, deleted });
        // Released only now: the reply is already counted, and takes over its room.
        self.engine.account.release(held_bytes);
    }

    /// Carries out a request in the background; it counts as pending until it is answered.
    pub(in crate::server) fn run_in_background(
        &mut self,
        reply_address: ReplyAddress,
        asking: RunningWork<ManagementResult>,
        permit: Permit,
    ) {
        let Some(reply_address) = self.unless_expired(reply_address) else { return };
        let permit = Arc::new(permit);
        let paid = Some(Arc::clone(&permit));
        let slot = self.engine.links.add_unlinked_request(
            "".into(),
            0,
            paid,
            PendingAnswer::InBackground(reply_address),
        );
        self.engine.background.push(ResultSize::Long, slot, permit, Box::new(|| asking));
        self.start_background();
    }

    /// Sends the reply of a request that was carried out in the background.
    pub(in crate::server) fn answer_background(
        &mut self,
        finished: FinishedWork<ManagementResult>,
    ) {
        let mut held_bytes = 0;
        if let Some((bytes, room)) = finished.room {
            self.engine.account.hold_paid(bytes, room);
            held_bytes = bytes;
        }
        if let Some(pending) = self.engine.links.remove_request(finished.slot)
            && let PendingAnswer::InBackground(reply_address) = pending.expect
        {
            let answer = finished.result.map_err(|error| crate::server::error::of(&error));
            self.answer_managed(reply_address, answer);
        }
        // Released only now: the reply is already counted, and takes over its room.
        self.engine.account.release(held_bytes);
    }

    /// Sends a reply.
    pub(in crate::server) fn answer_managed(
        &mut self,
        reply_address: ReplyAddress,
        answer: Result<ManagementAnswer, AmqpError>,
    ) {
        let pieces = reply_of(&reply_address, answer);
        self.reply(reply_address, pieces.into());
    }
}

/// Number of messages that were deleted on receipt.
fn taken_count(outcome: &Outcome) -> u64 {
    let Outcome::Received(messages) = outcome else { return 0 };
    messages.iter().filter(|message| message.facts.lock.is_none()).count() as u64
}

/// Encodes a reply in pieces.
fn reply_of(
    reply_address: &ReplyAddress,
    answer: Result<ManagementAnswer, AmqpError>,
) -> Vec<Bytes> {
    let mut reply = Pieces::default();
    let (body, count) = match answer {
        Ok(ManagementAnswer::Done) => {
            head(&mut reply, reply_address, &NAMES, OK, "OK", None);
            (Pieces::default(), 0)
        }
        Ok(ManagementAnswer::Nothing) => {
            head(&mut reply, reply_address, &NAMES, NOTHING, "there is nothing", None);
            (Pieces::default(), 0)
        }
        Ok(ManagementAnswer::Map(items, count)) => {
            head(&mut reply, reply_address, &NAMES, OK, "OK", None);
            (items, count)
        }
        Err(error) => {
            let (status, text) = (status(&error), error.description());
            head(&mut reply, reply_address, &NAMES, status, text, Some(error.condition()));
            (Pieces::default(), 0)
        }
    };
    reply.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::VALUE]);
    reply.map(body, count);
    reply.into_pieces()
}

/// Refusal of a request.
enum Refusal {
    /// An error that already has its final form.
    Known(AmqpError),
    Own(Rejection),
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Own(rejection)
    }
}

fn unknown(operation: &str) -> Rejection {
    Rejection::not_implemented(&format!("operation `{operation:.64}` of a management node"))
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer")
}

/// Returns the status of an error. Clients distinguish only a few (AMQP-88, AMQP-92).
fn status(error: &AmqpError) -> i32 {
    let of = |condition: &Condition| condition.amqp() == Some(error.condition());
    let condition = Condition::all().find(of);
    let status = condition.map_or(500, |condition| match condition {
        // Errors of transactions have no HTTP status, and count as errors of the request.
        Condition::TransactionTimedOut
        | Condition::TransactionUnknown
        | Condition::TransactionRolledBack => 400,
        // No client knows 499.
        Condition::OperationCancelled => 503,
        condition => condition.http_status(Surface::Management).unwrap_or(500),
    });
    i32::from(status)
}

/// Writes a key of a reply's body.
fn key(items: &mut Pieces, name: &str) {
    write::text(items, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-88, AMQP-92: each condition that clients distinguish has its status; an unknown
    /// condition has 500.
    #[test]
    fn conditions_have_the_status_that_clients_act_on() {
        let cases = [
            ("amqp:internal-error", 500),
            ("com.microsoft:server-busy", 503),
            ("com.microsoft:timeout", 408),
            ("amqp:not-found", 404),
            ("com.microsoft:message-not-found", 404),
            ("com.microsoft:entity-already-exists", 409),
            ("com.microsoft:message-lock-lost", 410),
            ("com.microsoft:session-lock-lost", 410),
            ("amqp:unauthorized-access", 401),
            ("amqp:not-implemented", 501),
            ("com.microsoft:argument-error", 400),
            ("x:unknown", 500),
        ];
        for (condition, expected) in cases {
            assert_eq!(status(&AmqpError::new(condition, "")), expected, "{condition}");
        }
    }
}
