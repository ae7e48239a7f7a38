//! The order of modules. A crate with a table `lists/modules/CRATE.txt` says which of its modules
//! may use which: a line names modules, the top first, and a module uses those of its own line and
//! of lower ones. `FOLDER: …` says that the modules are in that folder. `allow A > B` excepts one
//! use that goes up; such lines may only become fewer. `methods TYPE` says that the methods of this
//! type are written in several modules: a call of one counts as a use of the module it is in.
//!
//! In all crates: the number of modules (files) that reach themselves over uses of others may only
//! fall.

use crate::graph::{Arrow, arrows, circles};
use crate::lists;
use crate::methods::calls;
use crate::source::{packages, repository, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The order of a crate's modules.
struct Table {
    /// The line of each module. In a folder of the table a module is the part below.
    lines: BTreeMap<String, usize>,
    folders: BTreeSet<String>,
    /// The types whose methods are in several modules.
    types: Vec<String>,
    allowed: BTreeSet<(String, String)>,
    wrong: Vec<String>,
}

impl Table {
    fn read(package: &str) -> Table {
        let mut table = Table {
            lines: BTreeMap::new(),
            folders: BTreeSet::new(),
            types: Vec::new(),
            allowed: BTreeSet::new(),
            wrong: Vec::new(),
        };
        let mut folders: Vec<String> = Vec::new();
        for (number, line) in lists::lines(&format!("modules/{package}.txt")).iter().enumerate() {
            if let Some(arrow) = line.strip_prefix("allow ") {
                let (from, to) = arrow.split_once(" > ").expect("allow A > B");
                table.allowed.insert((from.to_owned(), to.trim().to_owned()));
                continue;
            }
            if let Some(name) = line.strip_prefix("methods ") {
                table.types.push(name.trim().to_owned());
                continue;
            }
            let (folder, modules) = match line.split_once(':') {
                Some((folder, modules)) => (Some(folder.trim().to_owned()), modules),
                None => (None, line.as_str()),
            };
            if let Some(folder) = &folder {
                table.folders.insert(folder.clone());
                if folders.contains(folder) && folders.last() != Some(folder) {
                    table.wrong.push(format!("the lines of {package}/{folder} are not together"));
                }
                folders.push(folder.clone());
            }
            for module in modules.split_whitespace() {
                let inner =
                    folder.iter().map(String::as_str).chain([module]).collect::<Vec<_>>().join("/");
                let path = repository().join(format!("crates/{package}/src/{inner}"));
                if !path.exists() && !path.with_extension("rs").exists() {
                    table
                        .wrong
                        .push(format!("{package} has no module {inner}; take it out of the table"));
                }
                table.lines.insert(inner, number);
            }
        }
        table
    }

    /// Returns the name by which the table knows a module.
    fn name(&self, module: &[&str]) -> String {
        let is_in_folder = module.first().is_some_and(|first| self.folders.contains(*first));
        let len = if is_in_folder { 2 } else { 1 };
        module[..len.min(module.len())].join("/")
    }

    /// Returns whether a module is the crate itself, or a folder of the table.
    fn is_facade(&self, module: &[&str]) -> bool {
        module.is_empty() || module.len() == 1 && self.folders.contains(module[0])
    }

    /// Returns the uses of modules in the table's crate.
    fn arrows(&self, package: &str) -> Vec<Arrow> {
        let mut found = arrows(package);
        found.extend(self.types.iter().flat_map(|name| calls(package, name)));
        found
    }
}

/// Returns the crates that have a table.
fn tables() -> Vec<String> {
    let files = std::fs::read_dir(lists::path("modules")).expect("there are tables").flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            file.file_name().to_string_lossy().strip_suffix(".txt").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

#[test]
fn modules_use_only_what_is_further_down() {
    let mut wrong = Vec::new();
    for package in tables() {
        let mut table = Table::read(&package);
        wrong.append(&mut table.wrong);
        for source in sources().iter().filter(|source| source.package == package) {
            let name = table.name(&source.module);
            if !table.is_facade(&source.module) && !table.lines.contains_key(&name) {
                wrong.push(format!(
                    "{}: give {name} a line in lists/modules/{package}.txt",
                    source.path
                ));
            }
        }
        let mut up: BTreeMap<(String, String), String> = BTreeMap::new();
        for arrow in table.arrows(&package) {
            let (from, to) = (table.name(&arrow.from), table.name(&arrow.to));
            if let (Some(above), Some(below)) = (table.lines.get(&from), table.lines.get(&to))
                && below < above
            {
                up.entry((from, to)).or_insert_with(|| format!("{}:{}", arrow.file, arrow.line));
            }
        }
        for ((from, to), place) in &up {
            if !table.allowed.contains(&(from.clone(), to.clone())) {
                wrong.push(format!(
                    "{place}: {from} must not use {to}, which is further up in {package}"
                ));
            }
        }
        for (from, to) in &table.allowed {
            if !up.contains_key(&(from.clone(), to.clone())) {
                wrong.push(format!(
                    "{package}: {from} does not use {to} any more; remove the line `allow`"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "Move what is used further down, hand it over as an argument or by a trait, or move the \
         module up in \
         crates/tidy/lists/modules.\n{wrong:#?}"
    );
}

#[test]
fn circles_of_modules_become_fewer() {
    let (mut found, mut shown) = (Vec::new(), String::new());
    let tables = tables();
    for package in packages() {
        let arrows = match tables.contains(&package) {
            true => Table::read(&package).arrows(&package),
            false => arrows(&package),
        };
        let circles = circles(&arrows);
        let number: usize = circles.iter().map(Vec::len).sum();
        if number > 0 {
            for circle in circles {
                shown += &format!("{package}: {}\n", circle.join(" "));
            }
            found.push((package, number));
        }
    }
    println!("{shown}");
    lists::check_numbers(
        "circles.txt",
        &found,
        "More modules than before reach themselves over others, so none of them can be read \
         alone. Move what both need \
         into a module that uses neither. The circles are printed above.",
    );
}
