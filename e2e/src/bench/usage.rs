//! What a measured piece of work took of the machine: processor time and memory by process group, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::Context as _;

use crate::Servers;

/// Ticks of a second in `/proc`: part of Linux's interface, the same on every architecture.
const TICKS: f64 = 100.0;

/// The processes that are watched, by name.
pub(crate) struct Watch {
    groups: Vec<(String, i32)>,
    cpu: BTreeMap<String, f64>,
    busy: f64,
    begin: Instant,
}

/// What each group took since the watch began.
pub(crate) struct Usage {
    /// How long it was.
    pub(crate) seconds: f64,
    /// Processor seconds.
    pub(crate) cpu: BTreeMap<String, f64>,
    /// Processor seconds of everybody else on the machine.
    pub(crate) others: f64,
    /// Megabytes that are resident at the end, without those of the servers and of the bench.
    pub(crate) resident: BTreeMap<String, f64>,
}

/// The bench's own name among the groups.
const BENCH: &str = "bench client";
/// The two servers: what they hold resident is mostly cache and shared.
const SERVERS: [&str; 2] = ["PostgreSQL", "RabbitMQ"];

impl Watch {
    /// Watches both servers, the bench itself, and these processes, from now on.
    ///
    /// # Errors
    /// One of them does not run.
    pub(crate) async fn begin(servers: &Servers, processes: &[(&str, i32)]) -> anyhow::Result<Self> {
        let [postgres, broker] = [servers.postgres.pid().await, servers.broker.pid().await];
        let mut groups = vec![
            (SERVERS[0].to_owned(), postgres.context("PostgreSQL does not run")?),
            (SERVERS[1].to_owned(), broker.context("RabbitMQ does not run")?),
        ];
        groups.extend(processes.iter().map(|(name, pid)| ((*name).to_owned(), *pid)));
        let cpu = cpu(&groups)?;
        Ok(Watch { groups, cpu, busy: busy()?, begin: Instant::now() })
    }

    /// What was taken until now.
    ///
    /// # Errors
    /// A process has ended.
    pub(crate) fn end(self) -> anyhow::Result<Usage> {
        let mut used = cpu(&self.groups)?;
        let (busy, seconds) = (busy()? - self.busy, self.begin.elapsed().as_secs_f64());
        for (name, used) in &mut used {
            *used -= self.cpu.get(name).copied().unwrap_or_default();
        }
        let others = (busy - used.values().sum::<f64>()).max(0.0);
        let ours = self.groups.iter().filter(|(name, _)| !SERVERS.contains(&name.as_str()));
        let resident =
            ours.map(|(name, pid)| resident(*pid).map(|size| (name.clone(), size))).collect::<Result<_, _>>()?;
        Ok(Usage { seconds, cpu: used, others, resident })
    }
}

impl Usage {
    /// Processor seconds for each of so many.
    pub(crate) fn cpu_per(&self, count: f64) -> BTreeMap<String, f64> {
        self.cpu.iter().map(|(name, seconds)| (name.clone(), seconds / count)).collect()
    }
}

fn cpu(groups: &[(String, i32)]) -> anyhow::Result<BTreeMap<String, f64>> {
    let parents = parents();
    let mut seconds = BTreeMap::from([(BENCH.to_owned(), own(&stat("self")?))]);
    for (name, root) in groups {
        let fields = stat(&root.to_string())?;
        // Sessions that have ended are counted with whoever waited for them.
        let mut sum = own(&fields) + ticks(&fields, 13) + ticks(&fields, 14);
        let mut generation = vec![*root];
        while let Some(parent) = generation.pop() {
            for child in parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid) {
                // One that ends at this moment is missed, or counted with its parent.
                sum += stat(&child.to_string()).map_or(0.0, |fields| own(&fields));
                generation.push(child);
            }
        }
        seconds.insert(name.clone(), sum);
    }
    Ok(seconds)
}

/// The parent of each process.
fn parents() -> BTreeMap<i32, i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, stat(&pid.to_string()).ok()?.get(1)?.parse().ok()?))
    })
    .collect()
}

/// The fields of a process behind its name, from its state on.
fn stat(pid: &str) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} has ended"))?;
    let (_, fields) = text.rsplit_once(')').context("a name in parentheses")?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

fn own(fields: &[String]) -> f64 {
    ticks(fields, 11) + ticks(fields, 12)
}

fn ticks(fields: &[String], index: usize) -> f64 {
    fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default() / TICKS
}

/// Seconds that all processors were busy since the machine's start, with what the host took away.
fn busy() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let fields: Vec<String> = text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // user, nice, system; then idle and waiting; then interrupts and what is stolen.
    Ok([1, 2, 3, 6, 7, 8].iter().map(|index| ticks(&fields, *index)).sum())
}

/// Megabytes.
fn resident(pid: i32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a running process has memory")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes / 1024.0)
}

/// The load of the last minute, as the kernel averages it.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or_default()
}
