//! The servers of a test can be broken: what they confirmed is there again afterwards.

use std::time::Duration;

use anyhow::Context as _;
use e2e::{Servers, Settings, Stack};
use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::json;
use tokio::time::timeout;

use crate::shop::{books_balance, comes_to, order, place};

const QUEUE: &str = "kept";

async fn channel(url: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

async fn publish(channel: &Channel, body: &[u8]) -> anyhow::Result<()> {
    let persistent = BasicProperties::default().with_delivery_mode(2);
    let options = BasicPublishOptions::default();
    channel.basic_publish("".into(), QUEUE.into(), options, body, persistent).await?.await?;
    Ok(())
}

async fn take(channel: &Channel) -> anyhow::Result<Vec<u8>> {
    let message = channel.basic_get(QUEUE.into(), BasicGetOptions::default()).await?.context("a message")?;
    message.delivery.ack(BasicAckOptions::default()).await?;
    Ok(message.delivery.data.clone())
}

#[tokio::test]
async fn servers_keep_what_they_confirmed_through_a_stop_and_a_kill() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start_empty(Settings::default().on(servers.coordinates())).await?;
    let url = stack.vhost.url(&servers.coordinates().broker.user);
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    {
        let (_connection, channel) = channel(&url).await?;
        channel.queue_declare(QUEUE.into(), durable, quorum).await?;
        publish(&channel, b"before the kill").await?;
        publish(&channel, b"before the stop").await?;
    }
    stack.database.execute("create table public.kept as select 1 as number").await?;

    let (broker, postgres) = (&servers.broker, &servers.postgres);
    tokio::try_join!(broker.kill(), postgres.kill())?;
    assert!(Connection::connect(&url, ConnectionProperties::default()).await.is_err());
    tokio::try_join!(broker.start(), postgres.start())?;
    {
        let (_connection, channel) = channel(&url).await?;
        assert_eq!(take(&channel).await?, b"before the kill");
    }
    assert_eq!(stack.database.value("select number from public.kept").await?, json!(1));

    tokio::try_join!(broker.stop(), postgres.stop())?;
    tokio::try_join!(broker.start(), postgres.start())?;
    let (_connection, channel) = channel(&url).await?;
    assert_eq!(take(&channel).await?, b"before the stop");
    assert_eq!(stack.database.value("select number from public.kept").await?, json!(1));

    drop(stack);
    servers.stop().await
}

#[tokio::test]
async fn paused_servers_answer_nothing_until_they_go_on() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start_empty(Settings::default().on(servers.coordinates())).await?;
    let silence = Duration::from_millis(300);
    let question = "select 1 as number";
    assert_eq!(stack.database.value(question).await?, json!(1));

    servers.postgres.pause().await;
    servers.broker.pause().await;
    let waiting = stack.database.value(question);
    tokio::pin!(waiting);
    assert!(timeout(silence, &mut waiting).await.is_err());
    let path = format!("vhosts/{}", stack.vhost.name());
    let asking = stack.vhost.call(reqwest::Method::GET, &path, None);
    tokio::pin!(asking);
    assert!(timeout(silence, &mut asking).await.is_err());

    servers.postgres.resume().await;
    servers.broker.resume().await;
    assert_eq!(waiting.await?, json!(1));
    assert_eq!(asking.await?["name"], json!(stack.vhost.name()));
    Ok(())
}

#[tokio::test]
async fn a_server_that_runs_is_not_started_a_second_time() -> anyhow::Result<()> {
    let servers = Servers::start().await?;
    let stack = Stack::start(Settings::default().on(servers.coordinates())).await?;
    servers.broker.start().await?;
    servers.postgres.start().await?;
    let placed = place(&stack, &order("KEYBOARD", 1, "pm_ok", "standard")).await?;
    comes_to(&stack, &placed, "completed").await?;
    assert!(!servers.broker.has_ended().await && !servers.postgres.has_ended().await);
    books_balance(&stack).await
}
