//! The `dunlin` binary: subcommands and nothing else.
fn main() {}
