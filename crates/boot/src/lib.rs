//! What happens before the server where nothing else is there to do it: the entry point of the
//! container image, and PID 1 of the machine image. It is told words and returns words; it knows no
//! server.

pub mod container;
mod environment;
mod health;
pub mod machine;
mod system;
