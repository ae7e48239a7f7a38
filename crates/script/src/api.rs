//! The table `redis`, which is also `server`.

use crate::arguments::to_integer;
use crate::host::{Host, Identity, LogLevel, ReplicateTo, Stop, version_number};
use crate::lua::{Function, Lua, Raise, Type};
use crate::register;
use crate::reply_to_lua::{self, normalized};
use crate::shared::Shared;
use std::ffi::c_int;
use structs::numbers;

static FUNCTIONS: &[(&str, Function)] = &[
    ("call", |lua| command(lua, OnError::Raise)),
    ("pcall", |lua| command(lua, OnError::Return)),
    ("log", log),
    ("setresp", setresp),
    ("error_reply", error_reply),
    ("status_reply", status_reply),
    ("sha1hex", sha1hex),
    ("set_repl", set_repl),
    ("acl_check_cmd", acl_check_cmd),
    // Scripts replicate what they do, and there is no debugger.
    ("replicate_commands", |lua| {
        lua.push_boolean(true);
        Ok(1)
    }),
    ("breakpoint", |lua| {
        lua.push_boolean(false);
        Ok(1)
    }),
    ("debug", |_| Ok(0)),
];

static LOADING_FUNCTIONS: &[(&str, Function)] =
    &[("register_function", register::register_function), ("log", log)];

static NUMBERS: &[(&str, f64)] =
    &[("LOG_DEBUG", 0.0), ("LOG_VERBOSE", 1.0), ("LOG_NOTICE", 2.0), ("LOG_WARNING", 3.0)];

static REPLICATION: &[(&str, f64)] = &[
    ("REPL_NONE", 0.0),
    ("REPL_AOF", 1.0),
    ("REPL_SLAVE", 2.0),
    ("REPL_REPLICA", 2.0),
    ("REPL_ALL", 3.0),
];

/// Pushes the table.
pub(crate) fn push(lua: Lua, identity: &Identity) {
    push_with(lua, FUNCTIONS, identity);
    for (name, number) in REPLICATION {
        lua.push_number(*number);
        lua.set_field(-2, name);
    }
}

/// Pushes what there is of it while a library is loaded.
pub(crate) fn push_loading(lua: Lua, identity: &Identity) {
    push_with(lua, LOADING_FUNCTIONS, identity);
}

fn push_with(lua: Lua, functions: &[(&str, Function)], identity: &Identity) {
    crate::libs::push(lua, functions);
    for (name, number) in NUMBERS {
        lua.push_number(*number);
        lua.set_field(-2, name);
    }
    for (name, text) in [
        ("SERVER_NAME", identity.name),
        ("REDIS_VERSION", identity.redis_version),
        ("VALKEY_VERSION", identity.valkey_version),
    ] {
        lua.push(text);
        lua.set_field(-2, name);
    }
    for (name, version) in [
        ("REDIS_VERSION_NUM", identity.redis_version),
        ("VALKEY_VERSION_NUM", identity.valkey_version),
    ] {
        lua.push_number(version_number(version));
        lua.set_field(-2, name);
    }
}

// ---- errors -------------------------------------------------------------------------------

/// Raises `{err="ERR <text>"}`.
pub(crate) fn refuse(lua: Lua, text: &str) -> Raise {
    push_refusal(lua, text);
    Raise::Value
}

fn push_refusal(lua: Lua, text: &str) {
    lua.new_table(0, 3);
    lua.push(&format!("ERR {text}"));
    lua.set_field(-2, "err");
}

/// The handler of errors: makes a table of the error and adds where it was raised.
pub(crate) fn annotate(lua: Lua) -> Result<c_int, Raise> {
    lua.set_top(1);
    if !lua.has_room(8) {
        return Ok(1);
    }
    if lua.kind(1) != Type::Table || lua.is_readonly(1) {
        let text = match lua.kind(1) {
            Type::String | Type::Number => lua.bytes(1).unwrap_or_default().to_vec(),
            Type::Boolean => lua.boolean(1).to_string().into_bytes(),
            other => other.name().into(),
        };
        lua.new_table(0, 3);
        lua.push_bytes(&[b"ERR ", text.as_slice()].concat());
        lua.set_field(-2, "err");
        lua.remove(1);
    }
    // 0 is this function, 1 the one that raised the error.
    let place = lua.place(1).filter(|place| place.is_lua).or_else(|| lua.place(2));
    if let Some(place) = place {
        lua.push(&place.source);
        lua.set_field(1, "source");
        lua.push_number(f64::from(place.line));
        lua.set_field(1, "line");
    }
    Ok(1)
}

// ---- commands -----------------------------------------------------------------------------

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnError {
    Raise,
    Return,
}

/// The arguments as the words of a request. They stay on the stack; a number becomes text in its
/// place, since there may be as many arguments as the stack can hold.
fn collect(lua: Lua, words: &mut Vec<&[u8]>) -> Result<(), &'static str> {
    let count = lua.top();
    if count == 0 {
        return Err("Please specify at least one argument for this call");
    }
    for index in 1..=count {
        let word = match lua.kind(index) {
            Type::String => lua.bytes(index),
            Type::Number => number_as_text(lua, index),
            _ => None,
        };
        words.push(word.ok_or("Command arguments must be strings or integers")?);
    }
    Ok(())
}

/// An integer without a fraction, any other number in as few digits as say it exactly.
fn number_as_text<'w>(lua: Lua, index: c_int) -> Option<&'w [u8]> {
    // One slot is free even if the arguments fill the stack: a function has more than it is given.
    let number = lua.number(index);
    let mut text = Vec::with_capacity(32);
    match numbers::f64_as_integer(number) {
        Some(integer) => numbers::push_i64(&mut text, integer),
        None => numbers::push_f64(&mut text, number),
    }
    lua.push_bytes(&text);
    lua.replace(index);
    lua.bytes(index)
}

fn command(lua: Lua, on_error: OnError) -> Result<c_int, Raise> {
    let shared = Shared::of(lua);
    let is_resp3 = shared.is_resp3.get();
    shared.with_words(|words| {
        if let Err(text) = collect(lua, words) {
            push_refusal(lua, text);
            return answer(on_error, Answer::Error);
        }
        shared.with_reply(|reply| {
            match shared.host(|host| host.call(words, is_resp3, reply)) {
                Some(Ok(())) => {}
                Some(Err(Stop)) => return Err(Raise::Stop),
                None => {
                    let text = "redis.call/pcall can only be called inside a script invocation";
                    push_refusal(lua, text);
                    return answer(on_error, Answer::Error);
                }
            }
            // The arguments may fill the stack, and are not needed any more.
            words.clear();
            lua.set_top(0);
            if !lua.has_room(8) {
                return Err(Raise::message("stack overflow"));
            }
            lua.count_bytes(reply.len());
            let is_error = reply.first() == Some(&b'-');
            reply_to_lua::push(lua, reply, is_resp3);
            answer(on_error, if is_error { Answer::Error } else { Answer::Value })
        })
    })
}

enum Answer {
    Value,
    Error,
}

fn answer(on_error: OnError, answer: Answer) -> Result<c_int, Raise> {
    match (answer, on_error) {
        (Answer::Error, OnError::Raise) => Err(Raise::Value),
        _ => Ok(1),
    }
}

fn acl_check_cmd(lua: Lua) -> Result<c_int, Raise> {
    let shared = Shared::of(lua);
    shared.with_words(|words| {
        collect(lua, words).map_err(|text| refuse(lua, text))?;
        let answer = shared.host(|host: &mut dyn Host| host.may_run(words)).flatten();
        let Some(may_run) = answer else {
            return Err(refuse(lua, "Invalid command passed to server.acl_check_cmd()"));
        };
        lua.push_boolean(may_run);
        Ok(1)
    })
}

// ---- the rest -----------------------------------------------------------------------------

fn log(lua: Lua) -> Result<c_int, Raise> {
    let count = lua.top();
    if count < 2 {
        return Err(refuse(lua, "server.log() requires two arguments or more."));
    }
    if lua.kind(1) != Type::Number {
        return Err(refuse(lua, "First argument must be a number (log level)."));
    }
    let level = match to_integer(lua.number(1)) {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(refuse(lua, "Invalid log level.")),
    };
    let words: Vec<&[u8]> = (2..=count).filter_map(|index| lua.bytes(index)).collect();
    Shared::of(lua).host(|host| host.log(level, &words.join(&b' ')));
    Ok(0)
}

fn setresp(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(refuse(lua, "server.setresp() requires one argument."));
    }
    match to_integer(lua.number(1)) {
        version @ (2 | 3) => Shared::of(lua).is_resp3.set(version == 3),
        _ => return Err(refuse(lua, "RESP version must be 2 or 3.")),
    }
    Ok(0)
}

fn set_repl(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(refuse(lua, "server.set_repl() requires one argument."));
    }
    let flags = to_integer(lua.number(1));
    if !(0..=3).contains(&flags) {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(refuse(lua, text));
    }
    let to = ReplicateTo { append_only_file: flags & 1 != 0, replicas: flags & 2 != 0 };
    Shared::of(lua).host(|host| host.replicate_to(to));
    Ok(0)
}

/// The only argument, a string, of a function that makes a table of it.
fn only_text<'t>(lua: Lua) -> Option<&'t [u8]> {
    (lua.top() == 1 && lua.kind(1) == Type::String).then(|| lua.bytes(1)).flatten()
}

fn error_reply(lua: Lua) -> Result<c_int, Raise> {
    match only_text(lua) {
        Some(text) => {
            lua.new_table(0, 1);
            lua.push_bytes(&normalized(text));
            lua.set_field(-2, "err");
        }
        None => push_refusal(lua, "wrong number or type of arguments"),
    }
    Ok(1)
}

fn status_reply(lua: Lua) -> Result<c_int, Raise> {
    match only_text(lua) {
        Some(text) => {
            lua.new_table(0, 1);
            lua.push_bytes(text);
            lua.set_field(-2, "ok");
        }
        None => push_refusal(lua, "wrong number or type of arguments"),
    }
    Ok(1)
}

fn sha1hex(lua: Lua) -> Result<c_int, Raise> {
    if lua.top() != 1 {
        return Err(refuse(lua, "wrong number of arguments"));
    }
    let bytes = lua.bytes(1).unwrap_or_default();
    lua.count_bytes(bytes.len().saturating_mul(8));
    let digest = structs::sha1::sha1(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    lua.push(&hex);
    Ok(1)
}
