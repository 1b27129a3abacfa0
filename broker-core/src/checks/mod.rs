//! Checks of all entities, each minute (CON-39).
//!
//! ```text
//!  Survey, settings, clients, store ──► Examination, each minute ──► Report ──► ChecksPage
//!                                         ▲      │                               ▲
//!                               Watched ──┘      └── since: the report before    └── Mutes, file
//! ```
//!
//! A check reads published values, so that no entity gets mail. `report` has the answers,
//! `examination` one check, `finding` its findings for each reader, `watched` the values of
//! earlier checks, and `muted` the muted findings.

mod examination;
mod finding;
mod muted;
pub(crate) mod report;
mod watched;

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use self::examination::Examination;
use self::finding::{Finding, Findings};
use self::muted::{KeptMute, Mutes};
use self::report::{CheckFinding, CheckKind, ChecksPage, ChecksQuery, FINDING_COUNT_MAX, Mute};
use self::watched::Watched;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::shared::Shared;
use crate::survey::{READ_AT_ONCE, ReadableKeys, Survey};
use crate::time::{TimeSpan, Timestamp};

/// Time between two checks.
const EVERY: TimeSpan = TimeSpan::from_seconds(60);
/// Maximum number of findings of a check. The least urgent further ones are left out.
const ENTITY_FINDING_COUNT_MAX: usize = 2_000;
/// Maximum number of entities whose values are remembered until the next check.
const WATCHED_ENTITY_COUNT_MAX: usize = 50_000;
/// Maximum number of entities whose durations are compared for the last hours only. Other durations
/// are compared since the start of the broker.
const TIMES_ENTITY_COUNT_MAX: usize = 10_000;

/// Settings of the checks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChecksConfig {
    /// Directory for muted findings; without one, they are forgotten with the broker.
    pub directory: Option<PathBuf>,
    /// Maximum number of connections by the name of the transport.
    pub connection_count_max: Vec<(&'static str, u64)>,
    /// Whether clients on other machines are admitted without credentials as long as clients on
    /// this machine are.
    pub admits_anonymous_machines: bool,
}

impl ChecksConfig {
    /// Maximum memory of the checks: 320 bytes for each remembered entity, 260 for each with
    /// durations, two reports with 1.3 KiB for each finding, and the muted findings.
    pub const BYTES_MAX: u64 = 32 << 20;
}

/// The checks of a broker.
pub(crate) struct Checks {
    /// None if checks are off.
    config: Option<ChecksConfig>,
    mutes: Arc<Mutes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: HashMap<EntityId, Watched>,
    report: Option<Arc<Report>>,
}

/// Result of a check.
struct Report {
    checked_at: Timestamp,
    took: TimeSpan,
    /// The findings, the most urgent first.
    findings: Vec<Finding>,
    /// Number of findings that had no room.
    left_out: u64,
}

impl Checks {
    /// Creates the checks, and reads which findings are muted.
    pub(crate) fn new(config: Option<ChecksConfig>) -> Self {
        let mutes = Mutes::open(config.as_ref().and_then(|config| config.directory.clone()));
        Self { config, mutes, state: Mutex::default() }
    }

    /// Checks all entities each minute.
    pub(crate) async fn run(&self, shared: &Shared) {
        let Some(config) = &self.config else { return std::future::pending().await };
        loop {
            let report = self.report(shared, config).await;
            shared.clock.sleep_until(report.checked_at.plus(EVERY)).await;
        }
    }

    /// Returns the last report, which is less than a minute old. One caller checks, others wait for
    /// it.
    async fn report(&self, shared: &Shared, config: &ChecksConfig) -> Arc<Report> {
        let mut state = self.state.lock().await;
        let now = shared.clock.now();
        if let Some(report) = &state.report
            && now.since(report.checked_at) < EVERY
        {
            return Arc::clone(report);
        }
        self.mutes
            .retain(|path, id| shared.directory.get(path).is_some_and(|it| it.id == id))
            .await;
        let check = async {
            // Its own: a shared one would age the lists of others by up to a second.
            let survey = Survey::take(&shared.directory, now).await;
            state.check((shared, config), &survey, now).await.into_sorted()
        };
        let ((findings, left_out), took) = timed(check).await;
        let took = i64::try_from(took.as_nanos() / 100).unwrap_or(i64::MAX);
        let took = TimeSpan::from_ticks(took);
        let report = Report { checked_at: now, took, findings, left_out };
        Arc::clone(state.report.insert(Arc::new(report)))
    }

    fn config(&self) -> Result<&ChecksConfig, Rejection> {
        let off = || Rejection::invalid_operation("this broker makes no checks");
        self.config.as_ref().ok_or_else(off)
    }

    /// Answers a question. A reader that may not read all entities sees no findings about the
    /// broker, and nothing of other entities.
    pub(crate) async fn page(
        &self,
        shared: &Shared,
        query: &ChecksQuery,
        readable: &ReadableKeys,
    ) -> Result<ChecksPage, Rejection> {
        let report = self.report(shared, self.config()?).await;
        let part = query.path.as_deref().map(str::to_ascii_lowercase);
        let mut page = ChecksPage {
            findings: Vec::new(),
            total: 0,
            muted_count: 0,
            left_out_count: if readable.is_all() { report.left_out } else { 0 },
            checked_at: report.checked_at,
            took: report.took,
        };
        // Path and kind of the last selected finding.
        let mut last = None;
        for some in report.findings.chunks(READ_AT_ONCE) {
            for finding in some {
                let key = PathKey::fold(&finding.path);
                let kind = finding.kind_for(readable);
                let is_selected = query.kind.is_none_or(|wanted| wanted == kind)
                    && part.as_deref().is_none_or(|part| key.as_str().contains(part))
                    && (readable.is_all() || readable.contains(&key));
                if !is_selected {
                    continue;
                }
                let muted = self.mutes.get(&key, kind);
                if query.is_muted.is_some_and(|is_muted| is_muted != muted.is_some()) {
                    continue;
                }
                if last.replace((&finding.path, kind)) == Some((&finding.path, kind)) {
                    // Two destinations of an entity are shown as one finding.
                    let same = page.findings.last_mut();
                    if let Some(same) = same.filter(|it| it.path == finding.path && it.kind == kind)
                    {
                        same.join(finding.shown_to(readable));
                    }
                    continue;
                }
                page.total += 1;
                page.muted_count += u64::from(muted.is_some());
                if page.findings.len() < FINDING_COUNT_MAX {
                    page.findings.push(CheckFinding { muted, ..finding.shown_to(readable) });
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(page)
    }

    /// Mutes findings of a kind about an entity, or with an empty path about the broker. The change
    /// is durable when this returns.
    pub(crate) async fn mute(
        &self,
        shared: &Shared,
        path: &str,
        kind: CheckKind,
        reason: Box<str>,
    ) -> Result<(), Rejection> {
        self.config()?;
        muted::check_reason(&reason)?;
        let entity = match path {
            "" => None,
            _ => {
                let entry = shared.directory.get(&PathKey::fold(path));
                Some(entry.ok_or_else(|| Rejection::entity_not_found(path))?.id)
            }
        };
        let mute = Mute { reason, at: shared.clock.now() };
        self.mutes.set(path, kind, Some(KeptMute { entity, mute })).await
    }

    /// Ends the muting of findings. The change is durable when this returns.
    pub(crate) async fn unmute(&self, path: &str, kind: CheckKind) -> Result<(), Rejection> {
        self.config()?;
        self.mutes.set(path, kind, None).await
    }
}

impl State {
    async fn check(
        &mut self,
        (shared, config): (&Shared, &ChecksConfig),
        survey: &Survey,
        now: Timestamp,
    ) -> Findings {
        let before = self.report.clone();
        let known = before.iter().flat_map(|report| &report.findings);
        let known = known.map(|it| (it.key(), it.since)).collect();
        let findings = Findings::new(ENTITY_FINDING_COUNT_MAX);
        let mut examination = Examination { shared, config, survey, known: &known, now, findings };
        examination.run(&mut self.watched, before.is_none()).await;
        examination.findings
    }
}

/// Awaits work; returns its output and the time that it ran, without the time that it waited.
async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut work = pin!(work);
    let mut took = Duration::ZERO;
    let output = std::future::poll_fn(|context| {
        let began = Instant::now();
        let polled = work.as_mut().poll(context);
        took += began.elapsed();
        polled
    });
    (output.await, took)
}
