//! Statistics of a run.

/// Number of events of every kind in a run.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub commands: u64,
    pub deliveries: u64,
    pub refusals: u64,
    pub internal_errors: u64,
    pub busy: u64,
    pub rebuilds: u64,
    pub panics: u64,
    pub crashes: u64,
    pub unknown: u64,
    pub usurped: u64,
    pub deleted: u64,
    pub rests: u64,
    pub sessions: u64,
    pub sessions_lost: u64,
    pub states: u64,
    pub topic_rebuilds: u64,
    /// Messages that only a catch-all selects, and messages that another subscription selects, too.
    pub caught: u64,
    pub not_caught: u64,
    /// Number of times that a subscription became a catch-all or ceased to be one.
    pub marked: u64,
}

impl Seen {
    pub fn add(&mut self, more: &Self) {
        self.commands += more.commands;
        self.deliveries += more.deliveries;
        self.refusals += more.refusals;
        self.internal_errors += more.internal_errors;
        self.busy += more.busy;
        self.rebuilds += more.rebuilds;
        self.panics += more.panics;
        self.crashes += more.crashes;
        self.unknown += more.unknown;
        self.usurped += more.usurped;
        self.deleted += more.deleted;
        self.rests += more.rests;
        self.sessions += more.sessions;
        self.sessions_lost += more.sessions_lost;
        self.states += more.states;
        self.topic_rebuilds += more.topic_rebuilds;
        self.caught += more.caught;
        self.not_caught += more.not_caught;
        self.marked += more.marked;
    }

    /// Asserts that every case occurred; otherwise the simulation would prove nothing about it.
    pub fn must_have_seen_everything(&self) {
        let Self {
            commands,
            deliveries,
            refusals,
            internal_errors,
            busy,
            rebuilds,
            panics,
            crashes,
            unknown,
            usurped,
            deleted,
            rests,
            sessions,
            sessions_lost,
            states,
            topic_rebuilds,
            caught,
            not_caught,
            marked,
        } = self.clone();
        let all = [
            commands,
            deliveries,
            refusals,
            internal_errors,
            busy,
            rebuilds,
            panics,
            crashes,
            unknown,
            usurped,
            deleted,
            rests,
            sessions,
            sessions_lost,
            states,
        ];
        assert!(all.iter().all(|count| *count > 0), "a case was never met: {self:?}");
        let least = [(topic_rebuilds, 200), (caught, 5_000), (not_caught, 5_000), (marked, 1_000)];
        assert!(least.iter().all(|(count, least)| count >= least), "too little: {self:?}");
    }
}
