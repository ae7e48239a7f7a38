//! What keeps an etcd in order: members, snapshots, defragmentation.

use crate::{Client, list, number, number_or_zero, unreadable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::Moment;
use cluster::coordinator::Failure;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Instant;

/// A server of an etcd, as it is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its name; empty if it was not started yet.
    pub name: String,
    /// Its number, in decimal digits.
    pub id: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
}

/// The bytes of etcd's file, and those of them that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// All of them.
    pub bytes: u64,
    /// Without free pages.
    pub used_bytes: u64,
}

impl Client {
    /// Returns the servers.
    ///
    /// # Errors
    /// etcd is away.
    pub fn peers(&mut self) -> Result<Vec<Peer>, Failure> {
        let reply = self.look("/v3/cluster/member/list", &json!({}))?;
        Ok(list(&reply["members"]).iter().map(peer).collect())
    }

    /// Returns the servers that the one at this port of *peers* knows. It answers as soon as it
    /// runs, also without a majority of them. `Client` is one of that port.
    ///
    /// # Errors
    /// It does not answer.
    pub fn peers_known(&mut self) -> Result<Vec<Peer>, Failure> {
        let response = self.get("/members")?;
        match response.body.as_array() {
            Some(members) if response.is_ok() => Ok(members.iter().map(peer).collect()),
            _ => Err(self.refusal(&response)),
        }
    }

    /// Adds a server that will be reached by its peers at this address. Returns all servers, with
    /// the new one.
    ///
    /// # Errors
    /// etcd is away, or refuses it for now: the members that it has must have been in touch for
    /// some seconds.
    pub fn add_peer(&mut self, peer_url: &str) -> Result<Vec<Peer>, Failure> {
        let reply = self.ask("/v3/cluster/member/add", &json!({ "peerURLs": [peer_url] }))?;
        Ok(list(&reply["members"]).iter().map(peer).collect())
    }

    /// Removes a server, by its number. Returns those that are left.
    ///
    /// # Errors
    /// etcd is away, or refuses it.
    pub fn remove_peer(&mut self, id: &str) -> Result<Vec<Peer>, Failure> {
        let reply = self.ask("/v3/cluster/member/remove", &json!({ "ID": id }))?;
        Ok(list(&reply["members"]).iter().map(peer).collect())
    }

    /// Returns how large the server's file is.
    ///
    /// # Errors
    /// etcd is away.
    pub fn size(&mut self) -> Result<Size, Failure> {
        let reply = self.look("/v3/maintenance/status", &json!({}))?;
        let bytes = number(&reply["dbSize"])?;
        Ok(Size { bytes, used_bytes: number_or_zero(&reply["dbSizeInUse"]) })
    }

    /// Gives free pages of the server's file back to the disk. It answers nothing else meanwhile.
    ///
    /// # Errors
    /// etcd is away.
    pub fn defragment(&mut self) -> Result<(), Failure> {
        self.ask("/v3/maintenance/defragment", &json!({})).map(|_| ())
    }

    /// Writes a snapshot of everything, which `etcdutl snapshot restore` reads. Returns its bytes.
    ///
    /// # Errors
    /// etcd is away, or the writer refuses it; what was written is not whole then.
    pub fn snapshot(&mut self, out: &mut dyn Write, limit: Moment) -> Result<u64, Failure> {
        let away = |error: std::io::Error| Failure::Away(error.to_string());
        let (begins, deadline) = (self.deadline(), Instant::now() + limit);
        self.log_in(begins)?;
        let (connection, token) = (self.connect()?, self.token.as_deref());
        let mut lines = connection
            .subscribe("/v3/maintenance/snapshot", &json!({}), token, begins)
            .map_err(away)?;
        let (mut bytes, mut is_whole) = (0, false);
        while let Some(line) = lines.next(deadline).map_err(away)? {
            let (blob, remaining) = blob(&line)?;
            out.write_all(&blob).map_err(away)?;
            bytes += blob.len() as u64;
            is_whole = remaining == 0;
        }
        if is_whole { Ok(bytes) } else { Err(Failure::Away("the snapshot was cut off".into())) }
    }
}

fn peer(member: &Value) -> Peer {
    let texts = |value: &Value| {
        list(value).iter().filter_map(|url| url.as_str().map(str::to_owned)).collect()
    };
    Peer {
        // The gateway has it as text, a peer as a number.
        id: match member["id"].as_u64() {
            Some(id) => id.to_string(),
            None => member["ID"].as_str().unwrap_or_default().to_owned(),
        },
        name: member["name"].as_str().unwrap_or_default().to_owned(),
        peer_urls: texts(&member["peerURLs"]),
        client_urls: texts(&member["clientURLs"]),
    }
}

/// A part of a snapshot, and how many bytes follow.
fn blob(line: &[u8]) -> Result<(Vec<u8>, u64), Failure> {
    let reply: Value = serde_json::from_slice(line).map_err(|_| unreadable())?;
    let result = &reply["result"];
    if result.is_null() {
        return Err(Failure::Away(format!("the snapshot was ended: {reply}")));
    }
    let blob = STANDARD.decode(result["blob"].as_str().unwrap_or_default());
    Ok((blob.map_err(|_| unreadable())?, number_or_zero(&result["remaining_bytes"])))
}
