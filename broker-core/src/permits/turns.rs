//! Turns at what is made in memory before anybody knows how large it is: few of all connections at once, or as many as
//! have room together, and no longer waited for than a client waits.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Place, Pool, Room};
use crate::clock::Clock;
use crate::contract::failures::network;
use crate::error::Rejection;
use crate::time::{TimeSpan, Timestamp};

/// How long a turn is waited for.
const PATIENCE: TimeSpan = TimeSpan::from_seconds(5);
/// Lists that are made at once.
pub(crate) const LISTS_MAX: u64 = 8;
/// Explanations of rules that are made at once: each is as large as all rules of a subscription, and takes as long.
pub(crate) const EXPLANATIONS_MAX: u64 = 2;
/// What declarations have that are carried out at once: each its plan until what is left of that was answered, which
/// waits for entities and for the disk. It is room and no number, so that those that are small do not wait for each
/// other; until a declaration is planned it has room for the most that its plan may be.
pub(crate) const CARRIED_OUT_BYTES_MAX: u64 = 512 << 20;
/// How long entities may take to say what a list is made of, and what an explanation is: others wait for the turn.
const LIST_TIME: TimeSpan = TimeSpan::from_seconds(10);
const EXPLANATION_TIME: TimeSpan = TimeSpan::from_seconds(30);
/// Addresses are forgotten when there are more of them, if nobody there asks for anything.
const ADDRESSES_KEPT: usize = 1_024;

/// Of what few are made at once, over all connections and transports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Large {
    /// A page of a list, or what is planned of a declaration.
    List,
    /// What each rule of a subscription makes of a message.
    Explanation,
    /// What is done of a declaration, which takes so many bytes at most. Its plan is made in a turn at lists, which is
    /// over before it is carried out.
    CarryingOut { bytes: u64 },
}

impl Large {
    const fn time(self) -> TimeSpan {
        match self {
            Self::List | Self::CarryingOut { .. } => LIST_TIME,
            Self::Explanation => EXPLANATION_TIME,
        }
    }
}

/// The turns of all.
pub(crate) struct Turns {
    lists: Arc<Pool>,
    explanations: Arc<Pool>,
    carrying_out: Arc<Pool>,
    /// Who asks, by where he comes from: connections are as many as somebody likes.
    askers: Mutex<HashMap<IpAddr, Weak<Asker>>>,
    clock: Arc<dyn Clock>,
}

/// Who asks for turns: who has most of them waits for those who have fewer.
#[derive(Debug)]
struct Asker {
    lists: Arc<Place>,
    explanations: Arc<Place>,
    carrying_out: Arc<Place>,
}

/// A turn, until this is dropped.
#[derive(Debug)]
pub struct HeldTurn {
    room: Room,
    _asker: Option<Arc<Asker>>,
}

impl HeldTurn {
    /// Gives back room beyond so much, now that it is known how large it is.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.room.shrink(bytes);
    }
}

impl Turns {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            lists: Pool::new(LISTS_MAX),
            explanations: Pool::new(EXPLANATIONS_MAX),
            carrying_out: Pool::new(CARRIED_OUT_BYTES_MAX),
            askers: Mutex::default(),
            clock: Arc::clone(clock),
        }
    }

    fn asker(&self, peer: SocketAddr) -> Arc<Asker> {
        let address = network(peer.ip());
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asker) = askers.get(&address).and_then(Weak::upgrade) {
            return asker;
        }
        if askers.len() >= ADDRESSES_KEPT {
            askers.retain(|_, asker| asker.strong_count() > 0);
        }
        let asker = Arc::new(Asker {
            lists: Arc::new(self.lists.place()),
            explanations: Arc::new(self.explanations.place()),
            carrying_out: Arc::new(self.carrying_out.place()),
        });
        askers.insert(address, Arc::downgrade(&asker));
        asker
    }

    /// Waits for a turn, as one of those who come from there. Who comes from nowhere is one who has none.
    pub(crate) async fn take(
        &self,
        large: Large,
        peer: Option<SocketAddr>,
    ) -> Result<HeldTurn, Rejection> {
        let asker = peer.map(|peer| self.asker(peer));
        let by = asker.as_ref();
        let (pool, place, wanted) = match large {
            Large::List => (&self.lists, by.map(|by| &by.lists), 1),
            Large::Explanation => (&self.explanations, by.map(|by| &by.explanations), 1),
            // One alone that is larger than all of the room takes all of it.
            Large::CarryingOut { bytes } => (
                &self.carrying_out,
                by.map(|by| &by.carrying_out),
                bytes.min(self.carrying_out.bytes_max()),
            ),
        };
        if let Some(room) = pool.try_hold(place, wanted) {
            return Ok(HeldTurn { room, _asker: asker });
        }
        let until = self.clock.now().plus(PATIENCE);
        let room = tokio::select! {
            biased;
            room = pool.hold(place, wanted) => room,
            () = self.clock.sleep_until(until) => return Err(too_many(large)),
        };
        Ok(HeldTurn { room, _asker: asker })
    }

    /// How long others may be let wait for what is begun now.
    pub(crate) fn until(&self, large: Large) -> Timestamp {
        self.clock.now().plus(large.time())
    }

    /// Makes what it is the turn of, as long as others may be let wait for it.
    pub(crate) async fn make<T>(
        &self,
        large: Large,
        until: Timestamp,
        making: impl Future<Output = T>,
    ) -> Result<T, Rejection> {
        let kind = match large {
            Large::List => "a list",
            Large::Explanation => "an explanation of rules",
            Large::CarryingOut { .. } => "a plan",
        };
        tokio::select! {
            biased;
            made = making => Ok(made),
            () = self.clock.sleep_until(until) => Err(Rejection::server_busy(format!(
                "an entity is busy and did not answer its part of {kind} within {}; try again \
                 later",
                large.time()
            ))),
        }
    }
}

fn too_many(large: Large) -> Rejection {
    let kind = match large {
        Large::List => format!("lists (at most {LISTS_MAX})"),
        Large::Explanation => format!("explanations of rules (at most {EXPLANATIONS_MAX})"),
        Large::CarryingOut { .. } => {
            format!("declarations (at most {CARRIED_OUT_BYTES_MAX} bytes)")
        }
    };
    Rejection::server_busy(format!("the limit of concurrent {kind} is reached; try again later"))
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;
    use crate::clock::ManualClock;
    use crate::condition::Condition;

    async fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let mut future = future;
        poll_fn(|context| {
            Poll::Ready(match future.as_mut().poll(context) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => None,
            })
        })
        .await
    }

    fn turns() -> (Arc<ManualClock>, Turns) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_000)));
        let turns = Turns::new(&(Arc::clone(&clock) as Arc<dyn Clock>));
        (clock, turns)
    }

    /// DESIGN D6: a turn goes to an address that has none before one that has some and has waited for longer.
    #[tokio::test]
    async fn a_turn_goes_to_who_has_fewest() {
        let (_clock, turns) = turns();
        let [greedy, again, modest] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"]
            .map(|peer| Some(peer.parse::<SocketAddr>().unwrap()));
        let first = turns.take(Large::Explanation, greedy).await.unwrap();
        let _second = turns.take(Large::Explanation, again).await.unwrap();
        let mut third = pin!(turns.take(Large::Explanation, again));
        assert!(poll(third.as_mut()).await.is_none());
        let mut other = pin!(turns.take(Large::Explanation, modest));
        assert!(poll(other.as_mut()).await.is_none());
        drop(first);
        assert!(poll(third.as_mut()).await.is_none(), "it has one");
        assert!(poll(other.as_mut()).await.is_some_and(|turn| turn.is_ok()));
    }

    /// DESIGN D6: who waits for too long is told to come back, and lists do not wait for explanations.
    #[tokio::test]
    async fn a_turn_is_not_waited_for_without_end() {
        let (clock, turns) = turns();
        let mut held = Vec::new();
        for _ in 0..EXPLANATIONS_MAX {
            held.push(turns.take(Large::Explanation, None).await.unwrap());
        }
        let mut late = pin!(turns.take(Large::Explanation, None));
        assert!(poll(late.as_mut()).await.is_none());
        assert!(turns.take(Large::List, None).await.is_ok());
        clock.advance(PATIENCE);
        let refused = late.await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("explanations of rules (at most 2"), "{refused:?}");
    }

    /// DESIGN D6: who waits for an entity that does not answer gives its turn to others.
    #[tokio::test]
    async fn a_turn_is_not_kept_for_a_busy_entity() {
        let (clock, turns) = turns();
        let until = turns.until(Large::List);
        let mut made = pin!(turns.make(Large::List, until, std::future::pending::<()>()));
        assert!(poll(made.as_mut()).await.is_none());
        clock.advance(LIST_TIME);
        let refused = made.await.unwrap_err();
        assert_eq!(refused.condition(), Condition::ServerBusy);
        assert!(refused.detail().contains("an entity is busy"), "{refused:?}");
        assert_eq!(turns.make(Large::List, until, std::future::ready(7)).await.unwrap(), 7);
    }

    /// DESIGN D6: addresses from which nobody asks are not remembered without end.
    #[tokio::test]
    async fn who_asks_no_more_is_forgotten() {
        let (_clock, turns) = turns();
        for number in 0..5_000_u32 {
            let peer = SocketAddr::from((number.to_be_bytes(), 1));
            drop(turns.take(Large::List, Some(peer)).await.unwrap());
        }
        assert!(turns.askers.lock().unwrap().len() <= ADDRESSES_KEPT);
    }
}
