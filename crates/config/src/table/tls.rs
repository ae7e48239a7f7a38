//! TLS.

use crate::choices::{TlsAuthClients, TlsAuthClientsUser};
use crate::spec::range::{COUNT, PORT};
use crate::spec::{Spec, choice, flag, int, optional};

pub(super) const OPTIONS: &[Spec] = &[
    int("tls-port", PORT, "0", "TLS port; 0 opens none"),
    optional("tls-cert-file", "certificate of the server (PEM)").volatile(),
    optional("tls-key-file", "private key of the server (PEM)").volatile(),
    optional("tls-key-file-pass", "passphrase of the private key").sensitive(),
    optional(
        "tls-client-cert-file",
        "certificate for outgoing connections, if not that of the server",
    )
    .volatile(),
    optional("tls-client-key-file", "private key for outgoing connections").volatile(),
    optional("tls-client-key-file-pass", "passphrase of that key").sensitive(),
    optional("tls-dh-params-file", "Diffie-Hellman parameters").volatile().not_yet(),
    optional("tls-ca-cert-file", "authorities that client certificates must come from (PEM)")
        .volatile(),
    optional("tls-ca-cert-dir", "directory of such authorities").volatile(),
    choice(
        "tls-auth-clients",
        TlsAuthClients::CHOICES,
        "yes",
        "whether clients must show a certificate",
    ),
    choice(
        "tls-auth-clients-user",
        TlsAuthClientsUser::CHOICES,
        "off",
        "what in a client's certificate names its user: `CN`, or `URI` among the alternative names",
    ),
    optional("tls-protocols", "protocol versions, such as \"TLSv1.2 TLSv1.3\""),
    optional("tls-ciphers", "ciphers of TLS 1.2 and older"),
    optional("tls-ciphersuites", "cipher suites of TLS 1.3"),
    flag("tls-prefer-server-ciphers", "no", "let the server choose the cipher"),
    flag("tls-session-caching", "yes", "let clients resume sessions"),
    int("tls-session-cache-size", COUNT, "20480", "sessions remembered"),
    int("tls-session-cache-timeout", COUNT, "300", "seconds a session is remembered").not_yet(),
    int(
        "tls-auto-reload-interval",
        COUNT,
        "0",
        "seconds between checks for new certificates; 0 never checks",
    ),
    flag("tls-replication", "no", "follow a primary by TLS"),
    flag(
        "tls-cluster",
        "no",
        "move keys to other servers (MIGRATE), and forward to other nodes of a cluster, by TLS",
    ),
];
