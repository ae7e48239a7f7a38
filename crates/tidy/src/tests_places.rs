//! Where tests are (CONTRIBUTING.md, "Where a test goes").

use crate::source::files;

#[test]
fn black_box_tests_are_modules_of_few_programs() {
    let folder = "crates/harness/tests/";
    let alone: Vec<String> = files(folder)
        .into_iter()
        .filter(|path| !path[folder.len()..].contains('/') && path.ends_with(".rs"))
        .collect();
    assert!(
        alone.is_empty(),
        "Each of these is a program, which every build links. Make it a module of the program of \
         its subject in \
         crates/harness/tests/.\n{alone:#?}"
    );
}
