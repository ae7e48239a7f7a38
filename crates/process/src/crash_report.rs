//! The text of a crash report, in the order it is written.
//!
//! Everything up to the symbols runs inside a signal handler: no allocation, no locks.
#![allow(unsafe_code)] // reads siginfo and unwinds without the backtrace crate's lock

use super::log::Level;
use super::registers::Registers;
use super::signal_safe::{LogDescriptor, Text, log_line};
use std::ffi::c_int;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use structs::sync::lock;

/// What a report says about the process.
pub(super) struct About {
    version: String,
    started: Instant,
    program: Program,
}

/// The addresses the executable is loaded at: `addr2line` wants offsets from their start.
struct Program(Range<usize>);

impl About {
    pub fn new(version: &str) -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let executable = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let program = Program::find(&maps, &executable.to_string_lossy());
        Self { version: version.to_owned(), started: Instant::now(), program }
    }
}

impl Program {
    fn find(maps: &str, executable: &str) -> Self {
        let mut range = 0..0;
        for line in maps.lines().filter(|line| !executable.is_empty() && line.ends_with(executable))
        {
            let Some((start, rest)) = line.split_once('-') else { continue };
            let end = rest.split(' ').next().unwrap_or_default();
            let hex = |text| usize::from_str_radix(text, 16).unwrap_or_default();
            range.start = if range.is_empty() { hex(start) } else { range.start };
            range.end = hex(end);
        }
        Self(range)
    }
}

/// What went wrong.
pub(super) struct Crash<'a> {
    cause: Cause<'a>,
    /// Where the crash happened; frames before it belong to the handler.
    instruction: Option<usize>,
    registers: Option<Registers>,
}

enum Cause<'a> {
    Signal { number: c_int, code: c_int, address: usize, sender: Option<(i32, u32)> },
    Panic { message: &'a str, place: &'a str },
}

impl<'a> Crash<'a> {
    /// # Safety
    /// `info` and `context` are what the kernel passed to a handler for the signal `number`.
    pub unsafe fn from_signal(
        number: c_int,
        info: &libc::siginfo_t,
        context: &libc::ucontext_t,
    ) -> Self {
        let registers = Registers::of(context);
        let sent = matches!(info.si_code, libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE);
        // SAFETY: the kernel fills in the sender for the codes of sent signals, and the address for
        // the others (of these signals).
        let (sender, address) = unsafe {
            if sent {
                (Some((info.si_pid(), info.si_uid())), 0)
            } else {
                (None, info.si_addr().addr())
            }
        };
        let cause = Cause::Signal { number, code: info.si_code, address, sender };
        Self { cause, instruction: Some(registers.instruction()), registers: Some(registers) }
    }

    pub fn from_panic(message: &'a str, place: &'a str) -> Self {
        Self { cause: Cause::Panic { message, place }, instruction: None, registers: None }
    }
}

/// The head of the report: what happened, where, to which process.
pub(super) fn write_start(log: &LogDescriptor, crash: &Crash<'_>, about: Option<&About>) {
    log.write(b"\n\n=== DUNLIN BUG REPORT START: Cut & paste starting from here ===\n");
    let version = about.map_or("?", |about| about.version.as_str());
    match crash.cause {
        Cause::Signal { number, code, address, sender } => {
            line(format_args!("Dunlin {version} crashed by signal: {number}, si_code: {code}"));
            match sender {
                Some((pid, uid)) => {
                    line(format_args!("Sent by process {pid}, user {uid}"));
                    // Rust ends a process without memory in this way, and names the size there
                    // only.
                    if number == libc::SIGABRT && u32::try_from(pid) == Ok(std::process::id()) {
                        line(format_args!(
                            "It has ended itself: out of memory if standard error has 'memory \
                             allocation of N bytes failed'"
                        ));
                    }
                }
                None => line(format_args!("Accessing address: {address:#x}")),
            }
            if let Some(instruction) = crash.instruction {
                line(format_args!("Crashed running the instruction at: {instruction:#x}"));
            }
            let stack = crash.registers.as_ref().map_or(0, Registers::stack);
            if number == libc::SIGSEGV && sender.is_none() && address.abs_diff(stack) < 64 * 1024 {
                line(format_args!(
                    "The address is next to the stack pointer: an overflow of the stack"
                ));
            }
        }
        Cause::Panic { message, place } => {
            // As text of its own, since a message may be longer than a line from a handler.
            line(format_args!("Dunlin {version} crashed by its own decision"));
            for part in ["Panic: ", message, "\n  at ", place, "\n"] {
                log.write(part.as_bytes());
            }
        }
    }
    let uptime = about.map_or(0, |about| about.started.elapsed().as_secs());
    let name = thread_name();
    let name = std::str::from_utf8(&name).unwrap_or_default().trim_end_matches('\0');
    line(format_args!("In thread '{name}' of process {}, up {uptime} s", std::process::id()));
    if let Some(registers) = &crash.registers {
        log.write(b"\n------ REGISTERS ------\n");
        registers.write(log);
    }
}

fn line(text: std::fmt::Arguments<'_>) {
    let mut buf = Text::<256>::new();
    let _ = buf.write_fmt(text);
    log_line(Level::Warning, std::str::from_utf8(buf.as_bytes()).unwrap_or_default());
}

fn thread_name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, with the final NUL.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// The return addresses, for the thread that looks up their names.
static FRAMES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// Whether the first frame is the crashed instruction, not a return address.
static FIRST_IS_EXACT: AtomicBool = AtomicBool::new(false);

/// Unwinds the calling thread's stack and writes the addresses, each also relative to the program.
pub(super) fn write_addresses(log: &LogDescriptor, crash: &Crash<'_>, about: Option<&About>) {
    log.write(b"\n------ STACK TRACE ------\n");
    unwind(crash.instruction);
    for (number, ip) in frames() {
        let mut buf = Text::<128>::new();
        let _ = write!(buf, "#{number} {ip:#x}");
        if let Some(about) = about.filter(|about| about.program.0.contains(&ip)) {
            let _ = write!(buf, " (dunlin+{:#x})", ip - about.program.0.start);
        }
        let _ = buf.write_str("\n");
        log.write(buf.as_bytes());
    }
}

/// Fills FRAMES, from the crashed instruction on if that is found among the frames.
fn unwind(instruction: Option<usize>) {
    let mut count = 0;
    // SAFETY: the lock this does without guards symbol lookup, which is not done here; only one
    // thread ever reports.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let ip = frame.ip().addr();
            if Some(ip) == instruction {
                count = 0;
                FIRST_IS_EXACT.store(true, Relaxed);
            }
            FRAMES[count].store(ip, Relaxed);
            count += 1;
            count < FRAMES.len()
        });
    }
    for rest in &FRAMES[count..] {
        rest.store(0, Relaxed);
    }
}

fn frames() -> impl Iterator<Item = (usize, usize)> {
    FRAMES.iter().map(|ip| ip.load(Relaxed)).take_while(|ip| *ip != 0).enumerate()
}

/// The same frames with function, file and line; inlined calls have lines of their own. Runs on the
/// reporter thread: it allocates and reads the program's debug information.
pub(super) fn write_symbols(log: &LogDescriptor) {
    log.write(b"\n------ STACK TRACE WITH SYMBOLS ------\n");
    for (number, ip) in frames() {
        // Resolving takes one off, to get from a return address into the call.
        let after_call = ip + usize::from(number == 0 && FIRST_IS_EXACT.load(Relaxed));
        let mut text = String::new();
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(after_call), |symbol| {
            let _ = write!(text, "#{number} ");
            let _ = match symbol.name() {
                Some(name) => write!(text, "{name:#}"),
                None => text.write_str("?"),
            };
            if let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno()) {
                let _ = write!(text, " at {}:{line}", file.display());
            }
            text.push('\n');
        });
        if text.is_empty() {
            let _ = writeln!(text, "#{number} {ip:#x} ?");
        }
        log.write(text.as_bytes());
    }
}

/// Writes a section: calls its argument with one piece of text after the other.
pub type Render = Box<dyn Fn(&mut dyn FnMut(&str)) + Send>;

static SECTIONS: Mutex<Vec<(&str, Render)>> = Mutex::new(Vec::new());

/// Adds a part to every report, such as INFO's output. `render` runs on the reporter thread while
/// the crashed thread may hold any lock; if it hangs, the report ends behind what it has written.
pub fn add_section(title: &'static str, render: Render) {
    lock(&SECTIONS).push((title, render));
}

/// Writes what [`add_section`] added.
pub(super) fn write_sections(log: &LogDescriptor) {
    let Ok(sections) = SECTIONS.try_lock() else { return };
    for (title, render) in sections.iter() {
        log.write(format!("\n------ {title} ------\n").as_bytes());
        render(&mut |text| log.write(text.as_bytes()));
    }
}

/// The tail of the report.
pub(super) fn write_end(log: &LogDescriptor) {
    log.write(
        b"\n=== DUNLIN BUG REPORT END. Make sure to include from START to END. ===\n\n\
          Please report this crash to the developers, together with the report above.\n\
          Frames without names: addr2line -Cfie dunlin OFFSET, with a binary of the same build.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_the_mappings() {
        let maps = "1000-2000 r--p 0 08:01 7 /bin/dunlin\n2000-5000 r-xp 1000 08:01 7 /bin/dunlin\n\
                    7000-8000 rw-p 0 00:00 0 [heap]\n";
        assert_eq!(Program::find(maps, "/bin/dunlin").0, 0x1000..0x5000);
        assert!(Program::find(maps, "").0.is_empty());
    }

    #[test]
    fn a_stack_trace_has_frames() {
        unwind(None);
        assert!(frames().count() > 3);
    }
}
