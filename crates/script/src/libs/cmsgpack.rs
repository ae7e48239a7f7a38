//! `cmsgpack`: MessagePack, with the choices of the library of this name that Redis comes with.
//!
//! Lengths that the input claims are never trusted: tables grow with what is there.

use crate::arguments;
use crate::lua::{Function, Lua, Raise, Type};
use std::ffi::c_int;

pub(crate) static FUNCTIONS: &[(&str, Function)] = &[
    ("pack", pack),
    ("unpack", |lua| unpack(lua, 0, 0)),
    ("unpack_one", |lua| {
        let offset = arguments::integer_or(lua, 2, 0)?;
        unpack(lua, 1, offset)
    }),
    ("unpack_limit", |lua| {
        let limit = arguments::integer(lua, 2)?;
        let offset = arguments::integer_or(lua, 3, 0)?;
        unpack(lua, limit as i32, offset)
    }),
];

/// Tables within tables that are packed; what lies deeper is nil.
const MAX_NESTING: usize = 16;
/// Tables within tables that are unpacked.
const MAX_UNPACKED_NESTING: usize = 10_000;

// ---- packing ------------------------------------------------------------------------------

fn pack(lua: Lua) -> Result<c_int, Raise> {
    let count = lua.top();
    if count == 0 {
        return Err(Raise::argument(0, "MessagePack pack needs input."));
    }
    if !lua.has_room(8) {
        return Err(Raise::argument(0, "Too many arguments for MessagePack pack."));
    }
    let mut out = Vec::new();
    for index in 1..=count {
        pack_value(lua, index, 0, &mut out)?;
    }
    lua.push_bytes(&out);
    Ok(1)
}

fn pack_value(lua: Lua, index: c_int, depth: usize, out: &mut Vec<u8>) -> Result<(), Raise> {
    lua.count(1)?;
    match lua.kind(index) {
        Type::String => {
            let bytes = lua.bytes(index).unwrap_or_default();
            lua.count_bytes(bytes.len());
            pack_bytes(bytes, out);
        }
        Type::Boolean => out.push(if lua.boolean(index) { 0xc3 } else { 0xc2 }),
        Type::Number => pack_number(lua.number(index), out),
        Type::Table if depth < MAX_NESTING => pack_table(lua, index, depth, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn pack_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..=0xff => out.extend_from_slice(&[0xd9, len as u8]),
        len @ 0x100..=0xffff => {
            out.push(0xda);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(0xdb);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

fn pack_number(number: f64, out: &mut Vec<u8>) {
    let integer = arguments::to_integer(number);
    if integer as f64 == number {
        return pack_integer(integer, out);
    }
    let single = number as f32;
    if f64::from(single) == number {
        out.push(0xca);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// The shortest form.
fn pack_integer(number: i64, out: &mut Vec<u8>) {
    let (code, width) = match number {
        0..=0x7f => return out.push(number as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -32..=-1 => return out.push(number as u8),
        -128..=-33 => (0xd0, 1),
        -32768..=-129 => (0xd1, 2),
        -2_147_483_648..=-32769 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(code);
    out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
}

fn pack_table(lua: Lua, index: c_int, depth: usize, out: &mut Vec<u8>) -> Result<(), Raise> {
    if !lua.has_room(8) {
        return Err(Raise::message("too many nested tables"));
    }
    let table = lua.absolute(index);
    let (pairs, is_array) = measure(lua, table)?;
    if is_array {
        pack_size(pairs, 0x90, 0xdc, out);
        for n in 1..=pairs {
            lua.raw_get_at(table, n as c_int);
            pack_value(lua, -1, depth + 1, out)?;
            lua.pop(1);
        }
        return Ok(());
    }
    pack_size(pairs, 0x80, 0xde, out);
    lua.push_nil();
    while lua.next(table) {
        // A number that becomes a string in place would confuse the walk; its copy does not.
        lua.copy(-2);
        pack_value(lua, -1, depth + 1, out)?;
        lua.pop(1);
        pack_value(lua, -1, depth + 1, out)?;
        lua.pop(1);
    }
    Ok(())
}

fn pack_size(count: usize, short: u8, long: u8, out: &mut Vec<u8>) {
    match count {
        0..16 => out.push(short | count as u8),
        16..=0xffff => {
            out.push(long);
            out.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => {
            out.push(long + 1);
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
}

/// How many pairs a table has, and whether its keys are the numbers from one to that.
fn measure(lua: Lua, table: c_int) -> Result<(usize, bool), Raise> {
    let (mut pairs, mut most, mut is_array) = (0usize, 0.0f64, true);
    lua.push_nil();
    while lua.next(table) {
        lua.count(1)?;
        lua.pop(1);
        pairs += 1;
        let key = if lua.kind(-1) == Type::Number { lua.number(-1) } else { -1.0 };
        is_array &= key > 0.0 && key.fract() == 0.0;
        most = most.max(key);
    }
    Ok((pairs, is_array && most == pairs as f64))
}

// ---- unpacking ----------------------------------------------------------------------------

/// Why a text cannot be unpacked.
enum Bad {
    Stopped,
    Short,
    Format,
    Deep,
}

fn unpack(lua: Lua, limit: i32, offset: i64) -> Result<c_int, Raise> {
    let input = arguments::bytes(lua, 1)?;
    if offset < 0 || limit < 0 {
        let len = input.len();
        return Err(Raise::message(format!(
            "Invalid request to unpack with offset of {offset} and limit of {len}."
        )));
    }
    let Some(rest) = input.get(offset as usize..) else {
        let len = input.len();
        return Err(Raise::message(format!(
            "Start offset {offset} greater than input length {len}."
        )));
    };
    let is_all = limit == 0 && offset == 0;
    let most = if is_all { usize::MAX } else { limit as usize };
    let mut from = Cursor { lua, rest };
    let mut count = 0;
    while count < most && !from.rest.is_empty() {
        if !lua.has_room(4) {
            return Err(Raise::message("too many results to unpack"));
        }
        from.value(0).map_err(|bad| match bad {
            Bad::Stopped => Raise::Stop,
            Bad::Short => Raise::message("Missing bytes in input."),
            Bad::Format => Raise::message("Bad data format in input."),
            Bad::Deep => Raise::message("Too many nested tables in input."),
        })?;
        count += 1;
    }
    let results = count as c_int;
    if is_all {
        return Ok(results);
    }
    let end = input.len() - from.rest.len();
    lua.push_number(if from.rest.is_empty() { -1.0 } else { end as f64 });
    lua.insert(-1 - results);
    Ok(results + 1)
}

struct Cursor<'a> {
    lua: Lua,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Bad::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, Bad> {
        Ok(self.take(width)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn signed(&mut self, width: usize) -> Result<i64, Bad> {
        let unused = 64 - 8 * width as u32;
        Ok((self.unsigned(width)? << unused) as i64 >> unused)
    }

    fn value(&mut self, depth: usize) -> Result<(), Bad> {
        let lua = self.lua;
        lua.count(1).map_err(|_| Bad::Stopped)?;
        let code = self.take(1)?[0];
        match code {
            0x00..=0x7f => lua.push_number(f64::from(code)),
            0xe0..=0xff => lua.push_number(f64::from(code as i8)),
            0x80..=0x8f => self.map(usize::from(code & 15), depth)?,
            0x90..=0x9f => self.array(usize::from(code & 15), depth)?,
            0xa0..=0xbf => self.string(usize::from(code & 31))?,
            0xc0 => lua.push_nil(),
            0xc2 | 0xc3 => lua.push_boolean(code == 0xc3),
            0xca => {
                let bits = self.unsigned(4)? as u32;
                lua.push_number(f64::from(f32::from_bits(bits)));
            }
            0xcb => lua.push_number(f64::from_bits(self.unsigned(8)?)),
            // Eight bytes without a sign are taken for eight with one, as the references do.
            0xcc..=0xcf => lua.push_number(self.unsigned(1 << (code - 0xcc))? as i64 as f64),
            0xd0..=0xd3 => lua.push_number(self.signed(1 << (code - 0xd0))? as f64),
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (code - 0xd9))?;
                self.string(len as usize)?;
            }
            0xdc | 0xdd => {
                let len = self.unsigned(2 << (code - 0xdc))?;
                self.array(len as usize, depth)?;
            }
            0xde | 0xdf => {
                let len = self.unsigned(2 << (code - 0xde))?;
                self.map(len as usize, depth)?;
            }
            _ => return Err(Bad::Format),
        }
        Ok(())
    }

    fn string(&mut self, len: usize) -> Result<(), Bad> {
        let bytes = self.take(len)?;
        self.lua.push_bytes(bytes);
        Ok(())
    }

    fn enter(&self, depth: usize) -> Result<(), Bad> {
        if depth < MAX_UNPACKED_NESTING && self.lua.has_room(4) { Ok(()) } else { Err(Bad::Deep) }
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<(), Bad> {
        self.enter(depth)?;
        self.lua.new_table(0, 0);
        for n in 1..=len {
            self.value(depth + 1)?;
            self.lua.raw_set_at(-2, n as c_int);
        }
        Ok(())
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<(), Bad> {
        self.enter(depth)?;
        self.lua.new_table(0, 0);
        for _ in 0..len {
            self.value(depth + 1)?;
            let is_key = match self.lua.kind(-1) {
                Type::Nil => false,
                Type::Number => !self.lua.number(-1).is_nan(),
                _ => true,
            };
            if !is_key {
                return Err(Bad::Format);
            }
            self.value(depth + 1)?;
            self.lua.raw_set(-3);
        }
        Ok(())
    }
}
