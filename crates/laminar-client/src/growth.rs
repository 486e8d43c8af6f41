//! Partitions that a stream gets while it is followed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use laminar_rpc::{ErrorClass, Failure};

use crate::cursor::Cursor;
use crate::description::StreamInfo;
use crate::stream::StreamHandle;

/// How often a follower asks whether the stream got more partitions.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Looks for partitions that come after those a follower has.
pub(crate) struct Growth {
    stream: StreamHandle,
    /// The stream as it was when somebody looked last: all of its partitions are followed.
    info: Arc<StreamInfo>,
    fail_on_trimmed: bool,
}

/// What was added to a stream.
pub(crate) struct Grown {
    /// The stream with it.
    pub(crate) info: Arc<StreamInfo>,
    /// The new partitions.
    pub(crate) cursors: Vec<Cursor>,
}

impl Growth {
    pub(crate) fn new(stream: StreamHandle, info: Arc<StreamInfo>, fail_on_trimmed: bool) -> Self {
        Growth { stream, info, fail_on_trimmed }
    }

    /// What is added, until the stream is dropped.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Grown, Failure>> + Send + 'static {
        stream::unfold(self, |mut growth| async move {
            let info = growth.next_info().await?;
            Some((growth.take(info), growth))
        })
    }

    /// The stream once it has more partitions; none if it is gone.
    async fn next_info(&self) -> Option<Arc<StreamInfo>> {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            match self.stream.refresh().await {
                Ok(info) if info.partition_count() > self.info.partition_count() => return Some(info),
                Ok(_) => {}
                // The stream was dropped. Readers of the partitions that were there tell it.
                Err(failure)
                    if matches!(failure.class, ErrorClass::Invalid | ErrorClass::UnknownPartition) =>
                {
                    return None;
                }
                // They wait for the node too, and tell when their time is over.
                Err(failure) => tracing::debug!(%failure, "looking for more partitions again"),
            }
        }
    }

    fn take(&mut self, info: Arc<StreamInfo>) -> Result<Grown, Failure> {
        let added = self.info.partition_count()..info.partition_count();
        let cursors = added.map(|ordinal| {
            let cursor = Cursor::new(self.stream.clone(), info.clone(), ordinal, 0..u64::MAX)?;
            // Whoever follows was there before its first row: a row that was trimmed meanwhile is missed.
            Ok(cursor.following(true).strict(self.fail_on_trimmed, self.fail_on_trimmed))
        });
        let cursors = cursors.collect::<Result<Vec<_>, Failure>>()?;
        self.info = info.clone();
        Ok(Grown { info, cursors })
    }
}
