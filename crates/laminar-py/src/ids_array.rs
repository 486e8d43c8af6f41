//! Partition ids in bulk: NumPy and Arrow arrays are read in place, anything else that can be iterated is copied.

use std::panic::AssertUnwindSafe;

use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use laminar_core::guard::PartitionGuardSet;
use laminar_core::ids::PartitionId;
use numpy::{Element, PyArray1, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyArray;

use crate::args;
use crate::errors::invalid;

/// What can check partitions in bulk.
pub(crate) trait Checks: Sync {
    /// Those whose check fails, in the order given.
    fn check_many(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<PartitionId>;
}

impl Checks for PartitionGuardSet {
    fn check_many(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<PartitionId> {
        PartitionGuardSet::check_many(self, partitions)
    }
}

/// The ids whose check fails, in the order given.
pub(crate) fn check_many(set: &impl Checks, ids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let failing = if let Some(array) = as_numpy(ids)? {
        check_numpy(set, &array)?
    } else if ids.hasattr("__arrow_c_array__")? || ids.hasattr("__arrow_c_stream__")? {
        let mut failing = Vec::new();
        for chunk in arrow_chunks(ids)? {
            failing.extend(check_arrow(ids.py(), set, &chunk)?);
        }
        failing
    } else {
        let ids = args::items(ids, "partition ids", args::partition)?;
        set.check_many(ids.into_iter())
    };
    Ok(failing.into_iter().map(|partition| partition.0).collect())
}

/// The value as a NumPy array, if it is one. Asked by name first, so that NumPy is not imported for nothing.
fn as_numpy<'py>(ids: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyUntypedArray>>> {
    let class = ids.get_type();
    let is_array = class.module()?.to_cow()? == "numpy" && class.name()?.to_cow()? == "ndarray";
    Ok(if is_array { ids.cast::<PyUntypedArray>().ok().cloned() } else { None })
}

/// Takes an Arrow array or stream over. What a foreign producer hands out may be anything, and the import panics on
/// some of it: an array that was taken already, for one.
fn arrow_chunks(ids: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayRef>> {
    let import = || -> PyResult<Vec<ArrayRef>> {
        let reader = ids.extract::<AnyArray>()?.into_reader()?;
        let chunks = reader.collect::<Result<_, _>>();
        chunks.map_err(|error| invalid(format!("partition ids cannot be read as an Arrow array: {error}")))
    };
    match std::panic::catch_unwind(AssertUnwindSafe(import)) {
        Ok(Err(error)) if error.is_instance_of::<PyException>(ids.py()) => {
            Err(invalid(format!("partition ids cannot be read as an Arrow array: {error}")))
        }
        Ok(chunks) => chunks,
        Err(_) => {
            Err(invalid("partition ids cannot be read as an Arrow array: it was released before".to_owned()))
        }
    }
}

/// Runs `check` on the array as the integer type it has, or returns `None` if it has none.
macro_rules! of_any_integer {
    ($types:ident, $check:ident) => {
        $types!($check u32)
            .or_else(|| $types!($check i64))
            .or_else(|| $types!($check u64))
            .or_else(|| $types!($check i32))
            .or_else(|| $types!($check u16))
            .or_else(|| $types!($check i16))
            .or_else(|| $types!($check u8))
            .or_else(|| $types!($check i8))
    };
}

fn check_numpy(set: &impl Checks, array: &Bound<'_, PyUntypedArray>) -> PyResult<Vec<PartitionId>> {
    if array.ndim() != 1 {
        return Err(invalid(format!(
            "partition ids are an array of {} dimensions; it must have 1",
            array.ndim()
        )));
    }
    if array.len() == 0 {
        return Ok(Vec::new());
    }
    macro_rules! numpy_of {
        ($check:ident $integer:ty) => {
            array.cast::<PyArray1<$integer>>().ok().map(|ids| $check(set, ids))
        };
    }
    of_any_integer!(numpy_of, check_numpy_of).unwrap_or_else(|| Err(not_integers(&array.dtype())))
}

fn check_numpy_of<T: Id + Element>(
    set: &impl Checks,
    array: &Bound<'_, PyArray1<T>>,
) -> PyResult<Vec<PartitionId>> {
    let ids = array.try_readonly().map_err(|error| invalid(format!("partition ids are in use: {error}")))?;
    match ids.as_slice() {
        Ok(slice) => check_slice(array.py(), set, slice),
        // With gaps between the ids there is no slice to look at.
        Err(_) => check_slice(array.py(), set, &ids.as_array().to_vec()),
    }
}

fn check_arrow(py: Python<'_>, set: &impl Checks, array: &ArrayRef) -> PyResult<Vec<PartitionId>> {
    if array.null_count() > 0 {
        return Err(invalid(format!("partition ids hold {} nulls; drop them first", array.null_count())));
    }
    macro_rules! arrow_of {
        ($check:ident $integer:ty) => {
            array
                .as_any()
                .downcast_ref::<PrimitiveArray<<$integer as Id>::Arrow>>()
                .map(|ids| $check(py, set, &ids.values()[..]))
        };
    }
    of_any_integer!(arrow_of, check_slice).unwrap_or_else(|| Err(not_integers(array.data_type())))
}

fn not_integers(found: &impl std::fmt::Display) -> PyErr {
    invalid(format!("partition ids are an array of {found}; it must be one of integers"))
}

fn check_slice<T: Id>(py: Python<'_>, set: &impl Checks, ids: &[T]) -> PyResult<Vec<PartitionId>> {
    py.detach(|| {
        let mut outside = None;
        let partitions = ids.iter().map_while(|&id| match id.to_u32() {
            Some(id) => Some(PartitionId(id)),
            None => {
                outside = Some(id);
                None
            }
        });
        let failing = set.check_many(partitions);
        match outside {
            None => Ok(failing),
            Some(id) => Err(invalid(format!(
                "partition id is {id}; it must be a whole number from 0 to {}",
                u32::MAX
            ))),
        }
    })
}

/// An integer type that arrays of ids come in.
trait Id: Copy + Send + Sync + std::fmt::Display + TryInto<u32> {
    type Arrow: ArrowPrimitiveType<Native = Self>;

    #[inline]
    fn to_u32(self) -> Option<u32> {
        self.try_into().ok()
    }
}

macro_rules! ids {
    ($($integer:ty: $arrow:ty),+ $(,)?) => {
        $(impl Id for $integer {
            type Arrow = $arrow;
        })+
    };
}

ids! {
    u8: UInt8Type, i8: Int8Type, u16: UInt16Type, i16: Int16Type,
    u32: UInt32Type, i32: Int32Type, u64: UInt64Type, i64: Int64Type,
}
