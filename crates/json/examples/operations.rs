//! Repeats one operation, for a profiler that counts instructions:
//! `valgrind --tool=callgrind target/release/examples/operations NAME TIMES`. The difference of two
//! runs with other TIMES is the operation's.

use json::{Document, Limits, Number, Path};
use std::hint::black_box;

/// 1 KB of text.
fn document() -> Document {
    let users: Vec<String> = (0..6)
        .map(|at| {
            let (age, score) = (20 + at, at * 7);
            let name = format!(r#"{{"id":{at},"name":"User Number {at}","age":{age},"#);
            let rest = r#""tags":["alpha","beta"],"active":true}"#;
            format!(r#"{name}"email":"user{at}@example.com","score":{score}.5,{rest}"#)
        })
        .collect();
    let text = format!(r#"{{"a":{{"b":1,"c":"text"}},"users":[{}],"version":3}}"#, users.join(","));
    parse(&text)
}

/// 1000 objects of four members.
fn many() -> Document {
    let items: Vec<String> = (0..1000)
        .map(|at| {
            format!(
                r#"{{"id":{at},"price":{}.25,"name":"item {at}","stock":{}}}"#,
                at % 100,
                at % 7
            )
        })
        .collect();
    parse(&format!(r#"{{"items":[{}]}}"#, items.join(",")))
}

fn parse(text: &str) -> Document {
    Document::parse(text.as_bytes(), &Limits::default()).expect("it is JSON")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let times: u64 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(1000);
    let path = |text: &str| Path::parse(text.as_bytes()).expect("it is a path");
    let (mut small, many) = (document(), many());
    let mut text = Vec::new();
    small.write(&mut text);
    let mut out = Vec::new();
    match name.as_str() {
        "parse" => (0..times).for_each(|_| {
            black_box(Document::parse(black_box(&text), &Limits::default()).is_ok());
        }),
        "write" => (0..times).for_each(|_| {
            out.clear();
            black_box(&small).write(&mut out);
        }),
        "path" => (0..times).for_each(|_| {
            black_box(Path::parse(black_box(b"$.a.b")).is_ok());
        }),
        "get" => {
            let path = path("$.a.b");
            for _ in 0..times {
                out.clear();
                let found = path.read(black_box(&small)).expect("it is small");
                found.iter().for_each(|found| found.value().write(&mut out));
            }
        }
        "add" => {
            let path = path("$.a.b");
            for _ in 0..times {
                let found = path.locations(black_box(&small)).expect("it is small");
                for at in &found {
                    black_box(small.add(at, Number::Int(1)).is_ok());
                }
            }
        }
        "filter" => {
            let path = path("$.items[?(@.price > 50 && @.stock == 3)].id");
            for _ in 0..times {
                black_box(path.read(black_box(&many)).expect("it is small"));
            }
        }
        _ => println!("operations: parse, write, path, get, add, filter"),
    }
}
