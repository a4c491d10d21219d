//! Named places in the code where a test holds or kills the process. Without the feature `hold-points` they are
//! nothing at all. With it, the directory in `SAGA_HOLDS` decides: while it has a file with the point's name, that
//! point acts as the file says: `hold` waits until the file is gone, `abort` aborts the process, `panic` panics.
//! A point that acts first writes `<name>.reached`.

/// Passes the point `name`, or does what a test has asked for there.
#[cfg(not(feature = "hold-points"))]
pub async fn point(_name: &str) {}

/// Passes the point `name`, or does what a test has asked for there.
#[cfg(feature = "hold-points")]
pub async fn point(name: &str) {
    use std::sync::OnceLock;
    static HOLDS: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let Some(directory) = HOLDS.get_or_init(|| std::env::var_os("SAGA_HOLDS").map(Into::into)) else { return };
    let file = directory.join(name);
    let Ok(action) = std::fs::read_to_string(&file) else { return };
    std::fs::write(directory.join(format!("{name}.reached")), "").unwrap_or_default();
    match action.trim() {
        "abort" => std::process::abort(),
        "panic" => panic!("the hold point {name} was told to panic"),
        _ => {
            while file.exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }
}
