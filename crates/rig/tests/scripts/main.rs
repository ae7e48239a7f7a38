//! The command scripts against an engine in this process.

mod running;

#[test]
fn scripts_hold_in_process() {
    running::check_scripts("no");
}
