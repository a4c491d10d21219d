//! Which distribution this is: packages of one release do not fit another.

use std::env::consts::ARCH;
use std::fs;

/// A release of a distribution.
pub(super) struct Platform {
    /// As people call it.
    pub(super) name: String,
    id: String,
    version: String,
}

impl Platform {
    pub(super) fn here() -> Self {
        let files = ["/etc/os-release", "/usr/lib/os-release"];
        Platform::of(&files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default())
    }

    fn of(release: &str) -> Self {
        let value = |key: &str| {
            let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
            Some(value.trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
        };
        let id = value("ID").unwrap_or_else(|| "linux".to_owned());
        // A release that has no number yet has a name.
        let version = value("VERSION_ID").or_else(|| value("VERSION_CODENAME")).unwrap_or_else(|| "rolling".to_owned());
        let name = value("PRETTY_NAME").unwrap_or_else(|| format!("{id} {version}"));
        Platform { name, id, version }
    }

    /// The name of the folder for its packages.
    pub(super) fn folder(&self) -> String {
        let architecture = match ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
        format!("{}-{}-{architecture}", plain(&self.id), plain(&self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::Platform;

    #[test]
    fn each_release_has_a_folder_of_its_own() {
        let folder = |release: &str| {
            let folder = Platform::of(release).folder();
            folder.rsplit_once('-').map(|(release, _)| release.to_owned())
        };
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(folder(debian).as_deref(), Some("debian-12"));
        assert_eq!(Platform::of(debian).name, "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(folder("ID=ubuntu\nVERSION_ID=\"24.04\"\n").as_deref(), Some("ubuntu-24.04"));
        assert_eq!(folder("ID=debian\nVERSION_CODENAME=forky\n").as_deref(), Some("debian-forky"));
        assert_eq!(folder("ID=../up\n").as_deref(), Some(".._up-rolling"));
        assert_eq!(folder("").as_deref(), Some("linux-rolling"));
    }
}
