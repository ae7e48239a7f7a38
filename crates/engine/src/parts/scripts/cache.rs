//! The scripts of EVAL and SCRIPT LOAD by their digests.
//!
//! Of those of EVAL the least recently used one is forgotten when there are more than 500; those
//! that SCRIPT LOAD was asked to keep stay until SCRIPT FLUSH. Threads keep what they have looked
//! up for as long as the generation stands and the script is not marked as forgotten. Times of use
//! are kept to the millisecond: a script that all threads run is written to once in a millisecond,
//! not by every request.

use super::learned::Learned;
use keyspace::Millis;
use script::Sha;
use script::shebang::ScriptFlags;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
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
    /// Its last use.
    pub used: LastUse,
}

/// When a script was last used, and whether it is in the cache.
#[derive(Debug, Default)]
pub struct LastUse {
    at_ms: AtomicI64,
    is_forgotten: AtomicBool,
}

impl Script {
    /// It is used now.
    #[inline]
    pub fn touch(&self, now: Millis) {
        if self.used.at_ms.load(Relaxed) != now.0 {
            self.used.at_ms.store(now.0, Relaxed);
        }
    }

    /// Whether it was forgotten, so that its digest names nothing any more.
    pub fn is_forgotten(&self) -> bool {
        self.used.is_forgotten.load(Relaxed)
    }

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
    evaluated: Vec<Arc<Script>>,
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
                scripts.evaluated.retain(|script| script.sha != known.sha);
            }
            return known;
        }
        let script = Arc::new(script);
        scripts.bytes += script.source.len() + ENTRY_BYTES;
        scripts.by_sha.insert(script.sha, Arc::clone(&script));
        if !stays {
            // Before it is in the list, so that it is not the one to go.
            if scripts.evaluated.len() == MAX_EVALUATED {
                scripts.evict();
            }
            scripts.evaluated.push(Arc::clone(&script));
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

    /// Changes when all scripts are forgotten.
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
        let last_use = |(_, script): &(usize, &Arc<Script>)| script.used.at_ms.load(Relaxed);
        // Of several the first, which came before the others.
        let Some((at, _)) = self.evaluated.iter().enumerate().min_by_key(last_use) else { return };
        let script = self.evaluated.remove(at);
        script.used.is_forgotten.store(true, Relaxed);
        self.by_sha.remove(&script.sha);
        self.bytes -= script.source.len() + ENTRY_BYTES;
        self.evicted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(cache: &Cache, number: u32, stays: bool) -> Sha {
        let source = number.to_string().into_bytes().into_boxed_slice();
        let sha = structs::sha1::sha1(&source);
        let learned = Learned::default();
        let used = LastUse::default();
        cache.add(Script { sha, source, code_at: 0, flags: None, learned, used }, stays);
        sha
    }

    #[test]
    fn the_least_recently_used_of_eval_is_forgotten() {
        let cache = Cache::default();
        let loaded = add(&cache, 0, true);
        let (first, second) = (add(&cache, 1, false), add(&cache, 2, false));
        // SCRIPT LOAD of what EVAL has brought.
        add(&cache, 2, true);
        let third = add(&cache, 3, false);
        let kept = [&first, &third].map(|sha| cache.get(sha).unwrap());
        kept[0].touch(Millis(1));
        for number in 4..503 {
            add(&cache, number, false);
        }
        assert!(cache.get(&third).is_none() && kept[1].is_forgotten());
        assert!(cache.get(&first).is_some() && !kept[0].is_forgotten());
        assert!(cache.get(&loaded).is_some() && cache.get(&second).is_some());
        let (count, _, evicted) = cache.figures();
        assert_eq!((count, evicted), (502, 1));
        cache.flush();
        let (count, bytes, evicted) = cache.figures();
        assert_eq!((count, bytes, evicted), (0, 0, 1));
    }
}
