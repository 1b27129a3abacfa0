//! `ENTITY/$management`: what a client asks by messages about an entity, a subscription or a sub-queue
//! (AMQP-80 to AMQP-93).
//!
//! ```text
//!   request ─► is there credit for its reply? ─► body ─► Plan ─► permit ─► commands ─► Managing ─► reply
//!                no: waits                       a file for operations of a kind       its answers
//! ```
//!
//! A request is carried out when its reply can be sent, so that none is carried out whose answer nobody
//! takes, and what waits is requests and not messages. One whose client has given it up meanwhile, by the
//! time-out that it says, is not carried out. What is no command, such as a list of rules, is
//! asked beside the connection.

mod body;
mod locks;
mod messages;
mod operation;
mod pieces;
mod plan;
mod rules;
mod schedule;
mod session;
#[cfg(feature = "testing")]
mod understand;

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
use peeklock_link::{Finished, Protocol as _, Size, Working};
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{code, descriptor};

use self::body::Body;
use self::operation::Operation as Requested;
#[cfg(feature = "testing")]
pub use self::operation::operations;
use self::pieces::Pieces;
pub(in crate::server) use self::plan::{Answered, ManagementAnswer, Managing, Plan};
use self::plan::{Memo, Planned};
#[cfg(feature = "testing")]
pub use self::understand::understand;
use super::reply::{Names, Reply, head};
use super::{Node, NodeRequest};
use crate::connection::{LinkId, SessionId};
use crate::error::AmqpError;
use crate::server::conversation::Conversation;
use crate::server::outcomes::is_lock_lost;
use crate::server::work::{Asker, Expect, Work};

const NAMES: Names = Names { code: "statusCode", description: "statusDescription" };
/// The most bytes of a request without contents; so many have room in it as may be named by one.
const REQUEST_BYTES_MAX: u64 = 2 << 20;
/// The status when it is done.
const OK: i32 = 200;
/// The status when there is nothing (AMQP-92).
const NOTHING: i32 = 204;

/// What a request is about, for the file of its operation.
struct Question<'a> {
    path: &'a Arc<str>,
    request: &'a NodeRequest,
    body: Body,
    /// The management link.
    link: LinkId,
}

impl Conversation {
    /// Carries out a request, whose reply there is credit for.
    pub(super) async fn manage(&mut self, link: LinkId, asker: Asker, request: &NodeRequest) {
        let Some(Node::Requests(requests)) = self.nodes.get(&link) else { return };
        let Some(manager) = requests.manager() else { return };
        let path = Arc::clone(&manager.path);
        let Some(asker) = self.still_waits(asker) else { return };
        match self.plan(link, &path, request).await {
            Ok(Planned::Commands { entity, commands, read, memo }) => {
                let transaction = request.transaction.map(|id| (id, link.session()));
                let plan = Plan { asker, entity, commands, read, memo, transaction };
                self.when_room(Work::Ask(Box::new(plan))).await;
            }
            Ok(Planned::Apart(asking)) => {
                self.when_room(Work::AskApart(asker, asking)).await;
            }
            Err(error) => self.answer_managed(asker, Err(error)),
        }
    }

    /// Who asks, unless it has given up waiting: then it is told so, and nothing is done (AMQP-80).
    pub(in crate::server) fn still_waits(&mut self, asker: Asker) -> Option<Asker> {
        if asker.until.is_none_or(|until| self.engine.broker.now() < until) {
            return Some(asker);
        }
        let text = "the request waited longer than its server-timeout and was not carried out";
        let error = self.refuse(Rejection::timeout(text), "");
        self.answer_managed(asker, Err(error));
        None
    }

    /// What is to be done for a request.
    async fn plan(
        &mut self,
        link: LinkId,
        path: &Arc<str>,
        request: &NodeRequest,
    ) -> Result<Planned, AmqpError> {
        let name = request.text("operation").unwrap_or_default();
        let bytes = request.bytes();
        let refused = match Requested::parse(&name) {
            Some(operation) if bytes > REQUEST_BYTES_MAX && !operation.takes_contents() => {
                let what = "this kind of request can only schedule messages or set a session's \
                    state";
                Rejection::message_size_exceeded(what, bytes, REQUEST_BYTES_MAX).into()
            }
            Some(operation) => match Body::read(request.body()) {
                Ok(body) => {
                    let question = Question { path, request, body, link };
                    match self.plan_operation(operation, &question).await {
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

    /// The entity of a management node, for something.
    async fn managed_entity(
        &mut self,
        question: &Question<'_>,
        action: Action,
    ) -> Result<Entity, Refusal> {
        let found = self.access_at(question.path).entity(question.path, action).await;
        found.map_err(|error| Refusal::Known(crate::server::error::of(&error)))
    }

    /// Hands the commands of a request over, of which each is answered.
    pub(in crate::server) async fn ask_planned(&mut self, plan: Plan, permit: Permit) {
        let open = |link: &u32| self.engine.links.get(*link).filter(|link| link.is_open());
        let link = plan.memo.link.filter(|link| open(link).is_some());
        let is_outside = plan.commands.iter().all(Operation::is_outside);
        if let Some((id, session)) = plan.transaction.filter(|_| !is_outside) {
            let by_link = link.as_ref().and_then(open).map(|link| link.entity.clone());
            let entity = by_link.unwrap_or_else(|| plan.entity.clone());
            return self.join_planned(id, session, entity, plan, permit).await;
        }
        let is_large = plan.cost().1 > Account::LARGE_BYTES;
        let Plan { asker, entity, commands, read, memo, .. } = plan;
        let Some(asker) = self.still_waits(asker) else { return };
        let takes = memo.room.is_some();
        self.inflow.large_count += usize::from(is_large);
        let managing = Managing {
            asker,
            read,
            memo,
            outcomes: vec![None; commands.len()],
            issued: Vec::new(),
            left: commands.len(),
            failure: None,
            held_bytes: 0,
            is_large,
        };
        let expect = Expect::Managed(Box::new(managing));
        let (path, permit) = (entity.path().into(), Some(Arc::new(permit)));
        let slot = match takes {
            true => self.engine.links.ask_to_take(path, 0, permit, expect),
            false => self.engine.links.ask_of(path, 0, permit, expect),
        };
        for (index, command) in commands.into_iter().enumerate() {
            match link {
                Some(link) => _ = self.engine.links.submit(link, command, correlation(slot, index)),
                None => self.engine.links.submit_to(&entity, command, correlation(slot, index)),
            }
        }
    }

    /// Has the entity check the commands of a request: all of them become part of a transaction, or none.
    async fn join_planned(
        &mut self,
        id: TransactionId,
        session: SessionId,
        entity: Entity,
        plan: Plan,
        permit: Permit,
    ) {
        let Plan { asker, commands, read, memo, .. } = plan;
        let Some(asker) = self.still_waits(asker) else { return };
        let (mut checks, mut issued) = (Vec::new(), Vec::new());
        for command in commands {
            match self.issue(id, session, &entity, command).await {
                Ok(question) => {
                    checks.push((question.entity, question.command));
                    issued.push(question.issued);
                }
                Err(rejection) => {
                    // Dropping the issued parts leaves them out of the transaction.
                    drop(issued);
                    let error = self.refuse(rejection, entity.path());
                    return self.answer_managed(asker, Err(error));
                }
            }
        }
        let (outcomes, left) = (vec![None; checks.len()], checks.len());
        let managing = Managing {
            asker,
            read,
            memo: Memo { is_joined: true, ..memo },
            outcomes,
            issued,
            left,
            failure: None,
            held_bytes: 0,
            is_large: false,
        };
        let expect = Expect::Managed(Box::new(managing));
        let slot =
            self.engine.links.ask_of(entity.path().into(), 0, Some(Arc::new(permit)), expect);
        for (index, (entity, command)) in checks.into_iter().enumerate() {
            self.engine.links.submit_to(&entity, command, correlation(slot, index));
        }
    }

    /// The result of a command, or success where it settles what was settled with the same outcome before: what a client
    /// has said of a delivery may have been on its way still when it was planned (AMQP-62).
    fn or_settled_before(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
    ) -> Result<Outcome, Rejection> {
        if !result.as_ref().is_err_and(is_lock_lost) {
            return result;
        }
        let settles = match self.engine.links.asked_mut(slot) {
            Some((_, _, Expect::Managed(managing))) if !managing.memo.is_joined => {
                managing.memo.tokens.get(index).copied().zip(managing.memo.kind)
            }
            _ => None,
        };
        match settles {
            Some((token, kind)) if self.site.outcomes().has(token, kind) => Ok(Outcome::Done),
            _ => result,
        }
    }

    /// One command of a request is answered, by what holds so much of the account; the request is when all are.
    pub(in crate::server) fn managed(
        &mut self,
        slot: usize,
        index: usize,
        result: Result<Outcome, Rejection>,
        held_bytes: u64,
    ) {
        let result = self.or_settled_before(slot, index, result);
        let Some((_, path, Expect::Managed(managing))) = self.engine.links.asked_mut(slot) else {
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
        let Some(pending) = self.engine.links.answered(slot) else { return };
        let Expect::Managed(managing) = pending.expect else { return };
        let Managing { asker, read, memo, outcomes, issued, failure, held_bytes, is_large, .. } =
            *managing;
        self.inflow.large_count -= usize::from(is_large);
        if failure.is_none() {
            for (issued, outcome) in issued.into_iter().zip(outcomes.iter().flatten()) {
                issued.confirm(outcome);
            }
        }
        let taken_count = outcomes.iter().flatten().map(taken_count).sum();
        let removed = self.outflow.lost.unless_written(taken_count);
        let answer = match failure {
            // What was done of it stays done.
            Some(rejection) => {
                locks::note(self, &memo, &outcomes);
                Err(rejection)
            }
            None => read(self, &asker, &memo, outcomes.into_iter().flatten().collect()),
        };
        let answer = answer.map_err(|rejection| self.refuse(rejection, &path));
        // A refusal has nothing of it.
        let removed = removed.filter(|_| answer.is_ok());
        let pieces = reply_of(&asker, answer);
        self.reply(asker, Reply { pieces, removed });
        // Not before: the reply is counted by now, and keeps the room that they had.
        self.engine.account.release(held_bytes);
    }

    /// Carries a request out apart; until it is answered it counts as pending.
    pub(in crate::server) fn ask_apart(
        &mut self,
        asker: Asker,
        asking: Working<Answered>,
        permit: Permit,
    ) {
        let Some(asker) = self.still_waits(asker) else { return };
        let permit = Arc::new(permit);
        let paid = Some(Arc::clone(&permit));
        let slot = self.engine.links.ask_of("".into(), 0, paid, Expect::Apart(asker));
        self.engine.apart.push(Size::Long, slot, permit, Box::new(|| asking));
        self.start_apart();
    }

    /// Answers a request that was carried out apart.
    pub(in crate::server) fn answer_apart(&mut self, finished: Finished<Answered>) {
        let mut held_bytes = 0;
        if let Some((bytes, room)) = finished.paid {
            self.engine.account.hold_paid(bytes, room);
            held_bytes = bytes;
        }
        if let Some(pending) = self.engine.links.answered(finished.slot)
            && let Expect::Apart(asker) = pending.expect
        {
            let answer = finished.result.map_err(|error| crate::server::error::of(&error));
            self.answer_managed(asker, answer);
        }
        // Not before: the reply is counted by now, and keeps the room that it had.
        self.engine.account.release(held_bytes);
    }

    /// Replies.
    pub(in crate::server) fn answer_managed(
        &mut self,
        asker: Asker,
        answer: Result<ManagementAnswer, AmqpError>,
    ) {
        let pieces = reply_of(&asker, answer);
        self.reply(asker, pieces.into());
    }
}

/// How many messages were taken out of their entity for good.
fn taken_count(outcome: &Outcome) -> u64 {
    let Outcome::Received(messages) = outcome else { return 0 };
    messages.iter().filter(|message| message.facts.lock.is_none()).count() as u64
}

/// What a request is answered, in pieces.
fn reply_of(asker: &Asker, answer: Result<ManagementAnswer, AmqpError>) -> Vec<Bytes> {
    let mut reply = Pieces::default();
    let (body, count) = match answer {
        Ok(ManagementAnswer::Done) => {
            head(&mut reply, asker, &NAMES, OK, "OK", None);
            (Pieces::default(), 0)
        }
        Ok(ManagementAnswer::Nothing) => {
            head(&mut reply, asker, &NAMES, NOTHING, "there is nothing", None);
            (Pieces::default(), 0)
        }
        Ok(ManagementAnswer::Map(items, count)) => {
            head(&mut reply, asker, &NAMES, OK, "OK", None);
            (items, count)
        }
        Err(error) => {
            let (status, text) = (status(&error), error.description());
            head(&mut reply, asker, &NAMES, status, text, Some(error.condition()));
            (Pieces::default(), 0)
        }
    };
    reply.put(&[code::DESCRIBED, code::SMALL_ULONG, descriptor::VALUE]);
    reply.map(body, count);
    reply.into_pieces()
}

/// Why a request is refused.
enum Refusal {
    /// As an error that was made already.
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

/// The status of a refusal. Clients act on few of them (AMQP-88, AMQP-92).
fn status(error: &AmqpError) -> i32 {
    let of = |condition: &Condition| condition.amqp() == Some(error.condition());
    let condition = Condition::all().find(of);
    let status = condition.map_or(500, |condition| match condition {
        // What is neither of HTTP's is told as what is wrong with the request.
        Condition::TransactionTimedOut
        | Condition::TransactionUnknown
        | Condition::TransactionRolledBack => 400,
        // Nobody knows 499.
        Condition::OperationCancelled => 503,
        condition => condition.http_status(Surface::Management).unwrap_or(500),
    });
    i32::from(status)
}

/// A key of a reply's body.
fn key(items: &mut Pieces, name: &str) {
    write::text(items, name);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AMQP-88, AMQP-92: the status of each condition that clients act on; of what has none it is 500.
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
