//! A crate depends only on crates further down, as ARCHITECTURE.md draws them (`lists/crates.txt`).
//! Crates of one layer do not know each other. Test dependencies are free.

use crate::lists;
use crate::source::{packages, read};

/// Returns the crates of the workspace that a manifest names outside `dev-dependencies`.
fn dependencies(manifest: &str, packages: &[String]) -> Vec<String> {
    let (mut found, mut is_counted) = (Vec::new(), false);
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_counted =
                section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
        } else if is_counted {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if packages.iter().any(|package| package == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

#[test]
fn crates_depend_only_on_what_is_further_down() {
    let layers = lists::lines("crates.txt");
    let (apart, layers): (Vec<String>, Vec<String>) =
        layers.into_iter().partition(|line| line.starts_with("apart:"));
    let apart: Vec<&str> = apart.iter().flat_map(|line| line.split_whitespace().skip(1)).collect();
    let depth = |package: &str| {
        layers.iter().position(|line| line.split_whitespace().any(|name| name == package))
    };
    let packages = packages();
    let mut wrong = Vec::new();
    for line in &layers {
        for name in
            line.split_whitespace().filter(|name| !packages.iter().any(|package| package == name))
        {
            wrong.push(format!("there is no crate {name}; take it out of lists/crates.txt"));
        }
    }
    for package in &packages {
        if depth(package).is_none() && !apart.contains(&package.as_str()) {
            wrong.push(format!(
                "{package} has no layer; give it one in lists/crates.txt and in ARCHITECTURE.md"
            ));
            continue;
        }
        for used in dependencies(&read(&format!("crates/{package}/Cargo.toml")), &packages) {
            let is_apart = apart.contains(&package.as_str()) || apart.contains(&used.as_str());
            if is_apart {
                wrong.push(format!(
                    "{package} must not depend on {used}: one of them is apart from the others"
                ));
            } else if depth(&used) <= depth(package) {
                wrong.push(format!(
                    "{package} must not depend on {used}, which is not further down"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "Move what both crates need into one below them, or hand it over by a trait.\n{wrong:#?}"
    );
}

#[test]
fn test_dependencies_are_free() {
    let manifest = "[package]\nname = \"x\"\n\
                    [dependencies]\na.workspace = true\nb = { path = \"b\" }\n\
                    [dev-dependencies]\nc.workspace = true\n\
                    [target.'cfg(unix)'.dependencies]\nd = \"1\"\n";
    let packages = ["a", "b", "c", "d"].map(str::to_owned);
    assert_eq!(dependencies(manifest, &packages), ["a", "b", "d"]);
}
