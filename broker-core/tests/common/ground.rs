//! Drives shells as actors do, without actix: lists that completions fill, a mailbox for answers,
//! and the writers of the shards.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use peeklock_core::machine::StageNumber;
use peeklock_core::message::Content;
use peeklock_core::request::{Outlet, Released};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::store::{Key, Shard, Store, StoreError};
use peeklock_core::transfer::ListNumber;
use peeklock_core::transfer::claim::TransferEnd;
use peeklock_store_testing::{FaultStore, block_on};

/// Message of a planned panic.
pub const PLANNED: &str = "planned by the seed";

/// A list that any thread fills and the driver empties.
pub type Shared<T> = Arc<Mutex<Vec<T>>>;

pub fn take<T>(list: &Shared<T>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn push<T>(list: &Shared<T>, item: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

/// Keeps released answers until clients read them.
#[derive(Default)]
pub struct Mailbox(Mutex<Vec<Released>>);

impl Mailbox {
    pub fn take(&self) -> Vec<Released> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Outlet for Mailbox {
    fn release(&self, group: Vec<Released>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(group);
    }
}

/// Mail of an actor.
pub enum Mail {
    Committed(StageNumber),
    Failed,
}

/// The end of a transfer, reported to its source.
pub struct ListEnded {
    pub seat: u64,
    pub list: ListNumber,
    pub keys: Vec<Key>,
    pub end: TransferEnd,
}

/// Runs a load to its end. `refuses` decides about each held read whether it fails because the
/// store is not available; then there is no result.
pub fn load<T>(
    store: &FaultStore,
    mut refuses: impl FnMut() -> bool,
    loading: impl Future<Output = Result<T, StoreError>>,
) -> Option<T> {
    let mut loading = pin!(loading);
    loop {
        match loading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(loaded)) => return Some(loaded),
            Poll::Ready(Err(error)) => {
                assert!(error.is_unavailable(), "a content is lost: {error}");
                return None;
            }
            Poll::Pending => {
                let has_ended = if refuses() { store.refuse_read(0) } else { store.let_read(0) };
                assert!(has_ended, "a load waits for something else");
            }
        }
    }
}

/// One writer for each of `count` shards. Writers with an unknown outcome are pushed to `unknown`.
pub fn writers(
    store: &Arc<FaultStore>,
    count: u16,
    unknown: &Shared<Arc<ShardWriter>>,
) -> Vec<Arc<ShardWriter>> {
    (0..count)
        .map(|shard| {
            let unknown = Arc::clone(unknown);
            let on_unknown = Box::new(move |writer| push(&unknown, writer));
            let store = Arc::clone(store) as Arc<dyn Store>;
            block_on(ShardWriter::acquire(store, Shard(shard), on_unknown)).unwrap()
        })
        .collect()
}

/// The number that a client wrote at the start of the body.
pub fn marker(content: bytes::Bytes) -> u64 {
    let body = Content::parse(content).expect("content is kept as it was").body_bytes();
    let digits = body.iter().take_while(|byte| byte.is_ascii_digit()).copied().collect();
    String::from_utf8(digits).ok().and_then(|text| text.parse().ok()).expect("a number")
}
