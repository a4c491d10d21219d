//! A new file of SQL is a change of this crate; cargo would only notice changes of those it knows.

fn main() {
    for folder in ["messaging", "edge", "orders", "payments", "inventory", "shipping", "sandbox"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
