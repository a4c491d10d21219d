//! `shipping`: hands parcels to the carrier and calls them back.

use std::process::ExitCode;

use chassis::Identity;

fn main() -> ExitCode {
    chassis::run(Identity { name: "shipping", http_port: 8004, ops_port: 9004 }, shipping::start)
}
