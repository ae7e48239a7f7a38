//! Databases whose copies speak without TLS with each other although machines have what it needs:
//! one copy without a port for others keeps all of its database so (`cluster::bus`).

use crate::site::{Database, Known, Placed, Site, Stage};
use std::collections::BTreeMap;

/// Copies of a database that a warning names at most.
const MAX_NAMED: usize = 3;

/// Returns whether a machine's node gives its copies a port for each other.
fn has_offset(known: &Known) -> bool {
    known.spec.value.bus_port_offset > 0
}

/// Returns the machines with copies of a database that are to have a port for each other, and those
/// that are not.
fn machines<'a>(site: &'a Site, database: &'a Database) -> (Vec<&'a str>, Vec<&'a str>) {
    let copies = database.copies.iter().filter(|placed| !placed.is_leaving);
    let names: BTreeMap<&str, &Known> = copies
        .filter_map(|placed| Some((&*placed.machine, site.machines.get(&placed.machine)?)))
        .collect();
    let (with, without) = names.into_iter().partition::<Vec<_>, _>(|(_, known)| has_offset(known));
    let name = |(name, _): (&'a str, _)| name;
    (with.into_iter().map(name).collect(), without.into_iter().map(name).collect())
}

/// Returns the copies of a database that have no port for others, although some are to have one,
/// and why, if the node of the copy knows.
pub fn lacking<'a>(site: &'a Site, database: &'a Database) -> Vec<(&'a Placed, &'a str)> {
    let (with, _) = machines(site, database);
    if with.is_empty() || database.copies.len() < 2 {
        return Vec::new();
    }
    let copies = database.copies.iter().filter(|placed| !placed.is_leaving);
    let lacks = |placed: &'a Placed| match site.machines.get(&placed.machine).map(has_offset)? {
        false => Some((placed, "")),
        true => {
            let error = &*site.report(placed)?.bus_error;
            (!error.is_empty()).then_some((placed, error))
        }
    };
    copies.filter_map(lacks).collect()
}

/// Says what there is and what to do, for `status` and events: a line for each machine without such
/// ports, and one for each database of which a copy cannot use its own.
pub fn warnings(site: &Site) -> Vec<String> {
    let mut of_machines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut of_databases = Vec::new();
    let ready = site.databases.iter().filter(|(_, at)| at.value.stage == Stage::Ready);
    for (name, at) in ready {
        let lacking = lacking(site, &at.value);
        if lacking.is_empty() {
            continue;
        }
        let (_, without) = machines(site, &at.value);
        for machine in without {
            of_machines.entry(machine).or_default().push(name);
        }
        let known: Vec<_> = lacking.iter().filter(|(_, error)| !error.is_empty()).collect();
        if !known.is_empty() {
            of_databases.push(of_database(name, &known));
        }
    }
    let machines = of_machines.into_iter().map(|(machine, databases)| {
        format!(
            "Copies on machine '{machine}' have no port for each other, which keeps databases \
             without TLS between their copies: {}. Start its node with this version, a \
             --bus-port-offset above 0 and the cluster's token, then restart them",
            databases.join(", ")
        )
    });
    machines.chain(of_databases).collect()
}

fn of_database(name: &str, lacking: &[&(&Placed, &str)]) -> String {
    let line = |(placed, error): &&(&Placed, &str)| {
        let short: String = placed.copy.to_string().chars().take(8).collect();
        format!("copy {short} on machine '{}': {error}", placed.machine)
    };
    let mut lines: Vec<String> = lacking.iter().take(MAX_NAMED).map(line).collect();
    if lacking.len() > MAX_NAMED {
        lines.push(format!("{} more", lacking.len() - MAX_NAMED));
    }
    format!("Database '{name}' is without TLS between its copies: {}", lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::tests::{report, with_database};
    use crate::site::CopyReport;

    fn give(site: &mut Site, machine: &str, offset: u16) {
        let known = site.machines.get_mut(machine).expect("it is there");
        known.spec.value.bus_port_offset = offset;
    }

    #[test]
    fn one_without_a_port_is_named_if_others_have_one() {
        let (mut site, _) = with_database(Stage::Ready);
        assert_eq!(warnings(&site), [""; 0], "it is switched off");
        give(&mut site, "a", 10_000);
        let said = warnings(&site);
        let begins = "Copies on machine 'b' have no port for each other, which keeps databases";
        assert!(said.len() == 1 && said[0].starts_with(begins), "{said:?}");
        assert!(said[0].contains(": d. Start its node"), "{said:?}");
        give(&mut site, "b", 10_000);
        assert_eq!(warnings(&site), [""; 0]);
        // A copy that has none by what its node says.
        let placed = site.databases["d"].value.copies[0].clone();
        let known = site.machines.get_mut(&placed.machine).expect("it is there");
        let bus_error = "port 22000 is taken".into();
        let report = CopyReport { bus_error, ..report(&placed) };
        known.alive.as_mut().expect("it lives").value.copies.push(report);
        let said = warnings(&site);
        assert!(said.len() == 1 && said[0].ends_with(": port 22000 is taken"), "{said:?}");
        assert_eq!(lacking(&site, &site.databases["d"].value).len(), 1);
    }
}
