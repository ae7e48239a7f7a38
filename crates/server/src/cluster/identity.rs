//! The node's name and address. The name is drawn once and kept in `cluster-config-file`, as the
//! line of this node in the form of CLUSTER NODES. So a file of Redis Cluster is read, too; all
//! else is in the coordinator.

use crate::bus;
use cluster::id::Id;
use cluster::nodes_conf::Layout;
use cluster::topology::{Address, ForClients};
use config::Config;
use etcd::Endpoint;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use structs::hashing::os_random;

/// See the head of this file.
pub(super) struct Identity {
    /// The name.
    pub(super) id: Id,
    /// Where others reach this server, as it said when it started.
    pub(super) address: Address,
    /// What the file says of other nodes, if it is one of Redis Cluster.
    pub(super) layout: Option<Layout>,
    /// Says so anew when options change.
    pub(super) announcer: Announcer,
    /// The file, locked: two servers must not have one name.
    _file: File,
}

impl Identity {
    /// Reads the file, or makes it.
    ///
    /// # Errors
    /// It cannot be used, or another server uses it.
    pub(super) fn find(config: &Config, coordinator: &Endpoint) -> Result<Identity, String> {
        let announcer = Announcer::new(config, coordinator)?;
        let address = announcer.address(config)?;
        let name = config.cluster_config_file();
        let path = PathBuf::from(name.as_path());
        let failed = |error: io::Error| {
            format!("Can't use the cluster-config-file '{}': {error}", path.display())
        };
        if !path.exists() {
            write(&path, Id::draw(os_random), &address).map_err(failed)?;
        }
        let file = File::open(&path).map_err(failed)?;
        if file.try_lock().is_err() {
            return Err(format!(
                "Another server uses the cluster-config-file '{}'. Give each node a directory, or a \
                 cluster-config-file, of its own",
                path.display()
            ));
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        let Some(id) = read(&text) else {
            return Err(format!(
                "The cluster-config-file '{}' has no line of this node (with the flag myself). Remove \
                 it to start as a new node",
                path.display()
            ));
        };
        let layout = Layout::parse(&text);
        let layout = layout.map_err(|why| {
            format!("The cluster-config-file '{}' cannot be used: {why}", path.display())
        })?;
        Ok(Identity { id, address, layout, announcer, _file: file })
    }
}

/// Returns the name in the line that has the flag `myself`.
fn read(text: &str) -> Option<Id> {
    text.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (id, flags) = (words.next()?, words.nth(1)?);
        flags.split(',').any(|flag| flag == "myself").then(|| id.parse().ok())?
    })
}

/// Writes the file so that a crash leaves all of it or nothing.
fn write(path: &Path, id: Id, address: &Address) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let Address { host, port, .. } = address;
    let mut file = File::create(&temporary)?;
    writeln!(file, "{id} {host}:{port}@0 myself,master - 0 0 0 connected")?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Says where others reach this server: as announced, or the address that it is bound to, or the
/// one from which this machine reaches the coordinator.
#[derive(Clone)]
pub struct Announcer {
    /// The host if none is announced; perhaps empty.
    host: String,
}

impl Announcer {
    fn new(config: &Config, coordinator: &Endpoint) -> Result<Announcer, String> {
        let binds = config.bind();
        let bound = binds.iter().map(|bind| bind.to_string_lossy().into_owned()).find(|bind| {
            let bind = bind.trim_start_matches('-');
            !bind.is_empty() && !matches!(bind, "*" | "0.0.0.0" | "::" | "::*")
        });
        let host = match bound {
            Some(bound) => bound.trim_start_matches('-').to_owned(),
            None => match own_address(coordinator) {
                Ok(host) => host,
                Err(_) if !config.cluster_announce_ip().is_empty() => String::new(),
                Err(error) => {
                    return Err(format!(
                        "Can't tell which address others reach this node at ({error}): set \
                         cluster-announce-ip"
                    ));
                }
            },
        };
        Ok(Announcer { host })
    }

    /// The address, as the options say now.
    ///
    /// # Errors
    /// Others could not use it.
    pub fn address(&self, config: &Config) -> Result<Address, String> {
        let announced = config.cluster_announce_ip().to_string_lossy().into_owned();
        let or = |announced: u16, own: u16| if announced > 0 { announced } else { own };
        let address = Address {
            host: if announced.is_empty() { self.host.clone() } else { announced },
            port: or(config.cluster_announce_port(), config.port()),
            tls_port: or(config.cluster_announce_tls_port(), config.tls_port()),
            hostname: config.cluster_announce_hostname().to_string_lossy().into_owned(),
            zone: config.availability_zone().to_string_lossy().into_owned(),
            for_clients: ForClients {
                ipv4: config.cluster_announce_client_ipv4().to_string_lossy().into_owned(),
                ipv6: config.cluster_announce_client_ipv6().to_string_lossy().into_owned(),
                port: config.cluster_announce_client_port(),
                tls_port: config.cluster_announce_client_tls_port(),
            },
            bus_port: bus::shown_port(config),
        };
        address.check().map(|()| address)
    }
}

/// The address of the interface by which this machine would send to the coordinator. Nothing is
/// sent.
fn own_address(coordinator: &Endpoint) -> io::Result<String> {
    let host = coordinator.host.as_str();
    let socket = match UdpSocket::bind(("0.0.0.0", 0))
        .and_then(|socket| socket.connect((host, coordinator.port)).map(|()| socket))
    {
        Ok(socket) => socket,
        Err(_) => {
            let socket = UdpSocket::bind(("::", 0))?;
            socket.connect((host, coordinator.port))?;
            socket
        }
    };
    Ok(socket.local_addr()?.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_the_line_with_myself() {
        let (own, other) = ("07c37dfeb235213a872192d90877d0cd55635b91", "a".repeat(40));
        let text = format!(
            "{other} 127.0.0.1:1@2 master - 0 0 1 connected 0-5\n\
             {own} 127.0.0.1:3@4 myself,slave {other} 0 0 1 connected\nvars currentEpoch 1\n"
        );
        assert_eq!(read(&text).map(|id| id.to_string()).as_deref(), Some(own));
        for without in ["", "x", &format!("{other} a:1@2 master - 0 0 1 connected"), "x y myself"] {
            assert_eq!(read(without), None, "{without}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("dunlin-nodes-{}", std::process::id()));
        let address = Address { host: "10.0.0.1".into(), port: 7, ..Address::default() };
        let id = Id::draw(os_random);
        write(&path, id, &address).expect("it can be written");
        let text = fs::read_to_string(&path).expect("it was written");
        fs::remove_file(&path).expect("it is there");
        assert_eq!(read(&text), Some(id));
    }
}
