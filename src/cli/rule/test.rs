//! `peeklock rule test`: reports which rules select a message, and why. With a subscription it
//! sends a request to the broker; with a filter on the command line it evaluates the filter in this
//! process.

use std::fs;
use std::io::{self, Read as _};

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{ExplainQuery, Found, Question};
use peeklock::limits::{Limits, Tier};
use peeklock::message::Message;
use peeklock::path::subscription_path;
use peeklock::rule::{Explanation, try_rules};
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::{explanation_to_json, findings_to_json, message_from_json};

use super::super::arguments::{span_of, topic_of};
use super::super::connect::{Common, Output, Patience};
use super::super::inspect::ask;
use super::super::listing::objects;
use super::super::message::{Form, Writer, counted};
use super::super::property::{Property, property};
use super::super::send::set_properties;
use super::super::terminal::{Out, WriteOutcome, note};
use super::super::{Failure, exit};
use super::filter::FilterFlags;
use super::why;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule test orders eu --property price:i32=120
  peeklock rule test orders --property price:i32=120          all subscriptions of `orders`
  peeklock rule test orders --sequence 17                     message 17, as `peeklock samples` lists it
  peeklock rule test orders eu --rule dear --message '{\"applicationProperties\": {\"price\": 120}}'
  peeklock peek orders/subscriptions/eu -o ndjson | peeklock rule test orders eu
  peeklock rule test --sql \"price > 100 AND sys.Label LIKE 'order%'\" \\
    --property price:i32=120 --subject order-1
  peeklock rule test --sql 'price > 100' --action \"SET priority = 'high'\" --property price:i32=7

With TOPIC and SUBSCRIPTION, the broker reports the result of each rule for the message; with \
TOPIC only, for all subscriptions, each with the copies that it would get. With a filter, this \
program tests that rule itself and needs no broker. Nothing is sent or stored in \
either case.

Each comparison of a filter is printed with the value that it saw. SQL has three truth values: a \
comparison with a property that the message does not have is unknown, and selects nothing.

Without --message, --file and properties, the command reads the message from standard input: one \
JSON object, as printed by `receive` and `peek` with -o ndjson.

",
    exit_codes!(),
    "

Here 0 means that a rule selects the message, and 6 that no rule does."
);

/// Maximum size of a message: Base64 of the largest configurable message.
const BYTES_MAX: u64 = 256 << 20;

#[derive(Args)]
pub struct TestFlags {
    /// Topic, such as `orders`
    #[arg(value_parser = topic_of,
          conflicts_with_all = ["sql", "correlation", "all", "none", "action"])]
    topic: Option<String>,
    /// Subscription of the topic, such as `eu`; without it, all subscriptions
    subscription: Option<String>,
    /// Test only this rule
    #[arg(long, value_name = "NAME", requires = "subscription")]
    rule: Option<String>,
    /// Test a sample of the topic, or a scheduled message in it, by its sequence number
    #[arg(long, value_name = "NUMBER", requires = "topic",
          conflicts_with_all = ["subscription", "message", "file"])]
    sequence: Option<u64>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    message: MessageFlags,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
#[command(next_help_heading = "Message")]
struct MessageFlags {
    /// The message as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    message: Option<String>,
    /// Read the message as JSON from a file, `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
    /// Application property as text, or with a type, such as `table:i32=7`,
    /// `due:timestamp=2026-05-01T12:00:00Z`, `wait:timeSpan=PT30S`; may be repeated
    #[arg(short, long, value_name = "KEY[:TYPE]=VALUE", value_parser = property)]
    property: Vec<Property>,
    /// Message id
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// Subject, also known as label
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Correlation id, such as the message id of the request
    #[arg(long, value_name = "TEXT")]
    correlation_id: Option<String>,
    /// Address that the sender intends (To)
    #[arg(long, value_name = "ADDRESS")]
    to: Option<String>,
    /// Address for replies
    #[arg(long, value_name = "ADDRESS")]
    reply_to: Option<String>,
    /// Session for replies
    #[arg(long, value_name = "TEXT")]
    reply_to_session_id: Option<String>,
    /// Session of the message
    #[arg(long, value_name = "TEXT")]
    session_id: Option<String>,
    /// Media type of the body
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Partition key
    #[arg(long, value_name = "TEXT")]
    partition_key: Option<String>,
    /// Time to live, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span_of)]
    ttl: Option<TimeSpan>,
}

impl MessageFlags {
    /// The message; flags override values of the JSON.
    fn message(&self) -> Result<Message, Failure> {
        let mut message = match (&self.message, self.file.as_deref()) {
            (Some(text), _) => parse(text)?,
            (None, Some("-")) => parse(&read(io::stdin().lock(), "standard input")?)?,
            (None, Some(file)) => {
                let opened = fs::File::open(file)
                    .map_err(|error| Failure::Failed(format!("`{file}`: {error}")))?;
                parse(&read(opened, file)?)?
            }
            (None, None) if self.is_given() => Message::default(),
            (None, None) => parse(&read(io::stdin().lock(), "standard input")?)?,
        };
        let over = |field: &mut Option<String>, given: &Option<String>| {
            if given.is_some() {
                field.clone_from(given);
            }
        };
        if let Some(id) = &self.id {
            message.message_id = Some(id.as_str().into());
        }
        if let Some(id) = &self.correlation_id {
            message.correlation_id = Some(id.as_str().into());
        }
        over(&mut message.subject, &self.subject);
        over(&mut message.to, &self.to);
        over(&mut message.reply_to, &self.reply_to);
        over(&mut message.reply_to_session_id, &self.reply_to_session_id);
        over(&mut message.session_id, &self.session_id);
        over(&mut message.content_type, &self.content_type);
        over(&mut message.partition_key, &self.partition_key);
        message.time_to_live = self.ttl.or(message.time_to_live);
        set_properties(&mut message, &self.property);
        Ok(message)
    }

    const fn is_given(&self) -> bool {
        !self.property.is_empty()
            || self.id.is_some()
            || self.subject.is_some()
            || self.correlation_id.is_some()
            || self.to.is_some()
            || self.reply_to.is_some()
            || self.reply_to_session_id.is_some()
            || self.session_id.is_some()
            || self.content_type.is_some()
            || self.partition_key.is_some()
            || self.ttl.is_some()
    }
}

pub fn run(flags: &TestFlags) -> Result<(), Failure> {
    let (topic, subscription) = match (&flags.topic, &flags.subscription) {
        (Some(topic), Some(subscription)) => (topic, subscription),
        (Some(topic), None) => return test_topic(flags, topic),
        (None, _) => return try_here(flags, &flags.message.message()?),
    };
    let message = flags.message.message()?;
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let path = subscription_path(topic, subscription);
        let mut explained = admin.explain(&path, message).await?;
        if let Some(name) = &flags.rule {
            explained.retain(|one| one.rule.eq_ignore_ascii_case(name));
            if explained.is_empty() {
                let text = format!("subscription `{subscription}` of `{topic}` has no such rule");
                return Err(Failure::ended(exit::NOT_FOUND, text));
            }
        }
        // An action whose rule does not select the message has no effect, so only selecting rules
        // count.
        let mut with_action = Vec::new();
        for one in explained.iter().filter(|one| why::selects(one)) {
            if admin.rule(&path, &one.rule).await?.action.is_some() {
                with_action.push(one.rule.clone());
            }
        }
        tell(&explained, flags, &session.out, |one| with_action.contains(&one.rule))
    })
}

/// Explains all rules of a topic (CON-35).
fn test_topic(flags: &TestFlags, topic: &str) -> Result<(), Failure> {
    let query = match flags.sequence {
        Some(sequence) => ExplainQuery::Stored { path: None, sequence: SequenceNumber(sequence) },
        None => ExplainQuery::Message(Box::new(flags.message.message()?)),
    };
    flags.common.run(Patience::Limited, async |session| {
        let read = |found: &Found| match found {
            Found::Explanation(explained) => Some((**explained).clone()),
            _ => None,
        };
        let question = Question::Explain(Box::new(query));
        let (explained, findings) = ask(session, topic, question, read).await?;
        let copies = explained.subscriptions.iter().map(|one| one.copies.len() as u64);
        let copies = copies.sum::<u64>();
        if flags.common.output == Output::Table {
            let each = explained.subscriptions.iter();
            let mut text = each.map(|one| why::subscription(one, &session.out)).collect::<String>();
            text.push_str(&match copies {
                0 if explained.is_cut => String::new(),
                0 => "no subscription selects it\n".to_owned(),
                1 => "1 copy in all\n".to_owned(),
                copies => format!("{copies} copies in all\n"),
            });
            session.out.print(&text)?;
            if let Some(reason) = &explained.refused {
                note(reason);
            }
            if explained.is_cut {
                note("further rules and copies are left out; test the subscriptions one by one");
            }
            if explained.hidden_count > 0 {
                let count = counted(explained.hidden_count, "subscription");
                note(&format!("{count} that you may not read"));
            }
        } else {
            objects(session.out, flags.common.output, findings_to_json(findings))?;
        }
        match copies {
            0 if !explained.is_cut => Err(Failure::Reported(exit::NOTHING)),
            _ => Ok(()),
        }
    })
}

/// Evaluates the rule of the command line in this process.
fn try_here(flags: &TestFlags, message: &Message) -> Result<(), Failure> {
    if !flags.filter.is_given() {
        return Err(Failure::usage(
            "no rules to test: give TOPIC and SUBSCRIPTION, or a filter such as --sql 'price > \
             100'",
        ));
    }
    let rule = flags.filter.rule("given");
    let has_action = rule.action.is_some();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.ok().and_then(|since| i64::try_from(since.as_millis()).ok());
    let now = now.map_or(Timestamp::NONE, Timestamp::from_unix_ms);
    let mut random = || getrandom::u64().unwrap_or_default();
    let limits = Limits::of(Tier::default());
    let explained = try_rules([rule], message, now, &limits, &mut random).map_err(|rejection| {
        Failure::usage(format!("{}: {}", rejection.condition(), rejection.detail()))
    })?;
    tell(&explained, flags, &Out::new(), |_| has_action)
}

/// Prints the result of each rule. If no rule selects the message, the exit code differs.
fn tell(
    explained: &[Explanation],
    flags: &TestFlags,
    out: &Out,
    has_action: impl Fn(&Explanation) -> bool,
) -> Result<(), Failure> {
    let form = match flags.common.output {
        Output::Table => {
            let mut text = String::new();
            for one in explained {
                text.push_str(&why::shown(one, out));
                text.push('\n');
            }
            text.push_str(&why::summary(explained, has_action));
            out.print(&text)?;
            return ended(explained);
        }
        Output::Json => Form::Json,
        Output::Ndjson => Form::Ndjson,
    };
    let mut writer = Writer::new(*out, form);
    for one in explained {
        if writer.object(&explanation_to_json(one))? == WriteOutcome::OutputClosed {
            return Ok(());
        }
    }
    writer.end()?;
    ended(explained)
}

fn ended(explained: &[Explanation]) -> Result<(), Failure> {
    if explained.iter().any(why::selects) {
        return Ok(());
    }
    Err(Failure::Reported(exit::NOTHING))
}

fn parse(text: &str) -> Result<Message, Failure> {
    message_from_json(text).map_err(|error| {
        Failure::usage(format!(
            "expected a message as JSON, such as {{\"subject\": \"a\"}}: {error}"
        ))
    })
}

fn read(source: impl io::Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut source = source.take(BYTES_MAX + 1);
    source
        .read_to_string(&mut text)
        .map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(Failure::usage(format!(
            "{name} has more than {BYTES_MAX} bytes; give a smaller message"
        )));
    }
    Ok(text)
}
