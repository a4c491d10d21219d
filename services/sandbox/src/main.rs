//! `sandbox`: a payment provider and a carrier that behave as real ones do, faults included.

use std::process::ExitCode;

use chassis::Identity;

fn main() -> ExitCode {
    chassis::run(Identity { name: "sandbox", http_port: 8005, ops_port: 9005 }, sandbox::start)
}
