//! What a client may be told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The cluster that a client is of: the one of its first connection, unless it was said before. Copies are one and the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterPin(Arc<OnceLock<String>>);

impl ClusterPin {
    /// A client of this cluster, and of no other.
    pub fn of(cluster_id: String) -> Self {
        ClusterPin(Arc::new(OnceLock::from(cluster_id)))
    }

    /// The id of the cluster, if it is known.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// The id of the cluster, which from now on is this one if it was not known.
    pub(crate) fn get_or_set(&self, found: &str) -> &str {
        self.0.get_or_init(|| found.to_owned())
    }
}

/// Limits and waits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// How long a call takes at most, retries and all.
    pub timeout: Duration,
    /// How many appends of one handle wait to be sent at most; more callers wait.
    pub queued_appends_max: usize,
    /// How many bytes of rows of one handle wait to be sent at most; more callers wait.
    pub queued_bytes_max: usize,
    /// How many rows a batch of a reader has, unless the reader says otherwise.
    pub batch_rows: usize,
    /// The cluster that the client is of. Another one that answers in its place is refused.
    pub cluster: ClusterPin,
    /// Keeps a detached node alive while this client is there; empty if it does not count.
    pub client_id: String,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            timeout: Duration::from_secs(30),
            queued_appends_max: 1024,
            queued_bytes_max: 32 << 20,
            batch_rows: 65_536,
            cluster: ClusterPin::default(),
            client_id: String::new(),
        }
    }
}
