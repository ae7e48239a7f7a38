//! The scripts of EVAL and SCRIPT LOAD by their digests.
//!
//! EVAL's are forgotten in the order in which they came when there are more than 500; those that
//! SCRIPT LOAD was asked to keep stay until SCRIPT FLUSH. Threads keep what they have looked up for as
//! long as the generation stands.

use super::learned::Learned;
use script::Sha;
use script::shebang::ScriptFlags;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use structs::sync::lock;

/// Scripts of EVAL that are kept.
const MAX_EVALUATED: usize = 500;
/// What an entry takes besides its source, in bytes.
const ENTRY_BYTES: usize = 200;

/// A script.
#[derive(Debug)]
pub struct Script {
    /// Its digest.
    pub sha: Sha,
    /// The text as it came.
    pub source: Box<[u8]>,
    /// Bytes of the text in front of what is compiled.
    pub code_at: usize,
    /// What its first line says, if it has one for that.
    pub flags: Option<ScriptFlags>,
    /// What its runs have shown.
    pub learned: Learned,
}

impl Script {
    /// What is compiled.
    pub fn code(&self) -> &[u8] {
        &self.source[self.code_at..]
    }
}

/// See the module.
#[derive(Default)]
pub struct Cache {
    scripts: Mutex<Scripts>,
    generation: AtomicU64,
}

#[derive(Default)]
struct Scripts {
    by_sha: HashMap<Sha, Arc<Script>>,
    /// Those of EVAL, the oldest first.
    evaluated: VecDeque<Sha>,
    bytes: usize,
    evicted: u64,
}

impl Cache {
    /// The script of this digest.
    pub fn get(&self, sha: &Sha) -> Option<Arc<Script>> {
        lock(&self.scripts).by_sha.get(sha).cloned()
    }

    /// Adds a script; `stays`: until SCRIPT FLUSH.
    pub fn add(&self, script: Script, stays: bool) -> Arc<Script> {
        let mut scripts = lock(&self.scripts);
        if let Some(known) = scripts.by_sha.get(&script.sha).cloned() {
            if stays {
                scripts.evaluated.retain(|sha| *sha != known.sha);
            }
            return known;
        }
        let script = Arc::new(script);
        scripts.bytes += script.source.len() + ENTRY_BYTES;
        scripts.by_sha.insert(script.sha, Arc::clone(&script));
        if !stays {
            scripts.evaluated.push_back(script.sha);
            if scripts.evaluated.len() > MAX_EVALUATED {
                scripts.evict();
                self.generation.fetch_add(1, SeqCst);
            }
        }
        script
    }

    /// Forgets all.
    pub fn flush(&self) {
        let mut scripts = lock(&self.scripts);
        let evicted = scripts.evicted;
        *scripts = Scripts { evicted, ..Scripts::default() };
        self.generation.fetch_add(1, SeqCst);
    }

    /// Changes when a script is forgotten.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    /// How many there are, their bytes of memory, and how many were forgotten.
    pub fn figures(&self) -> (usize, usize, u64) {
        let scripts = lock(&self.scripts);
        (scripts.by_sha.len(), scripts.bytes, scripts.evicted)
    }

    /// Forgets the count of those that were forgotten (CONFIG RESETSTAT).
    pub fn reset_evicted(&self) {
        lock(&self.scripts).evicted = 0;
    }
}

impl Scripts {
    fn evict(&mut self) {
        let Some(sha) = self.evaluated.pop_front() else { return };
        if let Some(script) = self.by_sha.remove(&sha) {
            self.bytes -= script.source.len() + ENTRY_BYTES;
            self.evicted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(cache: &Cache, number: u32, stays: bool) -> Sha {
        let source = number.to_string().into_bytes().into_boxed_slice();
        let sha = structs::sha1::sha1(&source);
        let learned = Learned::default();
        cache.add(Script { sha, source, code_at: 0, flags: None, learned }, stays);
        sha
    }

    #[test]
    fn the_oldest_of_eval_are_forgotten() {
        let cache = Cache::default();
        let loaded = add(&cache, 0, true);
        let (first, second) = (add(&cache, 1, false), add(&cache, 2, false));
        // SCRIPT LOAD of what EVAL has brought.
        add(&cache, 2, true);
        let generation = cache.generation();
        for number in 3..503 {
            add(&cache, number, false);
        }
        assert!(cache.get(&first).is_none() && cache.generation() > generation);
        assert!(cache.get(&loaded).is_some() && cache.get(&second).is_some());
        let (count, _, evicted) = cache.figures();
        assert_eq!((count, evicted), (502, 1));
        cache.flush();
        let (count, bytes, evicted) = cache.figures();
        assert_eq!((count, bytes, evicted), (0, 0, 1));
    }
}
