//! What must be changed in unpacked packages before they run from a folder that is not `/`, and whether they can.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::servers::product::Product;
use crate::servers::root::{Root, subdirectories};

const ERLANG: &str = "usr/lib/erlang";
/// Debian's PostgreSQL reads its time zones here and nowhere else.
const ZONES: &[u8] = b"\0/usr/share/zoneinfo\0";
/// The same number of bytes, relative to where the server works: `zoneinfo` in its data directory.
const ZONES_OF_OURS: &[u8] = b"\0./././././/zoneinfo\0";

/// Makes the programs under `aside` ready to run from `place`, to where they will be moved.
pub(super) fn settle(aside: &Path, place: &Path) -> anyhow::Result<()> {
    let root = Root::unpacked(aside.to_owned());
    let erlang = aside.join(ERLANG);
    let erls = subdirectories(&erlang).map(|path| if path.ends_with("bin") { path } else { path.join("bin") });
    for erl in erls.map(|path| path.join("erl")).filter(|erl| erl.is_file() && !erl.is_symlink()) {
        let patched = with_erlang_at(&fs::read_to_string(&erl)?, &place.join(ERLANG).display().to_string());
        fs::write(&erl, patched).with_context(|| format!("changing {}", erl.display()))?;
    }
    if let Some(zones) = root.time_zones() {
        // It leads out of the folder, perhaps to nothing, and then a list of all zones fails.
        let _ = fs::remove_file(zones.join("localtime"));
        for program in subdirectories(&aside.join("usr/lib/postgresql")).map(|path| path.join("bin/postgres")) {
            let patched = with_time_zones_in_its_data(fs::read(&program)?);
            let patched = patched
                .context("this PostgreSQL finds time zones only where the package tzdata has them: install it")?;
            fs::write(&program, patched).with_context(|| format!("changing {}", program.display()))?;
        }
    }
    Ok(())
}

/// Debian's `erl` has its own place written in it, and does not let its environment say another.
fn with_erlang_at(script: &str, place: &str) -> String {
    let quoted = format!("ROOTDIR='{}'\n", place.replace('\'', r"'\''"));
    script.replace("ROOTDIR=/usr/lib/erlang\n", &quoted)
}

/// `None` if the program does not look like that.
fn with_time_zones_in_its_data(mut program: Vec<u8>) -> Option<Vec<u8>> {
    let at = program.windows(ZONES.len()).position(|bytes| bytes == ZONES)?;
    program.get_mut(at..at + ZONES.len())?.copy_from_slice(ZONES_OF_OURS);
    Some(program)
}

/// Asks the loader whether it finds every library.
pub(super) async fn check(product: Product, root: &Root, distribution: &str) -> anyhow::Result<()> {
    let programs = match product {
        Product::Postgres => postgres(root),
        Product::RabbitMq => erlang(root),
    };
    if programs.is_empty() {
        bail!("the packages of {distribution} have no {}", product.programs());
    }
    let mut ldd = Command::new("ldd");
    ldd.args(&programs).env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH").envs(root.environment()).kill_on_drop(true);
    let answer = ldd.output().await.context("running ldd")?;
    let answer = [answer.stdout, answer.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let missing = not_found(&answer);
    if !missing.is_empty() {
        let (name, missing) = (product.name(), missing.join(", "));
        bail!(
            "{name} of {distribution} was unpacked, but a library is missing: {missing}. Install the package that has it"
        );
    }
    Ok(())
}

/// What `initdb` and the server load. Other modules may lack what they need: nobody loads them.
fn postgres(root: &Root) -> Vec<PathBuf> {
    let needed = ["bin/initdb", "bin/postgres", "lib/plpgsql.so", "lib/dict_snowball.so"];
    let versions = subdirectories(&root.join("usr/lib/postgresql"));
    versions.flat_map(|version| needed.map(|file| version.join(file))).filter(|file| file.exists()).collect()
}

fn erlang(root: &Root) -> Vec<PathBuf> {
    let erlang = root.join(ERLANG);
    let needed = ["beam.smp", "epmd", "erl_child_setup", "erlexec", "inet_gethost"];
    let programs = subdirectories(&erlang).flat_map(|runtime| needed.map(|file| runtime.join("bin").join(file)));
    let libraries = subdirectories(&erlang.join("lib")).flat_map(|part| subdirectories(&part.join("priv/lib")));
    let libraries = libraries.filter(|file| file.extension().is_some_and(|extension| extension == "so"));
    programs.chain(libraries).filter(|file| file.exists()).collect()
}

/// Each library, or version of one, that the loader does not find.
fn not_found(answer: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for line in answer.lines().map(str::trim).filter(|line| line.contains("not found")) {
        let name = line.split_once(" => not found").map_or(line, |(library, _)| library).to_owned();
        if !missing.contains(&name) {
            missing.push(name);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erl_is_told_its_new_place_wherever_it_names_the_old_one() {
        let script = "then\n    ROOTDIR=/usr/lib/erlang\nelse\n    ROOTDIR=/usr/lib/erlang\nfi\n";
        let patched = with_erlang_at(script, "/home/o'neil/my cache/usr/lib/erlang");
        let place = r"ROOTDIR='/home/o'\''neil/my cache/usr/lib/erlang'";
        assert_eq!(patched, format!("then\n    {place}\nelse\n    {place}\nfi\n"));
    }

    #[test]
    fn the_place_of_the_time_zones_keeps_its_length_and_its_neighbours() {
        let program = b"ELF..\0 --with-tz=/usr/share/zoneinfo\0/usr/share/zoneinfo\0end".to_vec();
        let patched = with_time_zones_in_its_data(program).unwrap();
        assert_eq!(patched, b"ELF..\0 --with-tz=/usr/share/zoneinfo\0./././././/zoneinfo\0end");
        assert_eq!(with_time_zones_in_its_data(b"other".to_vec()), None);
    }

    #[test]
    fn each_missing_library_is_named_once() {
        let answer = "/x/postgres:\n\tlibicui18n.so.72 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\
                      /x/initdb:\n\tlibicui18n.so.72 => not found\n\
                      /x/initdb: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/initdb)\n";
        let version = "/x/initdb: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /x/initdb)";
        assert_eq!(not_found(answer), ["libicui18n.so.72", version]);
        assert!(not_found("\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n").is_empty());
    }
}
