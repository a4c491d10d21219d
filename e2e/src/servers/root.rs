//! Where programs and their libraries are: `/`, or a folder into which packages were unpacked as they would be into `/`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::servers::tail;

/// A place that has a `usr/lib`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn machine() -> Self {
        Root(PathBuf::from("/"))
    }

    pub(crate) fn unpacked(path: PathBuf) -> Self {
        Root(path)
    }

    pub(crate) fn is_machine(&self) -> bool {
        self.0 == Path::new("/")
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// What its programs need in their environment: where the libraries are that the machine does not have.
    pub(crate) fn environment(&self) -> Option<(String, String)> {
        if self.is_machine() {
            return None;
        }
        // Debian has them in one folder for each architecture, like x86_64-linux-gnu.
        let places = ["usr/lib", "lib"].into_iter().flat_map(|place| subdirectories(&self.join(place)));
        let of_architecture =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-gnu"));
        let joined = env::join_paths(places.filter(of_architecture)).ok()?.into_string().ok()?;
        Some(("LD_LIBRARY_PATH".to_owned(), joined))
    }

    /// The time zones of a PostgreSQL that looks for them in its data directory, see `packages::unpack`.
    pub(crate) fn time_zones(&self) -> Option<PathBuf> {
        let zones = self.join("usr/share/zoneinfo");
        (!self.is_machine() && zones.join("UTC").exists()).then_some(zones)
    }

    /// The end of the log of a program that failed, and what to do about it where that can be told.
    pub(crate) fn explain(&self, log: &Path) -> String {
        let output = tail(log);
        let advice = self.advice(&output);
        output + &advice
    }

    /// What to do about a program that failed with this output, as sentences to append to it.
    pub(crate) fn advice(&self, output: &str) -> String {
        let lacks = [
            "error while loading shared libraries",
            "cannot open shared object",
            "failed to execute",
            ": not found",
            "does not exist",
        ];
        if output.contains("Permission denied") {
            return ". As root, the servers run as another user: it must be able to reach the folder that SAGA_STATE \
                    names, and everything in it"
                .to_owned();
        }
        match (lacks.iter().any(|words| output.contains(words)), self.is_machine()) {
            (false, _) => String::new(),
            (true, true) => ". Something is missing on this machine: install the server's package again".to_owned(),
            (true, false) => format!(
                ". Something is missing on this machine or in {root}: `rm -r {root}` and run it again, to have the \
                 packages fetched anew",
                root = self.0.display()
            ),
        }
    }
}

pub(crate) fn subdirectories(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpacked_programs_get_a_library_path_and_only_its_own_folders() {
        assert_eq!(Root::machine().environment(), None);
        let path = env::temp_dir().join(format!("saga-root-{:016x}", rand::random::<u64>()));
        for folder in ["usr/lib/aarch64-linux-gnu", "usr/lib/postgresql", "lib/aarch64-linux-gnu"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        let (name, value) = Root::unpacked(path.clone()).environment().unwrap();
        fs::remove_dir_all(&path).unwrap();
        let root = path.display();
        assert_eq!(name, "LD_LIBRARY_PATH");
        assert_eq!(value, format!("{root}/usr/lib/aarch64-linux-gnu:{root}/lib/aarch64-linux-gnu"));
    }

    #[test]
    fn a_missing_library_is_told_from_other_failures() {
        let root = Root::unpacked(PathBuf::from("/somewhere"));
        let missing = "initdb: error while loading shared libraries: libicu.so.72: cannot open shared object file";
        assert!(root.advice(missing).contains("rm -r /somewhere"));
        assert!(Root::machine().advice(missing).contains("install"));
        assert!(root.advice("setpriv: failed to execute /x/initdb: Permission denied").contains("SAGA_STATE"));
        assert_eq!(root.advice("FATAL: could not bind to 127.0.0.1"), "");
    }
}
