//! What a client knows of a stream.

use std::collections::BTreeMap;

use laminar_rpc::{ErrorClass, Failure, Field, proto};

use crate::codec::Codec;

/// A stream as the node described it.
#[derive(Debug)]
pub struct StreamInfo {
    /// Its name.
    pub path: String,
    /// Tells it from streams of the same name before and after it.
    pub stream_id: u64,
    /// The columns of its key.
    pub key: Vec<String>,
    /// `log`, `kv`, or the name of an application's machine.
    pub machine: String,
    /// How long rows are kept.
    pub retention: proto::Retention,
    /// Limits of its rows.
    pub limits: proto::StreamLimits,
    /// When it was created, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// Its partitions, the first being the stream's partition 0.
    pub partitions: Vec<proto::PartitionDescription>,
    /// The metadata index that this is as of.
    pub metadata_index: u64,
    codec: Codec,
    ordinals: BTreeMap<u32, u32>,
}

impl StreamInfo {
    /// Reads a description.
    ///
    /// # Errors
    /// Corrupt or internal: the node described something that cannot be.
    pub(crate) fn new(description: proto::StreamDescription) -> Result<Self, Failure> {
        let limits = description.limits.unwrap_or_default();
        let codec =
            Codec::new(&description.schema, &description.key, &description.machine, limits.row_bytes_max)?;
        let mut ordinals = BTreeMap::new();
        for (ordinal, partition) in (0_u32..).zip(&description.partitions) {
            if ordinals.insert(partition.partition_id, ordinal).is_some() {
                let id = partition.partition_id;
                let message =
                    format!("stream {}: the node named partition id {id} twice; report it", description.path);
                return Err(Failure::internal(message));
            }
        }
        Ok(StreamInfo {
            path: description.path,
            stream_id: description.stream_id,
            key: description.key,
            machine: description.machine,
            retention: description.retention.unwrap_or_default(),
            limits,
            created_at_ms: description.created_at_ms,
            partitions: description.partitions,
            metadata_index: description.metadata_index,
            codec,
            ordinals,
        })
    }

    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        self.ordinals.len() as u32
    }

    /// The columns of its rows; those of a stream of bytes are `key` and `value`.
    pub fn schema(&self) -> &arrow_schema::SchemaRef {
        self.codec.schema().arrow()
    }

    /// Whether keys and values are bytes.
    pub fn is_bytes(&self) -> bool {
        self.codec.schema().is_bytes()
    }

    /// Refuses keys and values where rows have a schema.
    pub(crate) fn expect_bytes(&self) -> Result<(), Failure> {
        if self.is_bytes() {
            return Ok(());
        }
        let message = format!("stream {}: it has a schema, and bytes were given; append rows", self.path);
        Err(Failure::invalid(message).with("stream", self.path.as_str()))
    }

    pub(crate) fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The cluster's id of a partition of the stream.
    ///
    /// # Errors
    /// Unknown partition: the stream has fewer.
    pub fn partition_id(&self, ordinal: u32) -> Result<u32, Failure> {
        match self.partitions.get(ordinal as usize) {
            Some(partition) => Ok(partition.partition_id),
            None => {
                let (path, count) = (&self.path, self.partition_count());
                let message =
                    format!("stream {path}: there is no partition {ordinal}, it has {count} (from 0)");
                Err(Failure::new(ErrorClass::UnknownPartition, message)
                    .with("stream", path.as_str())
                    .with("partition", ordinal))
            }
        }
    }

    /// The place in the stream of a partition of the cluster.
    pub fn ordinal(&self, partition_id: u32) -> Option<u32> {
        self.ordinals.get(&partition_id).copied()
    }

    /// The place in the stream of a partition that the node named in its answer.
    pub(crate) fn answered_ordinal(&self, partition_id: u32) -> Result<u32, Failure> {
        self.ordinal(partition_id).ok_or_else(|| {
            let path = &self.path;
            Failure::internal(format!(
                "stream {path}: the node named partition id {partition_id}, which is not of it"
            ))
        })
    }

    /// Ids of partitions of the stream; all of them if none is named.
    pub(crate) fn partition_ids(&self, ordinals: Option<&[u32]>) -> Result<Vec<u32>, Failure> {
        match ordinals {
            None => Ok(self.partitions.iter().map(|partition| partition.partition_id).collect()),
            Some(ordinals) => ordinals.iter().map(|ordinal| self.partition_id(*ordinal)).collect(),
        }
    }

    /// Names the stream in a failure, and the partition as the stream counts it.
    pub(crate) fn name(&self, mut failure: Failure) -> Failure {
        let named = failure.number("partition_id").or_else(|| failure.number("partition"));
        if let Some(id) = named.and_then(|id| u32::try_from(id).ok()) {
            failure.fields.insert("partition_id".to_owned(), Field::from(id));
            match self.ordinal(id) {
                Some(ordinal) => failure.fields.insert("partition".to_owned(), Field::from(ordinal)),
                None => failure.fields.remove("partition"),
            };
        }
        failure.fields.entry("stream".to_owned()).or_insert_with(|| Field::from(self.path.as_str()));
        failure
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A stream of bytes whose partition n has the id 100 + n.
    pub(crate) fn bytes_stream(count: u32) -> StreamInfo {
        let partitions = (0..count).map(|ordinal| proto::PartitionDescription {
            partition_id: 100 + ordinal,
            owner: 1,
            epoch: 1,
            writer: String::new(),
        });
        let description = proto::StreamDescription {
            path: "/a".to_owned(),
            stream_id: 9,
            machine: "log".to_owned(),
            partitions: partitions.collect(),
            ..Default::default()
        };
        StreamInfo::new(description).unwrap()
    }

    #[test]
    fn partitions_are_named_as_the_stream_counts_them() {
        let info = bytes_stream(4);
        assert_eq!((info.partition_id(3).unwrap(), info.ordinal(103), info.ordinal(3)), (103, Some(3), None));
        let failure = info.partition_id(4).unwrap_err();
        assert_eq!(failure.class, ErrorClass::UnknownPartition);
        assert_eq!(failure.message, "stream /a: there is no partition 4, it has 4 (from 0)");
    }

    #[test]
    fn failures_name_stream_and_partition() {
        let info = bytes_stream(4);
        for field in ["partition", "partition_id"] {
            let named = info.name(Failure::new(ErrorClass::NotOwned, "no").with(field, 102_u32));
            assert_eq!((named.number("partition"), named.number("partition_id")), (Some(2), Some(102)));
            assert_eq!(named.fields["stream"], Field::from("/a"));
        }
        let foreign = info.name(Failure::new(ErrorClass::NotOwned, "no").with("partition", 7_u32));
        assert_eq!((foreign.number("partition"), foreign.number("partition_id")), (None, Some(7)));
    }

    #[test]
    fn a_description_that_cannot_be_is_refused() {
        let twice = proto::PartitionDescription { partition_id: 5, ..Default::default() };
        let description = proto::StreamDescription {
            machine: "log".to_owned(),
            partitions: vec![twice.clone(), twice],
            ..Default::default()
        };
        assert_eq!(StreamInfo::new(description).unwrap_err().class, ErrorClass::Internal);
    }
}
