use std::sync::Arc;

use super::*;
use crate::change::codec::slot_key;
use crate::command::{ActedMessage, JobStep};
use crate::ids::JobId;
use crate::message::Message;

const OWN: EntityId = EntityId(3);
const KEY: [u8; 16] = [7; 16];
const NOW: Timestamp = Timestamp::from_unix_ms(1_000);
const RECEIVER: ReceiverId = ReceiverId(9);

fn number(number: u64) -> SequenceNumber {
    SequenceNumber(number)
}

fn translated(changes: &[Change], events: &[MessageEvent]) -> Vec<Noted> {
    let mut noted = Vec::new();
    let step = Step { entity: OWN, now: NOW, changes, events, id_key: &KEY };
    step.translate(&mut |_| 5, &mut noted);
    assert!(noted.iter().all(|it| it.entry.at == NOW.ticks()));
    noted
}

/// Entity, number and kind of each station.
fn kinds(noted: &[Noted]) -> Vec<(u64, u64, StationKind)> {
    noted.iter().map(|it| (it.entity.0, it.entry.sequence, it.entry.kind)).collect()
}

fn event(sequence: u64, change_count: usize, kind: EventKind) -> MessageEvent {
    MessageEvent { sequence: number(sequence), holder: Some(RECEIVER), change_count, kind }
}

fn ended(sequence: u64, change_count: usize, end: LockEnd) -> MessageEvent {
    event(sequence, change_count, EventKind::LockEnded { end })
}

fn slot(state: SlotState, hops: u8) -> Slot {
    Slot { state, hops, ..Slot::arriving(NOW, 1, 1) }
}

fn accepted(sequence: u64, state: SlotState) -> Change {
    Change::Accepted {
        sequence: number(sequence),
        slot: slot(state, 0),
        session: None,
        dead_letter_source: None,
        content: Message::new("a").with_message_id("id").encode(),
    }
}

fn removed(sequence: u64, reason: Removal) -> Change {
    Change::Removed { sequence: number(sequence), overlay_count: 0, reason }
}

fn origin(entity: u64, sequence: u64) -> Origin {
    Origin {
        shard: 0,
        key: slot_key(EntityId(entity), number(sequence)),
        overlays: Box::default(),
        contents: None,
    }
}

/// CON-29: accepted and scheduled messages have the hash of their id, and so has a duplicate.
#[test]
fn ids_are_noted_as_hashes() {
    let hash = hash_of_id("id", &KEY);
    let events = [event(0, 2, EventKind::Duplicate { id_hash: low_half(hash) })];
    let changes = [accepted(1, SlotState::Active), accepted(2, SlotState::Scheduled)];
    let noted = translated(&changes, &events);
    assert_eq!(
        kinds(&noted),
        [
            (3, 1, StationKind::Accepted),
            (3, 2, StationKind::Scheduled),
            (3, 0, StationKind::Duplicate),
        ]
    );
    assert!(noted.iter().all(|it| it.entry.link == low_half(hash)));
}

/// CON-29: the client that settled is the holder of the lock that ended for the change.
#[test]
fn settlements_name_their_client() {
    let abandoned = Change::Abandoned {
        sequence: number(2),
        delivery_count: 4,
        delayed_until: None,
        overlay: None,
    };
    let events = [ended(1, 0, LockEnd::Settled), ended(2, 1, LockEnd::Settled)];
    let noted = translated(&[removed(1, Removal::Completed), abandoned], &events);
    assert_eq!(kinds(&noted), [(3, 1, StationKind::Completed), (3, 2, StationKind::Abandoned)]);
    assert_eq!(noted.iter().map(|it| it.entry.actor).collect::<Vec<_>>(), [9, 9]);
    assert_eq!(noted.last().map(|it| it.entry.count), Some(4));
}

/// CON-29: a lock that ends without a change releases the message; one whose time was over, or that
/// an operator ended, precedes the change that it causes.
#[test]
fn ends_of_locks_precede_their_consequences() {
    let counted = |sequence| Change::DeliveryCounted {
        sequence: number(sequence),
        delivery_count: 1,
        delayed_until: None,
    };
    let dead = Change::DeadLettered {
        sequence: number(2),
        into: SubQueue::DeadLetter,
        delivery_count: 10,
        properties: None,
        verdict: None,
        cause: DeadLetterCause::DeliveryCount,
    };
    let events = [
        ended(1, 0, LockEnd::TimeOver),
        ended(2, 1, LockEnd::LinkEnded),
        ended(4, 2, LockEnd::Settled),
        ended(5, 2, LockEnd::TimeOver),
    ];
    let noted = translated(&[counted(1), dead], &events);
    assert_eq!(
        kinds(&noted),
        [
            (3, 1, StationKind::LockEnded),
            (3, 2, StationKind::LockEnded),
            (3, 2, StationKind::DeadLettered),
            (3, 4, StationKind::Released),
            (3, 5, StationKind::LockEnded),
        ]
    );
    let [first, second, third, ..] = &noted[..] else { panic!("{noted:?}") };
    assert_eq!((first.entry.count, first.entry.detail), (1, lock_end_code(LockEnd::TimeOver)));
    assert_eq!(second.entry.detail, lock_end_code(LockEnd::LinkEnded));
    assert_eq!((third.entry.count, third.entry.actor), (10, 0), "no client decided it");
}

/// CON-29: an event of another message is never taken for the cause of a change.
#[test]
fn events_of_other_messages_stay_separate() {
    let events = [
        ended(1, 0, LockEnd::Settled),
        ended(2, 0, LockEnd::Settled),
        event(3, 1, EventKind::Delivered { delivery_count: 2 }),
    ];
    let received = removed(3, Removal::Received);
    let noted = translated(&[removed(2, Removal::Completed), received], &events);
    assert_eq!(
        kinds(&noted),
        [
            (3, 1, StationKind::Released),
            (3, 2, StationKind::Completed),
            (3, 3, StationKind::Delivered),
            (3, 3, StationKind::Received),
        ]
    );
    assert_eq!(noted.get(2).map(|it| (it.entry.count, it.entry.actor)), Some((2, 9)));
}

/// CON-29: both entities of a hop note the other message, and so does the source of a duplicate.
#[test]
fn hops_are_noted_in_both_entities() {
    let arrived = Change::Arrived {
        sequence: number(7),
        slot: slot(SlotState::Active, 2),
        session: None,
        previous: PreviousLocation::Here(origin(8, 70)),
        added: Vec::new(),
    };
    let absorbed = Change::Absorbed { origin: origin(8, 71) };
    let noted = translated(&[arrived, absorbed], &[]);
    assert_eq!(
        kinds(&noted),
        [
            (8, 70, StationKind::ForwardedTo),
            (3, 7, StationKind::ForwardedFrom),
            (8, 71, StationKind::DroppedAt),
        ]
    );
    let others: Vec<_> = noted.iter().map(|it| it.entry.other(it.entity).unwrap()).collect();
    let own = |sequence| (OWN, number(sequence));
    assert_eq!(others, [own(7), (EntityId(8), number(70)), own(0)]);
    assert_eq!(noted.iter().map(|it| it.entry.detail).collect::<Vec<_>>(), [2, 2, 0]);
}

/// CON-29: a topic that schedules a message of another entity notes a hop. A message that it drops
/// in the same step is a duplicate.
#[test]
fn scheduled_arrival_is_a_hop() {
    let absorbed = |sequence| Change::Absorbed { origin: origin(8, sequence) };
    let noted = translated(&[accepted(4, SlotState::Scheduled), absorbed(70), absorbed(71)], &[]);
    assert_eq!(
        kinds(&noted),
        [
            (8, 70, StationKind::ForwardedTo),
            (3, 4, StationKind::ForwardedFrom),
            (3, 4, StationKind::Scheduled),
            (8, 71, StationKind::DroppedAt),
        ]
    );
    let other = noted.first().and_then(|it| it.entry.other(it.entity));
    assert_eq!(other, Some((OWN, number(4))));
}

/// CON-29: the end of a lock is not the cause of a change after another event.
#[test]
fn event_between_a_lock_and_a_change_separates_them() {
    let events =
        [ended(1, 0, LockEnd::Settled), event(1, 0, EventKind::Delivered { delivery_count: 1 })];
    let noted = translated(&[removed(1, Removal::Received)], &events);
    assert_eq!(
        kinds(&noted),
        [
            (3, 1, StationKind::Released),
            (3, 1, StationKind::Delivered),
            (3, 1, StationKind::Received),
        ]
    );
    assert_eq!(noted.last().map(|it| it.entry.actor), Some(0), "no lock ended for it");
}

/// CON-29: a publish notes each copy in the topic and in its subscription, with its rule; a refused
/// copy is dead-lettered.
#[test]
fn copies_are_noted_in_topic_and_subscription() {
    let copy = |subscription, rule, refused| SubscriptionCopy {
        subscription: EntityId(subscription),
        rule: Some(rule),
        sequence: number(subscription * 10),
        slot: slot(SlotState::Active, 1),
        session: None,
        overlays: [None, None],
        refused,
    };
    let content = PublishedContent::Scheduled(number(1));
    let copies = vec![copy(5, 0, None), copy(6, 4, Some(DeadLetterCause::Rule))];
    let sequence = number(2);
    let published = Change::OfTopic(TopicChange::Published { sequence, content, copies });
    let noted = translated(&[published], &[]);
    assert_eq!(
        kinds(&noted),
        [
            (3, 1, StationKind::MaterialisedTo),
            (3, 2, StationKind::MaterialisedFrom),
            (3, 2, StationKind::CopiedTo),
            (3, 2, StationKind::CopiedTo),
            (5, 50, StationKind::CopiedFrom),
            (6, 60, StationKind::CopiedFrom),
            (6, 60, StationKind::DeadLettered),
        ]
    );
    let rules: Vec<_> = noted.iter().map(|it| it.rule).collect();
    assert_eq!(rules, [None, None, Some(0), Some(4), Some(0), Some(4), None]);
    let other = noted.get(3).and_then(|it| it.entry.other(it.entity));
    assert_eq!(other, Some((EntityId(6), number(60))));
}

/// CON-29: the job precedes its deed, and names only messages on which it acted.
#[test]
fn jobs_precede_their_deeds() {
    let acted = |sequence, result| ActedMessage { sequence: number(sequence), result };
    let receipt = Receipt {
        step: JobStep { job: JobId(1), number: 1 },
        at: NOW,
        sub_queue: SubQueue::Main,
        deed_hash: 0,
        route: None,
        messages: vec![
            acted(1, ActResult::Done),
            acted(2, ActResult::Locked),
            acted(3, ActResult::Leaving),
        ],
    };
    let changes = [removed(1, Removal::Deleted), Change::Receipted(Box::new(receipt))];
    let noted = translated(&changes, &[]);
    assert_eq!(
        kinds(&noted),
        [(3, 1, StationKind::Job), (3, 3, StationKind::Job), (3, 1, StationKind::Deleted)]
    );
    assert_eq!(noted.first().map(|it| it.entry.actor), Some(5));
}

/// CON-30: no content is kept, only the hash of the id.
#[test]
fn stations_keep_no_content() {
    let Change::Accepted { content, .. } = accepted(1, SlotState::Active) else { panic!() };
    let previous = PreviousLocation::Peer(content);
    let session = Some(Arc::from("session"));
    let slot = slot(SlotState::Active, 3);
    let change =
        Change::Arrived { sequence: number(1), slot, session, previous, added: Vec::new() };
    let [noted] = translated(&[change], &[])[..] else { panic!() };
    let entry = Entry::new(number(1), NOW, StationKind::ForwardedIn).with_detail(3);
    assert_eq!(noted.entry, entry.with_link(low_half(hash_of_id("id", &KEY))));
}
