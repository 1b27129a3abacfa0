//! The forms of `topology.rs` for the JSON API (CON-40). An export is written part by part, so that
//! it needs no memory for the whole namespace.

use std::path::Path;

use peeklock::http::{DeclarationText, DeclaredPart, ReadDeclaration};
use serde::Serialize;

use super::entity::{QueueDeclaration, SubscriptionDeclaration, TopicDeclaration};
use super::rule::RuleDeclaration;
use super::topology::{HEAD, Topology, TopologyFile};

/// Name of the text in errors.
const NAME: &str = "file";

/// Reads and writes the files of `peeklock apply` and `peeklock export`.
pub struct TopologyText;

/// `[[topics.subscriptions]]`, of the last topic of the document.
#[derive(Serialize)]
struct InTopic<T> {
    topics: T,
}

#[derive(Serialize)]
struct Subscriptions<T> {
    subscriptions: T,
}

#[derive(Serialize)]
struct Rules {
    rules: [RuleDeclaration; 1],
}

impl DeclarationText for TopologyText {
    fn read(&self, text: &str) -> Result<ReadDeclaration, String> {
        let mut file =
            TopologyFile::of_text(Path::new(NAME), text).map_err(|fault| fault.to_string())?;
        Ok(ReadDeclaration {
            declaration: std::mem::take(&mut file.declaration),
            notes: std::mem::take(&mut file.notes),
            reason_to_keep: file.reason_to_keep(),
            place_of: Box::new(move |said| file.found_place(said)),
        })
    }

    fn write(&self, part: &DeclaredPart<'_>) -> Result<String, String> {
        let text = match part {
            DeclaredPart::Head => return Ok(format!("{HEAD}\nunnamed_is_default = true\n")),
            DeclaredPart::Queue(queue) => {
                let mut topology = Topology::default();
                topology.queues.push(QueueDeclaration::from(*queue));
                topology.part_text()
            }
            DeclaredPart::Topic(topic) => {
                let mut topology = Topology::default();
                topology.topics.push(TopicDeclaration::of(topic, Vec::new()));
                topology.part_text()
            }
            DeclaredPart::Subscription { subscription, has_rules } => {
                let declared = SubscriptionDeclaration::without_rules(subscription);
                let topics = Subscriptions { subscriptions: [declared] };
                let text = toml::to_string(&InTopic { topics });
                // The list of rules follows, or the subscription has none.
                text.map(|text| if *has_rules { text } else { with_no_rules(&text) })
            }
            DeclaredPart::Rule(rule) => {
                let subscriptions = Rules { rules: [RuleDeclaration::from(*rule)] };
                toml::to_string(&InTopic { topics: Subscriptions { subscriptions } })
            }
        };
        text.map(|text| format!("\n{text}")).map_err(|error| error.to_string())
    }
}

/// Adds an empty list of rules after the head of a subscription: its values come before tables.
fn with_no_rules(text: &str) -> String {
    match text.split_once('\n') {
        Some((head, rest)) => format!("{head}\nrules = []\n{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use peeklock::description::Settings;
    use peeklock::message::Value;
    use peeklock::rule::{CorrelationFilter, Filter, RuleDescription};
    use peeklock::time::Timestamp;

    use super::*;

    /// CON-40, DEC-17: the texts of the parts are one document, which declares the same as the file
    /// of `peeklock export`.
    #[test]
    fn parts_are_one_document() {
        let settings = Settings::default();
        let (queue, topic) = (settings.new_queue("it's \"a\""), settings.new_topic("t"));
        let [some, none] = ["s", "none"].map(|name| settings.new_subscription("t", name));
        let correlation = CorrelationFilter {
            properties: vec![("a".into(), Value::I64(1))],
            ..Default::default()
        };
        let rules = [Filter::sql("a = 'b'"), Filter::Correlation(correlation), Filter::True];
        let rules = rules.into_iter().enumerate().map(|(index, filter)| {
            RuleDescription::new(format!("r{index}"), filter, Timestamp::NONE)
        });
        let rules: Vec<_> = rules.collect();
        let subscription =
            |subscription, has_rules| DeclaredPart::Subscription { subscription, has_rules };
        let mut parts = vec![
            DeclaredPart::Head,
            DeclaredPart::Queue(&queue),
            DeclaredPart::Topic(&topic),
            subscription(&none, false),
            subscription(&some, true),
        ];
        parts.extend(rules.iter().map(DeclaredPart::Rule));
        let texts = parts.iter().map(|part| TopologyText.write(part).unwrap());
        let read = TopologyText.read(&texts.collect::<String>()).unwrap();

        let mut whole = Topology::default();
        whole.queues.push(QueueDeclaration::from(&queue));
        let below =
            [SubscriptionDeclaration::of(&none, &[]), SubscriptionDeclaration::of(&some, &rules)];
        whole.topics.push(TopicDeclaration::of(&topic, below.into()));
        let expected = TopologyText.read(&whole.text().unwrap()).unwrap();
        assert_eq!(read.declaration, expected.declaration);
        assert_eq!(
            read.declaration.topics[0].subscriptions[1].rules.as_ref().map(Vec::len),
            Some(3)
        );
        assert_eq!(read.declaration.topics[0].subscriptions[0].rules, Some(Vec::new()));
    }

    /// CON-40, DEC-15, DEC-20: the emulator's file is recognised by its content, with its notes; an
    /// error names its member.
    #[test]
    fn emulator_file_is_recognised() {
        let file = |queue: &str| {
            let namespace = format!(r#"{{"Name": "n", "Queues": [{queue}]}}"#);
            format!("// sample\n{{\"UserConfig\": {{\"Namespaces\": [{namespace}]}}}}")
        };
        let read = TopologyText.read(&file("{\"Name\": \"q\", \"Colour\": 1}")).unwrap();
        assert_eq!(&*read.declaration.queues[0].path, "q");
        assert!(read.declaration.queues[0].cleared.forward_to);
        assert!(read.notes[0].contains("Colour is unknown"), "{:?}", read.notes);
        let place = (read.place_of)("queues[0]: no").unwrap();
        assert_eq!(place, "file: UserConfig.Namespaces[0].Queues[0]");
        let refused = TopologyText.read(&file("{\"Name\": 1}")).map(drop).unwrap_err();
        assert_eq!(refused, "file: UserConfig.Namespaces[0].Queues[0].Name: must be a text");
    }
}
