//! The shop that a stack is: it is steered by reaching into its processes, and into its servers if nobody else is on
//! them.

use std::rc::Rc;

use anyhow::{Context as _, bail};
use futures::future::LocalBoxFuture;

use super::{Act, Control, Disturbed, Listeners, Origin, Part, Shop, Whereabouts};
use crate::servers::Servers;
use crate::stack::{Service, Stack};

/// Reaches into the processes of a stack.
pub struct Hands {
    pub stack: Rc<Stack>,
    /// Those that are this stack's alone.
    pub servers: Option<Rc<Servers>>,
}

impl Hands {
    /// The stack as a shop.
    ///
    /// # Errors
    /// A service does not run.
    pub fn shop(self) -> anyhow::Result<Shop> {
        Shop::new(whereabouts(&self.stack)?, Box::new(self))
    }
}

fn whereabouts(stack: &Stack) -> anyhow::Result<Whereabouts> {
    let listeners = |service: Service| {
        let client = stack.process(service).client()?;
        let address = |url: String| url.trim_start_matches("http://").parse().context("an address");
        anyhow::Ok((service, Listeners { http: address(client.url())?, ops: address(client.ops_url())? }))
    };
    Ok(Whereabouts {
        origin: Origin::Test,
        services: Service::ALL.into_iter().map(listeners).collect::<anyhow::Result<_>>()?,
        ops_token: stack.order().client()?.ops_token().to_owned(),
        broker: stack.vhost.url("administrator"),
        broker_page: stack.broker_page(),
        postgres: stack.database.url().to_owned(),
        auditor: stack.auditor_url(),
        jaeger: None,
        logs: stack.directory().display().to_string(),
        data: None,
    })
}

impl Control for Hands {
    fn disturbed(&self) -> LocalBoxFuture<'_, anyhow::Result<Disturbed>> {
        Box::pin(async { Ok(Disturbed::new()) })
    }

    fn act(&self, part: Part, act: Act) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            if let Part::Service(service) = part {
                let process = self.stack.process(service);
                return match act {
                    Act::Kill => process.kill().await,
                    Act::Start if process.is_running() => Ok(()),
                    Act::Start => process.restart().await,
                    Act::Freeze => process.pause(),
                    Act::Thaw => process.resume(),
                };
            }
            let Some(servers) = &self.servers else { bail!("these servers are shared with others") };
            let Servers { postgres, broker, .. } = &**servers;
            match (part, act) {
                (Part::Postgres, Act::Kill) => postgres.kill().await,
                (Part::Postgres, Act::Start) => postgres.start().await,
                (Part::Postgres, Act::Freeze) => {
                    postgres.pause().await;
                    Ok(())
                }
                (Part::Postgres, Act::Thaw) => {
                    postgres.resume().await;
                    Ok(())
                }
                (_, Act::Kill) => broker.kill().await,
                (_, Act::Start) => broker.start().await,
                (_, Act::Freeze) => {
                    broker.pause().await;
                    Ok(())
                }
                (_, Act::Thaw) => {
                    broker.resume().await;
                    Ok(())
                }
            }
        })
    }
}
