//! `cargo saga`: starts, tests and maintains the shop on servers of its own.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs the order saga on a private PostgreSQL and RabbitMQ: found on this machine, started on free loopback ports,
/// and stopped again whatever happens.
#[derive(Parser)]
#[command(bin_name = "cargo saga", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Test(cli::test::Arguments),
    #[cfg(feature = "stack")]
    Up(cli::up::Arguments),
    #[cfg(feature = "stack")]
    Bench(cli::bench::Arguments),
    Servers(cli::servers::Arguments),
    Prepare(cli::prepare::Arguments),
}

const EXAMPLES: &str = "\
Examples:
  cargo saga up                       the shop, until Ctrl-C
  cargo saga test                     every test of the workspace
  cargo saga test -- -p e2e declined  the end-to-end tests that have `declined` in their name
  cargo saga bench                    what the machine can do
  cargo saga prepare                  after a query or a table has changed";

// Everything runs on the main thread: children are told when the thread that started them ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Test(arguments) => cli::until_interrupted(cli::test::run(arguments)).await,
        #[cfg(feature = "stack")]
        Verb::Up(arguments) => cli::up::run(arguments).await,
        #[cfg(feature = "stack")]
        Verb::Bench(arguments) => cli::until_interrupted(cli::bench::run(arguments)).await,
        Verb::Servers(arguments) => cli::until_interrupted(cli::servers::run(arguments)).await,
        Verb::Prepare(arguments) => cli::until_interrupted(cli::prepare::run(arguments)).await,
    };
    done.unwrap_or_else(|error| {
        cli::say::say(format!("{error:#}"));
        ExitCode::FAILURE
    })
}
