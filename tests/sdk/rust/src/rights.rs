//! Requests that are refused.

use anyhow::{Context as _, Result, ensure};

use crate::broker::World;

pub async fn a_wrong_key_is_refused(w: &World<'_>) -> Result<()> {
    let queue = w.queue("{}")?;
    let mut client = w.client_with("bm90IHRoZSBrZXk=").await?;
    let refused = client.create_sender(queue, Default::default()).await;
    let refused = format!("{:?}", refused.err().context("it was let in")?);
    ensure!(refused.contains("401") || refused.contains("nauthorized"), "{refused}");
    Ok(())
}

pub async fn a_missing_queue_is_reported(w: &World<'_>) -> Result<()> {
    let mut client = w.client().await?;
    let refused = client.create_receiver_for_queue("none", Default::default()).await;
    let refused = format!("{:?}", refused.err().context("there is one")?);
    ensure!(refused.contains("not-found") || refused.contains("NotFound"), "{refused}");
    Ok(())
}
