//! The processor's registers at a crash.

use super::signal_safe::{LogDescriptor, Text};
use std::fmt::Write as _;

/// The general registers of an interrupted thread.
pub(super) struct Registers([usize; NAMES.len()]);

#[cfg(target_arch = "x86_64")]
const NAMES: [&str; 18] = [
    "RAX", "RBX", "RCX", "RDX", "RDI", "RSI", "RBP", "RSP", "R8", "R9", "R10", "R11", "R12", "R13",
    "R14", "R15", "RIP", "EFL",
];
#[cfg(target_arch = "x86_64")]
const STACK: usize = 7;
#[cfg(target_arch = "x86_64")]
const INSTRUCTION: usize = 16;

#[cfg(target_arch = "x86_64")]
fn read(context: &libc::ucontext_t) -> [usize; NAMES.len()] {
    use libc::{REG_EFL, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    use libc::{REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP};
    let order = [
        REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RDI, REG_RSI, REG_RBP, REG_RSP, REG_R8, REG_R9,
        REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP, REG_EFL,
    ];
    order.map(|index| context.uc_mcontext.gregs[index as usize] as usize)
}

#[cfg(target_arch = "aarch64")]
const NAMES: [&str; 34] = [
    "X0", "X1", "X2", "X3", "X4", "X5", "X6", "X7", "X8", "X9", "X10", "X11", "X12", "X13", "X14",
    "X15", "X16", "X17", "X18", "X19", "X20", "X21", "X22", "X23", "X24", "X25", "X26", "X27",
    "X28", "X29", "X30", "SP", "PC", "PSTATE",
];
#[cfg(target_arch = "aarch64")]
const STACK: usize = 31;
#[cfg(target_arch = "aarch64")]
const INSTRUCTION: usize = 32;

#[cfg(target_arch = "aarch64")]
fn read(context: &libc::ucontext_t) -> [usize; NAMES.len()] {
    let machine = &context.uc_mcontext;
    let mut values = [0; NAMES.len()];
    for (value, register) in values.iter_mut().zip(machine.regs) {
        *value = register as usize;
    }
    values[STACK] = machine.sp as usize;
    values[INSTRUCTION] = machine.pc as usize;
    values[INSTRUCTION + 1] = machine.pstate as usize;
    values
}

/// Elsewhere a report has no registers, and so shows the handler's frames as well.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES: [&str; 2] = ["SP", "PC"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const STACK: usize = 0;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const INSTRUCTION: usize = 1;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read(_context: &libc::ucontext_t) -> [usize; NAMES.len()] {
    [0; NAMES.len()]
}

impl Registers {
    /// The registers saved in a signal's context.
    pub fn of(context: &libc::ucontext_t) -> Self {
        Self(read(context))
    }

    /// The stack pointer.
    pub fn stack(&self) -> usize {
        self.0[STACK]
    }

    /// The address of the interrupted instruction.
    pub fn instruction(&self) -> usize {
        self.0[INSTRUCTION]
    }

    /// Writes them, four to a line.
    pub fn write(&self, log: &LogDescriptor) {
        for (names, values) in NAMES.chunks(4).zip(self.0.chunks(4)) {
            let mut line = Text::<160>::new();
            for (name, value) in names.iter().zip(values) {
                let _ = write!(line, "{name}:{value:016x} ");
            }
            let _ = line.write_str("\n");
            log.write(line.as_bytes());
        }
    }
}
