//! `dunlin cluster apply`: databases as a file has them. Those that are not there are created,
//! those that differ are changed, and none is ever deleted.
//!
//! ```yaml
//! databases:
//!   sessions: {memory: 10gb, shards: 3, replicas: 1, port: 12000, passwordFile: /secrets/sessions}
//! ```

use super::{Change, Place, follow, in_file, send};
use crate::http::Refusal;
use crate::rest::wire::{Begun, Creation, Update};
use crate::settings::fields::{self, Changes, Field, Kind};
use crate::settings::{Settings, Wrong};
use crate::show::DatabaseShown;
use clap::Args;
use config::yaml::{self, Yaml};
use serde_json::{Map, Value};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long is waited before a node is asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// Creates and changes databases as a file says. Those that the file does not name stay as they
/// are.
#[derive(Args)]
pub struct ApplyOptions {
    /// A file of YAML or JSON; - is the standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Wait so long until the nodes are there and have room
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    #[command(flatten)]
    change: Change,
}

/// A database that the file has.
#[derive(Debug)]
struct Wanted {
    name: String,
    settings: Settings,
    /// The options that the file names; the others stay as they are.
    named: Vec<String>,
}

/// See the head of this file.
///
/// # Errors
/// The file is wrong, a node refuses something, or none answers in time.
pub fn apply(options: &ApplyOptions) -> Result<(), Wrong> {
    let text = text(&options.file)?;
    let folder = options.file.parent().unwrap_or(Path::new("."));
    let wanted = read(&text, folder)?;
    let deadline = Instant::now() + Duration::from_secs(options.wait);
    for one in &wanted {
        patiently(deadline, || apply_one(one, &options.change))?;
    }
    for known in patiently(deadline, || databases(&options.change.place))? {
        if !wanted.iter().any(|one| one.name == known.name) {
            eprintln!("Database '{}' is not in the file; it stays as it is", known.name);
        }
    }
    Ok(())
}

/// Does something again until it is done, or time does not mend why it is not.
fn patiently<T>(deadline: Instant, act: impl Fn() -> Result<T, Delay>) -> Result<T, Wrong> {
    loop {
        match act() {
            Ok(done) => return Ok(done),
            Err(why) if !why.may_pass || Instant::now() >= deadline => return Err(why.wrong),
            Err(why) => eprintln!("Waiting: {}", why.wrong),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Why something was not applied.
struct Delay {
    wrong: Wrong,
    /// Time may mend it: nodes are about to start.
    may_pass: bool,
}

impl From<Wrong> for Delay {
    fn from(wrong: Wrong) -> Delay {
        Delay { wrong, may_pass: false }
    }
}

fn databases(place: &Place) -> Result<Vec<DatabaseShown>, Delay> {
    place.node().get("/databases").map_err(delay)
}

fn delay(refusal: Refusal) -> Delay {
    let may_pass = refusal.is_temporary;
    Delay { wrong: refusal.into(), may_pass }
}

fn apply_one(one: &Wanted, change: &Change) -> Result<(), Delay> {
    let name = &one.name;
    let known = databases(&change.place)?.into_iter().find(|known| known.name == *name);
    let Some(known) = known else {
        let (name, settings, dry_run) = (name.clone(), one.settings.clone(), change.dry_run);
        println!("Database '{name}' is created");
        // Machines that join are room, and those that are too many are refused by the job.
        let may_pass = |wrong| Delay { wrong, may_pass: true };
        return send(("POST", "/databases"), change, &Creation { name, settings, dry_run })
            .map_err(may_pass);
    };
    if known.stage == "creating" {
        let wrong = Wrong(format!("database '{name}' is being created"));
        return Err(Delay { wrong, may_pass: true });
    }
    let update = update(one, &known.settings)?;
    if update == nothing(name) {
        println!("Database '{name}' is as the file says");
        return Ok(());
    }
    let place = &change.place;
    let update = Update { dry_run: change.dry_run, ..update };
    let begun: Begun = place.node().send("PATCH", "/databases", &update).map_err(delay)?;
    match begun.job {
        // A password is known to the node alone: it says whether it is another one.
        None if change.dry_run => println!("Database '{name}' would be changed"),
        None => println!("Database '{name}' is as the file says"),
        Some(job) => {
            println!("Database '{name}' is changed");
            if !change.no_wait {
                follow(place, &job, Duration::MAX)?;
            }
        }
    }
    Ok(())
}

fn nothing(name: &str) -> Update {
    Update { name: name.to_owned(), ..Update::default() }
}

/// Returns what of a database differs from the file.
fn update(one: &Wanted, known: &Settings) -> Result<Update, Wrong> {
    let (name, wanted) = (&one.name, &one.settings);
    let is_named = |option: &str| one.named.iter().any(|named| named == option);
    let (wanted, known) = (fields::values(wanted), fields::values(known));
    let mut changes = Vec::new();
    for field in fields::options().filter(|field| is_named(&field.option)) {
        let of = |values: &Map<String, Value>| {
            values.get(&field.key).or(field.default.as_ref()).cloned().unwrap_or_default()
        };
        let (wanted, known) = (of(&wanted), of(&known));
        // The node alone knows secrets: it says whether one is another.
        match (field.is_changeable, wanted != known) {
            (true, true) => changes.push((field.key.clone(), wanted)),
            (true, false) if field.is_secret => changes.push((field.key.clone(), wanted)),
            (false, true) if !field.is_secret => {
                let option = &field.option;
                return Err(Wrong(format!(
                    "database '{name}': {option} cannot be changed; set it back to {known}"
                )));
            }
            _ => {}
        }
    }
    Ok(Update { changes: Changes::new(changes), ..nothing(name) })
}

fn text(path: &Path) -> Result<String, Wrong> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(|_| text),
        false => std::fs::read_to_string(path),
    };
    read.map_err(|error| Wrong(format!("{}: {error}", path.display())))
}

fn read(text: &str, folder: &Path) -> Result<Vec<Wanted>, Wrong> {
    let documents = yaml::load(text).map_err(|why| Wrong(format!("the file: {why}")))?;
    let databases = match &documents[..] {
        [] | [Yaml::Null] => return Ok(Vec::new()),
        [document] => &document["databases"],
        _ => return Err(Wrong("the file has more than one document".into())),
    };
    let map = match databases {
        Yaml::Hash(map) => map,
        Yaml::Null => return Ok(Vec::new()),
        _ => return Err(Wrong("the file has no map `databases:`".into())),
    };
    let each = map.iter().map(|(name, value)| {
        let name = scalar(name).unwrap_or_default();
        one(&name, value, folder).map_err(|why| Wrong(format!("database '{name}': {}", why.0)))
    });
    each.collect()
}

fn one(name: &str, value: &Yaml, folder: &Path) -> Result<Wanted, Wrong> {
    let Yaml::Hash(options) = value else {
        return Err(Wrong("its options are a map: {memory: 1gb, port: 12000}".into()));
    };
    let (mut values, mut named) = (Map::new(), Vec::new());
    for (option, value) in options {
        let option = scalar(option).unwrap_or_default();
        let (field, value) = read_option(&option, value, folder)?;
        values.insert(field.key.clone(), value);
        named.push(field.option.clone());
    }
    let settings = fields::from_values(values)?;
    crate::settings::check_name("database", name)?;
    settings.check()?;
    Ok(Wanted { name: name.to_owned(), settings, named })
}

/// Reads an option: its field, and the value. The file of a password is an option of its own.
fn read_option(
    option: &str,
    value: &Yaml,
    folder: &Path,
) -> Result<(&'static Field, Value), Wrong> {
    if let Some(field) = option.strip_suffix("File").and_then(fields::find)
        && field.kind == Kind::Password
    {
        let text = text_of(option, value)?;
        return Ok((field, in_file(Some(&folder.join(text)))?.unwrap_or_default().into()));
    }
    let field = fields::find(option);
    let field = field.ok_or_else(|| Wrong(format!("there is no option '{option}'")))?;
    let value = match (&field.kind, value) {
        (Kind::List, Yaml::Array(list)) => {
            let each = list.iter().map(|it| text_of(option, it)).map(|it| it.map(Value::String));
            each.collect::<Result<_, _>>()?
        }
        (Kind::List, _) => return Err(Wrong(format!("{option} is a list: [one, two]"))),
        _ => field.read(&text_of(option, value)?)?,
    };
    Ok((field, value))
}

fn text_of(option: &str, value: &Yaml) -> Result<String, Wrong> {
    scalar(value).ok_or_else(|| Wrong(format!("{option} is one value")))
}

fn scalar(value: &Yaml) -> Option<String> {
    Some(match value {
        Yaml::String(text) | Yaml::Real(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(value) => value.to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Persistence;
    use serde_json::json;

    fn read_one(options: &str) -> Result<Wanted, String> {
        let text = format!("databases:\n  a: {{{options}}}\n");
        let mut all = read(&text, Path::new("/nowhere")).map_err(|why| why.0)?;
        all.pop().ok_or_else(|| "there is none".into())
    }

    #[test]
    fn databases_are_read() {
        let one = read_one("memory: 1gb, port: 12000, shards: 2, persistence: rdb, zones: true");
        let one = one.expect("it is sound");
        assert_eq!((one.name.as_str(), one.settings.memory_bytes), ("a", 1 << 30));
        assert_eq!((one.settings.shards, one.settings.replicas), (2, 0));
        assert_eq!((one.settings.persistence, one.settings.zones), (Persistence::Rdb, true));
        // JSON is YAML.
        let json = r#"{"databases": {"a": {"memory": "1gb", "port": 7, "password": "x"}}}"#;
        let all = read(json, Path::new(".")).expect("it is sound");
        assert_eq!((all.len(), &*all[0].settings.password), (1, "x"));
        assert_eq!(read("", Path::new(".")).map(|all| all.len()), Ok(0));
        assert_eq!(read("databases:\n", Path::new(".")).map(|all| all.len()), Ok(0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (options, why) in [
            ("memory: 1gb", "port is missing"),
            ("memory: much, port: 1", "a size is a number"),
            ("memory: 1gb, port: 99999", "from 1 to 65535"),
            ("memory: 1gb, port: 1, size: 3", "no option 'size'"),
            ("memory: 1gb, port: 1, commit: some", "memory, fsync, quorum"),
            ("memory: [1], port: 1", "one value"),
            ("memory: 1gb, port: 1, passwordFile: x", "/nowhere/x"),
        ] {
            let said = read_one(options).expect_err("it is wrong");
            assert!(said.contains(why), "{said}: {why}");
        }
        assert!(read("- a", Path::new(".")).is_err());
        assert!(read("databases: 3", Path::new(".")).is_err());
    }

    #[test]
    fn only_what_the_file_names_is_changed() {
        let known =
            Settings { password: "p".into(), ..read_one("memory: 1gb, port: 1").unwrap().settings };
        let known = known.sealed();
        let update = |options: &str| update(&read_one(options).unwrap(), &known);
        assert!(update("memory: 1gb, port: 1").is_ok_and(|it| it == nothing("a")));
        let changed = update("memory: 2gb, port: 1, commit: fsync, password: q").unwrap();
        let expected = [
            ("commit", json!("fsync")),
            ("memory_bytes", json!(2_u64 << 30)),
            ("password", json!("q")),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value));
        assert_eq!(changed.changes, Changes::new(expected));
        let rules = update("memory: 1gb, port: 1, hashing: ['(?<tag>.*)']").unwrap();
        let expected = [("hashing".to_owned(), json!(["(?<tag>.*)"]))];
        assert_eq!(rules.changes, Changes::new(expected));
        assert!(
            update("memory: 1gb, port: 2")
                .is_err_and(|why| why.0.contains("port cannot be changed; set it back to 1"))
        );
    }
}
