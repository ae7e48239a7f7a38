//! Where the values live, and how they are read from many threads at no cost.
//!
//! Numbers, switches and choices are relaxed atomics in one array, at the position their row has
//! in the table: an accessor compiles to one load from a fixed offset, on a cache line that is
//! shared by all cores until a `CONFIG SET`. The output buffer limits, which are
//! looked at for every reply, are atomics too. Strings and lists sit behind one lock that only
//! cold paths take; what is read is cloned out, which bumps a reference count.
//!
//! An option changes as a whole, several options do not: a reader may see one of two options that
//! one `CONFIG SET` changes before the other. Redis's readers cannot, but no two options of the
//! table are read together in a way that would tell.
//!
//! Rejected: a snapshot of the whole configuration behind one pointer. It would make `CONFIG SET`
//! atomic, but puts a reference count, or a hazard pointer, into every read on the hot paths.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use crate::limits::{OutputLimit, OutputLimits};
use crate::spec::{Kind, Spec};
use crate::table::{OPTION_COUNT, OPTIONS, position};
use crate::value::{Value, parse, render};
use structs::words::split_words;

/// What is shown in the place of a secret that is set.
pub const SECRET_MARK: &[u8] = b"(redacted)";

/// The live configuration.
///
/// Shared as `Arc<Config>`; see the accessors for what can be read, [`Config::get`] and
/// [`Config::set`] for the commands.
pub struct Config {
    numbers: [AtomicU64; OPTION_COUNT],
    output_limits: [[AtomicU64; 3]; 3],
    /// The values that are neither of the above, by position; the rest are not used.
    structured: Apart<RwLock<Vec<Value>>>,
    /// Held while options change, so that two clients' `CONFIG SET` do not mix.
    pub(crate) writer: Apart<Mutex<()>>,
    /// What is told of each change ([`Config::watch`]).
    watchers: Apart<RwLock<Vec<Watcher>>>,
}

/// What is called after an option has changed.
pub type Watcher = Box<dyn Fn(&Config) + Send + Sync>;

/// On cache lines of its own: taking a lock, even to read, writes to it, and must not take the
/// numbers beside it away from the other cores.
#[repr(align(128))]
pub(crate) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Config {
    /// The defaults.
    pub fn new() -> Arc<Config> {
        let config = Config {
            numbers: [const { AtomicU64::new(0) }; OPTION_COUNT],
            output_limits: Default::default(),
            structured: Apart(RwLock::new(vec![Value::Number(0); OPTION_COUNT])),
            writer: Apart(Mutex::new(())),
            watchers: Apart(RwLock::default()),
        };
        for at in 0..OPTION_COUNT {
            config.store(at, default_of(at));
        }
        Arc::new(config)
    }

    /// Notes the primary that is followed, or that none is, where `CONFIG REWRITE` finds it.
    ///
    /// # Errors
    /// It is no address.
    pub fn record_primary(&self, primary: Option<(&str, u16)>) -> Result<(), String> {
        let value = match primary {
            Some((host, port)) => {
                let mut value = crate::quote_word(host.as_bytes());
                value.extend_from_slice(format!(" {port}").as_bytes());
                value
            }
            None => b"no one".to_vec(),
        };
        self.record("replicaof", &value)
    }

    /// Sets an option to what the server found out or did, rather than what a user asked for: the
    /// number of clients the kernel allows, the primary chosen by REPLICAOF. Immutable options
    /// change too, and nothing is applied.
    pub fn record(&self, name: &str, value: &[u8]) -> Result<(), String> {
        let at = position(name.as_bytes()).ok_or("no such option")?;
        let words = if OPTIONS[at].takes_many_words() {
            split_words(value).ok_or("unbalanced quotes")?
        } else {
            vec![value.to_vec()]
        };
        let _writer = self.writer.lock();
        let value = parse(&OPTIONS[at], &words, &self.load(at))?;
        self.store(at, value);
        Ok(())
    }

    /// The value of an option, as `CONFIG GET` reports those that are no secret; `None` if there is
    /// no such option.
    pub fn value_of(&self, name: &str) -> Option<Vec<u8>> {
        let at = position(name.as_bytes())?;
        Some(render(&OPTIONS[at], &self.load(at)))
    }

    /// The value of an option for everybody: a secret that is set is not shown.
    pub(crate) fn shown(&self, at: usize) -> Vec<u8> {
        let value = render(&OPTIONS[at], &self.load(at));
        let is_secret = OPTIONS[at].is_sensitive() && !value.is_empty();
        if is_secret { SECRET_MARK.to_vec() } else { value }
    }

    /// Calls `watcher` now, and from now on after each change of an option, whatever made it. It
    /// must be short and change no option. It may be called while only some of the options of one
    /// `CONFIG SET` have changed, and is called again after the others.
    pub fn watch(&self, watcher: Watcher) {
        let mut watchers = self.watchers.write();
        watcher(self);
        watchers.push(watcher);
    }

    #[inline]
    pub(crate) fn number(&self, at: usize) -> u64 {
        self.numbers[at].load(Relaxed)
    }

    pub(crate) fn output_limit(&self, class: usize) -> OutputLimit {
        let [hard, soft, seconds] = &self.output_limits[class];
        OutputLimit {
            hard_bytes: hard.load(Relaxed),
            soft_bytes: soft.load(Relaxed),
            soft_seconds: seconds.load(Relaxed),
        }
    }

    pub(crate) fn load(&self, at: usize) -> Value {
        match OPTIONS[at].kind {
            Kind::OutputLimits => {
                Value::OutputLimits(OutputLimits([0, 1, 2].map(|class| self.output_limit(class))))
            }
            _ if is_number(&OPTIONS[at]) => Value::Number(self.number(at)),
            _ => self.structured.read()[at].clone(),
        }
    }

    pub(crate) fn store(&self, at: usize, value: Value) {
        match value {
            Value::Number(number) => self.numbers[at].store(number, Relaxed),
            Value::OutputLimits(limits) => {
                for (cells, limit) in self.output_limits.iter().zip(limits.0) {
                    cells[0].store(limit.hard_bytes, Relaxed);
                    cells[1].store(limit.soft_bytes, Relaxed);
                    cells[2].store(limit.soft_seconds, Relaxed);
                }
            }
            other => self.structured.write()[at] = other,
        }
        for watcher in self.watchers.read().iter() {
            watcher(self);
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |at: usize| {
            let value = String::from_utf8_lossy(&self.shown(at)).into_owned();
            (OPTIONS[at].name(), value)
        };
        f.debug_map().entries((0..OPTION_COUNT).map(shown)).finish()
    }
}

fn is_number(spec: &Spec) -> bool {
    matches!(
        spec.kind,
        Kind::Bool
            | Kind::Int { .. }
            | Kind::Octal { .. }
            | Kind::Memory { .. }
            | Kind::MemoryOrPercent
            | Kind::Enum(_)
            | Kind::Shutdown
            | Kind::Events
    )
}

/// The default of an option.
pub(crate) fn default_of(at: usize) -> Value {
    let spec = &OPTIONS[at];
    if matches!(spec.kind, Kind::ReplicaOf) {
        return Value::ReplicaOf(None);
    }
    let words: Vec<Vec<u8>> = if spec.takes_many_words() && !spec.default.is_empty() {
        spec.default.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    } else {
        vec![spec.default.as_bytes().to_vec()]
    };
    let nothing = Value::OutputLimits(OutputLimits::default());
    parse(spec, &words, &nothing).expect("a test reads every default")
}
