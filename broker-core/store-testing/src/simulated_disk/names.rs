//! The names of a directory: the current ones and the durable ones. `simulated_disk.rs` changes
//! them with each call.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::Names;
use crate::Random;

type NameMap = BTreeMap<String, u64>;

#[derive(Clone, Default)]
pub(super) struct Directory {
    names: NameMap,
    durable: NameMap,
    /// Changes since the last sync, in order.
    changes: Vec<Change>,
    /// A sync has failed: no later sync of this process makes any name durable for certain.
    is_stuck: bool,
}

#[derive(Clone)]
enum Change {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

impl Change {
    fn names(&self) -> [&str; 2] {
        match self {
            Self::Create(name, _) | Self::Remove(name) => [name, name],
            Self::Rename(from, to) => [from, to],
        }
    }

    fn carry_out(&self, names: &mut NameMap) {
        match self {
            Self::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Directory {
    pub(super) const fn names(&self) -> &NameMap {
        &self.names
    }

    pub(super) const fn durable_names(&self) -> &NameMap {
        &self.durable
    }

    pub(super) fn find(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether a file has a name, or may have one after a crash.
    pub(super) fn reaches(&self, inode: u64) -> bool {
        let created = |change: &Change| matches!(change, Change::Create(_, of) if *of == inode);
        self.names.values().chain(self.durable.values()).any(|of| *of == inode)
            || self.changes.iter().any(created)
    }

    pub(super) fn create(&mut self, name: &str, inode: u64) {
        self.change(Change::Create(name.to_owned(), inode));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.change(Change::Remove(name.to_owned()));
    }

    fn change(&mut self, change: Change) {
        change.carry_out(&mut self.names);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        if !self.is_stuck {
            self.durable.clone_from(&self.names);
            self.changes.clear();
        }
    }

    pub(super) const fn fail_sync(&mut self) {
        self.is_stuck = true;
    }

    /// Lets the next process sync again; it changes other names than the lost ones.
    pub(super) const fn restart(&mut self) {
        self.is_stuck = false;
    }

    /// The names after a crash.
    pub(super) fn survivors(&self, random: &mut Random, order: Names) -> NameMap {
        let mut names = self.durable.clone();
        match order {
            Names::Prefix => {
                let kept = match random.below(4) {
                    0 => 0,
                    1 => self.changes.len(),
                    _ => random.index(self.changes.len() + 1),
                };
                for change in self.changes.iter().take(kept) {
                    change.carry_out(&mut names);
                }
            }
            Names::AnyOrder => {
                let mut lost: BTreeSet<&str> = BTreeSet::new();
                for change in &self.changes {
                    let follows_lost = change.names().iter().any(|name| lost.contains(name));
                    if follows_lost || random.one_in(2) {
                        lost.extend(change.names());
                    } else {
                        change.carry_out(&mut names);
                    }
                }
            }
        }
        names
    }
}
