//! `dunlin proxy`: one endpoint in front of servers that are not ours.
//!
//! [`config`] reads Twemproxy's file or our own, [`placement`] says which server has a key.

pub mod config;
pub mod placement;
