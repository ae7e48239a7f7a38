//! Drives an entry function without a fuzzer: seeded mutations of given inputs.
//!
//! What coverage finds this does not, but it runs wherever `cargo test` does. The default is a
//! second or so of the same inputs every time; `DUNLIN_FUZZ_SECONDS` runs for so long from a seed
//! of the clock's, `DUNLIN_FUZZ_SEED` from that one. `DUNLIN_FUZZ_SEEDS` is a folder to write the
//! inputs and words to, for libFuzzer to start from (`tests/fuzz`), instead of a run.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Inputs of a run without a time.
const INPUTS: u64 = 4000;
/// Inputs do not grow beyond this.
const LONGEST: usize = 8192;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % limit.max(1) as u64) as usize
    }
}

/// Tells the input when `check` panics.
struct Witness<'a>(u64, &'a [u8]);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("DUNLIN_FUZZ_SEED={}: the input was {}", self.0, self.1.escape_ascii());
        }
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Calls `check` with the inputs and with many mutations of them; `words` is what mutations insert.
pub fn run(inputs: &[Vec<u8>], words: &[&[u8]], check: impl Fn(&[u8])) {
    if let Some(folder) = std::env::var_os("DUNLIN_FUZZ_SEEDS") {
        export(Path::new(&folder), inputs, words).expect("the folder can be written");
        return;
    }
    let end = variable("DUNLIN_FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let first = variable("DUNLIN_FUZZ_SEED").unwrap_or_else(|| end.map_or(1, |_| clock() << 20));
    for input in inputs {
        check(input);
    }
    let mut count = 0;
    for seed in first.. {
        if end.map_or(count == INPUTS, |end| Instant::now() > end) {
            break;
        }
        let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut input = inputs[rng.below(inputs.len())].clone();
        for _ in 0..1 + rng.below(8) {
            mutate(&mut input, &mut rng, inputs, words);
        }
        input.truncate(LONGEST);
        let _witness = Witness(seed, &input);
        check(&input);
        count += 1;
    }
    println!("{count} inputs from seed {first}");
}

/// Writes `seeds/NUMBER` and the dictionary `words` in libFuzzer's form.
fn export(folder: &Path, inputs: &[Vec<u8>], words: &[&[u8]]) -> std::io::Result<()> {
    let seeds = folder.join("seeds");
    std::fs::create_dir_all(&seeds)?;
    for (number, input) in inputs.iter().enumerate() {
        std::fs::write(seeds.join(number.to_string()), input)?;
    }
    let hex = |byte: &u8| format!("\\x{byte:02x}");
    let entry = |word: &&[u8]| format!("\"{}\"\n", word.iter().map(hex).collect::<String>());
    std::fs::write(folder.join("words"), words.iter().map(entry).collect::<String>())
}

fn mutate(input: &mut Vec<u8>, rng: &mut Rng, inputs: &[Vec<u8>], words: &[&[u8]]) {
    const EDGES: [u8; 9] = [0, 1, 0x7f, 0x80, 0x81, 0xc3, 0xfd, 0xfe, 0xff];
    let at = rng.below(input.len() + 1);
    let len = input.len();
    match rng.below(9) {
        0 if at < len => input[at] = rng.below(256) as u8,
        1 if at < len => input[at] ^= 1 << rng.below(8),
        2 if at < len => input[at] = EDGES[rng.below(EDGES.len())],
        3 => input.insert(at, rng.below(256) as u8),
        4 => drop(input.drain(at..(at + 1 + rng.below(8)).min(len))),
        5 => input.truncate(at),
        6 => {
            let part = input[at..(at + rng.below(64)).min(len)].to_vec();
            let to = rng.below(len + 1);
            input.splice(to..to, part);
        }
        7 => {
            let other = &inputs[rng.below(inputs.len())];
            let from = rng.below(other.len() + 1);
            let end = (from + rng.below(200)).min(other.len());
            input.splice(at..at, other[from..end].iter().copied());
        }
        _ if !words.is_empty() => {
            let word = words[rng.below(words.len())];
            // In the place of as many bytes, or between.
            let end = if rng.below(2) == 0 { at } else { (at + word.len()).min(len) };
            input.splice(at..end, word.iter().copied());
        }
        _ => {}
    }
}
