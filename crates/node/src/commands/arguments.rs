//! The options of a database as arguments, made of [`fields`].

use super::in_file;
use crate::settings::Wrong;
use crate::settings::fields::{self, Field, Kind};
use clap::builder::PossibleValue;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The options of a new database.
#[derive(Debug)]
pub struct NewOptions {
    /// Those that are given, by their names in JSON.
    pub values: Map<String, Value>,
}

/// Options that are to change.
#[derive(Debug)]
pub struct ChangedOptions {
    /// Those that are given, by their names in JSON.
    pub values: Map<String, Value>,
}

/// The fields that a command has, and whether it is about a new database.
fn fields_of(is_new: bool) -> impl Iterator<Item = &'static Field> {
    fields::options().filter(move |field| is_new || field.is_changeable)
}

/// Returns the name of the argument that has one element of a list.
fn element(field: &'static Field) -> &'static str {
    field.schema["x-element"].as_str().unwrap_or(&field.option)
}

fn arguments(field: &'static Field, is_new: bool) -> Vec<Arg> {
    let name: &str = &field.option;
    let arg = Arg::new(name).long(name).help(help(field, is_new));
    let is_required = is_new && field.default.is_none();
    let checked = move |text: &str| field.read(text).map_err(|why| why.0);
    match &field.kind {
        Kind::Bytes(_) => vec![arg.required(is_required).value_name("SIZE").value_parser(checked)],
        Kind::Number(..) => {
            vec![arg.required(is_required).value_name("NUMBER").value_parser(checked)]
        }
        Kind::Words(words) => {
            let values = words.iter().map(|it| match &*it.help {
                "" => PossibleValue::new(&*it.word),
                help => PossibleValue::new(&*it.word).help(help),
            });
            vec![arg.required(is_required).value_parser(values.collect::<Vec<_>>())]
        }
        Kind::Switch if is_new => vec![arg.action(ArgAction::SetTrue)],
        Kind::Switch => vec![arg.value_name("yes|no").value_parser(checked)],
        Kind::Text => vec![arg.required(is_required)],
        Kind::Password => {
            let file = Arg::new(&*field.file_option).long(&*field.file_option).value_name("FILE");
            let file = file.value_parser(value_parser!(PathBuf)).conflicts_with(name);
            let arg = match field.schema["x-env"].as_str() {
                Some(variable) if is_new => arg.env(variable).hide_env_values(true),
                _ => arg,
            };
            vec![arg, file.help("File with that password, which ps does not show")]
        }
        Kind::List => {
            let of_one = element(field);
            let one = Arg::new(of_one).long(of_one).action(ArgAction::Append);
            let one = one.help(format!("{}; several times for more", help(field, is_new)));
            match field.schema["x-none"].as_str() {
                Some(none) => {
                    let arg = Arg::new(name).long(name).value_parser([none]).conflicts_with(of_one);
                    vec![one, arg.help(format!("{none}: no --{of_one}"))]
                }
                None => vec![one],
            }
        }
    }
}

/// Says what a field is, and what it is if it is left out.
fn help(field: &Field, is_new: bool) -> String {
    let default = match field.default.as_ref().filter(|_| is_new) {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return field.help.clone(),
    };
    format!("{} [default: {default}]", field.help)
}

fn given(matches: &ArgMatches, is_new: bool) -> Result<Map<String, Value>, Wrong> {
    let mut values = Map::new();
    for field in fields_of(is_new) {
        if let Some(value) = value(field, matches, is_new)? {
            values.insert(field.key.clone(), value);
        }
    }
    Ok(values)
}

/// Returns the value of a field, if it is given.
fn value(
    field: &'static Field,
    matches: &ArgMatches,
    is_new: bool,
) -> Result<Option<Value>, Wrong> {
    let name: &str = &field.option;
    let text = |name: &str| matches.get_one::<String>(name).map(|text| json!(text));
    Ok(match &field.kind {
        Kind::Bytes(_) | Kind::Number(..) => matches.get_one::<Value>(name).cloned(),
        Kind::Switch if is_new => {
            let is_given = matches.value_source(name) == Some(ValueSource::CommandLine);
            is_given.then(|| json!(matches.get_flag(name)))
        }
        Kind::Switch => matches.get_one::<Value>(name).cloned(),
        Kind::Words(_) | Kind::Text => text(name),
        Kind::Password => {
            let path = matches.get_one::<PathBuf>(&field.file_option);
            in_file(path.map(PathBuf::as_path))?.map(Value::String).or_else(|| text(name))
        }
        Kind::List => match matches.get_many::<String>(element(field)) {
            Some(list) => Some(list.cloned().collect()),
            None if field.schema["x-none"].is_null() => None,
            None => text(name).map(|_| json!([])),
        },
    })
}

fn misuse(why: Wrong) -> clap::Error {
    clap::Error::raw(ErrorKind::Io, format!("{why}\n"))
}

fn with_arguments(command: Command, is_new: bool) -> Command {
    command.args(fields_of(is_new).flat_map(|field| arguments(field, is_new)))
}

impl FromArgMatches for NewOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NewOptions, clap::Error> {
        Ok(NewOptions { values: given(matches, true).map_err(misuse)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.values.extend(given(matches, true).map_err(misuse)?);
        Ok(())
    }
}

impl Args for NewOptions {
    fn augment_args(command: Command) -> Command {
        with_arguments(command, true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        with_arguments(command, true)
    }
}

impl FromArgMatches for ChangedOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ChangedOptions, clap::Error> {
        Ok(ChangedOptions { values: given(matches, false).map_err(misuse)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.values.extend(given(matches, false).map_err(misuse)?);
        Ok(())
    }
}

impl Args for ChangedOptions {
    fn augment_args(command: Command) -> Command {
        with_arguments(command, false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        with_arguments(command, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(words: &str) -> Result<Map<String, Value>, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let matches = NewOptions::augment_args(Command::new("x")).try_get_matches_from(words);
        let read = matches.and_then(|matches| NewOptions::from_arg_matches(&matches));
        read.map(|it| it.values).map_err(|why| why.to_string())
    }

    fn changed(words: &str) -> Result<Map<String, Value>, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let matches = ChangedOptions::augment_args(Command::new("x")).try_get_matches_from(words);
        let read = matches.and_then(|matches| ChangedOptions::from_arg_matches(&matches));
        read.map(|it| it.values).map_err(|why| why.to_string())
    }

    #[test]
    fn arguments_become_values() {
        let given = new("--memory 1gb --port 7 --zones --commit fsync --hashing-rule a").unwrap();
        let expected = json!({
            "memory_bytes": 1_u64 << 30, "port": 7, "zones": true, "commit": "fsync",
            "hashing": ["a"]
        });
        assert_eq!(Value::Object(given), expected);
        let given = changed("--zones no --flash none --hashing standard --password x").unwrap();
        let expected = json!({ "zones": false, "flash_bytes": 0, "hashing": [], "password": "x" });
        assert_eq!(Value::Object(given), expected);
        assert_eq!(changed(""), Ok(Map::new()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, why) in [
            ("--port 7", "--memory"),
            ("--memory 1gb --port 0", "from 1 to 65535"),
            ("--memory 1gb --port 7 --commit some", "fsync"),
            ("--memory 1gb --port 7 --hashing standard --hashing-rule a", "cannot be used with"),
            ("--memory 1gb --port 7 --password-file /nowhere/x", "/nowhere/x"),
        ] {
            let said = new(words).expect_err("it is wrong");
            assert!(said.contains(why), "{said}: {why}");
        }
        assert!(changed("--port 7").is_err() && changed("--databases 2").is_err());
    }
}
