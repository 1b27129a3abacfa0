//! Moves messages from one entity to another, or to a forwarder: loads their contents, submits
//! them, and reports the result to the source (DESIGN D9). Repeats steps 2 to 4 of the data path.
//!
//! Contents are loaded when there is room for them among everything the broker has loaded for
//! itself, and hold that room until the list has ended. Ending a list needs no such room: a
//! destination that itself waits to move messages on still accepts others (decision 34).
//!
//! A list of a job may name no destination. Then each message goes to the entity in which it was
//! dead-lettered.
//!
//! The machine of the source froze the list, and the machine of the destination, or the forwarder,
//! judges each message. This file decides only if there is nobody to ask: a destination that is
//! missing, or the source itself, and the rest of a list after a failure. It ensures that both
//! machines get the result, even if something fails in between.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::Recipient;
use tokio::sync::oneshot;

use super::inlet::Inlet;
use super::messages::ListEnded;
use super::route::{CallFailure, CallPermit, RouteSlot};
use crate::activity::PendingWork;
use crate::admission::{LoadRoom, LoadedFor, Loads};
use crate::command::Command;
use crate::contract::{Forwarder, Outgoing, Source, Verdict};
use crate::description::Destination;
use crate::error::Rejection;
use crate::ids::{EntityId, Ticket};
use crate::message::Overlay;
use crate::path::{EntityAddress, EntityName, Node, PathKey, SubQueue};
use crate::request::{Reply, Request, release_all};
use crate::shared::Shared;
use crate::store::{Key, StoreError};
use crate::time::TimeSpan;
use crate::transfer::claim::TransferClaims;
use crate::transfer::contents::LoadError;
use crate::transfer::{
    Arrival, Departure, HOPS_EXCEEDED, HandOver, PinnedMessage, Resent, WhenFull, contents,
};

/// Courier of an entity.
pub(super) struct Courier {
    id: EntityId,
    shared: Arc<Shared>,
    claims: Arc<TransferClaims>,
    /// Routes to forwarders, by the sub-queue that messages leave.
    routes: RefCell<HashMap<SubQueue, Rc<RouteSlot>>>,
}

impl Courier {
    pub(super) fn new(id: EntityId, shared: Arc<Shared>, claims: Arc<TransferClaims>) -> Self {
        Self { id, shared, claims, routes: RefCell::default() }
    }

    /// Marks work for the entity outside its mailbox.
    pub(super) fn pending_work(&self) -> Option<PendingWork> {
        self.shared.activity.begin()
    }

    /// Room for contents that the broker loads for itself.
    pub(super) fn loads(&self) -> Loads {
        self.shared.loads.clone()
    }

    /// Carries a list to its destination, in a task of its own.
    pub(super) fn carry(&self, list: HandOver<PinnedMessage>, source: Recipient<ListEnded>) {
        let route = Rc::clone(self.routes.borrow_mut().entry(list.sub_queue).or_default());
        let errand = Errand {
            id: self.id,
            shared: Arc::clone(&self.shared),
            claims: Arc::clone(&self.claims),
            route,
        };
        let at_work = self.pending_work();
        actix_rt::spawn(async move {
            let number = list.list;
            let departures = errand.run(list).await;
            source.do_send(ListEnded { list: number, departures });
            drop(at_work);
        });
    }
}

/// Consecutive messages for one entity.
struct Group {
    named: GroupKey,
    path: Box<str>,
    keys: Vec<Key>,
    messages: Vec<Arrival>,
}

/// The key of the entity at a path, or the path if it names none.
type GroupKey = Result<PathKey, Box<str>>;

fn group_key(path: &str) -> GroupKey {
    match Destination::parse(path) {
        Ok(Destination::Entity(key)) => Ok(key),
        Ok(Destination::Foreign(_)) | Err(_) => Err(path.into()),
    }
}

/// One list in transit.
struct Errand {
    id: EntityId,
    shared: Arc<Shared>,
    claims: Arc<TransferClaims>,
    route: Rc<RouteSlot>,
}

impl Errand {
    /// Carries a list. Returns the results of its messages; empty if it was not tried. An error if
    /// only the store knows the results, and it cannot report them.
    async fn run(&self, list: HandOver<PinnedMessage>) -> Result<Vec<Departure>, StoreError> {
        // At a start, a destination may be opened after its source, so it must not count as
        // missing.
        let mut are_open = self.shared.are_open.subscribe();
        if are_open.wait_for(|open| *open).await.is_err() {
            return Ok(Vec::new());
        }
        if let Some(route) = &list.route {
            let to = route.to.clone();
            return self.resend(list, to).await;
        }
        match Destination::parse(&list.destination) {
            Ok(Destination::Foreign(scheme)) => self.forward(&scheme, list).await,
            Ok(Destination::Entity(_)) | Err(_) => self.hand_in(list).await,
        }
    }

    /// Loads the contents of a list when there is room; the returned room lives as long as they do.
    /// Returns none if a content cannot be read.
    async fn load(
        &self,
        list: &mut HandOver<PinnedMessage>,
        wanted: LoadedFor,
    ) -> Option<(Vec<Arrival>, LoadRoom)> {
        let room = self.room_for(list, wanted).await;
        match contents::load(list, &self.shared.edge, &*self.shared.store).await {
            Ok(arrivals) => Some((arrivals, room)),
            Err(error) => {
                self.note_unreadable(list, &error);
                None
            }
        }
    }

    /// Waits for room for the contents of a list.
    async fn room_for(&self, list: &mut HandOver<PinnedMessage>, wanted: LoadedFor) -> LoadRoom {
        let (loads, bytes) = (&self.shared.loads, contents::room_of(list));
        match loads.try_take(bytes, wanted) {
            Some(room) => room,
            None => {
                contents::release_contents(list, &*self.shared.store);
                loads.wait(bytes, wanted).await
            }
        }
    }

    /// Carries a list to an entity.
    async fn hand_in(
        &self,
        mut list: HandOver<PinnedMessage>,
    ) -> Result<Vec<Departure>, StoreError> {
        // Loads nothing for a missing destination.
        if let Err(departure) = self.find(&list.destination) {
            return Ok(vec![departure; list.messages.len()]);
        }
        let Some((arrivals, _room)) = self.load(&mut list, LoadedFor::Entity).await else {
            return Ok(Vec::new());
        };
        let keys = list.messages.iter().map(|message| message.origin.key).collect();
        self.transfer(&list.destination, list.when_full, keys, arrivals).await
    }

    /// Carries a list of a job to one destination, or each message to the entity in which it was
    /// dead-lettered. Messages with the same destination go as one list. A message that cannot be
    /// read is refused by itself.
    async fn resend(
        &self,
        mut list: HandOver<PinnedMessage>,
        to: Option<Arc<str>>,
    ) -> Result<Vec<Departure>, StoreError> {
        let mut departures = vec![Departure::NotTried; list.messages.len()];
        if let Some(Err(departure)) = to.as_deref().map(|to| self.find_for_job(to)) {
            departures.fill(departure);
            return Ok(departures);
        }
        let _room = self.room_for(&mut list, LoadedFor::Entity).await;
        let loaded = contents::load_each(&list, &self.shared.edge, &*self.shared.store).await;
        let resubmits = list.route.as_ref().is_some_and(|route| route.is_resubmit);
        let mut groups: BTreeMap<Arc<str>, (Vec<&mut Departure>, Vec<Arrival>)> = BTreeMap::new();
        let messages = departures.iter_mut().zip(&list.messages);
        for ((departure, pinned), arrival) in messages.zip(loaded) {
            match arrival {
                Ok(mut arrival) => {
                    let size = pinned.message.facts.size;
                    arrival.resent = Some(Resent { from: self.id, size, only: None });
                    let source = arrival.dead_letter_source.take_if(|_| resubmits);
                    let path = to.clone().or(source).unwrap_or_default();
                    let (places, messages) = groups.entry(path).or_default();
                    places.push(departure);
                    messages.push(arrival);
                }
                Err(LoadError::NotJson) => *departure = Departure::NotJson,
                Err(LoadError::Store(error)) => {
                    self.note_unreadable(&list, &error);
                    if !matches!(error, StoreError::Unavailable(_)) {
                        let description = error.to_string().into();
                        *departure =
                            Departure::Refused { reason: "Unreadable".into(), description };
                    }
                }
            }
        }
        for (path, (places, messages)) in groups {
            let ended = self.resend_group(&path, list.when_full, messages).await?;
            for (place, departure) in places.into_iter().zip(ended) {
                *place = departure;
            }
        }
        Ok(departures)
    }

    /// Submits messages of a job with the same destination.
    async fn resend_group(
        &self,
        path: &str,
        when_full: WhenFull,
        mut messages: Vec<Arrival>,
    ) -> Result<Vec<Departure>, StoreError> {
        let (inlet, only) = match self.find_for_job(path) {
            Ok(found) => found,
            Err(departure) => return Ok(vec![departure; messages.len()]),
        };
        for resent in messages.iter_mut().filter_map(|message| message.resent.as_mut()) {
            resent.only = only;
        }
        let keys = messages.iter().map(|message| message.origin.key).collect();
        self.submit(&inlet, when_full, keys, messages).await
    }

    /// Returns the inlet for messages that a job sends to a path, and the subscription if it names
    /// one: the topic numbers and stores the messages of its subscriptions.
    fn find_for_job(&self, path: &str) -> Result<(Arc<Inlet>, Option<EntityId>), Departure> {
        let absent = || Departure::NotAdmitted(Rejection::entity_not_found(path));
        let address = EntityAddress::parse(path).map_err(Departure::NotAdmitted)?;
        let EntityAddress { entity, sub_queue: SubQueue::Main, node: Node::Entity } = address
        else {
            return Err(absent());
        };
        let entry = self.shared.directory.get(&entity.key()).ok_or_else(absent)?;
        let EntityName::Subscription { topic, .. } = entity else {
            return Ok((entry.inlet, None));
        };
        let topic = EntityName::Root(topic).key();
        let topic = self.shared.directory.get(&topic).ok_or_else(absent)?;
        Ok((topic.inlet, Some(entry.id)))
    }

    fn note_unreadable(&self, list: &HandOver<PinnedMessage>, error: &StoreError) {
        let HandOver { source, destination, .. } = list;
        tracing::warn!(%source, %destination, %error, "cannot read messages to transfer");
    }

    /// Submits messages to an entity, and waits until their result is final.
    async fn transfer(
        &self,
        destination: &str,
        when_full: WhenFull,
        keys: Vec<Key>,
        messages: Vec<Arrival>,
    ) -> Result<Vec<Departure>, StoreError> {
        match self.find(destination) {
            Ok(inlet) => self.submit(&inlet, when_full, keys, messages).await,
            Err(departure) => Ok(vec![departure; keys.len()]),
        }
    }

    async fn submit(
        &self,
        inlet: &Inlet,
        when_full: WhenFull,
        keys: Vec<Key>,
        messages: Vec<Arrival>,
    ) -> Result<Vec<Departure>, StoreError> {
        let (ended, end) = oneshot::channel();
        let claim = self.claims.open(Box::new(move |how| {
            ended.send(how).ok();
        }));
        let reply = Reply::for_claim(claim);
        let ticket = Ticket(self.shared.tickets.fetch_add(1, Ordering::Relaxed));
        let command = Command::TransferIn { messages, when_full };
        let request = Request { ticket, sub_queue: SubQueue::Main, command, reply };
        if let Err((refused, reason)) = inlet.submit(vec![request], self.shared.clock.now()) {
            let mut releases = refused
                .into_iter()
                .filter_map(|request| request.reply.answer(Err(reason.clone())))
                .collect();
            release_all(&mut releases);
        }
        let end = end.await.unwrap_or(None);
        let store = &*self.shared.store;
        // The list stays frozen while the store is not available.
        let exist = self.shared.outlast(async || store.exists(&keys).await);
        contents::departures(&keys, end, exist).await
    }

    /// Returns the inlet of the entity at a path, or the result for messages to a missing one.
    fn find(&self, path: &str) -> Result<Arc<Inlet>, Departure> {
        let absent = || Departure::NotAdmitted(Rejection::entity_not_found(path));
        let Destination::Entity(key) = Destination::parse(path).map_err(Departure::NotAdmitted)?
        else {
            return Err(absent());
        };
        let entry = self.shared.directory.get(&key).ok_or_else(absent)?;
        if entry.id == self.id {
            // Each hop would lead here again, up to the limit (FWD-03).
            return Err(Departure::Refused {
                reason: HOPS_EXCEEDED.into(),
                description: format!("`{path}` forwards to itself; choose another destination")
                    .into(),
            });
        }
        Ok(entry.inlet)
    }

    /// Calls a forwarder for messages, and carries out its verdicts (FWD-31).
    async fn forward(
        &self,
        scheme: &str,
        mut list: HandOver<PinnedMessage>,
    ) -> Result<Vec<Departure>, StoreError> {
        let Some(forwarder) = self.shared.forwarders.get(scheme) else {
            // The description was set when the broker had this forwarder; it was restarted without
            // it.
            let why = format!("this broker has no forwarder for `{scheme}://`");
            return Ok(vec![failed(why)]);
        };
        let name = forwarder.name();
        // Room is taken only after a thread is available.
        let threads = || self.shared.forwarders.thread();
        let Some(leave) = self.route.permit(&list.destination, threads) else {
            tracing::warn!(forwarder = name, source = %list.source, "cannot start a thread for a \
                forwarder");
            return Ok(Vec::new());
        };
        let Some((arrivals, room)) = self.load(&mut list, LoadedFor::Forwarder).await else {
            return Ok(Vec::new());
        };
        // Another broker may have the messages (CLU-17).
        if self.shared.tenure.valid().await.is_err() {
            return Ok(Vec::new());
        }
        self.call_forwarder(forwarder, leave, &list, (arrivals, room)).await
    }

    /// Calls a forwarder within its time limit.
    async fn call_forwarder(
        &self,
        forwarder: &Arc<dyn Forwarder>,
        leave: CallPermit,
        list: &HandOver<PinnedMessage>,
        (arrivals, mut room): (Vec<Arrival>, LoadRoom),
    ) -> Result<Vec<Departure>, StoreError> {
        let source = Source {
            broker: self.shared.edge.broker_id(),
            entity: self.id,
            path: Arc::clone(&list.source),
            sub_queue: list.sub_queue,
        };
        let outgoing: Vec<Outgoing> = list
            .messages
            .iter()
            .zip(&arrivals)
            .map(|(message, arrival)| outgoing(message, arrival))
            .collect();
        let clock = &self.shared.clock;
        let time_max = self.shared.settings.limits.forwarder_time_max;
        let deadline = clock.now().plus(time_max);
        let name = forwarder.name();
        let threads = || self.shared.forwarders.thread();
        let (to, outgoing) = (&list.destination, Arc::new(outgoing));
        let call = self.route.call(forwarder, source, to, (leave, threads), outgoing);
        // After a suspension of the broker, the answer and the deadline may have come together.
        let called = tokio::select! {
            biased;
            called = call => called,
            () = clock.sleep_until(deadline) => {
                let why = format!("no answer within {} s", time_max.as_seconds_f64());
                tracing::warn!(forwarder = name, source = %list.source, why, "forwarder failed");
                return Ok(vec![failed(why)]);
            }
        };
        Ok(match called {
            Ok(verdicts) if verdicts.is_empty() => {
                vec![failed("the forwarder returned no verdict".to_owned())]
            }
            Ok(verdicts) => {
                // Carrying the verdicts out may take long; other forwarders must not wait for that.
                room.release_forwarder_part();
                self.carry_out(list, arrivals, verdicts).await?
            }
            Err(CallFailure::NoRoute(rejection)) => {
                let why = rejection.detail();
                tracing::warn!(forwarder = name, source = %list.source, why, "the forwarder has no \
                    route");
                vec![failed(why.to_owned()); list.messages.len()]
            }
            Err(CallFailure::Panicked) => {
                tracing::warn!(forwarder = name, source = %list.source, "forwarder panicked");
                vec![failed("the forwarder panicked".to_owned())]
            }
            Err(CallFailure::NoThread) => {
                tracing::warn!(forwarder = name, source = %list.source, "cannot start a thread for \
                    a forwarder");
                Vec::new()
            }
        })
    }

    /// Carries verdicts out in order. Consecutive messages for one entity go as one list.
    async fn carry_out(
        &self,
        list: &HandOver<PinnedMessage>,
        arrivals: Vec<Arrival>,
        verdicts: Vec<Verdict>,
    ) -> Result<Vec<Departure>, StoreError> {
        let mut departures = Vec::with_capacity(verdicts.len());
        let mut not_taking = Vec::new();
        let mut group: Option<Group> = None;
        for (arrival, verdict) in arrivals.into_iter().zip(verdicts) {
            if let Verdict::To(path) = verdict {
                let named = group_key(&path);
                match &mut group {
                    Some(group) if group.named == named => {
                        group.keys.push(arrival.origin.key);
                        group.messages.push(arrival);
                    }
                    _ => {
                        self.finish(&mut group, list.when_full, &mut not_taking, &mut departures)
                            .await?;
                        let keys = vec![arrival.origin.key];
                        group = Some(Group { named, path, keys, messages: vec![arrival] });
                    }
                }
                continue;
            }
            self.finish(&mut group, list.when_full, &mut not_taking, &mut departures).await?;
            departures.push(departure(verdict));
        }
        self.finish(&mut group, list.when_full, &mut not_taking, &mut departures).await?;
        Ok(departures)
    }

    async fn finish(
        &self,
        group: &mut Option<Group>,
        when_full: WhenFull,
        not_taking: &mut Vec<GroupKey>,
        departures: &mut Vec<Departure>,
    ) -> Result<(), StoreError> {
        let Some(Group { named, path, keys, messages }) = group.take() else { return Ok(()) };
        // Messages that this destination did not accept must first be given up, durably, or offered
        // again, before later ones go there (FWD-10).
        if not_taking.contains(&named) {
            departures.extend(keys.iter().map(|_| Departure::NotTried));
            return Ok(());
        }
        let ended = self.transfer(&path, when_full, keys, messages).await?;
        if ended.iter().any(|one| !matches!(one, Departure::Taken)) {
            not_taking.push(named);
        }
        departures.extend(ended);
        Ok(())
    }
}

fn failed(why: String) -> Departure {
    Departure::Failed { why: why.into(), retry_after: None }
}

fn outgoing(message: &PinnedMessage, arrival: &Arrival) -> Outgoing {
    // The source of an earlier dead-lettering, unless the message now leaves a dead-letter queue.
    let carried = Overlay::dead_letter_source_of(arrival.overlays.iter()).map(Arc::from);
    Outgoing {
        facts: message.message.facts,
        content: arrival.message.content.clone(),
        overlays: arrival.overlays.clone(),
        hops: arrival.hops,
        copies_spent: arrival.copies_spent,
        dead_letter_source: arrival.dead_letter_source.clone().or(carried),
        never_duplicate: arrival.message.envelope.is_never_duplicate(),
    }
}

/// Returns the result for the source of a verdict that needs no further work.
fn departure(verdict: Verdict) -> Departure {
    match verdict {
        Verdict::Delivered => Departure::Delivered,
        Verdict::Refused { reason, description } => Departure::Refused { reason, description },
        Verdict::Postponed { retry_after } => {
            Departure::Postponed { retry_after: retry_after.map(TimeSpan::from_std) }
        }
        Verdict::Failed { why, retry_after } => {
            Departure::Failed { why, retry_after: retry_after.map(TimeSpan::from_std) }
        }
        Verdict::To(_) => Departure::Unknown,
    }
}
