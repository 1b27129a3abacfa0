//! Transactions: file 15.

use std::collections::BTreeSet;

use peeklock_core::condition::Condition;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::{Oracle, Reply, Settled};
use crate::image::Bare;

/// One operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    Send(Vec<Bare>),
    Via(String, Vec<Bare>),
    Settle(u128, Settled),
    Renew(u128),
}

/// An operation with its entity and sub-queue.
#[derive(Clone, PartialEq, Debug)]
pub struct Undertaking {
    pub id: u64,
    pub sub_queue: SubQueue,
    pub piece: Piece,
}

/// Result of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Done {
    Numbers(Vec<u64>),
    Settled,
    Until(Timestamp),
}

impl Oracle {
    /// TXN-01, TXN-07, TXN-13: all or nothing. `member` is the subscription that a topic
    /// coordinates, which is checked first.
    pub fn commit(&mut self, all: &[Undertaking], member: Option<u64>) -> Reply {
        let mut used = BTreeSet::new();
        let (others, own): (Vec<&Undertaking>, Vec<&Undertaking>) =
            all.iter().partition(|one| Some(one.id) == member);
        for one in others.into_iter().chain(own) {
            let checked = match &one.piece {
                Piece::Send(_) | Piece::Via(..) => self.check_send(one.id),
                Piece::Settle(token, how) => {
                    self.check_settle(one.id, one.sub_queue, *token, *how).map(drop)
                }
                Piece::Renew(token) => self.check_renew(one.id, one.sub_queue, *token).map(drop),
            };
            let again = match &one.piece {
                Piece::Settle(token, _) => !used.insert(*token),
                Piece::Renew(token) => used.contains(token),
                Piece::Send(_) | Piece::Via(..) => false,
            };
            let checked =
                if again { checked.and(Err(Condition::MessageLockLost)) } else { checked };
            if let Err(condition) = checked {
                self.reach("TXN-07");
                return Reply::Refused(condition);
            }
        }
        self.reach("TXN-01");
        let done = all.iter().map(|one| self.carry_out(one)).collect();
        Reply::Committed(done)
    }

    fn carry_out(&mut self, one: &Undertaking) -> Done {
        match &one.piece {
            Piece::Send(messages) => Done::Numbers(self.accept_all(one.id, messages)),
            Piece::Via(to, messages) => Done::Numbers(self.entrust(one.id, to, messages)),
            Piece::Settle(token, how) => {
                let sequence = self.held(one.id, one.sub_queue, *token).unwrap();
                self.settle_held(one.id, sequence, *how);
                Done::Settled
            }
            Piece::Renew(token) => {
                let sequence = self.held(one.id, one.sub_queue, *token).unwrap();
                Done::Until(self.renew_held(one.id, sequence))
            }
        }
    }
}
