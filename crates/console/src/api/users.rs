//! ACL users.

use super::error::check;
use super::{Call, Route};
use crate::words;
use axum::http::Method;
use resp::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use web::rest::{ApiError, Done, Nothing};

pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/users", "All users with their rules", list),
        Route::post(
            "/users",
            "ACL SETUSER: apply rules to a user, which is created if need be",
            set,
        ),
        Route::post("/users", "ACL DELUSER: delete a user and close its connections", delete)
            .by(Method::DELETE),
        Route::post("/users/save", "ACL SAVE: write the users into the ACL file", save),
        Route::get("/users/log", "ACL LOG: requests and log-ins that were refused", log),
    ]
}

/// A user.
#[derive(Serialize, JsonSchema)]
struct User {
    /// Its name.
    name: String,
    /// Whether it may log in.
    is_on: bool,
    /// Whether it needs no password.
    needs_no_password: bool,
    /// How many passwords it has.
    passwords: usize,
    /// The rules, without passwords.
    rules: Vec<String>,
}

async fn list(call: Call, _: Nothing) -> Result<Vec<User>, ApiError> {
    let reply = check(call.session.access.run(words!["ACL", "LIST"]).await?)?;
    Ok(reply.items().iter().filter_map(|line| parse(&line.text())).collect())
}

/// Reads a line of ACL LIST; hashes of passwords are left out.
fn parse(line: &str) -> Option<User> {
    let mut words = line.split(' ').filter(|word| !word.is_empty()).skip(1);
    let name = words.next()?.to_owned();
    let words: Vec<&str> = words.collect();
    let has = |rule: &str| words.contains(&rule);
    let is_password = |word: &&&str| word.starts_with('#');
    let is_shown = |word: &&&str| {
        let is_state =
            matches!(**word, "on" | "off" | "nopass" | "sanitize-payload" | "resetchannels");
        !is_password(word) && !is_state
    };
    Some(User {
        name,
        is_on: has("on"),
        needs_no_password: has("nopass"),
        passwords: words.iter().filter(is_password).count(),
        rules: words.iter().filter(is_shown).map(|word| (*word).to_owned()).collect(),
    })
}

/// Rules for a user.
#[derive(Deserialize, JsonSchema)]
struct Change {
    /// The user's name.
    name: String,
    /// Rules as of ACL SETUSER, in order.
    rules: Vec<String>,
}

async fn set(call: Call, change: Change) -> Result<Done, ApiError> {
    let mut request = words!["ACL", "SETUSER", change.name];
    request.extend(change.rules.into_iter().map(String::into_bytes));
    check(call.session.access.run(request).await?)?;
    Ok(Done::new())
}

/// A user's name.
#[derive(Deserialize, JsonSchema)]
struct Name {
    /// The user's name.
    name: String,
}

async fn delete(call: Call, user: Name) -> Result<Done, ApiError> {
    let reply = check(call.session.access.run(words!["ACL", "DELUSER", user.name]).await?)?;
    if reply.integer().unwrap_or(0) == 0 {
        return Err(ApiError::missing("user"));
    }
    Ok(Done::new())
}

async fn save(call: Call, _: Nothing) -> Result<Done, ApiError> {
    check(call.session.access.run(words!["ACL", "SAVE"]).await?)?;
    Ok(Done::new())
}

/// A request or a log-in that was refused.
#[derive(Serialize, JsonSchema)]
struct Refused {
    /// How often.
    count: i64,
    /// Why: `command`, `key`, `channel` or `auth`.
    reason: String,
    /// What was refused.
    object: String,
    /// The user.
    user: String,
    /// Seconds since it was seen last.
    age_s: f64,
    /// The client, as CLIENT LIST has it.
    client: String,
}

async fn log(call: Call, _: Nothing) -> Result<Vec<Refused>, ApiError> {
    let reply = check(call.session.access.run(words!["ACL", "LOG"]).await?)?;
    let entry = |row: &Value| {
        let text = |name: &str| row.get(name).map(Value::text).unwrap_or_default();
        Refused {
            count: row.get("count").and_then(Value::integer).unwrap_or(0),
            reason: text("reason"),
            object: text("object"),
            user: text("username"),
            age_s: row.get("age-seconds").and_then(Value::number).unwrap_or(0.0),
            client: text("client-info"),
        }
    };
    Ok(reply.items().iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_of_a_password_is_shown() {
        let user = parse("user bob on #0123 #4567 ~a* resetchannels -@all +get").unwrap();
        assert_eq!((user.name.as_str(), user.is_on, user.passwords), ("bob", true, 2));
        assert_eq!(user.rules, ["~a*", "-@all", "+get"]);
        assert!(parse("user").is_none());
    }
}
