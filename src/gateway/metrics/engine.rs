//! The engine's gauges and counters, and what is in this binary, as Prometheus text.

use super::{family, sample};
use crate::gateway::startup;
use crate::rdma::WcStatus;
use crate::transfer::{Engine, EngineStats};

/// Appends them.
pub(super) fn render(out: &mut String, engine: Option<&Engine>) {
    family(out, "vgwrdma_build_info", "gauge", "Version of the gateway and its cuObject library.");
    let labels = format!(
        "version=\"{}\",provider=\"{}\",library=\"{}\",rdma=\"{}\"",
        env!("CARGO_PKG_VERSION"),
        startup::provider_label(),
        label(&startup::provider()),
        if engine.is_some() { "on" } else { "off" }
    );
    sample(out, "vgwrdma_build_info", &labels, 1);
    if let Some(engine) = engine {
        render_stats(out, &engine.stats());
    }
}

/// A text that may stand between the quotes of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}

fn render_stats(out: &mut String, stats: &EngineStats) {
    family(out, "vgwrdma_engine_chunks", "gauge", "Chunks of registered memory by state.");
    for (state, value) in [
        ("free", stats.chunks_free as u64),
        ("leased", stats.chunks_leased as u64),
        ("quarantined", stats.chunks_quarantined as u64),
        ("lost", stats.chunks_lost as u64),
    ] {
        sample(out, "vgwrdma_engine_chunks", &format!("state=\"{state}\""), value);
    }
    for (name, help, value) in [
        ("channels_open", "Channels in service.", stats.channels_open),
        ("channels_condemned", "Channels out of service after a timeout.", stats.channels_condemned),
        ("operations_in_flight", "Operations submitted and not completed.", stats.operations_in_flight),
        ("operations_queued", "Operations waiting for a channel.", stats.operations_queued),
        ("transfers_running", "Transfers in progress.", stats.transfers_running),
        ("transfers_waiting", "Transfers waiting for memory.", stats.transfers_waiting),
        ("jobs_queued", "Jobs that wait for a worker thread.", stats.jobs_queued),
    ] {
        let name = format!("vgwrdma_engine_{name}");
        family(out, &name, "gauge", help);
        sample(out, &name, "", value);
    }
    family(out, "vgwrdma_engine_transfers_total", "counter", "Transfers by how they ended.");
    for (end, value) in [
        ("done", stats.transfers_done),
        ("failed", stats.transfers_failed),
        ("cancelled", stats.transfers_cancelled),
        ("busy", stats.transfers_busy),
    ] {
        sample(out, "vgwrdma_engine_transfers_total", &format!("end=\"{end}\""), value);
    }
    for (name, help, value) in [
        ("operations_done_total", "Operations that completed well.", stats.operations_done),
        ("operations_retried_total", "Operations submitted again.", stats.operations_retried),
        ("operations_timed_out_total", "Operations that timed out.", stats.operations_timed_out),
        ("chunk_waits_total", "Times a transfer had to wait for memory.", stats.chunk_waits),
    ] {
        let name = format!("vgwrdma_engine_{name}");
        family(out, &name, "counter", help);
        sample(out, &name, "", value);
    }
    family(out, "vgwrdma_engine_chunk_wait_seconds_total", "counter", "Time transfers waited for memory.");
    sample(out, "vgwrdma_engine_chunk_wait_seconds_total", "", stats.chunk_wait_time.as_secs_f64());
    family(out, "vgwrdma_engine_completions_failed_total", "counter", "Failed completions by status.");
    for (status, count) in &stats.failures {
        let labels = format!("status=\"{}\"", WcStatus(*status).name());
        sample(out, "vgwrdma_engine_completions_failed_total", &labels, count);
    }
    family(out, "vgwrdma_engine_endpoint_in_service", "gauge", "Whether transfers are sent to an address.");
    for endpoint in &stats.endpoints {
        let labels = format!("endpoint=\"{}\"", label(&endpoint.name));
        sample(out, "vgwrdma_engine_endpoint_in_service", &labels, u8::from(endpoint.in_service));
    }
    family(out, "vgwrdma_engine_endpoint_bytes_total", "counter", "Bytes moved over an address.");
    for endpoint in &stats.endpoints {
        let labels = format!("endpoint=\"{}\"", label(&endpoint.name));
        sample(out, "vgwrdma_engine_endpoint_bytes_total", &labels, endpoint.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_have_types_and_labels() {
        let stats = EngineStats { chunks_free: 3, failures: [(10, 2)].into(), ..EngineStats::default() };
        let mut out = String::new();
        render_stats(&mut out, &stats);
        assert!(out.contains("vgwrdma_engine_chunks{state=\"free\"} 3\n"));
        assert!(out.contains("# TYPE vgwrdma_engine_channels_open gauge\n"));
        assert!(out.contains("{status=\"IBV_WC_REM_ACCESS_ERR\"} 2\n"));
        assert_eq!(label("a\"b\nc"), "a\\\"b c");
    }
}
