//! Libraries of functions. Each thread loads a library into its interpreter when it first calls one
//! of its functions; here is the source, and what the functions say about themselves.

use super::learned::Learned;
use script::FunctionSpec;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};

/// A function.
#[derive(Debug)]
pub struct Function {
    /// What it says about itself.
    pub spec: FunctionSpec,
    /// What its runs have shown.
    pub learned: Learned,
}

/// A library.
#[derive(Debug)]
pub struct Library {
    /// Unique in the life of the process: a library that is replaced has another.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The text as it came.
    pub source: Box<[u8]>,
    /// Bytes of the text in front of what is compiled.
    pub code_at: usize,
    /// Its functions.
    pub functions: Vec<Arc<Function>>,
}

impl Library {
    /// What is compiled.
    pub fn code(&self) -> &[u8] {
        &self.source[self.code_at..]
    }

    /// Returns it as all nodes of a cluster have it. `None`: its text is not UTF-8.
    pub fn to_shared(&self) -> Option<cluster::shared::Library> {
        let source = str::from_utf8(&self.source).ok()?.to_owned();
        let name = |function: &Arc<Function>| function.spec.name.to_ascii_lowercase();
        let functions = self.functions.iter().map(name).collect();
        Some(cluster::shared::Library { name: self.name.clone(), functions, source })
    }
}

/// Why a library cannot be added.
#[derive(Debug, PartialEq, Eq)]
pub enum LoadError {
    /// A library has this name.
    LibraryExists(String),
    /// A function of another library has this name.
    FunctionExists(String),
}

/// All libraries at one moment.
#[derive(Default, Clone, Debug)]
pub struct Libraries {
    by_name: BTreeMap<String, Arc<Library>>,
    /// By their names in lower case.
    by_function: HashMap<String, (Arc<Library>, Arc<Function>)>,
}

impl Libraries {
    /// Adds a library.
    ///
    /// # Errors
    /// A name is taken; nothing was changed.
    pub fn add(&mut self, library: Arc<Library>, replaces: bool) -> Result<(), LoadError> {
        if self.by_name.contains_key(&library.name) && !replaces {
            return Err(LoadError::LibraryExists(library.name.clone()));
        }
        for function in &library.functions {
            let other = self.by_function.get(&function.spec.name.to_ascii_lowercase());
            if other.is_some_and(|(other, _)| other.name != library.name) {
                return Err(LoadError::FunctionExists(function.spec.name.clone()));
            }
        }
        self.remove(&library.name.clone());
        for function in &library.functions {
            let found = (Arc::clone(&library), Arc::clone(function));
            self.by_function.insert(function.spec.name.to_ascii_lowercase(), found);
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library; `false` if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        self.by_function.retain(|_, (of, _)| of.id != library.id);
        true
    }

    /// The libraries in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// How many libraries and functions there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.by_name.len(), self.by_function.len())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.iter().map(|library| library.source.len() + 200 * (1 + library.functions.len())).sum()
    }
}

/// See the module.
#[derive(Default)]
pub struct Functions {
    libraries: RwLock<Libraries>,
    version: AtomicU64,
    last_id: AtomicU64,
}

impl Functions {
    /// The function of this name, and its library.
    pub fn find(&self, name: &[u8]) -> Option<(Arc<Library>, Arc<Function>)> {
        let name = std::str::from_utf8(name).ok()?;
        let libraries = self.libraries.read().unwrap_or_else(PoisonError::into_inner);
        libraries.by_function.get(&name.to_ascii_lowercase()).cloned()
    }

    /// All libraries of this moment.
    pub fn all(&self) -> Libraries {
        self.libraries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes them in one step, or not at all.
    ///
    /// # Errors
    /// That of `change`.
    pub fn change<E>(&self, change: impl FnOnce(&mut Libraries) -> Result<(), E>) -> Result<(), E> {
        let mut libraries = self.libraries.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = libraries.clone();
        change(&mut changed)?;
        *libraries = changed;
        self.version.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Forgets all libraries.
    pub fn flush(&self) {
        let mut libraries = self.libraries.write().unwrap_or_else(PoisonError::into_inner);
        *libraries = Libraries::default();
        self.version.fetch_add(1, SeqCst);
    }

    /// Changes with every change.
    pub fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// A number for a library.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, SeqCst) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use script::shebang::ScriptFlags;

    fn library(id: u64, name: &str, functions: &[&str]) -> Arc<Library> {
        let function = |name: &&str| {
            let flags = ScriptFlags::default();
            let spec = FunctionSpec { name: (*name).to_owned(), description: None, flags };
            Arc::new(Function { spec, learned: Learned::default() })
        };
        let functions = functions.iter().map(function).collect();
        Arc::new(Library {
            id,
            name: name.to_owned(),
            source: Box::default(),
            code_at: 0,
            functions,
        })
    }

    #[test]
    fn names_are_taken_once() {
        let all = Functions::default();
        let add = |library, replaces| all.change(|libraries| libraries.add(library, replaces));
        assert_eq!(add(library(1, "a", &["f", "g"]), false), Ok(()));
        let taken = Err(LoadError::LibraryExists("a".into()));
        assert_eq!(add(library(2, "a", &["h"]), false), taken);
        let taken = Err(LoadError::FunctionExists("g".into()));
        assert_eq!(add(library(3, "b", &["x", "g"]), false), taken);
        assert!(all.find(b"x").is_none(), "nothing is added by half");
        assert_eq!(add(library(4, "a", &["g"]), true), Ok(()));
        assert!(all.find(b"f").is_none());
        assert_eq!(all.find(b"g").map(|(library, _)| library.id), Some(4));
        assert_eq!(all.all().counts(), (1, 1));
    }
}
