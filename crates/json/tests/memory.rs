//! Bytes of documents beside bytes of their text. `--nocapture` prints them.

use json::{Document, Limits};
use std::fmt::Write;

fn ratio(name: &str, text: &str) -> f64 {
    let document = Document::parse(text.as_bytes(), &Limits::default()).expect("it is JSON");
    let memory = document.memory_used();
    let ratio = memory as f64 / text.len() as f64;
    println!("{name:24} {:>9} bytes of text {memory:>9} of memory {ratio:6.2}", text.len());
    ratio
}

/// A pseudo-random number.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn tiny() -> String {
    let parts = [
        r#"{"id":1042,"name":"Grace Hopper","email":"grace@example.com","active":true,"#,
        r#""score":97.5,"tags":["admin","navy"],"address":{"city":"Arlington","#,
        r#""zip":"22201"},"created":1700000000}"#,
    ];
    parts.concat()
}

fn user(at: u64, state: &mut u64) -> String {
    let mut below = |limit: u64| random(state) % limit;
    let gender = ["male", "female"][below(2) as usize];
    let (latitude, longitude) = (below(180_000_000), below(360_000_000));
    let parts = [
        format!(r#"{{"id":{},"guid":"{:08x}-{:04x}","#, 1000 + at, below(1 << 31), below(1 << 16)),
        format!(r#""isActive":{},"balance":{}.{:02},"#, below(2) == 0, below(10_000), below(100)),
        format!(r#""age":{},"name":"User Number {at}","gender":"{gender}","#, below(90)),
        format!(r#""company":"COMPANY{}","email":"user{at}@example.com","#, below(1000)),
        format!(r#""phone":"+1 (555) {:03}-{:04}","#, below(1000), below(10_000)),
        format!(r#""address":"{} Some Street, Townsville, {}","#, below(1000), below(100_000)),
        format!(r#""latitude":{:.6},"#, latitude as f64 / 1e6 - 90.0),
        format!(r#""longitude":{:.6},"#, longitude as f64 / 1e6 - 180.0),
        format!(r#""tags":["alpha","beta","gamma{}"]}}"#, below(100)),
    ];
    parts.concat()
}

fn users(count: u64) -> String {
    let mut state = 1;
    let users: Vec<String> = (0..count).map(|at| user(at, &mut state)).collect();
    format!(r#"{{"users":[{}],"total":{count}}}"#, users.join(","))
}

fn numbers(write: impl Fn(&mut String, u64)) -> String {
    let mut text = String::from("[");
    let mut state = 7;
    for at in 0..1000 {
        if at > 0 {
            text.push(',');
        }
        write(&mut text, random(&mut state));
    }
    text + "]"
}

#[test]
fn documents_take_at_most_twice_their_text() {
    assert!(ratio("tiny", &tiny()) <= 2.5);
    let mut state = 3;
    let small = format!(
        r#"{{"user":{},"friend":{},"version":2}}"#,
        user(1, &mut state),
        user(2, &mut state)
    );
    assert!(ratio("small", &small) <= 2.0);
    assert!(ratio("medium", &users(24)) <= 2.0);
    assert!(ratio("large", &users(2500)) <= 2.0);
    let mut map = String::from("{");
    for at in 0..10_000 {
        let comma = if at > 0 { "," } else { "" };
        write!(map, "{comma}\"key-number-{at:05}\":{at}").unwrap();
    }
    assert!(ratio("map of 10 000 names", &(map + "}")) <= 2.0);
}

#[test]
fn arrays_of_one_type_take_little_more_than_their_text() {
    let checked = |name, text: &str| assert!(ratio(name, text) <= 1.2);
    checked(
        "1000 small integers",
        &numbers(|text, random| write!(text, "{}", random % 100).unwrap()),
    );
    checked(
        "1000 integers",
        &numbers(|text, random| write!(text, "{}", random % 100_000).unwrap()),
    );
    checked(
        "1000 large integers",
        &numbers(|text, random| write!(text, "{random}000000").unwrap()),
    );
    checked(
        "1000 floats",
        &numbers(|text, random| write!(text, "{:?}", random as f64 / f64::from(u32::MAX)).unwrap()),
    );
    checked(
        "1000 floats of 32 bits",
        &numbers(|text, random| {
            write!(text, "{:?}", f64::from(random as f32 / 1e9_f32)).unwrap();
        }),
    );
    checked(
        "1000 prices",
        &numbers(|text, random| write!(text, "{:?}", (random % 10_000) as f64 / 100.0).unwrap()),
    );
}
