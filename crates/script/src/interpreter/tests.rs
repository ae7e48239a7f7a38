//! Scripts against a host that knows a few commands.

use super::*;
use crate::host::ReplicateTo;
use resp::Protocol;

/// Answers `echo` with its argument, `resp` with raw bytes, `stop` by ending the script.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) ticks: usize,
    pub(super) most_ticks: usize,
}

impl Host for Fake {
    fn call(&mut self, words: &[&[u8]], _: bool, reply: &mut Vec<u8>) -> Result<(), Stop> {
        match words {
            [b"echo", text] => reply.extend(
                format!("${}\r\n{}\r\n", text.len(), String::from_utf8_lossy(text)).bytes(),
            ),
            [b"resp", raw] => reply.extend_from_slice(raw),
            [b"stop"] => return Err(Stop),
            _ => reply.extend_from_slice(b"-ERR unknown\r\n"),
        }
        Ok(())
    }
    fn may_run(&mut self, words: &[&[u8]]) -> Option<bool> {
        (words[0] != b"none").then_some(true)
    }
    fn log(&mut self, _: LogLevel, _: &[u8]) {}
    fn replicate_to(&mut self, _: ReplicateTo) {}
    fn tick(&mut self) -> Result<(), Stop> {
        self.ticks += 1;
        if self.most_ticks > 0 && self.ticks > self.most_ticks { Err(Stop) } else { Ok(()) }
    }
}

pub(super) fn interpreter() -> Interpreter {
    let identity = Identity { name: "dunlin", redis_version: "7.2.4", valkey_version: "9.1.0" };
    Interpreter::new(&identity, 1)
}

pub(super) fn run_with(interpreter: &mut Interpreter, host: &mut Fake, code: &str) -> String {
    let sha = structs::sha1::sha1(code.as_bytes());
    if let Err(line) = interpreter.compile(sha, code.as_bytes()) {
        return String::from_utf8_lossy(&line).into_owned();
    }
    let mut out = resp::Output::default();
    let mut reply = Reply::new(&mut out, Protocol::Resp3);
    match interpreter.eval(&sha, &[b"k1"], &[b"a1", b"a2"], host, &mut reply) {
        Outcome::Replied => String::from_utf8_lossy(out.plain()).replace("\r\n", "|"),
        Outcome::Failed(failure) => String::from_utf8_lossy(&failure.line).into_owned(),
        Outcome::Stopped(_) => "stopped".to_owned(),
    }
}

#[track_caller]
fn check(code: &str, expected: &str) {
    assert_eq!(run_with(&mut interpreter(), &mut Fake::default(), code), expected, "{code}");
}

#[test]
fn results_become_replies() {
    check("return {KEYS[1], ARGV[2], 3.9, true, false, nil, 1}", "*5|$2|k1|$2|a2|:3|:1|_|");
    check("return {ok='a\\r\\nb'}", "+a  b|");
    check("return {double=1.5}", ",1.5|");
    check("return {map={a=1}}", "%1|$1|a|:1|");
    check("return {set={a=true}}", "~1|$1|a|");
    check("return {big_number='12'}", "(12|");
    check("return {verbatim_string={format='txt', string='x'}}", "=5|txt:x|");
    check("redis.setresp(3) return {true, false}", "*2|#t|#f|");
    check("return {err='A b'}", "A b");
}

#[test]
fn replies_become_values() {
    check("return redis.call('echo', 12.0)", "$2|12|");
    check("return redis.call('echo', 3.14)", "$4|3.14|");
    check("return redis.call('resp', '*2\\r\\n:1\\r\\n$-1\\r\\n')", "*2|:1|_|");
    check(
        "redis.setresp(3) return redis.call('resp', '%1\\r\\n+a\\r\\n,2\\r\\n')['map'] == nil",
        "#f|",
    );
    check("return redis.pcall('x').err", "$11|ERR unknown|");
    check("redis.call('x')", "ERR unknown script: on @user_script:1.");
}

#[test]
fn the_sandbox_is_closed() {
    for code in [
        "x = 1",
        "redis.x = 1",
        "string.x = 1",
        "rawset(_G, 'x', 1)",
        "table.insert(redis, 1)",
        "setmetatable(_G, {})",
        "getmetatable('').__index = 1",
        "getmetatable(_G).__index = nil",
        "cjson.encode = 1",
    ] {
        let found = run_with(&mut interpreter(), &mut Fake::default(), code);
        assert!(found.contains("Attempt to modify a readonly table"), "{code}: {found}");
    }
    for name in ["print", "dofile", "loadfile", "require", "io", "debug", "package", "newproxy"] {
        let found = run_with(&mut interpreter(), &mut Fake::default(), name.to_owned().as_str());
        assert!(found.starts_with("ERR Error compiling"), "{found}");
        let code = format!("return {name}");
        let found = run_with(&mut interpreter(), &mut Fake::default(), &code);
        assert!(found.contains("nonexistent global variable"), "{name}: {found}");
    }
    check("local n = 0 for k in pairs(os) do n = n + 1 end return n", ":1|");
}

#[test]
fn a_stop_is_not_caught() {
    let endless = "while true do pcall(function() while true do end end) end";
    let mut host = Fake { ticks: 0, most_ticks: 3 };
    assert_eq!(run_with(&mut interpreter(), &mut host, endless), "stopped");
    for code in [
        "pcall(redis.call, 'stop') return 1",
        "redis.pcall('stop') return 1",
        "xpcall(function() redis.call('stop') end, function() return 1 end) return 1",
        "coroutine.resume(coroutine.create(function() redis.call('stop') end)) return 1",
        "coroutine.wrap(function() pcall(redis.call, 'stop') end)() return 1",
    ] {
        check(code, "stopped");
    }
    // The next script is not affected.
    let mut interpreter = interpreter();
    assert_eq!(run_with(&mut interpreter, &mut Fake::default(), "redis.call('stop')"), "stopped");
    let caught = "return pcall(error, 'x')";
    assert_eq!(run_with(&mut interpreter, &mut Fake::default(), caught), "_|");
}

#[test]
fn libraries_register_functions() {
    let mut interpreter = interpreter();
    let code = b"\nlocal function f(keys, args) return {keys[1], args[1], math.floor(2.5)} end\n\
        redis.register_function('f', f)\n\
        redis.register_function{function_name='g', callback=f, flags={'no-writes'}}";
    let functions = interpreter.load(1, code, &mut Fake::default()).expect("it is valid");
    assert_eq!(functions.len(), 2);
    assert!(functions[1].flags.has(crate::shebang::ScriptFlags::NO_WRITES));
    let mut out = resp::Output::default();
    let mut reply = Reply::new(&mut out, Protocol::Resp2);
    let outcome = interpreter.call(1, "f", &[b"k"], &[b"a"], &mut Fake::default(), &mut reply);
    assert!(matches!(outcome, Outcome::Replied), "{outcome:?}");
    assert_eq!(out.plain(), b"*3\r\n$1\r\nk\r\n$1\r\na\r\n:2\r\n");
    for (code, expected) in [
        ("math.random()", "variable 'math'"),
        ("redis.call('x')", "variable 'call'"),
        ("x = 1", "readonly table"),
        ("return 1", "No functions registered"),
        ("local x =", "Error compiling function: user_function:1:"),
    ] {
        let line = interpreter.load(2, code.as_bytes(), &mut Fake::default()).expect_err(code);
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains(expected), "{code}: {line}");
    }
}

/// One test for each flaw of Redis's scripting that is known and could be ours.
mod known_flaws {
    use super::*;

    /// CVE-2022-24735: a script changes what later scripts of other users run.
    /// CVE-2025-46818: so does one through the metatables of basic types.
    #[test]
    fn scripts_do_not_reach_each_other() {
        let mut interpreter = interpreter();
        for code in [
            "redis.call = function() return 'mine' end",
            "rawset(redis, 'call', 1)",
            "_G.tostring = 1",
            "local m = getmetatable('') m.__index = function() end",
            "rawset(getmetatable(''), '__mod', 1)",
            "setmetatable(redis, {__index = {}})",
            "table.sort(redis, function() return true end) table.remove(string, 1) string.len = 1",
        ] {
            run_with(&mut interpreter, &mut Fake::default(), code);
            let found = run_with(
                &mut interpreter,
                &mut Fake::default(),
                "return redis.call('echo', ('x'):len())",
            );
            assert_eq!(found, "$1|1|", "after {code}");
        }
    }

    /// CVE-2022-24736: a crafted chunk makes the server follow a null pointer; precompiled chunks.
    #[test]
    fn precompiled_chunks_are_refused() {
        check("return loadstring(string.dump(function() return 1 end)) == nil", ":1|");
        check("return load(function() return '\\27Lua' end) == nil", ":1|");
    }

    /// CVE-2022-24834: lengths overflow when strings are encoded.
    #[test]
    fn long_strings_are_encoded() {
        check("local s = string.rep('\\1', 3000000) return #cjson.encode(s)", ":18000002|");
        check("local s = string.rep('x', 70000) return #cmsgpack.pack(s, s)", ":140010|");
        check("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", MISSING);
        check("return cmsgpack.unpack('\\223\\255\\255\\255\\255')", MISSING);
        check("return cmsgpack.unpack('\\219\\255\\255\\255\\255a')", MISSING);
    }
    const MISSING: &str = "ERR user_script:1: Missing bytes in input. script: on @user_script:1.";

    /// CVE-2024-31449: the least integer as a number of digits.
    #[test]
    fn digits_have_a_limit() {
        check("return bit.tohex(65535, -2147483648)", "$8|0000FFFF|");
    }

    /// CVE-2024-46981: garbage is collected while the interpreter is taken down or used.
    #[test]
    fn garbage_is_collected_at_any_time() {
        check(
            "for i = 1, 2000 do local t = {} t.t = t collectgarbage('step', 0) end return 1",
            ":1|",
        );
        for _ in 0..20 {
            check("local t = setmetatable({}, {__gc = function() error('x') end}) return 1", ":1|");
        }
    }

    /// CVE-2025-49844: a chunk's name is collected while the chunk is parsed.
    #[test]
    fn names_of_chunks_stay_while_they_are_parsed() {
        check(
            "collectgarbage('setpause', 0) collectgarbage('setstepmul', 100000) \
             for i = 1, 300 do local f, e = loadstring('return ' .. i .. string.rep(' ', i), \
             '@' .. string.rep('n', i)) if not f then return e end collectgarbage('step') end \
             return 1",
            ":1|",
        );
    }

    /// CVE-2025-46817: the number of results overflows.
    #[test]
    fn unpack_counts_without_overflow() {
        let text = "ERR too many results to unpack script: on @user_script:1.";
        check("return {unpack({1, 2, 3}, -2147483648, 2147483647)}", &place(text));
        check("return {unpack({1, 2, 3}, -2, 2147483647)}", &place(text));
        check("return {unpack({1, 2, 3}, 0, 2147483647)}", &place(text));
    }
    fn place(text: &str) -> String {
        text.replace("ERR ", "ERR user_script:1: ")
    }

    /// CVE-2025-46819: the number of equals signs of a long bracket overflows.
    #[test]
    fn long_brackets_are_counted() {
        check("return loadstring('return [' .. string.rep('=', 70000) .. '[x') == nil", ":1|");
        check("return loadstring('return [==[a]=]b]==]')()", "$5|a]=]b|");
        check("--[==[ a ]=] b ]==] return 7", ":7|");
        check("return loadstring('return [=') == nil", ":1|");
    }
}

#[test]
fn compiling_leaves_nothing_behind() {
    let mut interpreter = interpreter();
    let mut host = Fake::default();
    let library = |number: u64| {
        format!(
            "local filler = 'library number {number}' \
             redis.register_function('f', function() return filler end)"
        )
    };
    let mut round = |interpreter: &mut Interpreter, number: u64| {
        interpreter.load(number, library(number).as_bytes(), &mut host).expect("it loads");
        interpreter.retain_libraries(|id| id == number);
        let broken = format!("return 'a text of its own: {number}' +");
        interpreter.load(number, broken.as_bytes(), &mut host).expect_err("it does not compile");
        let sha = structs::sha1::sha1(broken.as_bytes());
        interpreter.compile(sha, broken.as_bytes()).expect_err("it does not compile");
    };
    for number in 0..1000 {
        round(&mut interpreter, number);
    }
    let before = interpreter.used_bytes();
    for number in 1000..6000 {
        round(&mut interpreter, number);
    }
    let after = interpreter.used_bytes();
    assert!(after < before + 100_000, "{before} bytes became {after}");
    assert_eq!(interpreter.last_slot, 2, "slots are used again");
}
