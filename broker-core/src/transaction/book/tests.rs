//! Test of the cost of a refusal for other connections.

use super::*;
use crate::description::Settings;

/// DESIGN D6: a request without room is decided by the shared ledger alone, without asking other
/// connections, however many there are. (All of them are locked here: a request to one never
/// returns.)
#[tokio::test]
async fn refused_begin_locks_no_other_connection() {
    let mut settings = Settings::default();
    settings.limits.broker_inbound_bytes_max = 2 * 32 * BEGUN_BYTES;
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    let others: Vec<Transactions> = (0..32).map(|_| Transactions::new(&broker)).collect();
    for other in &others {
        other.begin(Reach::OneEntity).unwrap();
    }
    let late = Transactions::new(&broker);
    let locked: Vec<MutexGuard<'_, State>> = others.iter().map(|other| other.0.lock()).collect();
    let refused = late.begin(Reach::OneEntity);
    drop(locked);
    assert_eq!(refused.unwrap_err().condition(), Condition::ServerBusy);
    // There is room for a transaction when others are gone.
    drop(others);
    late.begin(Reach::OneEntity).unwrap();
}
