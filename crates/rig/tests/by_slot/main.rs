//! An engine whose keys are assigned by slot is the same to its clients as a standalone one. These
//! tests have a program of their own: the first keyspace of a process decides how keys are hashed.

#[path = "../scripts/running.rs"]
mod running;
mod walks;

#[test]
fn scripts_hold_with_keys_assigned_by_slot() {
    running::check_scripts("yes");
}
