//! Tests of session states on the journal over several restarts: no state is lost, and no old state
//! returns.

use std::path::Path;
use std::sync::Arc;

use crate::local::Local;
use peeklock_core::Broker;
use peeklock_core::command::SessionFilter;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::store::{Journal, JournalConfig};
use peeklock_core::time::TimeSpan;

async fn open(path: &Path) -> Local {
    let config = JournalConfig { free_bytes_min: 0, ..JournalConfig::default() };
    let store = Journal::open(path, config).unwrap();
    let broker = Broker::builder().store(store as Arc<_>).arbiters(1).start().await.unwrap();
    Local::new(broker)
}

async fn stop(client: Local) {
    client.stop().await;
}

/// SES-18, SES-24, SES-25: empty, small and large states (stored in parts), replaced and cleared
/// after a restart.
#[tokio::test]
async fn states_are_as_durable_as_messages() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session-states");
    std::fs::remove_dir_all(&directory).ok();
    std::fs::create_dir_all(&directory).unwrap();
    let sizes = [0usize, 10, 300 << 10];
    let bytes = |size: usize, with: u8| vec![with; size];

    let client = open(&directory).await;
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("orders", by_session).await.unwrap();
    for size in sizes {
        let session = client.accept_session("orders", &format!("{size} bytes")).await.unwrap();
        session.set_state(Some(bytes(size, 1).into())).await.unwrap();
        session.close().await.unwrap();
    }
    let sum: u64 = sizes.iter().map(|size| *size as u64).sum();
    stop(client).await;

    let client = open(&directory).await;
    let described = client.admin().queue("orders").await.unwrap();
    assert_eq!((described.size_bytes, described.counts.total()), (sum, 0));
    for size in sizes {
        let session = client.accept_session("orders", &format!("{size} bytes")).await.unwrap();
        assert_eq!(session.state().await.unwrap().unwrap(), bytes(size, 1));
        session.set_state(Some(bytes(size + 1, 2).into())).await.unwrap();
        assert_eq!(session.state().await.unwrap().unwrap(), bytes(size + 1, 2));
    }
    stop(client).await;

    let client = open(&directory).await;
    for size in sizes {
        let session = client.accept_session("orders", &format!("{size} bytes")).await.unwrap();
        assert_eq!(session.state().await.unwrap().unwrap(), bytes(size + 1, 2));
        session.set_state(None).await.unwrap();
    }
    let message = Message::new("left").with_session_id("0 bytes");
    client.sender("orders").unwrap().send(message).await.unwrap();
    stop(client).await;

    let client = open(&directory).await;
    let names = client.sessions("orders", SessionFilter::All, 0, 9).await.unwrap();
    assert_eq!(names.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["0 bytes"]);
    let session = client.accept_next_session("orders", TimeSpan::ZERO).await.unwrap();
    assert_eq!(session.state().await.unwrap(), None);
    let left = session.receive(TimeSpan::ZERO).await.unwrap().unwrap();
    session.complete(&left).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(client.admin().queue("orders").await.unwrap().size_bytes, 0);
    stop(client).await;
    std::fs::remove_dir_all(&directory).unwrap();
}
