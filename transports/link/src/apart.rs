//! Work apart from the connection: requests that take more than one command. Few at a time, the others in order.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use peeklock_core::permits::{HeldTurn, Permit, Pool, Room};
use tokio::sync::watch;

/// Pieces of work that go on at once.
pub const WORKING_MAX: usize = 32;
/// Pieces of long work, such as a list, that go on at once.
pub const LONG_MAX: usize = 4;

/// How much a piece of work may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// One thing, such as a description.
    Short,
    /// Many.
    Long,
}

/// Work under way: it yields its result, and the turn at something large that it has taken.
pub type Working<T> = Pin<Box<dyn Future<Output = (Option<HeldTurn>, T)> + Send>>;

/// Starts the work. Until then it has the size of its request, which is paid for; under way it may have several times
/// that.
pub type Start<T> = Box<dyn FnOnce() -> Working<T> + Send>;

/// Work that waits for its start.
pub(crate) struct Work<T> {
    pub(crate) size: Size,
    pub(crate) slot: usize,
    /// The room of its request, as long as anything of that is in memory.
    pub(crate) permit: Arc<Permit>,
    pub(crate) start: Start<T>,
}

/// Work that has ended.
pub struct Finished<T> {
    pub(crate) size: Size,
    /// The place of its request in the table of pending requests.
    pub slot: usize,
    /// Its result.
    pub result: T,
    /// The room that the result has.
    pub paid: Paid,
}

/// The work apart from a connection. Waiting work was paid for as a command; its answers are counted when they are here, and
/// none is started while the connection has no room for answers.
pub struct Apart<T> {
    waiting: VecDeque<Work<T>>,
    short: usize,
    long: usize,
}

impl<T> Default for Apart<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), short: 0, long: 0 }
    }
}

impl<T> Apart<T> {
    /// Adds the work of a request.
    pub fn push(&mut self, size: Size, slot: usize, permit: Arc<Permit>, start: Start<T>) {
        self.waiting.push_back(Work { size, slot, permit, start });
    }

    /// The next work, if few are under way.
    pub(crate) fn next(&mut self) -> Option<Work<T>> {
        let is_full = match self.waiting.front()?.size {
            Size::Short => false,
            Size::Long => self.long >= LONG_MAX,
        };
        if is_full || self.short + self.long >= WORKING_MAX {
            return None;
        }
        let work = self.waiting.pop_front()?;
        *self.working(work.size) += 1;
        Some(work)
    }

    /// Whether any is under way, or waits to be.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.short + self.long > 0 || !self.waiting.is_empty()
    }

    pub(crate) fn done(&mut self, size: Size) {
        let working = self.working(size);
        *working = working.saturating_sub(1);
    }

    /// Forgets work that was not started.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    fn working(&mut self, size: Size) -> &mut usize {
        match size {
            Size::Short => &mut self.short,
            Size::Long => &mut self.long,
        }
    }
}

/// What something takes, and the room for it; none if it needs no room of others.
pub type Paid = Option<(u64, Room)>;

/// Does a piece of work and waits for room for what comes of it, where that is more than is free without; the turn at
/// something large that it has taken is kept until then. None if its connection has ended, which `alive` tells when its
/// sender is dropped: what is not with an entity by then ends with it.
pub(crate) async fn do_apart<T>(
    mut alive: watch::Receiver<()>,
    work: impl Future<Output = (Option<HeldTurn>, T)>,
    bytes_of: impl FnOnce(&T) -> u64,
    free_bytes: u64,
    outbound: &Arc<Pool>,
) -> Option<(T, Paid)> {
    let (_turn, made) = unless_ended(&mut alive, work).await?;
    let bytes = bytes_of(&made);
    if bytes <= free_bytes {
        return Some((made, None));
    }
    // One alone that is larger than all of the room takes all of it.
    let room = outbound.hold(None, bytes.min(outbound.bytes_max()));
    let room = unless_ended(&mut alive, room).await?;
    Some((made, Some((bytes, room))))
}

/// Waits for something as long as the connection is there.
async fn unless_ended<T>(
    alive: &mut watch::Receiver<()>,
    wanted: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        // Nothing is ever sent: it ends with the connection.
        _ = alive.changed() => None,
        it = wanted => Some(it),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// What is made takes room beyond what is free, all of it where it is larger, and none if it is no more.
    #[test]
    fn what_is_made_apart_has_its_room() {
        let mut context = Context::from_waker(Waker::noop());
        let (_alive, receiver) = watch::channel(());
        let pool = Pool::new(10);
        for (bytes, room) in [(3, 0), (4, 4), (40, 10)] {
            let work = std::future::ready((None, bytes));
            let mut doing = pin!(do_apart(receiver.clone(), work, |it| *it, 3, &pool));
            let Poll::Ready(Some((made, paid))) = doing.as_mut().poll(&mut context) else {
                panic!("{bytes} bytes wait for room")
            };
            assert_eq!(
                (made, paid.as_ref().map(|(bytes, _)| *bytes)),
                (bytes, (room > 0).then_some(bytes))
            );
            assert!(
                pool.try_hold(None, 10 - room + 1).is_none()
                    && pool.try_hold(None, 10 - room).is_some()
            );
        }
    }

    /// Work ends with its connection, and so does the wait for room.
    #[test]
    fn what_is_done_apart_ends_with_its_connection() {
        let mut context = Context::from_waker(Waker::noop());
        let (alive, receiver) = watch::channel(());
        let pool = Pool::new(10);
        let _held = pool.try_hold(None, 10).unwrap();
        let endless = std::future::pending::<(Option<HeldTurn>, u64)>();
        let mut working = pin!(do_apart(receiver.clone(), endless, |it| *it, 0, &pool));
        let made = std::future::ready((None, 7));
        let mut paying = pin!(do_apart(receiver, made, |it| *it, 0, &pool));
        assert!(working.as_mut().poll(&mut context).is_pending());
        assert!(paying.as_mut().poll(&mut context).is_pending());
        drop(alive);
        assert!(matches!(working.as_mut().poll(&mut context), Poll::Ready(None)));
        assert!(matches!(paying.as_mut().poll(&mut context), Poll::Ready(None)));
    }
}
