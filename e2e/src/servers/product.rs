//! The two servers as products: what they are called, which package of Debian or Ubuntu has them, how old they may be.

use anyhow::{Context as _, bail};

/// A server that the stack needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Postgres,
    RabbitMq,
}

impl Product {
    pub fn name(self) -> &'static str {
        match self {
            Product::Postgres => "PostgreSQL",
            Product::RabbitMq => "RabbitMQ",
        }
    }

    /// Its package in Debian and Ubuntu.
    pub fn package(self) -> &'static str {
        match self {
            Product::Postgres => "postgresql",
            Product::RabbitMq => "rabbitmq-server",
        }
    }

    /// The programs of it that we start.
    pub fn programs(self) -> &'static str {
        match self {
            Product::Postgres => "initdb, postgres",
            Product::RabbitMq => "rabbitmq-server, epmd, erl",
        }
    }

    /// Refuses a version that is too old. `text` is anything that has the version as its first number.
    pub(crate) fn check(self, text: &str) -> anyhow::Result<()> {
        let found = version(text).with_context(|| format!("{} tells no version: {text:?}", self.name()))?;
        if found < self.oldest() {
            let (major, minor) = found;
            bail!("{} {major}.{minor} is too old, {}", self.name(), self.remedy());
        }
        Ok(())
    }

    /// The same for the version of a package.
    pub(crate) fn is_too_old(self, package_version: &str) -> bool {
        version(upstream(package_version)).is_none_or(|found| found < self.oldest())
    }

    /// What to do about a version that is too old.
    pub(crate) fn remedy(self) -> String {
        let (major, minor) = self.oldest();
        let from = match self {
            Product::Postgres => "`postgresql-15` or newer (https://apt.postgresql.org)",
            Product::RabbitMq => "`rabbitmq-server` 3.10 or newer (https://www.rabbitmq.com/docs/download)",
        };
        format!("{major}.{minor} or newer is needed: install {from}")
    }

    fn oldest(self) -> (u32, u32) {
        match self {
            Product::Postgres => (15, 0),
            Product::RabbitMq => (3, 10),
        }
    }
}

/// The version of the program in the version of its package: no epoch, and nothing that the distribution appended.
pub(crate) fn upstream(package_version: &str) -> &str {
    let version = package_version.split_once(':').map_or(package_version, |(_, version)| version);
    version.split(['-', '+', '~']).next().unwrap_or(version)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut numbers = digits.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_print() {
        assert_eq!(version("postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)"), Some((15, 20)));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some((18, 0)));
        assert_eq!(version("3.10.8"), Some((3, 10)));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn an_old_server_is_refused_with_what_to_install() {
        let refusal = Product::RabbitMq.check("3.9.13").unwrap_err().to_string();
        let install = "`rabbitmq-server` 3.10 or newer (https://www.rabbitmq.com/docs/download)";
        assert_eq!(refusal, format!("RabbitMQ 3.9 is too old, 3.10 or newer is needed: install {install}"));
        assert!(Product::RabbitMq.check("4.0.5").is_ok());
    }

    #[test]
    fn the_version_of_a_package_is_that_of_its_program() {
        assert_eq!(upstream("15+248+deb12u1"), "15");
        assert_eq!(upstream("1:3.12.1-1ubuntu1.2"), "3.12.1");
        assert!(!Product::Postgres.is_too_old("17+277.pgdg120+1"));
        assert!(Product::Postgres.is_too_old("14+238"));
        assert!(!Product::RabbitMq.is_too_old("3.10.8-1.1+deb12u1"));
        assert!(Product::RabbitMq.is_too_old("1:3.9.27-0ubuntu0.1"));
    }
}
