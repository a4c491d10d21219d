//! `order`: takes orders and leads their sagas.

use std::process::ExitCode;

use chassis::Identity;

fn main() -> ExitCode {
    chassis::run(Identity { name: "order", http_port: 8001, ops_port: 9001 }, order::start)
}
