//! The fuzz target of the rules of users on seeded mutations of ACL files.

#[path = "../../../fuzz/entries/acl.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn what_is_saved_makes_the_same_users() {
    let inputs: Vec<Vec<u8>> = [
        &b"user default on nopass ~* &* +@all\nuser bob on >x ~a* %R~b &c* -@all +get\n"[..],
        b"on >one >two <one #2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n",
        b"user al reset on +@all -@dangerous +config|get -config|set +select|0 db=0,2\n",
        b"user al off resetchannels &c* (~sel* +@all -get) (%W~w +set db=1) clearselectors\n",
        b"allkeys allchannels allcommands alldbs nocommands resetkeys resetdbs resetpass nopass\n",
        b"user eve on ~k\xff* &\xfe +@hash -@hash +@read -hget +config -config|get +config\n",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 24] = [
        b"\n", b" ", b"(", b")", b"user ", b"~", b"%R~", b"%W~", b"%RW~", b"&", b"+@", b"-@", b"+",
        b"-", b"|", b"db=", b",", b">", b"<", b"#", b"!", b"*", b"reset", b"@all",
    ];
    mutate::run(&inputs, &words, entry::check);
}
