//! Starts the program in a folder of its own and looks at what it does.

use harness::client::Client;
use harness::server::{free_port, signal};
use harness::wait::eventually;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder that is gone when the test is over.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("dunlin-start-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(fs::canonicalize(path).unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file; `FOLDER` in its text becomes the folder's path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text.replace("FOLDER", &self.0.display().to_string())).unwrap();
        path.display().to_string()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// `dunlin server` with these arguments, in `folder`.
pub fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.arg("server").args(arguments).current_dir(&folder.0);
    command.env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// Runs a server that does not start to its end.
pub fn refused(folder: &Folder, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// A port without a listener now, as text too.
pub fn port() -> (u16, String) {
    let port = free_port().unwrap();
    (port, port.to_string())
}

/// A client of a server on the loopback.
pub fn client(port: u16) -> Client {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap()
}

/// What a client is told, as the words of the reply; an error begins with `-`.
pub fn ask(client: &mut Client, request: &[&str]) -> Vec<String> {
    let reply = client.command(request).unwrap();
    let word = |reply: &harness::reply::Reply| {
        let text = reply.text().map(|text| String::from_utf8_lossy(text).into_owned());
        let sign = if reply.is_error() { "-" } else { "" };
        format!("{sign}{}", text.unwrap_or_else(|| format!("{reply:?}")))
    };
    match reply.elements() {
        Some(elements) => elements.iter().map(word).collect(),
        None => vec![word(&reply)],
    }
}

/// A server in the foreground whose output goes to the file `output` of its folder.
pub struct Running {
    pub child: Child,
    pub folder: Folder,
}

impl Running {
    /// Starts it and waits until it is ready.
    pub fn start(folder: Folder, arguments: &[&str]) -> Running {
        let command = command(&folder, arguments);
        Running::spawn(folder, command, "")
    }

    /// The same from any command, which gets `stdin` to read.
    pub fn spawn(folder: Folder, mut command: Command, stdin: &str) -> Running {
        let output = fs::File::create(folder.path("output")).unwrap();
        command.stdin(Stdio::piped()).stderr(output.try_clone().unwrap()).stdout(output);
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let mut running = Running { child, folder };
        eventually("ready", || {
            let status = running.child.try_wait().unwrap();
            assert_eq!(status, None, "{}", running.output());
            running.output().contains("* Ready to accept connections")
        });
        running
    }

    pub fn output(&self) -> String {
        self.folder.read("output")
    }

    /// What follows `mark` on the one line of the output that has it.
    #[track_caller]
    pub fn line(&self, mark: &str) -> String {
        let output = self.output();
        let mut lines = output.lines().filter_map(|line| line.split_once(mark));
        let (_, rest) = lines.next().unwrap_or_else(|| panic!("no {mark:?} in\n{output}"));
        assert!(lines.next().is_none(), "{mark:?} twice in\n{output}");
        rest.to_owned()
    }

    /// Sends a signal and waits for the end.
    pub fn end(&mut self, name: &str) -> ExitStatus {
        signal(self.child.id(), name).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command line that the system shows for a process.
pub fn title(process_id: u32) -> String {
    let shown = fs::read_to_string(format!("/proc/{process_id}/cmdline")).unwrap();
    shown.trim_end_matches('\0').replace('\0', " ")
}

/// The threads of a process by name, each with the processors it may use.
pub fn threads(process_id: u32) -> Vec<(String, String)> {
    let of_task = |folder: &Path| {
        let name = fs::read_to_string(folder.join("comm")).ok()?;
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name.trim().to_owned(), allowed.trim().to_owned()))
    };
    let tasks = fs::read_dir(format!("/proc/{process_id}/task")).unwrap();
    let mut threads: Vec<_> = tasks.flatten().filter_map(|task| of_task(&task.path())).collect();
    threads.sort();
    threads
}
