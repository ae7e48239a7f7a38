//! Lines of at most 100 characters. The formatter breaks code, but neither comments nor strings.

use crate::lists;
use crate::source::{files, packages, read};

const LONGEST: usize = 100;

#[test]
fn lines_are_short() {
    let (mut found, mut shown) = (Vec::new(), String::new());
    for package in packages() {
        let mut number = 0;
        let files = files(&format!("crates/{package}"));
        for path in files.iter().filter(|path| path.ends_with(".rs")) {
            for (index, line) in read(path).lines().enumerate() {
                if line.chars().count() > LONGEST {
                    number += 1;
                    shown += &format!("{path}:{}\n", index + 1);
                }
            }
        }
        if number > 0 {
            found.push((package, number));
        }
    }
    println!("{shown}");
    lists::check_numbers(
        "long-lines.txt",
        &found,
        "These crates have more lines over 100 characters than before. Break them; they are \
         printed \
         above.",
    );
}
