//! The fields of [`Settings`], read from its schema: what they are called, what they take, what is
//! said of them.
//!
//! Whatever takes or shows options of databases derives it from here: arguments of
//! `dunlin cluster`, files of `dunlin cluster apply`, requests that change a database, the objects
//! of Redis Enterprise's API, the console's forms (by the OpenAPI document), the chart's schema and
//! the guide's table. A field says what is special about it in extensions of its schema:
//!
//! | extension | meaning |
//! |---|---|
//! | `x-option` | its name in arguments and files, if that is not its name in JSON |
//! | `x-unit: bytes` | a number with a unit, as in 10gb |
//! | `x-changes` | it can be changed while the database serves |
//! | `x-env` | the variable that has it for `create-db` |
//! | `x-element` | the argument that has one element of a list |
//! | `x-none` | the word that stands for the empty list |
//! | `x-secret` | it has secrets, which charts must not have |
//! | `x-of-requests` | only requests have it |
//! | `examples` | what the console's form begins with, if that is not the default |
//! | `x-enterprise` | its name, or that of a word, in Redis Enterprise's API |

use super::{Settings, Wrong};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A word that a field can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    /// The word.
    pub word: String,
    /// What it means; perhaps empty.
    pub help: String,
    /// The word for it in Redis Enterprise's API.
    pub enterprise: String,
}

/// What a field takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number of bytes, written with a unit. It is at least so many.
    Bytes(u64),
    /// A number in these limits, which are in it.
    Number(u64, u64),
    /// One of some words.
    Words(Vec<Word>),
    /// Yes or no.
    Switch,
    /// A password.
    Password,
    /// Some texts.
    List,
    /// A text.
    Text,
}

/// A field of [`Settings`].
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub key: String,
    /// Its name in arguments and files.
    pub option: String,
    /// The argument with a file that has it, if it is a password.
    pub file_option: String,
    /// What it is: sentences without the last full stop.
    pub help: String,
    /// What it takes.
    pub kind: Kind,
    /// What it is if it is not given; none has to be given.
    pub default: Option<Value>,
    /// It can be changed while the database serves.
    pub is_changeable: bool,
    /// It has secrets.
    pub is_secret: bool,
    /// The schema of its values.
    pub schema: Value,
}

/// The schema of [`Settings`], with all that it refers to in its places.
fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let settings = schemars::generate::SchemaSettings::default().with(|it| {
            it.inline_subschemas = true;
        });
        settings.into_generator().into_root_schema_for::<Settings>().to_value()
    })
}

/// Returns all fields: first those that have to be given, then by name.
pub fn all() -> &'static [Field] {
    static FIELDS: OnceLock<Vec<Field>> = OnceLock::new();
    FIELDS.get_or_init(|| {
        let schema = schema();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().into_iter().flatten();
        let mut fields: Vec<Field> =
            properties.map(|(key, of)| field(key, of, required.contains(&json!(key)))).collect();
        fields.sort_by_key(|field| (field.default.is_some(), field.option.clone()));
        fields
    })
}

/// Returns the fields that arguments and files can have.
pub fn options() -> impl Iterator<Item = &'static Field> {
    all().iter().filter(|field| field.schema["x-of-requests"].is_null())
}

/// Returns the field that arguments and files call so.
pub fn find(option: &str) -> Option<&'static Field> {
    options().find(|field| field.option == option)
}

fn field(key: &str, schema: &Value, is_required: bool) -> Field {
    let text = |name: &str| schema[name].as_str().map(str::to_owned);
    let default = schema.get("default").cloned();
    let kind = kind(schema);
    let option = text("x-option").unwrap_or_else(|| key.to_owned());
    Field {
        key: key.to_owned(),
        file_option: format!("{option}-file"),
        option,
        help: text("description").unwrap_or_default().replace('\n', " "),
        // What is left out of JSON is empty.
        default: if is_required { None } else { Some(default.unwrap_or_else(|| empty(&kind))) },
        is_changeable: schema["x-changes"] == true,
        is_secret: kind == Kind::Password || schema["x-secret"] == true,
        kind,
        schema: schema.clone(),
    }
}

fn empty(kind: &Kind) -> Value {
    match kind {
        Kind::Bytes(_) | Kind::Number(..) => json!(0),
        Kind::Switch => json!(false),
        Kind::List => json!([]),
        Kind::Words(_) | Kind::Password | Kind::Text => json!(""),
    }
}

fn kind(schema: &Value) -> Kind {
    if schema.get("oneOf").is_some() || schema.get("enum").is_some() {
        return Kind::Words(words(schema));
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("integer"), _) => {
            let limit = |name: &str| schema[name].as_u64();
            let min = limit("minimum").unwrap_or(0);
            match schema["x-unit"] == "bytes" {
                true => Kind::Bytes(min),
                false => Kind::Number(min, limit("maximum").unwrap_or(u64::MAX)),
            }
        }
        (Some("boolean"), _) => Kind::Switch,
        (Some("array"), _) => Kind::List,
        (_, Some("password")) => Kind::Password,
        _ => Kind::Text,
    }
}

/// Reads the words of a schema: `enum`, or `oneOf` constants and more of `enum`.
fn words(schema: &Value) -> Vec<Word> {
    let word = |word: &Value, of: &Value| {
        let word = word.as_str().unwrap_or_default().to_owned();
        let text = |name: &str| of[name].as_str().map(str::to_owned);
        let enterprise = text("x-enterprise").unwrap_or_else(|| word.clone());
        Word { help: text("description").unwrap_or_default(), enterprise, word }
    };
    let list = |name: &str| schema[name].as_array().into_iter().flatten();
    let plain = list("enum").map(|it| word(it, &Value::Null));
    let described = list("oneOf").flat_map(|of| match of.get("const") {
        Some(it) => vec![word(it, of)],
        None => words(of),
    });
    described.chain(plain).collect()
}

impl Field {
    /// Reads a value as users write it, in arguments and files; one element of a list.
    ///
    /// # Errors
    /// What it has to be.
    pub fn read(&self, text: &str) -> Result<Value, Wrong> {
        let option = &self.option;
        match &self.kind {
            Kind::Bytes(0) if matches!(text, "0" | "none") => Ok(json!(0)),
            Kind::Bytes(_) => {
                let bytes = config::parse_memory(text.as_bytes()).filter(|bytes| *bytes > 0);
                let why = || format!("{option} {text}: a size is a number with a unit, as in 10gb");
                bytes.map(|bytes| json!(bytes)).ok_or_else(|| Wrong(why()))
            }
            Kind::Number(..) => {
                let number: u64 = text.parse().map_err(|_| Wrong(self.limits(text)))?;
                self.check(&json!(number)).map(|()| json!(number))
            }
            Kind::Words(_) => self.check(&json!(text)).map(|()| json!(text)),
            Kind::Switch => match text {
                "yes" | "true" => Ok(json!(true)),
                "no" | "false" => Ok(json!(false)),
                _ => Err(Wrong(format!("{option}: '{text}' is neither yes nor no"))),
            },
            Kind::Password | Kind::List | Kind::Text => Ok(json!(text)),
        }
    }

    fn limits(&self, given: &str) -> String {
        let option = &self.option;
        match &self.kind {
            Kind::Number(min, max) => {
                format!("{option} is a number from {min} to {max}, and '{given}' is not")
            }
            Kind::Words(words) => {
                let words: Vec<&str> = words.iter().map(|it| &*it.word).collect();
                format!("{option}: '{given}' is none of {}", words.join(", "))
            }
            _ => format!("{option}: '{given}' is less than it can be"),
        }
    }

    /// Checks that a value is in the limits of the field.
    ///
    /// # Errors
    /// Which they are.
    pub fn check(&self, value: &Value) -> Result<(), Wrong> {
        let number = value.as_u64();
        let is_fine = match &self.kind {
            Kind::Number(min, max) => number.is_some_and(|it| (*min..=*max).contains(&it)),
            Kind::Bytes(min) => number.is_some_and(|it| it >= *min),
            Kind::Words(words) => words.iter().any(|it| *value == *it.word),
            _ => true,
        };
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if is_fine { Ok(()) } else { Err(Wrong(self.limits(&shown))) }
    }
}

/// Checks that all fields are in their limits.
///
/// # Errors
/// The first that is not.
pub fn check_limits(settings: &Settings) -> Result<(), Wrong> {
    let values = values(settings);
    for field in all() {
        // What is left out has its default.
        if let Some(value) = values.get(&field.key) {
            field.check(value)?;
        }
    }
    Ok(())
}

/// Returns the fields of options as JSON.
pub fn values(settings: &Settings) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(map)) => map,
        other => unreachable!("options are an object of JSON: {other:?}"),
    }
}

/// Reads options that users give: all others are those of a plain database.
///
/// # Errors
/// A value is of another type, or one that has to be given is missing.
pub fn from_values(values: Map<String, Value>) -> Result<Settings, Wrong> {
    for field in all().iter().filter(|field| field.default.is_none()) {
        if !values.contains_key(&field.key) {
            return Err(Wrong(format!("{} is missing", field.option)));
        }
    }
    serde_json::from_value(Value::Object(values)).map_err(|why| Wrong(why.to_string()))
}

/// Options that are to change, by their names in JSON. Those that are left out stay.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Value>")]
pub struct Changes(BTreeMap<String, Value>);

impl TryFrom<BTreeMap<String, Value>> for Changes {
    type Error = Wrong;

    fn try_from(mut map: BTreeMap<String, Value>) -> Result<Changes, Wrong> {
        map.retain(|_, value| !value.is_null());
        let is_known = |key: &String| all().iter().any(|it| it.is_changeable && it.key == *key);
        if let Some(key) = map.keys().find(|key| !is_known(key)) {
            let known = all().iter().filter(|it| it.is_changeable).map(|it| &*it.key);
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(Wrong(format!("unknown field `{key}`: one of {known} can be changed")));
        }
        let changes = Changes(map);
        // Says which value is of another type.
        changes.apply(&Settings::plain(1))?;
        Ok(changes)
    }
}

impl Changes {
    /// Returns changes of these fields, which may be any.
    pub fn new(values: impl IntoIterator<Item = (String, Value)>) -> Changes {
        Changes(values.into_iter().collect())
    }

    /// Returns the options of a database after the changes.
    ///
    /// # Errors
    /// A value is of another type.
    pub fn apply(&self, old: &Settings) -> Result<Settings, Wrong> {
        let mut values = values(old);
        if self.0.contains_key("password") {
            values.remove("password_sha256");
        }
        values.extend(self.0.clone());
        // Serde's sentences name types and not fields, so fields are read one by one.
        for (key, value) in &self.0 {
            let mut one = super::fields::values(&Settings::plain(1));
            one.insert(key.clone(), value.clone());
            let read = from_values(one);
            read.map_err(|why| Wrong(format!("{key}: {why}")))?;
        }
        from_values(values)
    }
}

/// Returns the schema of the fields that can be changed, none of which has to be given.
impl JsonSchema for Changes {
    fn schema_name() -> Cow<'static, str> {
        "Changes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let changeable = all().iter().filter(|field| field.is_changeable);
        let properties = changeable.map(|field| {
            let mut schema = field.schema.clone();
            if let Some(map) = schema.as_object_mut() {
                map.remove("default");
            }
            (field.key.clone(), schema)
        });
        let properties: Map<String, Value> = properties.collect();
        schemars::json_schema!({ "type": "object", "properties": properties })
    }
}

/// Returns the word by which a value of a field is written.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("it is a word: {other:?}"),
    }
}

/// Reads a word that stands for a value.
///
/// # Errors
/// There is no such word; the error lists those that there are.
pub fn read_word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(json!(text)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::WORDS_FORMAT;
    use crate::settings::tests::settings;

    #[test]
    fn fields_say_what_they_take() {
        let names: Vec<&str> = options().map(|field| &*field.option).collect();
        assert_eq!(names[..2], ["memory", "port"], "they have to be given");
        assert!(names[2..].is_sorted() && find("password_sha256").is_none());
        assert!(options().all(|field| !field.help.is_empty() && !field.help.ends_with('.')));
        let kind = |option| find(option).expect("it is there").kind.clone();
        assert_eq!(kind("port"), Kind::Number(1, 65535));
        assert_eq!(kind("memory"), Kind::Bytes(1));
        let Kind::Words(words) = kind("persistence") else { panic!("it is one of some words") };
        let said: Vec<_> = words.iter().map(|it| (&*it.word, &*it.enterprise)).collect();
        // A word without one of Redis Enterprise's own is called the same there.
        let expected = [("none", "disabled"), ("rdb", "snapshot"), ("aof", "aof")];
        assert!(expected.iter().all(|word| said.contains(word)), "{said:?}");
        assert!(matches!(kind("eviction"), Kind::Words(words) if words.len() >= 8));
        // What JSON leaves out is said in the schema, too.
        let plain = values(&Settings::plain(1));
        for field in all().iter().filter(|field| field.default.is_some()) {
            let mut given = plain.clone();
            given.insert(field.key.clone(), field.default.clone().unwrap_or_default());
            assert_eq!(from_values(given), Ok(Settings::plain(1)), "{}", field.key);
        }
    }

    #[test]
    fn this_version_says_that_it_reads_all_words() {
        for field in all() {
            let Kind::Words(words) = &field.kind else { continue };
            for word in words {
                let mut given = values(&Settings::plain(1));
                given.insert(field.key.clone(), json!(word.word));
                let format = from_values(given).expect("it is a word of the field").format();
                let known = 1..=WORDS_FORMAT;
                assert!(known.contains(&format), "{}: raise WORDS_FORMAT", word.word);
            }
        }
    }

    #[test]
    fn values_are_read_as_users_write_them() {
        let read = |option, text| find(option).expect("it is there").read(text).map_err(|it| it.0);
        assert_eq!(read("flash", "none"), Ok(json!(0)));
        assert_eq!(read("memory", "1gb"), Ok(json!(1_u64 << 30)));
        assert_eq!(read("zones", "yes"), Ok(json!(true)));
        for (option, text, why) in [
            ("memory", "0", "a number with a unit"),
            ("shards", "x", "from 1 to 100"),
            ("port", "65536", "from 1 to 65535"),
            ("commit", "some", "memory, fsync, quorum"),
            ("tls", "on", "neither yes nor no"),
        ] {
            let said = read(option, text).expect_err("it is wrong");
            assert!(said.contains(why), "{said}: {why}");
        }
    }

    #[test]
    fn only_fields_that_can_change_do_and_the_others_stay() {
        let old = Settings { password_sha256: "00".repeat(32), ..settings() };
        let read = |text: &str| serde_json::from_str::<Changes>(text).map_err(|it| it.to_string());
        let same = read(r#"{"eviction": null}"#).expect("it is nothing");
        assert_eq!(same.apply(&old).as_ref(), Ok(&old));
        let changes = read(r#"{"shards": 5, "password": "x"}"#).expect("they are changes");
        let new = changes.apply(&old).expect("they are sound");
        assert_eq!((new.shards, &*new.password, &*new.password_sha256), (5, "x", ""));
        assert_eq!((new.memory_bytes, new.replicas), (old.memory_bytes, old.replicas));
        for (text, why) in [
            (r#"{"port": 1}"#, "unknown field `port`"),
            (r#"{"shard": 1}"#, "unknown field `shard`"),
            (r#"{"shards": "1"}"#, "shards: invalid type"),
            (r#"{"commit": "some"}"#, "commit: unknown variant"),
        ] {
            let said = read(text).expect_err("it is wrong");
            assert!(said.contains(why), "{said}: {why}");
        }
    }
}
