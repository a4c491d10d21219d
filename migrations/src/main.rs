//! `migrations`: brings the database to the state that the services need, then ends.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use migrations::{AUDITOR, Passwords};
use sqlx::postgres::PgConnectOptions;

/// Creates the database, a role and a schema for each service, and the tables inside. Safe to run again.
#[derive(Parser)]
struct Arguments {
    /// Where to connect, as a role that may create databases and roles.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: PgConnectOptions,
    /// The password of the role `orders_service`.
    #[arg(long, env = "ORDERS_DATABASE_PASSWORD", hide_env_values = true)]
    orders_password: String,
    /// The password of the role `payments_service`.
    #[arg(long, env = "PAYMENTS_DATABASE_PASSWORD", hide_env_values = true)]
    payments_password: String,
    /// The password of the role `inventory_service`.
    #[arg(long, env = "INVENTORY_DATABASE_PASSWORD", hide_env_values = true)]
    inventory_password: String,
    /// The password of the role `shipping_service`.
    #[arg(long, env = "SHIPPING_DATABASE_PASSWORD", hide_env_values = true)]
    shipping_password: String,
    /// The password of the role `sandbox_service`.
    #[arg(long, env = "SANDBOX_DATABASE_PASSWORD", hide_env_values = true)]
    sandbox_password: String,
    /// The password of the role `auditor`.
    #[arg(long, env = "AUDITOR_DATABASE_PASSWORD", hide_env_values = true)]
    auditor_password: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let passwords = Passwords(BTreeMap::from([
        ("orders_service".to_owned(), arguments.orders_password),
        ("payments_service".to_owned(), arguments.payments_password),
        ("inventory_service".to_owned(), arguments.inventory_password),
        ("shipping_service".to_owned(), arguments.shipping_password),
        ("sandbox_service".to_owned(), arguments.sandbox_password),
        (AUDITOR.to_owned(), arguments.auditor_password),
    ]));
    match migrations::migrate(&arguments.database_url, &passwords).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a command line program tells its failure there")]
            {
                eprintln!("migrations: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
