//! Turns at requests whose answer may be large when it is made (DESIGN D6).

use std::fmt;
use std::sync::OnceLock;

use super::manage::AllowedRequest;
use super::{Access, declare};
use crate::admission::{HeldTurn, Large, Turns};
use crate::broker::Broker;
use crate::declaration::breather::Yielder;
use crate::declaration::{Declaration, Digest, PlanResult};
use crate::error::BrokerError;
use crate::management::{Managed, Management};
use crate::time::Timestamp;

/// A management request that its principal may make, with a turn at a large answer. Keep the turn until there is room for
/// the answer.
///
/// The rights were judged before the turn was waited for: a refusal may take its time (SEC-26), and so may the answer of an
/// authorizer, and neither has a turn meanwhile, nor counts in the time in which the answer is made.
pub struct InTurn {
    judged: AllowedRequest,
    turn: Turn,
}

/// A turn that has begun, or will with its first use.
pub(super) struct Turn {
    broker: Broker,
    large: Large,
    /// Until when others wait at most, from the first use.
    until: OnceLock<Timestamp>,
    held: HeldTurn,
}

impl Access {
    /// Lists and plans of declarations that are made at once, over all connections.
    pub const LISTS_MAX: u64 = Turns::LISTS_MAX;
    /// Bytes of declarations that are carried out at once, over all connections.
    pub const CARRIED_OUT_BYTES_MAX: u64 = Turns::CARRIED_OUT_BYTES_MAX;
    /// Explanations of rules that are there at once, over all connections.
    pub const EXPLANATIONS_MAX: u64 = Turns::EXPLANATIONS_MAX;

    /// Waits for a turn at a request whose answer may be large ([`Management::is_large`]), after its rights were judged.
    /// Carrying out a declaration waits for room for the most that it may take.
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` for a list of subscriptions without the topic; as for [`Access::plan`] where a
    /// declaration can never be carried out; `ServerBusy` if many wait.
    pub async fn turn_at(&self, path: &str, request: Management) -> Result<InTurn, BrokerError> {
        let judged = Box::pin(self.judge(path, request)).await?;
        let turn = match &judged.request {
            Management::CarryOut { declaration, .. } => self.carrying_out_turn(declaration).await?,
            Management::Explain(_) => self.turn(Large::Explanation).await?,
            _ => self.turn(Large::List).await?,
        };
        Ok(InTurn { judged, turn })
    }

    pub(super) async fn carrying_out_turn(
        &self,
        declaration: &Declaration,
    ) -> Result<Turn, BrokerError> {
        let bytes = declaration.carried_out_bytes_max(&mut Yielder::default()).await;
        self.turn(Large::CarryingOut { bytes }).await
    }

    async fn turn(&self, large: Large) -> Result<Turn, BrokerError> {
        let broker = self.broker.clone();
        let peer = self.principal().and_then(|principal| principal.peer);
        let clock = &broker.shared.clock;
        let late = clock.sleep_until(clock.now().plus(Turns::WAIT_MAX));
        let held = broker.shared.turns.wait(large, peer, late).await;
        let held = held.map_err(|rejection| broker.refuse(rejection, ""))?;
        Ok(Turn { broker, large, until: OnceLock::new(), held })
    }

    /// Carries out the first steps of a plan within a turn, like [`Access::carry_out`]. The plan is
    /// made first, in a turn for lists; after that, the turn's memory is reduced to the size of the
    /// plan.
    pub(super) async fn carry_out_in(
        &self,
        turn: &mut Turn,
        declaration: &Declaration,
        digest: Digest,
        steps_max: usize,
    ) -> Result<PlanResult, BrokerError> {
        let planning = self.turn(Large::List).await?;
        let planned = planning.make(declare::planned(&self.broker, declaration)).await?;
        turn.held.release_beyond(planned.bytes(&mut Yielder::default()).await);
        // Others plan while this is carried out, which may take long.
        drop(planning);
        self.carry_out_if(planned, digest, steps_max).await
    }
}

impl Turn {
    /// Makes an answer, for as long as others may be let wait since the turn was begun: not while an entity is busy for
    /// long.
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
    /// Carries the request out. The turn is returned with the answer.
    ///
    /// # Errors
    /// As for [`Access::manage`]; `ServerBusy` if an entity is busy for long.
    pub async fn carry_out(self) -> Result<(Managed, HeldTurn), BrokerError> {
        let Self { judged, mut turn } = self;
        let managed = match judged.request {
            // Its steps are done one by one, in the room of the turn; only its plan must not take long.
            Management::CarryOut { declaration, digest, steps_max } => {
                let access = &judged.access;
                let steps_max = declare::step_count(steps_max);
                let done = access.carry_out_in(&mut turn, &declaration, digest, steps_max);
                Managed::CarriedOut(Box::new(Box::pin(done).await?))
            }
            request => {
                turn.make(Box::pin(AllowedRequest { request, ..judged }.carry_out())).await?
            }
        };
        Ok((managed, turn.held))
    }

    /// Reads a page of the list that the request names, another one than the request has: for answers of several pages.
    ///
    /// # Errors
    /// As for [`InTurn::carry_out`]; `InternalError` if the request is no list.
    pub async fn page(&self, skip: usize, top: usize) -> Result<Managed, BrokerError> {
        self.make(Box::pin(self.judged.page(skip, top))).await
    }

    /// Makes an answer of several pages in the time of this turn.
    ///
    /// # Errors
    /// `ServerBusy` if it takes too long; those of `making`.
    pub async fn make<M>(
        &self,
        making: impl Future<Output = Result<M, BrokerError>>,
    ) -> Result<M, BrokerError> {
        self.turn.make(making).await
    }

    /// The turn without its request.
    #[must_use]
    pub fn into_turn(self) -> HeldTurn {
        self.turn.held
    }
}

impl fmt::Debug for InTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTurn").field("large", &self.turn.large).finish_non_exhaustive()
    }
}
