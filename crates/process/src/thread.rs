//! Starting the server's threads.

use super::alt_stack::AltStack;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Bytes of a thread's stack: calls within calls of a script can take half of it.
const STACK_BYTES: usize = 4 << 20;

/// Starts a thread with a name (at most 15 bytes are visible in `ps -T` and `top -H`) and a signal
/// stack large enough for a crash report. Every thread of the server is started here.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(move || {
        // Without it a crash is still reported, only a stack overflow might not be.
        let _stack = AltStack::install().ok();
        body()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_visible_to_the_system() {
        let read = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert_eq!(spawn("reactor-3", read).unwrap().join().unwrap(), "reactor-3\n");
    }
}
