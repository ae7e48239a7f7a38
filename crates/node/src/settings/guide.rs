//! Writes what the tree has of the fields of databases outside this crate: the chart's schema, the
//! comment in its values, and the guide's table. A test compares them with the fields, and writes
//! them when told to: `BLESS=1 cargo test -p node guide`.

use super::fields::{self, Field, Kind};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Sizes in the chart; an empty one is as if it was left out.
const SIZE: &str = r"^[0-9]+(\.[0-9]+)?(b|kb|mb|gb|tb|k|m|g)?$|^$";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Compares a file with what it has to be, or writes it.
fn check(name: &str, expected: impl Fn(&str) -> String) {
    let text = std::fs::read_to_string(path(name)).expect("the file is there");
    let expected = expected(&text);
    if std::env::var_os("BLESS").is_some_and(|value| value != "0") {
        std::fs::write(path(name), expected).expect("the repository can be written");
        return;
    }
    assert!(text == expected, "{name} is out of date: BLESS=1 cargo test -p node guide");
}

/// Puts text between two lines of a file.
fn between(text: &str, (begin, end): (&str, &str), new: &str) -> String {
    let (before, rest) = text.split_once(begin).expect("the file marks where it begins");
    let (_, after) = rest.split_once(end).expect("the file marks where it ends");
    format!("{before}{begin}{new}{end}{after}")
}

/// The fields that a chart may have: it names the secret of a password.
fn of_chart() -> impl Iterator<Item = &'static Field> {
    fields::options().filter(|field| !field.is_secret)
}

fn chart_schema(field: &Field) -> Value {
    let help = format!("{}.", field.help);
    let mut schema = match &field.kind {
        Kind::Bytes(_) => json!({ "type": "string", "pattern": SIZE }),
        Kind::Number(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Words(words) => {
            json!({ "enum": words.iter().map(|it| &it.word).collect::<Vec<_>>() })
        }
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::List => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Password | Kind::Text => json!({ "type": "string" }),
    };
    schema["description"] = json!(help);
    schema
}

fn in_json(value: &Value) -> String {
    let indent = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut out, indent);
    serde::Serialize::serialize(value, &mut writer).expect("it is JSON");
    String::from_utf8(out).expect("JSON is text") + "\n"
}

#[test]
fn the_chart_takes_the_fields() {
    check("deploy/helm/dunlin/values.schema.json", |text| {
        let mut whole: Value = serde_json::from_str(text).expect("it is JSON");
        let database = &mut whole["properties"]["databases"]["additionalProperties"];
        // These two are the chart's own.
        let own = ["passwordSecret", "service"];
        let mut properties: Map<String, Value> = own
            .map(|name| (name.to_owned(), database["properties"][name].clone()))
            .into_iter()
            .collect();
        properties.extend(of_chart().map(|it| (it.option.clone(), chart_schema(it))));
        database["properties"] = Value::Object(properties);
        let required = of_chart().filter(|field| field.default.is_none());
        database["required"] = required.map(|it| json!(it.option)).collect();
        in_json(&whole)
    });
    let marks = ("# Fields (BLESS=1 cargo test -p node guide):\n", "# End of the fields.\n");
    check("deploy/helm/dunlin/values.yaml", |text| {
        let mut lines = String::new();
        for field in of_chart() {
            let _ = writeln!(lines, "#   {}: {}. {}", field.option, field.help, takes(field, ""));
        }
        between(text, marks, &lines)
    });
}

/// Says what a field takes, and what it is if it is left out.
fn takes(field: &Field, quote: &str) -> String {
    let mut out = match &field.kind {
        Kind::Bytes(_) => "A size, as 10gb".to_owned(),
        Kind::Number(0, u64::MAX) => "A number".to_owned(),
        Kind::Number(min, max) => format!("{min} to {max}"),
        Kind::Words(words) => {
            let said = words.iter().map(|it| match &*it.help {
                "" => format!("{quote}{}{quote}", it.word),
                help => format!("{quote}{}{quote} ({help})", it.word),
            });
            said.collect::<Vec<_>>().join(", ")
        }
        Kind::Switch => "yes or no".to_owned(),
        Kind::List => "A list of texts".to_owned(),
        Kind::Password | Kind::Text => "A text".to_owned(),
    };
    match &field.default {
        None => out.push_str("; has to be given"),
        Some(Value::String(text)) if !text.is_empty() => {
            let _ = write!(out, "; {quote}{text}{quote} if left out");
        }
        Some(Value::Number(number)) => {
            let _ = write!(out, "; {number} if left out");
        }
        Some(Value::Bool(is_on)) => {
            let _ = write!(out, "; {} if left out", if *is_on { "yes" } else { "no" });
        }
        Some(_) => {}
    }
    out
}

#[test]
fn the_guide_lists_the_fields() {
    let marks = (
        "<!-- fields of databases: BLESS=1 cargo test -p node guide -->\n",
        "<!-- end of the fields -->\n",
    );
    check("docs/cluster/databases.md", |text| {
        let mut table = String::from(
            "\n| option, name in files | what it is | what it takes | `update-db` |\n\
             |---|---|---|---|\n",
        );
        for field in fields::options() {
            let help = field.help.replace('|', "\\|").replace('<', "\\<");
            let changes = if field.is_changeable { "yes" } else { "no" };
            let (option, takes) = (&field.option, takes(field, "`"));
            let _ = writeln!(table, "| `{option}` | {help} | {takes} | {changes} |");
        }
        between(text, marks, &format!("{table}\n"))
    });
}
