//! Loads of `peeklock bench`: on a broker in its own process, on a running broker, or on a broker in
//! this process. A message counts after it was sent with acknowledgement, received under lock, and
//! completed with acknowledgement.
//!
//! The program parses [`Flags`], makes a [`Plan`] and prints the text that [`Flags::run`] returns.
//! The broker of a load is the current executable with the command `serve`.
//!
//! | Modules in reading order | Content |
//! |---|---|
//! | `plan`, `command` | the loads and their flags |
//! | `target`, `served`, `client` | the broker under load, and a client over each transport |
//! | `messages`, `topic`, `backlog` | loads of messages |
//! | `queues`, `connections` | loads of queues and of idle connections |
//! | `cycle`, `beside`, `due` | loads for developers of the broker: they run only in this process |
//! | `record`, `floor` | the disk operations of a load, and their repetition without a broker |
//! | `latency`, `process`, `report` | times, resources, and the result |

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

/// Reason why a load failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The broker did not start.
    #[error("broker cannot start: {0}")]
    Start(#[from] StartError),
    /// The broker did not start as a process.
    #[error("broker cannot start: {0}")]
    Served(String),
    /// The broker refused an operation.
    #[error("load was refused: {0}")]
    Refused(#[from] BrokerError),
    /// A request over HTTP was refused or not answered.
    #[error("load was refused: {0}")]
    Http(String),
    /// An operation over AMQP was refused or not answered.
    #[error("load was refused: {0}")]
    Amqp(#[from] client::amqp::AmqpFault),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The directory cannot be used.
    #[error("cannot create the directory for the load: {0}")]
    Directory(#[from] io::Error),
    /// The load makes no progress.
    #[error("the load made no progress for {seconds} s, with {done} of {all} done")]
    Stalled {
        /// Number of completed operations.
        done: u64,
        /// Number of all operations.
        all: u64,
        /// Seconds without progress.
        seconds: u64,
    },
    /// Messages were received and not completed.
    #[error("{left} messages are left that should have been completed")]
    Left {
        /// The number of remaining messages.
        left: u64,
    },
    /// The broker has closed connections of the load.
    #[error("only {open} of {opened} connections are still open: the broker closed the others")]
    Closed {
        /// Number of open connections.
        open: u64,
        /// Number of connections that the load has opened.
        opened: u64,
    },
    /// This process may not open enough files.
    #[error(
        "{needed} open files are needed and {limit} are allowed: raise the limit (ulimit -n), or \
         give a smaller --count"
    )]
    Files {
        /// Number of files that the load needs.
        needed: u64,
        /// Number of files that the system permits.
        limit: u64,
    },
    /// A call of the system failed.
    #[error("{0}")]
    System(io::Error),
    /// A child process that runs half of the load failed.
    #[error("{0}")]
    Half(String),
    /// A signal interrupted the load.
    #[error("interrupted")]
    Interrupted,
}

/// A directory that is removed with its content on drop.
struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in another.
    fn within(path: &Path) -> io::Result<Self> {
        let path = path.join(format!("peeklock-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        // The broker of a load may have another current directory.
        Ok(Self(path.canonicalize()?))
    }

    /// A path in the directory.
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The journal of an interrupted load may create one more file meanwhile.
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

/// Runs a load over a transport until its end or until `interrupted`. In any case, a broker that
/// was started for the load has ended and its directory is removed on return; a given broker keeps
/// no queue of the load.
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
        // Best effort: the broker itself may have failed.
        tokio::time::timeout(CLEAN_TIME_MAX, clean(plan))
            .await
            .unwrap_or(Ok(()))
            .unwrap_or_default();
    }
    result
}

/// Time limit for the removal of queues from a broker that this process did not start.
const CLEAN_TIME_MAX: Duration = Duration::from_secs(10);

/// Removes the queues of an interrupted load.
async fn clean(plan: &Plan) -> Result<(), BenchError> {
    let client = Target::start(plan).await?.connect(plan.over).await?;
    if plan.load != Load::Queues {
        return client.delete_queue(&messages::queue()).await;
    }
    // They were created in this order, except for the requests in flight.
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
    plan.report_to(&mut report);
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
        floor.report_to(&mut report);
    }
    Ok(report)
}

/// Time without progress after which a load fails.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// Interval between updates of the progress bar.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Runs `work`, shows its progress on the bar, and fails when it makes no progress.
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
