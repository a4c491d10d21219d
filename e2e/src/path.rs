//! Programs of the machine.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where the shell would find it.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    env::split_paths(&path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}
