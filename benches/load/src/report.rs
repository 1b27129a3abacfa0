//! The report of a load: one row for each figure, as a table for people or as JSON for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::latency::Summary;

/// Length of the longest bar of a histogram, in characters.
const BAR_CHARS: u64 = 40;

/// Figures in the order in which they are shown.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
}

struct Row {
    /// The name in JSON, with its unit.
    key: &'static str,
    /// The name in the table.
    label: String,
    figure: Figure,
}

enum Figure {
    Text(String),
    Count(u64),
    Rate(f64),
    Ratio(f64),
    Seconds(f64),
    Milliseconds(Duration),
    Bytes(u64),
    Latency(Summary),
    Unknown,
}

impl Report {
    /// Adds a text.
    pub fn text(&mut self, key: &'static str, label: &str, text: String) {
        self.row(key, label, Figure::Text(text));
    }

    /// Adds a number.
    pub fn count(&mut self, key: &'static str, label: &str, count: u64) {
        self.row(key, label, Figure::Count(count));
    }

    /// Adds a rate per second; returns it.
    pub fn rate(&mut self, key: &'static str, label: &str, count: u64, elapsed: Duration) -> f64 {
        let rate = rate(count, elapsed);
        self.row(key, label, Figure::Rate(rate));
        rate
    }

    /// Adds a ratio.
    pub fn ratio(&mut self, key: &'static str, label: &str, ratio: f64) {
        self.row(key, label, Figure::Ratio(ratio));
    }

    /// Adds a time in seconds.
    pub fn seconds(&mut self, key: &'static str, label: &str, time: Duration) {
        self.row(key, label, Figure::Seconds(time.as_secs_f64()));
    }

    /// Adds a time in milliseconds.
    pub fn milliseconds(&mut self, key: &'static str, label: &str, time: Duration) {
        self.row(key, label, Figure::Milliseconds(time));
    }

    /// Adds a size.
    pub fn bytes(&mut self, key: &'static str, label: &str, bytes: u64) {
        self.row(key, label, Figure::Bytes(bytes));
    }

    /// Adds a size, or that it is unknown.
    pub fn bytes_if_known(&mut self, key: &'static str, label: &str, bytes: Option<u64>) {
        self.row(key, label, bytes.map_or(Figure::Unknown, Figure::Bytes));
    }

    /// Adds CPU time per million units, or that it is unknown.
    pub fn cpu_per_million(
        &mut self,
        key: &'static str,
        label: &str,
        count: u64,
        cpu: Option<Duration>,
    ) {
        let per_million =
            cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / rate(count, Duration::from_secs(1)).max(1.0));
        self.row(key, label, per_million.map_or(Figure::Unknown, Figure::Seconds));
    }

    /// Adds a histogram, unless it is empty.
    pub fn latency(&mut self, key: &'static str, label: &str, latency: Summary) {
        if latency.count > 0 {
            self.row(key, label, Figure::Latency(latency));
        }
    }

    fn row(&mut self, key: &'static str, label: &str, figure: Figure) {
        self.rows.push(Row { key, label: label.to_owned(), figure });
    }

    /// The report as one JSON object.
    pub fn json(&self) -> String {
        let members = self.rows.iter().map(|row| (row.key.to_owned(), row.figure.json()));
        let object = Value::Object(members.collect::<Map<_, _>>());
        format!("{object:#}\n")
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for Row { label, figure, .. } in &self.rows {
            // Writing into a string cannot fail.
            writeln!(text, "  {label:<34}{:>16}", figure.short()).unwrap_or_default();
            if let Figure::Latency(summary) = figure {
                write_steps(&mut text, summary);
            }
        }
        text
    }
}

impl Figure {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) | Self::Bytes(count) => json!(count),
            Self::Rate(rate) => json!((rate * 10.0).round() / 10.0),
            Self::Ratio(ratio) => json!(ratio),
            Self::Seconds(seconds) => json!(seconds),
            Self::Milliseconds(time) => json!(time.as_secs_f64() * 1e3),
            Self::Latency(summary) => {
                let us = |time: Duration| time.as_secs_f64() * 1e6;
                let step = |(below, count): &(Duration, u64)| json!({"below_us": us(*below), "count": count});
                json!({
                    "count": summary.count,
                    "p50_us": us(summary.p50),
                    "p99_us": us(summary.p99),
                    "p99_9_us": us(summary.p99_9),
                    "max_us": us(summary.max),
                    "histogram": summary.steps.iter().map(step).collect::<Vec<_>>(),
                })
            }
            Self::Unknown => Value::Null,
        }
    }

    fn short(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Rate(rate) => format!("{rate:.0}/s"),
            Self::Ratio(ratio) => format!("{ratio:.2}"),
            Self::Seconds(seconds) => format!("{seconds:.2} s"),
            Self::Milliseconds(time) => format!("{:.1} ms", time.as_secs_f64() * 1e3),
            Self::Bytes(bytes) if *bytes >= 10 << 20 => format!("{} MiB", bytes >> 20),
            Self::Bytes(bytes) if *bytes >= 10 << 10 => format!("{} KiB", bytes >> 10),
            Self::Bytes(bytes) => format!("{bytes} B"),
            Self::Latency(summary) => format!(
                "p50 {}, p99 {}, p99.9 {}, max {}",
                spoken(summary.p50),
                spoken(summary.p99),
                spoken(summary.p99_9),
                spoken(summary.max)
            ),
            Self::Unknown => "not known".to_owned(),
        }
    }
}

/// The histogram as bars.
fn write_steps(text: &mut String, summary: &Summary) {
    let most = summary.steps.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    for (below, count) in &summary.steps {
        // Each non-empty step has a bar.
        let chars = (count * BAR_CHARS).div_ceil(most);
        let bar = "#".repeat(usize::try_from(chars).unwrap_or(0));
        writeln!(text, "    below {:>8} {count:>9} {bar}", spoken(*below)).unwrap_or_default();
    }
}

/// A time with three digits.
fn spoken(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        ..1e4 => format!("{us:.0} us"),
        1e4..1e7 => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.0} s", us / 1e6),
    }
}

/// Units per second.
pub fn rate(count: u64, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate is no exact number")]
    let count = count as f64;
    count / elapsed.as_secs_f64().max(1e-9)
}

/// The ratio of two numbers.
#[expect(clippy::cast_precision_loss, reason = "a ratio is no exact number")]
pub fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}
