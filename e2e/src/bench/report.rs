//! A figure with all that is needed to judge it: its limit on the same machine in the same run, what it took, and what
//! was checked before it is shown.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::usage::{Usage, load};

/// What one bench found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub bench: &'static str,
    /// What is counted.
    pub unit: &'static str,
    pub count: u64,
    pub seconds: f64,
    pub per_second: f64,
    /// What the same machine does without the product, and what exactly was measured for it.
    pub limit_per_second: f64,
    pub limit_is: &'static str,
    pub ratio: f64,
    pub latencies: Vec<Latency>,
    /// Processor seconds for a thousand.
    pub cpu_per_thousand: BTreeMap<String, f64>,
    /// Megabytes of our own processes at the end.
    pub resident_mb: BTreeMap<String, f64>,
    /// What was found true before the figures were shown.
    pub checked: Vec<String>,
    pub machine: Machine,
}

/// Times between two events, under an arrival rate that does not depend on the answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    pub from_to: &'static str,
    pub arrivals_per_second: f64,
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Processor seconds of all groups for a thousand at this rate: smaller batches than at the highest one.
    pub cpu_per_thousand: BTreeMap<String, f64>,
    pub floor: Option<Floor>,
}

/// The least that it could take on the same machine in the same run, and what exactly was measured for it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    pub ms: f64,
    pub is: &'static str,
}

/// How the machine was, so that figures of two runs can be compared.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub processors: usize,
    /// Of the minute before.
    pub load_before: f64,
    /// Median of writing and syncing 8 kB where the servers keep their data.
    pub sync_ms: f64,
    /// Processors that others kept busy while we measured.
    pub others: f64,
}

impl Report {
    /// A rate and its limit.
    pub(crate) fn new(
        bench: &'static str,
        unit: &'static str,
        rate: Rate,
        limit: (f64, &'static str),
        usage: Usage,
        mut machine: Machine,
    ) -> Report {
        let thousands = rate.count as f64 / 1_000.0;
        machine.others = usage.others / usage.seconds;
        Report {
            bench,
            unit,
            count: rate.count,
            seconds: rate.seconds,
            per_second: rate.per_second(),
            limit_per_second: limit.0,
            limit_is: limit.1,
            ratio: rate.per_second() / limit.0,
            latencies: Vec::new(),
            cpu_per_thousand: usage.cpu_per(thousands),
            resident_mb: usage.resident,
            checked: Vec::new(),
            machine,
        }
    }
}

/// So many in so much time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Rate {
    pub(crate) fn per_second(self) -> f64 {
        self.count as f64 / self.seconds
    }
}

impl Latency {
    pub(crate) fn of(
        from_to: &'static str,
        arrivals_per_second: f64,
        times: impl IntoIterator<Item = Duration>,
    ) -> anyhow::Result<Latency> {
        // A minute in microseconds, to three digits.
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
        for time in times {
            histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
        let (count, max_ms) = (histogram.len(), histogram.max() as f64 / 1_000.0);
        Ok(Latency {
            from_to,
            arrivals_per_second,
            count,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms,
            cpu_per_thousand: BTreeMap::new(),
            floor: None,
        })
    }

    pub(crate) fn beside(self, floor: Floor) -> Latency {
        Latency { floor: Some(floor), ..self }
    }
}

impl Machine {
    /// Looks at the machine before anything is measured. `directory` is where the servers keep their data.
    pub(crate) fn look(directory: &Path) -> anyhow::Result<Machine> {
        let processors = available_parallelism()?.get();
        Ok(Machine { processors, load_before: load(), sync_ms: sync_ms(directory)?, others: 0.0 })
    }
}

fn sync_ms(directory: &Path) -> anyhow::Result<f64> {
    let path = directory.join("sync");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let begin = Instant::now();
        file.write_all(&[0; 8192])?;
        file.sync_data()?;
        times.push(begin.elapsed());
    }
    std::fs::remove_file(path)?;
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1_000.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { bench, unit, .. } = self;
        writeln!(f, "bench {bench}: {:.0} {unit}/s   ({} in {:.2} s)", self.per_second, self.count, self.seconds)?;
        writeln!(f, "  limit    {:.0} {unit}/s   {}", self.limit_per_second, self.limit_is)?;
        writeln!(f, "  ratio    {:.2}", self.ratio)?;
        for latency in &self.latencies {
            let Latency { from_to, arrivals_per_second, count, p50_ms, p99_ms, max_ms, cpu_per_thousand, floor } =
                latency;
            let when = format!("at {arrivals_per_second:.0} {unit}/s, {count} of them");
            writeln!(f, "  latency  p50 {p50_ms:.1} ms, p99 {p99_ms:.1} ms, max {max_ms:.1} ms   {from_to}, {when}")?;
            if !cpu_per_thousand.is_empty() {
                writeln!(f, "           at this rate {}", cpu(cpu_per_thousand, unit))?;
            }
            if let Some(Floor { ms, is }) = floor {
                writeln!(f, "    floor  {ms:.1} ms   {is}")?;
            }
        }
        writeln!(f, "  cpu      {}", cpu(&self.cpu_per_thousand, unit))?;
        writeln!(f, "  memory   MB resident: {}", list(&self.resident_mb, 0))?;
        for checked in &self.checked {
            writeln!(f, "  checked  {checked}")?;
        }
        let Machine { processors, load_before, sync_ms, others } = &self.machine;
        write!(
            f,
            "  machine  {processors} processors, load {load_before:.2} before, {others:.2} of them busy with others, "
        )?;
        writeln!(f, "a sync takes {sync_ms:.2} ms")
    }
}

fn cpu(by_group: &BTreeMap<String, f64>, unit: &str) -> String {
    let sum: f64 = by_group.values().sum();
    format!("{sum:.2} s per 1,000 {unit}: {}", list(by_group, 3))
}

fn list(values: &BTreeMap<String, f64>, digits: usize) -> String {
    values.iter().map(|(name, value)| format!("{name} {value:.digits$}")).collect::<Vec<_>>().join(", ")
}
