//! The fuzz target of Lua on seeded mutations of sources and arguments.

#[path = "../../../fuzz/entries/script.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn hostile_sources_and_arguments_do_no_harm() {
    let inputs: Vec<Vec<u8>> = [
        &b"\x00{\"a\":[1,2.5,-3e7,null,true,\"x\\u00e9\\ud83d\\ude00\"],\"b\":{}}"[..],
        b"\x01[[[[[[1]]]],\"\\n\\t\\\"\",{\"k\":[]}]",
        b"\x02\x93\x01\xa3abc\x82\xa1k\xc0\xa1l\xc3",
        b"\x03\xcb\x40\x09\x21\xfb\x54\x44\x2d\x18\xcd\x01\x00\xda\x00\x02hi\xde\x00\x01\x01\x02",
        b"\x04>I2i4c3s!8d\n\x00\x01\x00\x00\x00\x02abcz\x00ffffffff",
        b"\x05<bBhHlLfdsx!4I3c0",
        b"\x0618446744073709551615\nx",
        b"\x07-2147483649\nabc",
        b"\x08local function f(a, ...) local t = {1, 2, x = a, [3] = ...} return #t, t.x end \
          for i = 1, 3 do if i % 2 == 0 then break end end return f(KEYS[1], 'a' .. 1, [[long]])",
        b"\x08while true do repeat local x = not (1 ~= 2 and 3 >= 4 or nil) until x end --[==[ c ]==]",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 24] = [
        b"\n",
        b"(",
        b")",
        b"{",
        b"}",
        b"[",
        b"]",
        b"[[",
        b"\x1bLua",
        b"function ",
        b" end ",
        b"..",
        b"...",
        b"\"",
        b"\\u",
        b"1e308",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"c2147483647",
        b"!16",
        b"i64",
        b"goto ",
        b"local ",
    ];
    mutate::run(&inputs, &words, entry::check);
}
