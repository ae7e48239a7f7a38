//! Runs or blesses command scripts, for their authors: `./test commands` and `./test bless`.
//!
//!     scripts [--bless] [--reference | --through node|proxy] [FILE or part of a path]…
//!
//! `--reference` runs them against the reference server instead of the one under test; `--bless`
//! rewrites the expectations that do not hold on the reference server; `--through` connects their
//! clients to a node of a cluster that owns nothing, or to `dunlin proxy`.

use harness::reply::Protocol;
use harness::script::Script;
use harness::script::behind::{Behind, Way};
use harness::script::bless::bless;
use harness::script::suite::{Stage, scripts};
use harness::server::Program;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, String> {
    let mut wanted = Vec::new();
    let (mut blessing, mut reference) = (false, false);
    let mut through = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--through" => {
                let name = arguments.next().unwrap_or_default();
                let way = Way::named(&name);
                through = Some(way.ok_or("--through takes `node` or `proxy`")?);
            }
            "--bless" => blessing = true,
            "--reference" => reference = true,
            _ => wanted.push(argument),
        }
    }
    if wanted.is_empty() {
        wanted.push(String::new());
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for word in &wanted {
        if Path::new(word).is_file() {
            paths.push(word.into());
        } else {
            paths.extend(scripts(word));
        }
    }
    if paths.is_empty() {
        return Err(format!("no such script: {}", wanted.join(" ")));
    }
    if let Some(way) = through {
        return check_through(way, &paths);
    }
    if blessing { bless_all(&paths) } else { check_all(&paths, reference) }
}

fn bless_all(paths: &[PathBuf]) -> Result<bool, String> {
    let mut stage = Stage::new(Program::reference()?, None);
    let mut good = true;
    for path in paths {
        let result = Script::load(path).and_then(|script| {
            let text = bless(&script, &mut stage)?;
            let changed = text != script.lines.join("\n") + "\n";
            if changed {
                std::fs::write(path, text).map_err(|error| error.to_string())?;
            }
            Ok(changed)
        });
        match result {
            Ok(true) => println!("{}: blessed", path.display()),
            Ok(false) => println!("{}: unchanged", path.display()),
            Err(why) => {
                good = false;
                println!("{why}");
            }
        }
    }
    Ok(good)
}

/// Runs them through a node or the proxy.
fn check_through(way: Way, paths: &[PathBuf]) -> Result<bool, String> {
    let mut behind =
        Behind::start(way, &Program::under_test()).map_err(|error| error.to_string())?;
    let scripts = paths.iter().map(|path| Script::load(path)).collect::<Result<Vec<_>, _>>()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for script in &scripts {
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            match behind.check(script, protocol) {
                Ok(true) => passed += 1,
                Ok(false) => skipped += 1,
                Err(why) => {
                    failed += 1;
                    println!("{why}\n");
                }
            }
        }
    }
    let needless = behind.needless(&scripts);
    for one in &needless {
        println!("no failure needs this exception: {} {}", one.script, one.request);
    }
    println!("through {way:?}: {passed} runs passed, {failed} failed, {skipped} do not run there");
    Ok(failed == 0 && needless.is_empty())
}

fn check_all(paths: &[PathBuf], reference: bool) -> Result<bool, String> {
    let program = if reference { Program::reference()? } else { Program::under_test() };
    let (mut passed, mut failed) = (0, 0);
    for backend in program.backends() {
        let mut stage = Stage::new(program.clone(), backend);
        for path in paths {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let result = Script::load(path).and_then(|script| stage.check(&script, protocol));
                match result {
                    Ok(()) => passed += 1,
                    Err(why) => {
                        failed += 1;
                        let backend = backend.map_or("", |backend| backend.name());
                        println!("{why}\n  on {} {backend}\n", program.name());
                    }
                }
            }
        }
    }
    println!(
        "{} scripts on {}: {passed} runs passed, {failed} failed",
        paths.len(),
        program.name()
    );
    Ok(failed == 0)
}
