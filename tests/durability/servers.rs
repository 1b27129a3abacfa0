//! Database servers of a run: one, or a primary with two standbys, of which one must confirm each
//! commit.

use std::cell::Cell;

use crate::database::{OWN_SOCKET, Postgres};
use crate::wait::wait_for;

/// Names of the three servers for `synchronous_standby_names`.
const NAMES: [&str; 3] = ["s1", "s2", "s3"];

/// Servers of a database.
pub enum Servers {
    One(Postgres),
    Three(Trio),
}

impl Servers {
    /// Starts servers with a new database. Returns its address too.
    pub fn start(name: &str, has_standbys: bool) -> (Self, String) {
        if has_standbys {
            let trio = Trio::start(name);
            let address = trio.database("peeklock");
            return (Self::Three(trio), address);
        }
        let server = Postgres::start(name);
        let address = server.database("peeklock");
        (Self::One(server), address)
    }

    /// Ends the server that takes writes, as a crash does.
    pub fn crash(&self) {
        match self {
            Self::One(server) => server.crash(),
            Self::Three(trio) => trio.primary().crash(),
        }
    }

    /// Has a server take writes again: the crashed one, or a standby that becomes the primary.
    pub fn recover(&self) {
        match self {
            Self::One(server) => server.run(OWN_SOCKET),
            Self::Three(trio) => trio.promote(),
        }
    }

    /// Replaces a lost standby.
    pub fn mend(&self) {
        if let Self::Three(trio) = self {
            trio.replace_lost();
        }
    }
}

/// A primary and two standbys.
pub struct Trio {
    servers: [Postgres; 3],
    primary: Cell<usize>,
    lost: Cell<Option<usize>>,
}

/// Options of a server. Standbys find the WAL that they lack after a change of the primary.
fn options(place: usize) -> String {
    format!("{OWN_SOCKET} -c wal_keep_size=512MB -c cluster_name={}", NAMES[place])
}

impl Trio {
    fn start(name: &str) -> Self {
        let name_of = |place: usize| format!("{name}-{}", NAMES[place]);
        let first = Postgres::start_within(&name_of(0), Vec::new(), &options(0));
        let quorum = format!("ANY 1 ({})", NAMES.join(", "));
        // The standbys copy this setting. It is in force when they run.
        first.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{quorum}'"));
        let standby = |place| Postgres::start_standby(&name_of(place), &first, &options(place));
        let (second, third) = (standby(1), standby(2));
        first.sql("SELECT pg_reload_conf()");
        let servers = [first, second, third];
        let trio = Self { servers, primary: Cell::new(0), lost: Cell::new(None) };
        trio.wait_for_standbys(2);
        trio
    }

    /// Makes a database. Its address names all servers.
    fn database(&self, name: &str) -> String {
        let address = self.primary().database(name);
        let (_, role) = address.split_once(' ').unwrap();
        let folders = self.servers.each_ref().map(|server| server.folder().display().to_string());
        format!("host={} {role}", folders.join(","))
    }

    fn primary(&self) -> &Postgres {
        &self.servers[self.primary.get()]
    }

    /// Waits until this number of standbys can confirm commits.
    fn wait_for_standbys(&self, count: usize) {
        const CONFIRMING: &str =
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
        let follow = || (self.primary().sql(CONFIRMING).trim() == count.to_string()).then_some(());
        wait_for(follow, || format!("the standbys do not follow\n{}", self.primary().log()));
    }

    /// Promotes the standby that has received most, after a crash of the primary. The other one
    /// follows it.
    fn promote(&self) {
        let lost = self.primary.get();
        let standbys = || (0..NAMES.len()).filter(move |place| *place != lost);
        // A standby may still read bytes of the dead primary, and get further than the other one.
        for place in standbys() {
            const RECEIVERS: &str = "SELECT count(*) FROM pg_stat_wal_receiver";
            let server = &self.servers[place];
            let has_read_all = || (server.sql(RECEIVERS).trim() == "0").then_some(());
            wait_for(has_read_all, || server.log());
        }
        let received = |place: &usize| {
            let lsn = "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')";
            self.servers[*place].sql(lsn).trim().parse::<u64>().unwrap()
        };
        let next = standbys().max_by_key(received).unwrap();
        let other = standbys().find(|place| *place != next).unwrap();
        let (primary, standby) = (&self.servers[next], &self.servers[other]);
        primary.promote();
        let address = primary.folder().display();
        let way = format!("host={address} user=postgres application_name={}", NAMES[other]);
        standby.sql(&format!("ALTER SYSTEM SET primary_conninfo = '{way}'"));
        standby.sql("SELECT pg_reload_conf()");
        self.primary.set(next);
        self.lost.set(Some(lost));
    }

    /// Makes the past primary a standby, as a new copy: it may have commits that no standby has.
    fn replace_lost(&self) {
        if let Some(lost) = self.lost.take() {
            self.servers[lost].copy(self.primary());
            self.servers[lost].run(&options(lost));
            self.wait_for_standbys(2);
        }
    }
}
