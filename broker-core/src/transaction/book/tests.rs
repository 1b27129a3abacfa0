//! What a refusal costs those whom it is nothing to.

use super::*;
use crate::description::Settings;

/// DESIGN D6: who finds no room is refused by what stands at the purse; no other connection is asked, however many
/// there are. (All of them are locked here: whoever asked one would wait for good.)
#[tokio::test]
async fn who_is_refused_has_asked_no_other_connection() {
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
    // There is room for one when one is gone.
    drop(others);
    late.begin(Reach::OneEntity).unwrap();
}
