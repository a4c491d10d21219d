//! What was seen, as the table that the README shows.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::ensure;
use e2e::{Service, workspace};

use super::table::{Direction, SEAMS, Seam};

/// A service died at a point, and its order came to its end.
pub(crate) struct Death {
    pub(crate) seam: &'static Seam,
    pub(crate) direction: Direction,
    /// `None`: the migrations.
    pub(crate) service: Option<Service>,
    /// How often it died there.
    pub(crate) deaths: u32,
    pub(crate) recognised: i64,
    pub(crate) end: &'static str,
}

const BEGIN: &str = "<!-- what was killed: begin -->\n";
const END: &str = "<!-- what was killed: end -->";
/// Writes the table into the README instead of comparing them.
const UPDATE: &str = "SAGA_UPDATE_README";

/// The table, one row for each point and direction. Fails if something was not killed that should have been, or if what
/// came of it is not what its row says.
pub(crate) fn table(deaths: &[Death]) -> anyhow::Result<String> {
    let mut table = String::from(
        "| | point | what has happened | direction | killed there | came again, and was recognised | end of the order |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for seam in SEAMS {
        for direction in seam.directions {
            let here = deaths.iter().filter(|death| std::ptr::eq(death.seam, seam) && death.direction == *direction);
            let here: Vec<&Death> = here.collect();
            let named = format!("{} {} ({})", seam.id, seam.point, direction.name());
            for service in seam.services {
                let found = here.iter().filter(|death| death.service == Some(*service)).count();
                ensure!(found == 1, "{named}: {} was killed there {found} times", service.name());
            }
            ensure!(!here.is_empty(), "{named}: nobody was killed there");
            for death in &here {
                let Death { service, recognised, .. } = death;
                ensure!(seam.again.range().contains(recognised), "{named}: {service:?} recognised {recognised}");
            }
            let ends: BTreeSet<&str> = here.iter().map(|death| death.end).collect();
            let ends = ends.into_iter().collect::<Vec<_>>().join(", ");
            let killed: Vec<&str> = match seam.services {
                [] => vec!["migrations"],
                services => services.iter().map(|service| service.name()).collect(),
            };
            let (killed, again) = (killed.join(", "), seam.again.name());
            writeln!(
                table,
                "| {} | `{}` | {} | {} | {killed} | {again} | {ends} |",
                seam.id,
                seam.point,
                seam.says,
                direction.name()
            )?;
        }
    }
    let count: u32 = deaths.iter().map(|death| death.deaths).sum();
    writeln!(table, "\n{count} deaths at {} points.", points().len())?;
    Ok(table)
}

/// The names of all points.
pub(crate) fn points() -> BTreeSet<&'static str> {
    SEAMS.iter().map(|seam| seam.point).collect()
}

/// What each service came to, one line for each death.
pub(crate) fn details(deaths: &[Death]) -> String {
    let mut text =
        String::from("| | point | service | direction | deaths | recognised | end |\n|---|---|---|---|---|---|---|\n");
    for Death { seam, direction, service, deaths, recognised, end } in deaths {
        let (id, point, direction) = (seam.id, seam.point, direction.name());
        let service = service.map_or("migrations", Service::name);
        text += &format!("| {id} | `{point}` | {service} | {direction} | {deaths} | {recognised} | {end} |\n");
    }
    text
}

/// Writes the table to `target/saga-test/seams.md`, and compares it with that of the README.
pub(crate) fn publish(table: &str, details: &str) -> anyhow::Result<()> {
    let file = e2e::stack::programs()?.parent().unwrap_or(Path::new(".")).join("saga-test/seams.md");
    fs::write(&file, format!("{table}\n{details}"))?;
    let path = workspace().join("README.md");
    let readme = fs::read_to_string(&path)?;
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let Some((before, (shown, after))) = parts else { anyhow::bail!("README.md lacks {BEGIN} and {END}") };
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))?;
        return Ok(());
    }
    let update = format!("`{UPDATE}=1 cargo saga test -- -p e2e every_process_that_is_killed` writes it");
    ensure!(shown == table, "README.md does not show what came of it; {update}. It is in {}:\n{table}", file.display());
    Ok(())
}
