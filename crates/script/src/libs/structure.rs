//! `struct`: values as bytes by a format, as of Roberto Ierusalimschy's library of this name.
//!
//! A format is read option by option; `Layout` keeps the byte order and the alignment so far.

use crate::arguments;
use crate::lua::{Function, Lua, Raise, Type};
use std::ffi::c_int;

pub(crate) static FUNCTIONS: &[(&str, Function)] =
    &[("pack", pack), ("unpack", unpack), ("size", size)];

/// Bytes of the widest integer.
const MAX_INTEGER: usize = 32;
/// The alignment of `!` alone.
const MAX_ALIGNMENT: usize = 8;

struct Layout<'f> {
    format: &'f [u8],
    at: usize,
    is_little: bool,
    alignment: usize,
}

/// An option that stands for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Item {
    Padding,
    Integer { width: usize, is_signed: bool },
    Chars(usize),
    Terminated,
    Single,
    Double,
}

impl Item {
    fn width(self) -> usize {
        match self {
            Item::Padding => 1,
            Item::Integer { width, .. } => width,
            Item::Chars(len) => len,
            Item::Terminated => 0,
            Item::Single => 4,
            Item::Double => 8,
        }
    }
}

impl<'f> Layout<'f> {
    fn new(format: &'f [u8]) -> Layout<'f> {
        let is_little = cfg!(target_endian = "little");
        Layout { format, at: 0, is_little, alignment: 1 }
    }

    fn digits(&mut self) -> Result<Option<usize>, Raise> {
        let mut number: Option<usize> = None;
        while let Some(digit) = self.format.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            let digit = usize::from(digit - b'0');
            let next = number.unwrap_or(0) * 10 + digit;
            if next > i32::MAX as usize {
                return Err(Raise::message("integral size overflow"));
            }
            number = Some(next);
            self.at += 1;
        }
        Ok(number)
    }

    fn integer(&mut self, default: usize, is_signed: bool) -> Result<Item, Raise> {
        let width = self.digits()?.unwrap_or(default);
        if width > MAX_INTEGER {
            return Err(Raise::message(format!(
                "integral size {width} is larger than limit of {MAX_INTEGER}"
            )));
        }
        Ok(Item::Integer { width, is_signed })
    }

    /// The next option that stands for bytes.
    fn next(&mut self) -> Result<Option<Item>, Raise> {
        let fixed = |width, is_signed| Ok(Some(Item::Integer { width, is_signed }));
        while let Some(&option) = self.format.get(self.at) {
            self.at += 1;
            match option {
                b' ' => {}
                b'>' => self.is_little = false,
                b'<' => self.is_little = true,
                b'!' => self.align()?,
                b'x' => return Ok(Some(Item::Padding)),
                b'b' | b'B' => return fixed(1, option == b'b'),
                b'h' | b'H' => return fixed(2, option == b'h'),
                b'l' | b'L' => return fixed(8, option == b'l'),
                b'T' => return fixed(8, false),
                b'i' | b'I' => return self.integer(4, option == b'i').map(Some),
                b'c' => {
                    let len = self.digits()?.unwrap_or(1);
                    return Ok(Some(Item::Chars(len)));
                }
                b's' => return Ok(Some(Item::Terminated)),
                b'f' => return Ok(Some(Item::Single)),
                b'd' => return Ok(Some(Item::Double)),
                _ => {
                    let text = format!("invalid format option '{}'", char::from(option));
                    return Err(Raise::argument(1, text));
                }
            }
        }
        Ok(None)
    }

    fn align(&mut self) -> Result<(), Raise> {
        let wanted = self.digits()?.unwrap_or(MAX_ALIGNMENT);
        if !wanted.is_power_of_two() {
            return Err(Raise::message(format!("alignment {wanted} is not a power of 2")));
        }
        self.alignment = wanted;
        Ok(())
    }

    /// Bytes to skip in front of an option at this place.
    fn gap(&self, at: usize, item: Item) -> usize {
        let is_aligned = matches!(item, Item::Integer { .. } | Item::Single | Item::Double);
        let align = item.width().min(self.alignment);
        if !is_aligned || align <= 1 || !align.is_power_of_two() {
            return 0;
        }
        at.wrapping_neg() & (align - 1)
    }
}

// ---- pack ---------------------------------------------------------------------------------

fn pack(lua: Lua) -> Result<c_int, Raise> {
    let mut layout = Layout::new(arguments::bytes(lua, 1)?);
    let mut out = Vec::new();
    let mut index = 2;
    while let Some(item) = layout.next()? {
        lua.count(1)?;
        out.resize(out.len() + layout.gap(out.len(), item), 0);
        match item {
            Item::Padding => {
                out.push(0);
                continue;
            }
            Item::Integer { width, .. } => {
                let number = to_bits(arguments::number(lua, index)?);
                push_integer(&mut out, number, width, layout.is_little);
            }
            Item::Chars(len) => push_chars(lua, index, len, &mut out)?,
            Item::Terminated => {
                out.extend_from_slice(arguments::bytes(lua, index)?);
                out.push(0);
            }
            Item::Single => {
                let number = arguments::number(lua, index)? as f32;
                out.extend(ordered(number.to_be_bytes(), layout.is_little));
            }
            Item::Double => {
                let number = arguments::number(lua, index)?;
                out.extend(ordered(number.to_be_bytes(), layout.is_little));
            }
        }
        index += 1;
    }
    lua.push_bytes(&out);
    Ok(1)
}

/// A number's bits as of an integer; numbers above the signed ones are taken as unsigned.
fn to_bits(number: f64) -> u64 {
    if number < 0.0 { arguments::to_integer(number) as u64 } else { number as u64 }
}

fn push_integer(out: &mut Vec<u8>, number: u64, width: usize, is_little: bool) {
    let start = out.len();
    out.extend((0..width).map(|byte| if byte < 8 { (number >> (8 * byte)) as u8 } else { 0 }));
    if !is_little {
        out[start..].reverse();
    }
}

fn push_chars(lua: Lua, index: c_int, len: usize, out: &mut Vec<u8>) -> Result<(), Raise> {
    let bytes = arguments::bytes(lua, index)?;
    let len = if len == 0 { bytes.len() } else { len };
    let bytes = bytes.get(..len).ok_or_else(|| {
        // The reference has counted the argument by then.
        Raise::argument(index + 1, "string too short")
    })?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn ordered<const N: usize>(mut big: [u8; N], is_little: bool) -> [u8; N] {
    if is_little {
        big.reverse();
    }
    big
}

// ---- unpack -------------------------------------------------------------------------------

fn unpack(lua: Lua) -> Result<c_int, Raise> {
    let mut layout = Layout::new(arguments::bytes(lua, 1)?);
    let data = arguments::bytes(lua, 2)?;
    let start = arguments::integer_or(lua, 3, 1)?;
    if start < 1 {
        return Err(Raise::argument(3, "offset must be 1 or greater"));
    }
    let short = || Raise::argument(2, "data string too short");
    let mut at = (start - 1) as usize;
    let mut results = 0;
    while let Some(item) = layout.next()? {
        lua.count(1)?;
        at = at.saturating_add(layout.gap(at, item));
        let rest = data.get(at..).filter(|rest| rest.len() >= item.width()).ok_or_else(short)?;
        if !lua.has_room(3) {
            return Err(Raise::message("too many results"));
        }
        at += item.width();
        match item {
            Item::Padding => continue,
            Item::Integer { width, is_signed } => {
                lua.push_number(read_integer(&rest[..width], layout.is_little, is_signed));
            }
            Item::Chars(0) => {
                // The result before says how many; it is replaced.
                if results == 0 || lua.kind(-1) != Type::Number {
                    return Err(Raise::message("format 'c0' needs a previous size"));
                }
                let len = to_bits(lua.number(-1)) as usize;
                lua.pop(1);
                results -= 1;
                lua.push_bytes(rest.get(..len).ok_or_else(short)?);
                at += len;
            }
            Item::Chars(len) => lua.push_bytes(&rest[..len]),
            Item::Terminated => {
                let end = rest.iter().position(|&byte| byte == 0);
                let end = end.ok_or_else(|| Raise::message("unfinished string in data"))?;
                lua.push_bytes(&rest[..end]);
                at += end + 1;
            }
            Item::Single => lua.push_number(f64::from(read_single(rest, layout.is_little))),
            Item::Double => lua.push_number(read_double(rest, layout.is_little)),
        }
        results += 1;
    }
    lua.push_number((at + 1) as f64);
    Ok(results + 1)
}

/// The low eight bytes as a number.
fn read_integer(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let width = bytes.len();
    let byte = |n: usize| u64::from(if is_little { bytes[n] } else { bytes[width - 1 - n] });
    let number = (0..width.min(8)).fold(0, |number, n| number | byte(n) << (8 * n));
    if !is_signed {
        return number as f64;
    }
    let unused = 64 - 8 * width.min(8) as u32;
    if unused == 64 { 0.0 } else { ((number << unused) as i64 >> unused) as f64 }
}

fn read_single(bytes: &[u8], is_little: bool) -> f32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[..4]);
    f32::from_be_bytes(ordered(four, is_little))
}

fn read_double(bytes: &[u8], is_little: bool) -> f64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[..8]);
    f64::from_be_bytes(ordered(eight, is_little))
}

// ---- size ---------------------------------------------------------------------------------

fn size(lua: Lua) -> Result<c_int, Raise> {
    let mut layout = Layout::new(arguments::bytes(lua, 1)?);
    let mut at = 0usize;
    while let Some(item) = layout.next()? {
        lua.count(1)?;
        if item == Item::Terminated {
            return Err(Raise::argument(1, "option 's' has no fixed size"));
        }
        if item == Item::Chars(0) {
            return Err(Raise::argument(1, "option 'c0' has no fixed size"));
        }
        at = at.saturating_add(layout.gap(at, item)).saturating_add(item.width());
    }
    lua.push_number(at as f64);
    Ok(1)
}
