//! Figures of one moment as text, in the format that Prometheus reads.
//!
//! A page is filled anew for each answer, so that a partition that was dropped is gone from it. What the log tells through
//! the `metrics` facade is taken up as well: a page is a recorder, for the thread that fills it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::histogram::Observed;
use crate::node::lock;

/// Every name begins so.
const PREFIX: &str = "laminar_";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something that only grows.
    Counter,
    /// Something that goes up and down.
    Gauge,
    /// Times.
    Histogram,
}

/// All samples of a name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    samples: Vec<Sample>,
}

#[derive(Debug)]
enum Sample {
    /// Labels as they are written, and the value.
    Whole(String, u64),
    Fraction(String, f64),
    Times(String, Observed),
    /// Set by whoever registered it.
    Told(String, Arc<AtomicU64>),
}

/// Figures of one moment.
#[derive(Debug, Default)]
pub(crate) struct Page {
    families: Mutex<BTreeMap<String, Family>>,
}

impl Page {
    /// Something that only grows.
    pub(crate) fn counter(&self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.add(name, Kind::Counter, Sample::Whole(written(labels.iter().copied()), value));
    }

    /// Something that goes up and down.
    pub(crate) fn gauge(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, Kind::Gauge, Sample::Fraction(written(labels.iter().copied()), value));
    }

    /// Times.
    pub(crate) fn times(&self, name: &str, labels: &[(&str, &str)], observed: Observed) {
        self.add(name, Kind::Histogram, Sample::Times(written(labels.iter().copied()), observed));
    }

    /// Says what a name means. It stands on the page also if there is nothing to tell yet.
    pub(crate) fn describe(&self, name: &str, kind: Kind, help: &str) {
        let family = Family { kind, help: help.to_owned(), samples: Vec::new() };
        lock(&self.families).entry(name.to_owned()).or_insert(family);
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*lock(&self.families) {
            let help = &family.help;
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            put(&mut text, format_args!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
            for sample in &family.samples {
                sample.write(name, family.kind, &mut text);
            }
        }
        text
    }

    fn add(&self, name: &str, kind: Kind, sample: Sample) {
        let mut families = lock(&self.families);
        match families.get_mut(name) {
            Some(family) => family.samples.push(sample),
            None => {
                let family = Family { kind, help: String::new(), samples: vec![sample] };
                families.insert(name.to_owned(), family);
            }
        }
    }

    /// A place that whoever registers a key sets.
    fn register(&self, key: &Key, kind: Kind) -> Arc<AtomicU64> {
        let value = Arc::new(AtomicU64::new(0));
        let labels = written(key.labels().map(|label| (label.key(), label.value())));
        self.add(key.name(), kind, Sample::Told(labels, Arc::clone(&value)));
        value
    }
}

impl Sample {
    fn write(&self, name: &str, kind: Kind, text: &mut String) {
        match self {
            Sample::Whole(labels, value) => line(text, name, labels, format_args!("{value}")),
            Sample::Fraction(labels, value) => line(text, name, labels, format_args!("{}", Float(*value))),
            Sample::Told(labels, value) => {
                let value = value.load(Ordering::Relaxed);
                match kind {
                    Kind::Counter => line(text, name, labels, format_args!("{value}")),
                    _ => line(text, name, labels, format_args!("{}", Float(f64::from_bits(value)))),
                }
            }
            Sample::Times(labels, observed) => {
                let comma = if labels.is_empty() { "" } else { "," };
                for (end, count) in &observed.buckets {
                    put(text, format_args!("{PREFIX}{name}_bucket{{{labels}{comma}le=\"{end}\"}} {count}\n"));
                }
                let count = observed.count;
                put(text, format_args!("{PREFIX}{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}\n"));
                line(text, &format!("{name}_sum"), labels, format_args!("{}", Float(observed.seconds)));
                line(text, &format!("{name}_count"), labels, format_args!("{count}"));
            }
        }
    }
}

/// A number as Prometheus writes it.
struct Float(f64);

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value == f64::INFINITY => f.write_str("+Inf"),
            value if value == f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

fn line(text: &mut String, name: &str, labels: &str, value: std::fmt::Arguments<'_>) {
    if labels.is_empty() {
        put(text, format_args!("{PREFIX}{name} {value}\n"));
    } else {
        put(text, format_args!("{PREFIX}{name}{{{labels}}} {value}\n"));
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a text takes everything");
}

/// Labels as they stand between the braces.
fn written<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

impl Recorder for Page {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(key.as_str(), Kind::Counter, &description);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(key.as_str(), Kind::Gauge, &description);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(key.as_str(), Kind::Histogram, &description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key, Kind::Counter))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key, Kind::Gauge))
    }

    /// Times are observed when they pass, not when a page is filled.
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let page = Page::default();
        page.describe("calls_total", Kind::Counter, "calls that were answered");
        page.describe("never_total", Kind::Counter, "what has not happened");
        page.counter("calls_total", &[("method", "Append"), ("outcome", "ok")], 7);
        page.counter("calls_total", &[("method", "a\\b\"c\nd")], 1);
        page.gauge("up", &[], 0.5);
        let times = crate::metrics::histogram::Histogram::default();
        times.observe(Duration::from_millis(2));
        page.times("took_seconds", &[], times.observed());
        ::metrics::with_local_recorder(&page, || {
            ::metrics::gauge!("log_term", "group" => "0").set(3.0);
            ::metrics::counter!("log_admitted").absolute(9);
        });
        let text = page.text();
        let lines: Vec<&str> = text.lines().collect();
        for expected in [
            "# HELP laminar_calls_total calls that were answered",
            "# TYPE laminar_calls_total counter",
            "# TYPE laminar_never_total counter",
            "laminar_calls_total{method=\"Append\",outcome=\"ok\"} 7",
            "laminar_calls_total{method=\"a\\\\b\\\"c\\nd\"} 1",
            "# TYPE laminar_up gauge",
            "laminar_up 0.5",
            "# TYPE laminar_took_seconds histogram",
            "laminar_took_seconds_bucket{le=\"0.001\"} 0",
            "laminar_took_seconds_bucket{le=\"0.0025\"} 1",
            "laminar_took_seconds_bucket{le=\"+Inf\"} 1",
            "laminar_took_seconds_sum 0.002",
            "laminar_took_seconds_count 1",
            "laminar_log_term{group=\"0\"} 3",
            "laminar_log_admitted 9",
        ] {
            assert!(lines.contains(&expected), "{expected} in {text}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_written_as_prometheus_names_them() {
        let shown: Vec<String> = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e15, 0.25]
            .map(|value| Float(value).to_string())
            .to_vec();
        assert_eq!(shown, ["+Inf", "-Inf", "NaN", "1000000000000000", "0.25"]);
    }
}
