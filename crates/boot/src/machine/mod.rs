//! PID 1 of the machine image: a kernel, this program, and nothing else.
//!
//! It mounts what the kernel offers, loads the drivers that lie beside it, sets the address, mounts
//! the data's disk, starts the server, and waits. Orphans are reaped. When the server ends, the
//! data are written and the machine is switched off; when something fails, the machine says why on
//! its console and is switched off too, since PID 1 must not end.
//!
//! The kernel's command line has the settings: `ip=ADDRESS::GATEWAY:MASK::DEVICE` or `ip=dhcp`;
//! `dunlin.data=/dev/vda` (`tmpfs` for none); `dunlin.args=WORD,WORD…` for the server;
//! `dunlin.container=yes` for a server in a container of the machine, if the image was built with a
//! runtime; `dunlin.end=reboot` where a machine cannot switch itself off.

mod container;
mod dhcp;
mod drivers;
mod network;
mod settings;

use crate::system;
use settings::Settings;
use std::io;
use std::path::Path;
use std::process::Command;

/// Signals that ask for the end: of Ctrl-Alt-Del, of a power failure, of `kill`.
const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGPWR];

/// Where the data are.
const DATA: &str = "/data";

/// Whether this process is PID 1, called `init`.
pub fn is_init(program: &str) -> bool {
    std::process::id() == 1 && Path::new(program).file_name().is_some_and(|name| name == "init")
}

/// Runs the machine. Does not return while it has power.
pub fn run() -> ! {
    let settings = match begin() {
        Ok(settings) => {
            if let Err(error) = serve(&settings) {
                say(&format!("the server cannot be started: {error}"));
            }
            settings
        }
        Err(error) => {
            say(&error);
            Settings::default()
        }
    };
    if let Err(error) = system::unmount(DATA) {
        say(&format!("{DATA} cannot be unmounted: {error}"));
    }
    system::end_machine(settings.ends_by_restart);
    // There are machines that neither can be asked of.
    say("the data are written; switch the machine off");
    loop {
        std::thread::park();
    }
}

fn say(text: &str) {
    eprintln!("dunlin: {text}");
}

/// Makes a machine of the kernel.
fn begin() -> Result<Settings, String> {
    for (source, target, kind) in [
        ("proc", "/proc", "proc"),
        ("sysfs", "/sys", "sysfs"),
        ("devtmpfs", "/dev", "devtmpfs"),
        ("tmpfs", "/tmp", "tmpfs"),
        ("tmpfs", "/run", "tmpfs"),
    ] {
        mount(source, target, kind)?;
    }
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let mut settings = Settings::parse(&line)?;
    settings.limit_memory(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default());
    drivers::load_all(Path::new("/drivers"), &line)?;
    for (name, value) in [
        ("vm/overcommit_memory", "1"),
        ("net/core/somaxconn", "65535"),
        ("net/ipv4/tcp_max_syn_backlog", "65535"),
        ("kernel/panic", "1"),
    ] {
        // A kernel without one of them works, too.
        let _ = std::fs::write(format!("/proc/sys/{name}"), value);
    }
    let _ = std::fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never");
    network::bring_up(&settings.address).map_err(|error| format!("no network: {error}"))?;
    mount_data(&settings.data)?;
    if settings.in_container {
        container::prepare(&settings.server_arguments)?;
    }
    Ok(settings)
}

fn mount(source: &str, target: &str, kind: &str) -> Result<(), String> {
    std::fs::create_dir_all(target).map_err(|error| format!("{target}: {error}"))?;
    match system::mount(source, target, kind, 0, "") {
        // The kernel may have mounted /dev by itself.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        result => result.map_err(|error| format!("{target} cannot be mounted: {error}")),
    }
}

/// How often it is looked for the data's disk, which the kernel finds in its own time.
const LOOKS: u32 = 500;

fn mount_data(device: &str) -> Result<(), String> {
    if device == "tmpfs" {
        return mount("tmpfs", DATA, "tmpfs");
    }
    for _ in 0..LOOKS {
        if Path::new(device).exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut failure = String::new();
    for kind in ["ext4", "xfs"] {
        match mount(device, DATA, kind) {
            Ok(()) => return Ok(()),
            Err(error) if failure.is_empty() => failure = error,
            Err(_) => {}
        }
    }
    Err(format!("{device}: {failure}"))
}

/// Starts the server and waits until it has ended.
fn serve(settings: &Settings) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    system::block_signals(&ENDING);
    let mut command = if settings.in_container {
        container::command()
    } else {
        let mut command = Command::new("/init");
        command.arg0("redis-server").args(&settings.server_arguments);
        command
    };
    command.current_dir(DATA);
    lift_block(&mut command);
    let server = command.spawn()?.id() as i32;
    std::thread::spawn(move || {
        loop {
            let signal = system::next_signal(&ENDING);
            say(&format!("signal {signal}: the server is to end"));
            system::send_signal(server, libc::SIGTERM);
        }
    });
    loop {
        let (child, status) = system::wait_any()?;
        if child == server {
            if status != 0 {
                say(&format!("the server ended with status {status:#x}"));
            }
            return Ok(());
        }
    }
}

/// Lets the server have the signals that PID 1 takes for itself.
#[allow(unsafe_code)]
fn lift_block(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            system::unblock_signals(&ENDING);
            Ok(())
        });
    }
}
