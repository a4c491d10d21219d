//! Each user of the broker may do what the topology names, and nothing else.

use anyhow::Context as _;
use contracts::topology::{COMMANDS, EVENTS};
use e2e::{Settings, Stack};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};

const ACCESS_REFUSED: u16 = 403;

async fn channel(stack: &Stack, user: &str) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(&stack.vhost.url(user), ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    for (exchange, kind) in [(COMMANDS.name, ExchangeKind::Direct), (EVENTS.name, ExchangeKind::Topic)] {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(exchange.into(), kind, durable, FieldTable::default()).await?;
    }
    Ok((connection, channel))
}

/// Publishes, and returns the code with which the broker refuses it, if it does.
async fn refusal(stack: &Stack, user: &str, exchange: &str, routing_key: &str) -> anyhow::Result<Option<u16>> {
    let (_connection, channel) = channel(stack, user).await?;
    let options = BasicPublishOptions::default();
    let properties = BasicProperties::default();
    let sent = channel.basic_publish(exchange.into(), routing_key.into(), options, b"{}", properties).await?.await;
    match sent {
        Ok(_) => Ok(None),
        Err(error) => match error.kind() {
            lapin::ErrorKind::ProtocolError(refused) => Ok(Some(refused.get_id())),
            _ => Err(error).context("publishing"),
        },
    }
}

#[tokio::test]
async fn payment_may_not_send_commands() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    assert_eq!(refusal(&stack, "order", COMMANDS.name, "payment").await?, None);
    assert_eq!(refusal(&stack, "payment", COMMANDS.name, "shipping").await?, Some(ACCESS_REFUSED));
    Ok(())
}

#[tokio::test]
async fn payment_may_not_tell_events_of_others() -> anyhow::Result<()> {
    let stack = Stack::start_empty(Settings::default()).await?;
    assert_eq!(refusal(&stack, "payment", EVENTS.name, "Payment.PaymentCaptured").await?, None);
    assert_eq!(refusal(&stack, "payment", EVENTS.name, "Shipping.ShipmentCreated").await?, Some(ACCESS_REFUSED));
    Ok(())
}
