//! Turns for requests whose answers may be large (DESIGN D6). Transports call [`Access::turn_at`],
//! and `declare.rs` carries out declarations within a turn. The number of concurrent large answers
//! is bounded over all connections, and each has a time limit.

use std::fmt;
use std::sync::OnceLock;

use super::audit::end_of_management;
use super::manage::AllowedRequest;
use super::{Access, Audited, declare};
use crate::admission::{HeldTurn, Large, Turns};
use crate::broker::Broker;
use crate::call::BoxFuture;
use crate::declaration::yielder::Yielder;
use crate::declaration::{Declaration, Digest, PlanResult};
use crate::error::BrokerError;
use crate::management::{Managed, Management};
use crate::time::Timestamp;

/// A management request that its principal may make, with a turn for a large answer. Keep the turn
/// until memory for the answer is reserved.
///
/// Rights are checked before the wait for a turn: a delayed refusal (SEC-26) and a slow authorizer
/// hold no turn, and their time does not count against the answer.
pub struct InTurn {
    judged: AllowedRequest,
    turn: LargeAnswerTurn,
}

/// Permission to build one large answer; its time starts with its first use.
pub(super) struct LargeAnswerTurn {
    broker: Broker,
    large: Large,
    /// The time limit, which starts with the first use.
    until: OnceLock<Timestamp>,
    permission: HeldTurn,
}

impl Access {
    /// Maximum number of lists and plans that are made concurrently, over all connections.
    pub const LISTS_MAX: u64 = Turns::LISTS_MAX;
    /// Maximum bytes of declarations that are carried out concurrently, over all connections.
    pub const CARRIED_OUT_BYTES_MAX: u64 = Turns::CARRIED_OUT_BYTES_MAX;
    /// Maximum number of explanations of rules that exist concurrently, over all connections.
    pub const EXPLANATIONS_MAX: u64 = Turns::EXPLANATIONS_MAX;

    /// Checks rights, then waits for a turn for a request whose answer may be large
    /// ([`Management::is_large`]). To carry out a declaration, it waits for memory for the largest
    /// possible plan.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` for a list of subscriptions without the topic; the errors
    /// of [`Access::plan`] for a declaration that can never be carried out; `ServerBusy` if too
    /// many requests wait.
    pub async fn turn_at(&self, path: &str, request: Management) -> Result<InTurn, BrokerError> {
        let judged = Box::pin(self.judge(path, request)).await?;
        let turn = match &judged.request {
            Management::CarryOut { declaration, .. } => self.carrying_out_turn(declaration).await?,
            Management::Explain(_) => self.turn(Large::Explanation).await?,
            Management::Inspect(question) if question.needs_rules() => {
                self.turn(Large::Explanation).await?
            }
            _ => self.turn(Large::List).await?,
        };
        Ok(InTurn { judged, turn })
    }

    pub(super) async fn carrying_out_turn(
        &self,
        declaration: &Declaration,
    ) -> Result<LargeAnswerTurn, BrokerError> {
        let bytes = declaration.carried_out_bytes_max(&mut Yielder::default()).await;
        self.turn(Large::CarryingOut { bytes }).await
    }

    async fn turn(&self, large: Large) -> Result<LargeAnswerTurn, BrokerError> {
        let broker = self.broker.clone();
        let peer = self.principal().and_then(|principal| principal.peer);
        let clock = &broker.shared.clock;
        let late = clock.sleep_until(clock.now().plus(Turns::WAIT_MAX));
        let permission = broker.shared.turns.wait(large, peer, late).await;
        let permission = permission.map_err(|rejection| broker.refuse(rejection, ""))?;
        Ok(LargeAnswerTurn { broker, large, until: OnceLock::new(), permission })
    }

    /// Carries out the first steps of a plan within a turn, like [`Access::carry_out`]. The plan is
    /// made first, in a turn for lists; after that, the turn's memory is reduced to the size of the
    /// plan.
    pub(super) async fn carry_out_in(
        &self,
        turn: &mut LargeAnswerTurn,
        declaration: &Declaration,
        digest: Digest,
        steps_max: usize,
    ) -> Result<PlanResult, BrokerError> {
        let planning = self.turn(Large::List).await?;
        let planned = planning.make(declare::planned(&self.broker, declaration)).await?;
        turn.permission.release_beyond(planned.bytes(&mut Yielder::default()).await);
        // Carrying out may take long; other requests may plan meanwhile.
        drop(planning);
        self.carry_out_if(planned, digest, steps_max).await
    }
}

impl LargeAnswerTurn {
    /// Makes an answer within the time of the turn, so that a busy entity does not make others wait
    /// for long.
    async fn make<M>(
        &self,
        making: impl Future<Output = Result<M, BrokerError>>,
    ) -> Result<M, BrokerError> {
        let clock = &self.broker.shared.clock;
        let until = *self.until.get_or_init(|| clock.now().plus(self.large.time()));
        let made = self.large.make(making, clock.sleep_until(until)).await;
        made.map_err(|rejection| self.broker.refuse(rejection, ""))?
    }
}

impl InTurn {
    /// Carries the request out. Returns the turn with the answer.
    ///
    /// # Errors
    /// The errors of [`Access::manage`]; `ServerBusy` if an entity stays busy for too long.
    pub fn carry_out(self) -> BoxFuture<'static, Result<(Managed, HeldTurn), BrokerError>> {
        Box::pin(self.carried_out())
    }

    async fn carried_out(self) -> Result<(Managed, HeldTurn), BrokerError> {
        let Self { judged, mut turn } = self;
        let mut audited = match &judged.request {
            request @ Management::CarryOut { .. } => {
                judged.access.audit_management(&judged.path, request).await?
            }
            // `AllowedRequest::carry_out` does it.
            _ => Audited::default(),
        };
        let managed = match judged.request {
            // Its steps are carried out one by one, in the memory of the turn; only its plan has a
            // time limit.
            Management::CarryOut { declaration, digest, steps_max } => {
                let access = &judged.access;
                let steps_max = declare::step_count(steps_max);
                let done = access.carry_out_in(&mut turn, &declaration, digest, steps_max);
                let done = done.await.map(|done| Managed::CarriedOut(Box::new(done)));
                let end = end_of_management(&mut audited, &done);
                audited.end_with(end).await;
                done?
            }
            request => turn.make(AllowedRequest { request, ..judged }.carry_out()).await?,
        };
        Ok((managed, turn.permission))
    }

    /// Reads another page of the requested list, for answers of several pages.
    ///
    /// # Errors
    /// The errors of [`InTurn::carry_out`]; `InternalError` if the request is not a list.
    pub fn page(&self, skip: usize, top: usize) -> BoxFuture<'_, Result<Managed, BrokerError>> {
        Box::pin(async move {
            let page = self.make(self.judged.page(skip, top)).await?;
            self.judged.access.wait_for_tenure(&self.judged.path).await?;
            Ok(page)
        })
    }

    /// Makes an answer of several pages in the time of this turn.
    ///
    /// # Errors
    /// `ServerBusy` if it takes too long; the errors of `making`.
    pub async fn make<M>(
        &self,
        making: impl Future<Output = Result<M, BrokerError>>,
    ) -> Result<M, BrokerError> {
        self.turn.make(making).await
    }

    /// Returns the turn without its request.
    #[must_use]
    pub fn into_turn(self) -> HeldTurn {
        self.turn.permission
    }
}

impl fmt::Debug for InTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTurn").field("large", &self.turn.large).finish_non_exhaustive()
    }
}
