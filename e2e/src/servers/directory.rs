//! The directory that holds a run's data, with its own lock: RabbitMQ would open the same data twice without a word.
//! Servers refuse to run as root, so for root it stands where another user can reach it.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::statvfs::statvfs;
use nix::unistd::{User, geteuid};
use tokio::time::sleep;

use crate::servers::orphan::{Manner, reap};

/// What becomes of a state directory when its run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Removed,
    Kept,
}

/// Where the data of a fresh run stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    /// In memory where there is room, because its writes are not worth a disk.
    Memory,
    /// On the disk of the state directory: for who measures what a write costs.
    Disk,
}

/// A state directory that this process owns until it drops it.
pub(crate) struct StateDirectory {
    path: PathBuf,
    fate: Fate,
    medium: Medium,
    /// As whom the servers run, when we are root.
    user: Option<(u32, u32)>,
    /// Held, never read; the kernel lets go when we die.
    _lock: File,
}

/// How often somebody who waits for a turn looks.
const TURN: Duration = Duration::from_millis(200);
const LOCK: &str = "lock";
/// Our folder where `SAGA_STATE` says.
const OURS: &str = "saga-state";
const MEMORY: &str = "/dev/shm";
/// A run of all tests makes some hundred databases of 8 MB and up to 1 GB of write-ahead log.
const ROOM: u64 = 3 << 30;

impl StateDirectory {
    /// A fresh one. Clears away what killed runs left: their servers and their data.
    pub(crate) async fn fresh(medium: Medium) -> anyhow::Result<Self> {
        let base = base()?;
        // Held while we look around, so that nobody takes a directory for abandoned that is just being made.
        let turn = open(&base.join("turn"))?;
        turn.lock()?;
        for entry in fs::read_dir(&base)?.flatten() {
            if is_run(&entry.file_name().to_string_lossy())
                && let Ok(lock) = lock(&entry.path())
            {
                let (path, fate) = (entry.path(), Fate::Removed);
                let abandoned = StateDirectory { path, fate, medium, user: None, _lock: lock };
                reap(&abandoned.path, Manner::AtOnce).await?;
                abandoned.remove()?;
            }
        }
        let path = base.join(format!("run-{:08x}", rand::random::<u32>()));
        make_for_all(&path, 0o711)?;
        let lock = lock(&path)?;
        Ok(StateDirectory { path, fate: Fate::Removed, medium, user: server_user()?, _lock: lock })
    }

    /// The one of this name, with its data from the last time.
    pub(crate) async fn named(name: &str) -> anyhow::Result<Self> {
        let path = base()?.join(name);
        make_for_all(&path, 0o711)?;
        let lock = lock(&path)?;
        reap(&path, Manner::Gently).await?;
        Ok(StateDirectory { path, fate: Fate::Kept, medium: Medium::Disk, user: server_user()?, _lock: lock })
    }

    /// Forgets everything in it.
    pub(crate) fn empty(&self) -> anyhow::Result<()> {
        empty(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    pub(crate) fn user(&self) -> Option<(u32, u32)> {
        self.user
    }

    /// Makes a directory inside that only the servers' user can open.
    pub(crate) fn make(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o700).recursive(true).create(&path)?;
        self.give(&path)?;
        Ok(path)
    }

    /// The same, in memory if the data may stand there and there is room for a whole test run.
    pub(crate) fn make_in_memory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let free = statvfs(MEMORY).map_or(0, |fs| fs.blocks_available() * fs.fragment_size());
        if self.medium == Medium::Disk || free < ROOM {
            return self.make(name);
        }
        let real = Path::new(MEMORY).join(format!("saga-{:016x}", rand::random::<u64>()));
        let path = self.path.join(name);
        // The link first: whoever clears up after us finds the data through it.
        symlink(&real, &path)?;
        DirBuilder::new().mode(0o700).create(&real)?;
        self.give(&real)?;
        Ok(path)
    }

    /// Writes a file that only the servers' user can read.
    pub(crate) fn write(&self, path: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => fs::write(path, "")?,
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        self.give(path)
    }

    fn give(&self, path: &Path) -> anyhow::Result<()> {
        if let Some((user, group)) = self.user {
            chown(path, Some(user), Some(group)).with_context(|| format!("giving {} away", path.display()))?;
        }
        Ok(())
    }

    fn remove(&self) -> anyhow::Result<()> {
        for link in fs::read_dir(&self.path)?.flatten().filter(|entry| entry.path().is_symlink()) {
            let real = fs::read_link(link.path())?;
            if real.starts_with(MEMORY) && real.exists() {
                fs::remove_dir_all(real)?;
            }
        }
        fs::remove_dir_all(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        if self.fate == Fate::Removed && self.path.exists() {
            // A server that is just ending may still write: what is left goes with the next run.
            let _ = self.remove();
        }
    }
}

/// Forgets everything in a directory but its lock.
pub(crate) fn empty(directory: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_name() != LOCK) {
        let is_directory = entry.file_type()?.is_dir();
        if is_directory { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

/// Opens a file that is only locked, never written.
fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Whether a directory of this name is one that [`StateDirectory::fresh`] makes.
fn is_run(name: &str) -> bool {
    name.strip_prefix("run-").is_some_and(|id| id.len() == 8 && id.bytes().all(|c| c.is_ascii_hexdigit()))
}

/// Takes the directory's lock, or says who has it.
fn lock(directory: &Path) -> anyhow::Result<File> {
    let file = open(&directory.join(LOCK))?;
    if file.try_lock().is_err() {
        bail!(
            "{} is in use by another run: wait for its end, or name another directory with SAGA_STATE",
            directory.display()
        );
    }
    Ok(file)
}

/// Where the state directory of this name is, or would be.
///
/// # Errors
/// There is no place for it.
pub fn state_directory(name: &str) -> anyhow::Result<PathBuf> {
    Ok(base()?.join(name))
}

/// Whether some process owns the state directory of this name.
///
/// # Errors
/// There is no place for it.
pub fn is_in_use(name: &str) -> anyhow::Result<bool> {
    let path = state_directory(name)?.join(LOCK);
    Ok(File::open(path).is_ok_and(|file| file.try_lock_shared().is_err()))
}

/// Ends what a run of this name left running that was killed, and returns how many programs that were. Who has an
/// owner is left alone.
///
/// # Errors
/// One of them survived.
pub async fn end_abandoned(name: &str) -> anyhow::Result<usize> {
    let path = state_directory(name)?;
    match path.is_dir().then(|| lock(&path)) {
        Some(Ok(_lock)) => reap(&path, Manner::Gently).await,
        Some(Err(_)) | None => Ok(0),
    }
}

/// Waits until nobody else of this user has the turn of this name; it ends with the value. `wait` is told once, if
/// somebody has it.
///
/// # Errors
/// There is no place for its lock.
pub async fn take_turn(name: &str, wait: impl FnOnce()) -> anyhow::Result<File> {
    let file = open(&base()?.join(format!("{name}.turn")))?;
    if file.try_lock().is_err() {
        wait();
        while file.try_lock().is_err() {
            sleep(TURN).await;
        }
    }
    Ok(file)
}

/// Where all state directories of this user stand: where `SAGA_STATE` says, else in the user's cache.
pub(super) fn base() -> anyhow::Result<PathBuf> {
    let us = geteuid();
    let named = env::var_os("SAGA_STATE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    let base = match (named, cache) {
        // A folder of our own in it: what else is there is not ours.
        (Some(named), _) => std::path::absolute(named)?.join(OURS),
        (None, Some(cache)) if !us.is_root() && cache.is_absolute() => cache.join("saga"),
        (None, _) => PathBuf::from(format!("/var/tmp/saga-{us}")),
    };
    // It stands in configuration files of both servers, each with rules of its own for these.
    if base.as_os_str().as_encoded_bytes().iter().any(|byte| byte.is_ascii_control() || b"'\"\\".contains(byte)) {
        bail!("{} has a quote or a backslash in it: name another directory with SAGA_STATE", base.display());
    }
    make_for_all(&base, 0o711)?;
    // In a folder that all may write to, someone else may have been first.
    let found = fs::symlink_metadata(&base)?;
    if !found.is_dir() || found.uid() != us.as_raw() {
        bail!("{} belongs to somebody else: name another directory with SAGA_STATE", base.display());
    }
    Ok(base)
}

/// Makes a directory, and those above it, with this mode, whatever the umask: as root, the servers run as another user.
pub(super) fn make_for_all(path: &Path, mode: u32) -> anyhow::Result<()> {
    let what = || format!("making {}", path.display());
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(directory) {
            Ok(()) => fs::set_permissions(directory, fs::Permissions::from_mode(mode)).with_context(what)?,
            // Another run made the same, or somebody else something that we must not change.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(what),
        }
    }
    Ok(())
}

fn server_user() -> anyhow::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    bail!("root needs a user `postgres` or `nobody` to run the servers as")
}
