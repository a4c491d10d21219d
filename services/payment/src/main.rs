//! `payment`: takes money for orders and gives it back.

use std::process::ExitCode;

use chassis::Identity;

fn main() -> ExitCode {
    chassis::run(Identity { name: "payment", http_port: 8002, ops_port: 9002 }, payment::start)
}
