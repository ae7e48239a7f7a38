//! A cluster with `cluster-endpoint single` beside one ordinary server: scripts, random sessions,
//! transactions and walks have the same outcome.

mod scanning;
mod scripts;
mod sessions;
mod walking;
