//! Requests that run inside a script: their keys declared, undeclared, or met after a write.

use super::Op;
use crate::rng::Rng;

/// Calls the request in its arguments and gives its reply, or its error.
const CALL: &str = "return redis.pcall(unpack(ARGV))";
/// The same after a change, from which a script cannot go back to its beginning unnoticed.
const WRITE_AND_CALL: &str = "redis.call('INCRBY', 'scripted', 1) return redis.pcall(unpack(ARGV))";

/// Commands whose effect on the connection a script does not have, or that scripts are refused.
const CONNECTIONS: [&str; 15] = [
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
    "select",
    "eval",
    "eval_ro",
    "evalsha",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "function",
    "script",
    "client",
];

/// Sends some of the requests by way of EVAL.
pub fn script_some(ops: &mut [Op], seed: u64) {
    let mut rng = Rng::new(seed ^ 0x5c41_97ed);
    for op in ops {
        let name = op.name();
        // Sets that are no sets of places may hold what is outside the Earth, where servers differ.
        if let Some(key) = op.words.get_mut(1)
            && name.starts_with("geo")
            && !key.starts_with(b"x")
        {
            *key = b"x1".to_vec();
        }
        let is_apart = CONNECTIONS.contains(&name.as_str()) || name.starts_with("geo");
        if !op.compare.can_be_queued() || is_apart || !rng.chance(20) {
            continue;
        }
        let script = if rng.chance(50) { CALL } else { WRITE_AND_CALL };
        let words = std::mem::take(&mut op.words);
        let declared: &[Vec<u8>] =
            if rng.chance(50) { words.get(1..2).unwrap_or(&[]) } else { &[] };
        let count = declared.len().to_string();
        let head = [b"EVAL".to_vec(), script.as_bytes().to_vec(), count.into_bytes()];
        op.words = [&head[..], declared, &words].concat();
    }
}
