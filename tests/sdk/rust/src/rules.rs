//! Rules of subscriptions.

use anyhow::{Result, ensure};
use azservicebus::ServiceBusMessage;
use azservicebus::administration::{
    CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter,
};

use crate::broker::World;

pub async fn rules_are_replaced(w: &World<'_>) -> Result<()> {
    let topic = w.topic()?;
    let mut client = w.client().await?;
    let mut rules = client.create_rule_manager(topic, "s").await?;
    let names = |rules: Vec<azservicebus::administration::RuleProperties>| {
        rules.into_iter().map(|rule| rule.name).collect::<Vec<_>>()
    };
    ensure!(names(rules.get_rules().await?) == ["$Default"]);
    rules.delete_rule("$Default").await?;
    rules.create_rule("all", TrueRuleFilter::new()).await?;
    let action = SqlRuleAction::new("SET quantity = quantity / 2");
    rules.create_rule("red", (SqlRuleFilter::new("color = 'red'"), action)).await?;
    rules.create_rule("blue", CorrelationRuleFilter::builder().subject("blue").build()).await?;
    let mut told = names(rules.get_rules().await?);
    told.sort();
    ensure!(told == ["all", "blue", "red"], "{told:?}");
    ensure!(rules.create_rule("all", TrueRuleFilter::new()).await.is_err(), "there are two `all`");
    Ok(())
}

pub async fn a_subscription_gets_messages_selected_by_its_rules(w: &World<'_>) -> Result<()> {
    let topic = w.topic()?;
    let mut client = w.client().await?;
    let mut rules = client.create_rule_manager(topic, "s").await?;
    rules.delete_rule("$Default").await?;
    rules.create_rule("blue", CorrelationRuleFilter::builder().subject("blue").build()).await?;
    let mut sender = client.create_sender(topic, Default::default()).await?;
    for subject in ["red", "blue"] {
        let mut message = ServiceBusMessage::new(subject);
        message.set_subject(subject.to_owned());
        sender.send_message(message).await?;
    }
    let mut receiver =
        client.create_receiver_for_subscription(topic, "s", Default::default()).await?;
    let seen = receiver.receive_message().await?;
    ensure!(seen.body()? == b"blue");
    receiver.complete_message(&seen).await?;
    ensure!(receiver.peek_message(None).await?.is_none());
    Ok(())
}
