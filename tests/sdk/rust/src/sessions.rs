//! Sessions.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azservicebus::{ServiceBusMessage, ServiceBusSender};

use crate::broker::{Client, World};

const SESSIONS: &str = r#"{"requiresSession":true,"lockDuration":"PT2S"}"#;

async fn open(w: &World<'_>) -> Result<(Client, ServiceBusSender)> {
    let queue = w.queue(SESSIONS)?;
    let mut client = w.client().await?;
    let sender = client.create_sender(queue, Default::default()).await?;
    Ok((client, sender))
}

fn of(session: &str, body: &str) -> Result<ServiceBusMessage> {
    let mut message = ServiceBusMessage::new(body);
    message.set_session_id(session.to_owned())?;
    Ok(message)
}

pub async fn a_session_is_accepted_by_name(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender) = open(w).await?;
    sender.send_messages(vec![of("a", "1")?, of("b", "2")?, of("a", "3")?]).await?;
    let mut session = client.accept_session_for_queue(w.name, "a", Default::default()).await?;
    for body in ["1", "3"] {
        let seen = session.receive_message().await?;
        ensure!((seen.body()?, seen.session_id()) == (body.as_bytes(), Some("a")));
        session.complete_message(&seen).await?;
    }
    ensure!(session.peek_message(None).await?.is_none());
    session.dispose().await?;
    Ok(())
}

pub async fn the_next_session_is_accepted(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender) = open(w).await?;
    sender.send_message(of("oldest", "1")?).await?;
    let mut session = client.accept_next_session_for_queue(w.name, Default::default()).await?;
    ensure!(session.session_id() == "oldest");
    let seen = session.receive_message().await?;
    session.complete_message(&seen).await?;
    Ok(())
}

pub async fn a_session_keeps_its_state(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender) = open(w).await?;
    sender.send_message(of("a", "1")?).await?;
    let mut session = client.accept_session_for_queue(w.name, "a", Default::default()).await?;
    session.set_session_state(b"half way".to_vec()).await?;
    session.dispose().await?;
    let mut session = client.accept_session_for_queue(w.name, "a", Default::default()).await?;
    ensure!(session.session_state().await? == b"half way");
    Ok(())
}

pub async fn the_lock_of_a_session_is_renewed(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender) = open(w).await?;
    sender.send_message(of("a", "1")?).await?;
    let mut session = client.accept_session_for_queue(w.name, "a", Default::default()).await?;
    let seen = session.receive_message().await?;
    let before = session.session_locked_until();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        session.renew_session_lock().await?;
    }
    ensure!(session.session_locked_until() > before);
    session.complete_message(&seen).await?;
    Ok(())
}

pub async fn a_session_that_is_held_is_refused(w: &World<'_>) -> Result<()> {
    let (mut client, mut sender) = open(w).await?;
    sender.send_message(of("a", "1")?).await?;
    let _session = client.accept_session_for_queue(w.name, "a", Default::default()).await?;
    let other = client.accept_session_for_queue(w.name, "a", Default::default()).await;
    let refused = format!("{:?}", other.err().context("it was accepted twice")?);
    ensure!(refused.contains("session-cannot-be-locked"), "{refused}");
    Ok(())
}
