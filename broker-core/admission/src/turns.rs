//! Turns at large answers: answers that are made in memory before their size is known. A few are made at once over all
//! connections, and a client waits for a bounded time.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use peeklock_words::error::Rejection;
use peeklock_words::time::TimeSpan;

use crate::places::network;
use crate::pool::{Pool, Room, Share};

/// Addresses that are remembered before those without a turn are forgotten.
const ADDRESSES_KEPT: usize = 1_024;
/// Time in which entities must answer for a list.
const LIST_TIME: TimeSpan = TimeSpan::from_seconds(10);
/// Time in which an entity must answer for an explanation.
const EXPLANATION_TIME: TimeSpan = TimeSpan::from_seconds(30);

/// Kinds of large answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Large {
    /// A page of a list, or the plan of a declaration.
    List,
    /// The effect of each rule of a subscription on a message.
    Explanation,
    /// Carrying out a declaration, which takes up to `bytes` bytes. Its plan is made in a turn at lists, which ends
    /// before it is carried out.
    CarryingOut {
        /// Most bytes of the declaration and its plan.
        bytes: u64,
    },
}

impl Large {
    /// Time in which entities must answer their part: others wait for the turn.
    #[must_use]
    pub const fn time(self) -> TimeSpan {
        match self {
            Self::List | Self::CarryingOut { .. } => LIST_TIME,
            Self::Explanation => EXPLANATION_TIME,
        }
    }

    /// Makes the answer of a turn, unless `late` is ready first.
    ///
    /// # Errors
    /// `ServerBusy` if it is late.
    pub async fn make<T>(
        self,
        making: impl Future<Output = T>,
        late: impl Future<Output = ()>,
    ) -> Result<T, Rejection> {
        let kind = match self {
            Self::List => "a list",
            Self::Explanation => "an explanation of rules",
            Self::CarryingOut { .. } => "a plan",
        };
        tokio::select! {
            biased;
            made = making => Ok(made),
            () = late => Err(Rejection::server_busy(format!(
                "an entity is busy and did not answer its part of {kind} within {}; try again \
                 later",
                self.time()
            ))),
        }
    }
}

/// The turns of a broker.
pub struct Turns {
    lists: Arc<Pool>,
    explanations: Arc<Pool>,
    carrying_out: Arc<Pool>,
    /// Clients by their network, because one client can have any number of connections.
    requesters: Mutex<HashMap<IpAddr, Weak<Requester>>>,
}

/// A client of turns: a client waits for clients with fewer turns.
#[derive(Debug)]
struct Requester {
    lists: Arc<Share>,
    explanations: Arc<Share>,
    carrying_out: Arc<Share>,
}

/// A turn. Dropping it ends the turn.
#[derive(Debug)]
pub struct HeldTurn {
    room: Room,
    _requester: Option<Arc<Requester>>,
}

impl HeldTurn {
    /// Releases all but `bytes` bytes, after the size of the answer is known.
    pub fn release_beyond(&mut self, bytes: u64) {
        self.room.release_beyond(bytes);
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            lists: Pool::new(Self::LISTS_MAX),
            explanations: Pool::new(Self::EXPLANATIONS_MAX),
            carrying_out: Pool::new(Self::CARRIED_OUT_BYTES_MAX),
            requesters: Mutex::default(),
        }
    }
}

impl Turns {
    /// Lists that are made at once.
    pub const LISTS_MAX: u64 = 8;
    /// Explanations of rules that are made at once: each is as large as all rules of a subscription, and takes as long.
    pub const EXPLANATIONS_MAX: u64 = 2;
    /// Bytes of declarations that are carried out at once: each holds its plan until the rest was answered, which waits
    /// for entities and for the disk. A number of bytes and not of turns, so that small declarations do not wait for
    /// each other. Until a declaration is planned it holds the most bytes that its plan may have.
    pub const CARRIED_OUT_BYTES_MAX: u64 = 512 << 20;
    /// Time for which a client waits for a turn.
    pub const WAIT_MAX: TimeSpan = TimeSpan::from_seconds(5);

    fn requester(&self, peer: SocketAddr) -> Arc<Requester> {
        let address = network(peer.ip());
        let mut requesters = self.requesters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requester) = requesters.get(&address).and_then(Weak::upgrade) {
            return requester;
        }
        if requesters.len() >= ADDRESSES_KEPT {
            requesters.retain(|_, requester| requester.strong_count() > 0);
        }
        let requester = Arc::new(Requester {
            lists: Arc::new(self.lists.share()),
            explanations: Arc::new(self.explanations.share()),
            carrying_out: Arc::new(self.carrying_out.share()),
        });
        requesters.insert(address, Arc::downgrade(&requester));
        requester
    }

    /// Waits for a turn, as a client at this address, unless `late` is ready first. A client without an address counts
    /// as one without turns.
    ///
    /// # Errors
    /// `ServerBusy` if it is late.
    pub async fn wait(
        &self,
        large: Large,
        peer: Option<SocketAddr>,
        late: impl Future<Output = ()>,
    ) -> Result<HeldTurn, Rejection> {
        let requester = peer.map(|peer| self.requester(peer));
        let by = requester.as_ref();
        let (pool, share, wanted) = match large {
            Large::List => (&self.lists, by.map(|by| &by.lists), 1),
            Large::Explanation => (&self.explanations, by.map(|by| &by.explanations), 1),
            // A declaration that is larger than the pool takes the whole pool.
            Large::CarryingOut { bytes } => (
                &self.carrying_out,
                by.map(|by| &by.carrying_out),
                bytes.min(self.carrying_out.bytes_max()),
            ),
        };
        if let Some(room) = pool.try_take(share, wanted) {
            return Ok(HeldTurn { room, _requester: requester });
        }
        let room = tokio::select! {
            biased;
            room = pool.wait(share, wanted) => room,
            () = late => return Err(limit_reached(large)),
        };
        Ok(HeldTurn { room, _requester: requester })
    }
}

fn limit_reached(large: Large) -> Rejection {
    let kind = match large {
        Large::List => format!("lists (at most {})", Turns::LISTS_MAX),
        Large::Explanation => {
            format!("explanations of rules (at most {})", Turns::EXPLANATIONS_MAX)
        }
        Large::CarryingOut { .. } => {
            format!("declarations (at most {} bytes)", Turns::CARRIED_OUT_BYTES_MAX)
        }
    };
    Rejection::server_busy(format!("the limit of concurrent {kind} is reached; try again later"))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use peeklock_words::condition::Condition;
    use tokio::sync::oneshot;

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    /// DESIGN D6: a turn goes to an address without turns before one that has some and has waited for longer.
    #[tokio::test]
    async fn a_turn_goes_to_the_address_with_fewest_turns() {
        let turns = Turns::default();
        let [greedy, again, modest] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"]
            .map(|peer| Some(peer.parse::<SocketAddr>().unwrap()));
        let turn = |peer| turns.wait(Large::Explanation, peer, pending());
        let first = turn(greedy).await.unwrap();
        let _second = turn(again).await.unwrap();
        let mut third = pin!(turn(again));
        assert!(poll(third.as_mut()).is_none());
        let mut other = pin!(turn(modest));
        assert!(poll(other.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none(), "its address has one");
        assert!(poll(other.as_mut()).is_some_and(|turn| turn.is_ok()));
    }

    /// DESIGN D6: a late client is refused, and lists do not wait for explanations.
    #[tokio::test]
    async fn a_wait_for_a_turn_ends_when_it_is_late() {
        let turns = Turns::default();
        let mut held = Vec::new();
        for _ in 0..Turns::EXPLANATIONS_MAX {
            held.push(turns.wait(Large::Explanation, None, ready(())).await.unwrap());
        }
        let (over, is_over) = oneshot::channel();
        let late = async { drop::<Result<(), _>>(is_over.await) };
        let mut waits = pin!(turns.wait(Large::Explanation, None, late));
        assert!(poll(waits.as_mut()).is_none());
        assert!(turns.wait(Large::List, None, ready(())).await.is_ok());
        over.send(()).unwrap();
        let refused = waits.await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("explanations of rules (at most 2"), "{refused:?}");
    }

    /// DESIGN D6: an answer whose entity does not answer ends its turn.
    #[tokio::test]
    async fn a_turn_ends_when_an_entity_is_busy() {
        let (over, is_over) = oneshot::channel();
        let late = async { drop::<Result<(), _>>(is_over.await) };
        let mut made = pin!(Large::List.make(pending::<()>(), late));
        assert!(poll(made.as_mut()).is_none());
        over.send(()).unwrap();
        let refused = made.await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("an entity is busy"), "{refused:?}");
        assert_eq!(Large::List.make(ready(7), ready(())).await.unwrap(), 7);
    }

    /// DESIGN D6: addresses without turns are forgotten.
    #[tokio::test]
    async fn addresses_without_turns_are_forgotten() {
        let turns = Turns::default();
        for number in 0..5_000_u32 {
            let peer = SocketAddr::from((number.to_be_bytes(), 1));
            drop(turns.wait(Large::List, Some(peer), pending()).await.unwrap());
        }
        assert!(turns.requesters.lock().unwrap().len() <= ADDRESSES_KEPT);
    }
}
