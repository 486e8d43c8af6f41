//! Large requests travel in chunks, so that small ones keep flowing between them; each stays one entry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use laminar_core::error::ErrorKind;
use thiserror::Error;

use super::assembly::{Assembly, Put};
use super::config::AssemblerConfig;
use crate::setting::{SettingOutOfRange, millis};

/// Who sends: a connection or a session, chosen by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u128);

/// A request of a client; the client uses each number once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// A part of a request. All but the last are `chunk_bytes` long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestChunk {
    /// Who sends.
    pub client: ClientId,
    /// Which request.
    pub request: TransferId,
    /// How long the whole request is.
    pub total_bytes: u64,
    /// Which part, from 0.
    pub number: u32,
    /// The part.
    pub bytes: Bytes,
}

/// What became of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transferred {
    /// The request is complete; this is it.
    Complete(Bytes),
    /// So many chunks are missing.
    Missing(u32),
    /// This chunk was there; nothing changed.
    Duplicate,
    /// The request was completed before; nothing changed.
    AlreadyComplete,
}

/// Why a chunk was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// There is no room for another request. One that has begun always has its room.
    #[error("request refused, {value} of {limit} in use and {asked} more asked for ({name}); wait {} ms or raise it", millis(*.retry_after))]
    NoRoom {
        /// The configuration key.
        name: &'static str,
        /// The limit.
        limit: u64,
        /// What is in use.
        value: u64,
        /// What the request needs.
        asked: u64,
        /// When to try again.
        retry_after: Duration,
    },
    /// The request is too large.
    #[error(
        "request refused, it has {bytes} bytes and {limit} are the most (log.request_bytes_max); send less at once"
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The chunk does not fit the request.
    #[error(
        "chunk {number} of a request of {total} bytes refused, it has {found} bytes and must have {expected} (0: there is no such chunk)"
    )]
    WrongLength {
        /// Which chunk.
        number: u32,
        /// The size of the request.
        total: u64,
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// The chunk contradicts what came before.
    #[error("chunk {number} of request {} refused, it contradicts an earlier one; use each request number once", .request.0)]
    Contradiction {
        /// The request.
        request: TransferId,
        /// Which chunk.
        number: u32,
    },
}

impl ChunkError {
    /// What the caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ChunkError::NoRoom { .. } => ErrorKind::Overloaded,
            _ => ErrorKind::Invalid,
        }
    }
}

#[derive(Debug, Default)]
struct Client {
    requests: u64,
    bytes: u64,
}

/// Puts large requests together, in bounded memory.
///
/// The first chunk to arrive reserves room for the whole request, from a budget that nothing else draws on. So a
/// request that has begun can always end, two of them cannot wait for each other, and small requests, which need no
/// room here, are never behind a large one. What does not end in time is dropped.
#[derive(Debug)]
pub struct RequestAssembler {
    config: AssemblerConfig,
    open: BTreeMap<(ClientId, TransferId), Assembly>,
    deadlines: BTreeSet<(Duration, ClientId, TransferId)>,
    clients: BTreeMap<ClientId, Client>,
    bytes: u64,
    done: BTreeSet<(ClientId, TransferId)>,
    done_order: VecDeque<(ClientId, TransferId)>,
}

impl RequestAssembler {
    /// An assembler with nothing under way.
    ///
    /// # Errors
    /// Invalid: a setting is out of its range.
    pub fn new(config: AssemblerConfig) -> Result<Self, SettingOutOfRange> {
        config.check()?;
        Ok(Self {
            config,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            clients: BTreeMap::new(),
            bytes: 0,
            done: BTreeSet::new(),
            done_order: VecDeque::new(),
        })
    }

    /// Takes a chunk, in any order.
    ///
    /// # Errors
    /// Overloaded: there is no room for a new request. Invalid: too large, or it does not fit what came before.
    pub fn accept(&mut self, chunk: &RequestChunk, now: Duration) -> Result<Transferred, ChunkError> {
        self.check_length(chunk)?;
        self.expire(now);
        let key = (chunk.client, chunk.request);
        if self.done.contains(&key) {
            return Ok(Transferred::AlreadyComplete);
        }
        if chunk.total_bytes <= self.config.chunk_bytes {
            return Ok(Transferred::Complete(chunk.bytes.clone()));
        }
        if !self.open.contains_key(&key) {
            self.begin(key, chunk.total_bytes, now)?;
        }
        let contradiction = ChunkError::Contradiction { request: chunk.request, number: chunk.number };
        let Some(assembly) = self.open.get_mut(&key) else { return Err(contradiction) };
        if assembly.total() as u64 != chunk.total_bytes {
            return Err(contradiction);
        }
        match assembly.put(chunk.number as usize, &chunk.bytes) {
            Put::Same => return Ok(Transferred::Duplicate),
            Put::Different => return Err(contradiction),
            Put::New => {}
        }
        match u32::try_from(assembly.missing()).unwrap_or(u32::MAX) {
            0 => Ok(self.finish(key)),
            missing => {
                self.postpone(key, now);
                Ok(Transferred::Missing(missing))
            }
        }
    }

    fn check_length(&self, chunk: &RequestChunk) -> Result<(), ChunkError> {
        let (total, limit) = (chunk.total_bytes, self.config.request_bytes_max);
        if total > limit {
            return Err(ChunkError::TooLarge { bytes: total, limit });
        }
        let begin = u64::from(chunk.number).saturating_mul(self.config.chunk_bytes);
        let expected = total.saturating_sub(begin).min(self.config.chunk_bytes);
        let found = chunk.bytes.len() as u64;
        if expected == 0 || found != expected {
            return Err(ChunkError::WrongLength { number: chunk.number, total, found, expected });
        }
        Ok(())
    }

    fn begin(&mut self, key: (ClientId, TransferId), total: u64, now: Duration) -> Result<(), ChunkError> {
        let none = Client::default();
        let client = self.clients.get(&key.0).unwrap_or(&none);
        let config = &self.config;
        let limits = [
            ("log.assembly_client_requests_max", config.client_requests_max, client.requests, 1),
            ("log.assembly_client_bytes_max", config.client_bytes_max, client.bytes, total),
            ("log.assembly_bytes_max", config.bytes_max, self.bytes, total),
        ];
        for (name, limit, value, asked) in limits {
            if value + asked > limit {
                let retry_after = config.retry_after;
                return Err(ChunkError::NoRoom { name, limit, value, asked, retry_after });
            }
        }
        let client = self.clients.entry(key.0).or_default();
        client.requests += 1;
        client.bytes += total;
        self.bytes += total;
        let (total, chunk_bytes) = (total as usize, self.config.chunk_bytes as usize);
        self.open.insert(key, Assembly::new(total, chunk_bytes, now));
        self.deadlines.insert((now, key.0, key.1));
        self.postpone(key, now);
        Ok(())
    }

    /// A new chunk came: the request has `idle_max` for the next, and never more than `time_max` in all.
    fn postpone(&mut self, key: (ClientId, TransferId), now: Duration) {
        if let Some(assembly) = self.open.get_mut(&key) {
            self.deadlines.remove(&(assembly.deadline, key.0, key.1));
            let last = assembly.begun.saturating_add(self.config.time_max);
            assembly.deadline = now.saturating_add(self.config.idle_max).min(last);
            self.deadlines.insert((assembly.deadline, key.0, key.1));
        }
    }

    fn finish(&mut self, key: (ClientId, TransferId)) -> Transferred {
        let Some(assembly) = self.release(key) else { return Transferred::AlreadyComplete };
        if self.config.remembered_max > 0 {
            self.done.insert(key);
            self.done_order.push_back(key);
        }
        while self.done_order.len() as u64 > self.config.remembered_max {
            if let Some(oldest) = self.done_order.pop_front() {
                self.done.remove(&oldest);
            }
        }
        Transferred::Complete(assembly.into_bytes())
    }

    fn release(&mut self, key: (ClientId, TransferId)) -> Option<Assembly> {
        let assembly = self.open.remove(&key)?;
        let total = assembly.total() as u64;
        self.deadlines.remove(&(assembly.deadline, key.0, key.1));
        self.bytes -= total;
        if let Some(client) = self.clients.get_mut(&key.0) {
            client.requests -= 1;
            client.bytes -= total;
            if client.requests == 0 {
                self.clients.remove(&key.0);
            }
        }
        Some(assembly)
    }

    /// Drops requests that did not end in time, and tells which.
    pub fn expire(&mut self, now: Duration) -> Vec<(ClientId, TransferId)> {
        let mut expired = Vec::new();
        while let Some((deadline, client, request)) = self.deadlines.first().copied() {
            if deadline > now {
                break;
            }
            self.release((client, request));
            expired.push((client, request));
        }
        expired
    }

    /// Drops a request that its client gave up.
    pub fn abort(&mut self, client: ClientId, request: TransferId) {
        self.release((client, request));
    }

    /// Drops everything of a client that is gone.
    pub fn disconnect(&mut self, client: ClientId) {
        let all = (client, TransferId(0))..=(client, TransferId(u64::MAX));
        let requests: Vec<_> = self.open.range(all).map(|(key, _)| *key).collect();
        for key in requests {
            self.release(key);
        }
    }

    /// Bytes reserved for requests under way.
    pub fn reserved_bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests under way.
    pub fn requests(&self) -> usize {
        self.open.len()
    }
}
