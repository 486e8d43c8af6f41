//! What a client may be told.

use std::time::Duration;

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
            client_id: String::new(),
        }
    }
}
