//! Opening: the machine is restored from the store and its actor started on its arbiter.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use actix::{Actor, Addr, AsyncContext, Handler, Message};

use super::{NamespaceActor, Retired, State};
use crate::actor::desk::Desk;
use crate::actor::entity::{EntityActor, Parts, Retire, RetireWhen, RoomAgain};
use crate::actor::inlet::Inlet;
use crate::broker::Shared;
use crate::change::codec;
use crate::description::QueueDescription;
use crate::entity::Machine;
use crate::entity::queue::Queue;
use crate::error::Rejection;
use crate::ids::EntityId;
use crate::path::PathKey;
use crate::shell::Shell;
use crate::shell::tree::Tree;
use crate::shell::writer::ShardWriter;
use crate::transfer::passage::Passages;

/// An entity was opened on its arbiter, or could not be.
#[derive(Message)]
#[rtype(result = "()")]
struct Opened {
    id: EntityId,
    result: Result<Addr<EntityActor>, String>,
}

impl NamespaceActor {
    /// Starts the actor of an entity on its arbiter, from what the store has of it.
    pub(super) fn open(&mut self, id: EntityId, itself: Addr<Self>) {
        let (Some(writer), Some(entity)) =
            (self.writer(id).map(Arc::clone), self.entities.get_mut(&id))
        else {
            return;
        };
        entity.state = State::Opening;
        entity.passages = Arc::default();
        let opening = Opening {
            id,
            path: Arc::clone(&entity.path),
            description: entity.description.take(),
            duplicate_key: self.duplicate_key,
            shared: Arc::clone(&self.shared),
            writer,
            inlet: Arc::clone(&entity.inlet),
            passages: Arc::clone(&entity.passages),
            observed: Arc::clone(&entity.observed),
            namespace: itself.clone(),
        };
        let index = usize::try_from(hash(&entity.path) % self.arbiters.len() as u64).unwrap_or(0);
        let started = self.arbiters.get(index).is_some_and(|arbiter| {
            arbiter.spawn_fn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| opening.open()))
                    .unwrap_or_else(|_| Err("it panicked while it was opened".to_owned()));
                itself.do_send(Opened { id, result });
            })
        });
        if !started {
            tracing::error!(entity_id = id.0, "arbiter is gone");
        }
    }

    pub(super) fn note_opened(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        if self.opening == 0
            && let Some(opened) = self.opened.take()
        {
            self.shared.are_open.send_replace(true);
            opened.send(()).ok();
        }
    }
}

impl Handler<Opened> for NamespaceActor {
    type Result = ();

    fn handle(&mut self, Opened { id, result }: Opened, context: &mut Self::Context) {
        match result {
            Ok(actor) => {
                let Some(entity) = self.entities.get_mut(&id) else { return self.note_opened() };
                if self.stopping {
                    let itself = context.address();
                    let done = Box::new(move || itself.do_send(Retired(id)));
                    let reason = Rejection::cancelled("the broker is stopping");
                    actor.do_send(Retire { when: RetireWhen::Now, reason, done });
                }
                entity.actor = Some(actor);
                entity.state = State::Open;
                let entry = entity.entry(id);
                let (key, answer) = (entity.key.clone(), entity.answer.take());
                self.directory().insert(key, entry);
                if let Some(answer) = answer {
                    answer.send(Ok(())).ok();
                }
            }
            Err(why) => {
                self.close(id, &why);
                if self.stopping {
                    self.end_if_retired();
                }
            }
        }
        self.note_opened();
    }
}

/// Everything that is needed to open an entity on another thread.
struct Opening {
    id: EntityId,
    path: Arc<str>,
    description: Option<QueueDescription>,
    duplicate_key: [u8; 16],
    shared: Arc<Shared>,
    writer: Arc<ShardWriter>,
    inlet: Arc<Inlet>,
    passages: Arc<Passages>,
    observed: Arc<crate::telemetry::Observed>,
    namespace: Addr<NamespaceActor>,
}

thread_local! {
    static DESK: RefCell<Option<Rc<Desk>>> = const { RefCell::new(None) };
}

impl Opening {
    /// Restores the machine from the store and starts its actor on this arbiter.
    fn open(self) -> Result<Addr<EntityActor>, String> {
        let shared = &self.shared;
        let now = shared.clock.now();
        let config = shared.settings.queue_config(self.duplicate_key);
        let description =
            self.description.unwrap_or_else(|| shared.settings.new_queue(&*self.path));
        let mut queue = Queue::new(self.id, description, config, now);
        let mut corrupt = None;
        shared
            .store
            .scan(codec::space_key(self.id).as_bytes(), &mut |key, value| {
                if let Err(error) = queue.restore(key, value) {
                    corrupt.get_or_insert(error);
                }
            })
            .map_err(|error| error.to_string())?;
        if let Some(error) = corrupt {
            return Err(error.to_string());
        }
        queue.restored(now);
        let desk = DESK.with(|desk| {
            Rc::clone(
                desk.borrow_mut().get_or_insert_with(|| Desk::open(Arc::clone(&shared.clock))),
            )
        });
        let tree = Rc::new(RefCell::new(Tree::new(self.writer, queue.size_bytes())));
        let seat = desk.take_seat(self.id, &tree);
        let tokens = Arc::clone(shared);
        let actor_of_waker: Arc<Mutex<Option<Addr<EntityActor>>>> = Arc::default();
        let waker_actor = Arc::clone(&actor_of_waker);
        let shell = Shell::new(
            queue,
            tree,
            Arc::clone(&shared.store),
            Arc::new(shared.settings.limits.clone()),
            Box::new(move || tokens.edge.entropy().next_u64()),
            shared.parking.clone(),
            Box::new(move || {
                let actor = waker_actor.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Box::new(move || {
                    if let Some(actor) = actor {
                        actor.do_send(RoomAgain);
                    }
                })
            }),
        );
        let actor = EntityActor::new(Parts {
            id: self.id,
            shell,
            inlet: self.inlet,
            passages: self.passages,
            shared: Arc::clone(shared),
            observed: self.observed,
            clock: Arc::clone(&shared.clock),
            desk,
            seat,
            namespace: self.namespace,
        })
        .start();
        *actor_of_waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor.clone());
        Ok(actor)
    }
}

/// Spreads paths over arbiters; the same path always goes to the same one.
fn hash(path: &str) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = siphasher::sip::SipHasher13::new();
    PathKey::fold(path).hash(&mut hasher);
    hasher.finish()
}
