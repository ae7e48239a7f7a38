//! `DEBUG CLIENT-EVICTION`: clients by the power of two of the memory they take

use config::ClientMemory;
use engine::{Cx, Error, Outcome};
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

/// Clients below this many bits of memory are in the first class, those above the second number in
/// the last.
const MIN_BITS: u32 = 15;
const MAX_BITS: u32 = 33;
const CLASSES: usize = (MAX_BITS - MIN_BITS + 1) as usize;

pub(super) fn client_eviction(cx: &mut Cx<'_>) -> Outcome {
    if cx.engine.config.maxmemory_clients() == ClientMemory::Unlimited {
        return Err(Error::text("ERR maxmemory-clients is disabled."));
    }
    let mut classes = [(0, 0); CLASSES];
    for client in cx.engine.clients.all() {
        let bytes = client.live.memory_bytes.load(Relaxed);
        let (sum, clients) = &mut classes[class(bytes)];
        *sum += bytes;
        *clients += 1;
    }
    let mut text = String::new();
    for (at, (bytes, clients)) in classes.iter().enumerate() {
        let from = if at == 0 { 0 } else { 1u64 << (at as u32 - 1 + MIN_BITS) };
        let _ = write!(text, "bucket {from:10}");
        let _ = if at + 1 == CLASSES {
            write!(text, "+            : ")
        } else {
            write!(text, " - {:10}: ", (1u64 << (at as u32 + MIN_BITS)) - 1)
        };
        let _ = writeln!(text, "tot-mem: {bytes:10}, clients: {clients}");
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn class(bytes: usize) -> usize {
    let bits = usize::BITS - bytes.leading_zeros();
    (bits.clamp(MIN_BITS, MAX_BITS) - MIN_BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_at_powers_of_two() {
        assert_eq!(class(0), 0);
        assert_eq!(class(32767), 0);
        assert_eq!(class(32768), 1);
        assert_eq!(class(65535), 1);
        assert_eq!(class(65536), 2);
        assert_eq!(class(1 << 32), CLASSES - 1);
        assert_eq!(class(usize::MAX), CLASSES - 1);
    }
}
