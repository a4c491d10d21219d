//! `cargo saga`: starts, tests and maintains the shop on servers of its own.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Starts an order saga, breaks it and looks at it: on a PostgreSQL and a RabbitMQ of its own, or on those of
/// `docker compose up`.
#[derive(Parser)]
#[command(name = "operable-saga", bin_name = "cargo saga", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[cfg(feature = "stack")]
    #[command(flatten)]
    Shop(cli::shop::Verb),
    #[cfg(feature = "stack")]
    Bench(cli::bench::Arguments),
    #[cfg(feature = "stack")]
    Chaos(cli::chaos::Arguments),
    Test(cli::test::Arguments),
    Servers(cli::servers::Arguments),
    Prepare(cli::prepare::Arguments),
}

const EXAMPLES: &str = "\
Examples:
  cargo saga demo                     start it and be shown around
  cargo saga up                       start it, until Ctrl-C
  cargo saga order                    place an order and wait for its end
  cargo saga scenario                 what can be broken
  cargo saga drill                    find a failure in the logs, and have the answer judged
  cargo saga orders                   the last ones
  cargo saga timeline ID              what happened to an order
  cargo saga why ID                   why it is where it is
  cargo saga audit                    whether all books agree
  cargo saga test                     every test of the workspace
  cargo saga bench                    how fast it is, beside what the machine can do
  cargo saga chaos                    break it at random under load: nothing is lost
  cargo saga prepare                  after a query or a table has changed

Ends with: 0 done, and as expected; 1 something failed; 2 wrong usage; 3 no shop is running; 130 interrupted;
4 not as expected: an order ended otherwise, a scenario saw something else, an answer is wrong, the books
do not agree; 5 a chaos in which too little happened to prove anything.";

// Everything runs on the main thread: children are told when the thread that started them ends.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Test(arguments) => cli::until_interrupted(cli::test::run(arguments)).await,
        #[cfg(feature = "stack")]
        Verb::Shop(verb) => Box::pin(cli::shop::run(verb)).await,
        #[cfg(feature = "stack")]
        Verb::Bench(arguments) => cli::until_interrupted(cli::bench::run(arguments)).await,
        #[cfg(feature = "stack")]
        Verb::Chaos(arguments) => cli::until_interrupted(cli::chaos::run(arguments)).await,
        Verb::Servers(arguments) => cli::until_interrupted(cli::servers::run(arguments)).await,
        Verb::Prepare(arguments) => cli::until_interrupted(cli::prepare::run(arguments)).await,
    };
    done.unwrap_or_else(|error| cli::failed(&error))
}
