//! What a script returns as a reply; the opposite of [`reply_to_lua`](crate::reply_to_lua).
//!
//! A number loses its fraction, an array ends at its first nil, and what RESP has no form for is
//! null. `true` is 1 and `false` null, unless the script has called `redis.setresp(3)`.

use crate::arguments::to_integer;
use crate::lua::{Lua, Type};
use resp::Reply;

/// Writes the value on top, and takes it away.
pub(crate) fn write(lua: Lua, reply: &mut Reply<'_>, is_resp3: bool) {
    if !lua.has_room(6) {
        reply.error("ERR reached lua stack limit");
        return lua.pop(1);
    }
    match lua.kind(-1) {
        Type::String => reply.bulk(lua.bytes(-1).unwrap_or_default()),
        Type::Number => reply.integer(to_integer(lua.number(-1))),
        Type::Boolean if is_resp3 => reply.boolean(lua.boolean(-1)),
        Type::Boolean if lua.boolean(-1) => reply.integer(1),
        Type::Table => write_table(lua, reply, is_resp3),
        _ => reply.null(),
    }
    lua.pop(1);
}

/// The string in a field of the table on top.
pub(crate) fn text_field(lua: Lua, name: &str) -> Option<Vec<u8>> {
    lua.field(-1, name);
    let is_text = lua.kind(-1) == Type::String;
    let text = if is_text { lua.bytes(-1).map(<[u8]>::to_vec) } else { None };
    lua.pop(1);
    text
}

fn on_one_line(mut text: Vec<u8>) -> String {
    text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
    String::from_utf8_lossy(&text).into_owned()
}

fn write_table(lua: Lua, reply: &mut Reply<'_>, is_resp3: bool) {
    if let Some(error) = text_field(lua, "err") {
        return reply.error_bytes(&error);
    }
    if let Some(status) = text_field(lua, "ok") {
        return write_status(reply, &status);
    }
    lua.field(-1, "double");
    if lua.kind(-1) == Type::Number {
        reply.double(lua.number(-1));
        return lua.pop(1);
    }
    lua.pop(1);
    if is_table_field(lua, "map") {
        return write_map(lua, reply, is_resp3);
    }
    if is_table_field(lua, "set") {
        return write_set(lua, reply, is_resp3);
    }
    if let Some(digits) = text_field(lua, "big_number") {
        return reply.big_number(&on_one_line(digits));
    }
    if is_table_field(lua, "verbatim_string") {
        let format = text_field(lua, "format");
        let text = text_field(lua, "string");
        lua.pop(1);
        if let (Some(format), Some(text)) = (format, text) {
            return write_verbatim(reply, &format, &text);
        }
    }
    write_array(lua, reply, is_resp3);
}

fn write_status(reply: &mut Reply<'_>, status: &[u8]) {
    reply.raw(b"+");
    let clean: Vec<u8> =
        status.iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }).collect();
    reply.raw(&clean);
    reply.raw(b"\r\n");
}

/// A format has three letters: it is cut or filled up.
fn write_verbatim(reply: &mut Reply<'_>, format: &[u8], text: &[u8]) {
    let mut letters: String = format.iter().take(3).map(|&b| char::from(b & 0x7f)).collect();
    while letters.len() < 3 {
        letters.push(' ');
    }
    reply.verbatim(&letters, text);
}

/// Whether the table on top has a table in this field, which is then on top.
fn is_table_field(lua: Lua, name: &str) -> bool {
    lua.field(-1, name);
    let is_table = lua.kind(-1) == Type::Table;
    if !is_table {
        lua.pop(1);
    }
    is_table
}

fn write_map(lua: Lua, reply: &mut Reply<'_>, is_resp3: bool) {
    let place = reply.deferred();
    let mut pairs = 0;
    lua.push_nil();
    while lua.next(-2) {
        // The key stays for the walk.
        lua.copy(-2);
        write(lua, reply, is_resp3);
        write(lua, reply, is_resp3);
        pairs += 1;
    }
    lua.pop(1);
    reply.finish_map(place, pairs);
}

fn write_set(lua: Lua, reply: &mut Reply<'_>, is_resp3: bool) {
    let place = reply.deferred();
    let mut len = 0;
    lua.push_nil();
    while lua.next(-2) {
        lua.pop(1);
        lua.copy(-1);
        write(lua, reply, is_resp3);
        len += 1;
    }
    lua.pop(1);
    reply.finish_set(place, len);
}

fn write_array(lua: Lua, reply: &mut Reply<'_>, is_resp3: bool) {
    let place = reply.deferred();
    let mut len = 0;
    loop {
        lua.push_number((len + 1) as f64);
        lua.raw_get(-2);
        if lua.kind(-1) == Type::Nil {
            lua.pop(1);
            break;
        }
        write(lua, reply, is_resp3);
        len += 1;
    }
    reply.finish_array(place, len);
}
