//! `inventory`: sets goods aside for orders.

use std::process::ExitCode;

use chassis::Identity;

fn main() -> ExitCode {
    chassis::run(Identity { name: "inventory", http_port: 8003, ops_port: 9003 }, inventory::start)
}
