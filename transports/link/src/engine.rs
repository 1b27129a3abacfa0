//! The engine of a connection: its data and its steps that are alike in all protocols with links. A protocol decodes
//! requests, encodes events, and closes ([`Protocol`]).

use std::future::Future;
use std::sync::Arc;
use std::task::Context;

use peeklock_core::permits::Budget;
use peeklock_core::request::Released;
use peeklock_core::transaction::Transactions;
use peeklock_core::{Access, Broker};
use peeklock_listen::Lookout;
use tokio::sync::watch;

use crate::account::Account;
use crate::apart::{Apart, Finished, do_apart};
use crate::arrivals::{Arrivals, Next};
use crate::links::{Event, Links};
use crate::mailbox::{Mail, Mailbox};
use crate::place::Standing;
use crate::steps::Steps;

/// A connection of one protocol, around its engine.
pub trait Protocol: Send + Sized {
    /// The data that is kept for a request until it is answered.
    type Expect: Send;
    /// The result of work apart from the connection.
    type Outcome: Send + 'static;

    /// Pieces of work apart that share the bytes which need no shared room.
    const APART_MAX: usize;

    /// Its engine.
    fn engine(&mut self) -> &mut Engine<Self>;

    /// The link in whose order `released` stands.
    fn order_of(&mut self, released: &Released) -> u32 {
        self.engine().links.link_of(released)
    }

    /// Whether another event may be encoded now.
    fn may_emit(&self) -> bool;

    /// Whether there is room for the answers of more work apart.
    fn may_start_apart(&self) -> bool;

    /// Computes the bytes of a result.
    fn measure(&self) -> impl Fn(&Self::Outcome) -> u64 + Send + 'static;

    /// Encodes an event, which holds `held_bytes` of the account.
    fn emit(&mut self, event: Event, held_bytes: u64) -> impl Future<Output = ()> + Send;

    /// Encodes the answer to a request that was carried out apart.
    fn emit_finished(&mut self, finished: Finished<Self::Outcome>);

    /// Takes the mail, and encodes events while that is possible and the account has room. Others of the thread have
    /// their turn in between: a client can cause many events with a few bytes. Contents in the store are fetched in
    /// tasks of their own, so only their links wait for them.
    fn collect(&mut self) -> impl Future<Output = ()> + Send {
        async move {
            self.take_mail();
            self.start_apart();
            self.engine().wanted_bytes = None;
            while let Some((event, held_bytes)) = self.next_event() {
                self.emit(event, held_bytes).await;
                let steps = &mut self.engine().steps;
                steps.add(1);
                steps.rest().await;
            }
            self.engine().fetch();
        }
    }

    /// Brings the mail into the order of each link.
    fn take_mail(&mut self) {
        let mut arrived = Vec::new();
        self.engine().mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    let order = self.order_of(&released);
                    self.engine().arrivals.push(order, released);
                }
                Mail::Fetched(fetched) => self.engine().arrivals.fetched(fetched),
                Mail::Own(finished) => {
                    self.engine().apart.done(finished.size);
                    self.emit_finished(finished);
                }
            }
        }
    }

    /// The next event, and the bytes of the account that it holds.
    fn next_event(&mut self) -> Option<(Event, u64)> {
        if !self.may_emit() {
            return None;
        }
        let engine = self.engine();
        match engine.arrivals.next(&mut engine.account) {
            Next::Ready(released, held_bytes) => Some((engine.links.take(released), held_bytes)),
            Next::NoRoom(wanted) => {
                engine.wanted_bytes = Some(wanted);
                None
            }
            Next::Nothing => None,
        }
    }

    /// Starts waiting work while there is room for its answers. Work that no entity has received ends with the
    /// connection.
    fn start_apart(&mut self) {
        while self.may_start_apart()
            && let Some(work) = self.engine().apart.next()
        {
            let measure = self.measure();
            let engine = self.engine();
            let mailbox = Arc::clone(&engine.mailbox);
            let outbound = engine.broker.outbound_pool();
            let free_bytes = engine.account.free_bytes() / Self::APART_MAX as u64;
            let alive = engine.alive.subscribe();
            let working = (work.start)();
            let (size, slot, permit) = (work.size, work.slot, work.permit);
            tokio::spawn(async move {
                let _permit = permit;
                let done = do_apart(alive, working, measure, free_bytes, &outbound).await;
                if let Some((result, paid)) = done {
                    mailbox.put(Mail::Own(Finished { size, slot, result, paid }));
                }
            });
        }
    }
}

/// The data of a connection that its protocol does not change.
pub struct Engine<P: Protocol> {
    /// The broker, at one of its arbiters.
    pub broker: Broker,
    /// The rights of the client.
    pub access: Access,
    /// Permits for commands.
    pub budget: Budget,
    /// Links, and requests that await answers.
    pub links: Links<Broker, P::Expect>,
    /// Transactions that the client has begun.
    pub transactions: Transactions,
    mailbox: Arc<Mailbox<Finished<P::Outcome>>>,
    /// Events that wait for contents, or for room.
    pub arrivals: Arrivals,
    /// The bytes that are held for the client.
    pub account: Account,
    /// The room that the next event needs and the account does not have.
    wanted_bytes: Option<u64>,
    /// Work that takes more than one command.
    pub apart: Apart<P::Outcome>,
    /// Steps since others of the thread had their turn.
    pub steps: Steps,
    /// The place of the connection.
    pub standing: Standing,
    /// Looks for the end of the client while nothing is read.
    pub lookout: Lookout,
    /// Its receivers see when it is replaced: the connection has ended.
    alive: watch::Sender<()>,
}

impl<P: Protocol> Engine<P> {
    /// An engine without links. At most about `window_bytes` of deliveries are under way, and `unsettled_max` of one link
    /// are not settled.
    #[must_use]
    pub fn new(
        broker: Broker,
        access: Access,
        account: Account,
        window_bytes: u64,
        unsettled_max: u32,
    ) -> Self {
        let mailbox: Arc<Mailbox<_>> = Arc::default();
        let outlet = Arc::clone(&mailbox) as Arc<_>;
        Self {
            access,
            budget: broker.connection_budget(),
            links: Links::new(broker.clone(), outlet, window_bytes, unsettled_max),
            transactions: Transactions::new(&broker),
            mailbox,
            arrivals: Arrivals::default(),
            account,
            wanted_bytes: None,
            apart: Apart::default(),
            steps: Steps::default(),
            standing: Standing::default(),
            lookout: Lookout::default(),
            alive: watch::Sender::new(()),
            broker,
        }
    }

    /// Whether there is mail, or an event that waited has room now.
    pub fn has_mail(&mut self, context: &mut Context<'_>) -> bool {
        let has_room = match self.wanted_bytes {
            Some(bytes) => self.account.poll_room(bytes, context).is_ready(),
            None => true,
        };
        (has_room && !self.arrivals.is_idle()) || self.mailbox.poll(context).is_ready()
    }

    /// Fetches contents in a task of their own.
    fn fetch(&mut self) {
        if self.wanted_bytes.is_none() {
            self.account.want_nothing();
        }
        for fetch in self.arrivals.fetches() {
            let mailbox = Arc::clone(&self.mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
    }

    /// Stops deliveries and receives; the client can still settle.
    pub fn stop_flows(&mut self) {
        self.links.return_deliveries();
        self.links.withdraw_all();
        self.links.limit_all();
        self.links.hand_over();
    }

    /// Ends work that no entity has received.
    pub fn cancel(&mut self) {
        self.apart.clear();
        self.alive = watch::Sender::new(());
    }

    /// Has entities deliver nothing more, and waits for their answers. Returns the number of lost messages: nobody
    /// stores them any more and the client does not have them (RCV-02).
    pub async fn quiet(&mut self) -> u64 {
        self.links.begin_end();
        let mut lost_count = 0;
        for released in self.arrivals.drain(&mut self.account) {
            lost_count += self.links.abandon(released);
        }
        self.account.clear();
        lost_count + self.links.quiet(&self.mailbox).await
    }
}
