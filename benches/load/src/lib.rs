//! Loads of `peeklock bench`: on a broker in a process of its own, on a running broker, or on a broker in this process.
//! A message counts after it was sent with acknowledgement, received under lock, and completed with acknowledgement.
//!
//! The program parses [`Flags`], makes a [`Plan`] of them and prints the text that [`Flags::run`] returns. The broker of a
//! load is the current executable with the command `serve`.
//!
//! Read `plan.rs` for the loads, `messages.rs` for the way of most messages, `client.rs` for the transports. `cycle`,
//! `beside`, `scheduled` and `delayed` are for developers of the broker: they run only in this process and count the
//! writes and syncs of the journal.

mod backlog;
mod beside;
mod client;
mod command;
mod connections;
mod cycle;
mod due;
mod floor;
mod latency;
mod messages;
mod plan;
mod process;
mod queues;
mod record;
mod report;
mod served;
mod target;
mod topic;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use command::{Contradiction, Flags, HELP};
use indicatif::ProgressBar;
use peeklock::StartError;
use peeklock::error::BrokerError;
use peeklock::store::StoreError;

use floor::SyncFloor;
pub use plan::{Load, Over, Plan};
use report::Report;
use target::Target;

/// Why a load could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The broker did not start.
    #[error("broker cannot start: {0}")]
    Start(#[from] StartError),
    /// The broker as a process did not start.
    #[error("broker cannot start: {0}")]
    Served(String),
    /// The broker refused something.
    #[error("load was refused: {0}")]
    Refused(#[from] BrokerError),
    /// A request over HTTP was refused or not answered.
    #[error("load was refused: {0}")]
    Http(String),
    /// Something over AMQP was refused or not answered.
    #[error("load was refused: {0}")]
    Amqp(#[from] client::amqp::AmqpFault),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The directory cannot be used.
    #[error("cannot create the directory for the load: {0}")]
    Directory(#[from] io::Error),
    /// Nothing goes on any more.
    #[error("the load made no progress for {seconds} s, with {done} of {all} done")]
    Stalled {
        /// What is done.
        done: u64,
        /// What there is to do.
        all: u64,
        /// How long nothing went on.
        seconds: u64,
    },
    /// Messages were received and not completed.
    #[error("{left} messages are left that should have been completed")]
    Left {
        /// How many.
        left: u64,
    },
    /// The broker has closed connections of the load.
    #[error("only {open} of {opened} connections are still open: the broker closed the others")]
    Closed {
        /// How many are open.
        open: u64,
        /// How many the load has opened.
        opened: u64,
    },
    /// This process may not open as many files.
    #[error(
        "{needed} open files are needed and {limit} are allowed: raise the limit (ulimit -n), or \
         give a smaller --count"
    )]
    Files {
        /// What the load needs.
        needed: u64,
        /// What the system allows.
        limit: u64,
    },
    /// A call of the system failed.
    #[error("{0}")]
    System(io::Error),
    /// A process that runs half of the load failed.
    #[error("{0}")]
    Half(String),
    /// A signal ended it.
    #[error("interrupted")]
    Interrupted,
}

/// A directory that is removed with all in it when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in another.
    fn within(path: &Path) -> io::Result<Self> {
        let path = path.join(format!("peeklock-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        // The broker of a load may have another current directory.
        Ok(Self(path.canonicalize()?))
    }

    /// A path in it.
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The journal of a load that was interrupted may make one more file meanwhile.
        let mut removed = std::fs::remove_dir_all(&self.0);
        for _ in 0..8 {
            match &removed {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    removed = std::fs::remove_dir_all(&self.0);
                }
                _ => break,
            }
        }
        if let Err(error) = removed {
            tracing::warn!(path = %self.0.display(), %error, "could not remove the data of the \
                load");
        }
    }
}

/// Runs a load over a transport, until it is done or `interrupted`. Whatever becomes of it, the broker
/// that was started for it has ended and its directory is gone when this returns; one that was given has
/// no queue of it.
async fn run(
    plan: &Plan,
    bar: &ProgressBar,
    interrupted: impl Future<Output = ()>,
) -> Result<Report, BenchError> {
    let work = async {
        let target = Target::start(plan).await?;
        let result = over_target(plan, &target, bar).await;
        target.stop().await;
        result
    };
    let result = tokio::select! {
        biased;
        () = interrupted => Err(BenchError::Interrupted),
        result = work => result,
    };
    if result.is_err() && plan.url.is_some() {
        // As far as the broker lets us: what failed may be the broker.
        tokio::time::timeout(CLEAN_TIME_MAX, clean(plan))
            .await
            .unwrap_or(Ok(()))
            .unwrap_or_default();
    }
    result
}

/// How long it may take to remove what a load has left on a broker that is not ours.
const CLEAN_TIME_MAX: Duration = Duration::from_secs(10);

/// Removes the queues of a load that did not come to its end.
async fn clean(plan: &Plan) -> Result<(), BenchError> {
    let client = Target::start(plan).await?.connect(plan.over).await?;
    if plan.load != Load::Queues {
        return client.delete_queue(&messages::queue()).await;
    }
    // They were created in this order, but for those that were under way.
    let under_way = plan.clients * plan.window;
    let mut absent = 0;
    for number in 0..plan.count {
        let is_deleted = client.delete_queue(&queues::name(number)).await.is_ok();
        absent = if is_deleted { 0 } else { absent + 1 };
        if absent > under_way {
            break;
        }
    }
    Ok(())
}

async fn over_target(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
) -> Result<Report, BenchError> {
    let mut report = Report::default();
    plan.told(&mut report);
    let floor = match plan.floor {
        true => Some(SyncFloor::of(&target.place("floor"), plan.body_bytes).await?),
        false => None,
    };
    match plan.load {
        Load::Backlog => backlog::run(plan, target, bar, &mut report).await?,
        Load::Topic => topic::run(plan, target, bar, &mut report).await?,
        Load::Queues => queues::run(plan, target, bar, &mut report).await?,
        Load::Connections => connections::run(plan, target, bar, &mut report).await?,
        Load::Latency
        | Load::Throughput
        | Load::Memory
        | Load::Small
        | Load::Cycle
        | Load::Beside
        | Load::Scheduled
        | Load::Delayed => messages::run(plan, target, bar, &mut report).await?,
    }
    if let Some(mut floor) = floor {
        floor.again()?;
        floor.told(&mut report);
    }
    Ok(report)
}

/// How long nothing may go on before a load is given up.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// How often the bar is told.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Does some work, shows on the bar how far it is, and gives up when nothing goes on any more.
async fn watched<T>(
    bar: &ProgressBar,
    all: u64,
    done: impl Fn() -> u64,
    work: impl Future<Output = Result<T, BenchError>>,
) -> Result<T, BenchError> {
    bar.reset();
    bar.set_length(all);
    let watch = async {
        let mut ticks = tokio::time::interval(BAR_EVERY);
        let (mut last, mut since) = (0, std::time::Instant::now());
        loop {
            ticks.tick().await;
            let done = done();
            bar.set_position(done);
            if done != last {
                (last, since) = (done, std::time::Instant::now());
            }
            if since.elapsed() >= STALLED_AFTER {
                return BenchError::Stalled { done, all, seconds: STALLED_AFTER.as_secs() };
            }
        }
    };
    tokio::select! {
        biased;
        result = work => result,
        stalled = watch => Err(stalled),
    }
}
