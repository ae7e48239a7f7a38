//! Where backups are kept: a folder, or a bucket that speaks S3's protocol.
//!
//! The crate object_store is asynchronous; the threads of jobs wait, so each storage has a runtime.

use super::connecting::{Connecting, check_address};
use crate::settings::Wrong;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload, WriteMultipart};
use std::net::ToSocketAddrs as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Bytes that are sent or asked for at a time. S3 takes at most ten thousand parts of an object.
const PART: usize = 16 << 20;

/// Parts that are sent at the same time.
const PARTS: usize = 3;

/// See the head of this file.
pub struct Storage {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The folder, if it is one.
    folder: Option<PathBuf>,
    /// When all calls have to be answered, if something waits for them.
    until: Option<Instant>,
    runtime: Runtime,
}

/// What goes wrong with a storage.
type Failure = String;

fn text(error: object_store::Error) -> Failure {
    // The first line says it; behind it may be a page of XML.
    let text = error.to_string();
    text.lines().next().unwrap_or_default().chars().take(400).collect()
}

impl Storage {
    /// Opens a folder (`/folder`) or a bucket (`s3://bucket/prefix`). A folder is made if `makes`.
    ///
    /// # Errors
    /// It is neither, or cannot be used.
    pub fn open(at: &str, makes: bool) -> Result<Storage, Wrong> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime =
            runtime.map_err(|error| Wrong(format!("no thread can be started: {error}")))?;
        if let Some(rest) = at.strip_prefix("s3://") {
            let (store, prefix) = bucket(rest)?;
            return Ok(Storage { store, prefix, folder: None, until: None, runtime });
        }
        let at = at.strip_prefix("file://").unwrap_or(at);
        if !at.starts_with('/') {
            let why = "backups are kept in a folder with its whole path (/backups), or in s3://bucket/prefix";
            return Err(Wrong(format!("'{at}': {why}")));
        }
        if makes {
            std::fs::create_dir_all(at).map_err(|error| Wrong(format!("{at}: {error}")))?;
        } else if !std::path::Path::new(at).is_dir() {
            return Err(Wrong(format!("there is no folder {at} on this machine")));
        }
        let store = LocalFileSystem::new_with_prefix(at);
        let store = store.map_err(|error| Wrong(format!("{at}: {}", text(error))))?;
        let (folder, prefix) = (Some(PathBuf::from(at)), Path::default());
        Ok(Storage { store: Arc::new(store), prefix, folder, until: None, runtime })
    }

    /// The same with a limit of time for all calls together.
    pub fn within(mut self, time: Duration) -> Storage {
        self.until = Some(Instant::now() + time);
        self
    }

    /// Waits for the answer to a call.
    fn wait<T>(&self, call: impl Future<Output = T>) -> Result<T, Failure> {
        let Some(until) = self.until else { return Ok(self.runtime.block_on(call)) };
        let limited = async { tokio::time::timeout_at(until.into(), call).await };
        self.runtime.block_on(limited).map_err(|_| "it does not answer in time".into())
    }

    /// Looks whether it can be opened, and be made if it is a folder that is not there.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(at: &str) -> Result<(), Wrong> {
        let folder = std::path::Path::new(at.strip_prefix("file://").unwrap_or(at));
        match folder.ancestors().find(|it| it.exists()) {
            Some(above) if folder.is_absolute() && above != folder && above.is_dir() => Ok(()),
            _ => Storage::open(at, false).map(drop),
        }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Begins to write an object, which is there when it is finished.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn writer(&self, name: &str) -> Result<Writer<'_>, Failure> {
        let path = self.path(name);
        let upload = self.wait(self.store.put_multipart(&path))?.map_err(text)?;
        let upload = WriteMultipart::new_with_chunk_size(upload, PART);
        Ok(Writer { storage: self, upload, name: name.to_owned() })
    }

    /// Writes a small object.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let path = self.path(name);
        let put = self.store.put(&path, PutPayload::from(bytes));
        drop(self.wait(put)?.map_err(text)?);
        self.sync(name)
    }

    /// Forces a file of a folder to the disk.
    fn sync(&self, name: &str) -> Result<(), Failure> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(name);
        let sync = |path: &std::path::Path| std::fs::File::open(path)?.sync_all();
        sync(&path)
            .and_then(|()| path.parent().map_or(Ok(()), sync))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads so many bytes from a place of an object.
    ///
    /// # Errors
    /// It is not there, or shorter.
    pub fn read(&self, name: &str, from: u64, len: u64) -> Result<Vec<u8>, Failure> {
        let path = self.path(name);
        let read = self.store.get_range(&path, from..from + len);
        let bytes = self.wait(read)?.map_err(text)?;
        Ok(bytes.to_vec())
    }

    /// Returns the length of an object, or `None` if there is none.
    ///
    /// # Errors
    /// The storage does not answer.
    pub fn len(&self, name: &str) -> Result<Option<u64>, Failure> {
        match self.wait(self.store.head(&self.path(name)))? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(text(error)),
        }
    }

    /// Returns the names of what is in a folder, and whether each is a folder.
    ///
    /// # Errors
    /// The storage does not answer.
    pub fn list(&self, name: &str) -> Result<Vec<(String, bool)>, Failure> {
        let path = if name.is_empty() { self.prefix.clone() } else { self.path(name) };
        let listed = self.wait(self.store.list_with_delimiter(Some(&path)))?.map_err(text)?;
        let last = |path: &Path| path.filename().unwrap_or_default().to_owned();
        let folders = listed.common_prefixes.iter().map(|path| (last(path), true));
        let files = listed.objects.iter().map(|meta| (last(&meta.location), false));
        Ok(folders.chain(files).collect())
    }

    /// Removes a folder of files. What says that the files are complete (`first`) goes first.
    ///
    /// # Errors
    /// The storage does not answer.
    pub fn remove(&self, name: &str, first: &str) -> Result<(), Failure> {
        let mut files: Vec<String> = self
            .list(name)?
            .into_iter()
            .filter(|(_, is_folder)| !is_folder)
            .map(|it| it.0)
            .collect();
        files.sort_by_key(|file| file != first);
        for file in files {
            let path = self.path(&format!("{name}/{file}"));
            match self.wait(self.store.delete(&path))? {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(text(error)),
            }
        }
        if let Some(folder) = &self.folder {
            // It stays if something else is in it.
            let _ = std::fs::remove_dir(folder.join(name));
        }
        Ok(())
    }
}

/// An object that is being written.
pub struct Writer<'a> {
    storage: &'a Storage,
    upload: WriteMultipart,
    name: String,
}

impl Writer<'_> {
    /// Adds bytes.
    ///
    /// # Errors
    /// The storage does not take them.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let runtime = &self.storage.runtime;
        // Parts are tasks of the runtime.
        let _entered = runtime.enter();
        runtime.block_on(self.upload.wait_for_capacity(PARTS)).map_err(text)?;
        self.upload.write(bytes);
        Ok(())
    }

    /// Ends the object.
    ///
    /// # Errors
    /// The storage does not take it.
    pub fn finish(self) -> Result<(), Failure> {
        let Writer { storage, upload, name } = self;
        storage.runtime.block_on(upload.finish()).map_err(text)?;
        storage.sync(&name)
    }

    /// Gives it up.
    pub fn abort(self) {
        // What is left behind is no backup: it has no manifest.
        let _ = self.storage.runtime.block_on(self.upload.abort());
    }
}

/// Opens `bucket/prefix?option=value`. Options that are not given come from the environment
/// (`AWS_…`).
fn bucket(rest: &str) -> Result<(Arc<dyn ObjectStore>, Path), Wrong> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(Wrong("name a bucket: s3://bucket/prefix".into()));
    }
    let mut builder =
        AmazonS3Builder::from_env().with_bucket_name(bucket).with_http_connector(Connecting);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        builder = match name {
            "endpoint" => {
                check_endpoint(value)?;
                builder.with_endpoint(value).with_allow_http(value.starts_with("http://"))
            }
            "region" => builder.with_config(AmazonS3ConfigKey::Region, value),
            "access-key-id" => builder.with_access_key_id(value),
            "secret-access-key" => builder.with_secret_access_key(value),
            _ => {
                return Err(Wrong(format!(
                    "'{name}' is not known behind '?': write endpoint, region, access-key-id or \
                     secret-access-key"
                )));
            }
        };
    }
    let store = builder.build().map_err(|error| Wrong(text(error)))?;
    let prefix = Path::parse(prefix).map_err(|error| Wrong(error.to_string()))?;
    Ok((Arc::new(store), prefix))
}

/// Checks where a storage is asked for. Addresses of the link are no storage's: clouds give keys to
/// their machines there.
fn check_endpoint(endpoint: &str) -> Result<(), Wrong> {
    let wrong = |why: &str| Wrong(format!("endpoint {endpoint}: {why}"));
    let form = "write http://HOST:PORT or https://HOST:PORT";
    let (scheme, rest) = endpoint.split_once("://").ok_or_else(|| wrong(form))?;
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong(form)),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[').and_then(|it| it.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(|| wrong(form))?)),
        None => authority.split_once(':').map_or((authority, None), |(host, it)| (host, Some(it))),
    };
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ".-_:".contains(it);
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err(wrong(form));
    }
    let port: u16 = port.map_or(Ok(usual), |port| port.parse().map_err(|_| wrong(form)))?;
    // A name that has no address now is said when the storage is asked, which checks the address
    // that is connected to. Numbers are not looked up then: this is their only check.
    let mut addresses = (host, port).to_socket_addrs().into_iter().flatten();
    addresses.try_for_each(|it| check_address(it.ip())).map_err(|why| wrong(&why.to_string()))
}

/// The same address without its keys, for messages.
pub fn shown(at: &str) -> &str {
    at.split_once('?').map_or(at, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_and_removes() {
        let folder = std::env::temp_dir().join(format!("dunlin-storage-{}", std::process::id()));
        let at = folder.to_str().expect("it is text");
        let storage = Storage::open(at, true).unwrap();
        let mut writer = storage.writer("a/b/1.rdb").unwrap();
        writer.write(&[7; 1000]).unwrap();
        writer.write(&[8; 1000]).unwrap();
        writer.finish().unwrap();
        storage.put("a/b/manifest.json", b"{}".to_vec()).unwrap();
        assert_eq!(storage.read("a/b/1.rdb", 999, 2), Ok(vec![7, 8]));
        assert_eq!((storage.len("a/b/1.rdb"), storage.len("a/x")), (Ok(Some(2000)), Ok(None)));
        assert_eq!(storage.list("a"), Ok(vec![("b".into(), true)]));
        storage.remove("a/b", "manifest.json").unwrap();
        assert_eq!(storage.list("a"), Ok(vec![]));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_place_is_refused() {
        assert!(Storage::open("backups", false).is_err());
        assert!(Storage::open("/dunlin/no/such", false).is_err());
        assert!(Storage::open("s3://bucket?colour=red", false).is_err());
        let refusal = |at: &str| Storage::open(at, false).err().map(|why| why.0);
        assert_eq!(refusal("s3:///x?region=a"), Some("name a bucket: s3://bucket/prefix".into()));
        for endpoint in [
            "http://169.254.169.254",
            "http://169.254.1.1:9000/x",
            "https://[fe80::1]:9000",
            "http://[::ffff:169.254.169.254]",
            "http://[fd00:ec2::254]",
        ] {
            let why = refusal(&format!("s3://b/p?endpoint={endpoint}"));
            assert!(why.is_some_and(|why| why.contains("an address of the link")), "{endpoint}");
        }
        for endpoint in
            ["", "ftp://a", "a:9000", "http://", "http://a@b", "http://a:x", "http://a%2e"]
        {
            assert!(refusal(&format!("s3://b/p?endpoint={endpoint}")).is_some(), "{endpoint}");
        }
        let local =
            "s3://b/p?endpoint=http://127.0.0.1:9000&region=a&access-key-id=k&secret-access-key=s";
        assert_eq!(refusal(local), None);
        assert_eq!(shown("s3://b/p?secret-access-key=x"), "s3://b/p");
    }
}
