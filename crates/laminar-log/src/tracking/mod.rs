//! How far every partition is: on the disk, applied, acknowledged by replicas, and what of the segmented log it needs.
//!
//! Everything here is memory and pure steps; it is rebuilt from the logs when they are opened. One record, in order:
//!
//! 1. `apply` accepts it: [`SegmentedWatermarks::accepted`], [`SegmentedAckTracker::landed`].
//! 2. The segmented log syncs it: [`SegmentedWatermarks::segmented_durable`] (LOG-1: durable).
//! 3. Its worker applies it: [`SegmentedWatermarks::applied`].
//! 4. Replicas acknowledge it: [`SegmentedAckTracker::ack`], and, where a policy asks for it,
//!    [`SegmentedWatermarks::acked`].
//! 5. Its partition's own log syncs it: [`SegmentedWatermarks::synced`]. From here on the segmented log may lose it:
//!    [`SegmentedWatermarks::truncation_floor`] (LOG-5).
//!
//! [`PartitionDescriptor`] is what others may read of it.

mod acks;
mod descriptor;
mod manifest;
mod master;
mod policy;
mod watermarks;

pub use acks::{AckOutcome, AckView, SegmentedAckTracker};
pub use descriptor::PartitionDescriptor;
pub use manifest::PartitionManifest;
pub use master::{MASTER_SEED, MasterPolicy};
pub use policy::{AckPolicy, CustomAcks};
pub use watermarks::SegmentedWatermarks;
