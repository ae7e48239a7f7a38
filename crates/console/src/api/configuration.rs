//! The configuration: options with their documentation, and changing them.

use super::error::check;
use super::{Call, Route};
use crate::words;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/config", "Options, their values, defaults and documentation", list),
        Route::post("/config", "CONFIG SET: all of the options, or none", set),
        Route::post("/config/rewrite", "CONFIG REWRITE: write the values into the file", rewrite),
        Route::post("/config/resetstat", "CONFIG RESETSTAT: begin statistics anew", reset),
        Route::post("/save", "BGSAVE: write a snapshot in the background", save),
        Route::post(
            "/rewrite",
            "BGREWRITEAOF: rewrite the append-only file in the background",
            rewrite_log,
        ),
    ]
}

/// An option.
#[derive(Serialize, JsonSchema)]
struct Option_ {
    /// Its name.
    name: String,
    /// Its value; empty for a secret.
    value: String,
    /// The default, if it is known.
    default: Option<&'static str>,
    /// What it is for, if that is known.
    doc: Option<&'static str>,
    /// Whether the value is not the default.
    differs: bool,
    /// Whether it can be changed while the server runs.
    mutable: bool,
    /// Whether it does anything in this version.
    has_effect: bool,
    /// The words that it takes, if it takes only some.
    choices: Vec<&'static str>,
    /// `bytes` if the value is a number of them; none if it is something else, or not known.
    unit: Option<&'static str>,
}

async fn list(call: Call, _: Nothing) -> Result<Vec<Option_>, ApiError> {
    let requests = [words!["CONFIG", "GET", "*"], words!["INFO", "server"]];
    let replies = call.session.access.run_all(&requests).await?;
    let [values, info] = <[Value; 2]>::try_from(replies).map_err(|_| ApiError::path())?;
    let values = check(values)?;
    // Another server has defaults of its own.
    let is_ours = info.text().contains("server_name:dunlin");
    let mut options: Vec<Option_> = values
        .pairs()
        .into_iter()
        .map(|(name, value)| option(name.text(), value.text(), is_ours))
        .collect();
    options.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(options)
}

fn option(name: String, value: String, is_ours: bool) -> Option_ {
    let Some(spec) = config::find(name.as_bytes()) else {
        return Option_ {
            name,
            value,
            default: None,
            doc: None,
            differs: false,
            mutable: true,
            has_effect: true,
            choices: Vec::new(),
            unit: None,
        };
    };
    let value = if spec.is_sensitive() && !value.is_empty() {
        "••••••".to_owned()
    } else {
        value
    };
    let choices = match spec.kind() {
        config::Kind::Bool => vec!["yes", "no"],
        config::Kind::Enum(choices) => choices.iter().map(|choice| choice.0).collect(),
        _ => Vec::new(),
    };
    Option_ {
        differs: is_ours && spec.default() != value && !is_same_number(spec.default(), &value),
        default: is_ours.then(|| spec.default()),
        doc: Some(spec.doc()),
        mutable: !(is_ours && spec.is_immutable()),
        has_effect: !is_ours || spec.effect() == config::Effect::Live,
        choices,
        unit: matches!(spec.kind(), config::Kind::Memory { .. }).then_some("bytes"),
        name,
        value,
    }
}

/// Whether both are the same number of bytes, as `1mb` and `1048576` are.
fn is_same_number(default: &str, value: &str) -> bool {
    let parse = |text: &str| config::parse_memory(text.as_bytes());
    match (parse(default), parse(value)) {
        (Some(default), Some(value)) => default == value,
        _ => false,
    }
}

/// Options and their new values.
#[derive(Deserialize, JsonSchema)]
struct Changes {
    /// Values by name.
    options: BTreeMap<String, String>,
}

async fn set(call: Call, changes: Changes) -> Result<Done, ApiError> {
    let mut request = words!["CONFIG", "SET"];
    for (name, value) in changes.options {
        request.extend(words![name, value]);
    }
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

async fn plain(call: Call, request: Vec<Vec<u8>>) -> Result<Done, ApiError> {
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

async fn rewrite(call: Call, _: Nothing) -> Result<Done, ApiError> {
    plain(call, words!["CONFIG", "REWRITE"]).await
}

async fn reset(call: Call, _: Nothing) -> Result<Done, ApiError> {
    plain(call, words!["CONFIG", "RESETSTAT"]).await
}

async fn save(call: Call, _: Nothing) -> Result<Done, ApiError> {
    plain(call, words!["BGSAVE"]).await
}

async fn rewrite_log(call: Call, _: Nothing) -> Result<Done, ApiError> {
    plain(call, words!["BGREWRITEAOF"]).await
}
