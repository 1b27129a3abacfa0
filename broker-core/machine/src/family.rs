//! Data that the machines of a topic's tree share. The topic adds copies to the arrivals of its
//! subscriptions. The subscriptions report their use (TMP-10, RCV-22) and the settings for their
//! copies.
//!
//! The data is not stored. It is rebuilt with the machines, and each machine reports everything
//! that the others need.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::StageNumber;
use super::slot::Slot;
use crate::change::{SubscriptionCopy, TopicChange};
use crate::description::{SubscriptionDescription, TopicDescription};
use crate::ids::{EntityId, SequenceNumber};
use crate::rule::SubscriptionSettings;
use crate::time::{TimeSpan, Timestamp};

/// Number of a machine in its tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberNumber(pub u32);

/// Shared data of a topic and its subscriptions.
#[derive(Debug)]
pub struct Family {
    topic: Arc<TopicDescription>,
    subscriptions: BTreeMap<EntityId, SubscriptionEntry>,
    /// Subscriptions with settings that the topic has not read yet.
    altered: Vec<EntityId>,
    /// Members to wake, in addition to the members that a durable stage notifies.
    to_wake: Vec<MemberNumber>,
    /// Last use of any subscription, removed ones included.
    used_at: Timestamp,
    in_use_count: usize,
    receiver_count: usize,
    /// Number of receivers of the topic's own sub-queue.
    topic_receiver_count: usize,
    /// Bytes of the whole tree, without removals that are not durable yet.
    pub size_bytes: u64,
}

/// Data of a subscription for the other members.
#[derive(Debug, Default)]
struct SubscriptionEntry {
    /// Its number in the tree, once a driver runs its machine.
    number: Option<MemberNumber>,
    /// Copies that its machine has not taken in yet.
    arrivals: VecDeque<ArrivingCopy>,
    /// The last stage whose durability it is notified of for its arrivals.
    marked: StageNumber,
    /// Whether it is being removed and takes in no more copies.
    is_leaving: bool,
    settings: Option<CopySettings>,
    usage: SubscriptionUse,
    /// Bytes of copies since its last report of `size_bytes`.
    arrived_bytes: u64,
    /// Instant at which the topic last added a rule, which counts as use (TMP-11).
    touched_at: Timestamp,
}

/// Settings for the copies of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopySettings {
    /// Settings that the rules need.
    pub rules: SubscriptionSettings,
    /// Maximum time to live of its messages (EXP-07).
    pub default_message_time_to_live: TimeSpan,
    /// Whether its messages are forwarded to another entity (FWD-33).
    pub forwards: bool,
}

impl CopySettings {
    /// Returns the settings of a description.
    #[must_use]
    pub const fn of(description: &SubscriptionDescription) -> Self {
        let dead_lettering_on_filter_errors =
            description.enable_dead_lettering_on_filter_evaluation_exceptions;
        let SubscriptionDescription { requires_session, catch_all, .. } = *description;
        Self {
            rules: SubscriptionSettings {
                dead_lettering_on_filter_errors,
                requires_session,
                catch_all,
            },
            default_message_time_to_live: description.default_message_time_to_live,
            forwards: description.forward_to.is_some(),
        }
    }
}

/// Use of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubscriptionUse {
    /// Instant of the last use.
    pub last_at: Timestamp,
    /// Whether a permanent reason keeps it in use (TMP-15).
    pub is_in_use: bool,
    /// Number of receivers (RCV-22).
    pub receiver_count: usize,
    /// Bytes of its messages.
    pub size_bytes: u64,
}

/// A copy for a subscription. Its records are in the stage, but the subscription's machine has not
/// taken it in yet.
#[derive(Clone, Debug)]
pub struct ArrivingCopy {
    /// The stage with its records.
    pub stage: StageNumber,
    /// Its sequence number.
    pub sequence: SequenceNumber,
    /// Its slot.
    pub slot: Slot,
    /// Its session.
    pub session: Option<Arc<str>>,
}

impl Family {
    /// Returns the family of a topic without subscriptions.
    #[must_use]
    pub fn new(topic: Arc<TopicDescription>) -> Self {
        Self {
            topic,
            subscriptions: BTreeMap::new(),
            altered: Vec::new(),
            to_wake: Vec::new(),
            used_at: Timestamp::NONE,
            in_use_count: 0,
            receiver_count: 0,
            topic_receiver_count: 0,
            size_bytes: 0,
        }
    }

    /// The description of the topic.
    #[must_use]
    pub const fn topic(&self) -> &Arc<TopicDescription> {
        &self.topic
    }

    /// Instant of the last use of any subscription (TMP-10).
    #[must_use]
    pub const fn used_at(&self) -> Timestamp {
        self.used_at
    }

    /// Whether a subscription is permanently in use (TMP-15).
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        self.in_use_count > 0
    }

    /// Number of receivers of the topic and all subscriptions (RCV-22).
    #[must_use]
    pub const fn receiver_count(&self) -> usize {
        self.receiver_count + self.topic_receiver_count
    }

    /// Number of receivers of all subscriptions.
    #[must_use]
    pub const fn subscription_receiver_count(&self) -> usize {
        self.receiver_count
    }

    /// Sets the number of receivers of the topic's own sub-queue.
    pub const fn note_topic_receivers(&mut self, count: usize) {
        self.topic_receiver_count = count;
    }

    /// Adds a subscription that the store has.
    pub fn add_subscription(&mut self, id: EntityId) {
        self.subscriptions.entry(id).or_default();
    }

    /// Records the settings and the use of a subscription, as it reports them.
    pub fn report_use(&mut self, id: EntityId, settings: CopySettings, usage: SubscriptionUse) {
        let Some(entry) = self.subscriptions.get_mut(&id) else { return };
        if entry.settings != Some(settings) {
            entry.settings = Some(settings);
            self.altered.push(id);
        }
        entry.arrived_bytes = 0;
        let before = std::mem::replace(&mut entry.usage, usage);
        self.in_use_count -= usize::from(before.is_in_use);
        self.in_use_count += usize::from(usage.is_in_use);
        self.receiver_count -= before.receiver_count;
        self.receiver_count += usage.receiver_count;
        self.used_at = self.used_at.max(usage.last_at);
    }

    /// Takes the settings that have changed since the last call.
    pub fn altered(&mut self) -> impl Iterator<Item = (EntityId, CopySettings)> {
        let altered = std::mem::take(&mut self.altered);
        altered.into_iter().filter_map(|id| Some((id, self.subscriptions.get(&id)?.settings?)))
    }

    /// Takes the copies for a subscription since the last call, with the instant of the last new
    /// rule.
    pub fn take_arrivals(&mut self, id: EntityId) -> (VecDeque<ArrivingCopy>, Timestamp) {
        match self.subscriptions.get_mut(&id) {
            Some(entry) => (std::mem::take(&mut entry.arrivals), entry.touched_at),
            None => (VecDeque::new(), Timestamp::NONE),
        }
    }

    /// Records that a driver runs the machine of a subscription from now on. Returns the stages
    /// whose durability it must be notified of, because they contain copies that it has not taken
    /// in.
    pub fn join(&mut self, id: EntityId, number: MemberNumber) -> Vec<StageNumber> {
        let Some(entry) = self.subscriptions.get_mut(&id) else { return Vec::new() };
        entry.number = Some(number);
        let mut stages: Vec<StageNumber> =
            entry.arrivals.iter().map(|arrival| arrival.stage).collect();
        stages.dedup();
        entry.marked = stages.last().copied().unwrap_or_default();
        stages
    }

    /// Records that a subscription is being removed and its machine no longer runs. Further copies
    /// are stored, but not added to its arrivals.
    pub fn begin_removal(&mut self, id: EntityId) {
        if let Some(entry) = self.subscriptions.get_mut(&id) {
            entry.is_leaving = true;
            entry.arrivals.clear();
        }
    }

    /// Applies a change of the topic in this stage, and calls `mark` for each member that gets a
    /// copy. Returns the bytes that a removed subscription held.
    pub fn apply_change(
        &mut self,
        change: TopicChange,
        stage: StageNumber,
        mut mark: impl FnMut(MemberNumber),
    ) -> u64 {
        match change {
            TopicChange::Published { copies, .. } => {
                for copy in copies {
                    self.put_in_box(copy, stage, &mut mark);
                }
            }
            TopicChange::Described { description, .. } => {
                self.topic = Arc::new(*description);
                let numbers = self.subscriptions.values().filter_map(|entry| entry.number);
                self.to_wake.extend(numbers);
            }
            TopicChange::SubscriptionCreated { id, at, .. } => {
                self.add_subscription(id);
                self.used_at = self.used_at.max(at);
            }
            TopicChange::SubscriptionRemoved { id } => {
                if let Some(gone) = self.subscriptions.remove(&id) {
                    self.in_use_count -= usize::from(gone.usage.is_in_use);
                    self.receiver_count -= gone.usage.receiver_count;
                    return gone.usage.size_bytes + gone.arrived_bytes;
                }
            }
            TopicChange::RuleSet { subscription, is_new, at, .. } => {
                if let Some(entry) = self.subscriptions.get_mut(&subscription)
                    && is_new
                {
                    entry.touched_at = at;
                    self.used_at = self.used_at.max(at);
                    self.to_wake.extend(entry.number);
                }
            }
            TopicChange::RuleRemoved { .. } => {}
        }
        0
    }

    fn put_in_box(
        &mut self,
        copy: SubscriptionCopy,
        stage: StageNumber,
        mark: &mut impl FnMut(MemberNumber),
    ) {
        let Some(entry) = self.subscriptions.get_mut(&copy.subscription) else { return };
        entry.arrived_bytes += u64::from(copy.slot.size);
        if entry.is_leaving {
            return;
        }
        if let Some(number) = entry.number
            && entry.marked != stage
        {
            entry.marked = stage;
            mark(number);
        }
        let SubscriptionCopy { sequence, slot, session, .. } = copy;
        entry.arrivals.push_back(ArrivingCopy { stage, sequence, slot, session });
    }

    /// Requests a turn of a member.
    pub fn wake(&mut self, number: MemberNumber) {
        self.to_wake.push(number);
    }

    /// Takes the members that requested a turn since the last call.
    pub fn take_to_wake(&mut self) -> Vec<MemberNumber> {
        std::mem::take(&mut self.to_wake)
    }
}
