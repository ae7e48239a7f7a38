//! The server in a container of the machine, by an OCI runtime that the image was built with. It
//! shows what a container costs where a virtual machine is underneath; the server needs none.
//!
//! The image holds the runtime and a bundle, which is a root file system and its description. The
//! description has a mark where the server's arguments belong.

use std::path::Path;
use std::process::Command;

const RUNTIME: &str = "/container/runc";
const BUNDLE: &str = "/container";
const DESCRIPTION: &str = "/container/config.json";
/// What stands for the arguments in the description, quotes included.
const MARK: &str = "\"@ARGUMENTS@\"";

/// Writes the arguments into the bundle's description and mounts what the runtime needs.
pub fn prepare(arguments: &[String]) -> Result<(), String> {
    if !Path::new(RUNTIME).exists() {
        return Err("the image was built without --container: it has no runtime".into());
    }
    super::mount("cgroup2", "/sys/fs/cgroup", "cgroup2")?;
    let failed = |error| format!("{DESCRIPTION}: {error}");
    let description = std::fs::read_to_string(DESCRIPTION).map_err(failed)?;
    std::fs::write(DESCRIPTION, with_arguments(&description, arguments)).map_err(failed)
}

/// The runtime, which passes signals on to the server and ends with it.
pub fn command() -> Command {
    let mut command = Command::new(RUNTIME);
    // The machine's root is its initial RAM disk, which pivot_root refuses.
    command.args(["--root", "/run/runc", "run", "--no-pivot", "--bundle", BUNDLE, "dunlin"]);
    command
}

fn with_arguments(description: &str, arguments: &[String]) -> String {
    let quoted: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
    description.replace(MARK, &quoted.join(", "))
}

/// A string of JSON. The kernel's command line has no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_take_the_place_of_the_mark() {
        let arguments = ["--save", "a \"b\" \\"].map(str::to_owned);
        assert_eq!(
            with_arguments(r#"{"args": ["redis-server", "@ARGUMENTS@"]}"#, &arguments),
            r#"{"args": ["redis-server", "--save", "a \"b\" \\"]}"#
        );
    }
}
