//! Background work of a connection: requests that take more than one command. The engine starts it
//! and receives its results as mail. At most [`WORKING_MAX`] pieces run at a time, and the others
//! wait in order.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::admission::{HeldTurn, Permit, Pool, Room};
use tokio::sync::watch;

/// Maximum pieces of work that run at the same time.
pub const WORKING_MAX: usize = 32;
/// Maximum pieces of long work, such as a list, that run at the same time.
pub const LONG_MAX: usize = 4;

/// Size of the result of a piece of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultSize {
    /// One item, such as a description.
    Short,
    /// Many items.
    Long,
}

/// Work under way. It yields its result, and its turn if the result is large enough to need one.
pub type RunningWork<T> = Pin<Box<dyn Future<Output = (Option<HeldTurn>, T)> + Send>>;

/// Starts the work. Before the start, only its request is in memory, which has a permit; under way
/// it may need several times as much.
pub type StartWork<T> = Box<dyn FnOnce() -> RunningWork<T> + Send>;

/// Work that waits for its start.
pub(crate) struct QueuedWork<T> {
    pub(crate) size: ResultSize,
    pub(crate) slot: usize,
    /// Permit of the request, held while any part of the request is in memory.
    pub(crate) permit: Arc<Permit>,
    pub(crate) start: StartWork<T>,
}

/// Work that has ended.
pub struct FinishedWork<T> {
    pub(crate) size: ResultSize,
    /// Slot of its request in the table of pending requests.
    pub slot: usize,
    /// Its result.
    pub result: T,
    /// Room reserved for the result.
    pub room: ResultRoom,
}

/// Background work of a connection. Work that has not started only holds its request, which the
/// permit of the request covers. The bytes of a result count from the moment it exists, and no work
/// starts while the connection has no room for answers.
pub struct BackgroundWork<T> {
    waiting: VecDeque<QueuedWork<T>>,
    short: usize,
    long: usize,
}

impl<T> Default for BackgroundWork<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), short: 0, long: 0 }
    }
}

impl<T> BackgroundWork<T> {
    /// Adds the work of a request.
    pub fn push(
        &mut self,
        size: ResultSize,
        slot: usize,
        permit: Arc<Permit>,
        start: StartWork<T>,
    ) {
        self.waiting.push_back(QueuedWork { size, slot, permit, start });
    }

    /// Takes the next work to start, unless the maximum is under way.
    pub(crate) fn next(&mut self) -> Option<QueuedWork<T>> {
        let is_full = match self.waiting.front()?.size {
            ResultSize::Short => false,
            ResultSize::Long => self.long >= LONG_MAX,
        };
        if is_full || self.short + self.long >= WORKING_MAX {
            return None;
        }
        let work = self.waiting.pop_front()?;
        *self.working(work.size) += 1;
        Some(work)
    }

    /// Whether any work is under way or waits.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.short + self.long > 0 || !self.waiting.is_empty()
    }

    pub(crate) fn done(&mut self, size: ResultSize) {
        let working = self.working(size);
        *working = working.saturating_sub(1);
    }

    /// Drops work that was not started.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    fn working(&mut self, size: ResultSize) -> &mut usize {
        match size {
            ResultSize::Short => &mut self.short,
            ResultSize::Long => &mut self.long,
        }
    }
}

/// Shared room that holds a result, with the bytes of the result. `None` if the result fits into
/// the part of the connection's own room that was free when the work started.
pub type ResultRoom = Option<(u64, Room)>;

/// Runs a piece of work, then waits for shared room if its result exceeds `free_bytes`. The turn
/// for a large result is held until then. Returns none if the connection ends first, which it
/// signals by dropping the sender of `alive`; work that no entity has received ends with it.
pub(crate) async fn run_in_background<T>(
    mut alive: watch::Receiver<()>,
    work: impl Future<Output = (Option<HeldTurn>, T)>,
    bytes_of: impl FnOnce(&T) -> u64,
    free_bytes: u64,
    outbound: &Arc<Pool>,
) -> Option<(T, ResultRoom)> {
    let (_turn, made) = until_ended(&mut alive, work).await?;
    let bytes = bytes_of(&made);
    if bytes <= free_bytes {
        return Some((made, None));
    }
    // A single result that is larger than all of the room takes all the room.
    let room = outbound.wait(None, bytes.min(outbound.bytes_max()));
    let room = until_ended(&mut alive, room).await?;
    Some((made, Some((bytes, room))))
}

/// Waits for `wanted` until the connection ends.
async fn until_ended<T>(
    alive: &mut watch::Receiver<()>,
    wanted: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        // Nothing is ever sent; the receiver wakes when the connection drops the sender.
        _ = alive.changed() => None,
        it = wanted => Some(it),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A result takes shared room if it exceeds the free bytes; a result larger than all of the
    /// room takes all the room.
    #[test]
    fn background_results_reserve_room() {
        let mut context = Context::from_waker(Waker::noop());
        let (_alive, receiver) = watch::channel(());
        let pool = Pool::new(10);
        for (bytes, room) in [(3, 0), (4, 4), (40, 10)] {
            let work = std::future::ready((None, bytes));
            let mut doing = pin!(run_in_background(receiver.clone(), work, |it| *it, 3, &pool));
            let Poll::Ready(Some((made, paid))) = doing.as_mut().poll(&mut context) else {
                panic!("{bytes} bytes wait for room")
            };
            assert_eq!(
                (made, paid.as_ref().map(|(bytes, _)| *bytes)),
                (bytes, (room > 0).then_some(bytes))
            );
            assert!(
                pool.try_take(None, 10 - room + 1).is_none()
                    && pool.try_take(None, 10 - room).is_some()
            );
        }
    }

    /// Work and its wait for room end with the connection.
    #[test]
    fn background_work_ends_with_its_connection() {
        let mut context = Context::from_waker(Waker::noop());
        let (alive, receiver) = watch::channel(());
        let pool = Pool::new(10);
        let _held = pool.try_take(None, 10).unwrap();
        let endless = std::future::pending::<(Option<HeldTurn>, u64)>();
        let mut working = pin!(run_in_background(receiver.clone(), endless, |it| *it, 0, &pool));
        let made = std::future::ready((None, 7));
        let mut paying = pin!(run_in_background(receiver, made, |it| *it, 0, &pool));
        assert!(working.as_mut().poll(&mut context).is_pending());
        assert!(paying.as_mut().poll(&mut context).is_pending());
        drop(alive);
        assert!(matches!(working.as_mut().poll(&mut context), Poll::Ready(None)));
        assert!(matches!(paying.as_mut().poll(&mut context), Poll::Ready(None)));
    }
}
