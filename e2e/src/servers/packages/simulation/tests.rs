use super::*;

const SIMULATION: &str = "\
NOTE: This is only a simulation!
The following NEW packages will be installed:
  erlang-base libc6 libicu72 libllvm14 postgresql
Inst libc6 [2.36-9] (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])
Inst libllvm14 (1:14.0.6-12 Debian:12.15/oldstable [amd64]) []
Inst libicu72 (72.1-3+deb12u1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])
Inst erlang-base (1:25.2.3+dfsg-1+deb12u3 Debian:12.15/oldstable [amd64])
Inst libjson-perl (4.10000-1 Debian:12.15/oldstable [all])
Inst postgresql (15+248+deb12u1 Debian:12.15/oldstable [all])
Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])
";

fn names(packages: &[Package]) -> Vec<&str> {
    packages.iter().map(|package| package.name.as_str()).collect()
}

#[test]
fn the_packages_of_a_simulation_have_their_new_versions() {
    let packages = packages(SIMULATION);
    assert_eq!(names(&packages), ["libc6", "libllvm14", "libicu72", "erlang-base", "libjson-perl", "postgresql"]);
    assert_eq!(packages[0].with_version(), "libc6=2.36-9+deb12u14");
    assert_eq!(packages[1].with_version(), "libllvm14=1:14.0.6-12");
    assert_eq!(packages[2].with_version(), "libicu72=72.1-3+deb12u1");
}

#[test]
fn what_the_machine_has_is_not_fetched_but_erlang_is_fetched_whole() {
    let installed = ["libc6", "erlang-base"].map(str::to_owned).into();
    assert_eq!(names(&needed(packages(SIMULATION), &installed)), ["libicu72", "erlang-base"]);
}

#[test]
fn what_only_an_installation_needs_is_left_out_and_the_servers_never_are() {
    let is_needed = |name: &str| is_needed(name, &HashSet::new());
    for name in ["perl", "python3.13-minimal", "libpython3-stdlib", "cron-daemon-common", "libllvm19", "libio-pty-perl"]
    {
        assert!(!is_needed(name), "{name}");
    }
    for name in ["postgresql-17", "rabbitmq-server", "erlang-mnesia", "libpq5", "libreadline8t64", "libsomething9"] {
        assert!(is_needed(name), "{name}");
    }
}

#[test]
fn the_size_of_each_package_is_read_and_a_missing_one_is_an_error() {
    let uris = "'http://a/libpq5_15.deb' libpq5_15%2b1_amd64.deb 1500 SHA256:00\n\
                'http://a/b.deb' b.deb 2000000 SHA256:00\n";
    assert_eq!(sizes(uris).unwrap(), [1500, 2_000_000]);
    assert_eq!(sizes("").unwrap(), [0_u64; 0]);
    assert!(sizes("'http://a/b.deb' b.deb SHA256:00").is_err());
}

#[test]
fn the_file_of_a_package_is_the_one_of_its_version() {
    let directory = std::env::temp_dir().join(format!("saga-debs-{:016x}", rand::random::<u64>()));
    fs::create_dir(&directory).unwrap();
    for file in ["libpq5_14.0_amd64.deb", "libpq5_15.1_amd64.deb", "erlang-base_1%3a25.2_amd64.deb"] {
        fs::write(directory.join(file), "").unwrap();
    }
    let find = |name: &str, version: &str| {
        let packages = [Package { name: name.to_owned(), version: version.to_owned() }];
        files(&directory, &packages).map(|files| files[0].file_name().unwrap().to_string_lossy().into_owned())
    };
    assert_eq!(find("libpq5", "15.1").unwrap(), "libpq5_15.1_amd64.deb");
    assert_eq!(find("erlang-base", "1:25.2").unwrap(), "erlang-base_1%3a25.2_amd64.deb");
    assert!(find("libpq5", "16.0").is_err());
    fs::remove_dir_all(&directory).unwrap();
}
