//! Turns at what may be large when it is made (DESIGN D6), for who may read it.

use std::fmt;
use std::sync::OnceLock;

use super::list::Listing;
use super::{Access, declare};
use crate::broker::{Broker, Update};
use crate::command::InboundMessage;
use crate::contract::action::Action;
use crate::declaration::breather::Breather;
use crate::declaration::planner::Planned;
use crate::declaration::{CarriedOut, Declaration, Digest, Plan};
use crate::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use crate::error::BrokerError;
use crate::permits::{CARRIED_OUT_BYTES_MAX, EXPLANATIONS_MAX, HeldTurn, LISTS_MAX, Large};
use crate::rule::{Explanation, RuleDescription};
use crate::time::Timestamp;

/// A turn at something that may be large, with what of it is somebody's to read. To be kept until there is room for what was
/// made.
///
/// Whose it is was judged before the turn was waited for: a refusal may take its time (SEC-26), and so may the answer of an
/// authorizer, and neither has a turn meanwhile, nor counts in the time in which it is made.
pub struct InTurn<T> {
    broker: Broker,
    of: T,
    large: Large,
    /// Until when others are let wait, since it is being made.
    until: OnceLock<Timestamp>,
    turn: HeldTurn,
}

/// The rules of a subscription, to be listed.
#[derive(Debug)]
pub struct RuleListing {
    path: String,
}

/// The rules of a subscription, to be explained.
#[derive(Debug)]
pub struct Explaining {
    path: String,
}

/// A declaration, to be planned.
#[derive(Debug)]
pub struct Planning<'a> {
    declaration: &'a Declaration,
}

/// A declaration, to be carried out.
pub struct CarryingOut<'a> {
    access: &'a Access,
    declaration: &'a Declaration,
}

impl Access {
    /// Lists and plans of declarations that are made at once, over all connections.
    pub const LISTS_MAX: u64 = LISTS_MAX;
    /// What declarations take in memory that are carried out at once, likewise.
    pub const CARRIED_OUT_BYTES_MAX: u64 = CARRIED_OUT_BYTES_MAX;
    /// Explanations of rules that are there at once, likewise.
    pub const EXPLANATIONS_MAX: u64 = EXPLANATIONS_MAX;

    /// Waits for a turn at a list of queues.
    ///
    /// # Errors
    /// `Unauthorized` for who may read none; `ServerBusy` if many wait.
    pub async fn turn_at_queues(&self) -> Result<InTurn<Listing<QueueUpdate>>, BrokerError> {
        let listing = self.listing("").await?;
        self.turn(Large::List, listing).await
    }

    /// Waits for a turn at a list of topics.
    ///
    /// # Errors
    /// As for [`Access::turn_at_queues`].
    pub async fn turn_at_topics(&self) -> Result<InTurn<Listing<TopicUpdate>>, BrokerError> {
        let listing = self.listing("").await?;
        self.turn(Large::List, listing).await
    }

    /// Waits for a turn at a list of the subscriptions of a topic.
    ///
    /// # Errors
    /// As for [`Access::turn_at_queues`]; `EntityNotFound` without the topic.
    pub async fn turn_at_subscriptions(
        &self,
        topic: &str,
    ) -> Result<InTurn<Listing<SubscriptionUpdate>>, BrokerError> {
        let listing = self.subscription_listing(topic).await?;
        self.turn(Large::List, listing).await
    }

    /// Waits for a turn at a list of the rules of a subscription.
    ///
    /// # Errors
    /// `Unauthorized`; `ServerBusy` if many wait.
    pub async fn turn_at_rules(
        &self,
        subscription: &str,
    ) -> Result<InTurn<RuleListing>, BrokerError> {
        let path = self.allow(Action::ReadRules, subscription).await?;
        self.turn(Large::List, RuleListing { path }).await
    }

    /// Waits for a turn at what the rules of a subscription make of a message.
    ///
    /// # Errors
    /// As for [`Access::turn_at_rules`].
    pub async fn turn_at_explanation(
        &self,
        subscription: &str,
    ) -> Result<InTurn<Explaining>, BrokerError> {
        let path = self.allow(Action::ReadRules, subscription).await?;
        self.turn(Large::Explanation, Explaining { path }).await
    }

    /// Waits for a turn at the plan of a declaration, for who may plan all that is named in it.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`Access::plan`], of what cannot be declared whatever there is; `ServerBusy` if many wait.
    pub async fn turn_at_plan<'a>(
        &self,
        declaration: &'a Declaration,
    ) -> Result<InTurn<Planning<'a>>, BrokerError> {
        self.judge_declaration(declaration).await?;
        self.turn(Large::List, Planning { declaration }).await
    }

    /// Waits for a turn at carrying out a declaration, for who may plan all that is named in it: for room for the most
    /// that this may take.
    ///
    /// # Errors
    /// As for [`Access::turn_at_plan`].
    pub async fn turn_at_carrying_out<'a>(
        &'a self,
        declaration: &'a Declaration,
    ) -> Result<InTurn<CarryingOut<'a>>, BrokerError> {
        self.judge_declaration(declaration).await?;
        let bytes = declaration.carried_out_bytes_max(&mut Breather::default()).await;
        self.turn(Large::CarryingOut { bytes }, CarryingOut { access: self, declaration }).await
    }

    async fn turn<T>(&self, large: Large, of: T) -> Result<InTurn<T>, BrokerError> {
        let broker = self.broker.clone();
        let peer = self.principal().and_then(|principal| principal.peer);
        let turn = broker.shared.turns.take(large, peer).await;
        let turn = turn.map_err(|rejection| broker.refuse(rejection, ""))?;
        Ok(InTurn { broker, of, large, until: OnceLock::new(), turn })
    }
}

impl<T> InTurn<T> {
    /// Makes what it is the turn of, as long as others may be let wait for that since it was begun: not while an entity is
    /// busy for long.
    ///
    /// # Errors
    /// `ServerBusy` if it takes too long; as what is made.
    pub async fn make<M>(
        &self,
        making: impl Future<Output = Result<M, BrokerError>>,
    ) -> Result<M, BrokerError> {
        let turns = &self.broker.shared.turns;
        let until = *self.until.get_or_init(|| turns.until(self.large));
        let made = turns.make(self.large, until, making).await;
        made.map_err(|rejection| self.broker.refuse(rejection, ""))?
    }

    /// The turn alone, for what is done with what was made.
    #[must_use]
    pub fn into_turn(self) -> HeldTurn {
        self.turn
    }
}

impl<U: Update> InTurn<Listing<U>> {
    /// A page of descriptions and counts, as [`Access::queues`] gives it.
    ///
    /// # Errors
    /// `ServerBusy` if an entity is busy for long.
    pub async fn page(&self, skip: usize, top: usize) -> Result<Vec<U::Described>, BrokerError> {
        self.make(self.of.page(skip, top)).await
    }
}

impl InTurn<RuleListing> {
    /// A page of rules, as [`Access::rules`] gives it.
    ///
    /// # Errors
    /// As for [`crate::Broker::rules`]; `ServerBusy` if their topic is busy for long.
    pub async fn page(&self, skip: usize, top: usize) -> Result<Vec<RuleDescription>, BrokerError> {
        self.make(self.broker.page_of_rules(&self.of.path, skip, top)).await
    }
}

impl InTurn<Explaining> {
    /// What each rule makes of a message (MAT-01).
    ///
    /// # Errors
    /// As for [`crate::Broker::explain`]; `ServerBusy` if their topic is busy for long.
    pub async fn explain(&self, message: InboundMessage) -> Result<Vec<Explanation>, BrokerError> {
        self.make(self.broker.explain(&self.of.path, message)).await
    }
}

impl InTurn<Planning<'_>> {
    /// The steps that make the namespace as declared (DEC-06).
    ///
    /// # Errors
    /// As for [`Access::plan`]; `ServerBusy` if an entity is busy for long.
    pub async fn plan(&self) -> Result<Plan, BrokerError> {
        self.planned().await.map(|planned| planned.plan)
    }

    async fn planned(&self) -> Result<Planned, BrokerError> {
        self.make(declare::planned(&self.broker, self.of.declaration)).await
    }
}

impl InTurn<CarryingOut<'_>> {
    /// Carries out the first steps of a plan, as [`Access::carry_out`] does. It is planned first, in a turn at that,
    /// and has room only for what there is from then on.
    ///
    /// # Errors
    /// As for [`Access::carry_out`].
    pub async fn carry_out(
        &mut self,
        digest: Digest,
        steps_max: usize,
    ) -> Result<CarriedOut, BrokerError> {
        let CarryingOut { access, declaration } = self.of;
        let turn = access.turn(Large::List, Planning { declaration }).await?;
        let planned = turn.planned().await?;
        self.turn.shrink(planned.bytes(&mut Breather::default()).await);
        // Others plan while this is carried out, which may take long.
        drop(turn);
        access.carry_out_if(planned, digest, steps_max).await
    }
}

impl<T: fmt::Debug> fmt::Debug for InTurn<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTurn").field("of", &self.of).finish_non_exhaustive()
    }
}

impl fmt::Debug for CarryingOut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarryingOut").finish_non_exhaustive()
    }
}
