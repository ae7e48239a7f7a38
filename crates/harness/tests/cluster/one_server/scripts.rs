//! Command scripts whose clients are connected to a node that owns nothing.

use crate::forwarding::alone;
use harness::reply::Protocol;
use harness::script::Script;
use harness::script::behind::{Behind, Way};
use harness::script::suite::scripts;
use harness::server::Program;

/// `./test commands --through node` runs all.
const SHORT: [&str; 3] = ["/set/", "/string/", "/hash/"];

#[test]
fn scripts_hold_through_a_node_that_owns_nothing() {
    let _alone = alone();
    let mut behind = Behind::start(Way::Node, &Program::under_test()).expect("it starts");
    let mut failures = Vec::new();
    let mut run = 0;
    for path in SHORT.iter().flat_map(|part| scripts(part)) {
        let script = Script::load(&path).expect("it can be read");
        match behind.check(&script, Protocol::Resp3) {
            Ok(has_run) => run += usize::from(has_run),
            Err(why) => failures.push(why),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(run > 40, "{run} have run");
}
