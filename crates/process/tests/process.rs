//! Going to the background and setting the process title need a process with one thread, which the
//! usual test harness does not have. So this test has its own `main` and runs itself again as the
//! process to look at.

use process::{daemonize, log, pidfile, title};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

const ROLE: &str = "DUNLIN_TEST_ROLE";
const FOLDER: &str = "DUNLIN_TEST_FOLDER";

fn main() {
    match env::var(ROLE).as_deref() {
        Ok("titled") => titled(),
        Ok("daemon") => daemon(&folder()),
        _ => {
            the_title_replaces_the_command_line_and_spares_the_environment();
            a_daemon_has_a_session_of_its_own_and_no_standard_streams();
            println!("process: 2 tests passed");
        }
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env::var_os(FOLDER).expect("the parent sets it"))
}

fn myself(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test has a path"));
    command.env(ROLE, role).env("DUNLIN_TEST_LAST", "spared");
    command
}

/// Longer than the arguments, so that it reaches into the environment's memory.
const LONG: &str = "TEST a-title-that-is-longer-than-all-arguments-together-and-by-quite-a-bit-too";

fn titled() {
    let title = title::ProcessTitle::prepare();
    let program = env::args().next().unwrap_or_default();
    let long = format!("{LONG} {program}");
    let shown = || fs::read_to_string("/proc/self/cmdline").expect("proc is mounted");
    title.set(long.as_bytes());
    assert_eq!(shown().trim_end_matches('\0'), long);
    title.set(b"short");
    assert_eq!(shown().trim_end_matches('\0'), "short");

    assert_eq!(env::var("DUNLIN_TEST_LAST").as_deref(), Ok("spared"));
    assert_eq!(env::var(ROLE).as_deref(), Ok("titled"));
    // A second claim of the same memory is refused, and harmless.
    let second = title::ProcessTitle::prepare();
    second.set(b"second");
    assert_eq!(shown().trim_end_matches('\0'), "short");
}

fn the_title_replaces_the_command_line_and_spares_the_environment() {
    let status = myself("titled").args(["one", "two"]).status().expect("the child starts");
    assert!(status.success());
}

fn daemon(folder: &Path) {
    log::set_logfile(&folder.join("log")).expect("the folder is writable");
    let before = std::process::id();
    daemonize::daemonize().expect("there is one thread");
    let pidfile = pidfile::PidFile::create(&folder.join("pid")).expect("the folder is writable");
    process::log!(Notice, "in the background");

    let stat = fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(std::process::id().to_string().as_str()));
    assert_ne!(std::process::id(), before);
    for descriptor in 0..3 {
        let target = fs::read_link(format!("/proc/self/fd/{descriptor}")).expect("it is open");
        assert_eq!(target, Path::new("/dev/null"));
    }
    assert_eq!(
        fs::read_to_string(folder.join("pid")).expect("it was written"),
        format!("{}\n", std::process::id())
    );
    pidfile.remove();
    let parent = UnixDatagram::unbound().expect("a socket");
    parent.send_to(b"as it should be", folder.join("socket")).expect("the parent listens");
}

fn a_daemon_has_a_session_of_its_own_and_no_standard_streams() {
    let folder = env::temp_dir().join(format!("dunlin-test-daemon-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let socket = UnixDatagram::bind(folder.join("socket")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");

    let status = myself("daemon").env(FOLDER, &folder).status().expect("the child starts");
    assert!(status.success(), "the parent of the daemon reports success");
    let mut buf = [0; 64];
    let len = socket.recv(&mut buf).expect("the daemon reports within the time limit");
    assert_eq!(&buf[..len], b"as it should be");
    let lines = fs::read_to_string(folder.join("log")).expect("the daemon logged");
    assert!(lines.contains(" * in the background\n"), "{lines}");
    assert!(lines.contains(" * Removing the pid file.\n"), "{lines}");
    assert!(!folder.join("pid").exists());
    fs::remove_dir_all(&folder).expect("it is ours");
}
