//! A person at a terminal, which script(1) provides.

use crate::support::dunlin;
use harness::wait::eventually;
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The program on a terminal: what is typed, and all that it has printed.
struct Terminal {
    child: Child,
    input: ChildStdin,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(arguments: &str, history: &str) -> Terminal {
        let program = env!("CARGO_BIN_EXE_dunlin");
        let mut child = Command::new("script")
            .args(["-qfec", &format!("'{program}' cli {arguments}"), "/dev/null"])
            .env("TERM", "xterm")
            .env("DUNLINCLI_HISTFILE", history)
            .env("DUNLINCLI_RCFILE", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let mut stdout = child.stdout.take().unwrap();
        let kept = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = stdout.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                kept.lock().unwrap().extend(&buffer[..count]);
            }
        });
        let input = child.stdin.take().unwrap();
        Terminal { child, input, output }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until this was printed since the last call, and forgets what came before.
    #[track_caller]
    fn expect(&self, wanted: &str) {
        eventually(wanted, || self.text().contains(wanted));
        self.output.lock().unwrap().clear();
    }

    fn type_in(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prompts_hints_completion_and_history() {
    let server = dunlin(&[]);
    let port = server.port();
    let path = std::env::temp_dir().join(format!("dunlin-cli-history-{}", std::process::id()));
    let mut terminal = Terminal::start(&format!("-p {port}"), &path.display().to_string());
    terminal.expect(&format!("127.0.0.1:{port}> "));
    terminal.type_in("getrange ");
    terminal.expect("key start end");
    terminal.type_in("\x15set a b\r");
    terminal.expect("OK");
    // Completion, then the rest of the line.
    terminal.type_in("strle\t");
    terminal.expect("STRLEN");
    terminal.type_in(" a\r");
    terminal.expect("(integer) 1");
    terminal.type_in("multi\r");
    terminal.expect("(TX)> ");
    terminal.type_in("discard\r");
    terminal.expect("OK");
    terminal.type_in("select 3\r");
    terminal.expect("[3]> ");
    terminal.type_in("auth secret\r");
    terminal.expect("ERR AUTH");
    terminal.type_in("subscribe news\r");
    terminal.expect("Reading messages...");
    server.client().command(&["PUBLISH", "news", "hello"]).unwrap();
    terminal.expect("3) \"hello\"");
    terminal.type_in("\r");
    terminal.expect("(subscribed mode)> ");
    terminal.type_in("quit\r");
    terminal.child.wait().unwrap();
    let history = std::fs::read_to_string(&path).unwrap();
    assert!(history.contains("set a b\n") && !history.contains("secret"), "{history}");
    std::fs::remove_file(path).unwrap();
}
