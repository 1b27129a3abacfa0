//! What the machines of one topic's tree know of each other: the topic hands copies over, its
//! subscriptions tell how they are used (TMP-10, RCV-22) and how copies are to be made for them.
//!
//! Nothing of it is stored. It is rebuilt with the machines, and a machine that gives something out gives
//! out all that the others need.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::StageNumber;
use super::slot::Slot;
use crate::change::{SubscriptionCopy, TopicChange};
use crate::description::{SubscriptionDescription, TopicDescription};
use crate::ids::{EntityId, SequenceNumber};
use crate::rule::SubscriptionSettings;
use crate::time::{TimeSpan, Timestamp};

/// The number of a machine among those of its tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MemberNumber(pub u32);

/// A topic and its subscriptions, as they see each other.
#[derive(Debug)]
pub struct Family {
    topic: Arc<TopicDescription>,
    subscriptions: BTreeMap<EntityId, Relative>,
    /// Subscriptions whose settings the topic has not seen yet.
    altered: Vec<EntityId>,
    /// Members that have to look, beside those of which a stage becomes durable.
    to_wake: Vec<MemberNumber>,
    /// The last use of any subscription, also of those that are gone.
    used_at: Timestamp,
    held_count: usize,
    receiver_count: usize,
    /// Receivers of the topic's own sub-queue.
    topic_receiver_count: usize,
    /// Bytes of the whole tree, without what is removed and not yet durably so.
    pub size_bytes: u64,
}

/// What the others know of a subscription.
#[derive(Debug, Default)]
struct Relative {
    /// Its place in the tree, once its machine is driven.
    number: Option<MemberNumber>,
    /// Copies it has not seen yet.
    arrivals: VecDeque<Arrival>,
    /// The last stage that it gets notice of for its arrivals.
    marked: StageNumber,
    /// Whether it is being removed, and takes no more copies in.
    is_leaving: bool,
    settings: Option<CopySettings>,
    use_of: Use,
    /// Bytes of copies that it has not told of yet.
    arrived_bytes: u64,
    /// When the topic noted a use of it: a new rule (TMP-11).
    touched_at: Timestamp,
}

/// How copies are made for a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopySettings {
    /// What the rules need to know.
    pub rules: SubscriptionSettings,
    /// Its own ceiling of the time to live (EXP-07).
    pub default_message_time_to_live: TimeSpan,
    /// Whether its messages go on to another entity (FWD-33).
    pub forwards: bool,
}

impl CopySettings {
    /// What a description says of it.
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

/// How a subscription is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Use {
    /// When it was last used.
    pub last_at: Timestamp,
    /// Whether something lasting keeps it in use (TMP-15).
    pub is_held: bool,
    /// How many receivers it has (RCV-22).
    pub receiver_count: usize,
    /// Bytes it holds.
    pub size_bytes: u64,
}

/// A copy on its way to a subscription: its records are in the stage, its machine has not seen it yet.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The stage that stores it.
    pub stage: StageNumber,
    /// Its number.
    pub sequence: SequenceNumber,
    /// Its slot.
    pub slot: Slot,
    /// The session it belongs to.
    pub session: Option<Arc<str>>,
}

impl Family {
    /// A topic without subscriptions.
    #[must_use]
    pub fn new(topic: Arc<TopicDescription>) -> Self {
        Self {
            topic,
            subscriptions: BTreeMap::new(),
            altered: Vec::new(),
            to_wake: Vec::new(),
            used_at: Timestamp::NONE,
            held_count: 0,
            receiver_count: 0,
            topic_receiver_count: 0,
            size_bytes: 0,
        }
    }

    /// The topic, as far as its subscriptions have to know it.
    #[must_use]
    pub const fn topic(&self) -> &Arc<TopicDescription> {
        &self.topic
    }

    /// The last use of any subscription (TMP-10).
    #[must_use]
    pub const fn used_at(&self) -> Timestamp {
        self.used_at
    }

    /// Whether a subscription is in use all the time (TMP-15).
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held_count > 0
    }

    /// Receivers of the topic and of all subscriptions (RCV-22).
    #[must_use]
    pub const fn receiver_count(&self) -> usize {
        self.receiver_count + self.topic_receiver_count
    }

    /// Receivers of all subscriptions.
    #[must_use]
    pub const fn subscription_receiver_count(&self) -> usize {
        self.receiver_count
    }

    /// The topic tells how many receivers its own sub-queue has.
    pub const fn note_topic_receivers(&mut self, count: usize) {
        self.topic_receiver_count = count;
    }

    /// Adds a subscription that the store has.
    pub fn enter(&mut self, id: EntityId) {
        self.subscriptions.entry(id).or_default();
    }

    /// A subscription tells how copies are to be made for it and how it is used.
    pub fn tell(&mut self, id: EntityId, settings: CopySettings, use_of: Use) {
        let Some(relative) = self.subscriptions.get_mut(&id) else { return };
        if relative.settings != Some(settings) {
            relative.settings = Some(settings);
            self.altered.push(id);
        }
        relative.arrived_bytes = 0;
        let before = std::mem::replace(&mut relative.use_of, use_of);
        self.held_count -= usize::from(before.is_held);
        self.held_count += usize::from(use_of.is_held);
        self.receiver_count -= before.receiver_count;
        self.receiver_count += use_of.receiver_count;
        self.used_at = self.used_at.max(use_of.last_at);
    }

    /// The settings that have changed since the last call.
    pub fn altered(&mut self) -> impl Iterator<Item = (EntityId, CopySettings)> {
        let altered = std::mem::take(&mut self.altered);
        altered.into_iter().filter_map(|id| Some((id, self.subscriptions.get(&id)?.settings?)))
    }

    /// What has come for a subscription since the last call, and when the topic noted a use of it.
    pub fn take_arrivals(&mut self, id: EntityId) -> (VecDeque<Arrival>, Timestamp) {
        match self.subscriptions.get_mut(&id) {
            Some(relative) => (std::mem::take(&mut relative.arrivals), relative.touched_at),
            None => (VecDeque::new(), Timestamp::NONE),
        }
    }

    /// The machine of a subscription is driven from now on. Gives the stages that it needs notice of,
    /// because they bring what has come already.
    pub fn join(&mut self, id: EntityId, number: MemberNumber) -> Vec<StageNumber> {
        let Some(relative) = self.subscriptions.get_mut(&id) else { return Vec::new() };
        relative.number = Some(number);
        let mut stages: Vec<StageNumber> =
            relative.arrivals.iter().map(|arrival| arrival.stage).collect();
        stages.dedup();
        relative.marked = stages.last().copied().unwrap_or_default();
        stages
    }

    /// The machine of a subscription is driven no more, because it is being removed: what comes for it
    /// is stored, and nobody has to see it.
    pub fn leave(&mut self, id: EntityId) {
        if let Some(relative) = self.subscriptions.get_mut(&id) {
            relative.is_leaving = true;
            relative.arrivals.clear();
        }
    }

    /// Takes note of what happened to the topic in this stage; names the members that it brings
    /// something by `mark`. Returns how many bytes are gone with a subscription.
    pub fn learn(
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
                let numbers = self.subscriptions.values().filter_map(|relative| relative.number);
                self.to_wake.extend(numbers);
            }
            TopicChange::SubscriptionCreated { id, at, .. } => {
                self.enter(id);
                self.used_at = self.used_at.max(at);
            }
            TopicChange::SubscriptionRemoved { id } => {
                if let Some(gone) = self.subscriptions.remove(&id) {
                    self.held_count -= usize::from(gone.use_of.is_held);
                    self.receiver_count -= gone.use_of.receiver_count;
                    return gone.use_of.size_bytes + gone.arrived_bytes;
                }
            }
            TopicChange::RuleSet { subscription, is_new, at, .. } => {
                if let Some(relative) = self.subscriptions.get_mut(&subscription)
                    && is_new
                {
                    relative.touched_at = at;
                    self.used_at = self.used_at.max(at);
                    self.to_wake.extend(relative.number);
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
        let Some(relative) = self.subscriptions.get_mut(&copy.subscription) else { return };
        relative.arrived_bytes += u64::from(copy.slot.size);
        if relative.is_leaving {
            return;
        }
        if let Some(number) = relative.number
            && relative.marked != stage
        {
            relative.marked = stage;
            mark(number);
        }
        let SubscriptionCopy { sequence, slot, session, .. } = copy;
        relative.arrivals.push_back(Arrival { stage, sequence, slot, session });
    }

    /// A member has to look.
    pub fn wake(&mut self, number: MemberNumber) {
        self.to_wake.push(number);
    }

    /// Members that have to look, since the last call.
    pub fn take_to_wake(&mut self) -> Vec<MemberNumber> {
        std::mem::take(&mut self.to_wake)
    }
}
