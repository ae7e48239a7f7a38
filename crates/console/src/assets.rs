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
    "style.css",
    "main.js",
    "api.js",
    "ui.js",
    "format.js",
    "chart.js",
    "icon.svg",
    "cluster.html",
    "cluster.js",
    "cluster-api.js",
    "pages/cluster-backups.js",
    "pages/cluster-change.js",
    "pages/cluster-create.js",
    "pages/cluster-hashing.js",
    "pages/cluster-fields.js",
    "pages/cluster-machines.js",
    "pages/cluster-plan.js",
    "pages/cluster-slots.js",
    "pages/cluster-users.js",
    "pages/login.js",
    "pages/now.js",
    "pages/keys.js",
    "pages/value.js",
    "pages/clients.js",
    "pages/slow.js",
    "pages/replication.js",
    "pages/config.js",
    "pages/users.js",
    "pages/cli.js",
    "pages/events.js",
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
    PACKED.get_or_init(|| FILES.iter().map(pack).collect())
}

fn pack(&(path, plain): &File) -> Packed {
    let digest = Sha256::digest(plain);
    let name: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    let etag = HeaderValue::from_str(&format!("\"{name}\"")).expect("hexadecimal digits");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder.write_all(plain).and_then(|()| encoder.finish());
    Packed { path, plain, compressed: compressed.expect("memory takes all"), etag }
}

/// The page.
pub async fn page(request: Request) -> Response {
    send("index.html", request.headers())
}

/// One of its files.
pub async fn file(Path(path): Path<String>, request: Request) -> Response {
    send(&path, request.headers())
}

/// Answers a request for a file of the console's page.
pub fn send(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = packed().iter().find(|file| file.path == path) else {
        return (StatusCode::NOT_FOUND, "Not found\n").into_response();
    };
    let common = [
        (header::ETAG, file.etag.clone()),
        // Browsers ask whether it has changed: the files belong together.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == file.etag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, media_type(path))];
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
