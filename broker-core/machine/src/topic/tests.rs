//! What the machine of a topic makes of a publish, by itself.

use super::*;
use crate::Left;
use crate::change::{SubscriptionCopy, TopicChange};
use crate::command::{InboundMessage, RuleCommand, TopicCommand};
use crate::condition::Condition;
use crate::description::SubscriptionDescription;
use crate::limits::{Limits, Tier};
use crate::message::{Message, Overlay, PropertyLimits};
use crate::rule::{CorrelationFilter, Filter, RuleDescription, Verdict};
use crate::store::{ContentOp, Record, Reserved};
use crate::transfer::{Admission, Arrival, Origin, WhenFull};

const KEY: [u8; 16] = [7; 16];

struct Stand {
    topic: Topic,
    limits: Limits,
    now: Timestamp,
    stored_bytes: u64,
    left: Left,
}

impl Stand {
    /// A topic with so many subscriptions that get everything.
    fn new(subscriptions: u64) -> Self {
        let limits = Limits::of(Tier::Premium);
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: crate::queue::ForwardingConfig::default(),
        };
        let description = TopicDescription {
            max_size_in_megabytes: 1,
            ..TopicDescription::new("events", &limits)
        };
        let topic = Topic::new(EntityId(1), description, config, now);
        let mut stand = Self { topic, limits, now, stored_bytes: 0, left: Left::ALL };
        for number in 0..subscriptions {
            let id = EntityId(number + 2);
            let name = number.to_string();
            let description = SubscriptionDescription::new("events", name, &stand.limits);
            let description = Box::new(description);
            let command = Command::OfTopic(TopicCommand::CreateSubscription {
                id,
                description,
                rules: vec![],
            });
            stand.apply(command).unwrap();
        }
        stand
    }

    fn apply(&mut self, command: Command) -> Result<(Answer, Step), Rejection> {
        let mut step = Step::default();
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            left: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        let result = self.topic.apply(Ticket(1), SubQueue::Main, command, &mut ctx, &mut step);
        self.topic.check_invariants().unwrap();
        assert!(result.is_ok() || step.changes.is_empty(), "a rejection has changed something");
        result.map(|answer| (answer, step))
    }

    /// One slice of what is judged of a command before it is applied; whether it can be applied now.
    fn go_ahead(&mut self, command: &Command) -> bool {
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            left: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        self.topic.go_ahead(Ahead::Command { ticket: Ticket(1), command }, &mut ctx)
    }

    fn send(&mut self, bytes: usize) -> Result<(Answer, Step), Rejection> {
        let content = Message::new(vec![0; bytes]).encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        self.apply(Command::Send { message: InboundMessage { content, envelope } })
    }
}

/// SQL-41, QUO-09: a publish that one correlation filter takes long for goes on in slices. They are counted by the
/// steps that they come to, four for each property of the message and each that the filter looks up.
#[test]
fn one_correlation_filter_is_judged_in_slices() {
    let mut stand = Stand::new(1);
    let mut filter = CorrelationFilter::default();
    let mut message = Message::new("x");
    for number in 0..7_000 {
        if number < stand.limits.rule_property_count_max {
            filter = filter.and_property(format!("p{number}"), 1);
        }
        message = message.with_application_property(format!("p{number}"), 1);
    }
    let rule = RuleDescription::new("r", Filter::Correlation(filter), stand.now);
    let command = RuleCommand::Create(Box::new(rule));
    let subscription = EntityId(2);
    stand.apply(Command::OfTopic(TopicCommand::InSubscription { subscription, command })).unwrap();
    let content = message.encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    let command = Command::Send { message: InboundMessage { content, envelope } };
    let mut slices = 1;
    while !stand.go_ahead(&command) {
        slices += 1;
    }
    // Looked up, and compared: 2 x 256 x 4 x 7,000 steps in slices of 2^20.
    assert!((13..=18).contains(&slices), "{slices} slices");
    let (_, step) = stand.apply(command).unwrap();
    assert_eq!(copies(&step).len(), 1);
}

/// TOP-17, QUO-09: the rules of a new subscription are judged in slices, if there are many, and it is created with
/// all of them, or not at all if one is wrong.
#[test]
fn many_rules_of_a_new_subscription_are_judged_in_slices() {
    let mut stand = Stand::new(0);
    let create = |id: u64, wrong: Option<usize>| {
        let rule = |number: usize| {
            let text = if wrong == Some(number) { "a = " } else { "a = 1" };
            let at = Timestamp::from_unix_ms(5);
            RuleDescription::new(format!("r{number}"), Filter::sql(text), at)
        };
        let description =
            SubscriptionDescription::new("events", id.to_string(), &Limits::of(Tier::Premium));
        Command::OfTopic(TopicCommand::CreateSubscription {
            id: EntityId(id),
            description: Box::new(description),
            rules: (0..1_100).map(rule).collect(),
        })
    };
    for (id, wrong, slices_due) in [(2, None, 18), (3, Some(0), 1), (4, Some(700), 11)] {
        let command = create(id, wrong);
        let mut slices = 1;
        while !stand.go_ahead(&command) {
            slices += 1;
        }
        assert_eq!(slices, slices_due, "{wrong:?}");
        match (stand.apply(command), wrong) {
            (Ok((_, step)), None) => {
                let [Change::OfTopic(TopicChange::SubscriptionCreated { rules, .. })] =
                    step.changes.as_slice()
                else {
                    panic!("{:?}", step.changes)
                };
                let at_once = rules.iter().all(|rule| rule.description().created_at == stand.now);
                assert!(rules.len() == 1_100 && at_once);
            }
            (Err(refused), Some(_)) => assert_eq!(refused.condition(), Condition::ArgumentError),
            (other, _) => panic!("{wrong:?}: {:?}", other.map(|_| ())),
        }
    }
    assert_eq!(stand.topic.kept().rules, 1_100);
    // However many are asked for, one list is not all there are.
    let command = RuleCommand::List { skip: 50, top: usize::MAX };
    let list = TopicCommand::InSubscription { subscription: EntityId(2), command };
    match stand.apply(Command::OfTopic(list)).unwrap().0 {
        Answer::Now(Outcome::Rules(rules), _) => assert_eq!(rules.len(), 1_000),
        other => panic!("{other:?}"),
    }
}

/// ENT-30, DESIGN D6: rules that are read at once have so many bytes together, however many are asked for; one that has more
/// is read alone.
#[test]
fn a_list_of_rules_ends_with_its_bytes() {
    let mut stand = Stand::new(1);
    stand.limits.rule_bytes_max = 2 << 20;
    let subscription = EntityId(2);
    let mut ask = |command| {
        let command = TopicCommand::InSubscription { subscription, command };
        match stand.apply(Command::OfTopic(command)).unwrap().0 {
            Answer::Now(answer, _) => answer,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..12 {
        // Each of 180 KB, and the last of 1.2 MB.
        let count = if number == 11 { 40 } else { 6 };
        let filter = (0..count).fold(CorrelationFilter::default(), |filter, place| {
            filter.and_property(format!("p{place}"), "v".repeat(30_000))
        });
        let filter = Filter::Correlation(filter);
        let rule = RuleDescription::new(format!("r{number:02}"), filter, Timestamp::NONE);
        ask(RuleCommand::Create(Box::new(rule)));
    }
    let mut pages = Vec::new();
    let mut skip = 0;
    loop {
        let Outcome::Rules(rules) = ask(RuleCommand::List { skip, top: usize::MAX }) else {
            panic!("a list of rules")
        };
        pages.push(rules.len());
        skip += rules.len();
        if rules.is_empty() {
            break;
        }
        let bytes: u64 = rules.iter().map(RuleDescription::bytes).sum();
        assert!(bytes <= RuleCommand::LISTED_BYTES_MAX || rules.len() == 1, "{bytes}");
    }
    // `$Default` is before them.
    assert_eq!(pages, [6, 5, 1, 1, 0]);
}

fn copies(step: &Step) -> &[SubscriptionCopy] {
    match step.changes.as_slice() {
        [Change::OfTopic(TopicChange::Published { copies, .. })] => copies,
        other => panic!("a publish is one change, not {other:?} (TOP-07)"),
    }
}

/// TOP-07, TOP-10, DESIGN D8: one change, whose records hold the content once and whose account counts it
/// for each copy.
#[test]
fn a_publish_is_one_change_with_its_content_once() {
    let mut stand = Stand::new(3);
    let (_, step) = stand.send(1_000).unwrap();
    let size: u64 = copies(&step).iter().map(|copy| u64::from(copy.slot.size)).sum();
    assert_eq!((copies(&step).len(), step.bytes_added), (3, size));
    assert!(size >= 3_000);
    let mut batch = Batch::default();
    stand.topic.records(&step.changes[0], &mut batch);
    let contents: Vec<bool> = batch
        .records()
        .map(|record| match record {
            Record::Put { content: ContentOp::New(_), .. } => true,
            Record::Put { content: ContentOp::Of(_), .. } => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(contents, [true, false, false]);
    assert!(batch.bytes() < 1_000 + 3 * 100);
}

/// TOP-10, QUO-03, QUO-07: what would be too much for the quota, or for one atomic step, is refused and has
/// changed nothing.
#[test]
fn a_publish_that_is_too_much_is_refused_whole() {
    let mut stand = Stand::new(3);
    let refused = stand.send(400_000).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    stand.limits.atomic_bytes_max = 2 * 128;
    let refused = stand.send(10).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    stand.limits.atomic_bytes_max = 3 * 128;
    let (answer, _) = stand.send(10).unwrap();
    assert!(matches!(answer, Answer::Now(Outcome::Accepted(SequenceNumber(1)), Gate::Commit)));
}

/// TOP-09, TOP-24: a rule applies to what comes after it.
#[test]
fn a_rule_applies_to_what_is_published_afterwards() {
    let mut stand = Stand::new(1);
    let (_, before) = stand.send(10).unwrap();
    let rule = RuleDescription::new("$Default", Filter::False, stand.now);
    let command = RuleCommand::Update(Box::new(rule));
    stand
        .apply(Command::OfTopic(TopicCommand::InSubscription {
            subscription: EntityId(2),
            command,
        }))
        .unwrap();
    let (_, after) = stand.send(10).unwrap();
    assert_eq!((copies(&before).len(), copies(&after).len()), (1, 0));
}

impl Stand {
    fn ctx_of<T>(&mut self, run: impl FnOnce(&mut Topic, &mut Ctx<'_>) -> T) -> T {
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(1),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            left: self.left,
            limits: &self.limits,
            tokens: &mut || 0,
        };
        run(&mut self.topic, &mut ctx)
    }

    /// How many slices it takes until a command can be applied.
    fn slices(&mut self, command: &Command) -> usize {
        let ahead = Ahead::Command { ticket: Ticket(1), command };
        (1..100_000)
            .find(|_| self.ctx_of(|topic, ctx| topic.judge_ahead(ahead, ctx)))
            .expect("it comes to an end")
    }

    /// So many rules on the first subscription, each of which looks at 32,000 characters for long.
    fn with_heavy_rules(count: usize) -> Self {
        Self::with_heavy_rules_that(count, "SET x = 1")
    }

    /// The same with an action for what those make that select the message.
    fn with_heavy_rules_that(count: usize, action: &str) -> Self {
        let mut stand = Self::new(1);
        stand.topic.description = Arc::new(TopicDescription {
            max_size_in_megabytes: 1_024,
            ..(*stand.topic.description).clone()
        });
        for number in 0..count {
            // They differ in what they ask for: half of them select the message.
            let end = if number % 2 == 0 { 'a' } else { 'b' };
            let text = format!("p LIKE '%{}_{end}%'", "a".repeat(950));
            let rule = RuleDescription::new(format!("r{number}"), Filter::sql(&*text), stand.now)
                .with_action(action);
            let command = RuleCommand::Create(Box::new(rule));
            stand
                .apply(Command::OfTopic(TopicCommand::InSubscription {
                    subscription: EntityId(2),
                    command,
                }))
                .unwrap();
        }
        stand
    }

    fn heavy(&self) -> InboundMessage {
        let mut message = Message::new("x");
        message.application_properties = vec![("p".to_owned(), "a".repeat(32_000).into())];
        let content = message.encode();
        let envelope = content.envelope(&PropertyLimits::default(), &KEY);
        InboundMessage { content, envelope }
    }
}

/// TOP-05, TOP-07: what takes long is judged in slices, and what comes of it is the one change that it is
/// when it is judged at once.
#[test]
fn a_heavy_publish_is_judged_in_slices_and_is_one_change() {
    let mut stand = Stand::with_heavy_rules(12);
    let send = Command::Send { message: stand.heavy() };
    let (_, at_once) = stand.apply(send.clone()).unwrap();
    let slices = stand.slices(&send);
    assert!(slices >= 6, "{slices} slices");
    let before = stand.topic.last_sequence;
    let (_, in_slices) = stand.apply(send).unwrap();
    assert_eq!(stand.topic.last_sequence, before.next());
    let of = |step: &Step| {
        let copies = copies(step).iter();
        copies.map(|copy| (copy.subscription, copy.overlays.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&at_once), of(&in_slices));
    // The rule that selects everything, and half of the others.
    assert_eq!(copies(&in_slices).len(), 7);
    assert!(stand.topic.ahead.is_none());
}

/// TOP-07, SND-29: also the messages of a batch, of which one waits and is judged later.
#[test]
fn a_heavy_batch_is_judged_in_slices_and_is_one_change() {
    let mut stand = Stand::with_heavy_rules(4);
    let mut messages = vec![stand.heavy(), stand.heavy(), stand.heavy()];
    messages[1].envelope.scheduled_enqueue_time = Some(Timestamp::NEVER);
    let batch = Command::SendBatch { messages };
    assert!(stand.slices(&batch) >= 4);
    let (_, step) = stand.apply(batch).unwrap();
    let count = step.changes.iter().filter(|change| matches!(change, Change::OfTopic(_))).count();
    assert_eq!((step.changes.len(), count), (3, 2));
}

impl Stand {
    /// Adds a catch-all that gets everything else.
    fn add_catch_all(&mut self, id: u64) {
        let description = Box::new(SubscriptionDescription {
            catch_all: true,
            ..SubscriptionDescription::new("events", id.to_string(), &self.limits)
        });
        let command =
            TopicCommand::CreateSubscription { id: EntityId(id), description, rules: vec![] };
        self.apply(Command::OfTopic(command)).unwrap();
    }

    fn explain(id: u64, message: InboundMessage) -> Command {
        let command = RuleCommand::Explain(Box::new(message));
        Command::OfTopic(TopicCommand::InSubscription { subscription: EntityId(id), command })
    }

    fn explained(&mut self, id: u64, message: InboundMessage) -> Vec<Verdict> {
        match self.apply(Self::explain(id, message)).unwrap().0 {
            Answer::Now(Outcome::Explained(explained), _) => {
                explained.into_iter().map(|one| one.verdict).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// TOP-29, TOP-07, TOP-10: what a catch-all gets is stored by the one change that the publish is, and counted.
#[test]
fn a_catch_all_gets_its_copy_by_the_same_change() {
    let mut stand = Stand::new(1);
    stand.add_catch_all(9);
    let of = |step: &Step| copies(step).iter().map(|copy| copy.subscription.0).collect::<Vec<_>>();
    let (_, selected) = stand.send(1_000).unwrap();
    assert_eq!(of(&selected), [2]);
    stand.topic.matcher.remove_rule(EntityId(2), "$default").unwrap();
    let (_, caught) = stand.send(1_000).unwrap();
    assert_eq!(of(&caught), [9]);
    assert_eq!(caught.bytes_added, u64::from(copies(&caught)[0].slot.size));
    assert_eq!(caught.bytes_added, selected.bytes_added);
}

/// TOP-25, TOP-30: where rules take long, a catch-all is asked, and explained, in slices, with the same result.
#[test]
fn a_catch_all_behind_heavy_rules_is_judged_in_slices() {
    let mut stand = Stand::with_heavy_rules(12);
    stand.add_catch_all(9);
    let message = stand.heavy();
    let explain = Stand::explain(9, message.clone());
    for selects in [true, false] {
        let expected = match selects {
            true => Verdict::NotAsked("0".to_owned()),
            false => Verdict::Matches,
        };
        stand.topic.ahead = None;
        assert_eq!(stand.explained(9, message.clone()), std::slice::from_ref(&expected), "at once");
        assert!(stand.slices(&explain) >= 6);
        assert_eq!(stand.explained(9, message.clone()), [expected], "in slices");
        let send = Command::Send { message: message.clone() };
        assert!(stand.slices(&send) >= 6);
        let (_, step) = stand.apply(send).unwrap();
        assert_eq!(copies(&step).iter().any(|copy| copy.subscription.0 == 9), !selects);
        // From now on no rule of the other subscription selects it.
        for number in 0..12 {
            let name = format!("r{number}");
            let text = format!("p LIKE '%{}_c%'", "a".repeat(950));
            let rule = RuleDescription::new(name, Filter::sql(&*text), stand.now);
            stand.topic.matcher.update_rule(EntityId(2), rule, &stand.limits).unwrap();
        }
        stand.topic.matcher.remove_rule(EntityId(2), "$default").ok();
    }
}

/// What takes little is not judged ahead.
#[test]
fn a_light_publish_is_judged_when_it_is_applied() {
    let mut stand = Stand::new(3);
    let content = Message::new("x").encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    let send = Command::Send { message: InboundMessage { content, envelope } };
    assert_eq!(stand.slices(&send), 1);
    assert!(stand.topic.ahead.is_none());
}

/// What would become too many copies, or take too many steps, is refused whole, with the name of
/// the limit.
#[test]
fn a_publish_beyond_its_bounds_is_refused_and_names_the_limit() {
    let mut stand = Stand::with_heavy_rules(4);
    let send = Command::Send { message: stand.heavy() };
    stand.limits.publish_copy_count_max = 2;
    let refused = stand.apply(send.clone()).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded);
    assert!(refused.detail().contains("publish_copy_count_max"), "{refused}");
    stand.limits.publish_copy_count_max = 3;
    stand.limits.publish_step_count_max = 2_000_000;
    stand.slices(&send);
    let refused = stand.apply(send.clone()).map(|_| ()).unwrap_err();
    assert!(refused.detail().contains("publish_step_count_max"), "{refused}");
    stand.limits.publish_step_count_max = u64::MAX;
    stand.slices(&send);
    stand.apply(send).unwrap();
}

/// ENT-16: whoever makes the description, it keeps what is fixed at creation.
#[test]
fn an_update_keeps_what_is_fixed_at_creation() {
    let mut stand = Stand::new(0);
    let kept = TopicDescription::clone(&stand.topic.description);
    let detects = TopicDescription { requires_duplicate_detection: true, ..kept.clone() };
    let partitioned = TopicDescription { enable_partitioning: true, ..kept };
    for description in [detects, partitioned].map(Box::new) {
        let update = TopicCommand::Update { description, read_at: None };
        let rejection = stand.apply(Command::OfTopic(update)).unwrap_err();
        assert_eq!(rejection.condition(), Condition::ArgumentError);
    }
}

/// What is set on each message of [`list`].
const SET_BYTES: usize = 10_000;

/// So many messages of another entity, with so much set on each.
fn list(count: u64) -> Command {
    let text = "x".repeat(SET_BYTES);
    let overlay = Overlay::encode(&[("set".to_owned(), text.into())]).unwrap();
    let content = Message::new("x").encode();
    let mut envelope = content.envelope(&PropertyLimits::default(), &KEY);
    envelope.size += overlay.size_bytes();
    let arrival = |number| Arrival {
        message: InboundMessage { content: content.clone(), envelope: envelope.clone() },
        overlays: vec![overlay.clone()],
        enqueued_sequence: SequenceNumber(number),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        origin: Origin {
            key: crate::change::codec::slot_key(EntityId(99), SequenceNumber(number)),
            overlays: Vec::new(),
        },
    };
    Command::TransferIn {
        messages: (1..=count).map(arrival).collect(),
        when_full: WhenFull::Refuse,
    }
}

impl Stand {
    /// What was said of each message of a list: `+` accepted, `-` refused, `.` not tried; and why one was refused.
    fn admitted(&mut self, list: Command) -> (String, String) {
        let Answer::Now(Outcome::Admitted(admissions), _) = self.apply(list).unwrap().0 else {
            panic!("a list is answered for each of its messages")
        };
        let mut why = String::new();
        let said = admissions.iter().map(|admission| match admission {
            Admission::Accepted => '+',
            Admission::NotAdmitted(rejection) => {
                assert_eq!(rejection.condition(), Condition::QuotaExceeded);
                rejection.detail().clone_into(&mut why);
                '-'
            }
            Admission::NotTried => '.',
        });
        (said.collect(), why)
    }
}

/// QUO-10: what was set on a message on its way is written for each of its copies, and counts so. Of a list as much is
/// taken as one step may store; the rest comes again. A message that is too much by itself is refused.
#[test]
fn of_a_list_as_much_is_taken_as_one_step_may_store() {
    let mut stand = Stand::new(3);
    let limits = stand.limits.clone();
    stand.limits.atomic_bytes_max = 7 * (SET_BYTES as u64 + 200);
    assert_eq!(stand.admitted(list(4)), ("++..".to_owned(), String::new()));
    stand.limits.atomic_bytes_max = 2 * SET_BYTES as u64;
    let (said, why) = stand.admitted(list(4));
    assert_eq!(said, "----");
    assert!(why.contains("`atomic_bytes_max`"), "{why}");
    stand.limits = limits.clone();
    stand.limits.publish_copy_count_max = 10;
    assert_eq!(stand.admitted(list(4)), ("+++.".to_owned(), String::new()));
    stand.limits = limits;
    assert_eq!(stand.admitted(list(4)), ("++++".to_owned(), String::new()));
}

/// QUO-10: a batch is not judged beyond what one step may store, and is refused with the name of the limit.
#[test]
fn a_batch_is_not_judged_beyond_what_one_step_may_store() {
    let mut stand = Stand::with_heavy_rules(4);
    let one = Command::Send { message: stand.heavy() };
    stand.slices(&one);
    let bytes = stand.topic.kept().judged_bytes;
    // Three copies.
    assert!(bytes >= 3 * 128, "{bytes}");
    stand.apply(one).unwrap();
    assert_eq!(stand.topic.kept().judged_bytes, 0);
    let batch = Command::SendBatch {
        messages: vec![stand.heavy(), stand.heavy(), stand.heavy(), stand.heavy()],
    };
    let limits = stand.limits.clone();
    let (mut atomic, mut copies) = (limits.clone(), limits.clone());
    atomic.atomic_bytes_max = bytes;
    copies.publish_copy_count_max = 5;
    for (limits, name) in [(atomic, "`atomic_bytes_max`"), (copies, "`publish_copy_count_max`")] {
        stand.limits = limits;
        stand.slices(&batch);
        assert_eq!(stand.topic.kept().judged_bytes, 2 * bytes, "{name}");
        let refused = stand.apply(batch.clone()).map(|_| ()).unwrap_err();
        assert_eq!(refused.condition(), Condition::QuotaExceeded);
        assert!(refused.detail().contains(name), "{refused}");
    }
    stand.limits = limits;
    stand.slices(&batch);
    stand.apply(batch).unwrap();
}

/// QUO-10: what is being judged when all topics have judged as much as they may is refused, for now, unless it is little.
#[test]
fn what_all_topics_have_judged_has_a_bound() {
    // Each message becomes two copies on which 32,000 bytes are set, and one as it is.
    let mut stand = Stand::with_heavy_rules_that(4, "SET x = p");
    let batch = Command::SendBatch { messages: vec![stand.heavy(), stand.heavy(), stand.heavy()] };
    stand.left.judged_bytes = 1;
    while stand.topic.kept().judged_bytes <= 64 << 10 {
        assert!(!stand.go_ahead(&batch), "there are three messages");
    }
    stand.left.judged_bytes = 0;
    assert!(stand.go_ahead(&batch));
    let refused = stand.apply(batch.clone()).map(|_| ()).unwrap_err();
    assert_eq!(refused.condition(), Condition::ServerBusy);
    assert!(refused.detail().contains("`broker_judged_bytes_max`"), "{refused}");
    assert_eq!(stand.topic.kept().judged_bytes, 0);
    let one = Command::Send { message: stand.heavy() };
    assert!(stand.slices(&one) > 1);
    stand.apply(one).unwrap();
    stand.left = Left::ALL;
    stand.slices(&batch);
    stand.apply(batch).unwrap();
}
