//! What commands, users and requests are.

pub mod acl;
pub mod command;
pub mod request_keys;
pub mod table;
pub mod transaction;
