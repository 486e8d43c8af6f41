//! The socket between processes of one machine.
//!
//! tokio waits for such a socket to be readable and to be writable at once, and the kernel says that it is writable each time
//! the other side has taken something: for each message and each answer a thread would be woken that finds nothing to do.
//! This one waits for what can be read, and for room only while there is none.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Bytes that are read at once, at most: their place is zeroed first.
const READ_BYTES_MAX: usize = 64 << 10;

/// One end of a connection within a machine.
#[derive(Debug)]
pub struct LocalSocket {
    stream: AsyncFd<UnixStream>,
    /// There while the other side has to take something first.
    full: Option<AsyncFd<UnixStream>>,
}

impl LocalSocket {
    /// Takes over a connected socket, in the context of the runtime that is to wait for it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: wait_for(stream, Interest::READABLE)?, full: None })
    }

    fn write(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&mut &UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                let mut room = ready!(full.poll_write_ready(context))?;
                room.clear_ready();
            }
            match write(&mut self.stream.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.full.is_none() {
                        let same = self.stream.get_ref().try_clone()?;
                        self.full = Some(wait_for(same, Interest::WRITABLE)?);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => {
                    self.full = None;
                    return Poll::Ready(done);
                }
            }
        }
    }
}

/// Has the runtime of this context wait for a socket.
#[allow(unsafe_code)]
fn wait_for(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: a `UnixStream` owns its descriptor and has the same one until it is dropped, and nobody takes it out of here.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

impl AsyncRead for LocalSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut readable = ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.remaining().min(READ_BYTES_MAX);
            match readable.try_io(|stream| stream.get_ref().read(buffer.initialize_unfilled_to(room))) {
                Ok(Ok(read)) => {
                    buffer.advance(read);
                    // With less than there was room for, all was taken, and the system tells when there is more. Nothing
                    // at all is the end, which stays.
                    if 0 < read && read < room {
                        readable.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for LocalSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().write(context, |stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().write(context, |stream| stream.write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (LocalSocket, LocalSocket) {
        let (one, other) = UnixStream::pair().unwrap();
        (LocalSocket::new(one).unwrap(), LocalSocket::new(other).unwrap())
    }

    #[tokio::test]
    async fn more_than_the_kernel_holds_gets_across_both_ways_at_once() {
        let (one, other) = pair();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let exchange = |mut socket: LocalSocket, bytes: Vec<u8>| async move {
            let (mut read, mut write) = tokio::io::split(&mut socket);
            let mut got = vec![0; bytes.len()];
            let (sent, received) = tokio::join!(write.write_all(&bytes), read.read_exact(&mut got));
            sent.unwrap();
            received.unwrap();
            assert!(got == bytes, "other bytes came out than went in");
            socket
        };
        let sockets = tokio::join!(exchange(one, bytes.clone()), exchange(other, bytes));
        // Once all is taken, nobody waits for room any more.
        assert!(sockets.0.full.is_none() && sockets.1.full.is_none());
    }

    #[tokio::test]
    async fn the_end_of_the_other_side_is_an_end_and_writing_to_it_an_error() {
        let (mut one, other) = pair();
        drop(other);
        assert_eq!(one.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(one.write_all(b"late").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn what_was_sent_before_a_shutdown_arrives() {
        let (mut one, mut other) = pair();
        one.write_all(b"last words").await.unwrap();
        one.shutdown().await.unwrap();
        let mut heard = Vec::new();
        other.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
    }
}
