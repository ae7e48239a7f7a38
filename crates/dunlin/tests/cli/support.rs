//! Runs our program and the one that it stands for.

use harness::server::{Options, Program, Server};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

/// What a program printed, and its status.
#[derive(Debug, PartialEq, Eq)]
pub struct Printed {
    pub out: String,
    pub err: String,
    pub status: Option<i32>,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Printed {
        Printed {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code(),
        }
    }
}

/// The server under test.
pub fn dunlin(arguments: &[&str]) -> Server {
    Server::start(&Program::under_test(), Options::arguments(arguments)).unwrap()
}

/// Our program under the name of another.
pub fn ours(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.arg0(name);
    command
}

/// The real program, where it can be installed.
pub fn theirs(name: &str) -> Option<Command> {
    Some(Program::reference_or_skip()?.beside(name).command())
}

/// Runs a program to its end.
pub fn run(mut command: Command, words: &[impl AsRef<OsStr>], input: &[u8]) -> Printed {
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("REDISCLI_AUTH").env_remove("VALKEYCLI_AUTH");
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program that does not read its input closes it.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// Runs ours on a port.
pub fn cli(port: u16, words: &[&str], input: &str) -> Printed {
    let mut command = ours("redis-cli");
    command.args(["-p", &port.to_string()]);
    run(command, words, input.as_bytes())
}
