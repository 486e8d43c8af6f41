//! Random identities and the wall clock: the only place that asks the machine for either.

use laminar_rpc::Failure;
use laminar_rpc::proto;

/// 128 random bits that are not zero.
pub(crate) fn random_id() -> Result<u128, Failure> {
    loop {
        let mut bytes = [0_u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Failure::internal(format!("the system gave no random bytes: {error}")));
                }
            }
        }
        let id = u128::from_le_bytes(bytes);
        if id != 0 {
            return Ok(id);
        }
    }
}

/// The id of a request, new for each.
pub(crate) fn request_id() -> Result<proto::RequestId, Failure> {
    let id = random_id()?;
    let (high, low) = ((id >> 64) as u64, id as u64);
    Ok(proto::RequestId { high, low })
}

/// Milliseconds since 1970, for the names of staged blocks and the age of removed keys.
// Nothing is safe or not by this time.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The name of this machine, as `why` will show it.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
