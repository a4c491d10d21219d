//! Named places in the code where a test holds or kills the process. Without the feature `hold-points` they are
//! nothing at all. With it, the directory in `SAGA_HOLDS` decides: while it has a file with the point's name, that
//! point acts as the file says: `hold` waits until the file is gone, `abort` aborts the process, `panic` panics.
//! A point that acts first writes `<name>.reached`.

/// Passes the point `name`, or does what a test has asked for there.
#[cfg(not(feature = "hold-points"))]
pub async fn point(_name: &str) {}

/// The same for one message: `<name>.<key>` acts for those of this key, `<name>` for all.
#[cfg(not(feature = "hold-points"))]
pub async fn point_of(_name: &str, _key: &str) {}

/// Passes the point `name` when `working` has begun and its outcome is not seen: a commit that is on its way.
#[cfg(not(feature = "hold-points"))]
pub async fn during<F: Future>(_name: &str, working: F) -> F::Output {
    working.await
}

#[cfg(feature = "hold-points")]
pub use acting::{during, point, point_of};

#[cfg(feature = "hold-points")]
mod acting {
    use std::path::PathBuf;
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::task::Poll;
    use std::time::Duration;

    /// Passes the point `name`, or does what a test has asked for there.
    pub async fn point(name: &str) {
        static HOLDS: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(directory) = HOLDS.get_or_init(|| std::env::var_os("SAGA_HOLDS").map(Into::into)) else { return };
        let file = directory.join(name);
        let Ok(action) = std::fs::read_to_string(&file) else { return };
        std::fs::write(directory.join(format!("{name}.reached")), "").unwrap_or_default();
        match action.trim() {
            "abort" => std::process::abort(),
            "panic" => panic!("the hold point {name} was told to panic"),
            _ => {
                while file.exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }

    /// The same for one message: `<name>.<key>` acts for those of this key, `<name>` for all.
    pub async fn point_of(name: &str, key: &str) {
        point(name).await;
        point(&format!("{name}.{key}")).await;
    }

    /// Passes the point `name` when `working` has begun and its outcome is not seen: a commit that is on its way.
    pub async fn during<F: Future>(name: &str, working: F) -> F::Output {
        let mut working = pin!(working);
        // One poll writes the request to the socket. The answer may be there at once; nobody looks at it.
        let begun = futures::poll!(working.as_mut());
        point(name).await;
        match begun {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => working.await,
        }
    }
}
