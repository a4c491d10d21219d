//! The shop of a run: on servers of its own, and with a proxy between each service and each server.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Context as _;

use super::fault::Server;
use crate::proxy::Proxy;
use crate::servers::Servers;
use crate::shop::{Hands, Part, Shop};
use crate::stack::{Service, Settings, Stack};

/// Everything of a run. Dropping it ends it: the services before what they work on.
pub(super) struct World {
    pub(super) shop: Shop,
    pub(super) stack: Rc<Stack>,
    lines: BTreeMap<(Service, Server), Proxy>,
    pub(super) servers: Rc<Servers>,
}

impl World {
    pub(super) async fn begin(servers: Rc<Servers>, settings: Settings) -> anyhow::Result<World> {
        let coordinates = servers.coordinates();
        let mut lines = BTreeMap::new();
        let mut settings = settings.on(coordinates.clone());
        for service in Service::ALL {
            let database = Proxy::start(coordinates.postgres.address()).await?;
            settings = settings.postgres_through(service, database.address());
            lines.insert((service, Server::Database), database);
            if service.has_broker() {
                let broker = Proxy::start(coordinates.broker.address()).await?;
                settings = settings.broker_through(service, broker.address());
                lines.insert((service, Server::Broker), broker);
            }
        }
        let stack = Rc::new(Stack::start(settings).await?);
        let shop = Hands { stack: stack.clone(), servers: Some(servers.clone()) }.shop()?;
        Ok(World { shop, stack, lines, servers })
    }

    pub(super) fn line(&self, service: Service, server: Server) -> anyhow::Result<&Proxy> {
        self.lines.get(&(service, server)).with_context(|| format!("{} needs no {server:?}", service.name()))
    }

    /// Under which pid a part runs now.
    pub(super) async fn pid(&self, part: Part) -> Option<i32> {
        match part {
            Part::Postgres => self.servers.postgres.pid().await,
            Part::Rabbitmq => self.servers.broker.pid().await,
            Part::Service(service) => self.stack.process(service).pid().ok(),
        }
    }
}
