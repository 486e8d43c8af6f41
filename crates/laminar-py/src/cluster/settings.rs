//! Settings of a node as `laminar.open` takes them. The defaults are the node's.

use std::net::SocketAddr;
use std::time::Duration;

use laminar_node::NodeConfig;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args;
use crate::errors::invalid;

/// A setting: its name, and how a value of it is taken over.
type Setting = (&'static str, fn(&mut NodeConfig, &Bound<'_, PyAny>, &str) -> PyResult<()>);

const SETTINGS: &[Setting] = &[
    ("listen", |config, value, name| {
        config.listen = address(value, name)?;
        Ok(())
    }),
    ("metrics_address", |config, value, name| {
        put(&mut config.metrics_address, address(value, name).map(Some))
    }),
    ("inline_bytes_max", |config, value, name| {
        config.inline_bytes_max = count(value, name)?;
        config.data.dispatcher.entry_inline_bytes_max = config.inline_bytes_max;
        Ok(())
    }),
    ("append_bytes_max", |config, value, name| put(&mut config.append_bytes_max, count(value, name))),
    ("commit_bytes_max", |config, value, name| put(&mut config.commit_bytes_max, count(value, name))),
    ("commit_parts_max", |config, value, name| {
        put(&mut config.commit_parts_max, args::number(value, name, 1, 1_000_000))
    }),
    ("heartbeat_interval", |config, value, name| put(&mut config.heartbeat_interval, time(value, name))),
    ("worker_timeout", |config, value, name| put(&mut config.worker_timeout, time(value, name))),
    ("guard_refresh", |config, value, name| put(&mut config.guard_refresh, time(value, name))),
    ("retention_interval", |config, value, name| put(&mut config.retention_interval, time(value, name))),
    ("recovery_timeout", |config, value, name| put(&mut config.recovery_timeout, time(value, name))),
    ("close_timeout", |config, value, name| put(&mut config.close_timeout, time(value, name))),
    ("call_timeout", |config, value, name| put(&mut config.call_timeout, time(value, name))),
    ("client_timeout", |config, value, name| put(&mut config.client_timeout, time(value, name))),
    ("stage_interval", |config, value, name| put(&mut config.stage_interval, time(value, name))),
    ("stage_age", |config, value, name| put(&mut config.stage_age, time(value, name))),
    ("disk_faults", |config, value, name| {
        config.disk_faults = Some(args::text(value, name)?.into());
        Ok(())
    }),
    ("snapshot_entries", |config, value, name| {
        put(&mut config.data.raft.snapshot_entries, count(value, name))
    }),
    ("snapshot_bytes", |config, value, name| {
        put(&mut config.data.raft.snapshot_bytes, args::number(value, name, 1 << 16, 1 << 40))
    }),
    ("apply_attempts_max", |config, value, name| {
        put(&mut config.data.segmented.apply_attempts_max, args::number(value, name, 1, 1_000_000))
    }),
    ("apply_backoff_max", |config, value, name| {
        put(&mut config.data.segmented.apply_backoff_max, time(value, name))
    }),
    ("partition_ops_max", |config, value, name| {
        put(&mut config.data.dispatcher.partition.ops_max, count(value, name))
    }),
    ("partition_bytes_max", |config, value, name| {
        put(&mut config.data.dispatcher.partition.bytes_max, count(value, name))
    }),
    ("partition_age_max", |config, value, name| {
        put(&mut config.data.dispatcher.partition.age_max, time(value, name))
    }),
];

/// The names of all settings of a node, as ``laminar.open`` takes them.
#[pyfunction]
pub(crate) fn node_settings() -> Vec<&'static str> {
    SETTINGS.iter().map(|(name, _)| *name).collect()
}

/// A configuration with these settings.
pub(crate) fn config(settings: &Bound<'_, PyDict>) -> PyResult<NodeConfig> {
    let mut config = NodeConfig::default();
    for (name, value) in settings {
        let name = args::text(&name, "a setting")?;
        let Some((_, set)) = SETTINGS.iter().find(|(known, _)| *known == name) else {
            let known = node_settings().join(", ");
            return Err(invalid(format!("there is no setting {name}; there are {known}")));
        };
        set(&mut config, &value, &name)?;
    }
    Ok(config)
}

fn put<T>(place: &mut T, value: PyResult<T>) -> PyResult<()> {
    *place = value?;
    Ok(())
}

fn count(value: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    args::number(value, name, 1, 1 << 40)
}

fn time(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    args::seconds(value, name)
}

fn address(value: &Bound<'_, PyAny>, name: &str) -> PyResult<SocketAddr> {
    let text = args::text(value, name)?;
    text.parse()
        .map_err(|_| invalid(format!("{name} is {text:?}; it must be an address and port, as 127.0.0.1:0")))
}
