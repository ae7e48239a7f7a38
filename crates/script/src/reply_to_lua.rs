//! Replies of commands as values of Lua.
//!
//! | reply | RESP2 | after `redis.setresp(3)` |
//! |---|---|---|
//! | string, integer, array | string, number, table | the same |
//! | status, error | `{ok=…}`, `{err=…}` | the same |
//! | null | `false` | `nil` |
//! | map, set | – | `{map={…}}`, `{set={…=true}}` |
//! | double, boolean | – | `{double=…}`, a boolean |
//! | big number, verbatim string | – | `{big_number=…}`, `{verbatim_string={format=…,string=…}}` |

use crate::lua::Lua;
use resp::{Aggregate, ReplyLimits, Token, next_token};
use std::ffi::c_int;

/// Our own commands wrote the reply.
const LIMITS: ReplyLimits =
    ReplyLimits { depth: usize::MAX, bulk_len: usize::MAX >> 2, elements: usize::MAX >> 2 };

/// Pushes one value; nil for what cannot be read. Returns the bytes behind it.
pub(crate) fn push(lua: Lua, reply: &[u8], is_resp3: bool) -> &[u8] {
    let Ok((token, len)) = next_token(reply, LIMITS) else {
        lua.push_nil();
        return &[];
    };
    let rest = &reply[len..];
    match token {
        Token::Bulk(bytes) => lua.push_bytes(bytes),
        Token::Integer(number) => lua.push_number(number as f64),
        Token::Simple(text) => push_wrapped(lua, "ok", |lua| lua.push_bytes(text)),
        Token::Error(text) => push_error(lua, text),
        Token::Null if is_resp3 => lua.push_nil(),
        Token::Null => lua.push_boolean(false),
        Token::Boolean(value) => lua.push_boolean(value),
        Token::Double(number, _) => push_wrapped(lua, "double", |lua| lua.push_number(number)),
        Token::BigNumber(digits) => push_wrapped(lua, "big_number", |lua| lua.push_bytes(digits)),
        Token::Verbatim(format, text) => push_wrapped(lua, "verbatim_string", |lua| {
            lua.new_table(0, 2);
            lua.push_bytes(format);
            lua.set_field(-2, "format");
            lua.push_bytes(text);
            lua.set_field(-2, "string");
        }),
        Token::Start(kind, count) => {
            if !lua.has_room(6) {
                lua.push_nil();
                return &[];
            }
            return push_aggregate(lua, kind, count, rest, is_resp3);
        }
    }
    rest
}

/// A table with one field, whose value `push` pushes.
fn push_wrapped(lua: Lua, name: &str, push: impl FnOnce(Lua)) {
    lua.new_table(0, 1);
    push(lua);
    lua.set_field(-2, name);
}

/// The table of an error that a command has answered with; the statistics know of it.
pub(crate) fn push_error(lua: Lua, text: &[u8]) {
    lua.new_table(0, 4);
    lua.push_bytes(&normalized(text));
    lua.set_field(-2, "err");
    lua.push_boolean(true);
    lua.set_field(-2, "ignore_error_stats_update");
}

/// An error's text with a code in front, without a mark and without line breaks around it.
pub(crate) fn normalized(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(|byte| !is_break(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_break(byte)).map_or(start, |last| last + 1);
    let text = &text[start..end];
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

fn push_aggregate(
    lua: Lua,
    kind: Aggregate,
    count: usize,
    mut rest: &[u8],
    is_resp3: bool,
) -> &[u8] {
    match kind {
        Aggregate::Array | Aggregate::Push => {
            lua.new_table(count, 0);
            for n in 1..=count {
                rest = push(lua, rest, is_resp3);
                lua.raw_set_at(-2, n as c_int);
            }
        }
        Aggregate::Map => {
            lua.new_table(0, 1);
            lua.push("map");
            lua.new_table(0, count / 2);
            for _ in 0..count / 2 {
                rest = push(lua, rest, is_resp3);
                rest = push(lua, rest, is_resp3);
                set_pair(lua);
            }
            lua.raw_set(-3);
        }
        Aggregate::Set => {
            lua.new_table(0, 1);
            lua.push("set");
            lua.new_table(0, count);
            for _ in 0..count {
                rest = push(lua, rest, is_resp3);
                lua.push_boolean(true);
                set_pair(lua);
            }
            lua.raw_set(-3);
        }
        Aggregate::Attribute => {
            for _ in 0..count {
                rest = push(lua, rest, is_resp3);
                lua.pop(1);
            }
            return push(lua, rest, is_resp3);
        }
    }
    rest
}

/// Sets a pair whose key Lua can have.
fn set_pair(lua: Lua) {
    use crate::lua::Type;
    let is_key = match lua.kind(-2) {
        Type::Nil => false,
        Type::Number => !lua.number(-2).is_nan(),
        _ => true,
    };
    if is_key { lua.raw_set(-3) } else { lua.pop(2) }
}
