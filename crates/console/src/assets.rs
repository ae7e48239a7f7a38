//! The page's files, which are in the binary. They are compressed when they are first asked for.

use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::sync::OnceLock;

/// A file: its path and its contents.
pub type File = (&'static str, &'static [u8]);

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_bytes!(concat!("../assets/", $path)))),+]
    };
}

/// All files.
static FILES: &[File] = files![
    "index.html",
    "api.js",
    "chart.js",
    "cluster-api.js",
    "format.js",
    "frame.js",
    "icon.svg",
    "main.js",
    "msgpack.js",
    "pages.js",
    "place.js",
    "polling.js",
    "style.css",
    "theme.js",
    "ui.js",
    "pages/adding.js",
    "pages/analysis.js",
    "pages/cli.js",
    "pages/clients.js",
    "pages/cluster-backups.js",
    "pages/cluster-change.js",
    "pages/cluster-create.js",
    "pages/cluster-databases.js",
    "pages/cluster-events.js",
    "pages/cluster-fields.js",
    "pages/cluster-graphs.js",
    "pages/cluster-hashing.js",
    "pages/cluster-jobs.js",
    "pages/cluster-machines.js",
    "pages/cluster-overview.js",
    "pages/cluster-parts.js",
    "pages/cluster-plan.js",
    "pages/cluster-slots.js",
    "pages/cluster-users.js",
    "pages/config.js",
    "pages/elements.js",
    "pages/events.js",
    "pages/keys.js",
    "pages/login.js",
    "pages/moving.js",
    "pages/now.js",
    "pages/profiler.js",
    "pages/pubsub.js",
    "pages/replication.js",
    "pages/samples.js",
    "pages/slow.js",
    "pages/streams.js",
    "pages/types.js",
    "pages/users.js",
    "pages/value.js",
    "pages/vectors.js",
    "pages/views.js",
];

/// A file as it is sent.
struct Packed {
    path: &'static str,
    plain: &'static [u8],
    compressed: Vec<u8>,
    etag: HeaderValue,
}

fn packed() -> &'static [Packed] {
    static PACKED: OnceLock<Vec<Packed>> = OnceLock::new();
    PACKED.get_or_init(|| FILES.iter().map(|&(path, plain)| pack(path, plain)).collect())
}

fn pack(path: &'static str, plain: &'static [u8]) -> Packed {
    let digest = Sha256::digest(plain);
    let name: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = HeaderValue::from_str(&format!("\"{name}\"")).expect("hexadecimal digits");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder.write_all(plain).and_then(|()| encoder.finish());
    Packed { path, plain, compressed: compressed.expect("memory takes all"), etag }
}

/// What the page begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shows {
    /// One server.
    Server,
    /// A cluster, and its servers from there.
    Cluster,
}

/// The page, and how it says what it shows.
const PAGE: &str = "index.html";
const OF_SERVER: &str = "data-shows=\"server\"";
const OF_CLUSTER: &str = "data-shows=\"cluster\"";

/// The page of a cluster: the same file with one word changed.
fn cluster_page() -> &'static Packed {
    static PACKED: OnceLock<Packed> = OnceLock::new();
    PACKED.get_or_init(|| {
        let page = FILES.iter().find(|(path, _)| *path == PAGE).expect("it is among the files").1;
        let text = String::from_utf8_lossy(page).replace(OF_SERVER, OF_CLUSTER);
        pack(PAGE, Vec::leak(text.into_bytes()))
    })
}

/// The page.
pub async fn page(request: Request) -> Response {
    send_page(Shows::Server, request.headers())
}

/// Answers a request for the page.
pub fn send_page(shows: Shows, headers: &HeaderMap) -> Response {
    match shows {
        Shows::Server => send(PAGE, headers),
        Shows::Cluster => send_packed(cluster_page(), headers),
    }
}

/// One of its files.
pub async fn file(Path(path): Path<String>, request: Request) -> Response {
    send(&path, request.headers())
}

/// Answers a request for a file of the console's page.
pub fn send(path: &str, headers: &HeaderMap) -> Response {
    match packed().iter().find(|file| file.path == path) {
        Some(file) => send_packed(file, headers),
        None => (StatusCode::NOT_FOUND, "Not found\n").into_response(),
    }
}

fn send_packed(file: &'static Packed, headers: &HeaderMap) -> Response {
    let common = [
        (header::ETAG, file.etag.clone()),
        // Browsers ask whether it has changed: the files belong together.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == file.etag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, media_type(file.path))];
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|list| list.to_str().ok());
    if accepted.is_some_and(|list| list.contains("gzip")) {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (common, kind, encoding, file.compressed.as_slice()).into_response();
    }
    (common, kind, file.plain).into_response()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a browser loads at most before the page is there.
    const MAX_BYTES: usize = 120 << 10;

    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = packed().iter().map(|file| file.compressed.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    }

    #[test]
    fn the_page_of_a_cluster_differs_by_one_word() {
        let text = std::str::from_utf8(cluster_page().plain).unwrap();
        assert!(text.contains(OF_CLUSTER) && !text.contains(OF_SERVER));
        let server = packed().iter().find(|file| file.path == PAGE).unwrap();
        assert_ne!(server.etag, cluster_page().etag);
    }

    /// Labels that readers did not understand. What is meant has a usual word.
    const UNCLEAR_LABELS: &[&str] = &["Does", "About", "Fill", "Pace"];

    #[test]
    fn labels_are_usual_words() {
        for (path, contents) in FILES {
            let text = std::str::from_utf8(contents).unwrap();
            // A label is a text of its own; the same word in a sentence is none.
            let texts = text.split(['"', '\'', '`', '>', '<']);
            let labels = texts.map(|label| label.trim().trim_end_matches(['…', ':']));
            for label in labels {
                assert!(!UNCLEAR_LABELS.contains(&label), "{path} has the label {label:?}");
            }
            assert!(!text.to_lowercase().contains("come round"), "{path}: say scheduled");
        }
    }

    /// No file loads anything from elsewhere, and every module that is imported is among them.
    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for (path, contents) in FILES {
            let text = std::str::from_utf8(contents).unwrap();
            for line in text.lines().filter(|line| !line.contains("http://www.w3.org/")) {
                assert!(!line.contains("http://") && !line.contains("https://"), "{path}: {line}");
                assert!(!line.contains("innerHTML"), "{path} makes HTML of text: {line}");
            }
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let imports = text.split(" from \"").skip(1).filter_map(|rest| rest.split('"').next());
            for import in imports.filter(|import| import.ends_with(".js")) {
                let name = match import.strip_prefix("../") {
                    Some(name) => name.to_owned(),
                    None => format!("{folder}/{}", import.trim_start_matches("./")),
                };
                let name = name.trim_start_matches('/');
                assert!(FILES.iter().any(|(path, _)| *path == name), "{path} imports {name}");
            }
        }
    }
}
