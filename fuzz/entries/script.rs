//! Lua: a source is compiled or refused; what libraries take apart (JSON, MessagePack, structs) and
//! what becomes a reply neither crashes nor takes memory far beyond the input. Sources run only if
//! they are these: any other may rightly run for ever, or ask for all memory.

#[path = "memory.rs"]
mod memory;

use resp::{Output, Protocol, Reply};
use script::{Host, Identity, Interpreter, LogLevel, ReplicateTo, Stop};

/// What the input is an argument of.
const SCRIPTS: [&str; 7] = [
    "return cjson.decode(ARGV[1])",
    "return cmsgpack.unpack(ARGV[1])",
    "local text = cmsgpack.pack(cmsgpack.unpack(ARGV[1])) \
     return cmsgpack.pack(cmsgpack.unpack(text)) == text",
    "return {struct.unpack(ARGV[1], ARGV[2])}",
    "return {struct.size(ARGV[1]), struct.pack(ARGV[1], 1, 2, 3)}",
    "return redis.call('answer', ARGV[1])",
    "return {bit.tohex(tonumber(ARGV[1]) or 0), tonumber(ARGV[1], 16), redis.sha1hex(ARGV[2])}",
];

/// Answers every command with OK.
struct Server;

impl Host for Server {
    fn call(&mut self, _: &[&[u8]], _: bool, reply: &mut Vec<u8>) -> Result<(), Stop> {
        reply.extend_from_slice(b"+OK\r\n");
        Ok(())
    }
    fn may_run(&mut self, _: &[&[u8]]) -> Option<bool> {
        Some(true)
    }
    fn log(&mut self, _: LogLevel, _: &[u8]) {}
    fn replicate_to(&mut self, _: ReplicateTo) {}
    fn tick(&mut self) -> Result<(), Stop> {
        Ok(())
    }
}

fn interpreter() -> Interpreter {
    let identity = Identity { name: "dunlin", redis_version: "7.2.4", valkey_version: "9.1.0" };
    Interpreter::new(&identity, 1)
}

/// The first byte says what the rest is: a source, or the arguments of a script, with a line break
/// between them.
pub fn check(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else { return };
    let mut lua = interpreter();
    let Some(source) = SCRIPTS.get(usize::from(kind) % (SCRIPTS.len() + 1)) else {
        // Whether it is right is not the question here.
        let _ = lua.compile([0; 20], rest);
        return;
    };
    lua.compile([0; 20], source.as_bytes()).expect("these are right");
    let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let (first, second) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut out = Output::default();
        memory::bounded(input.len(), || {
            let mut reply = Reply::new(&mut out, protocol);
            lua.eval(&[0; 20], &[], &[first, second], &mut Server, &mut reply)
        });
    }
}
