use super::*;
use crate::Limits;

fn document(text: &str) -> Document {
    Document::parse(text.as_bytes(), &Limits::default()).unwrap()
}

/// What a path finds, as JSON.GET shows it.
fn get(text: &str, path: &str) -> String {
    let document = document(text);
    let path = match Path::parse(path.as_bytes()) {
        Ok(path) => path,
        Err(error) => return format!("error: {error}"),
    };
    let shown = |found: &Found<'_>| found.value().to_string();
    if path.is_legacy() {
        return path.first(&document).unwrap().map_or("none".to_owned(), |found| shown(&found));
    }
    let found = path.read(&document).unwrap();
    if !path.is_projection() {
        let locations = path.locations(&document).unwrap();
        let at = |location: &Location| document.at(location).unwrap().to_string();
        let by_location: Vec<String> = locations.iter().map(at).collect();
        assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), by_location);
    }
    format!("[{}]", found.iter().map(shown).collect::<Vec<_>>().join(","))
}

#[track_caller]
fn check(text: &str, cases: &[(&str, &str)]) {
    for (path, expected) in cases {
        assert_eq!(get(text, path), *expected, "{path}");
    }
}

#[test]
fn names_and_indexes() {
    check(
        r#"{"a":{"b":[10,20,30]},"x y":1,"it's":2,"q\"":3,"é":4,"a-b":5,"$x":6,"":7,"1":8}"#,
        &[
            ("$.a", r#"[{"b":[10,20,30]}]"#),
            ("$.a.b[0]", "[10]"),
            ("$.a.b[-1]", "[30]"),
            ("$.a.b[3]", "[]"),
            ("$.a.b[-4]", "[]"),
            ("$.a.b[1,-1,1,9]", "[20,30,20]"),
            ("$.a.b.c", "[]"),
            ("$[\"a\"]['b'][ 1 ]", "[20]"),
            ("$.[\"a\"].b", "[[10,20,30]]"),
            ("$['x y','a-b','none']", "[1,5]"),
            (r"$['it\'s']", "[2]"),
            ("$[\"it's\"]", "[2]"),
            (r#"$["q\""]"#, "[3]"),
            (r"$['\u00e9']", "[4]"),
            ("$.é", "[4]"),
            ("$.a-b", "[5]"),
            ("$.$x", "[6]"),
            ("$['']", "[7]"),
            ("$.1", "[8]"),
            ("($.a.b[0])", "[10]"),
            (" $.a.b[0] ", "[10]"),
        ],
    );
}

#[test]
fn slices() {
    check(
        "[0,1,2,3,4,5,6,7,8,9]",
        &[
            ("$[2:4]", "[2,3]"),
            ("$[:2]", "[0,1]"),
            ("$[8:]", "[8,9]"),
            ("$[:]", "[0,1,2,3,4,5,6,7,8,9]"),
            ("$[::3]", "[0,3,6,9]"),
            ("$[-3:]", "[7,8,9]"),
            ("$[:-8]", "[0,1]"),
            ("$[-100:2]", "[0,1]"),
            ("$[5:100]", "[5,6,7,8,9]"),
            ("$[ 1 : 8 : 3 ]", "[1,4,7]"),
            ("$[::-1]", "[9,8,7,6,5,4,3,2,1,0]"),
            ("$[5:2:-1]", "[5,4,3]"),
            ("$[:7:-1]", "[9,8]"),
            ("$[2::-1]", "[2,1,0]"),
            ("$[100:-100:-4]", "[9,5,1]"),
            ("$[4:2]", "[]"),
            ("$[::9223372036854775807]", "[0]"),
            ("$[-9223372036854775808:1]", "[0]"),
            ("$[0:2,5]", "[0,1,5]"),
        ],
    );
    check("[]", &[("$[::-1]", "[]"), ("$[0]", "[]"), ("$[:]", "[]")]);
}

#[test]
fn wildcards_and_recursion() {
    check(
        r#"{"a":{},"b":{"a":1},"c":{"a":1,"b":2},"d":[{"a":[{"a":3}]},4]}"#,
        &[
            ("$.*", r#"[{},{"a":1},{"a":1,"b":2},[{"a":[{"a":3}]},4]]"#),
            ("$..a", r#"[{},1,1,[{"a":3}],3]"#),
            ("$..['b','a']", r#"[{"a":1},{},1,2,1,[{"a":3}],3]"#),
            ("$..[0]", r#"[{"a":[{"a":3}]},{"a":3}]"#),
            ("$.d[*]", r#"[{"a":[{"a":3}]},4]"#),
            ("$.b.*.*", "[]"),
            ("$..a..a", "[3]"),
            ("$..none", "[]"),
            ("$.c[*]", "[1,2]"),
        ],
    );
    check(
        r#"{"a":{},"b":{"a":1},"c":{"a":1,"b":2}}"#,
        &[("$..*", r#"[{},{"a":1},{"a":1,"b":2},1,1,2]"#)],
    );
}

#[test]
fn legacy_paths() {
    check(
        r#"{"a":{"b":[1,{"c":2}]},"d e":3,"..":4}"#,
        &[
            (".", r#"{"a":{"b":[1,{"c":2}]},"d e":3,"..":4}"#),
            ("a", r#"{"b":[1,{"c":2}]}"#),
            (".a.b[1].c", "2"),
            ("a.b[-1]['c']", "2"),
            ("[\"a\"][\"b\"][0]", "1"),
            ("['d e']", "3"),
            ("..c", "2"),
            ("none", "none"),
            ("a.b[7]", "none"),
            (".a.b[?(@.c)].c", "2"),
        ],
    );
    for path in ["", " ", "a.", ".a.", "a..", "a b", "[", "a[", "a[x]", "..", "...", "a]", "a["] {
        assert!(get("{}", path).starts_with("error: "), "{path}");
    }
}

#[test]
fn filters_compare() {
    let books = r#"[{"t":"x","p":8.95,"n":1},{"t":"yy","p":12,"n":null},{"t":"z","p":8.95},7,"s"]"#;
    check(
        books,
        &[
            ("$[?(@.p<10)].t", r#"["x","z"]"#),
            ("$[?@.p < 10].t", r#"["x","z"]"#),
            ("$[?(10 > @.p)].t", r#"["x","z"]"#),
            ("$[?(@.p>=12)].t", r#"["yy"]"#),
            ("$[?(@.p==12.0)].t", r#"["yy"]"#),
            ("$[?(@.t=='z')].p", "[8.95]"),
            ("$[?(@.t==\"z\" || @.p==12)].t", r#"["yy","z"]"#),
            ("$[?(@.t>'x' && @.p<10)].t", r#"["z"]"#),
            ("$[?(@.n)].t", r#"["x","yy"]"#),
            ("$[?(@.n==null)].t", r#"["yy"]"#),
            ("$[?(@.n!=null)].t", r#"["x","z"]"#),
            ("$[?(!(@.n) && @.p)].t", r#"["z"]"#),
            ("$[?(@==7)]", "[7]"),
            ("$[?(@=='s')]", r#"["s"]"#),
            ("$[?(@ >= 7)]", "[7]"),
            ("$[?(@.p == $[0].p)].t", r#"["x","z"]"#),
            ("$[?((@.p<10) && ((@.t=='x')))].n", "[1]"),
            ("$[?(@['t'] == 'x')].n", "[1]"),
            ("$[?(1==1)].n", "[1,null]"),
            ("$[?(true)].n", "[1,null]"),
            ("$[?(false)].n", "[]"),
        ],
    );
    check(
        r#"{"k":[{"a":[1,2],"b":{"c":true}},{"a":[3]}],"min":2}"#,
        &[
            ("$.k[?(@.a[0]>1)].a", "[[3]]"),
            ("$.k[?(@.a[?(@ == $.min)])].b", r#"[{"c":true}]"#),
            ("$.k[?(@.b.c==true)].a", "[[1,2]]"),
            ("$.k[?(@.a[*] > $.min)].a", "[[3]]"),
            ("$.k.*[?(@.c)].c", "[true]"),
            ("$..[?(@.a)].a", "[[1,2],[3]]"),
        ],
    );
}

#[test]
fn filters_match_patterns() {
    check(
        r#"[{"s":"carbon","p":"(?i)AL"},{"s":"alloy","p":"(?i)AL"},{"s":"metal","p":"["},{"s":1}]"#,
        &[
            ("$[?(@.s =~ 'al')].s", r#"["alloy","metal"]"#),
            ("$[?(@.s =~ '^al')].s", r#"["alloy"]"#),
            ("$[?(@.s =~ \"(?i)AL$\")].s", r#"["metal"]"#),
            ("$[?(@.s =~ @.p)].s", r#"["alloy"]"#),
            ("$[?(@.s =~ '[')].s", "[]"),
            ("$[?match(@.s, 'a.*')].s", r#"["alloy"]"#),
            ("$[?search(@.s, 'b')].s", r#"["carbon"]"#),
            ("$[?match(@.s, @.p)].s", "[]"),
            ("$[?@.s.search('l')].s", r#"["alloy","metal"]"#),
        ],
    );
}

// The examples of Redis's documentation of its extensions.
#[test]
fn operators_of_the_documentation() {
    check(
        r#"[{"a":1,"b":1},{"b":2},{"a":1},{"c":3}]"#,
        &[
            ("$[?!@.a]", r#"[{"b":2},{"c":3}]"#),
            ("$[?!(@.a==1)]", r#"[{"b":2},{"c":3}]"#),
            ("$[?!@.a && @.b]", r#"[{"b":2}]"#),
            ("$[?!!@.c]", r#"[{"c":3}]"#),
        ],
    );
    check(
        r#"{"arrs":[[1],[2],[1,2],[1,[2]]],"objs":[{"x":1},{"x":2},{"y":1}]}"#,
        &[
            ("$.arrs[?(@ == [1])]", "[[1]]"),
            ("$.arrs[?(@ == [1,[2]])]", "[[1,[2]]]"),
            (r#"$.objs[?(@ == {"x":1})]"#, r#"[{"x":1}]"#),
            (r#"$.objs[?({"x":1} == @)]"#, r#"[{"x":1}]"#),
        ],
    );
    check(
        r#"[{"a":2,"b":3},{"a":5,"b":2}]"#,
        &[
            ("$[?@.a + 1 == 3]", r#"[{"a":2,"b":3}]"#),
            ("$[?@.a + @.b * 2 == 8]", r#"[{"a":2,"b":3}]"#),
            ("$[?(@.a + @.b) * 2 == 10]", r#"[{"a":2,"b":3}]"#),
            ("$[?@.a % 2 == 1].a", "[5]"),
            ("$[?-@.a == -5].a", "[5]"),
            ("$[?@.a / 0 == 1]", "[]"),
            ("$[?@.a+1 == 3]", "[]"),
        ],
    );
    check(
        r#"{"a":[1,2,3,4],"allow":[2,3]}"#,
        &[
            ("$.a[?@ in [2,4]]", "[2,4]"),
            ("$.a[?@ nin [2,4]]", "[1,3]"),
            ("$.a[?@ in $.allow]", "[2,3]"),
            ("$.a[?@ in $.a[0]]", "[]"),
            ("$.a[?@ nin $.a[0]]", "[1,2,3,4]"),
        ],
    );
    check(r#"{"a":[[1,2],[1,5],[]]}"#, &[("$.a[?@ subsetof [1,2,3]]", "[[1,2],[]]")]);
    check(
        r#"{"a":[[1,9],[8,9],[]]}"#,
        &[
            ("$.a[?@ anyof [1,2,3]]", "[[1,9]]"),
            ("$.a[?anyof(@, [1,2,3])]", "[[1,9]]"),
            ("$.a[?@ noneof [1,2,3]]", "[[8,9],[]]"),
        ],
    );
    check(
        r#"{"a":[[4,5],[1],[7,8,9]]}"#,
        &[("$.a[?@ sizeof 2]", "[[4,5]]"), ("$.a[?@ size 2.9]", "[[4,5]]")],
    );
    check(
        r#"{"a":[[],[1],"",[2,3],{},{"k":1}]}"#,
        &[
            ("$.a[?@ empty true]", r#"[[],"",{}]"#),
            ("$.a[?@ empty false]", r#"[[1],[2,3],{"k":1}]"#),
        ],
    );
    check(
        r#"{"obj":{"x":1,"y":2},"books":[{"t":"a"},{"t":"b"}]}"#,
        &[
            ("$.obj~", r#"["x","y"]"#),
            ("$~", r#"["obj","books"]"#),
            ("$.books~", "[]"),
            ("$.books[*]~", r#"["t","t"]"#),
            ("$.obj.keys()", r#"["x","y"]"#),
            ("$.obj.keys().count()", "[2]"),
        ],
    );
    for path in ["$.obj~.x", "$.obj~~", "$.obj.keys()~", "$.a~b"] {
        assert!(get("{}", path).starts_with("error: "), "{path}");
    }
}

#[test]
fn functions_of_the_documentation() {
    check(
        r#"{"a":[[1,2,3],[1],"abcd","é"]}"#,
        &[("$.a[?length(@) > 2]", r#"[[1,2,3],"abcd"]"#), ("$.a[?length(@) == 1]", r#"[[1],"é"]"#)],
    );
    check(
        r#"[{"a":1,"b":2,"c":3},{"a":1}]"#,
        &[
            ("$[?count(@.*) == 3]", r#"[{"a":1,"b":2,"c":3}]"#),
            ("$[?count(@.b) == 0]", r#"[{"a":1}]"#),
            ("$[?value(@.b) == 2].c", "[3]"),
            ("$[?value(@.*) == 1]", r#"[{"a":1}]"#),
        ],
    );
    check(
        r#"{"a":[{"x":"a","y":"b"},{"x":"a","y":"c"}]}"#,
        &[
            (r#"$.a[?concat(@.x, @.y) == "ab"]"#, r#"[{"x":"a","y":"b"}]"#),
            ("$.a[?concat(@.x, 1) == 'a1']", "[]"),
        ],
    );
    check(r#"{"a":[2.1,3.9,1.0]}"#, &[("$.a[?ceiling(@) == 3]", "[2.1]")]);
    check(r#"{"a":[2.1,2.9,3.5]}"#, &[("$.a[?floor(@) == 2]", "[2.1,2.9]")]);
    check(r#"{"a":[-5,5,-3]}"#, &[("$.a[?abs(@) == 5]", "[-5,5]")]);
    check(
        r#"{"a":[{"n":[1,2]},{"n":[9,8]}]}"#,
        &[
            ("$.a[?first(@.n) == 1]", r#"[{"n":[1,2]}]"#),
            ("$.a[?last(@.n) == 8]", r#"[{"n":[9,8]}]"#),
            ("$.a[?index(@.n, -1) == 2]", r#"[{"n":[1,2]}]"#),
            ("$.a[?index(@.n, 2) == 2]", "[]"),
        ],
    );
    check(
        r#"{"a":[{"n":[3,1,2]},{"n":[5,6]},{"n":[]},{"n":["x"]}]}"#,
        &[
            ("$.a[?sum(@.n) == 6].n", "[[3,1,2]]"),
            ("$.a[?avg(@.n) == 2].n", "[[3,1,2]]"),
            ("$.a[?min(@.n) == 5].n", "[[5,6]]"),
            ("$.a[?max(@.n) == 3].n", "[[3,1,2]]"),
            ("$.a[?stddev(@.n) == 0.5].n", "[[5,6]]"),
        ],
    );
    check(
        r#"{"arr":[1,2,3]}"#,
        &[("$.arr.append(9)", "[1,2,3,9]"), ("$.arr.append($.none)", "[]")],
    );
    check(
        r#"{"books":[{"t":"a","price":30},{"t":"b","price":5}]}"#,
        &[(
            r#"$.books[?(@.price >= 10)].append({"t":"X"})"#,
            r#"[{"t":"a","price":30},{"t":"X"}]"#,
        )],
    );
}

#[test]
fn projections() {
    check(
        r#"{"a":2,"b":4,"arr":[1,2,3],"s":"x","o":{"length":5}}"#,
        &[
            ("$.a + 1", "[3]"),
            ("$.a * $.b", "[8]"),
            ("($.a + $.b) / 2", "[3.0]"),
            ("-$.a", "[-2]"),
            ("$.arr.length()", "[3]"),
            ("length($.arr)", "[3]"),
            ("$.o.length", "[5]"),
            ("$.a / 0", "[]"),
            ("$.a % 0", "[]"),
            ("$.a + $.s", "[]"),
            ("$.none + 1", "[]"),
            ("$.arr.sum() + 0.5", "[6.5]"),
            ("$.arr[*].sum()", "[6]"),
            ("$.arr.index(1)", "[2]"),
            ("$.arr.length(1)", "[]"),
            ("concat($.s, 'y')", r#"["xy"]"#),
            ("$.a == 2", "[true]"),
            ("9223372036854775807 + $.a", "[9.223372036854776e18]"),
            ("$.arr.first()", "[1]"),
        ],
    );
    let path = |text: &str| Path::parse(text.as_bytes()).unwrap();
    assert!(path("$.a + 1").is_projection() && !path("$.a").is_projection());
    assert!(!path("($.a)").is_projection() && !path("length($.arr)").is_legacy());
    assert!(path("length").is_legacy() && !path("-$.a").is_legacy() && path("-a").is_legacy());
    let found = path("$.a + 1").locations(&document("{}"));
    assert_eq!(found, Err(EvalError::Projection));
}

#[test]
fn errors_have_a_position() {
    assert_eq!(
        get("{}", "$.a["),
        "error: Error occurred on position 5, expected a name in quotes, an index, a slice, \
         \"*\" or a filter"
    );
    for path in [
        "$.",
        "$..",
        "$...a",
        "$a",
        "$[",
        "$[]",
        "$['a'",
        "$['a",
        "$[1",
        "$[1:2:0]",
        "$[?]",
        "$[?(]",
        "$[?(@.a ==)]",
        "$[?(@.a = 1)]",
        "$[?(@.a == 1]",
        "$.a b",
        "$[?(@.a == tru)]",
        "$.foo()",
        "$[99999999999999999999]",
        "$['\\u00']",
        "$.a,b",
        "$[?(@.a == [1)]",
        "$ $",
        "$.a.length(",
        "($.a",
        "$[?(@.a == 1e)]",
        "$.é(",
        "$[?(@.a == 'é)]",
        "$['\\",
        "$[1,]",
    ] {
        assert!(get("{}", path).starts_with("error: "), "{path}: {}", get("{}", path));
    }
    assert!(Path::parse(b"$.\xff").is_err());
}

#[test]
fn limits() {
    let is_refused = |text: String| Path::parse(text.as_bytes()).is_err();
    assert!(is_refused(format!("$.{}", "a".repeat(MAX_PATH_LEN))));
    assert!(!is_refused(format!("${}", "..a".repeat(MAX_RECURSIVE_STEPS))));
    assert!(is_refused(format!("${}", "..a".repeat(MAX_RECURSIVE_STEPS + 1))));
    assert!(is_refused(format!("$[?{}1{}]", "(".repeat(1000), ")".repeat(1000))));
    assert!(is_refused(format!("$[?{}@]", "!".repeat(1000))));
    assert!(is_refused(format!("$[?1{}]", " + 1".repeat(1000))));
    assert!(is_refused(format!("$.a{}", ".first()".repeat(1000))));
    assert!(is_refused(format!("{}1{}", "$[?(@ == ".repeat(9), ")]".repeat(9))));
    assert!(is_refused(format!("{}$", "-".repeat(1000))));
    // Every element is compared with every element, again and again.
    let numbers: Vec<String> = (0..3000).map(|at| at.to_string()).collect();
    let document = document(&format!("[{}]", numbers.join(",")));
    for path in ["$[?($[?($[?(@ == -1)])])]", "$[?$[?$ == $ && @ == -1]]", "$[?$[?sum($) == -1]]"] {
        let path = Path::parse(path.as_bytes()).unwrap();
        assert_eq!(path.read(&document).unwrap_err(), EvalError::TooManyVisits, "{path:?}");
    }
}

#[test]
fn targets_of_set() {
    let document = document(r#"{"a":{"b":1},"c":[1,2],"d":{"b":{"b":2}}}"#);
    let targets = |text: &str| {
        let path = Path::parse(text.as_bytes()).unwrap();
        match path.targets(&document).unwrap() {
            Targets::Existing(locations) => format!("{} existing", locations.len()),
            Targets::New { objects, name } => format!("{name} in {}", objects.len()),
            other => format!("{other:?}"),
        }
    };
    for (path, expected) in [
        ("$", "1 existing"),
        (".", "1 existing"),
        ("$..b", "3 existing"),
        ("$.a.x", "x in 1"),
        ("x", "x in 1"),
        ("$.c[1]", "1 existing"),
        ("$.c[2]", "OutOfBounds"),
        ("$.c.x", "Missing"),
        ("$.a[0]", "OutOfBounds"),
        ("$.x.y", "Missing"),
        ("$.a.b.c", "Missing"),
        ("$..x", "NotStatic"),
        ("$.*.x", "NotStatic"),
    ] {
        assert_eq!(targets(path), expected, "{path}");
    }
}
