//! Bytes that a publish writes to disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::store::journal::disk::{Disk, DiskFile};
use peeklock_core::store::{Journal, JournalConfig};
use peeklock_core::time::TimeSpan;

/// Files in memory; counts written bytes.
#[derive(Default)]
struct Counting {
    files: Mutex<BTreeMap<String, Arc<File>>>,
    written: Arc<AtomicU64>,
}

struct File {
    bytes: Mutex<Vec<u8>>,
    written: Arc<AtomicU64>,
}

fn absent() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk for Counting {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().unwrap().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files.lock().unwrap().get(name).map(Arc::clone);
        file.map(|file| file as Arc<dyn DiskFile>).ok_or_else(absent)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let written = Arc::clone(&self.written);
        let file = Arc::new(File { bytes: Mutex::default(), written });
        self.files.lock().unwrap().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(from).ok_or_else(absent)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(name);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        let mut all = self.bytes.lock().unwrap();
        let offset = usize::try_from(offset).unwrap();
        let end = offset + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut all = self.bytes.lock().unwrap();
        let length = usize::try_from(bytes).unwrap().max(all.len());
        all.resize(length, 0);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(usize::try_from(bytes).unwrap());
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// TOP-10, DESIGN D8: the disk stores a content once. A message of 1 KiB to ten subscriptions that
/// all complete it writes less than 2.4 KB of journal in lists of 16. Single messages write ten
/// frames more, and the counters of each subscription if no other message follows.
#[tokio::test]
async fn a_publish_to_ten_subscriptions_writes_its_content_once() {
    let in_lists = written_per_publish(16, 0).await;
    let followed = written_per_publish(1, 1).await;
    let alone = written_per_publish(1, 0).await;
    assert!(in_lists < 2_400, "{in_lists} bytes for each publish in lists of 16");
    assert!(followed < 2_900, "{followed} bytes for one publish where another follows");
    assert!(alone < 3_400, "{alone} bytes for a publish alone");
}

/// Bytes that the journal writes for one publish, its ten deliveries and completions; `ahead` lists
/// are published before the first is completed.
async fn written_per_publish(list: u64, ahead: u64) -> u64 {
    const LISTS: u64 = 8;
    let disk = Arc::new(Counting::default());
    let config = JournalConfig { free_bytes_min: 0, ..JournalConfig::default() };
    let store = Journal::open_on(Arc::clone(&disk) as Arc<dyn Disk>, config).unwrap();
    let broker = Broker::builder().store(store as Arc<_>).arbiters(1).start().await.unwrap();
    broker.create_topic("events", TopicUpdate::default()).await.unwrap();
    let mut subscriptions = Vec::new();
    for number in 0..10 {
        let name = format!("s{number}");
        let properties = SubscriptionUpdate::default();
        broker.create_subscription("events", &name, properties, vec![]).await.unwrap();
        subscriptions.push(broker.entity(&format!("events/Subscriptions/{name}")).unwrap());
    }
    let topic = broker.entity("events").unwrap();
    let before = disk.written.load(Ordering::SeqCst);
    for turn in 0..LISTS + ahead {
        let publish = || Command::Send { message: broker.inbound(Message::new(vec![1; 1_024])) };
        if turn < LISTS {
            let sent = topic.call_many((0..list).map(|_| publish()).collect()).await;
            sent.into_iter().for_each(|one| drop(one.unwrap()));
        }
        if turn < ahead {
            continue;
        }
        for subscription in &subscriptions {
            let receive = Command::Receive {
                mode: ReceiveMode::PeekLock,
                count_max: u32::try_from(list).unwrap(),
                bytes_max: u64::MAX,
                wait: TimeSpan::ZERO,
                holder: None,
            };
            let Outcome::Received(received) = subscription.call(receive).await.unwrap() else {
                panic!("a receive is answered with messages");
            };
            assert_eq!(received.len() as u64, list);
            let completes = received.iter().map(|one| {
                let token = one.facts.lock.unwrap().token;
                Command::Settle { token, settlement: Settlement::Complete }
            });
            let settled = subscription.call_many(completes.collect()).await;
            settled.into_iter().for_each(|one| drop(one.unwrap()));
        }
    }
    let written = disk.written.load(Ordering::SeqCst) - before;
    broker.stop(Duration::ZERO).await.unwrap();
    written / (LISTS * list)
}
