//! The fuzz target of the proxy's configurations on seeded mutations of them.

#[path = "../../../fuzz/entries/proxy.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

const NATIVE: &str = "\0threads = 2\n[pool.a]\nkind = \"servers\"\nlisten = [\"127.0.0.1:1\", \"/a 0600\"]\n\
    hash = \"crc16\"\nhash_tag = \"{}\"\nservers = [{ address = \"[::1]:2\", weight = 2 }]\n\
    [pool.b]\nkind = \"cluster\"\nlisten = [\"a:1\"]\nseeds = [\"b:2\"]\nreads = \"all\"\n\
    [pool.b.server_tls]\nany_name = true\n";
const NUTCRACKER: &str = "\x01alpha:\n  listen: 127.0.0.1:22121 0600\n  hash: fnv1a_64\n  hash_tag: \"{}\"\n\
    \x20 distribution: ketama\n  auto_eject_hosts: true\n  timeout: 400\n  redis: true\n  redis_db: 3\n\
    \x20 server_connections: 2\n  servers:\n   - 127.0.0.1:6379:1 one\n   - /a:2\n";

#[test]
fn configurations_are_read_or_refused() {
    let inputs = [NATIVE, NUTCRACKER].map(|text| text.as_bytes().to_vec());
    let words: [&[u8]; 12] = [
        b"[pool.a]\n",
        b"kind = \"sentinel\"\n",
        b"tls = {}\n",
        b"timeout_ms = 0\n",
        b"99999999999999999999",
        b"-1",
        b"\"\"",
        b"[[",
        b"  servers:\n",
        b"   - a:1:1\n",
        b"&a *a",
        b": true\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
