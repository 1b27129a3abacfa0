//! Values that exist, that do not, and at the bounds: names, messages, rules, descriptions. No
//! value ends the access of well-behaved clients: no policy belongs to an existing entity.

use peeklock_amqp::codec::value::{Map, Raw};
use serde_json::{Value as Json, json};

use super::super::random::Random;

/// A write of this size gets no more requests. A frame may have 4 MiB.
pub const WRITE_BYTES: usize = 5 << 20;
/// More bytes than a rule may have (`rule_bytes_max`).
const RULE_BYTES: usize = 17 << 10;

pub const QUEUES: [&str; 4] = ["any-plain", "any-session", "any-detecting", ABSENT];
pub const TOPIC: &str = "any-topic";
pub const SUBSCRIPTIONS: [&str; 3] =
    ["any-topic/subscriptions/s", "any-topic/subscriptions/t", "any-topic/subscriptions/none"];
/// Queue with large messages, which are only peeked.
pub const FULL: &str = "any-full";
/// Number of those messages. Each is in memory once for all readers.
pub const FULL_MESSAGES: usize = 300;
/// A queue that nobody creates.
pub const ABSENT: &str = "any-absent";

/// Random source of values.
pub struct Values {
    pub random: Random,
}

impl Values {
    pub fn below(&mut self, below: usize) -> usize {
        self.random.below(below)
    }

    pub fn queue(&mut self) -> &'static str {
        self.random.of(&QUEUES)
    }

    pub fn subscription(&mut self) -> &'static str {
        self.random.of(&SUBSCRIPTIONS)
    }

    pub fn entity(&mut self) -> &'static str {
        if self.random.one_in(2) { self.queue() } else { self.subscription() }
    }

    /// A text of `chars_max` characters, fewer, or one more.
    pub fn text(&mut self, chars_max: usize) -> String {
        let chars = match self.below(4) {
            0 => chars_max,
            1 => chars_max + 1,
            _ => self.below(chars_max),
        };
        "n".repeat(chars)
    }

    /// Name of a new entity: one of `count`, or occasionally one of maximum length.
    pub fn name(&mut self, begin: &str, count: usize, chars_max: usize) -> String {
        let number = self.below(count);
        let name = format!("{begin}{number}");
        if self.random.one_in(16) { name + &self.text(chars_max - 8) } else { name }
    }

    /// A small message, sometimes a large one, with random properties that the broker indexes.
    pub fn message(&mut self) -> Json {
        let bytes = match self.below(200) {
            0 => 900_000,
            1..8 => 30_000,
            _ => self.below(40),
        };
        let mut message = json!({ "body": "x".repeat(bytes) });
        if self.random.one_in(3) {
            message["sessionId"] = self.name("", 1 << 40, 128).into();
        }
        if self.random.one_in(3) {
            message["messageId"] = self.name("", 1 << 40, 128).into();
        }
        if self.random.one_in(10) {
            message["scheduledEnqueueTimeUtc"] = "2100-01-01T00:00:00Z".into();
        }
        if self.random.one_in(10) {
            message["applicationProperties"] = json!({ "p": "a".repeat(self.below(3_000)) });
        }
        message
    }

    pub fn messages(&mut self) -> Vec<Json> {
        if self.random.one_in(20) {
            let message = self.message();
            let bytes = message.to_string().len();
            let count = (WRITE_BYTES / bytes).min(4_096);
            return vec![message; count];
        }
        (0..self.below(4)).map(|_| self.message()).collect()
    }

    /// A rule of any kind, up to and over the limits of rules.
    pub fn rule(&mut self) -> Json {
        let mut filter = match self.below(7) {
            0 => {
                json!({ "type": "sql", "sql": format!("p LIKE '%{}b%'", "a".repeat(self.below(900))) })
            }
            1 => json!({ "type": "sql", "sql": "p = 1 OR ".repeat(self.below(60)) + "q = 2" }),
            2 => json!({ "type": "correlation", "properties": self.properties() }),
            3 => json!({ "type": "correlation", "subject": self.text(128), "to": self.text(128) }),
            4 => json!({ "type": "false" }),
            5 => json!({ "type": "true" }),
            _ => json!({ "type": "sql", "sql": "1 = 1" }),
        };
        if filter["type"] == "sql" && self.random.one_in(4) {
            filter["parameters"] = self.properties();
        }
        let mut rule = json!({ "name": self.name("r", 400, 50), "filter": filter });
        if self.random.one_in(8) {
            rule["action"] = json!({ "sql": format!("SET q = '{}'", self.text(900)) });
        }
        rule
    }

    /// Many small properties, or a large one.
    fn properties(&mut self) -> Json {
        let (count, bytes) = match self.below(4) {
            0 => (self.below(300), 20),
            1 => (1, RULE_BYTES),
            _ => (1 + self.below(8), self.below(200)),
        };
        let property = |number: usize| (format!("p{number}"), Json::from("v".repeat(bytes)));
        Json::Object((0..count).map(property).collect())
    }

    /// Properties of a queue or subscription, or of a topic.
    pub fn description(&mut self, is_topic: bool) -> Json {
        let mut properties = json!({});
        match self.below(6) {
            0 if !is_topic => properties["requiresSession"] = true.into(),
            1 if is_topic => properties["requiresDuplicateDetection"] = true.into(),
            2 if !is_topic => properties["maxDeliveryCount"] = (1 + self.below(3_000)).into(),
            3 => properties["defaultMessageTimeToLive"] = "PT1M".into(),
            4 => properties["userMetadata"] = self.text(1_024).into(),
            5 if !is_topic => properties["forwardTo"] = self.queue().into(),
            _ => {}
        }
        properties
    }

    /// Path and properties of a queue.
    pub fn new_queue(&mut self) -> (String, Json) {
        let is = |name: &str| json!({ name: true });
        match self.below(4) {
            0 => (QUEUES[0].to_owned(), json!({})),
            1 => (QUEUES[1].to_owned(), is("requiresSession")),
            2 => (QUEUES[2].to_owned(), is("requiresDuplicateDetection")),
            _ => (self.name("any-", 400, 260), self.description(false)),
        }
    }

    /// Path of a topic, usually not the shared topic.
    pub fn new_topic(&mut self) -> String {
        if self.random.one_in(8) { TOPIC.to_owned() } else { self.name("any-topic-", 30, 260) }
    }

    pub fn declaration(&mut self) -> Json {
        let queues: Vec<Json> = (0..self.below(20))
            .map(|_| {
                let (path, properties) = self.new_queue();
                json!({ "path": path, "properties": properties })
            })
            .collect();
        let rules: Vec<Json> = (0..self.below(20)).map(|_| self.rule()).collect();
        let subscription = json!({ "name": self.name("u", 30, 50), "rules": rules });
        let topic = json!({ "path": self.new_topic(), "subscriptions": [subscription] });
        let (keeps, deletes) = (self.random.one_in(2), self.random.one_in(4));
        json!({
            "queues": queues, "topics": [topic], "keepExisting": keeps, "deleteUnnamed": deletes,
        })
    }

    pub fn numbers(&mut self) -> Vec<usize> {
        let count = if self.random.one_in(20) { 4_096 } else { self.below(4) };
        (0..count).map(|_| 1 + self.below(2_000)).collect()
    }

    /// An act on messages by number.
    pub fn act(&mut self) -> Json {
        let deed = match self.below(6) {
            0 => json!({ "delete": {} }),
            4 => json!({ "resubmit": { "edit": self.edit() } }),
            5 => json!({ "move": { "to": self.name("q", 30, 300), "edit": self.edit() } }),
            1 => json!({ "deadLetter": { "reason": self.name("r", 20, 4096) } }),
            2 => json!({ "undefer": {} }),
            _ => json!({ "reschedule": { "later": "PT1H" } }),
        };
        json!({ "sequenceNumbers": self.numbers(), "deed": deed })
    }

    /// Kind of a finding.
    pub fn finding(&mut self) -> &'static str {
        match self.below(3) {
            0 => "nearlyFull",
            1 => "deadLettersUnread",
            _ => "diskNearlyFull",
        }
    }

    /// Changes of each message of a job.
    fn edit(&mut self) -> Json {
        match self.below(5) {
            0 => json!({}),
            3 => json!({ "body": self.text(20_000) }),
            4 => {
                json!({ "mergePatch": format!("{{\"a\":{}}}", self.below(9)), "subject": self.text(9) })
            }
            1 => json!({ "set": { "p": self.text(9_000) }, "remove": [self.name("r", 9, 200)] }),
            _ => json!({ "newMessageId": true, "subject": null, "timeToLive": "PT1H" }),
        }
    }

    /// A job on listed messages, or on messages that meet conditions.
    pub fn job(&mut self) -> Json {
        let deed = self.act()["deed"].clone();
        let rate = self.below(12_000);
        let mut job = json!({ "deed": deed, "rate": rate, "trial": self.below(9) });
        match self.random.one_in(2) {
            true => job["sequenceNumbers"] = json!(self.numbers()),
            false => job["where"] = json!(self.text(300)),
        }
        job
    }

    /// Ranges that each cover one delivery, some, or more than are allowed.
    pub fn ranges(&mut self) -> Vec<[usize; 2]> {
        let behind = match self.below(4) {
            0 => 5_000,
            1 => self.below(40),
            _ => 0,
        };
        self.numbers().into_iter().map(|number| [number, number + behind]).collect()
    }
}

/// Encodes `count` changes of properties in as few bytes as possible. Properties without a name
/// cannot be changed, and the last of those has a wrong type for its name.
pub fn changes(count: usize, are_named: bool) -> Map {
    const NULL: u8 = 0x40;
    const SYMBOL: u8 = 0xa3;
    const MAP: u8 = 0xd1;

    let mut entries = Vec::new();
    for number in 0..count {
        let name = if are_named { number.to_string() } else { String::new() };
        match are_named || number + 1 < count {
            true => entries.extend([SYMBOL, u8::try_from(name.len()).unwrap()]),
            false => entries.push(NULL),
        }
        entries.extend(name.into_bytes());
        entries.push(NULL);
    }
    let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let raw = Raw::encoded(|bytes| {
        bytes.push(MAP);
        bytes.extend(length(entries.len() + 4));
        bytes.extend(length(2 * count));
        bytes.extend(entries);
    });
    Map::from_raw(raw).unwrap()
}
