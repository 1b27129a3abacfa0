//! The process's metrics as OpenTelemetry instruments. The `metrics` facade calls the recorder.
//!
//! A counter or gauge is a number in memory, and the SDK's reader reads it when metrics are due.
//! Therefore an increment costs one addition. Only histogram samples pass through the SDK as they
//! occur.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use peeklock_core::telemetry::{COMMIT_SECONDS, COMMIT_SECONDS_BUCKETS};

/// Maximum number of series per name; handles of further series do nothing. The broker has about
/// thirty.
const SERIES_MAX: usize = 1_000;
/// Maximum number of names; handles of further names do nothing.
const NAMES_MAX: usize = 1_000;

/// Recorder for the `metrics` facade. Install it as the process's recorder, or combine it with
/// another one.
#[derive(Clone)]
pub struct OtlpRecorder {
    meter: Meter,
    instruments: Arc<Mutex<Instruments>>,
}

#[derive(Default)]
struct Instruments {
    described: HashMap<KeyName, (Option<Unit>, SharedString)>,
    counters: HashMap<KeyName, SeriesByKey>,
    gauges: HashMap<KeyName, SeriesByKey>,
    histograms: HashMap<KeyName, opentelemetry::metrics::Histogram<f64>>,
}

/// The series with the same name. The callback of its instrument reads them.
type SeriesByKey = Arc<Mutex<HashMap<Key, Series>>>;

struct Series {
    attributes: Vec<KeyValue>,
    value: Arc<AtomicU64>,
}

struct HistogramSeries {
    histogram: opentelemetry::metrics::Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl OtlpRecorder {
    pub(crate) fn new(meter: Meter) -> Self {
        Self { meter, instruments: Arc::default() }
    }

    fn describe(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        let mut instruments = lock(&self.instruments);
        if instruments.described.len() < NAMES_MAX {
            instruments.described.insert(key, (unit, description));
        }
    }
}

impl Instruments {
    /// Returns the unit and the description of a name.
    fn described(&self, name: &KeyName) -> (&'static str, String) {
        let Some((unit, description)) = self.described.get(name) else {
            return ("", String::new());
        };
        let unit = match unit {
            Some(Unit::Seconds) => "s",
            Some(Unit::Milliseconds) => "ms",
            Some(Unit::Microseconds) => "us",
            Some(Unit::Nanoseconds) => "ns",
            Some(Unit::Bytes) => "By",
            Some(Unit::Percent) => "%",
            Some(_) | None => "",
        };
        (unit, description.to_string())
    }
}

impl Recorder for OtlpRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(key, unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut instruments = lock(&self.instruments);
        let name = name_of(key);
        let (unit, description) = instruments.described(&name);
        let value = series_in(&mut instruments.counters, &name, key, |numbers| {
            self.meter
                .u64_observable_counter(name.as_str().to_owned())
                .with_unit(unit)
                .with_description(description)
                .with_callback(move |observer| {
                    for Series { attributes, value } in lock(&numbers).values() {
                        observer.observe(value.load(Ordering::Relaxed), attributes);
                    }
                })
                .build();
        });
        value.map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut instruments = lock(&self.instruments);
        let name = name_of(key);
        let (unit, description) = instruments.described(&name);
        let value = series_in(&mut instruments.gauges, &name, key, |numbers| {
            self.meter
                .f64_observable_gauge(name.as_str().to_owned())
                .with_unit(unit)
                .with_description(description)
                .with_callback(move |observer| {
                    for Series { attributes, value } in lock(&numbers).values() {
                        // The facade stores the bits of an `f64`.
                        let value = f64::from_bits(value.load(Ordering::Relaxed));
                        observer.observe(value, attributes);
                    }
                })
                .build();
        });
        value.map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut instruments = lock(&self.instruments);
        let name = name_of(key);
        let histogram = match instruments.histograms.get(&name) {
            Some(histogram) => histogram.clone(),
            None if instruments.histograms.len() >= NAMES_MAX => return Histogram::noop(),
            None => {
                let (unit, description) = instruments.described(&name);
                let mut builder = self
                    .meter
                    .f64_histogram(name.as_str().to_owned())
                    .with_unit(unit)
                    .with_description(description);
                if name.as_str() == COMMIT_SECONDS {
                    builder = builder.with_boundaries(COMMIT_SECONDS_BUCKETS.to_vec());
                }
                let histogram = builder.build();
                instruments.histograms.insert(name, histogram.clone());
                histogram
            }
        };
        Histogram::from_arc(Arc::new(HistogramSeries { histogram, attributes: attributes_of(key) }))
    }
}

impl HistogramFn for HistogramSeries {
    fn record(&self, value: f64) {
        self.histogram.record(value, &self.attributes);
    }
}

/// Returns the number of a series, and creates the instrument for the first series of a name.
/// Returns `None` over the limits.
fn series_in(
    names: &mut HashMap<KeyName, SeriesByKey>,
    name: &KeyName,
    key: &Key,
    make: impl FnOnce(SeriesByKey),
) -> Option<Arc<AtomicU64>> {
    let numbers = match names.get(name) {
        Some(numbers) => Arc::clone(numbers),
        None if names.len() >= NAMES_MAX => return None,
        None => {
            let numbers = SeriesByKey::default();
            make(Arc::clone(&numbers));
            names.insert(name.clone(), Arc::clone(&numbers));
            numbers
        }
    };
    let mut numbers = lock(&numbers);
    if let Some(number) = numbers.get(key) {
        return Some(Arc::clone(&number.value));
    }
    if numbers.len() >= SERIES_MAX {
        return None;
    }
    let value = Arc::new(AtomicU64::new(0));
    let number = Series { attributes: attributes_of(key), value: Arc::clone(&value) };
    numbers.insert(key.clone(), number);
    Some(value)
}

fn name_of(key: &Key) -> KeyName {
    key.name_shared()
}

fn attributes_of(key: &Key) -> Vec<KeyValue> {
    key.labels()
        .map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()))
        .collect()
}

/// Locks a mutex. A panic cannot leave its data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
