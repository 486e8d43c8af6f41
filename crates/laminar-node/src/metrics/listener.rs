//! A port that is let go of in forked children.
//!
//! A child gets a copy of every socket of its parent, and would keep the port when the parent is gone: the next node could not
//! listen there. So the sockets stand in a table from which a forked child closes them all, as with the locks of folders. A
//! socket that the runtime watches cannot be closed so: it would be taken from the parent's watch too. Therefore these are
//! looked at from time to time, which is often enough for whoever asks for figures.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::node::lock;

/// How often it is looked whether somebody has come.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

static OPEN: Mutex<BTreeMap<u64, TcpListener>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A port that is listened on until this is dropped.
pub(super) struct Listener {
    key: u64,
    process: u32,
}

impl Listener {
    /// Listens at an address; returns it with the port that it got.
    pub(super) fn bind(wanted: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = TcpListener::bind(wanted)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        lock(&OPEN).insert(key, socket);
        Ok((Listener { key, process: std::process::id() }, address))
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let accepted = match lock(&OPEN).get(&self.key) {
                Some(socket) => socket.accept(),
                None => Err(io::ErrorKind::NotConnected.into()),
            };
            match accepted {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    return TcpStream::from_std(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            lock(&OPEN).remove(&self.key);
        }
    }
}

/// Closes the copies of ports that a forked child got from its parent. To be called in the child, before anything else.
pub(crate) fn close_in_forked_child() {
    match OPEN.try_lock() {
        Ok(mut open) => open.clear(),
        Err(TryLockError::Poisoned(open)) => open.into_inner().clear(),
        // Somebody was using it at that moment, and never will be done with it here.
        Err(TryLockError::WouldBlock) => {}
    }
}
