//! The fuzz target of paths on seeded mutations.

#[path = "../../../fuzz/entries/json_path.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn paths_find_what_is_at_their_locations() {
    let inputs: Vec<Vec<u8>> = [
        &b"$.a.b[0]['c',\"d\"][1:-1:2]"[..],
        b".b[5].b[0]",
        b"$..[?(@.a > 1 && @.b == 'x' || !(@.t =~ \"(?i)A\"))].p",
        b"$[?@.a + 1 == 3 && @.t in ['a','b']]..*",
        b"($.a + $.b.length()) / 2 - abs($.c.a.a)",
        b"$.b.append({\"a\":[1]}).count()",
        b"concat($[2][*], 'x') == 'abx'",
        b"$[?@ subsetof [1,2,3]][?(@ sizeof 2)][::-1]~",
        b"$..[?match(@.t, @.r)]['\\u00e9']",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 28] = [
        b"$",
        b"@",
        b".",
        b"..",
        b"*",
        b"[",
        b"]",
        b"(",
        b")",
        b"?",
        b"'",
        b"\"",
        b"\\",
        b",",
        b":",
        b"-1",
        b"==",
        b"!=",
        b"=~",
        b"&&",
        b"||",
        b"!",
        b"~",
        b" in ",
        b".keys()",
        b".first()",
        b"[?(@)]",
        b"[*]",
    ];
    mutate::run(&inputs, &words, entry::check);
}
