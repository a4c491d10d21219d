//! Doing a fault and taking it back, and what shows that it happened: a fault without evidence proves nothing.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::{sleep, sleep_until};

use super::fault::{Fault, Id, Server};
use super::history::History;
use super::plan::Scheduled;
use super::spy::Spy;
use super::world::World;
use crate::eventually::{State, eventually};
use crate::shop::{Act, Part};
use crate::stack::Service;

/// What another lane has broken is whole again by then.
const WHOLE_WITHIN: Duration = Duration::from_secs(90);
/// What shows at once, on a busy machine.
const SEEN_WITHIN: Duration = Duration::from_secs(20);
const SLOW_ANSWER_MS: u32 = 700;

/// A fault that is over.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    pub fault: Fault,
    /// Seconds since the load began.
    pub began: f64,
    pub ended: f64,
    /// What shows that it happened; without it, why there is nothing.
    pub evidence: Result<String, String>,
}

/// What the faults work on.
#[derive(Clone, Copy)]
pub(super) struct Hand<'a> {
    pub(super) world: &'a World,
    pub(super) spy: &'a Spy,
    pub(super) history: &'a History,
    pub(super) say: &'a dyn Fn(String),
}

impl Hand<'_> {
    /// One fault after the other, each when its time has come.
    pub(super) async fn play(&self, lane: &[Scheduled]) -> anyhow::Result<Vec<Done>> {
        let mut all = Vec::new();
        for Scheduled { at, lasts, fault } in lane {
            sleep_until(self.history.began() + *at).await;
            let began = self.history.now();
            self.history.note("fault", &json!({"begins": fault.to_string()}));
            let evidence = self.inflict(*fault, *lasts).await.with_context(|| fault.to_string())?;
            let done = Done { fault: *fault, began, ended: self.history.now(), evidence };
            self.history.note("fault", &json!({"ends": fault.to_string(), "evidence": done.evidence}));
            let seen = done.evidence.as_ref().unwrap_or_else(|why| why);
            (self.say)(format!("{began:6.1} s  {fault}, for {:.1} s: {seen}", done.ended - began));
            all.push(done);
        }
        Ok(all)
    }

    /// Does it, waits, takes it back. An error is one that leaves the shop broken.
    async fn inflict(&self, fault: Fault, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        match fault {
            Fault::Kill(part) => self.kill(part, lasts).await,
            Fault::Freeze(part) => self.freeze(part, lasts).await,
            Fault::Stop(server) => self.stop(server, lasts).await,
            Fault::Alarm => self.alarm(lasts).await,
            Fault::Connections => self.close_connections().await,
            Fault::ReadOnly => self.read_only(lasts).await,
            Fault::Sessions => self.kill_sessions().await,
            Fault::Slow(service, server, delay) => {
                let line = self.world.line(service, server)?;
                let before = line.disturbed();
                let delay = Duration::from_millis(delay.into());
                line.delay(delay, delay);
                let seen = self.traffic(lasts, || line.disturbed() - before, "pieces delayed").await;
                line.heal();
                Ok(seen)
            }
            Fault::Silent(service, server) => {
                let line = self.world.line(service, server)?;
                let before = line.disturbed();
                line.swallow();
                let seen = self.traffic(lasts, || line.disturbed() - before, "pieces swallowed").await;
                // What was held back is lost with its connections: passed on in the end, it would only be late.
                line.cut();
                eventually(SEEN_WITHIN, "its connections are gone", async || {
                    let open = line.open();
                    Ok(if open == 0 { State::Reached(()) } else { State::pending(open) })
                })
                .await?;
                line.heal();
                Ok(seen)
            }
            Fault::Cut(service, server) => {
                let line = self.world.line(service, server)?;
                let seen = self.traffic(Duration::ZERO, || line.open(), "connections closed").await;
                line.cut();
                sleep(lasts).await;
                line.heal();
                Ok(seen)
            }
            Fault::Again(id) => self.say_again(id).await,
            Fault::Reorder(service) => self.reorder(service, lasts).await,
            Fault::Switch(name, share) => self.switch(name, share, lasts).await,
        }
    }

    /// Waits, and longer where nothing has come along: another lane may have stopped whoever would.
    async fn traffic(&self, lasts: Duration, count: impl Fn() -> usize, what: &str) -> Result<String, String> {
        sleep(lasts).await;
        let seen = eventually(WHOLE_WITHIN, what, async || {
            let count = count();
            Ok(if count > 0 { State::Reached(format!("{count} {what}")) } else { State::pending(count) })
        });
        seen.await.map_err(|error| format!("{error:#}"))
    }

    async fn kill(&self, part: Part, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let before = self.strike(part, Act::Kill).await?;
        sleep(lasts).await;
        self.start(part).await?;
        Ok(self.is_another(part, Some(before)).await)
    }

    /// Kills or freezes a part, and returns what its pid was. Another lane may be just starting it.
    async fn strike(&self, part: Part, act: Act) -> anyhow::Result<i32> {
        eventually(WHOLE_WITHIN, &format!("{part} runs"), async || {
            let pid = self.world.pid(part).await.context("it does not run")?;
            self.world.shop.act(part, act).await?;
            Ok(State::Reached(pid))
        })
        .await
    }

    async fn stop(&self, server: Server, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let (part, servers) = (server.part(), &self.world.servers);
        let before = self.world.pid(part).await;
        match server {
            Server::Broker => servers.broker.stop().await?,
            Server::Database => servers.postgres.stop().await?,
        }
        sleep(lasts).await;
        self.start(part).await?;
        Ok(self.is_another(part, before).await)
    }

    /// A service is ready when its servers are: they may be away for longer than its start is waited for.
    async fn start(&self, part: Part) -> anyhow::Result<()> {
        let start = async || self.world.shop.act(part, Act::Start).await.map(State::Reached);
        eventually(WHOLE_WITHIN, &format!("{part} is back"), start).await
    }

    async fn is_another(&self, part: Part, before: Option<i32>) -> Result<String, String> {
        match (before, self.world.pid(part).await) {
            (Some(before), Some(after)) if before != after => Ok(format!("pid {before} became {after}")),
            pids => Err(format!("its pid is the same, {pids:?}")),
        }
    }

    async fn freeze(&self, part: Part, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let stat = format!("/proc/{}/stat", self.strike(part, Act::Freeze).await?);
        let seen = eventually(SEEN_WITHIN, "the kernel calls it stopped", async || {
            let stat = fs::read_to_string(&stat)?;
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            Ok(if state == Some('T') { State::Reached(()) } else { State::pending(state) })
        });
        let seen = seen.await.map(|()| "the kernel calls it stopped".to_owned()).map_err(|error| format!("{error:#}"));
        sleep(lasts).await;
        let thaw = async || self.world.shop.act(part, Act::Thaw).await.map(State::Reached);
        eventually(WHOLE_WITHIN, &format!("{part} goes on"), thaw).await?;
        Ok(seen)
    }

    async fn alarm(&self, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        self.world.servers.broker.lack_memory().await?;
        let page = format!("{}/api/health/checks/alarms", self.world.stack.broker_page());
        let seen = eventually(SEEN_WITHIN, "the broker is in alarm", async || {
            let status = reqwest::Client::builder().no_proxy().build()?.get(&page).send().await?.status().as_u16();
            Ok(if status == 503 { State::Reached(()) } else { State::pending(status) })
        });
        let seen = seen.await.map(|()| "the broker says so".to_owned()).map_err(|error| format!("{error:#}"));
        sleep(lasts).await;
        self.world.servers.broker.have_memory().await?;
        Ok(seen)
    }

    async fn close_connections(&self) -> anyhow::Result<Result<String, String>> {
        let vhost = &self.world.stack.vhost;
        let list = format!("vhosts/{}/connections", vhost.name());
        let names = async || -> anyhow::Result<Vec<String>> {
            let all = vhost.call(Method::GET, &list, None).await?;
            let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(all.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect())
        };
        let seen = eventually(SEEN_WITHIN, "there are connections", async || {
            let names = names().await?;
            Ok(if names.is_empty() { State::pending("none") } else { State::Reached(names) })
        });
        let Ok(before) = seen.await else { return Ok(Err("the broker tells of no connection".to_owned())) };
        for name in &before {
            // One that has ended meanwhile is no harm.
            let _ = vhost.call(Method::DELETE, &format!("connections/{name}"), None).await;
        }
        let gone = eventually(SEEN_WITHIN, "they are gone", async || {
            let left = names().await?.iter().filter(|name| before.contains(name)).count();
            Ok(if left == 0 { State::Reached(()) } else { State::pending(left) })
        });
        Ok(gone.await.map(|()| format!("{} connections closed", before.len())).map_err(|error| format!("{error:#}")))
    }

    /// A session on another database of the server, which no fault of ours strikes.
    async fn administrator(&self) -> anyhow::Result<PgConnection> {
        Ok(self.world.servers.coordinates().superuser("postgres").connect().await?)
    }

    async fn end_sessions(&self, administrator: &mut PgConnection) -> anyhow::Result<i64> {
        let sql = "select count(*) from (select pg_terminate_backend(pid) as ended from pg_stat_activity
                   where usename like '%\\_service' and datname = $1) as sessions where ended";
        Ok(sqlx::query_scalar(sql).bind(self.world.stack.database.name()).fetch_one(administrator).await?)
    }

    async fn kill_sessions(&self) -> anyhow::Result<Result<String, String>> {
        let mut administrator = self.administrator().await?;
        let ended = self.end_sessions(&mut administrator).await?;
        Ok(if ended > 0 { Ok(format!("{ended} sessions ended")) } else { Err("there was no session".to_owned()) })
    }

    async fn read_only(&self, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let mut administrator = self.administrator().await?;
        let database = self.world.stack.database.name();
        let set = |value: &str| {
            AssertSqlSafe(format!("alter database {database} set default_transaction_read_only = {value}"))
        };
        administrator.execute(set("on")).await?;
        let ended = self.end_sessions(&mut administrator).await?;
        let coordinates = self.world.servers.coordinates();
        let mut fresh = coordinates.superuser(database).connect().await?;
        let (mode,): (String,) = sqlx::query_as("show transaction_read_only").fetch_one(&mut fresh).await?;
        fresh.close().await?;
        sleep(lasts).await;
        administrator.execute(set("off")).await?;
        let told = format!("a new session is read-only: {mode}; {ended} sessions ended");
        Ok(if mode == "on" && ended > 0 { Ok(told) } else { Err(told) })
    }

    async fn say_again(&self, id: Id) -> anyhow::Result<Result<String, String>> {
        let ids = match self.spy.say_again(id).await {
            Ok(ids) => ids,
            Err(error) => return Ok(Err(format!("{error:#}"))),
        };
        let known = ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",");
        let what = if id == Id::Same { "sum(repeats)" } else { "count(*)" };
        let inboxes = ["orders", "payments", "inventory", "shipping"];
        let inboxes =
            inboxes.map(|schema| format!("select message_id, repeats from {schema}.inbox")).join(" union all ");
        let sql = format!("select coalesce({what}, 0) from ({inboxes}) as inboxes where message_id in ({known})");
        // All of the new ones, and of those that were known at least one: the others may have come before their first.
        let enough = if id == Id::Same { 1 } else { ids.len() as i64 };
        let seen = eventually(WHOLE_WITHIN, "their receivers have noticed", async || {
            let seen = self.world.stack.database.value(&sql).await?;
            let count = seen.as_i64().or_else(|| seen.as_str()?.parse().ok()).unwrap_or_default();
            Ok(if count >= enough { State::Reached(count) } else { State::pending(count) })
        });
        let told = |count| match id {
            Id::Same => format!("{} sent again, {count} recognised so far", ids.len()),
            Id::New => format!("{} sent under new ids, {count} received", ids.len()),
        };
        Ok(seen.await.map(told).map_err(|error| format!("{error:#}")))
    }

    async fn reorder(&self, service: Service, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let part = Part::Service(service);
        self.strike(part, Act::Kill).await?;
        sleep(lasts).await;
        let moved = self.spy.reorder(&format!("{}.commands", service.name())).await;
        self.start(part).await?;
        Ok(moved.map(|moved| format!("{moved} messages changed places")).map_err(|error| format!("{error:#}")))
    }

    async fn switch(&self, name: &str, share: u32, lasts: Duration) -> anyhow::Result<Result<String, String>> {
        let shop = &self.world.shop;
        eventually(WHOLE_WITHIN, "the switch is on", async || {
            let on = shop.switch_on(name, f64::from(share) / 100.0, SLOW_ANSWER_MS, 1).await;
            on.map(State::Reached)
        })
        .await?;
        sleep(lasts).await;
        let met = eventually(WHOLE_WITHIN, "a request has met the switch", async || {
            let all = shop.switches().await?;
            let all = all["switches"].as_array().map(Vec::as_slice).unwrap_or_default();
            let met = all.iter().find(|one| one["name"] == name).and_then(|one| one["met"].as_u64()).unwrap_or(0);
            Ok(if met > 0 { State::Reached(met) } else { State::pending(met) })
        })
        .await;
        eventually(WHOLE_WITHIN, "the switch is off", async || shop.switch_off(name).await.map(State::Reached)).await?;
        Ok(met.map(|met| format!("{met} requests met it")).map_err(|error| format!("{error:#}")))
    }
}
