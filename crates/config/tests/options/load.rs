//! Files, standard input, the command line and what they include.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use config::{Arguments, LoadError, Loaded, load, load_text};
use proptest::prelude::*;

/// A directory of files that is gone when the test is over.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &str)]) -> Files {
        let dir = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory");
        let files_in = Files(fs::canonicalize(dir).expect("it was just made"));
        for (name, text) in files {
            let path = files_in.0.join(name);
            fs::create_dir_all(path.parent().expect("inside")).expect("a temporary directory");
            fs::write(path, text).expect("a temporary file");
        }
        files_in
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(words: &[&str], stdin: &str) -> Result<Loaded, LoadError> {
    load(&Arguments::parse(words.iter().map(OsString::from)), &mut stdin.as_bytes())
}

#[track_caller]
fn loaded(words: &[&str], stdin: &str) -> Loaded {
    run(words, stdin).unwrap_or_else(|error| panic!("{error}"))
}

fn report(text: &str) -> String {
    load_text(text.as_bytes()).expect_err("it is wrong").to_string()
}

#[test]
fn errors_have_the_shape_of_redis() {
    let title =
        format!("\n*** FATAL CONFIG FILE ERROR (Dunlin {}) ***\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        report("port 7399\n\n  maxclients hello  \n"),
        format!(
            "{title}Reading the configuration file, at line 3\n>>> 'maxclients hello'\n\
             argument couldn't be parsed into an integer\n"
        )
    );
    assert_eq!(
        report("cluster-enabled yes\nreplicaof a 1"),
        format!("{title}replicaof directive not allowed in cluster mode\n")
    );
    assert_eq!(
        report("logfile /nonexistent/x"),
        format!("{title}Can't open the log file: No such file or directory (/nonexistent/x)\n")
    );
    assert_eq!(
        report("search.timeout 5"),
        format!(
            "{title}Module Configuration detected without loadmodule directive or no ApplyConfig \
             call: aborting\n"
        )
    );
    assert_eq!(
        report("include /nonexistent"),
        "Fatal error, can't open config file '/nonexistent': No such file or directory"
    );
}

#[test]
fn an_error_names_the_place_of_the_line() {
    let files = Files::new("place", &[("a.conf", "hz 20\n"), ("b.conf", "hz 9\n\nhz x\n")]);
    let (a, b) = (files.path("a.conf"), files.path("b.conf"));
    let include = format!("port 1\ninclude {b}\n");
    for (words, stdin, expected) in [
        (
            vec!["--port", "7000", "--maxclients", "x"],
            "",
            "Reading the command line\n>>> 'maxclients \"x\"'\n".to_owned(),
        ),
        (
            vec![&a, "-"],
            "port 1\nport x\n",
            "Reading the configuration from standard input, at line 2\n>>> 'port x'\n".to_owned(),
        ),
        (vec![&b], "", format!("Reading the configuration file {b}, at line 3\n>>> 'hz x'\n")),
        (
            vec!["-"],
            &include,
            format!("Reading the configuration file {b}, at line 3\n>>> 'hz x'\n"),
        ),
    ] {
        let text = run(&words, stdin).expect_err("x is no number").to_string();
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_misspelled_option_gets_a_suggestion() {
    assert!(
        report("maxmemroy 1gb")
            .ends_with("\nBad directive or wrong number of arguments\nDid you mean 'maxmemory'?\n")
    );
    assert!(report("zebra 1").ends_with("\nBad directive or wrong number of arguments\n"));
    let error = run(&["6380"], "").expect_err("no such file").to_string();
    assert!(error.ends_with("\nA port is an option: --port 6380"), "{error}");
}

#[test]
fn later_settings_win() {
    let files = Files::new("order", &[("a.conf", "port 1\nhz 20\nslave-priority 7")]);
    let a = files.path("a.conf");
    let all = loaded(&[&a, "--port", "3", "-"], "port 2\ntimeout 9\n");
    assert_eq!(all.config.port(), 3);
    assert_eq!(all.config.timeout(), 9);
    assert_eq!(all.config.hz(), 20);
    assert_eq!(all.config.replica_priority(), 7);
    assert_eq!(all.file.as_deref(), Some(Path::new(&a)));
    assert_eq!(loaded(&["-"], "port 5").config.port(), 5);
    assert_eq!(loaded(&["--slaveof", "no", "one", "--port 6"], "").config.port(), 6);
}

#[test]
fn save_lines_add_up() {
    let points = |text: &str| {
        let config = load_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}")).config;
        String::from_utf8(config.value_of("save").expect("an option")).expect("ASCII")
    };
    assert_eq!(points(""), "3600 1 300 100 60 10000");
    assert_eq!(points("save 900 1\nsave 300 10"), "900 1 300 10");
    assert_eq!(points("save \"900 1 300 10\"\nsave 60 5"), "900 1 300 10 60 5");
    assert_eq!(points("save \"\""), "");
    assert_eq!(points("save 900 1\nsave \"\"\nsave 60 5"), "60 5");
    assert_eq!(points("save"), "");
    // What is included before does not add to what the file says itself.
    let files = Files::new("save", &[("a", "save 1 1\nsave 2 2\n"), ("b", "save 3 3\n")]);
    let (a, b) =
        (format!("include {}\n", files.path("a")), format!("include {}\n", files.path("b")));
    assert_eq!(points(&format!("{a}{b}")), "1 1 2 2 3 3");
    assert_eq!(points(&format!("save 9 9\n{a}")), "9 9 1 1 2 2");
    assert_eq!(points(&format!("{a}{b}save 4 4\nsave 5 5\n")), "4 4 5 5");
}

#[test]
fn words_may_come_as_one() {
    let config = loaded(&["--bind", "a b", "--oom-score-adj-values", "1 2 3"], "").config;
    let addresses: Vec<_> =
        config.bind().iter().map(|a| a.to_string_lossy().into_owned()).collect();
    assert_eq!(addresses, ["a", "b"]);
    assert_eq!(config.oom_score_adj_values(), [1, 2, 3]);
    assert!(load_text(b"bind \"\"").expect("no address").config.bind().is_empty());
}

#[test]
fn files_include_files() {
    let files = Files::new(
        "include",
        &[
            ("sub/b.conf", "port 2\n"),
            ("sub/c.conf", "timeout 3\n"),
            ("sub/.d.conf", "hz 4\n"),
            ("sub/e.txt", "nonsense\n"),
            ("loop.conf", ""),
        ],
    );
    let main =
        format!("dir {}\nport 1\ninclude sub/b.conf\ninclude s?b/[a-c]*.conf\n", files.0.display());
    let config = load_text(main.as_bytes()).unwrap_or_else(|error| panic!("{error}")).config;
    assert_eq!((config.port(), config.timeout(), config.hz()), (2, 3, 10));
    assert_eq!(config.dir(), files.0);

    assert!(load_text(b"include nosuch-*.conf\nport 1").is_ok());

    let endless = format!("include {}\n", files.path("loop.conf"));
    fs::write(files.0.join("loop.conf"), &endless).expect("a temporary file");
    let text = report(&endless);
    assert!(text.contains("Files include each other too deeply"), "{text}");
}

#[test]
fn the_directory_must_be_one() {
    assert!(report("dir /nonexistent").contains("\nNo such file or directory\n"));
    let files = Files::new("dir", &[("a", "")]);
    assert!(report(&format!("dir {}", files.path("a"))).contains("\nNot a directory\n"));
    let here = std::env::current_dir().expect("a directory");
    assert_eq!(load_text(b"").expect("nothing wrong").config.dir(), here);
}

#[test]
fn directives_for_others_are_handed_on() {
    let text =
        "rename-command CONFIG \"\"\nuser alice on >pw\nloadmodule x.so a\nx.y 1\nsentinel\n";
    let loaded = load_text(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.renames[0].words, [b"CONFIG".to_vec(), Vec::new()]);
    assert_eq!(loaded.users[0].words[0], b"alice");
    assert_eq!(loaded.modules[0].origin.number, 3);
    assert_eq!(loaded.without_effect, ["loadmodule"]);
    let error = loaded.renames[0].error("No such command in rename-command").to_string();
    assert!(error.contains("line 1\n>>> 'rename-command CONFIG \"\"'\nNo such command"), "{error}");
}

#[test]
fn directives_without_effect_are_listed_once() {
    let loaded =
        load_text(b"cluster-node-timeout 1\nport 1\nslaveof no one\ncluster-node-timeout 2\n")
            .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.without_effect, ["cluster-node-timeout"]);
}

#[test]
fn hz_is_kept_in_its_range() {
    assert_eq!(load_text(b"hz 0").expect("a hint").config.hz(), 1);
    assert_eq!(load_text(b"hz 5000").expect("a hint").config.hz(), 500);
}

/// Lines that are nearly right, to get past the first check.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let name =
        (0..config::OPTIONS.len()).prop_map(|at| config::OPTIONS[at].name().as_bytes().to_vec());
    let word = prop_oneof![
        "[0-9]{1,20}(kb|mb|%|g)?".prop_map(String::into_bytes),
        "[a-z\"'\\\\ ]{0,9}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..9),
    ];
    (name, proptest::collection::vec(word, 0..6)).prop_map(|(name, words)| {
        std::iter::once(name).chain(words).collect::<Vec<_>>().join(&b' ')
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        // A file name in random bytes is not worth the risk of creating it.
        if !text.windows(7).any(|window| window.eq_ignore_ascii_case(b"logfile")) {
            let _ = load_text(&text);
        }
    }

    #[test]
    fn lines_never_panic(line in line()) {
        if !line.starts_with(b"logfile") {
            let _ = load_text(&line);
        }
    }
}
