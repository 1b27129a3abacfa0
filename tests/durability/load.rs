//! The load: clients that send all kinds of requests to several queues at the same time. It keeps
//! only the state that it needs for plausible requests. The judge decides whether answers are
//! right.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Client, Draft, Held, Over, Received, Stage};
use crate::inspection::Snapshot;
use crate::ledger::{Description, Id, Ledger, Outcome, Part, Print, Sent, Standing, Verdict, now};
use crate::process::Broker;
use crate::random::Random;

/// Number of concurrent clients.
pub const CLIENTS: usize = 8;
/// One client of this many uses AMQP to send, receive and settle.
const OVER_AMQP: usize = 3;
/// Percentage of messages before whose settlement an AMQP client drops its connection.
const LOST_PERCENT: u64 = 8;
/// Messages that stay from the first round to the last, among others that come and go.
const ARCHIVE: u64 = 1_500;
/// Milliseconds until an instant that no test reaches.
const FAR_MS: u64 = 4 * 3_600_000;

/// Queues that exist in every round, with their MaxDeliveryCount.
const QUEUES: [(&str, u64); 9] = [
    ("archive", 10),
    ("orders", 2_147_483_647),
    ("tiny", 10),
    ("large", 1_000_000),
    ("once", 1_000_000),
    ("churn", 10),
    ("later", 1_000_000),
    ("strict", 3),
    ("retried", 1_000_000),
];

/// A queue whose messages only wait, so that a broker has much to open.
pub const PILE: &str = "pile";
/// Messages in a batch for it.
const PILE_BATCH: u64 = 100;

/// Subscriptions of a topic that exist in every round. The second is a catch-all (TOP-25) for
/// messages that the first does not select.
pub const PICKED: &str = "news/Subscriptions/picked";
pub const REST: &str = "news/Subscriptions/rest";
/// Filter of the first subscription: every fifth message, by the last digit of its id.
const PICKS: &str = "property LIKE '%1' OR property LIKE '%6'";

/// State that all clients share over all rounds.
pub struct Load {
    seed: u64,
    next_id: AtomicU64,
    /// Ids that were sent to the queue with duplicate detection before the restart and must be
    /// dropped when sent again, and ids sent since.
    again: Mutex<Vec<Id>>,
    next_again: Mutex<Vec<Id>>,
    /// Settlements of locks whose AMQP connection was dropped before (SET-21, SET-24).
    settled_elsewhere: AtomicU64,
}

/// Estimated contents of a queue, shared by the clients of a round.
#[derive(Default)]
struct Field {
    backlog: AtomicI64,
    dead: AtomicI64,
    deferred: Mutex<Vec<(Id, u64)>>,
    scheduled: Mutex<Vec<(Id, u64)>>,
}

type Fields = BTreeMap<String, Field>;

impl Load {
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            next_id: AtomicU64::new(1),
            again: Mutex::new(Vec::new()),
            next_again: Mutex::new(Vec::new()),
            settled_elsewhere: AtomicU64::new(0),
        }
    }

    /// Number of locks that were settled after their AMQP connection was dropped.
    pub fn settled_elsewhere(&self) -> u64 {
        self.settled_elsewhere.load(Ordering::Relaxed)
    }

    /// Creates the queues, and sends the messages that stay.
    pub fn prepare(&self, broker: &Broker, ledger: &Ledger) {
        let alive = Stage::default();
        let mut client = Client::new(broker.address.clone(), ledger, &alive, CLIENTS);
        let mut prepare = || -> Result<(), Over> {
            for (name, count_max) in QUEUES {
                let mut description = properties(count_max, "permanent");
                if name == "once" {
                    description.insert("requiresDuplicateDetection".to_owned(), json!(true));
                    description
                        .insert("duplicateDetectionHistoryTimeWindow".to_owned(), json!("PT4H"));
                }
                if name == "retried" {
                    let policy = json!({ "kind": "fixed", "delay": "PT2S", "delayMax": "PT2S",
                                         "jitter": 0.5 });
                    description.insert("retryPolicy".to_owned(), policy);
                }
                client.create(name, &description)?;
            }
            client.create_topic("news")?;
            let rule = json!([{ "name": "picks", "filter": { "type": "sql", "sql": PICKS } }]);
            client.create_subscription(PICKED, &properties(1_000_000, "picked"), rule)?;
            let mut rest = properties(1_000_000, "rest");
            rest.insert("catchAll".to_owned(), json!(true));
            client.create_subscription(REST, &rest, json!([]))?;
            for _ in 0..ARCHIVE / 100 {
                let drafts: Vec<Draft> = (0..100).map(|_| self.draft(1_024)).collect();
                client.send_batch("archive", &drafts)?;
            }
            Ok(())
        };
        // The ledger records a complaint if this fails.
        let _prepared = prepare();
    }

    /// Runs the clients for `time`, and until `fail` kills the broker. It calls its second argument
    /// just before. Returns the instant of the kill.
    pub fn run(
        &self,
        broker: Broker,
        ledger: &Ledger,
        snapshot: Option<&Snapshot>,
        random: &mut Random,
        time: Duration,
        fail: impl FnOnce(Broker, &dyn Fn()) -> Instant,
    ) -> Instant {
        let fields = fields(snapshot);
        self.again.lock().unwrap().append(&mut self.next_again.lock().unwrap());
        let stage = Stage::default();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let client = Client::new(broker.address.clone(), ledger, &stage, number);
                let client = match number.is_multiple_of(OVER_AMQP) {
                    true => client.over_amqp(broker.amqp.clone()),
                    false => client,
                };
                let (fields, random) = (&fields, random.fork());
                let fleeting = format!("fleeting-{number}");
                let exists = snapshot.is_some_and(|all| all.queues.contains_key(&fleeting));
                scope.spawn(move || {
                    let load = self;
                    let mut worker = Worker { load, client, fields, random, fleeting, exists };
                    while !worker.client.is_over() && worker.act().is_ok() {}
                });
            }
            std::thread::sleep(time);
            stage.has_fault.store(true, Ordering::SeqCst);
            fail(broker, &|| stage.is_over.store(true, Ordering::SeqCst))
        })
    }

    /// Sends a message that the broker must store, after the database was away.
    pub fn send_one(&self, broker: &Broker, ledger: &Ledger) {
        let alive = Stage::default();
        let mut client = Client::new(broker.address.clone(), ledger, &alive, CLIENTS);
        let outcome = client.send("archive", &self.draft(1_024));
        if !matches!(outcome, Ok(Outcome::Numbers(_))) {
            ledger.complain(format!("a send after a crash of the database: {outcome:?}"));
        }
    }

    /// Fills a queue with small messages that only wait. The judge does not track them.
    pub fn pile_up(&self, broker: &Broker, ledger: &Ledger, count: u64) {
        let alive = Stage::default();
        let mut client = Client::new(broker.address.clone(), ledger, &alive, CLIENTS);
        // The ledger records a complaint if this fails.
        let _filled = client.pile_up(PILE, count, PILE_BATCH);
    }

    /// Receives the first message of the archive, and releases it.
    pub fn receive_first(&self, broker: &Broker, ledger: &Ledger) {
        let alive = Stage::default();
        let mut client = Client::new(broker.address.clone(), ledger, &alive, CLIENTS);
        let mut receive = || -> Result<(), Over> {
            for held in client.receive("archive", Part::Main, false, (1, 0.0))? {
                client.settle("archive", Part::Main, &held, Verdict::Release, None, None)?;
            }
            Ok(())
        };
        // The ledger records a complaint if this fails.
        let _received = receive();
    }

    /// Receives and deletes everything, after sending all ids that duplicate detection must drop.
    pub fn drain(&self, broker: &Broker, ledger: &Ledger, snapshot: &Snapshot) {
        let alive = Stage::default();
        let mut client = Client::new(broker.address.clone(), ledger, &alive, CLIENTS);
        let mut drain = || -> Result<(), Over> {
            let mut again = std::mem::take(&mut *self.again.lock().unwrap());
            again.append(&mut self.next_again.lock().unwrap());
            for id in again {
                client.send("once", &self.draft_of(id, 300))?;
            }
            for (name, queue) in &snapshot.queues {
                let those = |standing: Standing| -> Vec<(Id, u64)> {
                    let seen = queue.main.iter().filter(|seen| seen.standing == standing);
                    seen.filter_map(|seen| Some((seen.id()?, seen.number))).collect()
                };
                for deferred in those(Standing::Deferred).chunks(4) {
                    client.receive_deferred(name, deferred, true)?;
                }
                let scheduled = those(Standing::Scheduled);
                for scheduled in scheduled {
                    // Refused if the message was enqueued meanwhile.
                    client.cancel(name, &[scheduled])?;
                }
                // The remaining scheduled messages are due within 2 s, and delayed ones are
                // available by then.
                let all = queue.main.iter().chain(&queue.dead);
                let is_delayed = all.into_iter().any(|seen| seen.delayed_until.is_some());
                let wait = if name == "later" || is_delayed { 3.0 } else { 1.0 };
                while !client.receive(name, Part::Main, true, (64, wait))?.is_empty() {}
                while !client.receive(name, Part::DeadLetter, true, (64, 0.0))?.is_empty() {}
            }
            Ok(())
        };
        // The ledger records a complaint if this fails.
        let _drained = drain();
    }

    fn draft(&self, bytes: u64) -> Draft {
        self.draft_of(self.next_id.fetch_add(1, Ordering::Relaxed), bytes)
    }

    /// Builds the message of this id, always the same. Most bodies are text, which is faster to
    /// read as JSON; some are not.
    fn draft_of(&self, id: Id, bytes: u64) -> Draft {
        let mut random = Random::new(self.seed ^ id.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let is_text = bytes > 10_000 || random.chance(70);
        let mut body = Vec::with_capacity(usize::try_from(bytes + 8).unwrap());
        while (body.len() as u64) < bytes {
            let bits = random.bits();
            let letters = (bits & 0x0F0F_0F0F_0F0F_0F0F).wrapping_add(0x6161_6161_6161_6161);
            body.extend_from_slice(&(if is_text { letters } else { bits }).to_le_bytes());
        }
        body.truncate(usize::try_from(bytes).unwrap());
        let property = format!("of {id}");
        let sent = Sent { id, print: Print::of(&body, &property), due: None };
        Draft { sent, body, property }
    }
}

fn fields(snapshot: Option<&Snapshot>) -> Fields {
    let mut fields: Fields = BTreeMap::new();
    for name in QUEUES.map(|(name, _)| name).into_iter().chain([PICKED, REST]) {
        fields.insert(name.to_owned(), Field::default());
    }
    for (name, queue) in snapshot.into_iter().flat_map(|snapshot| &snapshot.queues) {
        let field = fields.entry(name.clone()).or_default();
        field.dead = AtomicI64::new(i64::try_from(queue.dead.len()).unwrap());
        for seen in &queue.main {
            let Some(id) = seen.id() else { continue };
            match seen.standing {
                Standing::Active => *field.backlog.get_mut() += 1,
                Standing::Deferred => field.deferred.get_mut().unwrap().push((id, seen.number)),
                Standing::Scheduled => field.scheduled.get_mut().unwrap().push((id, seen.number)),
            }
        }
    }
    fields
}

/// MaxDeliveryCount of a queue that exists in every round.
fn count_max(queue: &str) -> u64 {
    let of = QUEUES.into_iter().find(|(name, _)| *name == queue);
    of.map_or(u64::MAX, |(_, count_max)| count_max)
}

fn properties(count_max: u64, metadata: &str) -> Description {
    let properties = json!({
        // No lock expires during a test.
        "lockDuration": "PT5M",
        "maxDeliveryCount": count_max,
        "userMetadata": metadata,
    });
    properties.as_object().unwrap().clone()
}

/// One client in one round.
struct Worker<'a> {
    load: &'a Load,
    client: Client<'a>,
    fields: &'a Fields,
    random: Random,
    /// A queue that only this worker uses.
    fleeting: String,
    exists: bool,
}

type Did = Result<(), Over>;

impl Worker<'_> {
    fn act(&mut self) -> Did {
        match self.random.below(100) {
            0..14 => self.orders("orders", 12),
            14..20 => self.orders("retried", 60),
            20..24 => self.news(),
            24..32 => self.orders("strict", 60),
            32..45 => self.tiny(),
            45..57 => self.large(),
            57..70 => self.once(),
            70..84 => self.churn(),
            84..93 => self.later(),
            _ => self.fleeting(),
        }
    }

    fn field(&self, queue: &str) -> &Field {
        &self.fields[queue]
    }

    /// Whether to send rather than receive, so that about `target` messages stay in the queue.
    fn is_short(&mut self, queue: &str, target: i64) -> bool {
        let backlog = self.field(queue).backlog.load(Ordering::Relaxed);
        self.random.chance(if backlog < target { 70 } else { 20 })
    }

    fn drafts(&mut self, count: (u64, u64), bytes: (u64, u64)) -> Vec<Draft> {
        let count = self.random.between(count.0, count.1);
        (0..count).map(|_| self.load.draft(self.random.between(bytes.0, bytes.1))).collect()
    }

    fn sent(&self, queue: &str, outcome: &Outcome, count: usize) {
        if matches!(outcome, Outcome::Done | Outcome::Numbers(_)) {
            self.field(queue).backlog.fetch_add(i64::try_from(count).unwrap(), Ordering::Relaxed);
        }
    }

    fn send_some(&mut self, queue: &str, count_max: u64, bytes: (u64, u64)) -> Did {
        let drafts = match self.random.below(3) {
            0 if count_max > 1 => self.drafts((2, count_max), bytes),
            _ => self.drafts((1, 1), bytes),
        };
        let outcome = match &*drafts {
            [draft] if self.random.chance(40) => {
                let bare = Draft {
                    sent: Sent { print: Print::of(&draft.body, ""), ..draft.sent.clone() },
                    body: draft.body.clone(),
                    property: String::new(),
                };
                self.client.send_raw(queue, &bare)?
            }
            [draft] => self.client.send(queue, draft)?,
            _ => self.client.send_batch(queue, &drafts)?,
        };
        self.sent(queue, &outcome, drafts.len());
        Ok(())
    }

    fn receive(&mut self, queue: &str, deletes: bool, count_max: u64) -> Result<Received, Over> {
        let count_max = self.random.between(1, count_max);
        let wait = if self.random.chance(10) { 0.02 } else { 0.0 };
        let received = self.client.receive(queue, Part::Main, deletes, (count_max, wait))?;
        let count = i64::try_from(received.len()).unwrap();
        self.field(queue).backlog.fetch_sub(count, Ordering::Relaxed);
        Ok(received)
    }

    /// All operations on messages.
    fn orders(&mut self, queue: &str, abandon_percent: u64) -> Did {
        let dead = self.field(queue).dead.load(Ordering::Relaxed);
        let deferred = self.field(queue).deferred.lock().unwrap().len();
        if self.random.chance(if dead > 30 { 30 } else { 5 }) {
            return self.dead_letters(queue);
        }
        if deferred > 0 && self.random.chance(if deferred > 20 { 40 } else { 10 }) {
            return self.deferred(queue);
        }
        if self.is_short(queue, 150) {
            return self.send_some(queue, 8, (100, 3_000));
        }
        for held in self.receive(queue, false, 8)? {
            self.settle(queue, &held, abandon_percent)?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Option<String> {
        self.random.chance(40).then(|| format!("mark {}", self.random.below(1_000_000)))
    }

    fn settle(&mut self, queue: &str, held: &Held, abandon_percent: u64) -> Did {
        let verdict = match self.random.below(100) {
            chance if chance < abandon_percent => Verdict::Abandon,
            chance => match chance % 20 {
                0..3 => Verdict::Defer,
                3..6 => Verdict::DeadLetter,
                6 => Verdict::Release,
                // The message stays locked until the broker is killed.
                7 => return Ok(()),
                _ => Verdict::Complete,
            },
        };
        let mark = if matches!(verdict, Verdict::Complete | Verdict::Release) {
            None
        } else {
            self.mark()
        };
        let reason = (verdict == Verdict::DeadLetter)
            .then(|| format!("reason {}", self.random.below(1_000_000)));
        if self.random.chance(LOST_PERCENT) {
            self.client.drop_links();
        }
        let outcome = self.client.settle(queue, Part::Main, held, verdict, mark, reason)?;
        if let (Outcome::Done, Some(id)) = (outcome, held.seen.id()) {
            if self.client.has_outlived_connection(held) {
                self.load.settled_elsewhere.fetch_add(1, Ordering::Relaxed);
            }
            let field = self.field(queue);
            let is_dead = match verdict {
                Verdict::DeadLetter => true,
                Verdict::Abandon | Verdict::Defer => held.seen.count >= count_max(queue),
                Verdict::Release | Verdict::Complete => false,
            };
            let is_deferred = verdict == Verdict::Defer
                || (verdict == Verdict::Abandon && held.seen.standing == Standing::Deferred);
            if is_dead {
                field.dead.fetch_add(1, Ordering::Relaxed);
            } else if is_deferred {
                field.deferred.lock().unwrap().push((id, held.seen.number));
            }
        }
        Ok(())
    }

    fn deferred(&mut self, queue: &str) -> Did {
        let count = usize::try_from(self.random.between(1, 3)).unwrap();
        let taken: Vec<(Id, u64)> = {
            let mut deferred = self.field(queue).deferred.lock().unwrap();
            let first = deferred.len().saturating_sub(count);
            deferred.drain(first..).collect()
        };
        if taken.is_empty() {
            return Ok(());
        }
        let deletes = self.random.chance(25);
        let received = self.client.receive_deferred(queue, &taken, deletes)?;
        for held in received.iter().filter(|_| !deletes) {
            self.settle(queue, held, 20)?;
        }
        Ok(())
    }

    fn dead_letters(&mut self, queue: &str) -> Did {
        let part = Part::DeadLetter;
        for held in self.client.receive(queue, part, false, (6, 0.0))? {
            let verdict = match self.random.below(10) {
                0 => return Ok(()),
                1..3 => Verdict::Abandon,
                _ => Verdict::Complete,
            };
            let mark = if verdict == Verdict::Abandon { self.mark() } else { None };
            self.client.settle(queue, part, &held, verdict, mark, None)?;
            if verdict == Verdict::Complete {
                self.field(queue).dead.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn tiny(&mut self) -> Did {
        if self.is_short("tiny", 400) {
            return self.send_some("tiny", 50, (0, 24));
        }
        let deletes = self.random.chance(30);
        let count_max = if deletes { 6 } else { 12 };
        let received = self.receive("tiny", deletes, count_max)?;
        self.complete_unless("tiny", deletes, &received)
    }

    fn complete_unless(&mut self, queue: &str, deleted: bool, received: &Received) -> Did {
        for held in received.iter().filter(|_| !deleted) {
            if self.random.chance(50) {
                self.client.complete_raw(queue, held)?;
            } else {
                let verdict = Verdict::Complete;
                self.client.settle(queue, Part::Main, held, verdict, None, None)?;
            }
        }
        Ok(())
    }

    /// Bodies below and above the 256 KiB from which they are stored in parts, up to 1 MiB.
    fn large(&mut self) -> Did {
        if self.is_short("large", 8) {
            let bytes = match self.random.below(5) {
                0 => (50_000, 200_000),
                1 => (261_700, 262_300),
                2 => (262_301, 400_000),
                3 => (400_000, 1_000_000),
                _ => (1_047_000, 1_048_000),
            };
            if bytes.1 <= 262_300 && self.random.chance(50) {
                let drafts = self.drafts((2, 3), bytes);
                let outcome = self.client.send_batch("large", &drafts)?;
                self.sent("large", &outcome, drafts.len());
                return Ok(());
            }
            return self.send_some("large", 1, bytes);
        }
        let deletes = self.random.chance(40);
        let received = self.client.receive_raw("large", deletes)?;
        self.field("large")
            .backlog
            .fetch_sub(i64::try_from(received.len()).unwrap(), Ordering::Relaxed);
        for held in received.iter().filter(|_| !deletes) {
            if self.random.chance(70) {
                self.client.complete_raw("large", held)?;
            } else {
                let (verdict, mark) = (Verdict::Abandon, self.mark());
                self.client.settle("large", Part::Main, held, verdict, mark, None)?;
                self.field("large").backlog.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Sends messages from before the restart again, and new messages, some of which are sent twice
    /// at the same time.
    fn once(&mut self) -> Did {
        let again = self.load.again.lock().unwrap().pop();
        if let Some(id) = again {
            self.client.send("once", &self.load.draft_of(id, 300))?;
            return Ok(());
        }
        if self.is_short("once", 60) {
            let draft = self.load.draft(300);
            let sent = self.client.send("once", &draft);
            // The next round sends the message again, whether it was acknowledged or not.
            self.load.next_again.lock().unwrap().push(draft.sent.id);
            self.sent("once", &sent?, 1);
            if self.random.chance(10) {
                self.client.send("once", &draft)?;
            }
            return Ok(());
        }
        let received = self.receive("once", false, 4)?;
        self.complete_unless("once", false, &received)
    }

    /// Messages leave soon after they arrive, so that whole segments are freed.
    fn churn(&mut self) -> Did {
        if self.is_short("churn", 24) {
            let drafts = self.drafts((4, 8), (4_000, 12_000));
            let outcome = self.client.send_batch("churn", &drafts)?;
            self.sent("churn", &outcome, drafts.len());
            return Ok(());
        }
        let deletes = self.random.chance(60);
        let received = self.receive("churn", deletes, 12)?;
        self.complete_unless("churn", deletes, &received)
    }

    fn later(&mut self) -> Did {
        let deferred = self.field("later").deferred.lock().unwrap().len();
        if deferred > 0 && self.random.chance(5) {
            return self.deferred("later");
        }
        if self.field("later").dead.load(Ordering::Relaxed) > 0 && self.random.chance(5) {
            return self.dead_letters("later");
        }
        let scheduled = self.field("later").scheduled.lock().unwrap().len();
        if scheduled > 0 && self.random.chance(if scheduled > 100 { 60 } else { 25 }) {
            let count = usize::try_from(self.random.between(1, 3)).unwrap();
            let taken: Vec<(Id, u64)> = {
                let mut scheduled = self.field("later").scheduled.lock().unwrap();
                let first = scheduled.len().saturating_sub(count);
                scheduled.drain(first..).collect()
            };
            if !taken.is_empty() {
                self.client.cancel("later", &taken)?;
            }
            return Ok(());
        }
        if self.is_short("later", 60) {
            let is_far = self.random.chance(50);
            let ahead = if is_far { FAR_MS } else { self.random.between(1, 1_500) };
            let due = Some(now() + ahead);
            let mut drafts = self.drafts((1, 4), (50, 500));
            drafts.iter_mut().for_each(|draft| draft.sent.due = due);
            let outcome = self.client.send_batch("later", &drafts)?;
            if let Outcome::Numbers(numbers) = outcome
                && (is_far || self.random.chance(30))
            {
                let ids = drafts.iter().map(|draft| draft.sent.id);
                self.field("later").scheduled.lock().unwrap().extend(ids.zip(numbers));
            }
            return Ok(());
        }
        if self.random.chance(30) {
            return self.send_some("later", 3, (10, 300));
        }
        let received = self.receive("later", false, 8)?;
        if self.random.chance(30) {
            for held in &received {
                self.settle("later", held, 50)?;
            }
            return Ok(());
        }
        self.complete_unless("later", false, &received)
    }

    /// Publishes to a topic whose catch-all gets the messages that the other subscription does not
    /// select.
    fn news(&mut self) -> Did {
        let name = if self.random.chance(50) { PICKED } else { REST };
        if self.is_short(name, 40) {
            let bytes = self.random.between(0, 400);
            let is_picked = |draft: &Draft| matches!(draft.sent.id % 10, 1 | 6);
            let draft = loop {
                let draft = self.load.draft(bytes);
                if is_picked(&draft) == (name == PICKED) {
                    break draft;
                }
            };
            let outcome = self.client.publish(name, &draft)?;
            self.sent(name, &outcome, 1);
            return Ok(());
        }
        let received = self.receive(name, false, 6)?;
        for held in &received {
            let abandons = self.random.chance(20);
            let verdict = if abandons { Verdict::Abandon } else { Verdict::Complete };
            let mark = if abandons { self.mark() } else { None };
            self.client.settle(name, Part::Main, held, verdict, mark, None)?;
            if abandons {
                self.field(name).backlog.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// A queue that is created and deleted with messages in it.
    fn fleeting(&mut self) -> Did {
        let queue = self.fleeting.clone();
        if !self.exists {
            let metadata = format!("made as {}", self.random.bits());
            let description = properties(self.random.between(5, 500), &metadata);
            let outcome = self.client.create(&queue, &description)?;
            self.exists = matches!(outcome, Outcome::Done);
            return Ok(());
        }
        match self.random.below(10) {
            0 => {
                self.client.delete(&queue)?;
                self.exists = false;
            }
            1..3 => {
                let metadata = format!("changed to {}", self.random.bits());
                self.client.update(&queue, &properties(self.random.between(5, 500), &metadata))?;
            }
            3..8 => {
                let drafts = self.drafts((2, 6), (0, 2_000));
                self.client.send_batch(&queue, &drafts)?;
            }
            _ => {
                let received = self.client.receive(&queue, Part::Main, false, (4, 0.0))?;
                self.complete_unless(&queue, false, &received)?;
            }
        }
        Ok(())
    }
}
