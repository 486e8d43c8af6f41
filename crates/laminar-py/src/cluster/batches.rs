//! Arguments and answers of batches that many processes write together.

use laminar_client::{BegunBatch, HeldEpoch};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::stream::ordinal;
use crate::args;
use crate::errors::invalid;

/// A run: 32 hexadecimal digits, or a UUID as text.
pub(crate) fn run(value: &Bound<'_, PyAny>) -> PyResult<u128> {
    let text = args::text(value, "run")?;
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let run = u128::from_str_radix(&digits, 16).ok().filter(|run| digits.len() == 32 && *run != 0);
    run.ok_or_else(|| {
        invalid(format!("run is {text:?}; it must be 32 hexadecimal digits that are not all 0"))
    })
}

/// A query and the number of its batch, if both are given.
pub(crate) fn named(
    query: Option<&Bound<'_, PyAny>>,
    batch: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<(String, u64)>> {
    match (query, batch) {
        (Some(query), Some(batch)) => Ok(Some((args::text(query, "query")?, number(batch)?))),
        (None, None) => Ok(None),
        _ => Err(invalid("query and batch belong together; give both, or neither".to_owned())),
    }
}

pub(crate) fn number(batch: &Bound<'_, PyAny>) -> PyResult<u64> {
    args::number(batch, "batch", 0, u64::MAX)
}

/// Triples of partition, partition id and epoch, as `begin_batch` tells them.
pub(crate) fn epochs(values: &Bound<'_, PyAny>) -> PyResult<Vec<HeldEpoch>> {
    args::items(values, "epochs", |held| {
        let parts = args::items(held, "epoch of a partition", |part| Ok(part.clone()))?;
        let [partition, partition_id, epoch] = &parts[..] else {
            return Err(invalid(format!(
                "epoch of a partition has {} parts; it must be (partition, partition id, epoch)",
                parts.len()
            )));
        };
        Ok(HeldEpoch {
            partition: ordinal(partition)?,
            partition_id: args::partition(partition_id)?.0,
            epoch: args::epoch(epoch)?.get(),
        })
    })
}

pub(crate) fn begun<'py>(py: Python<'py>, begun: &BegunBatch) -> PyResult<Bound<'py, PyDict>> {
    let epochs: Vec<(u32, u32, u64)> =
        begun.epochs.iter().map(|held| (held.partition, held.partition_id, held.epoch)).collect();
    let told = PyDict::new(py);
    told.set_item("node_id", begun.node_id)?;
    told.set_item("epochs", epochs)?;
    told.set_item("committed", begun.committed)?;
    told.set_item("last_batch", begun.last_batch)?;
    Ok(told)
}
