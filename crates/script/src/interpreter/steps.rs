//! Calls of library functions that do not come back are stopped as endless loops are.

use super::tests::{Fake, interpreter, run_with};

/// Runs `call` behind `setup` and has it stopped at its second tick, which comes long before its
/// end.
#[track_caller]
fn check_stop(setup: &str, call: &str) {
    let mut host = Fake::default();
    run_with(&mut interpreter(), &mut host, setup);
    let mut host = Fake { ticks: 0, most_ticks: host.ticks + 1 };
    let found = run_with(&mut interpreter(), &mut host, &format!("{setup} {call}"));
    assert_eq!(found, "stopped", "{setup} {call}");
}

#[test]
fn patterns() {
    let text = "local s = string.rep('a', 1000000)";
    for call in [
        "return s:find('.-.-.-b')",
        "return s:find('.*.*.*b')",
        "return s:find('a*a*a*b')",
        "return s:find('(a*)(a*)%2%1b')",
        "return s:find(string.rep('a?', 100) .. 'b')",
        "for i = 1, 100 do pcall(s.find, s, string.rep('a?', 100000)) end",
        "return s:find('a-$b')",
        "return s:find('[' .. string.rep('b', 100000) .. 'a]*b')",
        "return s:find('[' .. string.rep('b', 100000) .. 'a]-b')",
        "return s:find('%bab')",
        "return s:find('%f[' .. string.rep('b', 100000) .. ']b')",
        "return s:find(string.rep('a', 500000) .. 'b', 1, true)",
        "return s:match('(.-)(.-)(.-)b')",
        "for x in s:gmatch('a-b') do end",
        "return s:gsub('', string.rep('y', 1000))",
        "return s:gsub('a-a-b', '')",
    ] {
        check_stop(text, call);
    }
}

#[test]
fn strings() {
    check_stop("", "return string.rep('', 2147483647)");
    check_stop("", "return string.rep('abc', 200000000)");
    check_stop("", "return load(function() return 'x = 1 ' end)");
    let text = "local s = string.rep('a', 1000000)";
    for call in ["s:upper()", "s:reverse()", "s:sub(2)", "x = s .. 'b'", "redis.sha1hex(s)"] {
        let call = format!("local x for i = 1, 1000 do {call} end");
        check_stop(text, &call);
    }
    check_stop(
        "local a, b = string.rep('a', 1000000) .. '1', string.rep('a', 1000000) .. '2'",
        "local x for i = 1, 1000 do x = a < b or b <= a end",
    );
    check_stop(
        "local n = string.rep('0', 1000000) .. '1'",
        "for i = 1, 1000 do if n + 1 > tonumber(n) then i = i end end",
    );
}

#[test]
fn tables() {
    let table = "local t = {} for i = 1, 300000 do t[i] = (i * 7919) % 300007 end";
    for call in [
        "table.sort(t)",
        "table.insert(t, 1, 1)",
        "table.remove(t, 1)",
        "table.concat(t, ',')",
        "table.maxn(t)",
        "cjson.encode(t)",
        "cjson.encode({a = {b = {t}}})",
        "cmsgpack.pack(t)",
    ] {
        check_stop(table, call);
    }
    let holes =
        "local t = {} for i = 1, 300000 do t[i] = i end for i = 1, 299999 do t[i] = nil end";
    check_stop(holes, "for i = 1, 100 do next(t) end");
    check_stop(holes, "for i = 1, 100 do collectgarbage() end");
}

#[test]
fn codecs() {
    let text = "local s = '[' .. string.rep('1,', 300000) .. '1]'";
    check_stop(text, "cjson.decode(s)");
    check_stop(
        "local s = string.rep('{\"a\":', 900)",
        "for i = 1, 1000 do pcall(cjson.decode, s) end",
    );
    check_stop("cjson.encode_sparse_array(false, 0)", "return #cjson.encode({[100000000] = 1})");
    let packed = "local s = '\\221\\000\\004\\000\\000' .. string.rep('\\001', 262144)";
    check_stop(packed, "cmsgpack.unpack(s)");
    check_stop("local f = string.rep('x', 300000)", "struct.pack(f)");
    check_stop("local f = string.rep('x', 300000)", "struct.unpack(f, f)");
    check_stop("local f = string.rep('b', 300000)", "struct.size(f)");
}

/// Each coroutine would else have a counter of its own, which begins anew.
#[test]
fn coroutines() {
    check_stop(
        "",
        "for i = 1, 1000 do coroutine.wrap(function() for i = 1, 10000 do end end)() end",
    );
    check_stop(
        "",
        "for i = 1, 1000 do pcall(coroutine.wrap(function() ('a'):rep(3000):find('.-.-b') end)) end",
    );
}

/// Calls within calls end with an error before the stack of a thread does.
#[test]
fn nesting_has_an_end() {
    for code in [
        "local function f() string.gsub('a', 'a', f) end f()",
        "local function f() table.sort({1, 2}, f) end f()",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() return pcall(f) end f()",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "local s = string.rep('(', 1000) return load(function() return s end)",
        "local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
        "cjson.encode_max_depth(1000000) local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
        "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 1000000))",
        "return cmsgpack.unpack(string.rep('\\145', 1000000))",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "return ('a'):rep(100000):find(('a?'):rep(100000))",
    ] {
        let found = run_with(&mut interpreter(), &mut Fake::default(), code);
        assert!(found.len() > 1, "{code}: {found}");
    }
}
