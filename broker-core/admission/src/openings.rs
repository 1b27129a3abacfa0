//! Openings: connections that have not shown their identity or protocol yet, such as TLS handshakes. Their number is
//! bounded, and beyond it the oldest is evicted. An honest client opens in a few round trips; one that keeps half a handshake
//! open is the oldest soon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bounded openings, by age.
pub struct Openings {
    count_max: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    next: u64,
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// One opening. Dropping it ends the opening.
pub struct Opening {
    all: Arc<Openings>,
    key: u64,
    evicted: Arc<Notify>,
}

impl Openings {
    /// At most `count_max` openings at once.
    #[must_use]
    pub fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count_max: count_max.max(1), under_way: Mutex::default() })
    }

    /// Begins an opening. Evicts the oldest if there are too many.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Opening {
        let evicted = Arc::new(Notify::new());
        let mut under_way = self.lock();
        while under_way.by_age.len() >= self.count_max {
            let Some((_, oldest)) = under_way.by_age.pop_first() else { break };
            oldest.notify_one();
        }
        let key = under_way.next;
        under_way.next += 1;
        under_way.by_age.insert(key, Arc::clone(&evicted));
        drop(under_way);
        Opening { all: Arc::clone(self), key, evicted }
    }

    /// Evicts the oldest, if there is one.
    pub fn evict_oldest(&self) {
        let oldest = self.lock().by_age.pop_first();
        if let Some((_, oldest)) = oldest {
            oldest.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening {
    /// Waits until it is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.all.lock().by_age.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_evicted(opening: &Opening) -> bool {
        pin!(opening.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// TLS-03: beyond the bound the oldest opening is evicted, and no younger one.
    #[test]
    fn the_oldest_opening_is_evicted_beyond_the_bound() {
        let openings = Openings::new(2);
        let (first, second) = (openings.begin(), openings.begin());
        assert!(!is_evicted(&first) && !is_evicted(&second));
        let third = openings.begin();
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&third));
        drop(second);
        let fourth = openings.begin();
        assert!(!is_evicted(&third) && !is_evicted(&fourth), "one had ended");
        drop((first, third, fourth));
        assert!(openings.lock().by_age.is_empty());
    }
}
